"""A result as a folder that is there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bpusim.errors import BpusimError, Place
from bpusim.metrics import Result
from bpusim.report.files import requests_csv, summary_json
from bpusim.report.heat import thermal_csv
from bpusim.report.view import MANIFEST, View
from bpusim.scenario import Scenario

__all__ = ["check_folder", "write_folder"]

FILES = ("summary.json", "requests.csv", "thermal.csv", "series.json", "report.html", "manifest.json")
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
    }


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


def write_folder(folder: Path, result: Result, scenario: Scenario, overrides: Sequence[str]) -> None:
    """Write ``manifest.json``, ``summary.json``, ``requests.csv``, ``thermal.csv`` of a run with heat, ``series.json``
    and ``report.html`` of one with detail: all of them, or an error and none.

    They are made beside the folder first. An earlier result's files are replaced.
    """
    check_folder(folder)
    texts = {
        "manifest.json": json.dumps(manifest(result, scenario, overrides), indent=1, ensure_ascii=False) + "\n",
        "summary.json": summary_json(result),
        "requests.csv": requests_csv(result),
    }
    if result.heat is not None:
        texts["thermal.csv"] = thermal_csv(result)
    if result.detail is not None:
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
        fresh.chmod(0o755)
        if folder.is_dir():
            for name in FILES:
                if name in texts:
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
