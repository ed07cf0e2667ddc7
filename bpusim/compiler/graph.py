"""The ONNX front end: a file or model proto becomes a plain graph. Weight data is never read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import onnx

from bpusim.errors import CompileError, Place, Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ELEMENT_BITS", "Graph", "Node", "Stored", "load_graph", "read_model"]

_SMALL = 4096
"""Constants up to this many integer elements keep their values: they may steer shapes."""
_FEW = 16

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
    onnx.TensorProto.UINT4: 4,
    onnx.TensorProto.INT4: 4,
}
"""Stored bits of an element by ONNX element type."""

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
    """A tensor whose bytes belong to the model: element type, dims, and values only when small integers."""

    dtype: int
    dims: tuple[int, ...]
    values: NDArray[np.int64] | None = None
    floats: tuple[float, ...] | None = None
    """Of a few floating-point numbers: they may be the scales of a resize."""

    @property
    def bytes(self) -> int:
        """Stored bytes: elements times bits, packed and rounded up; never the file's size."""
        elements = 1
        for d in self.dims:
            elements *= d
        return -(-elements * ELEMENT_BITS[self.dtype] // 8)


@dataclass(frozen=True, slots=True)
class Node:
    """An operator call."""

    type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.domain + '::' if self.domain else ''}{self.type} '{self.name or self.outputs[0]}'"


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

    def until(self, tensors: Sequence[str]) -> Graph:
        """The part that computes ``tensors``, which become the outputs."""
        made = {o: n for n in self.nodes for o in n.outputs}
        unknown = [t for t in tensors if t not in made]
        if unknown:
            from bpusim.errors import did_you_mean

            raise CompileError(
                [Problem(f"no node makes '{t}'", Place(self.file), did_you_mean(t, list(made))) for t in unknown]
            )
        return _ordered(
            Graph(
                self.file,
                self.sha256,
                self.producer,
                self.opsets,
                self.nodes,
                self.inputs,
                list(tensors),
                self.stored,
                self.annotated,
            )
        )


def read_model(path: str | Path) -> tuple[onnx.ModelProto, str]:
    """The model proto of a file, without external data, and the file's SHA-256."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as e:
        raise CompileError(f"cannot read the model: {e.strerror}", place=Place(str(path))) from None
    if data.startswith(b"version https://git-lfs"):
        raise CompileError("this is a Git LFS pointer, not the model", place=Place(str(path)), do="run: git lfs pull")
    try:
        model = onnx.load_model_from_string(data)
    except Exception as e:
        raise CompileError(
            "not an ONNX file, or a damaged one", place=Place(str(path)), do="export or download it again"
        ) from e
    if not model.HasField("graph"):
        raise CompileError(
            "not an ONNX file: it holds no graph", place=Place(str(path)), do="export or download it again"
        )
    return model, hashlib.sha256(data).hexdigest()


def load_graph(model: onnx.ModelProto, file: str, sha256: str) -> Graph:
    """The main graph of ``model``, in program order, without what its outputs do not need.

    Raises :class:`CompileError` for control flow, dangling inputs, a tensor made twice, and cycles.
    """
    try:
        return _read_graph(model, file, sha256)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as e:
        what = f"the file is damaged: {type(e).__name__}: {e}"
        raise CompileError(what, place=Place(file), do="export or download it again") from e


def _read_graph(model: onnx.ModelProto, file: str, sha256: str) -> Graph:
    g = model.graph
    stored = {t.name: _stored(t) for t in g.initializer}
    nodes = []
    for n in g.node:
        attrs = {a.name: _attribute(a) for a in n.attribute}
        domain = "" if n.domain == "ai.onnx" else n.domain
        if n.op_type == "Constant" and not domain:
            stored[n.output[0]] = _constant(attrs)
        else:
            nodes.append(Node(n.op_type, domain, n.name, tuple(n.input), tuple(n.output), attrs))
    inputs = {v.name: _declared(v) for v in g.input if v.name not in stored}
    annotated = {v.name: _declared(v) for v in (*g.value_info, *g.output)}
    return _ordered(
        Graph(
            file,
            sha256,
            " ".join(x for x in (model.producer_name, model.producer_version) if x),
            {o.domain or "ai.onnx": o.version for o in model.opset_import},
            nodes,
            inputs,
            [v.name for v in g.output],
            stored,
            annotated,
        )
    )


def _ordered(graph: Graph) -> Graph:
    """Program order, dead nodes dropped; one error lists all that is wrong with the wiring."""
    problems: list[Problem] = []
    place = Place(graph.file)
    made: dict[str, int] = {}
    for i, node in enumerate(graph.nodes):
        for o in filter(None, node.outputs):
            if o in made:
                problems.append(Problem(f"tensor '{o}' is made twice: by {graph.nodes[made[o]]} and {node}", place))
            made[o] = i
    order = nx.DiGraph()
    order.add_nodes_from(range(len(graph.nodes)))
    for i, node in enumerate(graph.nodes):
        for name in filter(None, node.inputs):
            if name in made:
                order.add_edge(made[name], i)
            elif name not in graph.stored and name not in graph.inputs:
                problems.append(
                    Problem(f"input '{name}' of {node} is made by nothing", place, "export the model again")
                )
    if not nx.is_directed_acyclic_graph(order):
        cycle = [str(graph.nodes[a]) for a, _ in nx.find_cycle(order)]
        problems.append(Problem("the graph has a cycle: " + " -> ".join(cycle[:8]), place))
    problems.extend(
        Problem(f"output '{out}' is made by nothing", place, "export the model again")
        for out in graph.outputs
        if out not in made and out not in graph.stored and out not in graph.inputs
    )
    if problems:
        raise CompileError(problems)
    needed: set[int] = set()
    for out in graph.outputs:
        if out in made and made[out] not in needed:
            needed |= {made[out], *nx.ancestors(order, made[out])}
    nodes = [graph.nodes[i] for i in nx.lexicographical_topological_sort(order) if i in needed]
    return Graph(
        graph.file,
        graph.sha256,
        graph.producer,
        graph.opsets,
        nodes,
        graph.inputs,
        graph.outputs,
        graph.stored,
        graph.annotated,
    )


def _declared(value: onnx.ValueInfoProto) -> tuple[int, tuple[int | str | None, ...]]:
    t = value.type.tensor_type
    dims = [d.dim_param or (d.dim_value if d.HasField("dim_value") else None) for d in t.shape.dim]
    return t.elem_type, tuple(dims)


def _stored(t: onnx.TensorProto) -> Stored:
    dims = tuple(t.dims)
    if t.data_type not in ELEMENT_BITS:
        name = (
            onnx.TensorProto.DataType.Name(t.data_type)
            if t.data_type in onnx.TensorProto.DataType.values()
            else t.data_type
        )
        raise CompileError(f"tensor '{t.name}' has element type {name}, which has no known size")
    external = t.data_location == onnx.TensorProto.EXTERNAL
    small = int(np.prod(dims, dtype=np.int64)) <= _SMALL
    if t.data_type in INTEGER and small and not external:
        return Stored(t.data_type, dims, onnx.numpy_helper.to_array(t).astype(np.int64))
    held = not external and (t.raw_data or t.float_data)
    if t.data_type == onnx.TensorProto.FLOAT and held and int(np.prod(dims, dtype=np.int64)) <= _FEW:
        return Stored(t.data_type, dims, floats=tuple(onnx.numpy_helper.to_array(t).reshape(-1).tolist()))
    return Stored(t.data_type, dims)


def _constant(attrs: dict[str, Any]) -> Stored:
    if "value" in attrs:
        return _stored(attrs["value"])
    for key, dtype in (("value_int", onnx.TensorProto.INT64), ("value_ints", onnx.TensorProto.INT64)):
        if key in attrs:
            values = np.array(attrs[key], dtype=np.int64)
            return Stored(dtype, values.shape, values)
    for key in ("value_float", "value_floats"):
        if key in attrs:
            numbers = np.array(attrs[key])
            return Stored(onnx.TensorProto.FLOAT, numbers.shape, floats=tuple(numbers.reshape(-1).tolist()))
    raise CompileError("a Constant node holds no numbers (strings and sparse values are not supported yet)")


def _attribute(a: onnx.AttributeProto) -> Any:
    if a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return a
    value = onnx.helper.get_attribute_value(a)
    return value.decode() if isinstance(value, bytes) else value
