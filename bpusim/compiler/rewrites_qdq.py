"""Ops between conversions as ops on integers: the graph form of :func:`bpusim.compiler.qdq.takes_integers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from bpusim.compiler import qdq
from bpusim.compiler.analyse import Draft
from bpusim.compiler.graph import Node
from bpusim.compiler.rewrite import Rewrite, WrongRewriteError
from bpusim.compiler.samples import Samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["integers"]


def integers(s: Samples, fused: Sequence[Draft]) -> Iterator[Rewrite | tuple[str, Node, Exception]]:
    """An op between conversions works on the integers: those of one scale that it moves, or a product of two."""
    for draft in fused:
        reads = [n for n in draft.nodes if n.type == "DequantizeLinear"]
        if not reads or draft.cpu or not qdq.takes_integers(draft):
            continue
        op = draft.nodes[0]
        try:
            rewrite = _product(s, op) if draft.cost.gemms else _moved(op, draft, {d.outputs[0]: d for d in reads})
        except WrongRewriteError as e:
            yield ("integers taken as they are", op, e)
            continue
        if rewrite is not None:
            yield rewrite


def _moved(op: Node, draft: Draft, reads: Mapping[str, Node]) -> Rewrite:
    """The op on integers; a conversion behind it falls away, or one comes behind it in place of those before."""
    inputs = tuple(reads[i].inputs[0] if i in reads else i for i in op.inputs)
    first = next(iter(reads.values()))
    back = next((n for n in draft.nodes if n.type == "QuantizeLinear"), None)
    outputs = tuple(f"{o}/integers" if o else "" for o in op.outputs)
    if back is not None:
        outputs = tuple(back.outputs[0] if o == back.inputs[0] else n for o, n in zip(op.outputs, outputs, strict=True))
    whole = replace(op, inputs=inputs, outputs=outputs)
    if op.type == "Relu":  # nothing below the zero point
        if len(first.inputs) < 3:
            raise WrongRewriteError(f"{first} has no zero point that a Relu of integers could hold against")
        whole = Node("Max", "", op.name, (inputs[0], first.inputs[2]), outputs, {}, op.opset)
    made = [whole]
    for o, n in zip(op.outputs, outputs, strict=True):
        if o and n.endswith("/integers") and n == f"{o}/integers":
            scale = (n, *first.inputs[1:])
            made.append(Node("DequantizeLinear", "", f"{op.label}/back", scale, (o,), dict(first.attrs), first.opset))
    before = [*reads.values(), op, *([back] if back else [])]
    results = [back.outputs[0]] if back else [o for o in op.outputs if o]
    parts = {id(op): made, **({id(back): []} if back else {})}
    return Rewrite("integers taken as they are", op, before, made, results, parts)


def _product(s: Samples, op: Node) -> Rewrite | None:
    """Integers less their zero points are multiplied exactly, the result is scaled once."""
    makers = {o: n for n in s.analysis.program.nodes for o in n.outputs}
    sides = [makers.get(i) for i in op.inputs[:2]]
    a, b = sides
    if op.type not in ("Conv", "MatMul", "Gemm") or op.domain:
        return None
    if a is None or b is None or {a.type, b.type} != {"DequantizeLinear"}:
        raise WrongRewriteError("its operands are not both behind a DequantizeLinear")
    scales = [s.array(n.inputs[1]) for n in (a, b)]
    turned = op.type == "Gemm" and op.attrs.get("transB", 0)
    axis = 0 if op.type == "Conv" or turned else len(s.dims(op.inputs[1])) - 1
    spread: tuple[int, ...] = ()
    if scales[1].size > 1:
        if b.attrs.get("axis", 1) % len(s.dims(op.inputs[1])) != axis or b.attrs.get("block_size", 0):
            raise WrongRewriteError(f"the scales of '{op.inputs[1]}' do not run along its outputs")
        spread = (-1, *(1,) * (len(s.dims(op.inputs[0])) - 2)) if op.type == "Conv" else (-1,)
    if scales[0].size > 1:
        raise WrongRewriteError(f"'{op.inputs[0]}' has more than one scale")
    double = {"to": int(onnx.TensorProto.DOUBLE)}
    out = op.outputs[0]
    nodes: list[Node] = []
    names = []
    arrays: dict[str, NDArray[Any]] = {}
    for k, n in enumerate((a, b)):
        name = f"{out}/{k}"
        nodes.append(Node("Cast", "", "", (n.inputs[0],), (name,), double, op.opset))
        if len(n.inputs) > 2 and n.inputs[2]:
            zero = s.array(n.inputs[2]).astype(np.float64)
            shape = [1] * len(s.dims(n.inputs[0]))
            if zero.size > 1:
                shape[axis] = -1
            arrays[f"{name}/zero"] = zero.reshape(shape) if zero.size > 1 else zero.reshape(())
            nodes.append(Node("Sub", "", "", (name, f"{name}/zero"), (f"{name}/less",), {}, op.opset))
            name = f"{name}/less"
        names.append(name)
    arrays[f"{out}/scale"] = (scales[0].astype(np.float64) * scales[1].astype(np.float64)).reshape(spread)
    bias = op.inputs[2] if len(op.inputs) > 2 else ""
    plain = {k: v for k, v in op.attrs.items() if k != "beta"}
    nodes += [
        replace(op, inputs=tuple(names), outputs=(f"{out}/sum",), attrs=plain),
        Node("Mul", "", "", (f"{out}/sum", f"{out}/scale"), (f"{out}/scaled",), {}, op.opset),
    ]
    last = f"{out}/scaled"
    if bias:
        added = s.array(bias).astype(np.float64) * op.attrs.get("beta", 1.0)
        arrays[f"{out}/bias"] = added.reshape(-1, *(1,) * (len(s.dims(out)) - 2)) if op.type == "Conv" else added
        nodes.append(Node("Add", "", "", (last, f"{out}/bias"), (f"{out}/biased",), {}, op.opset))
        last = f"{out}/biased"
    to = {"to": int(s.analysis.values[out].dtype)}
    nodes.append(Node("Cast", "", "", (last,), (out,), to, op.opset))
    return Rewrite("integers taken as they are", op, [a, b, op], nodes, [out], arrays=arrays)
