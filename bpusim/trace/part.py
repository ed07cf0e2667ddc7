"""A stretch of a call as a call of its own: what is left when it is interrupted between two tiles."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bpusim.ports import BUFFER_KINDS, MOVES
from bpusim.trace.layout import CallItems
from bpusim.trace.model import buffer_kind
from bpusim.trace.program import CallProgram, ItemRange

if TYPE_CHECKING:
    from bpusim.arrays import Ints

__all__ = ["CallPart", "moved_until", "part_of"]

_COUNTED = 4
"""Fields that tiles share: cycles, MAC cycles, MACs, issued MACs."""


class CallPart(CallProgram):
    """Items ``start`` to ``stop`` of ``whole``. Parts that follow each other sum to the whole: bytes, cycles, MACs."""

    __slots__ = ("__dict__", "start", "stop", "whole")

    def __init__(self, whole: CallProgram, start: int, stop: int) -> None:
        super().__init__(whole.layout, whole.at, whole.position)
        self.whole = whole
        self.start, self.stop = start, stop
        counted = counted_until(whole, stop) - counted_until(whole, start)
        moved = moved_until(whole, stop) - moved_until(whole, start)
        self.sums = [*counted.tolist(), 0, *moved.tolist()]
        self.bytes = int(moved.sum())
        self.mix = whole.mix
        last = self._last
        self.ops = tuple(op for op, at in zip(whole.ops, last.tolist(), strict=True) if start <= at < stop)

    @cached_property
    def _last(self) -> Ints:
        return self.whole.lasts

    @property
    def items(self) -> CallItems:
        """Its DMA items; those that waited for one before ``start`` wait no more."""
        if self._items is None:
            all_, cut = self.whole.items, slice(self.start, self.stop)
            producer = np.where(all_.producer[cut] >= self.start, all_.producer[cut] - self.start, -1)
            self._items = CallItems(
                self.whole.ops, all_.bytes[cut], all_.cycles[cut], all_.is_write[cut], all_.op[cut], all_.first[cut],
                all_.layer_end[cut], producer,
            )  # fmt: skip
        return self._items

    @property
    def overheads(self) -> tuple[int, int]:
        """(ops that begin in it, layers that end in it)."""
        return int(np.count_nonzero(self.items.first)), int(np.count_nonzero(self.items.layer_end))

    @property
    def lasts(self) -> Ints:
        """Of each of its ops, the item of its last tile."""
        last = self._last
        return last[(self.start <= last) & (last < self.stop)] - self.start

    def transfers(self, start: int, stop: int, size: int | None = None) -> ItemRange:
        """Items ``start`` to ``stop`` of the part as one transfer list. ``size``: its bytes, where they are known."""
        return self.whole.transfers(self.start + start, self.start + stop, size)


def part_of(call: CallProgram, start: int, stop: int) -> CallPart:
    """Items ``start`` to ``stop`` of a call or of a part of one."""
    if isinstance(call, CallPart):
        return CallPart(call.whole, call.start + start, call.start + stop)
    return CallPart(call, start, stop)


def counted_until(call: CallProgram, stop: int) -> Ints:
    """Cycles, MAC cycles, MACs and issued MACs of the items before ``stop``."""
    fields, t = call.fields[:_COUNTED], call.tiling
    out: Ints = fields[:, t.last < stop].sum(axis=1)
    if stop < len(t.op) and not t.is_write[stop] and t.place[stop]:
        out = out + fields[:, t.op[stop]] * t.place[stop] // t.pieces[stop]
    return out


def moved_until(call: CallProgram, stop: int, more: int = 0) -> Ints:
    """Bytes of the items before ``stop`` in the order of ``MOVES``, and of ``more`` bytes from there on."""
    if isinstance(call, CallPart):
        return moved_until(call.whole, call.start + stop, more) - moved_until(call.whole, call.start)
    t = call.tiling
    sizes = np.cumsum(call.items.bytes[stop:])
    whole = int(np.searchsorted(sizes, more, side="right")) if more else 0
    more -= int(sizes[whole - 1]) if whole else 0
    stop += whole
    out = np.zeros(len(MOVES), dtype=np.int64)
    out[: len(BUFFER_KINDS)] = call.reads[:, t.last < stop].sum(axis=1)
    out[len(BUFFER_KINDS) :] = call.writes[:, t.op[:stop][t.is_write[:stop]]].sum(axis=1)
    if stop < len(t.op):
        op, write = int(t.op[stop]), bool(t.is_write[stop])
        buffers = list(call.buffers(op, write))
        left = sum(n for _, n in buffers) * int(t.place[stop]) // int(t.pieces[stop]) + more
        for buffer, size in buffers:  # an op's buffers lie one behind the other
            take = min(left, size)
            out[MOVES.index((buffer_kind(buffer), write))] += take
            left -= take
    return out
