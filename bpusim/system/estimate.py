"""What a run at bank fidelity will cost: the flow model counts the bursts, a short bank run tells their price."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from bpusim.scenario import Scenario, load_scenario
from bpusim.system.build import simulate

__all__ = ["bank_cost"]

_PROBE = 100_000
_OVERHEAD = 1.4
"""The probe is one call of the model; a run stops it at every slice and event."""


def bank_cost(path: Path, overrides: Sequence[str]) -> tuple[int, float]:
    """(bursts of one channel, seconds of CPU here) that the scenario takes at bank fidelity, roughly."""
    scenario = load_scenario(path, [*overrides, "engine.dram=flow", "machine.dram.mapping=null"])
    result = simulate(scenario)
    bursts, price = _price(scenario)
    n = round(sum(result.dram.channel_bytes.values()) / bursts)
    return n, n * price * _OVERHEAD


def _price(scenario: Scenario) -> tuple[int, float]:
    """(bytes of a burst over all channels, seconds of CPU a burst) on the scenario's channel, two readers at a time."""
    from bpusim.dram.bank.model import BankRun, Controller, Master
    from bpusim.dram.timing import channel

    dram = scenario.machine.dram
    found = channel(dram.preset)
    readers = [Master(count=_PROBE // 2, out=64, path=600, base=k << 28) for k in range(2)]
    controller = Controller(arbitration="first_come")
    BankRun(found, [Master(count=10)], controller).run()  # compiles, or loads what was compiled
    run = BankRun(found, readers, controller, dram.mapping)
    begin = time.process_time()
    run.run()
    return found.line * dram.channels, (time.process_time() - begin) / _PROBE
