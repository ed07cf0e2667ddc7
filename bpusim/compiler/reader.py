"""The ONNX front end: a model proto becomes a plain graph, its functions inlined. Weight data is never read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from bpusim.compiler.dead import dead_parts
from bpusim.compiler.files import told_of
from bpusim.compiler.graph import Body, Graph, Node, Stored, live_nodes, ordered
from bpusim.compiler.nested import all_tensors
from bpusim.compiler.opsets import check_versions
from bpusim.compiler.tensors import constant, constant_proto, sparse, stored
from bpusim.compiler.twins import twins
from bpusim.errors import CompileError, Place, Problem

__all__ = ["load_graph"]

_MOST = 500_000
"""Nodes of a graph whose functions are inlined; more is a file made to exhaust us."""
_SPARSE = "sparse tensor '{}' is taken as dense: the array skips no zeros"
_Dims = tuple[int | str | None, ...]
_Key = tuple[str, str, str]


def load_graph(model: onnx.ModelProto, file: str, sha256: str) -> Graph:
    """The main graph of ``model``, in program order, without what its outputs do not need.

    Raises :class:`CompileError` for dangling inputs, a tensor made twice, cycles, functions that call themselves, and
    operator sets that are too old or too new.
    """
    try:
        with told_of(file):
            return _Reader(model, file).graph(sha256)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as e:
        what = f"the file is damaged: {type(e).__name__}: {e}"
        raise CompileError(what, place=Place(file), do="export or download it again") from e


@dataclass(slots=True)
class _Scope:
    """What names mean here: of a graph's or a function's tensors, of a function's attributes, and the opsets."""

    names: Mapping[str, str]
    prefix: str
    opset: int
    attrs: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    calls: tuple[_Key, ...] = ()


class _Reader:
    """Reads one model. Every tensor gets a name of its own, whatever graph or call it stands in."""

    def __init__(self, model: onnx.ModelProto, file: str) -> None:
        self.model, self.file = model, file
        self.functions: dict[_Key, onnx.FunctionProto] = {
            (_domain(f.domain), f.name, f.overload): f for f in model.functions
        }
        self.stored: dict[str, Stored] = {}
        self.sources: dict[str, onnx.TensorProto | onnx.SparseTensorProto] = {}
        self.calls: list[tuple[Node, list[Node]]] = []
        self.notes: list[str] = []
        self.problems: list[Problem] = []
        self.used: set[str] = set()
        self.count = 0

    def graph(self, sha256: str) -> Graph:
        """The whole model."""
        model, g = self.model, self.model.graph
        self.notes += check_versions(model, self.file)
        self._store(g, {})
        self._compare(g)
        opsets = {o.domain or "ai.onnx": o.version for o in model.opset_import}
        self.used |= {v.name for v in g.input} | {o for n in g.node for o in n.output} | self.stored.keys()
        names = _Same()
        nodes = self._nodes(g.node, _Scope(names, "", 0))
        if self.problems:
            raise CompileError(self.problems)
        inputs = {v.name: _declared(v) for v in g.input if v.name not in self.stored}
        graph = Graph(
            self.file,
            sha256,
            " ".join(x for x in (model.producer_name, model.producer_version) if x),
            opsets,
            nodes,
            inputs,
            [v.name for v in g.output],
            self.stored,
            {v.name: _declared(v) for v in (*g.value_info, *g.output)},
            frozenset(v.name for v in g.input if not v.type.tensor_type.HasField("shape")),
            self.notes,
            self.sources,
            self.calls,
        )
        live = ordered(graph)
        live.notes += dead_parts(graph, live) + twins(all_tensors(model))
        return live

    def _store(self, g: onnx.GraphProto, names: dict[str, str]) -> None:
        """Keep the initialisers of a graph, under ``names`` where it gives one."""
        for t in g.initializer:
            self._keep(names.get(t.name, t.name), stored(t), t)
        for s in g.sparse_initializer:
            name = names.get(s.values.name, s.values.name)
            self._keep(name, sparse(s), s)
            self.notes.append(_SPARSE.format(name))

    def _compare(self, g: onnx.GraphProto) -> None:
        """Note weights that the file lists among its inputs with other dims."""
        for name, (_, dims) in ((v.name, _declared(v)) for v in g.input if v.name in self.stored):
            own = list(self.stored[name].dims)
            same = len(dims) == len(own) and all(d == o for d, o in zip(dims, own, strict=True) if isinstance(d, int))
            if dims and not same:
                self.notes.append(f"the file states '{name}' as {list(dims)}; stored and used is {own}")

    def _keep(self, name: str, tensor: Stored, source: onnx.TensorProto | onnx.SparseTensorProto | None) -> None:
        """A stored tensor, which nothing else may be called."""
        if name in self.stored:
            self.problems.append(
                Problem(f"tensor '{name}' is stored twice", Place(self.file), "export the model again")
            )
        self.stored[name] = tensor
        if source is not None:
            self.sources[name] = source

    def _fresh(self, name: str, prefix: str) -> str:
        """``name``, or one like it that nothing has yet."""
        n, out = 1, name
        while out in self.used:
            out = f"{prefix}/{name}" if n == 1 else f"{prefix}/{name}#{n}"
            n += 1
        self.used.add(out)
        return out

    def _nodes(self, protos: Iterable[onnx.NodeProto], scope: _Scope) -> list[Node]:
        """Nodes with functions inlined; constants become stored tensors."""
        out: list[Node] = []
        for n in protos:
            self.count += 1
            if self.count > _MOST:
                raise CompileError(f"more than {_MOST} nodes once functions are inlined", place=Place(self.file))
            domain = _domain(n.domain)
            attributes = [a for p in n.attribute if (a := _referred(p, scope.attrs)) is not None]
            inputs = tuple(scope.names[i] if i else "" for i in n.input)
            outputs = tuple(scope.names[o] if o else "" for o in n.output)
            function = self.functions.get((domain, n.op_type, n.overload))
            if function is not None:
                nodes = self._inlined(function, n, inputs, outputs, attributes, scope)
                if not scope.calls:
                    call = Node(n.op_type, domain, n.name, inputs, outputs, {a.name: _attribute(a) for a in attributes})
                    self.calls.append((call, nodes))
                out += nodes
                continue
            name = f"{scope.prefix}/{n.name}" if scope.prefix and n.name else n.name
            if n.op_type == "Constant" and not domain and outputs:
                given = {a.name: _attribute(a) for a in attributes}
                self._keep(outputs[0], constant(given), constant_proto(given))
                if any(a.name == "sparse_value" for a in attributes):
                    self.notes.append(_SPARSE.format(outputs[0]))
                continue
            owner = name or next(filter(None, outputs), n.op_type)
            attrs = {a.name: self._body(a, owner, scope) if a.HasField("g") else _attribute(a) for a in attributes}
            out.append(Node(n.op_type, domain, name, inputs, outputs, attrs, scope.opset))
        return out

    def _inlined(
        self,
        function: onnx.FunctionProto,
        call: onnx.NodeProto,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: list[onnx.AttributeProto],
        scope: _Scope,
    ) -> list[Node]:
        """The nodes of a function in place of a call of it, its inner names made unlike all others."""
        key = (_domain(function.domain), function.name, function.overload)
        label = call.name or next(filter(None, outputs), call.op_type)
        if key in scope.calls:
            what = f"function {key[0]}::{key[1]} calls itself, by node '{label}'"
            self.problems.append(Problem(what, Place(self.file), "export the model again"))
            return []
        path = f"{scope.prefix}/{label}" if scope.prefix else label
        names = {i: (inputs[k] if k < len(inputs) else "") for k, i in enumerate(function.input)}
        names |= {o: outputs[k] for k, o in enumerate(function.output) if k < len(outputs) and outputs[k]}
        for n in function.node:
            for o in filter(None, n.output):
                if o not in names:
                    names[o] = self._fresh(f"{path}/{o}", path)
        copies: list[Node] = []
        made = {o for n in function.node for o in n.output}
        for k, o in enumerate(function.output):  # a result that is an input, handed through
            if k < len(outputs) and outputs[k] and o not in made:
                source = dict(zip(function.input, inputs, strict=False)).get(o)
                if source:
                    copies.append(Node("Identity", "", path, (source,), (outputs[k],), {}))
        given = {a.name: a for a in attributes}
        attrs = {a.name: a for a in function.attribute_proto} | given
        opsets = {_domain(o.domain): o.version for o in function.opset_import}
        inner = _Scope(_Or(names, _Nothing(path)), path, opsets.get("", 0), attrs, (*scope.calls, key))
        return [*self._nodes(function.node, inner), *copies]

    def _body(self, a: onnx.AttributeProto, owner: str, scope: _Scope) -> Body:
        """A graph inside node ``owner``."""
        g = a.g
        prefix = f"{owner}/{a.name}"
        own = [v.name for v in g.input]
        own += [t.name for t in g.initializer] + [s.values.name for s in g.sparse_initializer]
        own += [o for n in g.node for o in n.output if o]
        names = {name: self._fresh(name, prefix) for name in dict.fromkeys(own)}
        self._store(g, names)
        inner = _Scope(_Or(names, scope.names), scope.prefix, scope.opset, scope.attrs, scope.calls)
        nodes = self._nodes(g.node, inner)
        inputs, outputs = (tuple(inner.names[v.name] for v in side) for side in (g.input, g.output))
        try:
            nodes = live_nodes(nodes, outputs, _All(), self.file)
        except CompileError as e:
            self.problems += e.problems
        made = {*inputs, *(o for n in nodes for o in n.outputs)}
        reads = dict.fromkeys([*(x for n in nodes for x in n.needs), *outputs])
        free = tuple(x for x in reads if x not in made and x not in self.stored)
        declared = {inner.names[v.name]: _declared(v) for v in (*g.input, *g.value_info, *g.output)}
        return Body(a.name, inputs, outputs, tuple(nodes), declared, free)


class _Same(dict[str, str]):
    """Names of the main graph: each means itself."""

    def __missing__(self, name: str) -> str:
        return name


class _Nothing(dict[str, str]):
    """Names around a function: it sees none, so that each is one that nothing makes."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def __missing__(self, name: str) -> str:
        return f"{self.path}/{name}"


class _Or(dict[str, str]):
    """Names of an inner graph or a function; others are those around it."""

    def __init__(self, names: Mapping[str, str], around: Mapping[str, str]) -> None:
        super().__init__(names)
        self.around = around

    def __missing__(self, name: str) -> str:
        return self.around[name]


class _All:
    """Contains every name: what a body takes from around it is checked where the body stands."""

    def __contains__(self, name: object) -> bool:
        return True


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _referred(a: onnx.AttributeProto, attrs: Mapping[str, onnx.AttributeProto]) -> onnx.AttributeProto | None:
    """An attribute, or what the caller of a function gave in its place; None if the caller gave none."""
    if not a.ref_attr_name:
        return a
    given = attrs.get(a.ref_attr_name)
    if given is None:
        return None
    out = onnx.AttributeProto()
    out.CopyFrom(given)
    out.name = a.name
    return out


def _declared(value: onnx.ValueInfoProto) -> tuple[int, _Dims]:
    t = value.type.tensor_type
    # Some exporters write -1 for a size they do not know.
    dims = [d.dim_param or (d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None) for d in t.shape.dim]
    return t.elem_type, tuple(dims)


def _attribute(a: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(a)
    return value.decode(errors="replace") if isinstance(value, bytes) else value
