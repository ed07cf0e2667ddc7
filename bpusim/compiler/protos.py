"""Nodes of the front end as ONNX protos again: what ``--verify`` hands to an evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import onnx

from bpusim.compiler.graph import Body, Node

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["model_of", "node_proto", "opset_of"]

_AXES_AS_INPUT = 13
"""Opset from which ``Unsqueeze`` takes its axes as an input."""


def node_proto(node: Node) -> list[onnx.NodeProto]:
    """``node``, after a Constant with its axes where an unrolled loop states them in the old way."""
    attrs = dict(node.attrs)
    inputs = list(node.inputs)
    before: list[onnx.NodeProto] = []
    if node.type == "Unsqueeze" and len(inputs) == 1 and node.opset >= _AXES_AS_INPUT:
        inputs.append(f"{node.outputs[0]}/axes")
        before.append(onnx.helper.make_node("Constant", [], [inputs[1]], value_ints=list(attrs.pop("axes"))))
    proto = onnx.helper.make_node(node.type, inputs, list(node.outputs), node.label, domain=node.domain)
    proto.attribute.extend(_attribute(node, k, v) for k, v in attrs.items())
    return [*before, proto]


def _attribute(node: Node, name: str, value: Any) -> onnx.AttributeProto:
    if isinstance(value, Body):
        return onnx.helper.make_attribute(name, _body(value, scalars=2 if node.type == "Loop" else 0))
    if isinstance(value, list | tuple) and not value:
        known = onnx.defs.get_schema(node.type, domain=node.domain) if onnx.defs.has(node.type, node.domain) else None
        kind: Any = known.attributes[name].type if known is not None and name in known.attributes else None
        number = onnx.AttributeProto.INTS if kind is None else onnx.AttributeProto.AttributeType.Value(kind.name)
        return onnx.helper.make_attribute(name, value, attr_type=number)
    return onnx.helper.make_attribute(name, value)


def _body(body: Body, scalars: int) -> onnx.GraphProto:
    """A graph inside a node, whose first ``scalars`` inputs are such.

    A result that it takes from around it is copied: a graph hands out only its own.
    """
    own = set(body.own)
    nodes = [p for n in body.nodes for p in node_proto(n)]
    outputs = []
    for i, name in enumerate(body.outputs):
        inner = name if name in own else f"{body.name}/{name}/{i}"
        if inner != name:
            nodes.append(onnx.helper.make_node("Identity", [name], [inner]))
        outputs.append(onnx.helper.make_empty_tensor_value_info(inner))
    inputs = []
    for i, name in enumerate(body.inputs):
        dtype, dims = body.declared.get(name, (0, ()))
        shape = [] if i < scalars else list(dims) or None
        made = onnx.helper.make_tensor_value_info(name, dtype, shape) if dtype else None
        inputs.append(made or onnx.helper.make_empty_tensor_value_info(name))
    return onnx.helper.make_graph(nodes, body.name, inputs, outputs)


def opset_of(nodes: Iterable[Node], opsets: Mapping[str, int]) -> int | None:
    """The one opset of ai.onnx that all ``nodes`` are written for; None if there are several."""
    found = {n.opset or opsets.get("ai.onnx", 1) for n in nodes if not n.domain}
    return next(iter(found), opsets.get("ai.onnx", 1)) if len(found) <= 1 else None


def model_of(
    nodes: Iterable[Node],
    inputs: Mapping[str, NDArray[Any]],
    outputs: Iterable[str],
    opsets: Mapping[str, int],
    functions: Iterable[onnx.FunctionProto] = (),
    opset: int | None = None,
    weights: Mapping[str, NDArray[Any]] | None = None,
) -> onnx.ModelProto:
    """A model of ``nodes``, with ``weights`` in it."""
    declared = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    version = opset or opsets.get("ai.onnx", 1)
    stated = [n if n.opset else Node(n.type, n.domain, n.name, n.inputs, n.outputs, n.attrs, version) for n in nodes]
    protos = [p for n in stated for p in node_proto(n)]
    graph = onnx.helper.make_graph(
        protos, "verify", declared, [onnx.helper.make_empty_tensor_value_info(o) for o in outputs]
    )
    graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in (weights or {}).items())
    domains = {("" if d == "ai.onnx" else d): v for d, v in opsets.items()} | {"": version}
    domains |= {n.domain: 1 for n in stated if n.domain not in domains}
    imports = [onnx.helper.make_opsetid(d, v) for d, v in domains.items()]
    return onnx.helper.make_model(
        graph, opset_imports=imports, functions=list(functions), ir_version=min(onnx.IR_VERSION, 10)
    )
