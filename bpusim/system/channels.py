"""The DRAM channel a scenario asks for, in either fidelity, and ports into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import simpy

from bpusim.dram import FlowChannel, FlowTable, Rules, flow_table
from bpusim.errors import ScenarioError
from bpusim.hardware import DmaSpec
from bpusim.metrics import RunWarning
from bpusim.ports import BufferKind, Observer, Port
from bpusim.runtime import MemoryMap, PlacedModel
from bpusim.scenario import Scenario
from bpusim.scenario.problems import problem_at
from bpusim.units import format_quantity

if TYPE_CHECKING:
    from bpusim.dram.bank.channel import BankChannel

__all__ = ["channel_of", "channel_warnings", "known_error", "port_of", "row_bytes", "table_of"]

_MASTERS_REGION = 1 << 26
"""Bytes of memory that a background master walks through."""


def table_of(scenario: Scenario) -> FlowTable:
    """What is known of the scenario's channel. Raises errors at the place of its name."""
    dram = scenario.machine.dram
    mapping = dram.mapping if scenario.engine.dram == "flow" else None
    place = scenario.where("machine", "dram", "preset")
    table = flow_table(dram.preset, dram.channels, mapping, place, scenario.where("machine", "dram", "mapping"))
    return table.at_clock(dram.speed)


def row_bytes(scenario: Scenario) -> int:
    """Bytes of an open row of the scenario's channel, in all its devices."""
    from bpusim.dram.timing import channel  # reads the timing set: only for those who ask for heat

    found = channel(scenario.machine.dram.preset, scenario.where("machine", "dram", "preset"))
    return found.row_lines * found.line


def known_error(scenario: Scenario, table: FlowTable) -> tuple[str, Mapping[str, tuple[float, float]]]:
    """(what a fidelity was compared with, its deviation by class of traffic): see docs/VALIDATION.md."""
    if scenario.engine.dram == "flow":
        return "the bank model", table.errors
    from bpusim.dram.bank.model import KNOWN_ERROR

    return "Ramulator 2.1 on LPDDR4-4266x32", KNOWN_ERROR


def channel_of(
    env: simpy.Environment,
    scenario: Scenario,
    observer: Observer,
    models: Mapping[str, PlacedModel],
    memory: MemoryMap,
) -> FlowChannel | BankChannel:
    """The channel ``engine.dram`` asks for. Raises errors at the place of what it cannot do."""
    dram, masters = scenario.machine.dram, scenario.machine.masters
    table = table_of(scenario)
    rules = Rules(dram.arbitration, dram.order or (), dram.weights or {}, dram.limits or {})
    if scenario.engine.dram == "flow":
        return FlowChannel(env, table, observer, rules, list(masters.items()))
    from bpusim.dram.bank.channel import BankChannel
    from bpusim.dram.timing import channel

    if dram.speed != 1:
        where = "machine", "dram", "speed"
        what, do = "the bank model runs a timing set at its own clock", "leave it out, or run it with engine.dram: flow"
        raise ScenarioError(problem_at(scenario.where(*where), where, what, do))
    found = channel(dram.preset, scenario.where("machine", "dram", "preset"))
    spare = memory.end  # behind what the models take
    background = [
        (name, spec, (spare + (k + 1) * _MASTERS_REGION) % dram.capacity)
        for k, (name, spec) in enumerate(masters.items())
    ]
    return BankChannel(
        env, found, table, observer, _regions(scenario, models, memory, spare), rules,
        mapping=dram.mapping, count=dram.channels, background=background,
    )  # fmt: skip


def channel_warnings(scenario: Scenario) -> list[RunWarning]:
    """What a user should know of the channel before believing its figures."""
    dram, table = scenario.machine.dram, table_of(scenario)
    masters = len(scenario.machine.cores.names) + len(scenario.machine.masters)
    out = []
    if table.capacity_bytes < dram.capacity:
        holds, asked = (format_quantity(n, "size") for n in (table.capacity_bytes, dram.capacity))
        text = f"{dram.preset} holds {holds} and the machine has {asked}: its devices are taken to be larger"
        out.append(RunWarning("dram-capacity", text))
    if scenario.engine.dram == "flow" and masters > table.streams[-1]:
        text = f"{masters} cores and masters: the flow model knows {table.streams[-1]:.0f} streams, more are too fast"
        out.append(RunWarning("dram-streams", text))
    return out


def _regions(
    scenario: Scenario, models: Mapping[str, PlacedModel], memory: MemoryMap, spare: int
) -> dict[str, dict[BufferKind, tuple[int, int]]]:
    """Where each master's buffers lie: its models' parts of the memory map; the CPU's own at its end."""
    regions: dict[str, dict[BufferKind, tuple[int, int]]] = {}
    for i, name in enumerate((*scenario.machine.cores.names, "cpu")):
        mine = [m for m, placed in models.items() if i in placed.cores]

        def stretch(part: str, mine: list[str] = mine) -> tuple[int, int]:
            found = [r for r in memory.regions if r.name in {f"{m}.{part}" for m in mine}]
            low = min((r.base for r in found), default=spare)
            return (low, max(r.base + r.bytes for r in found) - low) if found else (spare, _MASTERS_REGION)

        regions[name] = {
            "weights": stretch("weights"),
            "kv": stretch("kv"),
            "spill": stretch("workspace"),
            "io": stretch("workspace"),
        }
    return regions


def port_of(channel: FlowChannel | BankChannel, name: str, dma: DmaSpec, slots: int = 1) -> Port:
    """A port; ``slots`` transfers of it may be under way at a time."""
    if isinstance(channel, FlowChannel):
        return channel.port(name, dma.window, dma.latency, dma.port)
    return channel.port(name, dma.window, dma.latency, dma.port, slots)
