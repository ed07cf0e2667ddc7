"""Costed ops become a phase of the trace: one basis, repeated layers folded."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bpusim.compiler.analyse import Draft
from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.names import Namer
from bpusim.compiler.repeats import Run, find_repeats
from bpusim.errors import CompileError
from bpusim.trace.basis import by_sequence
from bpusim.trace.model import Op, Phase, Repeat, Unit

__all__ = ["RawOp", "Unfolded", "fold_phases"]

_COUNTED = 2**62
_PLAIN = ("1", "tokens", "kv", "tokens*kv", "tokens^2")
_TERMS = (*_PLAIN, *map(by_sequence, _PLAIN))


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
    scratch: Expr
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
            self.scratch,
            *self.vec.values(),
            *self.read.values(),
            *self.write.values(),
        ]


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A phase as a row of ops. ``carry_at(j)``: (bytes, tensors) that live on from before op ``j``."""

    name: str
    ops: list[RawOp]
    carry_at: Callable[[int], tuple[Expr, int]]
    tokens: int
    empty_cache: bool = False


def fold_phases(phases: Sequence[Unfolded]) -> list[tuple[Phase, dict[str, list[str]]]]:
    """Of each phase: (itself with repeated layers folded, the stored tensors behind each weight's name in it).

    All phases call a stored tensor by one name. Where their own repeats do not allow that (the last layer of one spills
    what the others keep), layers are folded that repeat in all of them, or none.
    """
    rows = [_signatures(p.ops) for p in phases]
    folded = [_fold(p, find_repeats(row)) for p, row in zip(phases, rows, strict=True)]
    if not _one_name([names for _, names in folded]) and len({len(r) for r in rows}) == 1:
        runs = find_repeats(list(zip(*rows, strict=True)))
        folded = [_fold(p, runs) for p in phases]
    if not _one_name([names for _, names in folded]):
        folded = [_fold(p, []) for p in phases]
    return folded


def _one_name(phases: Sequence[dict[str, list[str]]]) -> bool:
    """Whether the same name stands for the same tensors in all of them, and a tensor has one."""
    tensors: dict[str, list[str]] = {}
    labels: dict[str, str] = {}
    for names in phases:
        for label, behind in names.items():
            if tensors.setdefault(label, behind) != behind:
                return False
            if any(labels.setdefault(t, label) != label for t in behind):
                return False
    return True


def _signatures(ops: list[RawOp]) -> list[tuple[object, ...]]:
    makers = {o: j for j, op in enumerate(ops) for o in op.draft.outputs}
    shared = _use_counts(ops)
    return [_signature(op, makers, shared) for op in ops]


def _fold(unfolded: Unfolded, runs: Sequence[Run]) -> tuple[Phase, dict[str, list[str]]]:
    ops, carry_at = unfolded.ops, unfolded.carry_at
    makers = {o: j for j, op in enumerate(ops) for o in op.draft.outputs}
    basis = _basis(ops, [carry_at(start + period)[0] for start, period, _ in runs])
    namer = Namer(ops, runs, makers)
    items: list[Op | Repeat] = []
    at = 0
    for start, period, count in [*runs, (len(ops), 0, 0)]:
        items.extend(namer.op(ops[j : j + 1], j, basis) for j in range(at, start))
        if count:
            stop = start + period * count
            body = tuple(namer.op(ops[start + b : stop : period], start + b, basis) for b in range(period))
            carry, tensors = carry_at(start + period)
            items.append(Repeat(count, "layers" if period > 1 else body[0].id, body, carry.coefs(basis), tensors))
        at = start + period * count
    phase = Phase(unfolded.name, unfolded.tokens, basis, tuple(items), unfolded.empty_cache)
    _check_countable(phase, ops)
    _check_sums(phase, ops)
    return phase, namer.instances


def _check_countable(phase: Phase, ops: list[RawOp]) -> None:
    """Sums over the phase fit into 64 bits, whatever the position within a context."""
    total: dict[str, int] = {}
    for op in ops:
        for e in op.exprs():
            for term, c in e.terms.items():
                total[term] = total.get(term, 0) + abs(c)
    if max(total.values(), default=0) >= _COUNTED:
        worst = max(ops, key=lambda op: max((abs(c) for e in op.exprs() for c in e.terms.values()), default=0))
        what = f"{worst.draft.nodes[0]}: its costs exceed what can be counted"
        if max((abs(c) for e in worst.exprs() for c in e.terms.values()), default=0) < _COUNTED:
            what = f"phase '{phase.name}': its costs exceed what can be counted, most of them at {worst.draft.nodes[0]}"
        raise CompileError(what, do="check the sizes it is bound to")


def _check_sums(phase: Phase, ops: list[RawOp]) -> None:
    """Folding must not lose a byte, a MAC or a cycle: the phase sums to its ops."""
    folded = dict.fromkeys(("macs", "cycles", "read", "write"), as_expr(0))
    for item in phase.items:
        count = item.count if isinstance(item, Repeat) else 1
        for op in item.body if isinstance(item, Repeat) else (item,):
            parts = {"macs": [op.macs], "cycles": [op.cycles], "read": op.read.values(), "write": op.write.values()}
            for key, vectors in parts.items():
                for coefs in vectors:
                    folded[key] += Expr(dict(zip(phase.basis, coefs, strict=False))) * count
    raw = {
        "macs": [op.macs for op in ops],
        "cycles": [op.cycles for op in ops],
        "read": [e for op in ops for e in op.read.values()],
        "write": [e for op in ops for e in op.write.values()],
    }
    for key, exprs in raw.items():
        total = sum(exprs, as_expr(0))
        if total != folded[key]:
            raise CompileError(
                f"phase '{phase.name}': {key} sum to {folded[key]} folded and {total} unfolded; a defect of bpusim"
            )


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
    sized = sorted(
        (t for t in used if t not in _TERMS), key=lambda t: (t.partition("(")[0], [*map(int, re.findall(r"\d+", t))])
    )
    return ("1", *(t for t in _TERMS[1:] if t in used), *sized)
