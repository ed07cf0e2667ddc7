"""A call in progress that goes by its plan: a few flows, and a few instants at which the core must have computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpusim.cores.plan import Plan
from bpusim.cores.run import CallRun, TiledRun
from bpusim.cores.tiles import CallTimes
from bpusim.ports import Flow, History
from bpusim.trace import CallProgram, ItemRange
from bpusim.units import Ps

if TYPE_CHECKING:
    from bpusim.arrays import Ints
    from bpusim.cores.bpu import BpuCore

__all__ = ["PlannedRun"]


class PlannedRun:
    """A call that goes by its plan."""

    __slots__ = ("_at", "_before", "_ends", "_histories", "call", "contended", "core", "plan", "sizes", "throttled")

    def __init__(self, core: BpuCore, call: CallProgram, plan: Plan) -> None:
        self.core, self.call, self.plan = core, call, plan
        self.sizes = plan.sizes(call.at)
        self.contended, self.throttled = False, 0.0
        self._at = 0
        self._before: Ps = 0
        self._ends: list[list[Ps]] = []
        self._histories: list[History] = []

    @property
    def begun(self) -> bool:
        """Whether its first flow is over."""
        return self._at > 0

    def go(self, now: Ps) -> Ps | None:
        """Start the next run's flow, or say how long to wait for."""
        k = self._at
        if k == len(self.plan.runs):
            return self._before - now if self._before > now else None
        run = self.plan.runs[k]
        if run.waits is not None:
            ready = self._ends[run.waits[0]][run.waits[1]]
            if ready > now:
                return ready - now
        call = self.call
        self.core.fetch(ItemRange(call, run.start, run.stop, self.sizes[k]))
        return 0

    def arrived(self, flow: Flow) -> None:
        """Note when what others wait for is computed."""
        k, history, size, before = self._at, flow.history, self.sizes[self._at], self._before
        self.contended = self.contended or flow.slowed
        self.throttled += flow.throttled
        ends = [q.at(history, size, before) for q in self.plan.runs[k].queries]
        self._ends.append(ends)
        self._histories.append(history)
        self._before = ends[-1]
        self._at = k + 1

    def caught_up(self, now: Ps) -> None:
        """Its flows have no pace."""

    def alone(self) -> tuple[Ps, Ps]:
        """Nothing waits for room."""
        duration = self.plan.alone(self.sizes, self.core.port.rate_alone)
        return duration, duration

    def computed(self) -> Ints:
        """By the histories of its flows."""
        return self._by_tiles(self.core.times(self.call)).computed()

    def retimed(self, now: Ps, before: CallTimes, times: CallTimes) -> CallRun:
        """No plan holds any more: go on from the same place by tiles."""
        return self.tiled(before).retimed(now, before, times)

    def tiled(self, times: CallTimes) -> TiledRun:
        """From the same place."""
        run = self._by_tiles(times)
        if self._at < len(self.plan.runs):
            run.stop = self.plan.runs[self._at].stop
        return run

    def _by_tiles(self, times: CallTimes) -> TiledRun:
        run = TiledRun(self.core, self.call, times)
        run.contended, run.throttled = self.contended, self.throttled
        for planned, history in zip(self.plan.runs, self._histories, strict=False):
            run.take(planned.stop, history)
        return run
