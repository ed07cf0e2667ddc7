"""All that is in a model, also in the graphs inside its nodes and in its functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx

from bpusim.compiler.graph import Node

__all__ = ["all_tensors", "live", "needs", "with_bodies"]


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


def needs(nodes: Iterable[Node]) -> list[str]:
    """Tensors that ``nodes`` read and do not make, in their bodies too."""
    made: set[str] = set()
    reads: dict[str, None] = {}
    for n in with_bodies(nodes):
        made.update(n.outputs)
        reads.update(dict.fromkeys(filter(None, n.inputs)))
        for b in n.bodies:
            made.update(b.inputs)
            reads.update(dict.fromkeys(b.outputs))
    return [x for x in reads if x not in made]


def live(nodes: Sequence[Node], results: Iterable[str]) -> list[Node]:
    """Those of ``nodes`` (in program order) that ``results`` need."""
    wanted = set(results)
    kept: list[Node] = []
    for n in reversed(nodes):
        if wanted.intersection(filter(None, n.outputs)):
            kept.append(n)
            wanted.update(needs([n]))
    return kept[::-1]
