"""Runs scenarios and prints what each run cost, as JSON. A process of its own: nothing is warm, its peak is its own.

    python benchmarks/engine.py SCENARIO...
    python benchmarks/engine.py --profile SCENARIO

Only ``System.run`` is timed; the machine is built before. A run of milliseconds is repeated on a new machine, and the
least counts. ``--profile`` prints where the time of a run goes instead.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from collections.abc import Sequence
from unittest.mock import patch

from bpusim.metrics import Recorder
from bpusim.ports import CallCounters
from bpusim.scenario import load_scenario
from bpusim.system import System, build
from bpusim.units import PS_PER_S, Ps
from bpusim.workload import ChatStream

ENOUGH = 0.5
"""CPU seconds after which a run is not repeated."""


class OpRecorder(Recorder):
    """Counts the ops of the cores too: one addition a call."""

    ops = 0

    def call_ended(self, core: str, label: str, at: Ps, counters: CallCounters) -> None:
        self.ops += counters.ops
        super().call_ended(core, label, at, counters)

    def calls_passed(self, core: str, label: str, since: Ps, calls: int, occupied: Ps, counters: CallCounters) -> None:
        self.ops += counters.ops
        super().calls_passed(core, label, since, calls, occupied, counters)


def built(file: str) -> tuple[System, OpRecorder]:
    """The machine, and who counts its ops."""
    with patch.object(build, "Recorder", OpRecorder):
        system = System.build(load_scenario(file))
    assert isinstance(system.recorder, OpRecorder)
    return system, system.recorder


def cost(file: str) -> dict[str, float]:
    """CPU and device seconds, events, tokens and ops of a run, and the peak of this process (Linux: in KB)."""
    system, recorder = built(file)
    gc.collect()
    begin = time.process_time()
    system.run()
    return {
        "cpu_s": time.process_time() - begin,
        "device_s": system.env.now / PS_PER_S,
        "events": system.env.events,
        "tokens": sum(s.record.tokens for s in system.streams.values() if isinstance(s, ChatStream)),
        "ops": recorder.ops,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def costs(files: Sequence[str]) -> list[dict[str, float]]:
    """Of each file. Only first runs tell the peak; the rest come after them."""
    rows = [cost(file) for file in files]
    for file, row in zip(files, rows, strict=True):
        spent = row["cpu_s"]
        while spent < ENOUGH:
            again = cost(file)["cpu_s"]
            row["cpu_s"] = min(row["cpu_s"], again)
            spent += again
    return rows


def profile(file: str) -> str:
    """Where the time of the run goes."""
    try:
        from pyinstrument import Profiler
    except ImportError:
        raise SystemExit("error: a profile needs pyinstrument: pip install pyinstrument") from None
    system, _ = built(file)
    profiler = Profiler(interval=0.0005)
    with profiler:
        system.run()
    return profiler.output_text(unicode=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--profile", file]:
            print(profile(file))
        case files:
            print(json.dumps(costs(files)))
