"""The DRAM channel of a scenario, at the fidelity it asks for, and the ports into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import simpy

from bpusim.dram import FlowChannel, arbiter, dram_preset
from bpusim.errors import HardwareError, Problem, ScenarioError
from bpusim.hardware import DmaSpec, MachineSpec
from bpusim.metrics import Recorder
from bpusim.ports import BufferKind, Port
from bpusim.runtime import MemoryMap, PlacedModel
from bpusim.scenario import Scenario

if TYPE_CHECKING:
    from bpusim.dram.bank.channel import BankChannel

__all__ = ["channel_of", "peak_of", "port_of"]


def channel_of(
    env: simpy.Environment,
    scenario: Scenario,
    recorder: Recorder,
    models: Mapping[str, PlacedModel],
    memory: MemoryMap,
) -> FlowChannel | BankChannel:
    """The channel ``engine.dram`` asks for. Raises errors at the place of what it cannot do."""
    if scenario.engine.dram == "bank":
        return _bank_channel(env, scenario, recorder, models, memory)
    return _flow_channel(env, scenario, recorder)


def peak_of(scenario: Scenario) -> int:
    """B/s on the pins of the scenario's channel, by the table of its fidelity."""
    name = scenario.machine.dram.preset
    if scenario.engine.dram == "bank":
        from bpusim.dram.timing import channel

        return channel(name).peak
    return dram_preset(name).peak


def _flow_channel(env: simpy.Environment, scenario: Scenario, recorder: Recorder) -> FlowChannel:
    dram = scenario.machine.dram
    try:
        preset = dram_preset(dram.preset)
    except HardwareError as e:
        raise HardwareError(
            Problem(p.what, scenario.where("machine", "dram", "preset"), p.do) for p in e.problems
        ) from None
    return FlowChannel(env, preset.sustained, arbiter(dram.arbitration), recorder, dram.order or ())


def _bank_channel(
    env: simpy.Environment,
    scenario: Scenario,
    recorder: Recorder,
    models: Mapping[str, PlacedModel],
    memory: MemoryMap,
) -> BankChannel:
    from bpusim.dram.bank.channel import BankChannel
    from bpusim.dram.bank.model import Controller
    from bpusim.dram.timing import channel

    dram = scenario.machine.dram
    found = channel(dram.preset, scenario.where("machine", "dram", "preset"))
    if dram.arbitration not in ("proportional", "strict"):
        place = scenario.where("machine", "dram", "arbitration")
        raise ScenarioError(f"{dram.arbitration} arbitration is not modelled at bank fidelity yet", place=place)
    regions: dict[str, dict[BufferKind, tuple[int, int]]] = {}
    spare = (memory.usable, max(dram.capacity - memory.usable, 1 << 26))
    for i, name in enumerate((*scenario.machine.cores.names, "cpu")):
        mine = [m for m, placed in models.items() if any(core == i for core, _ in placed.parts)]

        def stretch(part: str, mine: list[str] = mine) -> tuple[int, int]:
            found = [r for r in memory.regions if r.name in {f"{m}.{part}" for m in mine}]
            low = min((r.base for r in found), default=spare[0])
            return (low, max(r.base + r.bytes for r in found) - low) if found else spare

        regions[name] = {
            "weights": stretch("weights"),
            "kv": stretch("kv"),
            "spill": stretch("workspace"),
            "io": stretch("workspace"),
        }
    return BankChannel(env, found, recorder, Controller(), regions)


def port_of(channel: FlowChannel | BankChannel, name: str, dma: DmaSpec, machine: MachineSpec, slots: int = 1) -> Port:
    """A port; ``slots`` transfers of it may be under way at a time."""
    if isinstance(channel, FlowChannel):
        return channel.port(name, dma.window, dma.latency + dram_preset(machine.dram.preset).latency, dma.port)
    return channel.port(name, dma.window, dma.latency, dma.port, slots)
