"""All that is in a model, also in the graphs inside its nodes and in its functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from bpusim.compiler.graph import Node

__all__ = ["all_tensors", "with_bodies"]


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor a model stores, also in the graphs inside its nodes and in its functions."""
    nodes: list[Iterable[onnx.NodeProto]] = [f.node for f in model.functions]
    graphs = [model.graph]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            nodes.append(graph.node)
        for node in nodes.pop():
            for a in node.attribute:
                if a.HasField("t"):
                    yield a.t
                yield from a.tensors
                graphs += [a.g] if a.HasField("g") else []
                graphs += a.graphs


def with_bodies(nodes: Iterable[Node]) -> Iterator[Node]:
    """All nodes, those in the graphs inside them too."""
    pending = list(nodes)
    while pending:
        node = pending.pop()
        yield node
        pending += [n for body in node.bodies for n in body.nodes]
