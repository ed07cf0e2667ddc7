"""A phase bound to a position: the calls and CPU ops it consists of, as arrays.

**DMA order** is fixed at compile time and follows from the ops alone: reads in program order, by tiles; the write of an
op sits behind the reads of the next op that reads anything (its output is double-buffered), but before any read of what
it wrote. A *call* is a run of BPU ops between two CPU ops: the unit that the runtime dispatches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bpusim.errors import TraceError
from bpusim.ports import BUFFER_KINDS, BufferKind, Transfer
from bpusim.trace.basis import values
from bpusim.trace.model import Coefs, Op, Phase, Repeat, buffer_kind

__all__ = ["CallProgram", "CpuWork", "ItemRange", "PhaseTable", "Program"]

Ints = NDArray[np.int64]
_FIELDS = ("cycles", "mac_cycles", "macs", "issued", "tiles")
_NF = len(_FIELDS)
_NK = len(BUFFER_KINDS)


@dataclass(frozen=True)
class CallProgram:
    """One call: DMA items in their fixed order, each a tile of reads or the write of an op.

    Arrays over items: ``bytes``; ``cycles`` of the tile (0 for a write); ``is_write``; ``op`` (index into ``ops``);
    ``first`` (first tile of its op); ``producer`` (for a write, the item of the last tile of its op, else -1).
    """

    ops: tuple[Op, ...]
    at: tuple[int, ...]
    """Values of the phase's basis here."""
    bytes: Ints
    cycles: Ints
    is_write: NDArray[np.bool_]
    op: Ints
    first: NDArray[np.bool_]
    layer_end: NDArray[np.bool_]
    producer: Ints
    fields: Ints
    """(cycles, mac_cycles, macs, issued, tiles) x op."""
    reads: Ints
    """Bytes read, buffer kind x op."""
    writes: Ints
    """Bytes written, buffer kind x op."""

    @property
    def cycles_total(self) -> int:
        """Compute cycles of all ops."""
        return int(self.fields[0].sum())

    @property
    def mac_cycles(self) -> int:
        """Cycles in which the array works."""
        return int(self.fields[1].sum())

    @property
    def macs(self) -> int:
        """Useful MACs."""
        return int(self.fields[2].sum())

    @property
    def issued(self) -> int:
        """MACs issued to the array, padding included."""
        return int(self.fields[3].sum())

    def buffers(self, op: int, write: bool) -> Iterator[tuple[str, int]]:
        """Buffers that op number ``op`` reads (or writes), with their bytes here."""
        table = self.ops[op].write if write else self.ops[op].read
        return ((buffer, _dot(coefs, self.at)) for buffer, coefs in table.items())

    def items(self, start: int, stop: int) -> ItemRange:
        """Items ``start`` to ``stop`` as one transfer list."""
        return ItemRange(self, start, stop)

    def moved(self) -> dict[tuple[BufferKind, bool], int]:
        """DRAM bytes of the whole call by (buffer kind, is a write); kinds that move nothing are left out."""
        out: dict[tuple[BufferKind, bool], int] = {}
        for write, table in ((False, self.reads), (True, self.writes)):
            for kind, n in zip(BUFFER_KINDS, table.sum(axis=1).tolist(), strict=True):
                if n:
                    out[kind, write] = n
        return out


def _rank_in_op(op: Ints, is_write: NDArray[np.bool_], first: NDArray[np.bool_]) -> Ints:
    """Number of each tile within its op (0 for writes)."""
    index = np.arange(len(op))
    begin = np.zeros(int(op.max(initial=-1)) + 1, dtype=np.int64)
    begin[op[first]] = index[first]
    return np.where(is_write, 0, index - begin[op])


def _share(total: Ints, pieces: Ints, place: Ints) -> Ints:
    """Piece number ``place`` of ``total`` cut into ``pieces`` as evenly as integers allow."""
    return total * (place + 1) // pieces - total * place // pieces


@dataclass(frozen=True, slots=True)
class ItemRange:
    """A run of a call's DMA items: a :class:`bpusim.ports.TransferList`."""

    call: CallProgram
    start: int
    stop: int

    @property
    def bytes(self) -> int:
        """Sum over the items."""
        if self.stop - self.start == 1:
            return int(self.call.bytes[self.start])
        return int(self.call.bytes[self.start : self.stop].sum())

    @property
    def written(self) -> int:
        """Bytes of the items that are writes."""
        if self.stop - self.start == 1:
            return self.bytes if self.call.is_write[self.start] else 0
        part = slice(self.start, self.stop)
        return int(self.call.bytes[part].dot(self.call.is_write[part]))

    def __iter__(self) -> Iterator[Transfer]:
        call = self.call
        place = _rank_in_op(call.op, call.is_write, call.first)
        tiles = np.bincount(call.op[~call.is_write], minlength=len(call.ops))
        for i in range(self.start, self.stop):
            op, write = int(call.op[i]), bool(call.is_write[i])
            pieces, rank = (1, 0) if write else (int(tiles[op]), int(place[i]))
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
    """An op that falls back to the CPU: vector elements by class (``mac`` for MACs), DRAM bytes, crossing tensors."""

    op_id: str
    type: str
    elements: Mapping[str, int]
    moved: Mapping[tuple[BufferKind, bool], int]
    """DRAM bytes by (buffer kind, is a write)."""
    tensors: int


@dataclass(frozen=True, slots=True)
class Program:
    """A phase at one position: calls and CPU ops in program order."""

    phase: str
    kv: int
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


@dataclass(slots=True)
class _Template:
    """The part of a call that does not depend on the position: DMA items by op."""

    low: int
    high: int
    op: Ints
    is_write: NDArray[np.bool_]


@dataclass(slots=True)
class PhaseTable:
    """A phase unrolled into coefficient arrays (fields x ops x basis)."""

    name: str
    basis: tuple[str, ...]
    ops: tuple[Op, ...]
    layer_end: NDArray[np.bool_]
    coefs: Ints
    largest: tuple[int, ...]
    """Per term of the basis, the sum over all ops of an op's largest coefficient: nothing bound exceeds it."""
    segments: tuple[_Template | int, ...]

    @classmethod
    def build(cls, phase: Phase) -> PhaseTable:
        """Unroll ``phase`` and lay out its calls."""
        ops: list[Op] = []
        ends: list[bool] = []
        for item in phase.items:
            body = item.body if isinstance(item, Repeat) else (item,)
            for _ in range(item.count if isinstance(item, Repeat) else 1):
                ops.extend(body)
                ends.extend([False] * (len(body) - 1) + [isinstance(item, Repeat)])
        coefs = np.zeros((_NF + 2 * _NK, len(ops), len(phase.basis)), dtype=np.int64)
        for j, op in enumerate(ops):
            for f, name in enumerate(_FIELDS):
                _put(coefs, f, j, getattr(op, name))
            for side, table in ((0, op.read), (_NK, op.write)):
                for buffer, c in table.items():
                    _put(coefs, _NF + side + BUFFER_KINDS.index(buffer_kind(buffer)), j, c)
        largest = tuple(sum(map(int, column)) for column in coefs.max(axis=0).T)
        ends_ = np.array(ends, dtype=bool)
        return cls(phase.name, phase.basis, tuple(ops), ends_, coefs, largest, _segments(ops))

    def bind(self, *, kv: int, tokens: int, batch: int = 1) -> Program:
        """Dot product with the basis at one position, then calls as arrays."""
        at = values(self.basis, kv=kv, tokens=tokens, batch=batch)
        if sum(c * v for c, v in zip(self.largest, at, strict=True)) >= 2**62:
            raise TraceError(f"phase '{self.name}': its costs at kv={kv}, tokens={tokens} exceed what can be counted")
        bound: Ints = self.coefs @ np.array(at, dtype=np.int64)
        out: list[CallProgram | CpuWork] = []
        for segment in self.segments:
            if isinstance(segment, int):
                out.append(self._cpu(self.ops[segment], at, bound[:, segment]))
            else:
                out.append(self._call(segment, at, bound[:, segment.low : segment.high]))
        return Program(self.name, kv, tokens, tuple(out))

    def _cpu(self, op: Op, at: list[int], bound: Ints) -> CpuWork:
        elements = {c: _dot(v, at) for c, v in op.vec.items()}
        if bound[3]:
            elements["mac"] = int(bound[3])
        moved = {
            (kind, side == 1): int(bound[_NF + side * _NK + i])
            for side in (0, 1)
            for i, kind in enumerate(BUFFER_KINDS)
            if bound[_NF + side * _NK + i]
        }
        return CpuWork(op.id, op.type, elements, moved, op.tensors)

    def _call(self, t: _Template, at: list[int], bound: Ints) -> CallProgram:
        fields, reads, writes = bound[:_NF], bound[_NF : _NF + _NK], bound[_NF + _NK :]
        read, write = reads.sum(axis=0), writes.sum(axis=0)
        tiles = np.where(read > 0, np.maximum(fields[4], 1), 1)
        keep = ~t.is_write | (write[t.op] > 0)
        item_op, item_write = t.op[keep], t.is_write[keep]
        rep = np.where(item_write, 1, tiles[item_op])
        op, is_write = np.repeat(item_op, rep), np.repeat(item_write, rep)
        begin = np.cumsum(rep) - rep
        place = np.arange(len(op)) - np.repeat(begin, rep)
        pieces = np.repeat(rep, rep)
        n_bytes = np.where(is_write, write[op], _share(read[op], pieces, place))
        cycles = np.where(is_write, 0, _share(fields[0][op], pieces, place))
        first = ~is_write & (place == 0)
        last_tile = np.zeros(len(read), dtype=np.int64)
        last_tile[item_op[~item_write]] = (begin + rep - 1)[~item_write]
        producer = np.where(is_write, last_tile[op], -1)
        end = np.zeros(len(op), dtype=bool)
        end[last_tile] = self.layer_end[t.low : t.high]
        return CallProgram(
            ops=self.ops[t.low : t.high],
            at=tuple(at),
            bytes=n_bytes,
            cycles=cycles,
            is_write=is_write,
            op=op,
            first=first,
            layer_end=end,
            producer=producer,
            fields=fields,
            reads=reads,
            writes=writes,
        )


def _put(coefs: Ints, row: int, op: int, values_: Coefs) -> None:
    if values_:
        coefs[row, op, : len(values_)] += np.array(values_, dtype=np.int64)


def _dot(coefs: Coefs, at: Sequence[int]) -> int:
    return sum(c * v for c, v in zip(coefs, at, strict=False))


def _segments(ops: list[Op]) -> tuple[_Template | int, ...]:
    out: list[_Template | int] = []
    low = 0
    for j, op in enumerate([*ops, None]):
        if op is None or op.unit == "cpu":
            if j > low:
                out.append(_template(ops, low, j))
            if op is not None:
                out.append(j)
            low = j + 1
    return tuple(out)


def _template(ops: list[Op], low: int, high: int) -> _Template:
    """DMA items of ops ``low`` to ``high`` in their fixed order (see the module docstring)."""
    items: list[tuple[int, bool]] = []
    pending: list[int] = []
    for j in range(low, high):
        op = ops[j]
        if any(b in ops[p].write for p in pending for b in op.read):
            items.extend((p - low, True) for p in pending)
            pending.clear()
        items.append((j - low, False))
        if op.read:
            items.extend((p - low, True) for p in pending)
            pending.clear()
        if op.write:
            pending.append(j)
    items.extend((p - low, True) for p in pending)
    return _Template(low, high, np.array([i for i, _ in items]), np.array([w for _, w in items], dtype=bool))
