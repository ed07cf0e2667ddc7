"""The plan of each tensor split: which op types are spread over the cores, and what that can gain at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpusim.metrics import SplitPhase, SplitPlan
from bpusim.runtime import PlacedModel
from bpusim.trace import CallProgram, TeamCall, TensorSplit
from bpusim.units import PS_PER_S

if TYPE_CHECKING:
    from bpusim.system.build import System

__all__ = ["split_plans"]


def split_plans(system: System) -> dict[str, SplitPlan]:
    """By model, of those that several cores run together."""
    names = system.scenario.machine.cores.names
    return {
        name: SplitPlan(
            [names[c] for c in m.team.cores],
            m.team.sync,
            {phase: _phase(system, m, m.split, phase) for phase in m.trace.phases},
        )
        for name, m in system.models.items()
        if m.team is not None and m.split is not None
    }


def _phase(system: System, model: PlacedModel, split: TensorSplit, phase: str) -> SplitPhase:
    """A full chunk at the start of the context, a decode step in the middle of it."""
    kv = model.context // 2 if phase == "decode" else 0
    program = split.bind(phase, kv=kv, tokens=model.trace.phase(phase).tokens or 1)
    core, host = system.cores[0], system.executor.host
    spec, rate = core.spec, core.port.rate_alone
    times: tuple[dict[str, float], dict[str, float]] = ({}, {})
    barriers = layers = own = moved = 0
    for segment in program.segments:
        if not isinstance(segment, CallProgram):
            times[False][segment.type] = times[False].get(segment.type, 0.0) + host.fallback_ps(segment)
            continue
        assert isinstance(segment, TeamCall)
        barriers += len(segment.groups) - 1
        layers += segment.layout.layers
        own += segment.bytes
        moved += segment.moved_by_all
        read, written = segment.layout.moved(segment.fields)
        for op, cycles, size in zip(segment.ops, segment.fields[0].tolist(), (read + written).tolist(), strict=True):
            took = max(cycles * PS_PER_S / spec.clock, size * PS_PER_S / rate) + spec.op_overhead
            by_type = times[split.splits(op)]
            by_type[op.type] = by_type.get(op.type, 0.0) + took
    total = sum(times[0].values()) + sum(times[1].values())
    left, spread = (
        {op: t / total for op, t in sorted(table.items(), key=lambda row: -row[1]) if total} for table in times
    )
    return SplitPhase(kv, split.n, spread, left, barriers, layers, moved / own if own else 1.0)
