"""A BPU core: streams one call's tiles through its DMA port and computes them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import simpy

from bpusim.alarm import alarm
from bpusim.cores.detail import Fetch, detail_of
from bpusim.cores.ladder import CallResult, Epoch, Ladder, Setting
from bpusim.cores.passing import Passing
from bpusim.cores.pieces import PartBook, pieces
from bpusim.cores.plan import Plan, PlanBook, Timing
from bpusim.cores.planned import PlannedRun
from bpusim.cores.prepared import alone_of, times_of
from bpusim.cores.recall import State
from bpusim.cores.run import CallRun, TiledRun
from bpusim.cores.tiles import Alone, CallTimes
from bpusim.errors import SimulationError
from bpusim.hardware import CoreSpec
from bpusim.ports import MOVES, CallCounters, Clock, Flow, LonePort, Observer, Port
from bpusim.trace import CallPart, CallProgram, ItemRange, moved_until
from bpusim.units import PS_PER_S, Ps

__all__ = ["BpuCore", "CallResult", "Merge", "Opening", "Sleep"]

Merge = Literal["off", "exact", "on"]
Sleep = tuple[Ps, Ps]
_KEPT = 128
"""Calls whose item times are kept, and calls known to have no plan: a prefill with CPU ops has dozens."""


class Opening(NamedTuple):
    """A call that goes by a plan, in the first of its flows."""

    call: CallProgram
    plan: Plan
    start: Ps
    wakeup: Ps
    flow: Flow


@dataclass(slots=True)
class _Watch:
    """Somebody waits for an item, the last of a piece, to be computed."""

    item: int
    then: Callable[[], None]
    timer: object = None
    over: bool = False


class BpuCore:
    """One core. ``run`` takes one call at a time; whoever dispatches keeps the queue.

    ``merge``: how tiles are moved: one by one (``off``), those that cannot stall as one flow, which changes no result
    (``exact``), or stretches that stall for room as well, at the rate the core consumes them (``on``). ``plans`` may be
    shared with other cores. ``sleep``: idle for longer than the first, a core takes the second to wake up. Its clock
    and port are taken to be at their best when it is made.
    """

    def __init__(
        self,
        env: simpy.Environment,
        name: str,
        spec: CoreSpec,
        clock: Clock,
        port: Port,
        observer: Observer,
        *,
        merge: Merge = "on",
        plans: PlanBook | None = None,
        sleep: Sleep | None = None,
    ) -> None:
        self.env = env
        self.name = name
        self.spec = spec
        self.clock = clock
        self.port = port
        self.observer = observer
        self.merge = merge
        self.flow: Flow | None = None
        self._lone = port if isinstance(port, LonePort) else None
        self._passing: Passing | None = None
        self._run: CallRun | None = None
        self._call: CallProgram
        self._label = ""
        self._start: Ps = 0
        self._first_byte: Ps = 0
        self._then: Callable[[CallResult], None]
        self._timer: object = None
        self._book = plans if plans is not None else PlanBook()
        self._sleep = sleep
        self._idle_since: Ps = 0
        self._wakeup: Ps = 0
        self._setting = self._set()
        self._since: Ps = 0
        self._watch: _Watch | None = None
        self._left: CallPart | None = None
        self._dropped = (0, 0)
        self._parts = PartBook()
        self._pieces: OrderedDict[tuple[int, Ps], tuple[CallProgram, list[int]]] = OrderedDict()
        self._fetches: list[Fetch] | None = None
        """The present call's flows, if it is asked for detail."""
        self._epochs: list[Epoch] = []
        """Parts of the present call at other settings, before ``_since``."""
        self._ladder = Ladder(self._setting, self._book if merge != "off" else None)
        self._find = self._book.of(self._setting.timing)
        self._times: OrderedDict[int, tuple[CallProgram, CallTimes, Alone]] = OrderedDict()
        self._stalling: OrderedDict[int, CallProgram] = OrderedDict()
        clock.on_change(lambda _hz: self._retime())
        port.on_change(self._retime)

    @property
    def now(self) -> Ps:
        """Simulated time."""
        return self.env.now  # type: ignore[return-value]  # integer by construction

    @property
    def busy(self) -> bool:
        """Whether a call is in progress."""
        return self._run is not None

    def run(self, call: CallProgram, label: str, then: Callable[[CallResult], None], bound: Ps | None = None) -> None:
        """Begin ``call`` now; ``then`` is told its :class:`CallResult` when it is over. ``bound``: of its pieces, for a
        port whose flows cannot be cut: each goes as a flow of its own."""
        if self._run is not None:
            raise SimulationError(f"{self.name} was given '{label}' while it runs '{self._label}'")
        self._call, self._label, self._then = call, label, then
        self._start = self._since = now = self.now
        self._fetches = [] if self.observer.wants_detail else None
        fences = self.pieces(call, bound) if bound is not None and not self.port.cuts else ()
        plan = self.plan(call) if not fences else None
        self._run = PlannedRun(self, call, plan) if plan is not None else TiledRun(self, call, self.times(call), fences)
        self.observer.call_started(self.name, label, now, call)
        latency = self.port.latency if call.bytes else 0  # of the first line
        self._wakeup = self.wakes(now - self._idle_since)
        latency += self._wakeup
        self._first_byte = now + latency
        self._wait(latency)

    def wakes(self, idle: Ps) -> Ps:
        """How long it takes to wake up after having been ``idle`` for so long."""
        return self._sleep[1] if self._sleep is not None and idle > self._sleep[0] else 0

    def plan(self, call: CallProgram) -> Plan | None:
        """The plan that holds for the position of ``call``; None if there is none, or if nothing is to be merged."""
        if self.merge == "off" or self._stalling.get(id(call)) is call:
            return None
        plan = self._find(call)
        if plan is None:
            self._stalling[id(call)] = call
            if len(self._stalling) > _KEPT:
                self._stalling.popitem(last=False)
        return plan

    @property
    def ladder(self) -> Ladder | None:
        """What explains its calls, while it is at its best."""
        return self._ladder if self._setting is self._ladder.best else None

    def counted(self, calls: Sequence[CallProgram]) -> CallCounters:
        """What whole calls do at the present clock, all together."""
        _, _, macs, issued, *rest = map(sum, zip(*(c.sums for c in calls), strict=True))
        busy = sum(map(self.clock.cycles_to_ps, (c.mac_cycles for c in calls)))
        moved = rest[-len(MOVES) :]
        return CallCounters(busy, macs, issued, sum(len(c.ops) for c in calls), moved)

    @property
    def opens(self) -> bool:
        """Whether the call in progress is in the first flow of a plan."""
        return self.flow is not None and isinstance(self._run, PlannedRun) and not self._run.begun

    @property
    def opening(self) -> Opening | None:
        """The call in progress, if it is in the first flow of a plan, and nobody has disturbed or watches it."""
        if not self.opens or self._watch or self._epochs or self._fetches is not None:
            return None
        run, flow = self._run, self.flow
        assert isinstance(run, PlannedRun)
        assert flow is not None
        return Opening(self._call, run.plan, self._start, self._wakeup, flow)

    @opening.setter
    def opening(self, now: Opening) -> None:
        """It has come to a later call of the same kind meanwhile."""
        self._call, self._start, self._since = now.call, now.start, now.start
        self._wakeup = now.wakeup
        self._first_byte = now.start + now.wakeup + (self.port.latency if now.call.bytes else 0)
        self._run, self.flow = PlannedRun(self, now.call, now.plan), now.flow
        now.flow.then = self._arrived

    def at_boundary(self, bound: Ps, then: Callable[[], None]) -> bool:
        """Call ``then()`` at the end of the piece under way, the call being cut into pieces of ``bound``; False if that
        is the call's own end. Whoever is called may ``leave``, or ask for the next boundary."""
        self._disturb()
        run, now = self._run, self.now
        assert run is not None
        if not isinstance(run, TiledRun):
            run = self._run = run.tiled(self.times(self._call))
        last = self._watch.item if self._watch is not None and self._watch.over else -1
        item = run.boundary(now, self.pieces(self._call, bound), last)
        if item is None:
            return False
        self._watch = _Watch(item, then)
        self._look_out(run)
        return True

    def pieces(self, call: CallProgram, bound: Ps) -> list[int]:
        """The last item of each piece of ``call`` but its last one."""
        whole, start = (call.whole, call.start) if isinstance(call, CallPart) else (call, 0)
        key = id(whole), bound
        kept = self._pieces.get(key)
        if kept is None or kept[0] is not whole:
            timing, rate, _ = self._ladder.best
            times = times_of(whole, timing)
            computed = Alone(times, rate).computed()[1]
            kept = self._pieces[key] = whole, pieces(computed, times.is_write, bound)
            if len(self._pieces) > _KEPT:
                self._pieces.popitem(last=False)
        return [item - start for item in kept[1] if item >= start]

    def rest(self) -> CallProgram:
        """What is left of the call under way: at a boundary what is behind it, else all of it."""
        watch, call = self._watch, self._call
        done = watch.item + 1 if watch is not None and watch.over else 0
        return self._parts.part(call, done, len(call.items.bytes)) if done else call

    def leave(self) -> None:
        """At a boundary: the call ends here, and its ``then`` is told so. What is left of it is its ``rest``."""
        watch, run = self._watch, self._run
        assert watch is not None
        assert isinstance(run, TiledRun)
        self._left = self._parts.part(self._call, 0, watch.item + 1)
        self._timer = None
        self._dropped = run.drop(self.now)
        if self.flow is None:
            self._end_part()

    def _look_out(self, run: TiledRun) -> None:
        """Wait until the item that is watched is computed, as soon as it is known when that is."""
        watch = self._watch
        if watch is not None and not watch.over:
            when = run.when(watch.item)
            if when is not None:
                watch.timer = alarm(self.env, when - self.now, self._boundary)

    def _boundary(self, timer: object) -> None:
        watch = self._watch
        if watch is not None and timer is watch.timer:
            watch.over = True
            watch.then()
            if not self.port.cuts and self._run is not None and self.flow is None and self._timer is None:
                self._next(self._run)  # it goes on, and its next piece was held back

    def holds(self, item: int) -> bool:
        """Whether ``item`` is behind a boundary at which the call may be left, and its flow could not be cut then."""
        watch = self._watch
        return watch is not None and not watch.over and item > watch.item and not self.port.cuts

    def fetch(self, parts: ItemRange, pace: float | None = None, begin: Ps | None = None) -> None:
        """Start the next flow of the call in progress; with ``begin``, as if it had been alone since then."""
        rising = self._rising if pace is not None else None
        if begin is not None and begin < self.now and self._lone is not None:
            self.flow = self._lone.resume(parts, begin, pace=pace, rising=rising, then=self._arrived)
            return
        flow = self.port.start(parts, pace=pace, rising=rising, then=self._arrived)
        if self._fetches is not None:
            self._fetches.append((parts.start, flow))
        if not flow.ended:
            self.flow = flow

    def passes(self, run: TiledRun, state: State) -> bool:
        """Whether the call goes from ``state`` to its end without an event: alone on the channel, as it did before."""
        lone, watched = self._lone, self._watch is not None and not self._watch.over
        if lone is None or watched or not lone.claim():
            return False
        left = run.times.recall.left(state, lone.rate_alone)
        if left >= 0:
            self._passing = Passing(self, lone, run, left)
        return left >= 0

    def passed(self, run: TiledRun, wait: Ps | None = None, *, over: bool) -> None:
        """It has passed to its end, or goes on with flows: ``wait`` before the next, None if one is under way."""
        self._passing = None
        if over:
            self._next(run)
        elif wait is not None:
            self._wait(wait)

    def _disturb(self) -> None:
        if self._passing is not None and self._lone is not None:
            self._lone.disturb()

    def estimate(self, call: CallProgram) -> Ps:
        """How long ``call`` takes with the channel to itself."""
        plan = self.plan(call)
        if plan is not None:
            alone = plan.alone(plan.sizes(call.at), self.port.rate_alone)
        else:
            alone = self.alone(call, self.times(call)).real
        return alone + (self.port.latency if call.bytes else 0)

    def times(self, call: CallProgram) -> CallTimes:
        """Item times of a call, kept for calls that come again (prefill chunks)."""
        return self._prepared(call)[1]

    def alone(self, call: CallProgram, times: CallTimes) -> Alone:
        """What the call would take with the channel to itself."""
        _, kept, alone = self._prepared(call)
        return alone if kept is times else Alone(times, self.port.rate_alone)

    def _prepared(self, call: CallProgram) -> tuple[CallProgram, CallTimes, Alone]:
        kept = self._times.get(id(call))
        if kept is not None and kept[0] is call:
            self._times.move_to_end(id(call))
        else:
            timing = self._setting.timing
            times = times_of(call, timing)
            kept = self._times[id(call)] = call, times, alone_of(call, timing, times, self.port.rate_alone)
            if len(self._times) > _KEPT:
                self._times.popitem(last=False)
        return kept

    def _set(self) -> Setting:
        s, port = self.spec, self.port
        timing = Timing(self.clock.hz, s.scratchpad, s.op_overhead, s.layer_sync, port.rate_max)
        return Setting(timing, port.rate_alone, port.latency)

    def _retime(self) -> None:
        """The clock or the port's highest rate is another from now on."""
        self._disturb()
        run, flow, now = self._run, self.flow, self.now
        before = None
        if run is not None:
            before = self._prepared(self._call)[1]
            self._epochs.append(Epoch(now - self._since, self._setting))
            self._since = now
        setting, best = self._set(), self._ladder.best
        self._setting = best if setting == best else setting
        self._times.clear()
        self._find = self._book.of(setting.timing)
        self._stalling.clear()
        if run is not None and before is not None and self._left is None:
            self._run = run = run.retimed(now, before, self.times(self._call))
            if isinstance(run, TiledRun):
                self._look_out(run)
            if flow is None:
                self._wait(max(self._first_byte - now, 0))

    def _wait(self, duration: Ps) -> None:
        self._timer = alarm(self.env, duration, self._go)

    def _go(self, timer: object) -> None:
        if timer is self._timer and self._run is not None:
            self._timer = None
            self._next(self._run)

    def _arrived(self, flow: Flow) -> None:
        self.flow = None
        run = self._run
        assert run is not None
        if self._left is not None:
            self._end_part()
            return
        run.arrived(flow)
        self._next(run)

    def _rising(self) -> None:
        if self._run is not None:
            self._run.caught_up(self.now)

    def _next(self, run: CallRun) -> None:
        now: Ps = self.env.now  # type: ignore[assignment]
        wait = run.go(now)
        if self._watch is not None and isinstance(run, TiledRun):
            self._look_out(run)
        if wait is None:
            self._end(run, now, self._call, self._call.moves)
        elif wait:
            self._timer = alarm(self.env, wait, self._go)

    def _end_part(self) -> None:
        """The call ends at a boundary. What was fetched for the next piece has been moved, and is moved again."""
        call, part, run = self._call, self._left, self._run
        assert part is not None
        assert isinstance(run, TiledRun)
        run = run.ended_behind(part, self.times(part))
        self._end(run, self.now, part, moved_until(call, *self._dropped).tolist())

    def _end(self, run: CallRun, now: Ps, call: CallProgram, moves: Sequence[int]) -> None:
        ended = self._left is None
        self._run = self._watch = self._left = None
        observer, epochs = self.observer, self._epochs
        epochs.append(Epoch(now - self._since, self._setting))
        _, mac_cycles, macs, issued = call.sums[:4]
        busy = self.clock.cycles_to_ps(mac_cycles) if len(epochs) == 1 else _mean_ps(mac_cycles, epochs)
        counters = CallCounters(busy, macs, issued, len(call.ops), moves, ended)
        observer.call_ended(self.name, self._label, now, counters)
        result = self._ladder.explain(call, self._start, now, self._wakeup, run, epochs)
        if self._fetches is not None:
            best, times = self._ladder.best, self.times(call)
            detail = detail_of(self.name, self._label, call, result, run.computed(), times, best, self._fetches)
            observer.call_detailed(detail)
        self._epochs, self._idle_since = [], now
        self._then(result)


def _mean_ps(cycles: int, epochs: Sequence[Epoch]) -> Ps:
    """Duration of ``cycles`` at the mean clock of a call."""
    whole = sum(e.duration for e in epochs)
    return round(cycles * PS_PER_S * whole / sum(e.duration * e.setting.timing.hz for e in epochs)) if whole else 0
