"""A result as a folder that is there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bpusim.errors import BpusimError, Place
from bpusim.metrics import Result
from bpusim.report.files import requests_csv, summary_json
from bpusim.report.heat import thermal_csv
from bpusim.report.ops import op_rows, ops_csv
from bpusim.report.view import MANIFEST, View
from bpusim.scenario import Scenario
from bpusim.units import PS_PER_S

__all__ = ["check_folder", "write_folder"]

FILES = (
    "summary.json", "requests.csv", "ops.csv", "thermal.csv", "series.json", "report.html", "trace.json.gz",
    "trace.pftrace", "manifest.json",
)  # fmt: skip
"""In the order they are put in place: the manifest last, it vouches for the others."""


def manifest(result: Result, scenario: Scenario, overrides: Sequence[str]) -> dict[str, Any]:
    """What made these files: versions, inputs by hash, overrides, seed, events."""
    folder = scenario.file.parent
    inputs = [*scenario.files, *dict.fromkeys(scenario.trace_path(m) for m in scenario.models)]
    return {
        "schema": MANIFEST,
        "versions": {
            "bpusim": version("bpusim"),
            "python": platform.python_version(),
            "simpy": version("simpy"),
            "numpy": version("numpy"),
            "matplotlib": version("matplotlib"),
        },
        "scenario": scenario.name,
        "machine": scenario.machine.name,
        "overrides": list(overrides),
        "inputs": {os.path.relpath(p, folder): hashlib.sha256(p.read_bytes()).hexdigest() for p in inputs},
        "seed": result.seed,
        "events": result.events,
        "partial": result.partial,
        **({"ops": _coverage(result)} if result.detail is not None else {}),
    }


def _coverage(result: Result) -> dict[str, Any]:
    """Which part of the run ``ops.csv`` is about."""
    assert result.detail is not None
    until = result.detail.ops_until
    return {"until_s": (result.elapsed if until is None else until) / PS_PER_S, "whole": until is None}


def check_folder(folder: Path) -> None:
    """Refuse, before the run, a folder that holds anything but an earlier result."""
    if folder.exists() and not folder.is_dir():
        raise BpusimError(
            "this is a file, not a folder for results", place=Place(str(folder)), do="name another folder"
        )
    if not folder.is_dir():
        return
    others = sorted(p.name for p in folder.iterdir() if p.name not in FILES)
    if others or (any(folder.iterdir()) and not _is_result(folder)):
        what = (
            f"the folder holds something other than a result: {others[0]}" if others else "these files are not a result"
        )
        raise BpusimError(what, place=Place(str(folder)), do="name a new or empty folder")


def _is_result(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["schema"] == MANIFEST)
    except (OSError, ValueError, LookupError, TypeError):
        return False


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until it is over: what they interrupt is whole."""
    if threading.current_thread() is not threading.main_thread():  # no other one is interrupted by them
        yield
        return
    heard: list[int] = []
    before = {n: signal.signal(n, lambda number, _: heard.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler if handler is not None else signal.SIG_DFL)
    for number in heard:
        signal.raise_signal(number)


def write_folder(
    folder: Path,
    result: Result,
    scenario: Scenario,
    overrides: Sequence[str],
    more: Mapping[str, bytes] = MappingProxyType({}),
    *,
    report: bool = True,
) -> None:
    """Write ``manifest.json``, ``summary.json``, ``requests.csv``; of a run with detail also ``ops.csv`` and (but for
    ``report``) ``series.json`` and ``report.html``; ``thermal.csv`` of one with heat, and ``more`` files of ``FILES``
    by name: all of them, or an error and none.

    They are made beside the folder first. An earlier result's files are replaced.
    """
    check_folder(folder)
    texts = {
        "manifest.json": json.dumps(manifest(result, scenario, overrides), indent=1, ensure_ascii=False) + "\n",
        "summary.json": summary_json(result),
        "requests.csv": requests_csv(result),
    }
    if result.detail is not None:
        texts["ops.csv"] = ops_csv(op_rows(result.detail))
    if result.heat is not None:
        texts["thermal.csv"] = thermal_csv(result)
    if result.detail is not None and report:
        from bpusim.report.page import report_html
        from bpusim.report.series import series_json

        texts["series.json"] = series_json(result, scenario)
        texts["report.html"] = report_html(View.of(texts))
    folder = folder.absolute()
    fresh: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        for name, text in texts.items():
            (fresh / name).write_text(text, encoding="utf-8")
        for name, data in more.items():
            (fresh / name).write_bytes(data)
        fresh.chmod(0o755)
        if folder.is_dir():
            with _undisturbed():
                for name in FILES:
                    if name in texts or name in more:
                        os.replace(fresh / name, folder / name)
                    else:
                        (folder / name).unlink(missing_ok=True)
        else:
            os.replace(fresh, folder)
    except OSError as e:
        raise BpusimError(f"cannot write results: {e.strerror}", place=Place(str(folder))) from None
    finally:
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)
