"""What the compiler puts in place of parts of a graph, as graphs: one builder a rule.

Each builder takes what the compiler did (the same record or predicate that costs come from) and gives the nodes that
would do it, so that a rule which is wrong gives nodes that compute something else. Rules that only price a node (an
attention as two products and a softmax, an Einsum as products, a RoPE table read once) change no graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from bpusim.compiler import lower
from bpusim.compiler.analyse import Draft
from bpusim.compiler.graph import Body, Node
from bpusim.compiler.rewrite import Rewrite, WrongRewriteError, constant
from bpusim.compiler.rewrites_qdq import integers
from bpusim.compiler.samples import Samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["REWRITES", "rewrites"]

_VIEWS = {"Identity", "Dropout", "Reshape", "Flatten", "Unsqueeze", "Squeeze", "Transpose", "Expand"}
"""Ops that a rule may call a view: their result is their input under other dims."""


Builder = Callable[[Samples, Sequence[Draft]], Iterator[Rewrite | tuple[str, Node, Exception]]]
"""The rewrites by one rule; a wrong one as (rule, node, why)."""


def rewrites(
    samples: Samples, fused: Sequence[Draft], only: Sequence[str] | None = None
) -> Iterator[Rewrite | tuple[str, Node, Exception]]:
    """Every rewrite that was applied, in the order of the rules."""
    for rule, (build, _) in REWRITES.items():
        if only is None or rule in only:
            yield from build(samples, fused)


def _calls(s: Samples, _: Sequence[Draft]) -> Iterator[Rewrite]:
    live = {o for n in s.graph.nodes for o in n.outputs}
    for call, nodes in s.graph.calls:
        results = [o for o in call.outputs if o and o in live]
        if results and any(isinstance(a, onnx.GraphProto) for a in call.attrs.values()):
            continue  # its graph is read with the names of the inlined nodes only
        if results:
            yield Rewrite("function inlined", call, [call], nodes, results)


def _control(s: Samples, _: Sequence[Draft]) -> Iterator[Rewrite]:
    for node, start, end in s.analysis.program.expanded:
        results = [o for o in node.outputs if o and o in s.analysis.values]
        rule = {"If": "branch taken", "Loop": "loop unrolled", "Scan": "scan unrolled"}[node.type]
        before, given = _assumed(s, node)
        yield Rewrite(rule, node, [before], s.analysis.program.nodes[start:end], results, given=given)


def _assumed(s: Samples, node: Node) -> tuple[Node, dict[str, NDArray[Any]]]:
    """The node with what ``--assume`` says of it stated in the graph."""
    taken = s.analysis.taken.get(str(node), "")
    if not taken.endswith("assumed"):
        return node, {}
    if node.type == "If":
        return node, {node.inputs[0]: np.array(taken.startswith("then"))}
    body: Body = node.attrs["body"]
    going = f"{node.label}/assumed"
    on = Node("Constant", "", "", (), (going,), {"value": onnx.numpy_helper.from_array(np.array(True))})
    endless = replace(body, nodes=(*body.nodes, on), outputs=(going, *body.outputs[1:]))
    trips = f"{node.label}/trips"
    starts = f"{node.label}/starts"
    given = {trips: np.array(int(taken.split()[0])), starts: np.array(True)}
    return replace(node, inputs=(trips, starts, *node.inputs[2:]), attrs={**node.attrs, "body": endless}), given


_NEW = 13


def _old_forms(s: Samples, _: Sequence[Draft]) -> Iterator[Rewrite]:
    """Input 1 is shaped first; the newer op broadcasts as numpy does."""
    for node, dims in s.analysis.program.old:
        spread, shape = f"{node.outputs[0]}/spread", f"{node.outputs[0]}/shape"
        attrs = {k: v for k, v in node.attrs.items() if k not in ("axis", "broadcast")}
        yield Rewrite(
            "old form",
            node,
            [node],
            [
                Node("Reshape", "", "", (node.inputs[1], shape), (spread,), {}, _NEW),
                replace(node, inputs=(node.inputs[0], spread), attrs=attrs, opset=_NEW),
            ],
            [node.outputs[0]],
            arrays={shape: np.array([s.number(d) for d in dims], dtype=np.int64)},
        )


def _constants(s: Samples, _: Sequence[Draft]) -> Iterator[Rewrite]:
    for node in s.analysis.program.folded:
        made: list[Node] = []
        for o in filter(None, node.outputs):
            array = s.known(o)
            if array is None:  # a fill that stays a stored tensor
                fill = node.attrs.get("value")
                one = np.zeros(1, np.float32) if fill is None else onnx.numpy_helper.to_array(fill)
                array = np.full(s.dims(o), one.reshape(-1)[0])
            made.append(constant(o, array))
        yield Rewrite("constant folded", node, [node], made, [n.outputs[0] for n in made], {id(node): made})


def _views(s: Samples, _: Sequence[Draft]) -> Iterator[Rewrite]:
    for node in s.analysis.views:
        if node.type not in _VIEWS or node.domain or s.analysis.values[node.outputs[0]].weight == node.outputs[0]:
            continue  # a conversion, which stays; or worked out from stored tensors, at which nothing is rewritten
        if node.type == "Transpose" and s.stored(node.inputs[0]):
            continue  # a stored tensor is turned when the model is prepared
        out, shape = node.outputs[0], f"{node.outputs[0]}/shape"
        dims = s.dims(out)
        kind = "Reshape" if prod(dims) == prod(s.dims(node.inputs[0])) else "Expand"
        to = constant(shape, np.array(dims, dtype=np.int64))
        attrs = {"allowzero": 1} if kind == "Reshape" and 0 in dims else {}
        made = [to, Node(kind, "", node.name, (node.inputs[0], shape), (out,), attrs, node.opset)]
        rest = [o for o in node.outputs[1:] if o]
        made += [constant(o, np.ones(s.dims(o), dtype=bool)) for o in rest]
        yield Rewrite("view", node, [node], made, [out, *rest], {id(node): made})


def _norms(s: Samples, fused: Sequence[Draft]) -> Iterator[Rewrite | tuple[str, Node, Exception]]:
    """A batch norm is a factor and a shift for each channel: the convolution's weights and bias take them."""
    for draft in fused:
        for i, norm in enumerate(draft.nodes):
            if i and lower.folds_norm(draft.nodes[:i], norm):
                members = [n for n in draft.nodes[: i + 1] if n.type != "DequantizeLinear"]
                try:
                    yield _norm(s, members, _between(s, members))
                except (WrongRewriteError, ValueError) as e:
                    yield ("batch norm folded", norm, e)


def _norm(s: Samples, members: Sequence[Node], path: Sequence[Node]) -> Rewrite:
    conv, norm = members[0], members[-1]
    if not s.stored(conv.inputs[1]):
        raise WrongRewriteError(f"the weights '{conv.inputs[1]}' of {conv} are no stored tensor")
    weights = s.array(conv.inputs[1])
    wide = weights.astype(np.float64)
    bias = s.array(conv.inputs[2]).astype(np.float64) if len(conv.inputs) > 2 and conv.inputs[2] else 0.0
    for node in [m for m in members if m.type == "BatchNormalization"]:
        scale, shift, mean, variance = (s.array(n).astype(np.float64) for n in node.inputs[1:5])
        factor = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
        if len(factor) != len(wide):
            raise WrongRewriteError(f"{len(factor)} channels of {node} are not the {len(wide)} of {conv}")
        wide = wide * factor.reshape(-1, *(1,) * (wide.ndim - 1))
        bias = (bias - mean) * factor + shift
    names = (f"{norm.outputs[0]}/weights", f"{norm.outputs[0]}/bias")
    parts: dict[int, Sequence[Node]] = {}
    for n in path:
        if n is conv:
            parts[id(n)] = [replace(n, inputs=(n.inputs[0], *names))]
        elif n.type == "BatchNormalization":
            parts[id(n)] = [Node("Identity", "", n.name, (n.inputs[0],), (n.outputs[0],), {}, n.opset)]
    after = [p for n in path for p in parts.get(id(n), [n])]
    dims = s.dims(conv.inputs[0])
    kernel = wide.shape[2:]
    dilated = conv.attrs.get("dilations", [1] * len(kernel))
    near = [(k - 1) * d + 8 for k, d in zip(kernel, dilated, strict=True)]
    small = (1, dims[1], *(min(a, b) for a, b in zip(dims[2:], near, strict=True)))
    arrays = {names[0]: wide, names[1]: np.asarray(bias)}
    cut = {conv.inputs[0]: small} if all(n in members for n in path) else {}
    return Rewrite("batch norm folded", norm, path, after, [norm.outputs[0]], parts, arrays, small=cut, wide=True)


def _between(s: Samples, members: Sequence[Node]) -> list[Node]:
    """``members`` in program order, with the views that lead from one to the next."""
    ids = {id(m) for m in members}
    free = {id(n) for n in s.analysis.views}
    found: list[Node] = []
    made: set[str] = set()
    wanted = {i for m in members for i in m.inputs}
    for node in s.analysis.program.nodes:
        if id(node) in ids or (id(node) in free and made.intersection(node.inputs)):
            found.append(node)
            made.update(o for o in node.outputs if o)
    for node in reversed(found[:]):  # views that lead out of the group
        if id(node) in ids or wanted.intersection(node.outputs):
            wanted.update(node.inputs)
        else:
            found.remove(node)
    return found


def _epilogues(s: Samples, fused: Sequence[Draft]) -> Iterator[Rewrite]:
    """Ops computed as one: what is made on the way stays inside, under names that nothing else can read."""
    for draft in fused:
        members = [n for n in draft.nodes if n.type not in ("DequantizeLinear", "QuantizeLinear")]
        if len(members) < 2:
            continue
        path = _between(s, members)
        last = members[-1].outputs[0]
        inner = {o: f"{o}/inside" for n in path for o in n.outputs if o and o != last}
        after = [n.renamed(inner) for n in path]
        held = [s.analysis.values[i].storage for n in path for i in n.inputs if i in s.analysis.values]
        takes = frozenset({*draft.inputs, *(h for h in held if h and s.stored(h))})
        yield Rewrite("fused into a convolution", members[-1], path, after, [last], inside=inner, takes=takes)


def _decomposed(s: Samples, _: Sequence[Draft]) -> Iterator[Rewrite]:
    for node, nodes in s.analysis.program.decomposed:
        yield Rewrite("decomposed", node, [node], nodes, [o for o in node.outputs if o and o in s.analysis.values])


REWRITES: dict[str, tuple[Builder, str]] = {
    "function inlined": (_calls, "a call: the nodes of its function"),
    "branch taken": (_control, "an If: the nodes of one branch; a Loop, a Scan: those of its passes"),
    "old form": (_old_forms, "an op from before opset 7: its newer form, input 1 shaped first"),
    "decomposed": (_decomposed, "an op that the toolchain does not take: ops that it takes"),
    "constant folded": (_constants, "shape arithmetic: its known result"),
    "view": (_views, "a view: a Reshape or Expand to the dims that the compiler works out"),
    "batch norm folded": (_norms, "a batch norm behind a convolution: other weights and bias"),
    "integers taken as they are": (integers, "an op between conversions: the op on integers"),
    "fused into a convolution": (_epilogues, "ops behind a convolution: part of it, their operands not seen outside"),
}
"""Rules that rewrite a graph: builder, and what takes the place of what."""
