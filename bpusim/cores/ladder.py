"""Why a call took as long as it did: a ladder of replays from the same start, each of which can only add.

At the clocks the machine was made for: all data at once (``compute``, with op overhead as ``dispatch``), an unloaded
channel with unlimited scratchpad (adds ``dram``), the real scratchpad (adds ``scratchpad``). Then the clocks it really
had (adds ``throttling``), and the rates that other masters left (adds ``contention``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from operator import add
from typing import NamedTuple

from bpusim.cores.plan import PlanBook, Timing
from bpusim.cores.prepared import alone_of, times_of
from bpusim.cores.run import CallRun
from bpusim.trace import CallProgram
from bpusim.units import PS_PER_S, Ps

__all__ = ["CallResult", "Epoch", "Ladder", "Setting"]

_KEPT = 128
"""Calls of which it is known how long they take alone."""


class CallResult(NamedTuple):
    """When a call ran and why it took that long. The causes sum to ``end - start`` exactly, but for the time in which
    it was ``suspended`` or, on several cores, in ``sync``; ``wakeup``, of a core that had fallen asleep, comes before
    all others."""

    start: Ps
    end: Ps
    compute: Ps
    dram: Ps
    scratchpad: Ps
    contention: Ps
    throttling: Ps
    wakeup: Ps
    dispatch: Ps
    suspended: Ps = 0
    sync: Ps = 0

    @property
    def causes(self) -> tuple[Ps, ...]:
        """All of them, from ``compute`` on."""
        return self[2:9]

    def followed_by(self, rest: CallResult) -> CallResult:
        """Of a call that was interrupted and went on."""
        causes = tuple(map(add, self.causes, rest.causes))
        return CallResult._make((self.start, rest.end, *causes, self.suspended + rest.start - self.end, 0))


class Setting(NamedTuple):
    """What a call's duration depends on besides itself and others: ``timing``, the port's B/s alone, its latency."""

    timing: Timing
    rate: float
    latency: Ps


class Epoch(NamedTuple):
    """A part of a call at one setting."""

    duration: Ps
    setting: Setting


class Ladder:
    """Explains calls. ``best``: the setting the machine was made for; ``plans``: None if none is to be used."""

    def __init__(self, best: Setting, plans: PlanBook | None) -> None:
        self.best = best
        self._plans = plans
        self._known: OrderedDict[tuple[int, Setting], tuple[CallProgram, Ps, Ps]] = OrderedDict()

    def explain(
        self, call: CallProgram, start: Ps, end: Ps, wakeup: Ps, run: CallRun, epochs: Sequence[Epoch]
    ) -> CallResult:
        """``epochs``: how long it had which setting; one that is the best is all of it."""
        best = self.best
        if len(epochs) == 1 and epochs[0].setting is best:
            return self.at_best(call, start, end, wakeup, *run.alone(), contended=run.contended)
        total = end - start - wakeup
        latency = best.latency if call.bytes else 0
        real, unlimited = self._alone(call, best)
        alone = min(total, latency + real)
        throttling = total - alone
        if run.contended:
            throttling = min(throttling, max(round(run.throttled), self._slower(call, latency + real, epochs), 0))
        return self._split(call, start, end, wakeup, alone, unlimited, throttling)

    def at_best(
        self, call: CallProgram, start: Ps, end: Ps, wakeup: Ps, real: Ps, unlimited: Ps, *, contended: bool
    ) -> CallResult:
        """Of a call at the best setting throughout. ``real``, ``unlimited``: how long it takes alone from its first
        byte, with its scratchpad and with unlimited room."""
        total = end - start - wakeup
        latency = self.best.latency if call.bytes else 0
        alone = min(total, latency + real) if contended else total
        return self._split(call, start, end, wakeup, alone, unlimited, 0)

    def _split(
        self, call: CallProgram, start: Ps, end: Ps, wakeup: Ps, alone: Ps, unlimited: Ps, throttling: Ps
    ) -> CallResult:
        best, total = self.best, end - start - wakeup
        latency = best.latency if call.bytes else 0
        unlimited = min(alone, latency + unlimited)
        timing = best.timing
        ops, layers = call.overheads
        overhead = ops * timing.op_overhead + layers * timing.layer_sync
        dispatch = min(overhead, unlimited)
        cycles = (2 * call.sums[0] * PS_PER_S + timing.hz) // (2 * timing.hz)
        compute = min(cycles + overhead, unlimited) - dispatch
        contention = total - alone - throttling
        return CallResult(
            start,
            end,
            compute,
            unlimited - compute - dispatch,
            alone - unlimited,
            contention,
            throttling,
            wakeup,
            dispatch,
        )

    def _slower(self, call: CallProgram, full: Ps, epochs: Sequence[Epoch]) -> Ps:
        """How much longer than ``full`` a call takes alone, each setting counting for as long as it lasted."""
        whole, slower = sum(e.duration for e in epochs), 0.0
        for e in epochs:
            if e.duration:
                alone = self._alone(call, e.setting)[0] + (e.setting.latency if call.bytes else 0)
                slower += (alone - full) * e.duration / whole
        return round(slower)

    def _alone(self, call: CallProgram, setting: Setting) -> tuple[Ps, Ps]:
        """How long a call takes from its first byte alone on the channel: with its scratchpad, with unlimited room."""
        timing, rate, _ = setting
        plan = self._plans.of(timing)(call) if self._plans is not None else None
        if plan is not None:
            duration = plan.alone(plan.sizes(call.at), rate)
            return duration, duration
        key = id(call), setting
        known = self._known.get(key)
        if known is None or known[0] is not call:
            alone = alone_of(call, timing, times_of(call, timing), rate)
            known = self._known[key] = call, alone.real, alone.unlimited
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known[1], known[2]
