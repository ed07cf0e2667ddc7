"""A phase bound to a position: the calls and CPU ops it consists of.

A *call* is a run of BPU ops between two CPU ops: the unit that the runtime dispatches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bpusim.ports import BUFFER_KINDS, MOVES, BufferKind, Transfer
from bpusim.trace.basis import dot
from bpusim.trace.layout import MOVED, READS, WRITES, CallItems, CallLayout, Tiling
from bpusim.trace.model import buffer_kind

if TYPE_CHECKING:
    from bpusim.arrays import Ints

__all__ = ["CallProgram", "CpuWork", "ItemRange", "Program"]


class CallProgram:
    """One call at a position: a run of BPU ops. Its sums are dot products; its items are made only for who asks."""

    __slots__ = ("_bound", "_items", "_tiling", "at", "bytes", "layout", "mix", "ops", "position", "sums")

    def __init__(
        self,
        layout: CallLayout,
        at: tuple[int, ...],
        position: tuple[tuple[int, ...], int],
        sums: list[int] | None = None,
    ) -> None:
        self.layout = layout
        self.ops = layout.ops
        """Ops in program order, repeats unrolled."""
        self.at = at
        """Values of the phase's basis here."""
        self.position = position
        """(``kv`` of each sequence, tokens)."""
        self.sums: list[int] = layout.sums.dot(at).tolist() if sums is None else sums
        """Fields over all ops."""
        written = sum(self.sums[WRITES])
        self.bytes: int = sum(self.sums[MOVED])
        """All that it moves."""
        self.mix = round(written / self.bytes, 2) if written else 0.0
        """Part of that which is written."""
        self._bound: Ints | None = None
        self._tiling: Tiling | None = None
        self._items: CallItems | None = None

    @property
    def fields(self) -> Ints:
        """Fields x ops."""
        if self._bound is None:
            self._bound = self.layout.coefs @ np.array(self.at)
        return self._bound

    @property
    def tiling(self) -> Tiling:
        """Its items by tile."""
        if self._tiling is None:
            self._tiling = self.layout.tiling(self.fields)
        return self._tiling

    @property
    def items(self) -> CallItems:
        """Its DMA items."""
        if self._items is None:
            self._items = self.layout.items(self.fields, self.tiling)
        return self._items

    @property
    def cycles(self) -> int:
        """Compute cycles of all ops."""
        return self.sums[0]

    @property
    def mac_cycles(self) -> int:
        """Cycles in which the array works."""
        return self.sums[1]

    @property
    def macs(self) -> int:
        """Useful MACs."""
        return self.sums[2]

    @property
    def issued(self) -> int:
        """MACs issued to the array, padding included."""
        return self.sums[3]

    @property
    def reads(self) -> Ints:
        """Bytes read, buffer kind x op."""
        return self.fields[READS]

    @property
    def writes(self) -> Ints:
        """Bytes written, buffer kind x op."""
        return self.fields[WRITES]

    def written(self, kind: BufferKind) -> int:
        """Bytes of a buffer kind that it writes."""
        return self.sums[WRITES][BUFFER_KINDS.index(kind)]

    def buffers(self, op: int, write: bool) -> Iterator[tuple[str, int]]:
        """Buffers that op number ``op`` reads (or writes), with their bytes here."""
        table = self.ops[op].write if write else self.ops[op].read
        return ((buffer, dot(coefs, self.at)) for buffer, coefs in table.items())

    @property
    def overheads(self) -> tuple[int, int]:
        """(ops that begin in it, repeated layers that end in it): the array stands still for each."""
        return len(self.ops), self.layout.layers

    @property
    def lasts(self) -> Ints:
        """Of each op, the item of its last tile."""
        return self.tiling.last

    def transfers(self, start: int, stop: int, size: int | None = None) -> ItemRange:
        """Items ``start`` to ``stop`` as one transfer list. ``size``: its bytes, where they are known."""
        return ItemRange(self, start, stop, size if size is not None else int(self.items.bytes[start:stop].sum()))

    @property
    def moves(self) -> list[int]:
        """DRAM bytes of the whole call in the order of ``MOVES``."""
        return self.sums[MOVED]

    def moved(self) -> dict[tuple[BufferKind, bool], int]:
        """The same by (buffer kind, is a write); kinds that move nothing are left out."""
        return {key: n for key, n in zip(MOVES, self.moves, strict=True) if n}


@dataclass(slots=True)
class ItemRange:
    """A run of a call's DMA items: a :class:`bpusim.ports.TransferList`."""

    call: CallProgram
    start: int
    stop: int
    bytes: int
    """Sum over the items."""

    @property
    def mix(self) -> float:
        """Part of the call's bytes that is written."""
        return self.call.mix

    def __iter__(self) -> Iterator[Transfer]:
        call = self.call
        t = call.tiling
        for i in range(self.start, self.stop):
            op, write, pieces, rank = int(t.op[i]), bool(t.is_write[i]), int(t.pieces[i]), int(t.place[i])
            buffers = list(call.buffers(op, write))
            size = sum(n for _, n in buffers)
            low, high = size * rank // pieces, size * (rank + 1) // pieces
            base = 0
            for buffer, total in buffers:  # an op's buffers lie one behind the other; the tile is a stretch of them
                begin, end = max(low - base, 0), min(high - base, total)
                if end > begin:
                    yield Transfer(buffer, begin, end - begin, buffer_kind(buffer), write)
                base += total


@dataclass(frozen=True, slots=True)
class CpuWork:
    """An op that falls back to the CPU: vector elements by class (``mac`` for MACs), DRAM bytes, crossing tensors, and
    CPU cycles that were measured."""

    op_id: str
    type: str
    elements: Mapping[str, int]
    moved: Mapping[tuple[BufferKind, bool], int]
    """DRAM bytes by (buffer kind, is a write)."""
    tensors: int
    cycles: int = 0
    """Of a CPU core, beside those of its elements."""


@dataclass(slots=True)
class Program:
    """A phase at one position: calls and CPU ops in program order."""

    phase: str
    kvs: tuple[int, ...]
    """Cache entries of each sequence before the step."""
    tokens: int
    segments: tuple[CallProgram | CpuWork, ...]

    @property
    def calls(self) -> tuple[CallProgram, ...]:
        """The BPU calls in order."""
        return tuple(s for s in self.segments if isinstance(s, CallProgram))

    @property
    def macs(self) -> int:
        """Useful MACs of the whole phase, CPU ops included."""
        return sum(s.macs if isinstance(s, CallProgram) else s.elements.get("mac", 0) for s in self.segments)

    def traffic(self) -> dict[tuple[BufferKind, bool], int]:
        """DRAM bytes of all calls by (buffer kind, is a write)."""
        out: dict[tuple[BufferKind, bool], int] = {}
        for call in self.calls:
            for key, n in call.moved().items():
                out[key] = out.get(key, 0) + n
        return out
