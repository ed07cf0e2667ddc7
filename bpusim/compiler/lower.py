"""Drafts become a phase of the trace: fusion, placement of activations, traffic, cycles."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from bpusim.compiler.analyse import Analysis, Draft
from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.fusions import fuse_patterns
from bpusim.compiler.graph import ELEMENT_BITS, INTEGER, Node
from bpusim.compiler.layers import RawOp, Unfolded
from bpusim.compiler.placement import Placement
from bpusim.compiler.qdq import fold_dequantise, fold_quantise
from bpusim.compiler.quant import Plan, WeightUse
from bpusim.compiler.target import Target
from bpusim.compiler.values import Cost
from bpusim.hardware.toolchain import Fusions
from bpusim.trace.basis import at_most

__all__ = ["Lowered", "folds_norm", "fuse", "lower"]


@dataclass(slots=True)
class Lowered:
    """A phase, not yet folded, with what the header and the report need."""

    unfolded: Unfolded
    weights: dict[str, WeightUse]
    users: dict[str, list[str]]
    workspace: int
    kv_bytes_per_token: int
    spilled: list[str] = field(default_factory=list)


def fuse(drafts: list[Draft], outputs: Collection[str], fusions: Fusions) -> list[Draft]:
    """Merge normalisation, activation and residual addition into the convolution right before them, and what else the
    toolchain runs as one op.

    Only where the convolution's result has no other reader, is none of the model's ``outputs``, and the other operands
    are already there. The parameters of a batch norm right behind the convolution fold into its weights and bias.
    Conversions to and from integers fold into the ops around them.
    """
    epilogue = frozenset(fusions.convolution)
    fused = _fuse_convolutions(fold_dequantise(drafts, outputs), outputs, epilogue)
    return fold_quantise(fuse_patterns(fused, outputs, fusions), outputs)


def folds_norm(before: list[Node], node: Node) -> bool:
    """Whether ``node`` is a norm that folds into the convolution ``before`` it; ``--verify`` rewrites by this too."""
    return node.type == "BatchNormalization" and {n.type for n in before} <= {"Conv", "BatchNormalization"}


def _fuse_convolutions(drafts: list[Draft], outputs: Collection[str], epilogue: Collection[str]) -> list[Draft]:
    readers: dict[str, int] = dict.fromkeys(outputs, 1)
    for d in drafts:
        for i in d.inputs:
            readers[i] = readers.get(i, 0) + 1
    out: list[Draft] = []
    for d in drafts:
        last = out[-1] if out else None
        if (
            last is not None
            and last.cost.fused
            and not last.cpu
            and not d.cpu
            and d.nodes[0].type in epilogue
            and len(last.outputs) == 1
            and last.outputs[0] in d.inputs
            and readers[last.outputs[0]] == 1
        ):
            norm = folds_norm(last.nodes, d.nodes[0])
            weights = list(last.cost.weights)
            vec = list(last.cost.vec)
            if norm and not any(u.role == "bias" for u, _ in weights):
                weights.append((replace(d.cost.weights[0][0], role="bias"), None))  # the folded shift, one a channel
            if not norm:
                weights += d.cost.weights
                vec += d.cost.vec
            others = [i for i in d.inputs if i != last.outputs[0]]
            out[-1] = Draft(
                [*last.nodes, *d.nodes],
                replace(last.cost, vec=vec, weights=weights, kv_read=last.cost.kv_read + d.cost.kv_read),
                list(dict.fromkeys([*last.inputs, *others])),
                d.outputs,
            )
        else:
            out.append(d)
    return out


def lower(name: str, analysis: Analysis, drafts: list[Draft], plan: Plan, target: Target, tokens: int) -> Lowered:
    """Place activations, charge traffic."""
    drafts = _with_rope(drafts)
    sizes = _sizes(analysis, drafts, target)
    place = Placement(drafts, sizes, analysis, target)
    kv_bits = 16 if plan.name != "keep" else ELEMENT_BITS[analysis.kv_dtype]
    ops: list[RawOp] = []
    weights: dict[str, WeightUse] = {}
    users: dict[str, list[str]] = {}
    kv_per_token = 0
    names = _op_names(drafts)
    for j, d in enumerate(drafts):
        read, write = ({b: target.each(e) for b, e in side.items()} for side in place.traffic(j))
        for use, rows in d.cost.weights:
            if use.role == "scale" and not plan.bytes(use):
                continue  # the plan has scales of its own, in the weight's bytes
            weights.setdefault(use.tensor, use)
            if use.role in ("linear", "head") or weights[use.tensor].stored < use.stored:
                weights[use.tensor] = use
            users.setdefault(use.tensor, []).append(names[j])
            if rows is None:
                taken = as_expr(plan.bytes(use))
                if not target.holds(int(taken)):
                    taken = taken * d.cost.rereads.get(use.tensor, 1)
            else:
                some = rows.padded(target.chunk)
                if some.is_const and use.role in ("linear", "bias") and int(some) >= use.rows:
                    taken = as_expr(plan.bytes(use))  # all experts are at work: each is read once
                elif target.batched and some.is_const and use.role in ("linear", "bias"):
                    factor, term = at_most(int(some), use.rows)  # what several sequences choose may be all there is
                    taken = Expr({term: factor * plan.row_bytes(use)})
                else:
                    taken = target.each(some * plan.row_bytes(use))
            key = f"w:{use.tensor}"
            read[key] = read.get(key, as_expr(0)) + taken
        for use in d.cost.resident:
            users.setdefault(use.tensor, [])
        if d.cost.kv_read.terms:
            read["kv"] = target.each(_packed(d.cost.kv_read.padded(target.chunk), kv_bits))
        if d.cost.kv_write.terms:
            write["kv"] = target.each(_packed(d.cost.kv_write.padded(target.chunk), kv_bits))
            each = _packed(d.cost.kv_write, kv_bits).terms
            kv_per_token += each.get("tokens", each.get("1", 0))
        ops.append(_raw(d, names[j], read, write, place.live_bytes(j), place.crossing_tensors(j), target))
    unfolded = Unfolded(name, ops, lambda at: _carry(place, at, target), tokens, analysis.empty_cache)
    return Lowered(unfolded, weights, users, place.workspace, kv_per_token, place.spilled)


def _packed(elements: Expr, bits: int) -> Expr:
    """Bytes of elements of ``bits``: each part rounds up to whole bytes."""
    return Expr({t: -(-c * bits // 8) for t, c in elements.terms.items()})


def _carry(place: Placement, at: int, target: Target) -> tuple[Expr, int]:
    """(bytes, tensors) that a split before op ``at`` hands over."""
    size, tensors = place.carry(at)
    return target.each(size), tensors


def _with_rope(drafts: list[Draft]) -> list[Draft]:
    """A prologue that reads the RoPE rows of this step once; every layer uses them from the chip."""
    tables: dict[str, WeightUse] = {}
    for d in drafts:
        for use in d.cost.resident:
            tables.setdefault(use.tensor, use)
    if not tables:
        return drafts
    rows = next(
        w.rows for d in drafts if d.cost.resident for w in d.cost.vec if w.per.get("mul") == 2 and w.per.get("add") == 1
    )
    node = Node("RotaryRows", "", "rope", (), ("rope",), {})
    cost = Cost(weights=[(use, rows) for use in tables.values()])
    prologue = Draft([node], cost, [], ["rope"])
    return [prologue, *(replace(d, inputs=[*d.inputs, "rope"]) if d.cost.resident else d for d in drafts)]


def _sizes(analysis: Analysis, drafts: list[Draft], target: Target) -> dict[str, Expr]:
    """Padded bytes of every activation."""
    out: dict[str, Expr] = {}
    for d in drafts:
        for n in (*d.inputs, *d.outputs):
            if n == "rope":
                out[n] = (
                    sum(
                        (rows.padded(target.chunk) * (u.k * 2) for u, rows in d.cost.weights if rows is not None),
                        as_expr(0),
                    )
                    if n in d.outputs
                    else out[n]
                )
                continue
            value = analysis.values[n]
            width = ELEMENT_BITS[value.dtype] // 8 if value.dtype in INTEGER else target.activation_bytes
            out[n] = value.elements.padded(target.chunk) * width
    return out


def _raw(
    d: Draft, name: str, read: dict[str, Expr], write: dict[str, Expr], scratch: int, tensors: int, target: Target
) -> RawOp:
    macs = target.each(sum((g.macs for g in d.cost.gemms), as_expr(0)))
    cycles, mac_cycles, issued, vec = target.compute(d.cost)
    if d.cpu:
        # The CPU works on floats: every element that comes in or goes out is converted.
        moved = sum((e for e in (*read.values(), *write.values())), as_expr(0))
        elements = Expr({t: c // target.activation_bytes for t, c in moved.terms.items()})
        vec = {**vec, "convert": vec.get("convert", as_expr(0)) + elements}
        issued, cycles, mac_cycles = (
            target.each(sum((g.macs.padded(target.chunk) for g in d.cost.gemms), as_expr(0))),
            as_expr(0),
            as_expr(0),
        )
    total = sum(read.values(), as_expr(0))
    live = target.each(as_expr(scratch))
    return RawOp(name, d, macs, cycles, mac_cycles, issued, vec, read, write, target.tiles(total), live, tensors)


def _op_names(drafts: list[Draft]) -> list[str]:
    """The tail of each node's path; unnamed nodes by their output."""
    out = []
    for d in drafts:
        node = d.nodes[0]
        parts = [p for p in (node.name or node.outputs[0]).split("/") if p]
        out.append("/".join(parts[-2:]) if len(parts) > 1 else (parts or [node.type])[0])
    return out
