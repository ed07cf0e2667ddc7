"""Calls that never stall for room, planned once for a whole range of positions.

A decode step differs from the one before by a few bytes of KV cache. Whether its tiles ever wait is worked out once for
a range of positions, from bounds that hold at all of them: fewest bytes (the DMA is never further ahead), most compute
and least room. What is left of a call are a few flows whose bytes are dot products, and a few instants at which the
core must have computed something: the last tile of a run, or the op whose output is written next.

**When is item q computed?** ``C_q = max over j <= q of (D_j + compute of j..q)``, ``D_j`` being its arrival. If even at
the highest rate ``D_k - D_j`` exceeds the compute of ``j..k-1`` for some later ``k``, then ``j`` never decides: at any
lower rate ``D_k - D_j`` only grows. In a stretch bound by bandwidth that leaves the last tile alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import le, mul
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bpusim.cores.tiles import arrival, room
from bpusim.ports import History
from bpusim.trace import CallPart
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.arrays import Floats, Ints
    from bpusim.trace import CallItems, CallLayout, CallProgram, Tiling

__all__ = ["Plan", "PlanBook", "Run", "Timing", "plan_for"]

_RUNS, _CANDIDATES = 8, 8
"""A plan has no more runs, and a query no more deciding items: a call with more goes by its tiles."""
_KEPT = 64
"""Plans kept of a phase: ranges of positions."""
_PLANS, _SHAPES = 64, 16
"""Plans kept for whoever asks for the same again; what they are made of, some 100 KB each."""
_MARGIN = 2.0
"""Instants are rounded to whole picoseconds: a wait must be out of reach by so many."""
_Position = tuple[tuple[int, ...], int]
"""(``kv`` of each sequence, tokens)"""
_BLOCKS = (1024, 512, 256, 128, 64, 32, 16, 8, 4, 2)
"""Positions that a plan may hold for: aligned blocks, since costs step at multiples of tiles."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What turns a call's cycles and bytes into time on one core."""

    hz: int
    scratchpad: int
    op_overhead: Ps
    layer_sync: Ps
    rate_max: float


@dataclass(frozen=True, slots=True)
class Query:
    """When an item of a run is computed: the latest of candidates, each (bytes of the run behind it, compute from it
    on); ``entry``: compute of the run up to it, if what was left to compute before the run may decide."""

    candidates: tuple[tuple[int, Ps], ...]
    entry: Ps | None

    def at(self, history: History, size: int, before: Ps) -> Ps:
        """From the history of the run's flow of ``size`` bytes, and when all before it was computed."""
        best = before + self.entry if self.entry is not None else 0
        for behind, work in self.candidates:
            best = max(best, (arrival(history, size - behind) if behind else history[-1][0]) + work)
        return best

    def steady(self, start: Ps, size: int, before: Ps, ps_per_byte: float) -> Ps:
        """The same if the flow begins at ``start`` and has one rate."""
        best = before + self.entry if self.entry is not None else 0
        for behind, work in self.candidates:
            best = max(best, start + round((size - behind) * ps_per_byte) + work)
        return best


@dataclass(frozen=True, slots=True)
class Run:
    """Items ``start`` to ``stop`` of a call as one flow. It waits for query ``waits`` of an earlier run, (run, query);
    of its own queries the last is its last item."""

    start: int
    stop: int
    bytes: tuple[int, ...]
    waits: tuple[int, int] | None
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A call as stall-free runs, good from ``low`` to ``high`` (``kv`` of each sequence) at the highest rate it was
    made for."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    runs: tuple[Run, ...]
    ends: tuple[tuple[int, ...], tuple[int, ...]]
    """Values of the basis at both."""
    _tails: dict[float, Ps | None] = field(default_factory=dict, compare=False, repr=False)

    def holds(self, kvs: Sequence[int]) -> bool:
        """Whether it is good at this position."""
        return all(map(le, self.low, kvs)) and all(map(le, kvs, self.high))

    def sizes(self, at: Sequence[int]) -> list[int]:
        """Bytes of each run."""
        return [sum(map(mul, r.bytes, at)) for r in self.runs]

    def alone(self, sizes: Sequence[int], rate: float) -> Ps:
        """How long the call takes from its first byte at a constant rate."""
        if rate not in self._tails:
            low, high = (self._beyond(self.sizes(at), rate) for at in self.ends)
            self._tails[rate] = low if abs(high - low) <= _MARGIN else None  # but for rounding
        tail = self._tails[rate]
        if tail is not None:  # nothing in it depends on the position but its bytes
            return round(sum(sizes) * PS_PER_S / rate) + tail
        return self._replay(sizes, rate)

    def _beyond(self, sizes: Sequence[int], rate: float) -> Ps:
        """How much longer it takes than its bytes do."""
        return self._replay(sizes, rate) - round(sum(sizes) * PS_PER_S / rate)

    def _replay(self, sizes: Sequence[int], rate: float) -> Ps:
        now, before, ps_per_byte = 0, 0, PS_PER_S / rate
        known: list[list[Ps]] = []
        for run, size in zip(self.runs, sizes, strict=True):
            if run.waits is not None:
                now = max(now, known[run.waits[0]][run.waits[1]])
            known.append([q.steady(now, size, before, ps_per_byte) for q in run.queries])
            now, before = now + round(size * ps_per_byte), known[-1][-1]
        return max(now, before)


class PlanBook:
    """Plans by timing, layout and batch, made when asked for: cores that are alike share them."""

    __slots__ = ("_plans",)

    def __init__(self) -> None:
        self._plans: dict[Timing, dict[tuple[int, int, int], tuple[CallLayout, list[Plan]]]] = {}

    def of(self, timing: Timing) -> Callable[[CallProgram], Plan | None]:
        """A function that gives the plan for a call at this timing, None if it has to wait for room, or is a part."""
        kept = self._plans.setdefault(timing, {})

        def find(call: CallProgram) -> Plan | None:
            if isinstance(call, CallPart):
                return None  # a plan is for all of a call
            kvs, tokens = call.position
            layout = call.layout
            key = id(layout), tokens, len(kvs)
            _, plans = kept.get(key) or kept.setdefault(key, (layout, []))
            for found in plans:
                if found.holds(kvs):
                    return found
            narrow = bool(plans) and plans[0].low == plans[0].high and any(plans[0].high)  # its costs allow no other
            plan = plan_for(call, timing, wide=not narrow)
            if plan is not None:
                plans.insert(0, plan)
                del plans[_KEPT:]
            return plan

        return find


def plan_for(call: CallProgram, timing: Timing, *, wide: bool = True) -> Plan | None:
    """A plan for the position of ``call``; None if it has to wait for room. ``wide``: for as many around it as hold."""
    kvs, tokens = call.position
    layout = call.layout
    here = _plan(layout, call.position, call.position, timing)
    if here is None or not wide:
        return here
    for block in _BLOCKS:
        high = tuple([-(-kv // block) * block for kv in kvs])
        low = tuple([max(kv - block + 1, 0) for kv in high])
        plan = _plan(layout, (low, tokens), (high, tokens), timing)
        if plan is not None:
            return plan
    return here


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Items with bounds over a range of positions (fewest, most), and exactly at its two ends."""

    tiling: Tiling
    depends: Ints
    size: tuple[Ints, Ints]
    work: tuple[Ints, Ints]
    exact_size: tuple[Ints, Ints]
    exact_work: tuple[Ints, Ints]


# NOTE: for speed, since cores that are alike and points of a study ask for the same. A layout is itself and no other.
@lru_cache(maxsize=_PLANS)
def _plan(layout: CallLayout, low: _Position, high: _Position, timing: Timing) -> Plan | None:
    b = _bounds(layout, layout.basis(*low), layout.basis(*high), timing)
    if b is None:
        return None
    n, i, before = len(b.depends), 0, -np.inf
    spans: list[tuple[int, int, float]] = []
    while i < n:
        if len(spans) == _RUNS or (i and not b.tiling.is_write[i]):
            return None
        j = _stall_free(b, i, before, PS_PER_S / timing.rate_max)
        spans.append((i, j, before))
        i = j
        if i < n:  # at its start, all up to what it waits for is computed
            before = float(b.work[1][b.depends[i] + 1 : i].sum())
    runs = _runs(layout, spans, b, PS_PER_S / timing.rate_max)
    ends = layout.basis(*low), layout.basis(*high)
    return Plan(low[0], high[0], runs, ends) if runs is not None else None


def _bounds(layout: CallLayout, at_low: tuple[int, ...], at_high: tuple[int, ...], timing: Timing) -> _Bounds | None:
    """None where the number of tiles differs over the range, a cost falls along it, or a tile does not fit."""
    shape = _shape(layout, at_low, at_high)
    if shape is None:
        return None
    t, items, size, cycles = shape
    if int(size[1][~t.is_write].max(initial=0)) > timing.scratchpad:
        return None
    extra = items[0].first * timing.op_overhead + items[0].layer_end * timing.layer_sync
    ps = PS_PER_S / timing.hz
    work = [np.rint(c * ps).astype(np.int64) + extra for c in cycles]
    exact = [np.rint(e.cycles * ps).astype(np.int64) + extra for e in items]
    depends = room(size[1], t.is_write, items[0].producer, timing.scratchpad)
    return _Bounds(t, depends, size, (work[0], work[1]), (items[0].bytes, items[1].bytes), (exact[0], exact[1]))


class _Shape(NamedTuple):
    """Items over a range of positions: exactly at its two ends, and bounds (fewest, most) of bytes and cycles."""

    tiling: Tiling
    items: tuple[CallItems, CallItems]
    size: tuple[Ints, Ints]
    cycles: tuple[Ints, Ints]


# NOTE: for speed, since the points of a study differ in their timing, and this does not depend on it.
@lru_cache(maxsize=_SHAPES)
def _shape(layout: CallLayout, at_low: tuple[int, ...], at_high: tuple[int, ...]) -> _Shape | None:
    """None where the number of tiles differs over the range, or a cost falls along it."""
    ends = np.array([at_low, at_high])
    if (layout.coefs[..., ends[0] != ends[1]] < 0).any():
        return None
    low, high = (layout.coefs @ at for at in ends)
    t, same = layout.tiling(low), layout.tiling(high)
    if not (np.array_equal(t.op, same.op) and np.array_equal(t.is_write, same.is_write)):
        return None
    size, cycles = [], []
    for bound, up in ((low, 0), (high, 1)):
        spare = up * (t.pieces - 1)  # a share is rounded down or up
        read, write = layout.moved(bound)
        size.append(np.where(t.is_write, write[t.op], (read[t.op] + spare) // t.pieces))
        cycles.append(np.where(t.is_write, 0, (bound[0][t.op] + spare) // t.pieces))
    items = layout.items(low, t), layout.items(high, t)
    return _Shape(t, items, (size[0], size[1]), (cycles[0], cycles[1]))


def _stall_free(b: _Bounds, first: int, before: float, ps_per_byte: float) -> int:
    """End of the run from ``first`` on in which none but the first can wait; times are relative to its start."""
    size, work = b.size[0][first:], b.work[1][first:]
    end: Floats = np.cumsum(size, dtype=np.float64) * ps_per_byte
    total = np.cumsum(work, dtype=np.float64)
    latest = np.maximum.accumulate(np.where(b.tiling.is_write[first:], -np.inf, end - (total - work)))
    done = total + np.maximum(latest, before)
    dep = b.depends[first:]
    over = b.depends[first] if first else -1
    outside = np.where(dep <= over, -np.inf, before)
    until = np.where(dep < 0, -np.inf, np.where(dep >= first, done[np.maximum(dep - first, 0)], outside))
    waits = until > end - size * ps_per_byte - _MARGIN
    waits[0] = False
    found = np.flatnonzero(waits)
    return first + (int(found[0]) if len(found) else len(size))


def _runs(
    layout: CallLayout, spans: list[tuple[int, int, float]], b: _Bounds, ps_per_byte: float
) -> tuple[Run, ...] | None:
    starts = [i for i, _, _ in spans]
    asked: list[list[int]] = [[j - 1] for _, j, _ in spans]
    waits: list[tuple[int, int] | None] = [None]
    for i in starts[1:]:
        item = int(b.depends[i])
        run = max(k for k, s in enumerate(starts) if s <= item)
        if item not in asked[run]:
            asked[run].insert(0, item)
        waits.append((run, item))
    runs = []
    for (i, j, before), items, wait in zip(spans, asked, waits, strict=True):
        queries = []
        for item in items:
            query = _query(b, i, j, item, before, ps_per_byte)
            if query is None:
                return None
            queries.append(query)
        at = (wait[0], asked[wait[0]].index(wait[1])) if wait is not None else None
        runs.append(Run(i, j, layout.transferred(b.tiling, i, j), at, tuple(queries)))
    return tuple(runs)


def _query(b: _Bounds, start: int, stop: int, item: int, before: float, ps_per_byte: float) -> Query | None:
    """When ``item`` of the run is computed; None if that takes many candidates, or if they depend on the position."""
    part = slice(start, item + 1)
    work = b.work[1][part]
    ahead = np.cumsum(b.size[0][part], dtype=np.float64) * ps_per_byte - (np.cumsum(work) - work)
    ahead[b.tiling.is_write[part]] = -np.inf
    later = np.append(np.maximum.accumulate(ahead[::-1])[::-1][1:], -np.inf)
    deciding = np.flatnonzero((ahead > -np.inf) & (later < ahead + _MARGIN))
    if len(deciding) > _CANDIDATES:
        return None
    entry = None
    if ahead.max() < before + _MARGIN or not len(deciding):
        entry = _same(b.exact_work, start, item + 1)
        if entry is None:
            return None
    candidates = []
    for j in (start + deciding).tolist():
        behind, rest = _same(b.exact_size, j + 1, stop), _same(b.exact_work, j, item + 1)
        if behind is None or rest is None:
            return None
        candidates.append((behind, rest))
    return Query(tuple(candidates), entry)


def _same(ends: tuple[Ints, Ints], start: int, stop: int) -> int | None:
    """Sum over items, if it is the same at both ends of the range of positions."""
    low, high = (int(e[start:stop].sum()) for e in ends)
    return low if low == high else None
