"""What a run did, in detail: each call, op, transfer, step and CPU core, for tables, timelines and charts.

It costs time and memory, so it is kept for who asks, and of ops and transfers only as much as :class:`Keep` says; what
was left out is counted. Over all of a run there are sums by op, and profiles of so many bins.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bpusim.metrics.causes import Ledger
from bpusim.ports import BufferKind, CallCounters, CallDetail, Flow, History, Work
from bpusim.trace import CallPart, CallProgram, Op
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.arrays import Ints

__all__ = ["CallSpan", "CpuOpSums", "Detail", "Keep", "OpSums", "Profile", "Step", "Transfers"]

_BINS = 512
_OPEN = 256
"""Transfers under way are looked through when there are so many."""


@dataclass(frozen=True, slots=True)
class Keep:
    """How much detail: ops and transfers from ``begin`` to ``end`` (None: the end of the run), no more than ``slices``
    of either one by one, and in the sums over ops those of the first ``ops`` op executions."""

    begin: Ps = 0
    end: Ps | None = None
    slices: int = 100_000
    ops: int = 1_000_000

    def within(self, start: Ps, end: Ps) -> bool:
        """Whether any of it is in the window."""
        return end >= self.begin and (self.end is None or start < self.end)


class CallSpan(NamedTuple):
    """A call, or a part of one, on a core."""

    core: str
    label: str
    """``stream/phase``."""
    start: Ps
    end: Ps
    ended: bool
    """Whether it was over then, and not interrupted."""


class Step(NamedTuple):
    """A first token, a token, a frame, a pipeline's stage or the way to one of its ends."""

    stream: str
    kind: str
    number: int
    """Of the request, frame or run."""
    start: Ps
    end: Ps
    spent: tuple[Ps, ...]
    """By cause, in the order of ``CAUSES``; it sums to ``end - start``."""
    path: tuple[tuple[str, Ps], ...]
    """(cause, or ``call``; duration) one behind the other from ``start`` on; empty where they overlap."""
    cold: bool = False
    """Whether it waited for weights that had never been loaded before."""


class Transfers(NamedTuple):
    """A flow of one master: rows of (from time, bytes by then, B/s, B/s alone)."""

    master: str
    history: History


class Profile:
    """An amount over time in at most 512 bins, whose width doubles as the run goes on."""

    __slots__ = ("_bins", "width")

    def __init__(self) -> None:
        self.width: Ps = 10**9
        self._bins = np.zeros(_BINS)

    def add(self, start: Ps, end: Ps, amount: float) -> None:
        """``amount``, evenly from ``start`` to ``end``."""
        self._reach(end)
        first, last = start // self.width, max(end - 1, start) // self.width
        if first == last:
            self._bins[first] += amount
            return
        edges = np.arange(first, last + 2, dtype=np.float64) * self.width
        edges[0], edges[-1] = start, end
        self._bins[first : last + 1] += np.diff(edges) * (amount / (end - start))

    def _reach(self, end: Ps) -> None:
        """Wider bins, until they go to ``end``."""
        while end > self.width * _BINS:
            self._bins = np.append(self._bins[::2] + self._bins[1::2], np.zeros(_BINS // 2))
            self.width *= 2

    def per_second(self, until: Ps) -> tuple[list[float], list[float]]:
        """(edges in s, n + 1; amount per second, n) up to ``until``, the end of the run; all profiles of a run have the
        same edges."""
        self._reach(until)
        n = max(-(-until // self.width), 1)
        edges = np.minimum(np.arange(n + 1) * self.width, until) / PS_PER_S
        spans = np.diff(edges)
        bins = np.zeros(n)  # the last amount may have come long before
        bins[: min(n, _BINS)] = self._bins[:n]
        rates = np.divide(bins, spans, out=np.zeros(n), where=spans > 0)
        return edges.tolist(), rates.tolist()


@dataclass(slots=True, eq=False)
class OpSums:
    """Sums over executions of the ops of one call on one core."""

    ops: tuple[Op, ...]
    calls: int
    executions: Ints
    causes: Ints
    """Ops x causes: ps."""
    computed: Ints
    """ps from the begin of its first tile to the end of its last."""
    fields: Ints
    """Fields x ops, as a call has them."""


@dataclass(slots=True)
class CpuOpSums:
    """Sums over executions of an op that falls back to the CPU: ``duration`` is all of them, their crossings and waits
    for a CPU core included."""

    executions: int = 0
    duration: Ps = 0
    moved: dict[tuple[BufferKind, bool], int] = field(default_factory=dict)
    """DRAM bytes by (buffer kind, is a write)."""


@dataclass(slots=True, eq=False)
class Detail:
    """An observer of a run, and the log of its steps."""

    keep: Keep = field(default_factory=Keep)
    calls: list[CallSpan] = field(default_factory=list)
    details: list[CallDetail] = field(default_factory=list)
    """Ops of calls in the window, while there is room."""
    transfers: list[Transfers] = field(default_factory=list)
    """In the window, while there is room."""
    steps: list[Step] = field(default_factory=list)
    sums: dict[tuple[str, str, int], OpSums] = field(default_factory=dict)
    """By core, label, and call."""
    cpu_ops: dict[tuple[str, str, str], CpuOpSums] = field(default_factory=dict)
    """By label, op and type."""
    bandwidth: dict[str, Profile] = field(default_factory=dict)
    """Bytes over time by master."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Slices in the window for which there was no room, by what they are of."""
    left_from: dict[str, Ps] = field(default_factory=dict)
    """When the first of them began."""
    ops_until: Ps | None = None
    """Up to when the sums over ops go; None: to the end."""
    _open: list[tuple[str, Flow]] = field(default_factory=list)
    _taken: dict[str, int] = field(default_factory=lambda: {"ops": 0, "transfers": 0})
    _executions: int = 0
    _started: dict[str, Ps] = field(default_factory=dict)
    _past: bool = False
    """Whether the window is over."""
    _with_flows: set[str] = field(default_factory=set)
    _given: tuple[Ps, dict[str, float]] = (0, {})
    _host: array[int] = field(default_factory=lambda: array("q"))
    """When CPU cores began to work (twice the time) or stopped (the same and one)."""

    # What streams tell

    def log(self, stream: str, kind: str, number: int, start: Ps, end: Ps, ledger: Ledger) -> None:
        """A step of ``stream`` is over."""
        path = tuple(ledger.path or ())
        if sum(n for _, n in path) != end - start:
            path = ()
        self.steps.append(Step(stream, kind, number, start, end, tuple(ledger.spent.values()), path, ledger.cold))

    # What components tell

    @property
    def wants_rates(self) -> bool:
        """For masters whose traffic is not made of transfers."""
        return True

    @property
    def wants_detail(self) -> bool:
        """As long as anything is kept of it."""
        return self._executions < self.keep.ops or (self._taken["ops"] < self.keep.slices and not self._past)

    @property
    def wants_activity(self) -> bool:
        """For bandwidth over time."""
        return True

    @property
    def wants_host(self) -> bool:
        """For CPU cores over time."""
        return True

    def call_started(self, core: str, label: str, at: Ps, work: Work) -> None:  # noqa: ARG002 (the protocol's signature)
        """A core began a call."""
        self._started[core] = at
        self._past = self.keep.end is not None and at >= self.keep.end
        if self.ops_until is None and self._executions >= self.keep.ops:
            self.ops_until = at

    def calls_passed(self, core: str, label: str, since: Ps, calls: int, occupied: Ps, counters: CallCounters) -> None:
        """Not while it wants detail."""

    def call_ended(self, core: str, label: str, at: Ps, counters: CallCounters) -> None:
        """A core finished a call."""
        self.calls.append(CallSpan(core, label, self._started.pop(core), at, counters.ended))

    def call_detailed(self, detail: CallDetail) -> None:
        """What the ops of a call did."""
        n = len(detail.ops)
        if self.keep.within(detail.start, detail.end):
            self._take("ops", n, self.details, detail, detail.start)
        if self._executions < self.keep.ops:
            self._executions += n
            self._sum(detail)

    def _take(self, what: str, n: int, into: list, item: object, begin: Ps) -> None:  # type: ignore[type-arg]
        if self._taken[what] < self.keep.slices:
            self._taken[what] += n
            into.append(item)
        else:
            self.left_out[what] = self.left_out.get(what, 0) + n
            self.left_from[what] = min(self.left_from.get(what, begin), begin)

    def _sum(self, detail: CallDetail) -> None:
        call = detail.work
        assert isinstance(call, CallProgram)
        whole = call.whole if isinstance(call, CallPart) else call
        key = detail.core, detail.label, id(whole.layout)
        sums = self.sums.get(key)
        if sums is None:
            n = len(whole.ops)
            sums = self.sums[key] = OpSums(
                whole.ops, 0, np.zeros(n, np.int64), np.zeros((n, detail.causes.shape[1]), np.int64),
                np.zeros(n, np.int64), np.zeros((len(whole.fields), n), np.int64),
            )  # fmt: skip
        rows, new = detail.ops, detail.ops[detail.begun]
        sums.calls += bool(detail.begun[:1].any() and rows[0] == 0)
        sums.executions[new] += 1
        sums.causes[rows] += detail.causes
        sums.computed[rows] += detail.compute[:, 1] - detail.compute[:, 0]
        sums.fields[:, new] += whole.fields[:, new]

    def cpu_op_ended(
        self, label: str, op: str, type_: str, moved: Mapping[tuple[BufferKind, bool], int], start: Ps, end: Ps
    ) -> None:
        """An op on the CPU is over."""
        sums = self.cpu_ops.setdefault((label, op, type_), CpuOpSums())
        sums.executions += 1
        sums.duration += end - start
        for key, n in moved.items():
            sums.moved[key] = sums.moved.get(key, 0) + n

    def host_took(self, at: Ps) -> None:
        """A CPU core has begun to work."""
        self._host.append(2 * at)

    def host_gave(self, at: Ps) -> None:
        """A CPU core has stopped."""
        self._host.append(2 * at + 1)

    def moved(self, master: str, totals: Mapping[tuple[BufferKind, bool], int], at: Ps) -> None:
        """Its flows say so."""

    def rates_changed(self, at: Ps, rates: Mapping[str, float]) -> None:
        """The channel gives these rates from now on; those of masters with flows are known better from them."""
        since, before = self._given
        self._given = at, dict(rates)
        for master in before.keys() - self._with_flows:
            if at > since and before[master]:
                profile = self.bandwidth.setdefault(master, Profile())
                profile.add(since, at, before[master] * (at - since) / PS_PER_S)

    def flow_started(self, master: str, flow: Flow) -> None:
        """A master began a transfer."""
        self._with_flows.add(master)
        self._open.append((master, flow))
        if len(self._open) >= _OPEN:
            self._look()

    # What a reader asks

    def close(self, now: Ps) -> None:
        """The run is over."""
        self.rates_changed(now, {})
        self._look(now)

    def cpu_busy(self) -> list[tuple[Ps, int]]:
        """(from when, CPU cores that work)."""
        out: list[tuple[Ps, int]] = []
        working = 0
        for mark in sorted(self._host, key=lambda m: (m // 2, m % 2 == 0)):
            working += -1 if mark % 2 else 1
            if out and out[-1][0] == mark // 2:
                out.pop()
            out.append((mark // 2, working))
        return out

    def _look(self, now: Ps | None = None) -> None:
        """Take in transfers that are over; with ``now`` the others as well, as far as they are."""
        still = []
        for master, flow in self._open:
            if not flow.ended and now is None:
                still.append((master, flow))
                continue
            history = list(flow.history)
            if not flow.ended and now is not None:
                history.append((now, flow.served(now), 0.0, 0.0))
            profile = self.bandwidth.setdefault(master, Profile())
            for (at, by_then, *_), (until, after, *_) in pairwise(history):
                if until > at:
                    profile.add(at, until, after - by_then)
            if self.keep.within(history[0][0], history[-1][0]):
                self._take("transfers", 1, self.transfers, Transfers(master, history), history[0][0])
        self._open = still
