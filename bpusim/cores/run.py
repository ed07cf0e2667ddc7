"""A call in progress on a core: which flow comes next, what it waits for, and when it is over.

A call goes by its plan (:mod:`bpusim.cores.plan`) where there is one; else by its tiles, in runs that cannot stall and
in stretches that do (:mod:`bpusim.cores.pace`). A change of the core's clock or of the port's highest rate ends what
was worked out for the old ones: the flow under way is cut behind the tile it is in, what is not computed yet takes the
time it takes now, and the rest goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bpusim.cores.pace import Stretch, consumed
from bpusim.cores.recall import State, Step, arrival_of
from bpusim.cores.tiles import CallTimes, computed, run_length
from bpusim.ports import CRUMB, Flow, History
from bpusim.trace import CallPart, CallProgram
from bpusim.units import Ps

if TYPE_CHECKING:
    from bpusim.arrays import Ints
    from bpusim.cores.bpu import BpuCore

__all__ = ["CallRun", "TiledRun"]

_SHORT = 16
"""Stall-free runs of fewer items are not worth a flow of their own where the core is what limits."""


class CallRun(Protocol):
    """What a core drives: it asks what to do next whenever a wait or a flow is over."""

    contended: bool
    """Whether it got less from the channel than it would have got alone."""
    throttled: float
    """ps that a slow channel clock has cost its flows."""

    def go(self, now: Ps) -> Ps | None:
        """Start the next flow on the core, or say how long to wait for; None at the end."""
        ...

    def arrived(self, flow: Flow) -> None:
        """The flow that ``go`` started has ended."""
        ...

    def caught_up(self, now: Ps) -> None:
        """The flow under way was slower than its pace and gets more again."""
        ...

    def computed(self) -> Ints:
        """When each item was computed, once the call is over."""
        ...

    def alone(self) -> tuple[Ps, Ps]:
        """How long it takes from its first byte alone on the channel: with its scratchpad, with an unlimited one."""
        ...

    def retimed(self, now: Ps, before: CallTimes, times: CallTimes) -> CallRun:
        """The same call from now on with other times than ``before``."""
        ...

    def tiled(self, times: CallTimes) -> TiledRun:
        """The same call, which goes by its tiles from now on."""
        ...


class TiledRun:
    """A call that goes by its tiles: ``C`` of those that have arrived is known, and which comes next.

    Where the call has come before, it goes from state to state as it did then (:mod:`bpusim.cores.recall`).
    """

    __slots__ = (
        "_array", "_at", "_begin", "_disturbed", "_known", "_next", "_recalls", "_state", "_stretch", "_trail", "call",
        "contended", "core", "fences", "stop", "throttled", "times",
    )  # fmt: skip

    def __init__(self, core: BpuCore, call: CallProgram, times: CallTimes, fences: Sequence[int] = ()) -> None:
        self.core, self.call, self.times = core, call, times
        self.contended, self.throttled = False, 0.0
        self.stop = 0
        self.fences = fences
        """Items that no flow goes beyond."""
        self._stretch: Stretch | None = None
        self._begin: Ps = 0
        self._next = 0
        self._known = 0
        self._array = np.zeros(len(times.bytes), dtype=np.int64)
        self._trail: list[tuple[Ps, int, Step]] = []
        """Steps that are not in the array yet: when each began, and with which item."""
        self._state: State | None = None
        """What is under way, or at ``_at`` next; None if it is not known."""
        self._at: Ps = 0
        self._recalls = times.recall.used and core.merge != "off"
        times.recall.used = True
        self._disturbed = False
        """Whether somebody has come while it was passing: others will, and it tries no more."""

    @property
    def _computed(self) -> Ints:
        if self._trail:
            for begin, start, step in self._trail:
                self._array[start : step.stop] = step.computed + begin
            self._trail.clear()
        return self._array

    def go(self, now: Ps) -> Ps | None:
        """Start the next flow, or say how long to wait for."""
        while not self.core.holds(self._next):
            state = self._state
            if state is None or self._at != now:
                state = self._state = self._look(now)
            if state.wait < 0:
                self._decide(state, now)
            if state.wait:
                if state.later is None and self._recalls:
                    state.later = self._look(now + state.wait)
                self._state, self._at = state.later, now + state.wait
                return state.wait
            if state.parts is None:
                return None
            if self._recalls and not self._disturbed and self.core.passes(self, state):
                self._at = now
                return 0
            self.stop, self._stretch, self._begin = state.stop, state.stretch, now
            if state.parts.bytes:
                self.core.fetch(state.parts, state.stretch.pace if state.stretch is not None else None)
                return 0
            self._state = None
            self.take(self.stop, ((now, 0.0, 0.0, 0.0), (now, 0.0, 0.0, 0.0)))
        return 0

    def _look(self, at: Ps) -> State:
        """The state in which the call is then, if nothing happens before."""
        if not self._recalls:
            return State()
        fence = next((f for f in self.fences if f >= self._next), -1) if self.fences else -1
        times, rate = self.times, self.core.port.rate_max
        return times.recall.at(self._next, fence, times.front(self._next), self._computed, at, rate)

    def _decide(self, state: State, now: Ps) -> None:
        """What comes next."""
        times, i, done = self.times, self._next, self._computed
        if i == len(done):
            state.wait = max(int(done[-1]) - now, 0) if i else 0
            state.left = state.wait
            return
        dep = int(times.depends[i])
        state.wait = max(int(done[dep]) - now, 0) if dep >= 0 else 0
        if state.wait:
            return
        state.stop = i + 1
        if self.core.merge != "off":
            self._merge(state, now)
        if self.fences:
            fence = next((f for f in self.fences if i <= f < state.stop - 1), None)
            if fence is not None:
                state.stop, state.stretch = fence + 1, None
        state.parts = self.call.transfers(i, state.stop, sum(times.rows[0][i : state.stop]))

    def _merge(self, state: State, now: Ps) -> None:
        """How many items go as one flow from the next one on: those that cannot stall, or a stretch that does."""
        times, i, done = self.times, self._next, self._computed
        n = run_length(times, i, done, now, self.core.port.rate_max)
        state.stop = i + n
        short = n < _SHORT and state.stop < len(times.bytes)
        if short and self.core.merge == "on" and any(times.rows[0][i : state.stop]):
            stretch = consumed(times, i, done, now, self.core.port.rate_max)
            if stretch is not None and stretch.stop > state.stop:
                state.stop, state.stretch = stretch.stop, stretch

    def arrived(self, flow: Flow) -> None:
        """Note when the tiles of the flow are computed."""
        self.contended = self.contended or flow.slowed
        self.throttled += flow.throttled
        state, history, i, stop, begin = self._state, flow.history, self._next, self.stop, self._begin
        arrival = None
        if self._recalls and state is not None and stop == state.stop and self._known == i and history[0][0] == begin:
            arrival = arrival_of(history, slowed=flow.slowed)
            step = state.steps.get(arrival) if arrival is not None else None
            if step is not None:
                self._trail.append((begin, i, step))
                self._next = self._known = stop
                self._state, self._at = step.then, begin + step.duration
                return
        stretch = self._stretch
        if stretch is None or stop != stretch.stop or self._known > i:
            self.take(stop, history)
        elif flow.slowed:
            self.take(stop, history)
            np.maximum(self._array[i:stop], stretch.computed + begin, out=self._array[i:stop])
        else:
            self._computed[i:stop] = stretch.computed + begin
            self._next = self._known = stop
        self._state = None
        if state is not None and arrival is not None:
            end = history[-1][0]
            then = self._look(end)
            self.times.recall.learn(state, arrival, Step(stop, self._array[i:stop] - begin, end - begin, then))
            self._state, self._at = then, end

    def passed(self, until: Ps | None) -> list[int]:
        """It has been alone on the channel since it was to ``go``, until now or (None) to its end: bytes of the flows
        that are over. At ``until`` itself nothing is over yet."""
        state, at, i, sizes = self._state, self._at, self._next, list[int]()
        assert state is not None
        while state.left:
            step = state.alone
            then, lasts = (state.later, state.wait) if state.wait or step is None else (step.then, step.duration)
            if then is None or (until is not None and at + lasts >= until):
                break
            if not state.wait and step is not None and state.parts is not None:
                self._trail.append((at, i, step))
                sizes.append(state.parts.bytes)
                i = step.stop
            state, at = then, at + lasts
        self._state, self._at, self._next, self._known = state, at, i, i
        return sizes

    def carry_on(self, now: Ps) -> Ps | None:
        """Start the flow that is under way where it would have begun (None), or say how long to wait for."""
        self._disturbed = True
        state, at = self._state, self._at
        assert state is not None
        if state.wait:
            self._state, self._at = state.later, at + state.wait
            return self._at - now
        assert state.parts is not None
        self.stop, self._stretch, self._begin = state.stop, state.stretch, at
        self.core.fetch(state.parts, state.stretch.pace if state.stretch is not None else None, at)
        return None

    def computed(self) -> Ints:
        """It knows."""
        return self._computed

    def caught_up(self, now: Ps) -> None:
        """A flow that was slower than its pace gets more: end it behind the tile it is in, and look again."""
        flow = self.core.flow
        if flow is not None and self._stretch is not None:
            sizes = np.cumsum(self.times.bytes[self._next : self.stop])
            here = int(np.searchsorted(sizes, flow.served(now) + CRUMB, side="right"))
            if here < len(sizes) - 1:
                end = flow.cut(sizes[here:].tolist())
                self.stop = self._next + int(np.searchsorted(sizes, end)) + 1

    def take(self, stop: int, history: History) -> None:
        """All items up to ``stop`` have arrived, as the history of their flow says."""
        i, known = self._next, self._known
        before: Ps = int(self._computed[known - 1]) if known else 0
        self._computed[known:stop] = computed(self.times, i, stop, history, before, known - i)
        self._next = self._known = stop

    def alone(self) -> tuple[Ps, Ps]:
        """By replays at the port's own rate."""
        alone = self.core.alone(self.call, self.times)
        return alone.real, alone.unlimited

    def retimed(self, now: Ps, before: CallTimes, times: CallTimes) -> CallRun:  # noqa: ARG002 (it has them)
        """What is not computed by ``now`` takes its part of the new time."""
        self._catch_up(now)
        self._cut_behind(self._known)
        self._rescale(now, times)
        self.times, self._stretch, self._state = times, None, None
        self._recalls = False
        return self

    def tiled(self, times: CallTimes) -> TiledRun:  # noqa: ARG002 (it has them)
        """It is."""
        return self

    def _catch_up(self, now: Ps) -> None:
        """What the flow under way has brought is computed when its history says so."""
        flow, i, known = self.core.flow, self._next, self._known
        if flow is None:
            return
        sizes, served = np.cumsum(self.times.bytes[i : self.stop]), flow.served(now)
        here = i + int(np.searchsorted(sizes, served + CRUMB, side="right"))
        if here > known:
            history = [*flow.history, (now, served, 0.0, 0.0)]
            last: Ps = int(self._computed[known - 1]) if known else 0
            self._computed[known:here] = computed(self.times, i, here, history, last, known - i)
            self._known = here

    def _cut_behind(self, item: int) -> None:
        """The flow under way, if it goes beyond ``item``, ends there."""
        flow, i = self.core.flow, self._next
        if flow is not None and item < self.stop:
            sizes = np.cumsum(self.times.bytes[i : self.stop])
            end = flow.cut(sizes[item - i :].tolist())
            self.stop = i + int(np.searchsorted(sizes, end)) + 1

    def boundary(self, now: Ps, ends: Sequence[int], after: int) -> int | None:
        """The first of ``ends`` behind ``after`` that is computed now or later; None if there is none."""
        self._catch_up(now)
        here = int(np.searchsorted(self._computed[: self._known], now))
        first = next((e for e in ends if e > after and e >= here), None)
        if first is not None and first >= self._known:
            self.fences = (first,) if self.core.port.cuts else self.fences
            self._state = None
            self._cut_behind(first)
        return first

    def when(self, item: int) -> Ps | None:
        """When ``item`` is computed; None if it has not arrived."""
        return int(self._computed[item]) if item < self._known else None

    def ended_behind(self, part: CallPart, times: CallTimes) -> TiledRun:
        """The run of a part that it has come to the end of."""
        run = TiledRun(self.core, part, times)
        run.contended, run.throttled = self.contended, self.throttled
        run._array = self._computed[: len(times.bytes)]
        return run

    def drop(self, now: Ps) -> tuple[int, int]:
        """End the flow under way as soon as it can be: (its first item, or the next one's; its bytes in the end)."""
        flow, i = self.core.flow, self._next
        if flow is None:
            return i, 0
        size = int(self.times.bytes[i : self.stop].sum())
        return i, flow.cut([min(math.ceil(flow.served(now)), size), size])

    def _rescale(self, now: Ps, times: CallTimes) -> None:
        """Of what has arrived, one tile is being computed at most; those behind it start when it is done."""
        at = int(np.searchsorted(self._computed[: self._known], now, side="right"))
        before = now
        for k in range(at, self._known):
            old, new = int(self.times.compute[k]), int(times.compute[k])
            left = int(self._computed[k]) - now if k == at else old
            before += round(left * new / old) if old else 0
            self._computed[k] = before
