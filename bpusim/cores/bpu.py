"""A BPU core: streams one call's tiles through its DMA port and computes them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import simpy

from bpusim.cores.tiles import Alone, CallTimes, computed, run_length
from bpusim.errors import SimulationError
from bpusim.hardware import CoreSpec
from bpusim.ports import CallCounters, Clock, Flow, Observer, Port
from bpusim.trace import CallProgram
from bpusim.units import Ps

__all__ = ["BpuCore", "CallResult"]

_KEPT = 16


@dataclass(frozen=True, slots=True)
class CallResult:
    """When a call ran and why it took that long. The causes sum to ``end - start`` exactly.

    A ladder of replays from the same start: ``compute`` and ``dispatch`` (op overhead) with all data at once, then
    ``dram`` added by an unloaded channel with unlimited scratchpad, ``scratchpad`` by its real size, ``contention`` by
    the rates that other masters left.
    """

    start: Ps
    end: Ps
    compute: Ps
    dispatch: Ps
    dram: Ps
    scratchpad: Ps
    contention: Ps


class BpuCore:
    """One core. ``run`` takes one call at a time; whoever dispatches keeps the queue."""

    def __init__(
        self, env: simpy.Environment, name: str, spec: CoreSpec, clock: Clock, port: Port, observer: Observer
    ) -> None:
        self.env = env
        self.name = name
        self.spec = spec
        self.clock = clock
        self.port = port
        self.observer = observer
        self._busy: _CallRun | None = None
        self._times: OrderedDict[tuple[int, int], tuple[CallProgram, CallTimes, Alone]] = OrderedDict()

    @property
    def busy(self) -> bool:
        """Whether a call is in progress."""
        return self._busy is not None

    def run(self, call: CallProgram, label: str) -> simpy.Event:
        """Begin ``call`` now; the event's value is its :class:`CallResult`."""
        if self._busy is not None:
            raise SimulationError(f"{self.name} was given '{label}' while it runs '{self._busy.label}'")
        times, alone = self._prepare(call)
        self._busy = _CallRun(self, call, times, alone, label)
        self._busy.begin()
        return self._busy.done

    def estimate(self, call: CallProgram) -> Ps:
        """How long ``call`` takes with the channel to itself."""
        times, alone = self._prepare(call)
        return alone.real + (self.port.latency if times.bytes.any() else 0)

    def _prepare(self, call: CallProgram) -> tuple[CallTimes, Alone]:
        """Item times of a call, kept for calls that come again (prefill chunks)."""
        key = (id(call), self.clock.hz)
        kept = self._times.get(key)
        if kept is not None and kept[0] is call:
            self._times.move_to_end(key)
            return kept[1], kept[2]
        times = CallTimes.of(call, self.clock.hz, self.spec.scratchpad, self.spec.op_overhead, self.spec.layer_sync)
        alone = Alone(times, self.port.rate_alone)
        self._times[key] = (call, times, alone)
        if len(self._times) > _KEPT:
            self._times.popitem(last=False)
        return times, alone

    def ended(self, run: _CallRun) -> None:
        """The call in progress is over."""
        self._busy = None
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        call = run.call
        counters = CallCounters(
            self.clock.cycles_to_ps(call.mac_cycles), call.macs, call.issued, len(call.ops), call.moved()
        )
        self.observer.call_ended(self.name, run.label, now, counters)
        run.done.succeed(self._explain(run, now))

    def _explain(self, run: _CallRun, now: Ps) -> CallResult:
        total = now - run.start
        latency = self.port.latency if run.times.bytes.any() else 0
        alone = total
        if run.contended:
            alone = min(total, latency + run.alone.real)
        unlimited = min(alone, latency + run.alone.unlimited)
        dispatch = min(run.times.overhead, unlimited)
        compute = min(int(run.times.compute.sum()), unlimited) - dispatch
        return CallResult(
            run.start, now, compute, dispatch, unlimited - compute - dispatch, alone - unlimited, total - alone
        )


class _CallRun:
    """A call in progress: which item comes next, and ``C`` of those before it."""

    __slots__ = ("_computed", "_next", "_stop", "alone", "call", "contended", "core", "done", "label", "start", "times")

    def __init__(self, core: BpuCore, call: CallProgram, times: CallTimes, alone: Alone, label: str) -> None:
        self.core, self.call, self.times, self.alone, self.label = core, call, times, alone, label
        self.done = simpy.Event(core.env)
        self.start: Ps = core.env.now  # type: ignore[assignment]  # integer by construction
        self.contended = False
        self._next = 0
        self._stop = 0
        self._computed = np.zeros(len(times.bytes), dtype=np.int64)

    def begin(self) -> None:
        """Tell the observer, and let the first line's latency pass."""
        self.core.observer.call_started(self.core.name, self.label, self.start)
        self._wait(self.core.port.latency if self.times.bytes.any() else 0)

    def _wait(self, duration: Ps) -> None:
        timer = self.core.env.timeout(duration)
        timer.callbacks.append(self._go)

    def _go(self, _event: simpy.Event | None = None) -> None:
        """Start the next flow, or wait for what it depends on, or end."""
        times, i = self.times, self._next
        now: Ps = self.core.env.now  # type: ignore[assignment]
        if i == len(times.bytes):
            left = int(self._computed[-1]) - now if i else 0
            if left > 0:
                self._wait(left)
            else:
                self.core.ended(self)
            return
        dep = int(times.depends[i])
        if dep >= 0 and self._computed[dep] > now:
            self._wait(int(self._computed[dep]) - now)
            return
        port = self.core.port
        self._stop = i + run_length(times, i, self._computed, now, port.rate_max)
        port.start(self.call.items(i, self._stop), then=self._arrived)

    def _arrived(self, flow: Flow) -> None:
        i, j, times = self._next, self._stop, self.times
        before: Ps = int(self._computed[i - 1]) if i else 0
        history = flow.history
        self.contended = self.contended or any(
            row[2] < row[3] and row[0] < after[0] for row, after in pairwise(history)
        )
        self._computed[i:j] = computed(times, i, j, history, before)
        self._next = j
        self._go()
