"""Walk a graph in program order: dims, folded constants, bookkeeping, and the cost of every op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import onnx

from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.fold_ints import fold
from bpusim.compiler.graph import INTEGER, Graph, Node, Stored
from bpusim.compiler.rules import DOMAINS, REFUSED, RULES
from bpusim.compiler.values import Context, Cost, Value, VecWork
from bpusim.errors import CompileError, Place, Problem

__all__ = ["Analysis", "Draft", "analyse"]

MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, AssertionError, AttributeError)
_WIDE = 4096
"""A stored matrix of more elements is no table of constants: the op multiplies by it."""
_BOOKKEEPING_INPUTS = ("attention_mask", "position_ids")


@dataclass(slots=True)
class Draft:
    """An op before it is placed: its nodes (several once fused), cost, activations read and made (by storage)."""

    nodes: list[Node]
    cost: Cost
    inputs: list[str]
    outputs: list[str]
    cpu: bool = False
    why_cpu: str = ""

    @property
    def type(self) -> str:
        """Types of its nodes, joined."""
        return "+".join(n.type for n in self.nodes)


@dataclass(slots=True)
class Analysis:
    """All that lowering needs: drafts in order, every tensor's value, and what costs nothing and why."""

    drafts: list[Draft] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    stored: dict[str, Stored] = field(default_factory=dict)
    views: list[Node] = field(default_factory=list)
    bookkeeping: list[Node] = field(default_factory=list)
    kv_dtype: int = onnx.TensorProto.FLOAT16


def analyse(
    graph: Graph,
    bindings: Mapping[str, Expr],
    shapes: Mapping[str, tuple[int, ...]],
    on_cpu: frozenset[str],
    strict: bool,
) -> Analysis:
    """Cost every node of ``graph`` with its symbols bound.

    ``shapes`` overrides whole input shapes. Op types in ``on_cpu`` go to the CPU; so do ops without a rule, or, with
    ``strict``, they are one error that lists them all.
    """
    out = Analysis(stored=dict(graph.stored), outputs=graph.outputs)
    for name, t in graph.stored.items():
        out.values[name] = Value.of_stored(name, t)
    place = Place(graph.file)
    unknown = [n for n in shapes if n not in graph.inputs]
    if unknown:
        raise CompileError(
            [Problem(f"the model has no input '{n}'", place, "inputs: " + ", ".join(graph.inputs)) for n in unknown]
        )
    for name, shape in shapes.items():
        declared = graph.inputs[name][1]
        if declared and len(declared) != len(shape):
            given = "x".join(map(str, shape))
            what = f"--bind {name}={given}: the input has {len(declared)} dimensions: {list(declared)}"
            raise CompileError(what, place=place)
    for name, (dtype, dims) in graph.inputs.items():
        out.values[name] = _input(name, dtype, shapes.get(name, dims), bindings)
        out.inputs.append(name)
    problems: list[Problem] = []
    opset = graph.opsets.get("ai.onnx", 1)
    lost: set[str] = set()
    for node in graph.nodes:
        if lost.intersection(node.inputs):  # what depends on an op of unknown shape cannot be judged
            lost.update(node.outputs)
            continue
        context = Context(
            node, [_known(graph, node, i, out.values) for i in node.inputs], out.stored, opset, graph.file
        )
        inputs = context.inputs
        try:
            folded = fold(node, inputs, out.stored)
        except MALFORMED as e:
            context.fail(f"its sizes cannot be worked out ({e})")
        if folded is not None:
            out.values[node.outputs[0]] = folded
            out.bookkeeping.append(node)
            continue
        rule = RULES.get(node.type) if node.domain in DOMAINS else None
        if rule is None:
            if not _without_rule(graph, node, inputs, out, bindings, strict, problems):
                lost.update(node.outputs)
            continue
        try:
            cost = rule(context)
        except MALFORMED as e:  # attributes of another kind or number than the operator set says
            context.fail(
                f"not as the operator set defines it ({type(e).__name__}: {e})", do="check the model with onnx"
            )
        out.values.update(context.outputs)
        made = list(context.outputs.values())
        if all(v is None or v.book or v.const is not None for v in inputs) and all(v.dtype in INTEGER for v in made):
            for v in made:
                v.book = True
            out.bookkeeping.append(node)
        elif cost is None:
            out.views.append(node)
        else:
            why = "forced by --fallback-op" if node.type in on_cpu else cost.cpu
            out.drafts.append(_draft(node, inputs, context.outputs, cost, bool(why), why))
            if cost.cache_inputs:
                out.kv_dtype = context.value(cost.cache_inputs[0]).dtype
    if problems:
        raise CompileError(problems)
    _check_bound(graph, out)
    out.outputs = [out.values[name].storage or name for name in graph.outputs if name in out.values]
    return out


def _known(graph: Graph, node: Node, name: str, values: Mapping[str, Value]) -> Value | None:
    """What is known of an input; None where it is left out."""
    if not name:
        return None
    if name not in values:
        what = f"{node}: input '{name}' is a further result of another op, which has no cost rule for it"
        raise CompileError(what, place=Place(graph.file), do="remove what uses it")
    return values[name]


def _input(name: str, dtype: int, dims: tuple[int | str | None, ...], bindings: Mapping[str, Expr]) -> Value:
    bound = [
        as_expr(d) if isinstance(d, int) else bindings.get(d or "", Expr({f"?{d or f'{name}[{i}]'}": 1}))
        for i, d in enumerate(dims)
    ]
    return Value(tuple(bound), dtype, book=name in _BOOKKEEPING_INPUTS and dtype in INTEGER, storage=name, fed=True)


def _draft(
    node: Node, inputs: list[Value | None], outputs: Mapping[str, Value], cost: Cost, cpu: bool, why: str
) -> Draft:
    reads = [v.storage for i, v in enumerate(inputs) if v is not None and not v.static and i not in cost.cache_inputs]
    cache = {node.outputs[i] for i in cost.cache_outputs if i < len(node.outputs)}
    return Draft([node], cost, list(dict.fromkeys(reads)), [n for n in outputs if n not in cache], cpu, why)


def _without_rule(
    graph: Graph,
    node: Node,
    inputs: list[Value | None],
    out: Analysis,
    bindings: Mapping[str, Expr],
    strict: bool,
    problems: list[Problem],
) -> bool:
    """A CPU fallback priced as one multiply and one add per element in and out; False where its shape is unknown."""
    place = Place(graph.file)
    name = f"{node.domain + '::' if node.domain else ''}{node.type}"
    if strict:
        problems.append(Problem(f"{node}: no cost rule for {name}", place, "drop --strict to run it on the CPU"))
    made: dict[str, Value] = {}
    for o in filter(None, node.outputs):
        dtype, dims = graph.annotated.get(o, (onnx.TensorProto.FLOAT, ()))
        bound = [as_expr(d) if isinstance(d, int) else bindings.get(d or "") for d in dims]
        if o not in graph.annotated or any(b is None for b in bound):
            what = f"{node}: no cost rule for {name}, and the file does not state the shape of '{o}'"
            problems.append(Problem(what, place, "run shape inference on the file, or remove the op"))
            return False
        made[o] = Value(tuple(b for b in bound if b is not None), dtype, storage=o)
    stored = [v for v in inputs if v is not None and v.weight is not None]
    wide = any(len(v.dims) > 1 and prod(out.stored[v.weight].dims) > _WIDE for v in stored if v.weight)
    nested = any(isinstance(a, onnx.AttributeProto) for a in node.attrs.values())
    if node.type in REFUSED or wide or nested:
        reason = REFUSED.get(node.type, "whose work does not follow from the sizes of its results")
        what = f"{node}: no cost rule for {name}, {reason}"
        problems.append(
            Problem(what, place, "replace it by ops that have one (a MatMul, a Conv), or cut it off with --until")
        )
        return False
    activations = [v for v in inputs if v is not None and not v.static]
    elements = sum((v.elements for v in [*activations, *made.values()]), as_expr(0))
    out.values.update(made)
    context = Context(node, inputs, out.stored, 1, graph.file)
    weights = [use for v in stored for use in context.operand(v, "other")]
    cost = Cost(vec=[VecWork({"mul": 1, "add": 1}, elements)], weights=weights)
    why = "no cost rule: priced as a multiply and an add per element"
    out.drafts.append(_draft(node, inputs, made, cost, True, why))
    return True


def _check_bound(graph: Graph, out: Analysis) -> None:
    """All symbols that a cost depends on and that nobody bound, in one error."""
    missing: set[str] = set()
    for draft in out.drafts:
        exprs = [g.macs for g in draft.cost.gemms] + [w.rows * w.length for w in draft.cost.vec]
        exprs += [out.values[n].elements for n in (*draft.inputs, *draft.outputs)]
        for e in exprs:
            missing |= {t[1:] for t in e.terms if t.startswith("?")}
    if missing:
        raise CompileError(
            [
                Problem(
                    f"the size '{m}' is not bound",
                    Place(graph.file),
                    f"add --bind {m}=NUMBER, or the input's whole shape: --bind INPUT=1x3x224x224",
                )
                for m in sorted(missing)
            ]
        )
