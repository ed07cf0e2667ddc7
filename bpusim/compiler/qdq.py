"""Quantisation around ops folds into them: integers come in and go out, floats never leave the op.

A ``DequantizeLinear`` of an activation joins every op that reads it, a ``QuantizeLinear`` the op that makes what it
reads. Matrix products of integers, and ops that only move elements, take integers as they are: the conversions cost
nothing more. Other ops convert on their way, at the conversions' vector work.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from bpusim.compiler.analyse import Analysis, Draft
from bpusim.compiler.values import Cost
from bpusim.trace.model import Phase, Repeat

__all__ = [
    "MOVES",
    "drop_output_dequantise",
    "fold_dequantise",
    "fold_quantise",
    "folded_conversions",
    "takes_integers",
]

MOVES = {"MaxPool", "Concat", "Transpose", "Slice", "Split", "Gather", "Tile", "DepthToSpace", "SpaceToDepth", "Relu"}
"""Ops that give the same results on integers of one scale."""


def takes_integers(draft: Draft, more: Iterable[Draft] = ()) -> bool:
    """Whether ``draft``, joined by the conversions ``more``, works on the integers themselves.

    ``--verify`` rewrites what this says and compares. An op that moves elements takes them of one scale only: the
    conversions around it name the same scale and zero point (other names may hold the same numbers; they are paid for).
    """
    if draft.cost.gemms:
        return all(g.narrow for g in draft.cost.gemms)
    nodes = [n for d in (draft, *more) for n in d.nodes]
    scales = {n.inputs[1:] for n in nodes if n.type in ("DequantizeLinear", "QuantizeLinear")}
    return draft.nodes[0].type in MOVES and len(scales) <= 1


def _joined(draft: Draft, other: Draft, inputs: list[str], outputs: list[str], free: bool) -> Draft:
    """``draft`` with ``other``'s node and stored operands, and its vector work unless that is ``free``."""
    vec = draft.cost.vec if free else [*draft.cost.vec, *other.cost.vec]
    cost: Cost = replace(draft.cost, vec=vec, weights=[*draft.cost.weights, *other.cost.weights])
    return replace(draft, nodes=[*draft.nodes, *other.nodes], cost=cost, inputs=inputs, outputs=outputs)


def fold_dequantise(drafts: list[Draft], outputs: Collection[str]) -> list[Draft]:
    """Each ``DequantizeLinear`` joins its readers; it stays for a reader on the CPU and for the model's ``outputs``."""
    made = {
        d.outputs[0]: d for d in drafts if d.nodes[0].type == "DequantizeLinear" and len(d.outputs) == 1 and not d.cpu
    }
    kept = {o for o in made if o in outputs}
    out: list[Draft] = []
    for d in drafts:
        if d.outputs and made.get(d.outputs[0]) is d:
            out.append(d)
            continue
        joins = [made[i] for i in d.inputs if i in made]
        if d.cpu or (joins and d.nodes[0].type == "QuantizeLinear"):
            kept.update(i for i in d.inputs if i in made)
            out.append(d)
            continue
        for dq in joins:
            inputs = [n for i in d.inputs for n in (dq.inputs if i == dq.outputs[0] else [i])]
            d = _joined(d, dq, list(dict.fromkeys(inputs)), d.outputs, takes_integers(d, joins))
        out.append(d)
    return [d for d in out if not (d.outputs and d.outputs[0] in made and d.outputs[0] not in kept)]


def fold_quantise(drafts: list[Draft], outputs: Collection[str]) -> list[Draft]:
    """Each ``QuantizeLinear`` joins the op that makes what it alone reads."""
    readers: dict[str, int] = dict.fromkeys(outputs, 1)
    for d in drafts:
        for i in d.inputs:
            readers[i] = readers.get(i, 0) + 1
    out: list[Draft] = []
    maker: dict[str, int] = {}
    for d in drafts:
        source = d.inputs[0] if d.inputs else ""
        at = maker.get(source)
        alone = len(d.inputs) == 1 and readers.get(source) == 1 and not d.cpu
        if d.nodes[0].type == "QuantizeLinear" and at is not None and alone and not out[at].cpu:
            before = out[at]
            results = [d.outputs[0] if o == source else o for o in before.outputs]
            out[at] = _joined(before, d, before.inputs, results, takes_integers(before, [d]) or bool(before.cost.gemms))
        else:
            at = len(out)
            out.append(d)
        for o in out[at].outputs:
            maker[o] = at
    return out


def drop_output_dequantise(analysis: Analysis) -> int:
    """Leave each ``DequantizeLinear`` that makes an output, and that nobody else reads, to whoever reads the output.

    Returns how many; the outputs are integers then.
    """
    read = {i for d in analysis.drafts for i in d.inputs}
    ends = {
        d.outputs[0]: d
        for d in analysis.drafts
        if d.nodes[0].type == "DequantizeLinear" and d.outputs[0] in analysis.outputs and d.outputs[0] not in read
    }
    analysis.drafts = [d for d in analysis.drafts if ends.get(d.outputs[0] if d.outputs else "") is not d]
    for name, tensor in analysis.results.items():
        end = ends.get(analysis.values[tensor].storage)
        analysis.results[name] = end.inputs[0] if end is not None else tensor
    analysis.outputs = [ends[o].inputs[0] if o in ends else o for o in analysis.outputs]
    analysis.notes += [f"{d.nodes[0]} is left to whoever reads the output (--fold-dequantise)" for d in ends.values()]
    return len(ends)


def folded_conversions(phase: Phase) -> dict[str, int]:
    """Conversions that are part of other ops, by type, for the report."""
    out: dict[str, int] = {}
    for item in phase.items:
        body, count = (item.body, item.count) if isinstance(item, Repeat) else ((item,), 1)
        for op in body:
            for kind in op.type.split("+")[1:]:
                if kind in ("DequantizeLinear", "QuantizeLinear"):
                    out[kind] = out.get(kind, 0) + count
    return dict(sorted(out.items()))
