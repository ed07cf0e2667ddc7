"""The tile recursion of a BPU core: when each DMA item may start, arrives, and is computed.

Items come in DMA order (:class:`bpusim.trace.CallProgram`). Item ``i`` starts when item ``i - 1`` has arrived and its
*dependency* is computed: for a read, the tile whose bytes make room in the scratchpad (a tile is fetched when there is
room for all of it); for a write, the op that produces it. A tile is computed from ``C_i = max(C_{i-1}, D_i) + c_i``.

**Stall-free runs.** If from some state on no item up to ``j`` would wait at the highest rate the port can ever have,
then none waits at any lower or varying rate: a slower DMA delays every start at least as much as any earlier arrival,
and computing only follows arrivals (max-plus maps do not expand differences). Such a run is moved as one flow, and the
arrival of each item is read off the flow's rate history afterwards. This is exact, not an approximation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bpusim.errors import SimulationError
from bpusim.trace import CallProgram
from bpusim.units import PS_PER_S, Ps

__all__ = ["CallTimes", "arrivals", "replay_alone", "run_length"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_SCALAR, _WINDOW = 16, 256


@dataclass(frozen=True, slots=True)
class CallTimes:
    """A call on one core: its items in picoseconds of compute, and what each item waits for."""

    bytes: Ints
    is_write: NDArray[np.bool_]
    compute: Ints
    depends: Ints
    """Index of the item whose computing must be over before this one starts, -1 for none."""
    producer: Ints
    """The same with an unlimited scratchpad: only writes wait."""
    overhead: Ps
    """Part of the compute time that is op overhead and layer synchronisation."""

    @classmethod
    def of(cls, call: CallProgram, hz: int, scratchpad: int, op_overhead: Ps, layer_sync: Ps) -> CallTimes:
        """Raises :class:`SimulationError` for a tile larger than the scratchpad."""
        compute = np.rint(call.cycles * (PS_PER_S / hz)).astype(np.int64)
        extra = call.first * op_overhead + call.layer_end * layer_sync
        read = np.cumsum(np.where(call.is_write, 0, call.bytes))
        free = np.searchsorted(read, read - scratchpad, side="left")
        depends = np.where(call.is_write, call.producer, np.where(read > scratchpad, free, -1))
        stuck = np.flatnonzero(~call.is_write & (depends == np.arange(len(read))) & (call.bytes > scratchpad))
        if len(stuck):
            op = call.ops[int(call.op[stuck[0]])]
            raise SimulationError(
                f"a tile of op '{op.id}' ({int(call.bytes[stuck[0]])} B) is larger than the scratchpad ({scratchpad} B)",
                do="compile the model for this scratchpad",
            )
        return cls(call.bytes, call.is_write, compute + extra, depends, call.producer, int(extra.sum()))


def run_length(times: CallTimes, first: int, computed: Ints, now: Ps, rate: float) -> int:
    """How many items from ``first`` on can be moved as one flow from ``now``: none but the first may have to wait.

    ``computed`` holds ``C`` of the items before ``first``; ``rate`` (B/s) is the highest the port can have.
    """
    ps_per_byte = PS_PER_S / rate
    before = float(computed[first - 1] - now) if first else -float(now)
    stop = min(first + _SCALAR, len(times.bytes))
    n = _scalar_run(times, first, stop, computed, now, before, ps_per_byte)
    if first + n < stop or stop == len(times.bytes):
        return n
    for stop in (min(first + _WINDOW, len(times.bytes)), len(times.bytes)):
        n = _vector_run(times, first, stop, computed, now, before, ps_per_byte)[0]
        if first + n < stop:
            break
    return n


def _scalar_run(times: CallTimes, first: int, stop: int, computed: Ints, now: Ps, before: float, ps_per_byte: float) -> int:
    part = slice(first, stop)
    rows = zip(
        times.bytes[part].tolist(), times.is_write[part].tolist(), times.compute[part].tolist(), times.depends[part].tolist(), strict=True
    )
    at, c, ahead = 0.0, before, []
    for n, (size, is_write, compute, dep) in enumerate(rows):
        if n and dep >= 0 and at < (ahead[dep - first] if dep >= first else computed[dep] - now):
            return n
        at += size * ps_per_byte
        if not is_write:
            c = max(c, at) + compute
        ahead.append(c)
    return stop - first


def _vector_run(
    times: CallTimes, first: int, stop: int, computed: Ints, now: Ps, before: float, ps_per_byte: float, *, room: bool = True
) -> tuple[int, Floats, Floats]:
    """(items without a wait, their arrival, their ``C``), both relative to ``now``, all at a constant rate."""
    part = slice(first, stop)
    size = times.bytes[part]
    end = np.cumsum(size) * ps_per_byte
    work = np.cumsum(times.compute[part])
    latest = np.maximum.accumulate(np.where(times.is_write[part], -np.inf, end - (work - times.compute[part])))
    c = work + np.maximum(latest, before)
    dep = (times.depends if room else times.producer)[part]
    inside = c[np.maximum(dep - first, 0)]
    outside = computed[np.clip(dep, 0, max(first - 1, 0))] - now if first else np.full(len(dep), -np.inf)
    until = np.where(dep < 0, -np.inf, np.where(dep >= first, inside, outside))
    waits = until > end - size * ps_per_byte
    waits[0] = False
    found = np.flatnonzero(waits)
    n = int(found[0]) if len(found) else stop - first
    return n, end, c


def arrivals(times: CallTimes, first: int, stop: int, history: Sequence[tuple[Ps, float, float, float]]) -> Ints:
    """When each item of a finished flow had arrived, from the flow's rate history (its last row is its end)."""
    if stop - first == 1:
        return np.array([history[-1][0]], dtype=np.int64)
    rows = np.array([h[:3] for h in history])
    start, by_then, rate = rows[:, 0], rows[:, 1], rows[:, 2]
    size = np.cumsum(times.bytes[first:stop])
    at = np.clip(np.searchsorted(by_then, size, side="left") - 1, 0, len(rows) - 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        after = np.where(size > by_then[at], (size - by_then[at]) * PS_PER_S / rate[at], 0.0)
    base: Ints = start.astype(np.int64)[at]
    out: Ints = np.minimum(base + np.rint(after).astype(np.int64), history[-1][0])
    out[-1] = history[-1][0]
    return out


def computed_from(times: CallTimes, first: int, stop: int, arrived: Ints, before: Ps) -> Ints:
    """``C`` of items ``first`` to ``stop`` from their arrivals and ``C`` of the item before."""
    part = slice(first, stop)
    work = np.cumsum(times.compute[part])
    latest = np.where(times.is_write[part], np.iinfo(np.int64).min // 2, arrived - (work - times.compute[part]))
    out: Ints = work + np.maximum(np.maximum.accumulate(latest), before)
    return out


def replay_alone(times: CallTimes, rate: float, *, room: bool) -> Ps:
    """How long the call takes from the first byte with the channel to itself; ``room=False``: scratchpad unlimited."""
    none = np.zeros(0, dtype=np.int64)
    ps_per_byte = PS_PER_S / rate
    if not len(times.bytes):
        return 0
    n, end, c = _vector_run(times, 0, len(times.bytes), none, 0, 0.0, ps_per_byte, room=room)
    if n == len(times.bytes):
        return round(max(float(c[-1]), float(end[-1])))
    depends = times.depends if room else times.producer
    rows = zip(times.bytes.tolist(), times.is_write.tolist(), times.compute.tolist(), depends.tolist(), strict=True)
    at, done = 0.0, 0.0
    all_done: list[float] = []
    for size, is_write, compute, dep in rows:
        if dep >= 0 and all_done[dep] > at:
            at = all_done[dep]
        at += size * ps_per_byte
        if not is_write:
            done = max(done, at) + compute
        all_done.append(done)
    return round(max(at, done))
