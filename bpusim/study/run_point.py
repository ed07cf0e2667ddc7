"""One point of a study, run where there is room: in this process, another one, or on another machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bpusim.errors import BpusimError
from bpusim.metrics import Result
from bpusim.study.recompile import Recompiler

__all__ = ["Job", "Row", "run_jobs", "watch_parent"]

Row = dict[str, Any]
"""``key``; ``point``: values by path; ``status``: ``ok``, ``failed`` or ``infeasible``; ``measures``: by figure, a value
a seed; for others than ``ok`` the ``error``."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker needs to know of a point. ``overrides``: of the scenario; ``point``: its values as they are told."""

    key: str
    scenario: str
    point: Mapping[str, Any]
    overrides: Mapping[str, Any]
    measures: tuple[str, ...]
    seeds: int
    infeasible: bool
    recompiler: Recompiler


def run_jobs(jobs: Sequence[Job]) -> list[Row]:
    """A row for each."""
    return [_row(job) for job in jobs]


def _row(job: Job) -> Row:
    row: Row = {"key": job.key, "point": dict(job.point)}
    try:
        return row | {"status": "ok", "measures": _measured(job)}
    except BpusimError as e:
        text = " | ".join(str(p) for p in e.problems)
        return row | {"status": "infeasible" if job.infeasible else "failed", "error": text}
    except Exception as e:  # a defect of one point is no reason to lose the others
        return row | {"status": "failed", "error": f"{type(e).__name__}: {e}"}


def _measured(job: Job) -> dict[str, list[float | int | None]]:
    from bpusim.scenario import load_scenario
    from bpusim.system import simulate

    out: dict[str, list[float | int | None]] = {}
    changes = dict(job.overrides)
    changes |= job.recompiler.traces(Path(job.scenario), changes)
    for seed in range(job.seeds):
        more = {"engine.seed": seed} if job.seeds > 1 else {}
        for name, value in picked(simulate(load_scenario(job.scenario, {**changes, **more})), job.measures).items():
            out.setdefault(name, []).append(value)
    return out


def picked(result: Result, measures: Sequence[str]) -> dict[str, float | int | None]:
    """Figures of a result that one of ``measures`` names; ``*`` stands for any part of a name."""
    from bpusim.metrics import figures

    found = figures(result)
    return {name: value for name, value in found.items() if any(fnmatchcase(name, m) for m in measures)}


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
