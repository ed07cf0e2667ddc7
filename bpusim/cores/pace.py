"""Stretches in which the core computes longer than it reads: the DMA stops for room and goes again, tile by tile.

Such a stretch is moved as one flow at the rate at which the core consumes it. How far that is from the truth is
bounded: the stretch ends where the bytes that had arrived by then, tile by tile at the port's highest rate, would be
further from a straight line than an eighth of the scratchpad, which is how far the DMA can be ahead. With the
channel to itself the ends of all tiles are exact; beside others, what they see of the flow, and it of them, is an
average over a few tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bpusim.cores.tiles import CallTimes
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.arrays import Ints

__all__ = ["Stretch", "consumed"]

_NEAR = 8
"""What part of the scratchpad the bytes may be off a straight line: one in so many."""
_STREAMS = 4
"""Where so many items in a row need not wait, as many as the scratchpad holds tiles of a compiled trace, the stretch is
over: what follows is bound by bandwidth, and to be averaged with stalls would hide what contention costs it."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Items up to ``stop`` at ``pace`` B/s; when each is ``computed`` if nothing slows them down, from its begin on."""

    stop: int
    pace: float
    computed: Ints


def consumed(times: CallTimes, first: int, done: Ints, now: Ps, rate: float) -> Stretch | None:
    """The longest stretch from ``first`` on, which may start ``now``; None if no straight line is near enough.

    ``done`` holds ``C`` of the items before ``first``; ``rate`` (B/s) is the highest the port can have.
    """
    ps_per_byte = PS_PER_S / rate
    sizes, writes, computes, depends = times.rows
    near = times.scratchpad / _NEAR
    # All relative to now: whenever it happens, the same state gives the same stretch.
    at, c, moved = 0.0, float(done[first - 1] - now) if first else 0.0, 0
    low, high = 0.0, np.inf
    ends: list[float] = []
    stop, straight, waited = first, 0.0, first
    # NOTE: comparisons instead of ``max`` and ``min``, for speed: half of a prefill's first pass was here.
    for k in range(first, len(sizes)):
        dep = depends[k]
        if dep >= 0:
            ready = ends[dep - first] if dep >= first else float(done[dep] - now)
            if ready > at:
                slope = (moved - near) / ready  # nothing arrives meanwhile
                if slope > low:
                    low = slope
                slope = (moved + near) / ready
                if slope < high:
                    high = slope
                at, waited = ready, k
        if k - waited >= _STREAMS:
            break
        size = sizes[k]
        at += size * ps_per_byte
        moved += size
        if not writes[k]:
            c = (at if at > c else c) + computes[k]
        ends.append(c)
        if moved:
            slope, off = moved / at, near / at
            if slope - off > low:
                low = slope - off
            if slope + off < high:
                high = slope + off
            if low > high:
                break
            if low <= slope <= high:
                stop, straight = k + 1, slope
    if stop <= first + 1:
        return None
    return Stretch(stop, straight * PS_PER_S, np.rint(ends[: stop - first]).astype(np.int64))
