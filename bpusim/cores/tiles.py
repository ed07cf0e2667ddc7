"""The tile recursion of a BPU core: when each DMA item may start, arrives, and is computed.

Items come in DMA order (:class:`bpusim.trace.CallItems`). Item ``i`` starts when item ``i - 1`` has arrived and its
*dependency* is computed: for a read, the tile whose bytes make room in the scratchpad (a tile is fetched when there is
room for all of it); for a write, the op that produces it. A tile is computed from ``C_i = max(C_{i-1}, D_i) + c_i``.

**Stall-free runs.** If from some state on no item up to ``j`` would wait at the highest rate the port can ever have,
then none waits at any lower or varying rate: a slower DMA delays every start at least as much as any earlier arrival,
and computing only follows arrivals (max-plus maps do not expand differences). Such a run is moved as one flow, and the
arrival of each item is read off the flow's rate history afterwards. This is exact, not an approximation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bpusim.cores.recall import Recall
from bpusim.errors import SimulationError
from bpusim.ports import CRUMB, History
from bpusim.trace import CallItems
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.arrays import Bools, Floats, Ints

__all__ = ["Alone", "CallTimes", "arrival", "arrivals", "computed", "room", "run_length"]

_SCALAR, _WINDOW = 16, 256
"""Up to so many items plain Python is faster than arrays; beyond, a run is looked for in a window first."""
_RUNS = 4
"""So many stall-free runs of a replay go by arrays."""
_NEVER = -(2**62)


@dataclass(frozen=True, slots=True)
class CallTimes:
    """A call on one core: its items in picoseconds of compute, and what each item waits for."""

    bytes: Ints
    is_write: Bools
    compute: Ints
    depends: Ints
    """Index of the item whose computing must be over before this one starts, -1 for none."""
    producer: Ints
    """The same with an unlimited scratchpad: only writes wait."""
    rows: tuple[list[int], list[bool], list[int], list[int]]
    """Bytes, writes, compute and dependencies as lists: for loops in Python."""
    scratchpad: int
    """Its bytes."""
    fronts: dict[int, Ints] = field(default_factory=dict, compare=False, repr=False)
    """By item, once it was asked for: those before it that it or a later one waits for, and the last one."""
    recall: Recall = field(default_factory=Recall, compare=False, repr=False)
    """What the call did before."""

    @classmethod
    def of(cls, call: CallItems, hz: int, scratchpad: int, op_overhead: Ps, layer_sync: Ps) -> CallTimes:
        """Raises :class:`SimulationError` for a tile larger than the scratchpad."""
        compute = np.rint(call.cycles * (PS_PER_S / hz)).astype(np.int64)
        extra = call.first * op_overhead + call.layer_end * layer_sync
        depends = room(call.bytes, call.is_write, call.producer, scratchpad)
        stuck = np.flatnonzero(~call.is_write & (call.bytes > scratchpad))
        if len(stuck):
            op = call.ops[int(call.op[stuck[0]])]
            raise SimulationError(
                f"a tile of op '{op.id}', {int(call.bytes[stuck[0]])} B, exceeds the scratchpad of {scratchpad} B",
                do="compile the model for this scratchpad",
            )
        rows = (call.bytes.tolist(), call.is_write.tolist(), (compute + extra).tolist(), depends.tolist())
        return cls(call.bytes, call.is_write, compute + extra, depends, call.producer, rows, scratchpad)

    def front(self, item: int) -> Ints:
        """The items before ``item`` that those from it on depend on, and the last one."""
        found = self.fronts.get(item)
        if found is None:
            needed = {dep for dep in self.rows[3][item:] if 0 <= dep < item}
            found = self.fronts[item] = np.array(sorted(needed | {item - 1} if item else needed), dtype=np.int64)
        return found


def room(size: Ints, is_write: Bools, producer: Ints, scratchpad: int) -> Ints:
    """For each item the one that must be computed before it starts, -1 for none."""
    read = np.cumsum(np.where(is_write, 0, size))
    free = np.searchsorted(read, read - scratchpad, side="left")
    return np.where(is_write, producer, np.where(read > scratchpad, free, -1))


def run_length(times: CallTimes, first: int, done: Ints, now: Ps, rate: float) -> int:
    """How many items from ``first`` on can be moved as one flow from ``now``: none but the first may have to wait.

    ``done`` holds ``C`` of the items before ``first``; ``rate`` (B/s) is the highest the port can have.
    """
    ps_per_byte = PS_PER_S / rate
    before = float(done[first - 1] - now) if first else -float(now)
    stop = min(first + _SCALAR, len(times.bytes))
    n = _scalar_run(times, first, stop, done, now, before, ps_per_byte)
    if first + n < stop or stop == len(times.bytes):
        return n
    for stop in (min(first + _WINDOW, len(times.bytes)), len(times.bytes)) if first else (len(times.bytes),):
        n = _vector_run(times, first, stop, done, now, before, ps_per_byte, times.depends)[0]
        if first + n < stop:
            break
    return n


def _scalar_run(times: CallTimes, first: int, stop: int, done: Ints, now: Ps, before: float, ps_per_byte: float) -> int:
    sizes, writes, computes, depends = times.rows
    at, c = 0.0, before
    ahead: list[float] = []
    for k in range(first, stop):
        dep = depends[k]
        if dep >= 0 and k > first and at < (ahead[dep - first] if dep >= first else done[dep] - now):
            return k - first
        at += sizes[k] * ps_per_byte
        if not writes[k]:
            c = (at if at > c else c) + computes[k]
        ahead.append(c)
    return stop - first


def _vector_run(
    times: CallTimes,
    first: int,
    stop: int,
    done: Ints | Floats,
    now: float,
    before: float,
    ps_per_byte: float,
    depends: Ints,
) -> tuple[int, Floats, Floats]:
    """(items without a wait, their arrival, their ``C``), both relative to ``now``, all at a constant rate."""
    part = slice(first, stop)
    size = times.bytes[part]
    end: Floats = np.cumsum(size, dtype=np.float64) * ps_per_byte
    work = np.cumsum(times.compute[part], dtype=np.float64)
    latest = np.maximum.accumulate(np.where(times.is_write[part], -np.inf, end - (work - times.compute[part])))
    c: Floats = work + np.maximum(latest, before)
    dep = depends[part]
    inside = c[np.maximum(dep - first, 0)]
    outside = done[np.minimum(np.maximum(dep, 0), first - 1)] - now if first else np.full(len(dep), -np.inf)
    until = np.where(dep < 0, -np.inf, np.where(dep >= first, inside, outside))
    waits = until > end - size * ps_per_byte
    waits[0] = False
    found = np.flatnonzero(waits)
    n = int(found[0]) if len(found) else stop - first
    return n, end, c


def computed(times: CallTimes, first: int, stop: int, history: History, before: Ps, known: int = 0) -> Ints | list[Ps]:
    """``C`` of items that a flow brought, from its history so far (whose last row is its end, or now) and ``C`` before.

    The flow began with item ``first``. ``known``: so many of its items are computed already and left out.
    """
    if stop - first <= _SCALAR:
        return _few(times, first, stop, history, before, known)
    part = slice(first + known, stop)
    arrived = arrivals(np.cumsum(times.bytes[first:stop]), history)[known:]
    work = np.cumsum(times.compute[part])
    latest = np.where(times.is_write[part], _NEVER, arrived - (work - times.compute[part]))
    result: Ints = work + np.maximum(np.maximum.accumulate(latest), before)
    return result


def _few(times: CallTimes, first: int, stop: int, history: History, before: Ps, known: int) -> list[Ps]:
    """The same in plain Python: for a few items that is faster than arrays."""
    sizes, writes, computes, _ = times.rows
    moved = sum(sizes[first : first + known])
    out = []
    for i in range(first + known, stop):
        moved += sizes[i]
        if not writes[i]:
            before = max(before, arrival(history, moved)) + computes[i]
        out.append(before)
    return out


def arrival(history: History, size: int) -> Ps:
    """When so many bytes of a flow had arrived."""
    after = history[-1]
    for row in reversed(history[:-1]):
        start, by_then, rate, _ = row
        if size > by_then + CRUMB:
            return after[0] if size >= after[1] else min(start + round((size - by_then) * PS_PER_S / rate), after[0])
        after = row
    return history[0][0]


def arrivals(size: Ints, history: History) -> Ints:
    """:func:`arrival` of many sizes, which rise."""
    rows = np.array([h[:3] for h in history])
    start, by_then, rate = rows[:, 0], rows[:, 1], rows[:, 2]
    at = np.minimum(np.maximum(np.searchsorted(by_then + CRUMB, size, side="left") - 1, 0), len(rows) - 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        after = np.where(size > by_then[at], (size - by_then[at]) * PS_PER_S / rate[at], 0.0)
    base: Ints = start.astype(np.int64)[at]
    out: Ints = np.minimum(base + np.rint(after).astype(np.int64), history[-1][0])
    if len(out) and size[-1] >= by_then[-1] > by_then[at[-1]]:
        out[-1] = history[-1][0]
    return out


class Alone:
    """How long a call takes from its first byte with the channel to itself: a replay at the port's own rate."""

    __slots__ = ("_rate", "_real", "_room_matters", "_times", "_unlimited")

    def __init__(self, times: CallTimes, rate: float) -> None:
        self._times, self._rate = times, rate
        self._real: Ps | None = None
        self._unlimited: Ps | None = None
        self._room_matters = True

    @property
    def real(self) -> Ps:
        """With the scratchpad as it is."""
        if self._real is None:
            self._real, self._room_matters, _ = _replay(self._times, self._times.depends, self._rate)
        return self._real

    def computed(self) -> tuple[Floats, Floats]:
        """When each item is computed: with an unlimited scratchpad, with the scratchpad as it is."""
        _, room_matters, real = _replay(self._times, self._times.depends, self._rate)
        return (_replay(self._times, self._times.producer, self._rate)[2] if room_matters else real), real

    @property
    def unlimited(self) -> Ps:
        """With an unlimited scratchpad: the same where no read ever waits for room."""
        real = self.real
        if not self._room_matters:
            return real
        if self._unlimited is None:
            self._unlimited, _, _ = _replay(self._times, self._times.producer, self._rate)
        return self._unlimited


def _replay(times: CallTimes, depends: Ints, rate: float) -> tuple[Ps, bool, Floats]:
    """(duration, whether any read may have waited, ``C`` of each item).

    The first few stall-free runs go by arrays (a decode step is one, and a last write that waits); a call that stalls
    more often goes on item by item.
    """
    n = len(times.bytes)
    known = np.zeros(n)
    if not n:
        return 0, False, known
    ps_per_byte = PS_PER_S / rate
    at, i, read_waits = 0.0, 0, False
    for _ in range(_RUNS):
        if depends[i] >= 0 and known[depends[i]] > at:
            at = float(known[depends[i]])
            read_waits = read_waits or not times.is_write[i]
        before = float(known[i - 1]) - at if i else -at
        count, end, c = _vector_run(times, i, n, known, at, before, ps_per_byte, depends)
        known[i : i + count] = c[:count] + at
        at += float(end[count - 1])
        i += count
        if i == n:
            return round(max(at, float(known[-1]))), read_waits, known
    last = float(known[i - 1])
    done: list[float] = known[:i].tolist()
    rows = (column[i:].tolist() for column in (times.bytes, times.is_write, times.compute, depends))
    for size, is_write, compute, dep in zip(*rows, strict=True):
        if dep >= 0 and done[dep] > at:
            at = done[dep]
        at += size * ps_per_byte
        if not is_write:
            last = max(last, at) + compute
        done.append(last)
    return round(max(at, last)), True, np.array(done)
