"""What an op takes on the target core: cycles, issued MACs, DMA tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from bpusim.compiler.costs import Cost, Gemm, VecWork
from bpusim.compiler.dims import Expr, as_expr, windowed
from bpusim.hardware import CoreSpec
from bpusim.hardware.array import fill_drain, tile_cycles
from bpusim.hardware.spec import ActivationType
from bpusim.trace.basis import at_least, evaluator

__all__ = ["TILES_PER_SCRATCHPAD", "Target"]

TILES_PER_SCRATCHPAD = 4
"""The DMA fetches reads in pieces of at most a quarter of the scratchpad: enough to overlap, few to issue."""


LARGEST_TILE = 1 << 20
"""Larger pieces would make the first of a call late and overlap nothing more."""
SMALLEST_SCRATCHPAD = 16 << 10


def _each_of_few(read: Expr) -> int:
    """Bytes for one sequence of what several take of a limited number: experts."""
    few = [t for t in read.terms if t.startswith("min(") and "batch" in t]
    return sum(read.terms[t] * evaluator(["batch", t])((0,), 1)[1] for t in few)


def _packed(elements: Expr, lanes: int) -> Expr:
    """Passes over elements of which each may share one with any other; old and new parts are packed apart."""
    out = as_expr(0)
    for term, c in elements.terms.items():
        if term == "1":
            out += -(-c // lanes)
        else:
            share = gcd(c, lanes)
            out += Expr({term: 1}).ceil_div(lanes // share) * (c // share)
    return out


@dataclass(frozen=True, slots=True)
class Target:
    """A core as the compiler sees it, with the activation type and the chunk that padded costs assume.

    ``batched``: costs are written for any number of sequences, else for one. ``context``: entries of a full cache.
    """

    core: CoreSpec
    activation: ActivationType
    chunk: int
    batched: bool = False
    context: int = 0

    def each(self, cost: Expr) -> Expr:
        """A cost that every sequence of a batch has."""
        return cost.by_sequence() if self.batched else cost

    @property
    def activation_bytes(self) -> int:
        """Bytes of one activation."""
        return 1 if self.activation == "int8" else 2

    def holds(self, weights: int) -> bool:
        """Whether ``weights`` bytes stay on chip through a recurrence: in half the scratchpad, the other streams."""
        return weights <= self.core.scratchpad // 2

    def array(self, gemms: list[Gemm]) -> tuple[Expr, Expr]:
        """(cycles, issued MACs) of GEMMs run one after another.

        Small groups (depthwise convolutions) share a tile block-diagonally, as many as fit its rows and columns.
        """
        cycles, issued = as_expr(0), as_expr(0)
        mac = self.core.mac
        for g in gemms:
            k_row = mac.cycles_per_row("int8" if g.narrow and "int8" in mac.rate else self.activation)
            m, k, n = (e.padded(self.chunk) for e in (g.m, g.k, g.n))
            tiles = k.ceil_div(mac.rows) * n.ceil_div(mac.cols) * g.groups
            if g.groups > 1 and g.turns == 1 and k.is_const and n.is_const:
                together = max(1, min(mac.rows // int(k) if int(k) else 1, mac.cols // int(n) if int(n) else 1))
                if together > 1:
                    tiles = as_expr(-(-g.groups // together))
            once = as_expr(fill_drain(mac.rows, mac.cols) * g.turns)
            if self.batched and g.stored and tiles.is_const:  # a tile is loaded once for the rows of all
                load = tile_cycles(0, k_row, mac.rows, mac.load_rows_per_cycle)
                factor, term = at_least(int(m) * k_row, load)
                cycles += Expr({term: int(tiles) * factor}) + once
            else:
                work = tiles * tile_cycles(int(m), k_row, mac.rows, mac.load_rows_per_cycle)
                cycles += self.each(work + once)
            issued += self.each(tiles * int(m) * mac.rows * mac.cols)
        return cycles, issued

    def vector(self, work: list[VecWork]) -> tuple[Expr, dict[str, Expr]]:
        """(cycles, operations by class): ``lanes`` elements a pass; a row whose length grows is padded by itself."""
        cycles = as_expr(0)
        operations: dict[str, Expr] = {}
        unit = self.core.vector
        for w in work:
            rows, length = w.rows.padded(self.chunk), w.length.padded(self.chunk)
            total = rows * length
            loose = total.is_const or length == 1
            passes = _packed(total, unit.lanes) if loose else rows * length.ceil_div(unit.lanes)
            cycles += self.each(passes * sum(n * unit.cost(c) for c, n in w.per.items()))
            for c, n in w.per.items():
                operations[c] = operations.get(c, as_expr(0)) + self.each(total * n)
        return cycles, operations

    def compute(self, cost: Cost) -> tuple[Expr, Expr, Expr, dict[str, Expr]]:
        """(cycles, array cycles, issued MACs, vector operations): parts add up unless fused, then the longer counts."""
        trailing = self._trailing(cost) if cost.fused and self.batched else None
        if trailing is not None:
            return trailing
        if cost.fused and self.batched:  # the longer of two sums over a batch is in no list of terms: one by one
            one = replace(self, batched=False).compute(cost)
            return (*(e.by_sequence() for e in one[:3]), {c: e.by_sequence() for c, e in one[3].items()})  # type: ignore[return-value]
        mac_cycles, issued = self.array(cost.gemms)
        vec_cycles, operations = self.vector(cost.vec)
        if cost.fused and mac_cycles.is_const and vec_cycles.is_const:
            return as_expr(max(int(mac_cycles), int(vec_cycles))), mac_cycles, issued, operations
        return mac_cycles + vec_cycles, mac_cycles, issued, operations

    def _trailing(self, cost: Cost) -> tuple[Expr, Expr, Expr, dict[str, Expr]] | None:
        """The same of vector work that follows the results of one stored product, for a batch; None of others.

        A tile of weights stays ``max(rows of all, load)``. The work begins with the first results, so that fill and
        drain come on top of the longer of both. ``max(batch * max(array, vector), load)`` of all tiles is in the closed
        list and exact where the vector work of a sequence is no longer than the array's on its rows; where it is longer
        it is at most the fill and drain above the longer of the two.
        """
        mac_cycles, issued = self.array(cost.gemms)
        vec_cycles, operations = self.vector(cost.vec)
        if len(cost.gemms) != 1 or not cost.gemms[0].stored or set(vec_cycles.terms) - {"batch"}:
            return None
        g, mac = cost.gemms[0], self.core.mac
        k_row = mac.cycles_per_row("int8" if g.narrow and "int8" in mac.rate else self.activation)
        m, k, n = (e.padded(self.chunk) for e in (g.m, g.k, g.n))
        tiles = k.ceil_div(mac.rows) * n.ceil_div(mac.cols) * g.groups
        if not (tiles.is_const and m.is_const):
            return None
        load = tile_cycles(0, k_row, mac.rows, mac.load_rows_per_cycle)
        longer = max(int(tiles) * int(m) * k_row, vec_cycles.terms.get("batch", 0))
        factor, term = at_least(longer, int(tiles) * load)
        cycles = Expr({term: factor}) + fill_drain(mac.rows, mac.cols) * g.turns
        return cycles, mac_cycles, issued, operations

    def tiles(self, read: Expr) -> Expr:
        """DMA tiles for ``read`` bytes: its fixed part, that of each sequence and what grows with the cache are cut
        apart."""
        piece = min(self.core.scratchpad // TILES_PER_SCRATCHPAD, LARGEST_TILE)
        own = read.terms.get("batch", 0) + _each_of_few(read)
        fixed, each = (-(-n // piece) for n in (read.terms.get("1", 0) + own, own))
        tiles = Expr({"1": max(fixed, 1) - each, "batch": each})
        for term, grows in read.terms.items():
            past = term.removeprefix("batch*") if self.batched else term
            if past == "kv" or windowed(past):
                tiles += self.each(Expr({f"ceil({past}/{max(piece // grows, 1)})": 1}))
        return tiles
