"""Runs cases in child processes, the reference loop in between, and works out their figures.

This process imports nothing large: on Linux the peak of a child is at least what its parent had when it was made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from cases import CONFIG, CONFIG_3B, ROOT, Bank, Case, Engine, Process

__all__ = ["Figures", "Laboratory"]

Figures = dict[str, float | None]
_ENGINE, _BANK = (str(ROOT / "benchmarks" / name) for name in ("engine.py", "bank.py"))
_LOOP = "s = 0\nfor i in range(10**7): s += i"


class Ended(NamedTuple):
    """What a child process printed and took."""

    text: str
    cpu_s: float
    peak_mb: float


class Laboratory:
    """Measures cases in a folder for their files. ``reference``: CPU seconds of the loop, each time it was run."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder = folder
        self.runs = runs
        self.reference: list[float] = []
        (folder / CONFIG).write_text(json.dumps(CONFIG_3B))

    def run(self, case: Case) -> dict[str, Any]:
        """The figures of a case, and the mean of the reference loops just before and just after it."""
        before = self.reference[-1] if self.reference else self._loop()
        match case:
            case Engine():
                kind, figures = "engine", self._engine(case)
            case Process():
                kind, figures = "process", self._process(case)
            case Bank():
                kind, figures = "bank", self._bank(case)
        return {"kind": kind, "reference_s": (before + self._loop()) / 2, "figures": figures}

    def profile(self, case: Engine) -> str:
        """Where the long run of a case spends its time."""
        self._prepare(case)
        return self._child(_ENGINE, "--profile", str(case.write(self.folder, case.long))).text

    def _loop(self) -> float:
        self.reference.append(self._child("-c", _LOOP).cpu_s)
        return self.reference[-1]

    def _prepare(self, case: Engine) -> None:
        if (command := case.prepare()) is not None:
            self._child("-m", "bpusim", *command)

    def _engine(self, case: Engine) -> Figures:
        self._prepare(case)
        files = [str(case.write(self.folder, n)) for n in (case.short, case.long)]
        seen = [json.loads(self._child(_ENGINE, *files).text) for _ in range(self.runs)]
        short, long = ({k: min(row[k] for row in rows) for k in rows[0]} for rows in zip(*seen, strict=True))
        more = {k: long[k] - short[k] for k in long}
        return {
            "device_s_per_cpu_s": _ratio(long["device_s"], long["cpu_s"]),
            "decode_device_s_per_cpu_s": _ratio(more["device_s"], more["cpu_s"]),
            "events_per_token": _ratio(long["events"], long["tokens"]),
            "decode_events_per_token": _ratio(more["events"], more["tokens"]),
            "decode_events_per_step": _ratio(more["events"] * case.together, more["tokens"]),
            "cpu_us_per_op": _ratio(long["cpu_s"] * 1e6, long["ops"]),
            "decode_cpu_us_per_op": _ratio(more["cpu_s"] * 1e6, more["ops"]),
            "short_peak_mb": short["peak_mb"],
            "peak_mb": long["peak_mb"],
        }

    def _process(self, case: Process) -> Figures:
        seen = [self._child("-m", "bpusim", *case.command()) for _ in range(self.runs)]
        return {
            "cpu_s": min(e.cpu_s for e in seen),
            "median_cpu_s": median(e.cpu_s for e in seen),
            "peak_mb": min(e.peak_mb for e in seen),
        }

    def _bank(self, case: Bank) -> Figures:
        seen = [json.loads(self._child(_BANK, case.stream).text)["cpu_s"] for _ in range(self.runs)]
        return {"cpu_s": min(seen), "median_cpu_s": median(seen)}

    def _child(self, *arguments: str) -> Ended:
        """Run Python with these arguments on the simulator of this clone, whichever is installed."""
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
        with (self.folder / "errors").open("w+") as errors:
            child = subprocess.Popen(
                [sys.executable, *arguments], cwd=self.folder, env={**os.environ, "PYTHONPATH": path},
                stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
            assert child.stdout is not None
            text = child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                errors.seek(0)
                raise SystemExit((errors.read().strip().splitlines() or [f"error: {arguments} failed"])[-1])
        return Ended(text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def _ratio(a: float, b: float) -> float | None:
    """None where noise ate the difference."""
    return a / b if b > 0 else None
