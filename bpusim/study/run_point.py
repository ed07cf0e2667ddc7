"""One point of a study, run where there is room: in this process, another one, or on another machine."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import version
from pathlib import Path
from socket import gethostname
from typing import Any

from bpusim.errors import BpusimError, HardwareError, ScenarioError, StudyError, did_you_mean
from bpusim.metrics import Result
from bpusim.study.recompile import Recompiler

__all__ = ["Job", "Row", "run_jobs", "watch_parent"]

Row = dict[str, Any]
"""``key``; ``point``: values by path; ``status``: ``ok``, ``failed`` or ``infeasible``; ``measures``: by figure, a
value a seed; for others than ``ok`` the ``error``."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to know of a point. ``overrides``: of the scenario; ``point``: its values as the study
    gives them."""

    key: str
    scenario: str
    point: Mapping[str, Any]
    overrides: Mapping[str, Any]
    measures: tuple[str, ...]
    also: tuple[str, ...]
    """Figures that a point may be without."""
    seeds: int
    infeasible: bool
    recompiler: Recompiler
    files: tuple[str, ...] = ()
    """Which have to be where it runs."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the packages that results depend on, which have to be the same where it runs."""


class UnknownFigureError(StudyError):
    """A figure that a study asks for by its whole name, and a point does not have: every point's row would be without
    it."""


def run_jobs(jobs: Sequence[Job]) -> list[Row]:
    """A row for each. Raises :class:`StudyError` for what is wrong with the place or with the study, not with a point:
    no row would be worth keeping."""
    for job in jobs:
        _check_place(job)
    return [_row(job) for job in jobs]


@cache
def versions() -> dict[str, str]:
    """Of what results depend on; of bpusim with a hash of its files, because a working copy changes and keeps its
    version."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        name = file.relative_to(package)
        if file.suffix in (".py", ".yaml", ".json") and name.parts[0] not in ("cli", "report"):
            digest.update(f"{name}\n".encode() + file.read_bytes())
    ours = f"{version('bpusim')}+{digest.hexdigest()[:12]}"
    return {"bpusim": ours, "numpy": version("numpy"), "simpy": version("simpy")}


def _check_place(job: Job) -> None:
    here = versions()
    for name, wanted in job.versions.items():
        if here[name] != wanted:
            what = f"the worker on {gethostname()} has {name} {here[name]}, and the sweep {wanted}"
            raise StudyError(what, do="install the same versions on every machine")
    for file in job.files:
        if not Path(file).is_file():
            what = f"the worker on {gethostname()} has no file {file}"
            raise StudyError(what, do="run workers where the same folders are: on a shared file system")


def _row(job: Job) -> Row:
    row: Row = {"key": job.key, "point": dict(job.point)}
    try:
        return row | {"status": "ok", "measures": _measured(job)}
    except UnknownFigureError:
        raise
    except BpusimError as e:
        infeasible = job.infeasible and isinstance(e, ScenarioError | HardwareError)
        text = " | ".join(str(p).replace("error: ", "", 1) for p in e.problems)
        return row | {"status": "infeasible" if infeasible else "failed", "error": text}
    except Exception as e:  # a defect of one point is no reason to lose the others
        return row | {"status": "failed", "error": f"{type(e).__name__}: {e}"}


def _measured(job: Job) -> dict[str, list[float | int | None]]:
    from bpusim.scenario import load_scenario
    from bpusim.system import simulate

    out: dict[str, list[float | int | None]] = {}
    changes = dict(job.overrides)
    loaded = load_scenario(job.scenario, changes)
    traces = job.recompiler.traces(loaded) if any(p.partition(".")[0] == "machine" for p in changes) else {}
    for seed in range(job.seeds):
        more = {**traces, **({"engine.seed": seed} if job.seeds > 1 else {})}
        run = load_scenario(job.scenario, {**changes, **more}) if more else loaded
        for name, value in picked(simulate(run), job.measures, job.also).items():
            out.setdefault(name, []).append(value)
    return out


def picked(result: Result, measures: Sequence[str], also: Sequence[str] = ()) -> dict[str, float | int | None]:
    """Numbers of the summary that are named, in that order; ``*`` stands for any part of a name. Raises
    :class:`UnknownFigureError` for one of ``measures`` that is not there; nothing misses one of ``also``."""
    from bpusim.metrics import numbers

    known = numbers(result)
    out: dict[str, float | int | None] = {}
    for wanted in (*measures, *also):
        if wanted in known:
            out[wanted] = known[wanted]
        elif wanted in measures and not set("*?[") & set(wanted):
            do = did_you_mean(wanted, list(known)) if get_close_matches(wanted, list(known)) else ""
            do = do or "look into summary.json; where only some points have it, put a * into its name"
            raise UnknownFigureError(f"the summary has no '{wanted}'", do=do)
        else:
            out |= {name: value for name, value in known.items() if fnmatchcase(name, wanted)}
    return out


def watch_parent() -> None:
    """End this process with the one that made it, however that ends: a worker must not outlive a killed sweep."""
    from multiprocessing import parent_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent sees to that
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
