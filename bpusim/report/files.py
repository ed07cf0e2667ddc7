"""A result as files: a folder that is there whole or not at all."""

from __future__ import annotations

import csv
import hashlib
import io
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
from bpusim.scenario import Scenario

__all__ = ["check_folder", "streams_csv", "summary_json", "write_folder"]

FILES = ("summary.json", "requests.csv", "manifest.json")
"""In the order they are put in place: the manifest last, it vouches for the others."""
MANIFEST = "bpusim-manifest/1"


def summary_json(result: Result) -> str:
    """``summary.json``: the same scenario and seed give the same bytes."""
    return json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n"


def streams_csv(result: Result) -> str:
    """One row a stream."""
    rows = []
    for name, s in result.streams.items():
        row: dict[str, Any] = {"stream": name}
        for key, value in s.to_dict().items():
            if not isinstance(value, dict):
                row[key] = value
            elif key.endswith("breakdown_ms"):
                prefix = "ttft_" if key.startswith("ttft") else ""
                row |= {f"{prefix}{cause}_ms": ms for cause, ms in value.items()}
        rows.append(row)
    keys = list(dict.fromkeys(k for row in rows for k in row))
    return _csv(keys, [[row.get(k) for k in keys] for row in rows])


def requests_csv(result: Result) -> str:
    """One row a finished request, by arrival."""
    keys = ["stream", "request", "prompt_tokens", "output_tokens", "arrival_s", "ttft_ms", "tpot_ms", "e2e_ms"]
    rows = []
    for r in result.requests:
        tpot = (r.end - r.first_token) / (r.tokens - 1) / 1e9 if r.tokens > 1 else None
        rows.append(
            [r.stream, r.index, r.prompt, r.tokens, r.arrived / 1e12, r.ttft / 1e9, tpot, (r.end - r.arrived) / 1e9]
        )
    return _csv(keys, rows)


def _csv(keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([["" if v is None else v for v in row] for row in rows])
    return out.getvalue()


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
    """Write ``manifest.json``, ``summary.json`` and ``requests.csv``: all of them, or an error and none.

    They are made beside the folder first. An earlier result's files are replaced.
    """
    check_folder(folder)
    texts = {
        "manifest.json": json.dumps(manifest(result, scenario, overrides), indent=1, ensure_ascii=False) + "\n",
        "summary.json": summary_json(result),
        "requests.csv": requests_csv(result),
    }
    folder = folder.absolute()
    fresh: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        for name in FILES:
            (fresh / name).write_text(texts[name], encoding="utf-8")
        fresh.chmod(0o755)
        if folder.is_dir():
            for name in FILES:
                os.replace(fresh / name, folder / name)
        else:
            os.replace(fresh, folder)
    except OSError as e:
        raise BpusimError(f"cannot write results: {e.strerror}", place=Place(str(folder))) from None
    finally:
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)
