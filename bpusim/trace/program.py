"""A phase bound to a position: the calls and CPU ops it consists of, as arrays.

**DMA order** is fixed at compile time and follows from the ops alone: reads in program order, by tiles; the write of an
op sits behind the reads of the next op that reads anything (its output is double-buffered), but before any read of what
it wrote. A *call* is a run of BPU ops between two CPU ops: the unit that the runtime dispatches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from bpusim.errors import TraceError
from bpusim.ports import BUFFER_KINDS, MOVES, BufferKind, Transfer
from bpusim.trace.basis import Basis, evaluator
from bpusim.trace.model import Coefs, Op, Phase, Repeat, buffer_kind

if TYPE_CHECKING:
    from bpusim.arrays import Bools, Ints

__all__ = [
    "CallItems",
    "CallLayout",
    "CallProgram",
    "CpuWork",
    "ItemRange",
    "PhaseTable",
    "Program",
    "Tiling",
    "lay_out_call",
]

_FIELDS = ("cycles", "mac_cycles", "macs", "issued", "tiles")
_NF = len(_FIELDS)
_NK = len(BUFFER_KINDS)
_TILES, _READS, _WRITES = _FIELDS.index("tiles"), slice(_NF, _NF + _NK), slice(_NF + _NK, None)


@dataclass(frozen=True, slots=True, eq=False)
class CallItems:
    """A call's DMA items in their fixed order, each a tile of reads or the write of an op, as arrays.

    ``bytes``; ``cycles`` of the tile (0 for a write); ``is_write``; ``op`` (index into ``ops``); ``first`` (first tile
    of its op); ``layer_end`` (last tile of a repeated layer); ``producer`` (for a write, the item of the last tile of
    its op, else -1).
    """

    ops: tuple[Op, ...]
    bytes: Ints
    cycles: Ints
    is_write: Bools
    op: Ints
    first: Bools
    layer_end: Bools
    producer: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Tiling:
    """Items of a layout with so many tiles an op: which op, which ``place`` of how many ``pieces``; ``last`` by op."""

    op: Ints
    is_write: Bools
    place: Ints
    pieces: Ints
    last: Ints


@dataclass(frozen=True, slots=True, eq=False)
class CallLayout:
    """The part of a call that does not depend on the position.

    ``op`` and ``is_write`` list its DMA items by op, before tiling. ``coefs``: fields x ops x basis, the fields being
    cycles, MAC cycles, MACs, issued MACs, tiles, and bytes read and written by buffer kind. ``sums``: over all ops.
    """

    ops: tuple[Op, ...]
    op: Ints
    is_write: Bools
    layer_end: Bools
    coefs: Ints
    sums: Ints
    basis: Basis
    """Values of the phase's basis at a position."""
    layers: int
    """Repeated layers that end in it."""
    caches: int
    """Ops that write the KV cache: their addresses are the host's to prepare."""
    tensors: int
    """Tensors that pass between host and core: they are the host's to allocate."""

    def moved(self, bound: Ints) -> tuple[Ints, Ints]:
        """Bytes read and written by op. ``bound``: fields x ops at a position."""
        return bound[_READS].sum(axis=0), bound[_WRITES].sum(axis=0)

    def tiling(self, bound: Ints) -> Tiling:
        """Items by tile. ``bound``: fields x ops at a position."""
        read, write = self.moved(bound)
        tiles = np.where(read > 0, np.maximum(bound[_TILES], 1), 1)
        keep = ~self.is_write | (write[self.op] > 0)
        item_op, item_write = self.op[keep], self.is_write[keep]
        rep = np.where(item_write, 1, tiles[item_op])
        begin = np.cumsum(rep) - rep
        op = np.repeat(item_op, rep)
        last = np.zeros(len(read), dtype=np.int64)
        last[item_op[~item_write]] = (begin + rep - 1)[~item_write]
        place = np.arange(len(op)) - np.repeat(begin, rep)
        return Tiling(op, np.repeat(item_write, rep), place, np.repeat(rep, rep), last)

    def transferred(self, tiling: Tiling, start: int, stop: int) -> tuple[int, ...]:
        """Bytes over the basis of items ``start`` to ``stop``, all tiles of an op among them or none."""
        part = slice(start, stop)
        op, is_write = tiling.op[part], tiling.is_write[part]
        read = self.coefs[_READS][:, op[~is_write & (tiling.place[part] == 0)]].sum(axis=(0, 1))
        written = self.coefs[_WRITES][:, op[is_write]].sum(axis=(0, 1))
        return tuple((read + written).tolist())

    def items(self, bound: Ints, tiling: Tiling | None = None) -> CallItems:
        """All items at a position."""
        t = tiling or self.tiling(bound)
        read, write = self.moved(bound)
        end = np.zeros(len(t.op), dtype=bool)
        end[t.last] = self.layer_end
        return CallItems(
            ops=self.ops,
            bytes=np.where(t.is_write, write[t.op], _share(read[t.op], t.pieces, t.place)),
            cycles=np.where(t.is_write, 0, _share(bound[0][t.op], t.pieces, t.place)),
            is_write=t.is_write,
            op=t.op,
            first=~t.is_write & (t.place == 0),
            layer_end=end,
            producer=np.where(t.is_write, t.last[t.op], -1),
        )


class CallProgram:
    """One call at a position: a run of BPU ops. Its sums are dot products; its items are made only for who asks."""

    __slots__ = ("_bound", "_items", "_tiling", "at", "bytes", "layout", "mix", "ops", "position", "sums")

    def __init__(self, layout: CallLayout, at: tuple[int, ...], position: tuple[tuple[int, ...], int]) -> None:
        self.layout = layout
        self.ops = layout.ops
        """Ops in program order, repeats unrolled."""
        self.at = at
        """Values of the phase's basis here."""
        self.position = position
        """(``kv`` of each sequence, tokens)."""
        self.sums: list[int] = layout.sums.dot(at).tolist()
        """Fields over all ops."""
        written = sum(self.sums[_WRITES])
        self.bytes: int = written + sum(self.sums[_READS])
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
        return self.fields[_READS]

    @property
    def writes(self) -> Ints:
        """Bytes written, buffer kind x op."""
        return self.fields[_WRITES]

    def written(self, kind: BufferKind) -> int:
        """Bytes of a buffer kind that it writes."""
        return self.sums[_NF + _NK + BUFFER_KINDS.index(kind)]

    def buffers(self, op: int, write: bool) -> Iterator[tuple[str, int]]:
        """Buffers that op number ``op`` reads (or writes), with their bytes here."""
        table = self.ops[op].write if write else self.ops[op].read
        return ((buffer, _dot(coefs, self.at)) for buffer, coefs in table.items())

    @property
    def overheads(self) -> tuple[int, int]:
        """(ops that begin in it, repeated layers that end in it): the array stands still for each."""
        return len(self.ops), self.layout.layers

    @property
    def lasts(self) -> Ints:
        """Of each op, the item of its last tile."""
        return self.tiling.last

    def transfers(self, start: int, stop: int) -> ItemRange:
        """Items ``start`` to ``stop`` as one transfer list."""
        return ItemRange(self, start, stop, int(self.items.bytes[start:stop].sum()))

    @property
    def moves(self) -> list[int]:
        """DRAM bytes of the whole call in the order of ``MOVES``."""
        return self.sums[_NF:]

    def moved(self) -> dict[tuple[BufferKind, bool], int]:
        """The same by (buffer kind, is a write); kinds that move nothing are left out."""
        return {key: n for key, n in zip(MOVES, self.moves, strict=True) if n}


def _share(total: Ints, pieces: Ints, place: Ints) -> Ints:
    """Piece number ``place`` of ``total`` cut into ``pieces`` as evenly as integers allow."""
    return total * (place + 1) // pieces - total * place // pieces


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


@dataclass(slots=True)
class PhaseTable:
    """A phase unrolled: its calls and CPU ops, with coefficients over the basis."""

    name: str
    basis: Basis
    largest: tuple[int, ...]
    """Per term of the basis, the sum over all ops of an op's largest coefficient: nothing bound exceeds it."""
    most: int
    """Sequences whose activations fit on chip together."""
    segments: tuple[CallLayout | _CpuOp, ...]

    @classmethod
    def build(cls, phase: Phase, capacity: int | None = None) -> PhaseTable:
        """Unroll ``phase`` and lay out its calls. ``capacity``: bytes of activations that fit on chip."""
        ops: list[Op] = []
        ends: list[bool] = []
        for item in phase.items:
            body = item.body if isinstance(item, Repeat) else (item,)
            for _ in range(item.count if isinstance(item, Repeat) else 1):
                ops.extend(body)
                ends.extend([False] * (len(body) - 1) + [isinstance(item, Repeat)])
        coefs = _table(ops, len(phase.basis))
        scratch = np.zeros((len(ops), len(phase.basis)), dtype=np.int64)
        for j, op in enumerate(ops):
            scratch[j, : len(op.scratch)] = op.scratch
        largest = tuple(sum(map(int, column)) for column in coefs.max(axis=0).T)
        basis = evaluator(phase.basis)
        return cls(
            phase.name,
            basis,
            largest,
            _most(scratch, basis, capacity),
            tuple(_segments(ops, np.array(ends, dtype=bool), coefs, basis)),
        )

    def bind(self, kvs: tuple[int, ...], tokens: int) -> Program:
        """The phase at one position, for one sequence or several. Raises :class:`TraceError`."""
        if len(kvs) > self.most:
            what = f"phase '{self.name}': the activations of {len(kvs)} sequences do not fit on chip together"
            raise TraceError(what, do=f"take {self.most} at a time" if self.most else "take a core that holds one")
        try:
            at = self.basis(kvs, tokens)
        except ValueError as e:
            raise TraceError(f"phase '{self.name}': {e}", do="compile the model again") from None
        if sum(map(mul, self.largest, at)) >= 2**62:
            where = f"kv={max(kvs)}, tokens={tokens}"
            raise TraceError(f"phase '{self.name}': its costs at {where} exceed what can be counted")
        position = (kvs, tokens)
        return Program(
            self.name,
            kvs,
            tokens,
            tuple([CallProgram(s, at, position) if isinstance(s, CallLayout) else s.bind(at) for s in self.segments]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _CpuOp:
    """A CPU op with its coefficients (fields x basis)."""

    op: Op
    coefs: Ints

    def bind(self, at: tuple[int, ...]) -> CpuWork:
        """The op at a position."""
        bound = (self.coefs @ np.array(at)).tolist()
        elements = {c: _dot(v, at) for c, v in self.op.vec.items()}
        if bound[3]:
            elements["mac"] = bound[3]
        moved = {key: n for key, n in zip(MOVES, bound[_NF:], strict=True) if n}
        return CpuWork(self.op.id, self.op.type, elements, moved, self.op.tensors, bound[0])


def _most(scratch: Ints, basis: Basis, capacity: int | None) -> int:
    """Sequences that fit into ``capacity``; one was placed by the compiler."""
    try:
        one, two = (scratch @ np.array(basis((0,) * n, 1)) for n in (1, 2))
    except ValueError:  # costs of one sequence; who binds more is told
        return sys.maxsize
    each = two - one
    if capacity is None or not each.any():
        return sys.maxsize
    return int(((capacity - one[each > 0]) // each[each > 0]).min()) + 1


def _put(coefs: Ints, row: int, op: int, values_: Coefs) -> None:
    if values_:
        coefs[row, op, : len(values_)] += np.array(values_, dtype=np.int64)


def _dot(coefs: Coefs, at: Sequence[int]) -> int:
    return sum(c * v for c, v in zip(coefs, at, strict=False))


def _table(ops: Sequence[Op], terms: int) -> Ints:
    """Fields x ops x basis."""
    coefs = np.zeros((_NF + 2 * _NK, len(ops), terms), dtype=np.int64)
    for j, op in enumerate(ops):
        for f, name in enumerate(_FIELDS):
            _put(coefs, f, j, getattr(op, name))
        for side, table in ((0, op.read), (_NK, op.write)):
            for buffer, c in table.items():
                _put(coefs, _NF + side + BUFFER_KINDS.index(buffer_kind(buffer)), j, c)
    return coefs


def lay_out_call(ops: tuple[Op, ...], ends: Bools, terms: int, basis: Basis) -> CallLayout:
    """A run of BPU ops as a call. ``ends``: the ops that end a repeated layer; ``terms``: length of the basis."""
    return _laid_out(ops, ends, _table(ops, terms), basis)


def _laid_out(ops: tuple[Op, ...], ends: Bools, coefs: Ints, basis: Basis) -> CallLayout:
    order = _order(ops)
    return CallLayout(
        ops=ops,
        op=np.array([i for i, _ in order]),
        is_write=np.array([w for _, w in order], dtype=bool),
        layer_end=ends,
        coefs=coefs,
        sums=coefs.sum(axis=1),
        basis=basis,
        layers=int(np.count_nonzero(ends)),
        caches=sum("kv" in o.write for o in ops),
        tensors=sum(b.startswith("io:") for o in ops for b in (*o.read, *o.write)),
    )


def _segments(ops: list[Op], ends: Bools, coefs: Ints, basis: Basis) -> Iterator[CallLayout | _CpuOp]:
    low = 0
    for j, op in enumerate([*ops, None]):
        if op is None or op.unit == "cpu":
            if j > low:
                yield _laid_out(tuple(ops[low:j]), ends[low:j], coefs[:, low:j], basis)
            if op is not None:
                yield _CpuOp(op, coefs[:, j])
            low = j + 1


def _order(ops: Sequence[Op]) -> list[tuple[int, bool]]:
    """(op, is a write) of the DMA items in their fixed order (see the module docstring)."""
    items: list[tuple[int, bool]] = []
    pending: list[int] = []
    for j, op in enumerate(ops):
        if any(b in ops[p].write for p in pending for b in op.read):
            items.extend((p, True) for p in pending)
            pending.clear()
        items.append((j, False))
        if op.read:
            items.extend((p, True) for p in pending)
            pending.clear()
        if op.write:
            pending.append(j)
    return items + [(p, True) for p in pending]
