"""A BPU core: streams one call's tiles through its DMA port and computes them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, NamedTuple

import simpy

from bpusim.alarm import alarm
from bpusim.cores.plan import Plan, PlanBook, Timing
from bpusim.cores.run import CallRun, PlannedRun, TiledRun
from bpusim.cores.tiles import Alone, CallTimes
from bpusim.errors import SimulationError
from bpusim.hardware import CoreSpec
from bpusim.ports import CallCounters, Clock, Flow, Observer, Port, TransferList
from bpusim.trace import CallProgram
from bpusim.units import PS_PER_S, Ps

__all__ = ["BpuCore", "CallResult", "Merge", "Sleep"]

Merge = Literal["off", "exact", "on"]
Sleep = tuple[Ps, Ps]
_KEPT = 128
"""Calls whose item times are kept, and calls known to have no plan: a prefill with CPU ops has dozens."""


class CallResult(NamedTuple):
    """When a call ran and why it took that long. The causes sum to ``end - start`` exactly.

    A ladder of replays from the same start: ``compute`` and ``dispatch`` (op overhead) with all data at once, then
    ``dram`` added by an unloaded channel with unlimited scratchpad, ``scratchpad`` by its real size, all of this at the
    clocks the machine was made for; ``throttling`` by the present clocks, of the core and of the channel; and
    ``contention`` by the rates that other masters left. ``wakeup`` comes before all of it.
    """

    start: Ps
    end: Ps
    compute: Ps
    dram: Ps
    scratchpad: Ps
    contention: Ps
    throttling: Ps
    wakeup: Ps
    dispatch: Ps

    @property
    def causes(self) -> tuple[Ps, ...]:
        """All of them, from ``compute`` on."""
        return self[2:]


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
        self._timing = self._full = self._timed()
        self._full_rate = port.rate_alone
        self._changed = False
        """Whether a clock or the port's rate is not what it was made for, or was not for a part of the present call."""
        self._find = self._book.of(self._timing)
        self._times: OrderedDict[int, tuple[CallProgram, CallTimes, Alone]] = OrderedDict()
        self._unthrottled: OrderedDict[int, tuple[CallProgram, Alone]] = OrderedDict()
        """Calls at the clocks the machine was made for."""
        self._stalling: OrderedDict[int, CallProgram] = OrderedDict()
        clock.on_change(lambda _hz: self._retime())
        port.on_change(self._retime)

    @property
    def busy(self) -> bool:
        """Whether a call is in progress."""
        return self._run is not None

    def run(self, call: CallProgram, label: str, then: Callable[[CallResult], None]) -> None:
        """Begin ``call`` now; ``then`` is told its :class:`CallResult` when it is over."""
        if self._run is not None:
            raise SimulationError(f"{self.name} was given '{label}' while it runs '{self._label}'")
        self._call, self._label, self._then = call, label, then
        self._start = now = self._now()
        plan = self._plan(call)
        self._run = PlannedRun(self, call, plan) if plan is not None else TiledRun(self, call, self.times(call))
        self.observer.call_started(self.name, label, now, call)
        latency = self.port.latency if call.bytes else 0  # of the first line
        if self._sleep is not None:
            self._wakeup = self._sleep[1] if now - self._idle_since > self._sleep[0] else 0
            latency += self._wakeup
        self._first_byte = now + latency
        self._wait(latency)

    def fetch(self, parts: TransferList, pace: float | None = None) -> None:
        """Start the next flow of the call in progress."""
        rising = self._rising if pace is not None else None
        flow = self.port.start(parts, pace=pace, rising=rising, then=self._arrived)
        if not flow.ended:
            self.flow = flow

    def estimate(self, call: CallProgram) -> Ps:
        """How long ``call`` takes with the channel to itself."""
        plan = self._plan(call)
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
            t = self._timing
            times = CallTimes.of(call.items, t.hz, t.scratchpad, t.op_overhead, t.layer_sync)
            kept = self._times[id(call)] = call, times, Alone(times, self.port.rate_alone)
            if len(self._times) > _KEPT:
                self._times.popitem(last=False)
        return kept

    def _plan(self, call: CallProgram) -> Plan | None:
        """The plan that holds for the position of ``call``; None if there is none, or if nothing is to be merged."""
        if self.merge == "off" or self._stalling.get(id(call)) is call:
            return None
        plan = self._find(call)
        if plan is None:
            self._stalling[id(call)] = call
            if len(self._stalling) > _KEPT:
                self._stalling.popitem(last=False)
        return plan

    def _timed(self) -> Timing:
        s = self.spec
        return Timing(self.clock.hz, s.scratchpad, s.op_overhead, s.layer_sync, self.port.rate_max)

    def _retime(self) -> None:
        """The clock or the port's highest rate is another from now on."""
        run, flow = self._run, self.flow
        before = self._prepared(self._call)[1] if run is not None else None
        self._timing = self._timed()
        self._changed = run is not None or self._timing != self._full
        self._times.clear()
        self._find = self._book.of(self._timing)
        self._stalling.clear()
        if run is not None and before is not None:
            self._run = run.retimed(self._now(), before, self.times(self._call))
            if flow is None:
                self._wait(max(self._first_byte - self._now(), 0))

    def _now(self) -> Ps:
        return self.env.now  # type: ignore[return-value]  # integer by construction

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
        run.arrived(flow)
        self._next(run)

    def _rising(self) -> None:
        if self._run is not None:
            self._run.caught_up(self._now())

    def _next(self, run: CallRun) -> None:
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        wait = run.go(now)
        if wait is None:
            self._end(run, now)
        elif wait:
            self._timer = alarm(self.env, wait, self._go)

    def _end(self, run: CallRun, now: Ps) -> None:
        self._run = None
        call, observer = self._call, self.observer
        observer.call_ended(
            self.name,
            self._label,
            now,
            CallCounters(self.clock.cycles_to_ps(call.mac_cycles), call.macs, call.issued, len(call.ops), call.moves),
        )
        if observer.wants_ops:
            ends = run.computed()[call.layout.tiling(call.fields).last]
            observer.ops_ended(self.name, self._label, self._start, ends.tolist())
        self._then(self._explain(run, now))

    def _explain(self, run: CallRun, now: Ps) -> CallResult:
        call, wakeup, throttling, hz = self._call, self._wakeup, 0, self.clock.hz
        total = now - self._start - wakeup
        latency = self.port.latency if call.bytes else 0
        real, unlimited = run.alone()
        alone = min(total, latency + real) if run.contended else total
        if self._changed:
            hz = self._full.hz
            alone, unlimited, throttling = self._throttled(run, total, alone)
            self._changed = self._timing != self._full
        unlimited = min(alone, latency + unlimited)
        overhead = len(call.ops) * self.spec.op_overhead + call.layout.layers * self.spec.layer_sync
        dispatch = min(overhead, unlimited)
        cycles = (2 * call.cycles * PS_PER_S + hz) // (2 * hz)
        compute = min(cycles + overhead, unlimited) - dispatch
        contention = total - alone - throttling
        self._idle_since = now
        return CallResult(
            self._start, now,
            compute, unlimited - compute - dispatch, alone - unlimited, contention, throttling, wakeup, dispatch,
        )  # fmt: skip

    def _throttled(self, run: CallRun, total: Ps, alone: Ps) -> tuple[Ps, Ps, Ps]:
        """(time alone at full clocks; the same with an unlimited scratchpad and from the first byte; what slow clocks
        have cost of ``total``). The channel's part is what its transfers lost; the core's, the difference it makes
        alone."""
        latency = self.port.latency if self._call.bytes else 0
        real, unlimited = self._at_full_clocks(self._call)
        full = min(alone, latency + real)
        if not run.contended:
            return full, unlimited, total - full
        of_channel = min(round(run.throttled), total - full)
        return full, unlimited, min(max(of_channel, alone - full), total - full)

    def _at_full_clocks(self, call: CallProgram) -> tuple[Ps, Ps]:
        """How long a call takes alone from its first byte with all clocks as the machine was made, with its scratchpad
        and with an unlimited one."""
        full, rate = self._full, self._full_rate
        plan = self._book.of(full)(call) if self.merge != "off" else None
        if plan is not None:
            duration = plan.alone(plan.sizes(call.at), rate)
            return duration, duration
        kept = self._unthrottled.get(id(call))
        if kept is None or kept[0] is not call:
            times = CallTimes.of(call.items, full.hz, full.scratchpad, full.op_overhead, full.layer_sync)
            kept = self._unthrottled[id(call)] = call, Alone(times, rate)
            if len(self._unthrottled) > _KEPT:
                self._unthrottled.popitem(last=False)
        return kept[1].real, kept[1].unlimited
