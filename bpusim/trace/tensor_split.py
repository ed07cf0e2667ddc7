"""A trace whose ops several cores work on together: shares of each op, and the barriers between them.

Of a splittable op core ``k`` of ``n`` has ``c*(k+1)//n - c*k//n`` of each coefficient ``c`` of cycles, MACs, weights,
cache and writes: shares sum to the whole. A layer's input is read in full by each core, what works element by element
reads its elements. An op that is not split runs on the first core.

**Barriers** stand where an op needs what is spread over cores. The trace does not say which op reads which, so the rule
goes by program order: between ops that are split and ops that are not; before a convolution that follows one, since it
reads all channels; around a split normalisation or reduction; and behind a linear layer that is split by rows, because
the one before it was split by columns (Megatron-LM, arXiv 1909.08053, section 3). Linear layers with nothing but a bias
between them are taken to read the same input (q, k, v; gate, up) and are all split by columns.

**Exchange.** Scratchpads are private: what is live on chip across a barrier goes through DRAM. The trace does not say
how much of it the other side needs, so it is all of it: the lesser ``scratch`` of the ops on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from bpusim.trace.basis import evaluator
from bpusim.trace.layout import CallLayout, lay_out_call
from bpusim.trace.model import Coefs, Op, Phase, Trace, buffer_kind
from bpusim.trace.program import CallProgram, Program

if TYPE_CHECKING:
    from bpusim.arrays import Bools

__all__ = ["Group", "TeamCall", "TensorSplit", "base_type", "grouped"]

EXCHANGE = "spill:exchange"
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "DeformConv"})
"""They read all channels of what comes before them."""
_OVER_ROWS = ("Softmax", "LRN", "Reduce", "Arg", "TopK")
"""They need the whole of a row, and so does what follows them. So do normalisations but that of a batch."""

_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear"})

_State = Literal["whole", "channels", "columns", "inner"]
"""What the next op finds: a whole tensor, one split by channels or by the columns of a linear layer, or what has been
made of such columns."""
_SERIAL: tuple[_State, bool] = ("whole", False)


class Group(NamedTuple):
    """Ops ``start`` to ``stop`` of a call, between two barriers."""

    start: int
    stop: int
    split: bool


class TeamCall(CallProgram):
    """A call for several cores. ``groups``: between two barriers what each core has to do, None for nothing."""

    __slots__ = ("groups",)

    def __init__(self, whole: CallProgram, groups: Sequence[Sequence[CallLayout | None]]) -> None:
        super().__init__(whole.layout, whole.at, whole.position)
        bound: dict[int, CallProgram] = {}

        def part(layout: CallLayout | None) -> CallProgram | None:
            if layout is None:
                return None
            if id(layout) not in bound:
                bound[id(layout)] = CallProgram(layout, self.at, self.position)
            return bound[id(layout)]

        self.groups = tuple(tuple(part(layout) for layout in group) for group in groups)

    @property
    def moved_by_all(self) -> int:
        """Bytes that all cores move together: those of the call, inputs read by each of them, and the exchange."""
        return sum(p.bytes for group in self.groups for p in group if p is not None)


class TensorSplit:
    """A trace spread over ``n`` cores. ``unsplit``: op types that stay on the first one,
    fused ones by their first or by all; ``piece``: most bytes that the
    DMA fetches at a time of what is exchanged."""

    def __init__(self, trace: Trace, n: int, unsplit: Set[str], piece: int) -> None:
        self.trace, self.n, self.unsplit, self.piece = trace, n, unsplit, piece
        self._calls: dict[str, list[tuple[tuple[CallLayout | None, ...], ...]]] = {}
        self._shares: dict[tuple[int, int, Coefs, Coefs], Op] = {}
        self._layouts: dict[tuple[tuple[int, ...], bytes], CallLayout] = {}

    def of(self, trace: Trace) -> TensorSplit:
        """Another trace spread in the same way."""
        return TensorSplit(trace, self.n, self.unsplit, self.piece)

    def bind(self, phase: str, *, kv: int | tuple[int, ...] = 0, tokens: int = 1) -> Program:
        """The phase at one position, as :meth:`bpusim.trace.Trace.bind`; its calls are :class:`TeamCall`."""
        whole = self.trace.bind(phase, kv=kv, tokens=tokens)
        if phase not in self._calls:
            at = self.trace.phase(phase)
            self._calls[phase] = [self._call(at, s.layout) for s in whole.calls]
        groups = iter(self._calls[phase])
        return replace(
            whole,
            segments=tuple(TeamCall(s, next(groups)) if isinstance(s, CallProgram) else s for s in whole.segments),
        )

    def splits(self, op: Op) -> bool:
        """Whether all cores work on ``op``."""
        return _splits(op, self.unsplit)

    def _call(self, phase: Phase, call: CallLayout) -> tuple[tuple[CallLayout | None, ...], ...]:
        groups = grouped(call.ops, self.unsplit)
        out: list[tuple[CallLayout | None, ...]] = []
        for g, group in enumerate(groups):
            before = groups[g - 1] if g else None
            behind = groups[g + 1] if g + 1 < len(groups) else None
            row = []
            for k in range(self.n if group.split else 1):
                taken = _taken(call.ops, before, group, k, self.n)
                given = _given(call.ops, group, behind, k, self.n)
                row.append(self._layout(phase, call, group, k, taken, given))
            out.append((*row, *(None for _ in range(self.n - len(row)))))
        return tuple(out)

    def _layout(self, phase: Phase, call: CallLayout, group: Group, k: int, taken: Coefs, given: Coefs) -> CallLayout:
        """Layers that are alike have the same."""
        ops = []
        for j in range(group.start, group.stop):
            of = (taken if j == group.start else (), given if j == group.stop - 1 else ())
            ops.append(self._share(call.ops[j], k, *of))
        ends: Bools = call.layer_end[group.start : group.stop]
        key = tuple(map(id, ops)), ends.tobytes()
        if key not in self._layouts:
            basis = evaluator(phase.basis)
            self._layouts[key] = lay_out_call(tuple(ops), np.array(ends), len(phase.basis), basis)
        return self._layouts[key]

    def _share(self, op: Op, k: int, taken: Coefs, given: Coefs) -> Op:
        key = id(op), k, taken, given
        if key not in self._shares:
            part = _share(op, k, self.n) if self.splits(op) else op
            if any(taken):
                fetched = tuple(-(-c // self.piece) for c in taken)
                part = replace(part, read={EXCHANGE: taken, **part.read}, tiles=_sum(part.tiles, fetched))
            if any(given):
                part = replace(part, write={**part.write, EXCHANGE: given})
            self._shares[key] = part
        return self._shares[key]


def grouped(ops: Sequence[Op], unsplit: Set[str]) -> list[Group]:
    """Ops of a call by the barriers between them (see the module)."""
    cuts, behind = [0], False
    state: _State = "whole"
    for j, op in enumerate(ops):
        split = _splits(op, unsplit)
        changes = j > 0 and split != _splits(ops[j - 1], unsplit)
        if j and (behind or changes or (split and state != "whole" and _needs_whole(op, state))):
            cuts.append(j)
            state = "whole"
        state, behind = _after(op, state) if split else _SERIAL
    return [Group(i, j, _splits(ops[i], unsplit)) for i, j in zip(cuts, [*cuts[1:], len(ops)], strict=True)]


def _needs_whole(op: Op, state: str) -> bool:
    return base_type(op) in _CONVOLUTIONS or _over_rows(op) or (_linear(op) and state == "channels")


def _after(op: Op, state: str) -> tuple[_State, bool]:
    """(what a split op leaves to the next one, whether a barrier has to stand behind it)."""
    if base_type(op) in _CONVOLUTIONS:
        return "channels", False
    if _over_rows(op):
        return "inner", True
    if _linear(op):
        return "inner" if _activated(op) else "columns", state == "inner"
    if state == "channels" or (state == "columns" and op.unit == "vector" and _has_weights(op)):
        return ("channels" if state == "channels" else "columns"), False
    return "inner", False


def _splits(op: Op, unsplit: Set[str]) -> bool:
    return op.unit in ("mac", "vector") and unsplit.isdisjoint((op.type, *_kinds(op)))


def base_type(op: Op) -> str:
    """Its type without what is fused into it: ``Conv`` of ``Conv+BatchNormalization+Relu``."""
    return op.type.partition("+")[0]


def _kinds(op: Op) -> list[str]:
    """What it is: its base type, and on the vector unit all that is fused into one (a sum and its normalisation)."""
    return op.type.split("+") if op.unit == "vector" else [base_type(op)]


def _activated(op: Op) -> bool:
    """Whether more than conversions is fused into a linear layer: its columns are made into something else."""
    return not _CONVERSIONS.issuperset(op.type.split("+")[1:])


def _over_rows(op: Op) -> bool:
    return any(
        kind.startswith(_OVER_ROWS) or (kind.endswith("Normalization") and kind != "BatchNormalization")
        for kind in _kinds(op)
    )


def _has_weights(op: Op) -> bool:
    return any(buffer_kind(b) == "weights" for b in op.read)


def _linear(op: Op) -> bool:
    return op.unit == "mac" and _has_weights(op)


def _part(coefs: Coefs, k: int, n: int) -> Coefs:
    return tuple(c * (k + 1) // n - c * k // n for c in coefs)


def _sum(a: Coefs, b: Coefs) -> Coefs:
    short, long = sorted((a, b), key=len)
    return tuple(c + (short[i] if i < len(short) else 0) for i, c in enumerate(long))


def _less(a: Coefs, b: Coefs) -> Coefs:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _share(op: Op, k: int, n: int) -> Op:
    """Core ``k``'s part of ``op``. Tiles are as long as they were, or shorter."""
    in_full = {b for b in op.read if op.unit == "mac" and buffer_kind(b) in ("spill", "io")}

    def parts(table: Mapping[str, Coefs]) -> dict[str, Coefs]:
        return {b: c if b in in_full else _part(c, k, n) for b, c in table.items()}

    return replace(
        op,
        macs=_part(op.macs, k, n), issued=_part(op.issued, k, n), cycles=_part(op.cycles, k, n),
        mac_cycles=_part(op.mac_cycles, k, n), vec={c: _part(v, k, n) for c, v in op.vec.items()},
        read=parts(op.read), write={b: _part(c, k, n) for b, c in op.write.items()},
        tiles=op.tiles if in_full else tuple(-(-c // n) for c in op.tiles),
    )  # fmt: skip


def _live(ops: Sequence[Op], barrier: int) -> Coefs:
    """Bytes on chip across a barrier, at most: they live while the op before it runs, and while that behind it does."""
    one, other = ops[barrier - 1].scratch, ops[barrier].scratch
    return tuple(map(min, one, other))


def _given(ops: Sequence[Op], group: Group, behind: Group | None, k: int, n: int) -> Coefs:
    """Bytes that core ``k`` writes for the others at the end of ``group``."""
    if behind is None:
        return ()
    live = _live(ops, group.stop)
    if not group.split:
        return live
    return _part(live, k, n) if behind.split or k else ()


def _taken(ops: Sequence[Op], before: Group | None, group: Group, k: int, n: int) -> Coefs:
    """Bytes that core ``k`` reads of the others' at the start of ``group``."""
    if before is None:
        return ()
    live = _live(ops, group.start)
    if not before.split:
        return live if k else ()
    return _less(live, _part(live, k, n))
