"""How far a run is, for whoever watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpusim.scenario import ChatSpec
from bpusim.units import Ps
from bpusim.workload import ChatStream, FrameStream, PipelineStream

if TYPE_CHECKING:
    from bpusim.system.build import System

__all__ = ["Progress"]


class Progress:
    """Where a run stands when asked. Nothing of it is worked out before that, and asking changes nothing."""

    __slots__ = ("_system",)

    def __init__(self, system: System) -> None:
        self._system = system

    @property
    def now(self) -> Ps:
        """Simulated time."""
        now: Ps = self._system.env.now
        return now

    @property
    def fraction(self) -> float:
        """Part of the run that is over, 0 to 1: of ``run.until`` in time, or of the finite stream that has most to do
        in tokens, frames or runs, whichever ends the run first. A chat whose answers are drawn counts requests."""
        system = self._system
        finite = [_done(system, name, s) for name, s in system.streams.items() if s.finite]
        parts = [min(finite)] if finite else []
        if system.scenario.run.until:
            parts.append(self.now / system.scenario.run.until)
        return min(max(parts, default=0.0), 1.0)


def _done(system: System, name: str, stream: ChatStream | FrameStream | PipelineStream) -> float:
    if isinstance(stream, FrameStream):
        gone, every = stream.record.through + stream.record.dropped + stream.record.lost, stream.count
    elif isinstance(stream, PipelineStream):
        gone, every = stream.record.runs + stream.record.dropped, stream.count
    else:
        spec, record = system.scenario.streams[name], stream.record
        gone, every = record.requests + record.rejected, stream.requests
        if every and isinstance(spec, ChatSpec) and isinstance(spec.output, int):
            gone, every = record.tokens + record.rejected * spec.output, every * spec.output
    return gone / every if every else 1.0
