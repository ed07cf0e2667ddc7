"""Costed ops become a phase of the trace: one basis, repeated layers folded, names that stand for all layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bpusim.compiler.analyse import Draft
from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.placement import Placement
from bpusim.compiler.repeats import find_repeats
from bpusim.trace.model import Coefs, Op, Phase, Repeat, Unit

__all__ = ["RawOp", "fold_phase"]

_TERMS = ("1", "tokens", "kv", "tokens*kv", "tokens^2")


@dataclass(slots=True)
class RawOp:
    """An op with costs as expressions, before the basis is known and layers are folded."""

    id: str
    draft: Draft
    macs: Expr
    cycles: Expr
    mac_cycles: Expr
    issued: Expr
    vec: dict[str, Expr]
    read: dict[str, Expr]
    write: dict[str, Expr]
    tiles: Expr
    scratch: int
    tensors: int

    @property
    def unit(self) -> Unit:
        """What executes it."""
        if self.draft.cpu:
            return "cpu"
        return "mac" if self.draft.cost.gemms else "vector" if self.draft.cost.vec else "dma"

    def exprs(self) -> list[Expr]:
        """All its costs, for whoever looks for the terms in them."""
        return [
            self.macs,
            self.cycles,
            self.mac_cycles,
            self.issued,
            self.tiles,
            *self.vec.values(),
            *self.read.values(),
            *self.write.values(),
        ]


def fold_phase(name: str, ops: list[RawOp], place: Placement, tokens: int) -> tuple[Phase, dict[str, list[str]]]:
    """(the phase with repeated layers folded, the stored tensors behind each weight's name in it)."""
    makers = {o: j for j, op in enumerate(ops) for o in op.draft.outputs}
    shared = _use_counts(ops)
    signatures = [_signature(op, makers, shared) for op in ops]
    basis = _basis(ops, [place.carry(s + p)[0] for s, p, _ in find_repeats(signatures)])
    instances: dict[str, list[str]] = {}
    items: list[Op | Repeat] = []
    seen: dict[str, int] = {}
    at = 0
    for start, period, count in [*find_repeats(signatures), (len(ops), 0, 0)]:
        items.extend(_op(ops[j : j + 1], basis, instances, seen, ops, makers) for j in range(at, start))
        if count:
            body = [
                _op(ops[start + b : start + period * count : period], basis, instances, seen, ops, makers)
                for b in range(period)
            ]
            carry, tensors = place.carry(start + period)
            label = "layers" if period > 1 else body[0].id
            items.append(Repeat(count, label, tuple(body), carry.coefs(basis), tensors))
        at = start + period * count
    return Phase(name, tokens, basis, tuple(items)), instances


def _use_counts(ops: list[RawOp]) -> dict[str, int]:
    out: dict[str, int] = {}
    for op in ops:
        for use, _ in op.draft.cost.weights:
            out[use.tensor] = out.get(use.tensor, 0) + 1
    return out


def _signature(op: RawOp, makers: dict[str, int], shared: dict[str, int]) -> tuple[object, ...]:
    """Equal for ops that cost the same and move the same bytes of the same kinds of buffers.

    Who made a spilled tensor is left out: the first layer reads the embedding where the others read their predecessor.
    """

    def key(buffer: str) -> object:
        head, _, rest = buffer.partition(":")
        if head == "w":
            return ("w", rest if shared[rest] > 1 else "")
        return (head, rest in makers or rest)

    def side(table: dict[str, Expr]) -> tuple[object, ...]:
        return tuple((key(b), e) for b, e in table.items())

    return (
        op.draft.type,
        op.unit,
        op.macs,
        op.cycles,
        op.mac_cycles,
        op.issued,
        tuple(op.vec.items()),
        side(op.read),
        side(op.write),
        op.tiles,
        op.tensors,
    )


def _basis(ops: list[RawOp], extra: list[Expr]) -> tuple[str, ...]:
    used = {t for op in ops for e in op.exprs() for t in e.terms} | {t for e in extra for t in e.terms}
    ceil = sorted((t for t in used if t not in _TERMS), key=lambda t: int(re.findall(r"\d+", t)[0]))
    return ("1", *(t for t in _TERMS[1:] if t in used), *ceil)


def _op(
    passes: Sequence[RawOp],
    basis: tuple[str, ...],
    instances: dict[str, list[str]],
    seen: dict[str, int],
    ops: list[RawOp],
    makers: dict[str, int],
) -> Op:
    """One op line for one or more passes of a repeat; the second pass tells how passes are wired to each other."""
    op, wired = passes[0], passes[min(1, len(passes) - 1)]
    seen[op.id] = seen.get(op.id, 0) + 1
    ident = op.id if seen[op.id] == 1 else f"{op.id}#{seen[op.id]}"

    def rename(buffer: str, k: int) -> str:
        head, _, rest = buffer.partition(":")
        if head == "w":
            all_names = [list(p.read)[k].partition(":")[2] for p in passes]
            label = template(all_names) or f"{ident}[{len(passes)}]"
            instances[label] = list(dict.fromkeys(all_names))
            return f"w:{label}"
        return f"{head}:{ops[makers[rest]].id}" if rest in makers else buffer

    def side(table: dict[str, Expr]) -> dict[str, Coefs]:
        out: dict[str, Coefs] = {}
        for k, (b, e) in enumerate(table.items()):
            out[rename(b, k)] = e.coefs(basis)
        return out

    names: list[str] = []
    for n in range(len(op.draft.nodes)):
        every = [p.draft.nodes[n].name or p.draft.nodes[n].outputs[0] for p in passes]
        same = template(every)
        names.extend([same] if same else every)
    return Op(
        id=ident,
        type=op.draft.type,
        unit=op.unit,
        nodes=tuple(names),
        macs=op.macs.coefs(basis),
        issued=op.issued.coefs(basis),
        cycles=op.cycles.coefs(basis),
        mac_cycles=op.mac_cycles.coefs(basis),
        vec={c: e.coefs(basis) for c, e in op.vec.items()},
        read=side(wired.read),
        write=side(wired.write),
        tiles=op.tiles.coefs(basis),
        scratch=as_expr(max(p.scratch for p in passes)).coefs(basis),
        tensors=op.tensors,
    )


def template(names: Sequence[str]) -> str | None:
    """One name for all: themselves if equal, or with ``{i}`` (``{i+n}``) for a number that counts up; else None."""
    if len(set(names)) == 1:
        return names[0]
    parts = [re.split(r"(\d+)", n) for n in names]
    if len({len(p) for p in parts}) != 1:
        return None
    out = []
    for column in zip(*parts, strict=True):
        if len(set(column)) == 1:
            out.append(column[0])
            continue
        if not all(c.isdigit() for c in column) or [int(c) for c in column] != list(
            range(int(column[0]), int(column[0]) + len(names))
        ):
            return None
        out.append("{i}" if int(column[0]) == 0 else f"{{i+{int(column[0])}}}")
    return "".join(out)
