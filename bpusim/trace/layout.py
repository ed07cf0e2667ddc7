"""How a run of ops lies before the DMA: its items in their fixed order, whatever the position.

**DMA order** is fixed at compile time and follows from the ops alone: reads in program order, by tiles; the write of an
op sits behind the reads of the next op that reads anything (its output is double-buffered), but before any read of what
it wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bpusim.ports import BUFFER_KINDS
from bpusim.trace.basis import Basis
from bpusim.trace.model import Coefs, Op, buffer_kind

if TYPE_CHECKING:
    from bpusim.arrays import Bools, Ints

__all__ = [
    "FIELDS",
    "MOVED",
    "READS",
    "WRITES",
    "CallItems",
    "CallLayout",
    "Tiling",
    "coefficients",
    "lay_out",
    "lay_out_call",
]

FIELDS = ("cycles", "mac_cycles", "macs", "issued", "tiles")
_NF = len(FIELDS)
_NK = len(BUFFER_KINDS)
_TILES = FIELDS.index("tiles")
READS, WRITES, MOVED = slice(_NF, _NF + _NK), slice(_NF + _NK, None), slice(_NF, None)
"""Where bytes by buffer kind stand among the fields."""


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
        return bound[READS].sum(axis=0), bound[WRITES].sum(axis=0)

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
        read = self.coefs[READS][:, op[~is_write & (tiling.place[part] == 0)]].sum(axis=(0, 1))
        written = self.coefs[WRITES][:, op[is_write]].sum(axis=(0, 1))
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


def lay_out_call(ops: tuple[Op, ...], ends: Bools, terms: int, basis: Basis) -> CallLayout:
    """The same from the ops alone. ``ends``: the ops that end a repeated layer; ``terms``: length of the basis."""
    return lay_out(ops, ends, coefficients(ops, terms), basis)


def lay_out(ops: tuple[Op, ...], ends: Bools, coefs: Ints, basis: Basis) -> CallLayout:
    """A run of BPU ops as a call, from its coefficients (fields x ops x basis)."""
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


def coefficients(ops: Sequence[Op], terms: int) -> Ints:
    """Fields x ops x basis."""
    # NOTE: for speed. Passes of a repeated layer are the same few objects: each is laid out once.
    distinct = {id(op): op for op in ops}
    coefs = np.zeros((_NF + 2 * _NK, len(distinct), terms), dtype=np.int64)
    for j, op in enumerate(distinct.values()):
        for f, name in enumerate(FIELDS):
            _put(coefs, f, j, getattr(op, name))
        for side, table in ((0, op.read), (_NK, op.write)):
            for buffer, c in table.items():
                _put(coefs, _NF + side + BUFFER_KINDS.index(buffer_kind(buffer)), j, c)
    at = {key: j for j, key in enumerate(distinct)}
    return coefs[:, [at[id(op)] for op in ops]]


def _put(coefs: Ints, row: int, op: int, values_: Coefs) -> None:
    if values_:
        coefs[row, op, : len(values_)] += np.array(values_, dtype=np.int64)


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


def _share(total: Ints, pieces: Ints, place: Ints) -> Ints:
    """Piece number ``place`` of ``total`` cut into ``pieces`` as evenly as integers allow."""
    return total * (place + 1) // pieces - total * place // pieces
