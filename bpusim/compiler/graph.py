"""The plain graph that the ONNX front end makes: nodes, stored tensors, program order."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import onnx

from bpusim.errors import CompileError, Place, Problem, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ELEMENT_BITS", "FLOATS", "INTEGER", "Body", "Graph", "Node", "Stored", "live_nodes", "ordered"]

ELEMENT_BITS: dict[int, int] = {
    onnx.TensorProto.FLOAT: 32,
    onnx.TensorProto.UINT8: 8,
    onnx.TensorProto.INT8: 8,
    onnx.TensorProto.UINT16: 16,
    onnx.TensorProto.INT16: 16,
    onnx.TensorProto.INT32: 32,
    onnx.TensorProto.INT64: 64,
    onnx.TensorProto.BOOL: 8,
    onnx.TensorProto.FLOAT16: 16,
    onnx.TensorProto.DOUBLE: 64,
    onnx.TensorProto.UINT32: 32,
    onnx.TensorProto.UINT64: 64,
    onnx.TensorProto.BFLOAT16: 16,
    onnx.TensorProto.FLOAT8E4M3FN: 8,
    onnx.TensorProto.FLOAT8E5M2: 8,
    onnx.TensorProto.FLOAT8E4M3FNUZ: 8,
    onnx.TensorProto.FLOAT8E5M2FNUZ: 8,
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.COMPLEX64: 64,
    onnx.TensorProto.COMPLEX128: 128,
    # By number, for onnx packages that do not name them yet: FLOAT4E2M1, FLOAT8E8M0, UINT2, INT2.
    23: 4,
    24: 8,
    25: 2,
    26: 2,
}
"""Stored bits of an element by ONNX element type; strings have none."""

FLOATS = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
}
INTEGER = {
    onnx.TensorProto.INT64,
    onnx.TensorProto.INT32,
    onnx.TensorProto.BOOL,
    onnx.TensorProto.UINT8,
    onnx.TensorProto.INT8,
    onnx.TensorProto.INT16,
    onnx.TensorProto.UINT16,
    onnx.TensorProto.UINT32,
    onnx.TensorProto.UINT64,
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor whose bytes belong to the model: element type, dims, and values only where they may steer shapes.

    ``values``: of small integer tensors; ``floats``: of a few floats; ``text``: bytes of a string tensor.
    """

    dtype: int
    dims: tuple[int, ...]
    values: NDArray[np.int64] | None = None
    floats: tuple[float, ...] | None = None
    text: int = 0

    @property
    def bytes(self) -> int:
        """Stored bytes: elements times bits, packed and rounded up; never the file's size."""
        if self.dtype == onnx.TensorProto.STRING:
            return self.text
        elements = 1
        for d in self.dims:
            elements *= d
        return -(-elements * ELEMENT_BITS[self.dtype] // 8)


@dataclass(frozen=True, slots=True)
class Node:
    """An operator call. ``opset``: version of the standard operators it was written for (0: the model's); ``origin``:
    what it was called before a loop was unrolled.
    """

    type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]
    opset: int = 0
    origin: str = ""

    def __str__(self) -> str:
        return f"{self.kind} '{self.label}'"

    @property
    def kind(self) -> str:
        """Type with its domain."""
        return f"{self.domain + '::' if self.domain else ''}{self.type}"

    @property
    def label(self) -> str:
        """Its name, or its first result if it has none."""
        return self.name or next(filter(None, self.outputs), "")

    @property
    def bodies(self) -> list[Body]:
        """Graphs inside it: branches of an If, the body of a Loop or Scan."""
        return [a for a in self.attrs.values() if isinstance(a, Body)]

    @property
    def needs(self) -> list[str]:
        """Tensors it reads: its inputs, and what its bodies take from around them."""
        return [*filter(None, self.inputs), *(name for body in self.bodies for name in body.free)]

    def renamed(self, names: Mapping[str, str], suffix: str = "") -> Node:
        """With tensors renamed, in its bodies too; ``suffix`` is added to the node's name."""
        attrs = {k: v.renamed(names, suffix) if isinstance(v, Body) else v for k, v in self.attrs.items()}
        inputs, outputs = (tuple(names.get(n, n) for n in side) for side in (self.inputs, self.outputs))
        origin = self.origin or self.label
        return replace(self, name=self.label + suffix, inputs=inputs, outputs=outputs, attrs=attrs, origin=origin)


@dataclass(frozen=True, slots=True)
class Body:
    """A graph inside a node. Its names differ from all names around it; ``free`` are those it takes from there."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    declared: Mapping[str, tuple[int, tuple[int | str | None, ...]]]
    free: tuple[str, ...] = ()

    @property
    def own(self) -> list[str]:
        """Names it makes: formal inputs and results of its nodes."""
        return [*self.inputs, *(o for n in self.nodes for o in n.outputs if o)]

    def renamed(self, names: Mapping[str, str], suffix: str) -> Body:
        """With tensors renamed."""

        def new(side: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(names.get(n, n) for n in side)

        nodes = tuple(n.renamed(names, suffix) for n in self.nodes)
        return replace(self, inputs=new(self.inputs), outputs=new(self.outputs), nodes=nodes, free=new(self.free))


@dataclass(slots=True)
class Graph:
    """A checked, ordered graph. ``inputs``: element type and dims (int, symbol, or None); ``annotated`` likewise for
    inner tensors, as the file states them."""

    file: str
    sha256: str
    producer: str
    opsets: dict[str, int]
    nodes: list[Node]
    inputs: dict[str, tuple[int, tuple[int | str | None, ...]]]
    outputs: list[str]
    stored: dict[str, Stored]
    annotated: dict[str, tuple[int, tuple[int | str | None, ...]]] = field(default_factory=dict)
    unshaped: frozenset[str] = frozenset()
    """Inputs whose rank the file does not state."""
    notes: list[str] = field(default_factory=list)
    """What was found in the file that a user should know; part of the trace's report."""
    sources: dict[str, onnx.TensorProto | onnx.SparseTensorProto] = field(default_factory=dict)
    """The protos of stored tensors: only ``--verify`` looks at their data."""
    calls: list[tuple[Node, list[Node]]] = field(default_factory=list)
    """Calls of functions, the outermost ones, with the nodes in their place."""

    def until(self, tensors: Sequence[str]) -> Graph:
        """The part that computes ``tensors``, which become the outputs: results of nodes, or outputs of any kind."""
        made = dict.fromkeys([*self.outputs, *(o for n in self.nodes for o in n.outputs)])
        unknown = [t for t in tensors if t not in made]
        if unknown:
            raise CompileError(
                [Problem(f"no node makes '{t}'", Place(self.file), did_you_mean(t, list(made))) for t in unknown]
            )
        return ordered(replace(self, outputs=list(tensors)))


def ordered(graph: Graph) -> Graph:
    """Program order, dead nodes dropped; one error lists all that is wrong with the wiring."""
    known = graph.stored.keys() | graph.inputs.keys()
    both = [(o, n) for n in graph.nodes for o in n.outputs if o in known]
    if both:
        raise CompileError(
            [
                Problem(
                    f"tensor '{o}' is {'stored' if o in graph.stored else 'an input'}, and made by {n}",
                    Place(graph.file),
                )
                for o, n in both
            ]
        )
    nodes = live_nodes(graph.nodes, graph.outputs, known, graph.file)
    return replace(graph, nodes=nodes)


def live_nodes(nodes: Sequence[Node], outputs: Sequence[str], known: Container[str], file: str) -> list[Node]:
    """The nodes that ``outputs`` need, in program order. ``known``: tensors that exist before any of them runs.

    Raises :class:`CompileError` with all tensors that are made twice or by nothing, and a cycle.
    """
    problems: list[Problem] = []
    place = Place(file)
    made: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for o in filter(None, node.outputs):
            if o in made:
                problems.append(Problem(f"tensor '{o}' is made twice: by {nodes[made[o]]} and {node}", place))
            made[o] = i
    order = nx.DiGraph()
    order.add_nodes_from(range(len(nodes)))
    for i, node in enumerate(nodes):
        for name in node.needs:
            if name in made:
                order.add_edge(made[name], i)
            elif name not in known:
                what = f"input '{name}' of {node} is made by nothing"
                problems.append(Problem(what, place, "export the model again"))
    if not nx.is_directed_acyclic_graph(order):
        cycle = [str(nodes[a]) for a, _ in nx.find_cycle(order)]
        shown = " -> ".join([*cycle[:8], *(["..."] if len(cycle) > 8 else []), cycle[0]])
        problems.append(Problem(f"the graph has a cycle: {shown}", place, "export the model again"))
    problems.extend(
        Problem(f"output '{out}' is made by nothing", place, "export the model again")
        for out in outputs
        if out not in made and out not in known
    )
    if problems:
        raise CompileError(problems)
    needed: set[int] = set()
    for out in outputs:
        if out in made and made[out] not in needed:
            needed |= {made[out], *nx.ancestors(order, made[out])}
    return [nodes[i] for i in nx.lexicographical_topological_sort(order) if i in needed]
