"""Walk a graph in program order: dims, folded constants, bookkeeping, and the cost of every op."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import onnx

from bpusim.compiler.cache import Appended, append, is_append, read_appended
from bpusim.compiler.control import CONTROL, expand
from bpusim.compiler.data_sizes import DATA_SIZED, data_sized
from bpusim.compiler.decompose import DECOMPOSED, decomposed
from bpusim.compiler.dims import as_expr
from bpusim.compiler.fold_ints import foldable
from bpusim.compiler.folding import MALFORMED, folded
from bpusim.compiler.graph import ELEMENT_BITS, FLOATS, INTEGER, Graph, Node, Stored
from bpusim.compiler.opsets import adapted
from bpusim.compiler.program import Program
from bpusim.compiler.refusals import refuse_lost, refuse_strings, refuse_type
from bpusim.compiler.rules import DOMAINS, REFUSED, RULES
from bpusim.compiler.symbols import Bindings
from bpusim.compiler.toolchain import facts
from bpusim.compiler.values import Context, Cost, EmptyCacheError, Value, VecWork
from bpusim.compiler.walk import Walk
from bpusim.errors import CompileError, Problem
from bpusim.hardware.toolchain import Toolchain

__all__ = ["Analysis", "Draft", "analyse"]

_WIDE = 4096
"""A stored matrix of more elements is no table of constants: the op multiplies by it."""
_NAMING = {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}
"""Ops that touch no element, be it a string."""
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
    """Storage of the model's outputs."""
    results: dict[str, str] = field(default_factory=dict)
    """The tensor whose value each output has, by the output's name in the file."""
    stored: dict[str, Stored] = field(default_factory=dict)
    views: list[Node] = field(default_factory=list)
    bookkeeping: list[Node] = field(default_factory=list)
    kv_dtype: int = onnx.TensorProto.FLOAT16
    caches: dict[str, Appended] = field(default_factory=dict)
    """Caches that the graph itself joins, by the tensor that it makes of them."""
    empty_cache: bool = False
    """Whether it holds over an empty cache only."""
    taken: dict[str, str] = field(default_factory=dict)
    """What the data would decide and was bound or assumed instead: branches, passes, counts, values."""
    program: Program = field(default_factory=Program)
    """The same as a graph."""
    notes: list[str] = field(default_factory=list)
    """What was found that a user should know."""
    decomposed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Ops that the toolchain does not take and that were rewritten, by type: how many, into what, why."""
    toolchain: Toolchain | None = None


def analyse(
    graph: Graph,
    bindings: Bindings,
    assume: Mapping[str, str],
    on_cpu: frozenset[str],
    strict: bool,
    toolchain: Toolchain | None = None,
) -> Analysis:
    """Cost every node of ``graph`` with its sizes bound.

    ``assume``: what nodes are taken to do whose outcome only the data decide. Op types in ``on_cpu`` go to the CPU; so
    do ops without a rule, or, with ``strict``, they are refused, and those that the ``toolchain`` does not take and no
    rule rewrites. One :class:`CompileError` tells all that is wrong.
    """
    out = Analysis(stored=dict(graph.stored), outputs=graph.outputs, notes=list(graph.notes), toolchain=toolchain)
    walk = Walk(graph, bindings, assume, out.values, out.stored, deque(graph.nodes))
    for name, t in graph.stored.items():
        out.values[name] = Value.of_stored(name, t)
    for name, (dtype, dims) in graph.inputs.items():
        value = _input(name, dtype, dims, bindings)
        if name in graph.unshaped and name not in bindings.shapes:
            walk.lost.add(name)
            if any(name in n.needs for n in graph.nodes):
                what, do = f"the file does not state the shape of input '{name}'", f"give it: --bind {name}=1x3x224x224"
                if not dtype:
                    what, do = f"input '{name}' is a list or an optional, no tensor", "cut it off with --until"
                walk.problems.append(Problem(what, walk.place, do))
            continue
        if dtype not in ELEMENT_BITS and dtype != onnx.TensorProto.STRING:
            walk.lost.add(name)
            what = f"input '{name}' has element type {dtype}, which has no known size"
            walk.problems.append(Problem(what, walk.place, "check the model with onnx"))
            continue
        out.values[name] = value
        out.inputs.append(name)
    while (node := walk.next()) is not None:
        _one(node, walk, out, on_cpu, strict)
    walk.finish()
    _check_bound(walk, out)
    out.taken, out.program = walk.taken, walk.program
    out.taken |= {f"input '{n}'": f"{v}, bound" for n, v in bindings.values.items()}
    out.results = {name: name for name in graph.outputs if name in out.values}
    out.outputs = [out.values[name].storage or name for name in out.results]
    return out


def _one(node: Node, walk: Walk, out: Analysis, on_cpu: frozenset[str], strict: bool) -> None:
    """One node: folded, expanded, a view, bookkeeping, or an op with a cost. What is wrong with it is noted."""
    rule = RULES.get(node.type) if node.domain in DOMAINS else None
    special = not node.domain and (node.type in CONTROL or node.type in DATA_SIZED)
    if walk.lost.intersection(node.needs):
        if rule is None and not special and not foldable(node):
            refuse_lost(node, walk)
        walk.lose(node)
        return
    found = [walk.values.get(i) for i in node.inputs]
    absent = [i for i, v in zip(node.inputs, found, strict=True) if i and v is None]
    if absent:
        what = f"input '{absent[0]}' is a further result of another op, which has no cost rule for it"
        walk.refuse(node, what, "remove what uses it")
        return
    opset = node.opset or walk.graph.opsets.get("ai.onnx", 1)
    context = Context(node, found, out.stored, opset, walk.graph.file)
    try:
        context.inputs = inputs = adapted(context)
        if not (special and node.type in CONTROL):
            walk.program.nodes.append(node)
        if inputs is not found and (second := inputs[1]) is not None:
            walk.program.old.append((node, second.dims))
        known = folded(node, inputs, out.stored)
        if known is not None:
            out.values.update(zip(node.outputs, known, strict=False))
            out.bookkeeping.append(node)
            walk.program.folded.append(node)
            return
        if node.type == "Cast" and _cast_weight(node, inputs[0], out):
            return
        if any(v is not None and v.dtype == onnx.TensorProto.STRING for v in inputs) and node.type not in _NAMING:
            refuse_strings(node, inputs, rule is None, walk)
            return
        if special and node.type in CONTROL:
            expand(walk, node)
            return
        if special:
            rule = data_sized(walk)
        elif is_append(node, walk.graph):
            rule = append(out)
        if rule is not None and node.type not in on_cpu and _rewritten(context, walk, out):
            return
        if rule is None:
            if not _without_rule(node, inputs, walk, out, strict):
                walk.lose(node)
            return
        cost = rule(context)
        if cost is not None:
            cost.weights += context.uncharged()
    except CompileError as e:
        if any(t.startswith("?") for v in found if v is not None for d in v.dims for t in d.terms):
            walk.unbound = True
        else:
            for p in e.problems:
                emptied = isinstance(e, EmptyCacheError)
                bound = walk.how_bound(context.steering) if context.steering else ""
                walk.refuse(node, p.what.removeprefix(f"{node}: "), p.do or bound, emptied)
        walk.lose(node)
        return
    except MALFORMED as e:  # attributes of another kind or number than the operator set says
        what = f"not as the operator set defines it ({type(e).__name__}: {e})"
        walk.refuse(node, what, "check the model with onnx")
        return
    _record(context, cost, walk, out, on_cpu)


def _rewritten(context: Context, walk: Walk, out: Analysis) -> bool:
    """Whether the toolchain does not take the node, and others that it takes now stand in its place."""
    node, chain = context.node, out.toolchain
    if chain is None or node.type not in DECOMPOSED:
        return False
    why = chain.refuses(node.type, facts(context))
    nodes = decomposed(context, walk, chain) if why else []
    if nodes:
        row = out.decomposed.setdefault(node.type, {"count": 0, "into": [n.type for n in nodes], "why": why})
        row["count"] += 1
        walk.program.nodes.pop()  # the node itself: others stand in its place
        walk.push(*nodes)
    return bool(nodes)


def _cast_weight(node: Node, value: Value | None, out: Analysis) -> bool:
    """A stored tensor cast to floats of another width stays the tensor it is: its bytes are those in the file."""
    to = int(node.attrs["to"])
    if value is None or value.weight is None or not {value.dtype, to} <= FLOATS:
        return False
    out.values[node.outputs[0]] = replace(value, dtype=to)
    out.views.append(node)
    return True


def _record(context: Context, cost: Cost | None, walk: Walk, out: Analysis, on_cpu: frozenset[str]) -> None:
    """Keep what a rule found."""
    node, inputs = context.node, context.inputs
    out.values.update(context.outputs)
    made = list(context.outputs.values())
    for name, value in context.outputs.items():
        _compare(name, value, walk, out)
    if all(v is None or v.book or v.const is not None for v in inputs) and all(v.dtype in INTEGER for v in made):
        for v in made:
            v.book = True
        out.bookkeeping.append(node)
    elif cost is None:
        out.views.append(node)
    else:
        why = "forced by --fallback-op" if node.type in on_cpu else cost.cpu
        if not why and out.toolchain is not None:
            why = out.toolchain.refuses(node.type, facts(context))
        draft = _draft(node, inputs, context.outputs, cost, bool(why), why)
        read_appended(draft.inputs, cost, out.caches)
        out.drafts.append(draft)
        if cost.cache_inputs:
            out.kv_dtype = context.value(cost.cache_inputs[0]).dtype


def _compare(name: str, value: Value, walk: Walk, out: Analysis) -> None:
    """Note a shape that the file states otherwise; ours is used. One that the user bound otherwise is wrong."""
    _, dims = walk.graph.annotated.get(name, (0, ()))
    if not dims or walk.bindings.overridden:  # stated for other sizes of the inputs
        return
    ours = list(value.dims)
    for d, e in zip(dims, ours, strict=False):
        if isinstance(d, str) and d in walk.bindings.told and e.is_const and walk.bindings.sizes[d] != e:
            what = f"the size '{d}' is {walk.bindings.sizes[d]} by {walk.bindings.told[d]}, but '{name}' is {ours}"
            walk.problems.append(Problem(what, walk.place))
    same = len(dims) == len(ours) and all(
        not isinstance(d, int) or not e.is_const or d == int(e) for d, e in zip(dims, ours, strict=True)
    )
    if not same:
        out.notes.append(f"the file states '{name}' as {list(dims)}; worked out and used is {ours}")


def _input(name: str, dtype: int, dims: tuple[int | str | None, ...], bindings: Bindings) -> Value:
    shape: tuple[int | str | None, ...] = bindings.shapes.get(name, dims)
    bound = tuple(bindings.size(d, f"{name}[{i}]") for i, d in enumerate(shape))
    value = Value(bound, dtype, book=name in _BOOKKEEPING_INPUTS and dtype in INTEGER, storage=name, fed=True)
    if name in bindings.values:
        value.const = (as_expr(bindings.values[name]),)
    return value


def _draft(
    node: Node, inputs: list[Value | None], outputs: Mapping[str, Value], cost: Cost, cpu: bool, why: str
) -> Draft:
    reads = [v.storage for i, v in enumerate(inputs) if v is not None and not v.static and i not in cost.cache_inputs]
    cache = {node.outputs[i] for i in cost.cache_outputs if i < len(node.outputs)}
    return Draft([node], cost, list(dict.fromkeys(reads)), [n for n in outputs if n not in cache], cpu, why)


def _without_rule(node: Node, inputs: list[Value | None], walk: Walk, out: Analysis, strict: bool) -> bool:
    """A CPU fallback priced as one multiply and one add per element in and out; False where that cannot be.

    What is wrong is noted with the other nodes of its type.
    """
    known = bool(node.domain) or onnx.defs.has(node.type)
    made: dict[str, Value] = {}
    for o in filter(None, node.outputs):
        dtype, dims = walk.graph.annotated.get(o, (onnx.TensorProto.FLOAT, ()))
        bound = [walk.bindings.size(d, "") for d in dims]
        open_ = any(t.startswith("?") for b in bound for t in b.terms)
        if o not in walk.graph.annotated or open_ or dtype not in ELEMENT_BITS or not known:
            return refuse_type(node, walk, known, f", and the file does not state the shape of '{o}'")
        made[o] = Value(tuple(bound), dtype, storage=o)
    stored = [v for v in inputs if v is not None and v.weight is not None]
    wide = any(len(v.dims) > 1 and prod(out.stored[v.weight].dims) > _WIDE for v in stored if v.weight)
    if node.type in REFUSED or wide or node.bodies:
        return refuse_type(node, walk, known, "")
    if strict:
        walk.ruleless.setdefault(f"{node.kind}\n\ndrop --strict to run it on the CPU", []).append(node)
    activations = [v for v in inputs if v is not None and not v.static]
    elements = sum((v.elements for v in [*activations, *made.values()]), as_expr(0))
    out.values.update(made)
    context = Context(node, inputs, out.stored, 1, walk.graph.file)
    weights = [use for v in stored for use in context.operand(v, "other")]
    cost = Cost(vec=[VecWork({"mul": 1, "add": 1}, elements)], weights=weights)
    why = "no cost rule: priced as a multiply and an add per element"
    out.drafts.append(_draft(node, inputs, made, cost, True, why))
    return True


def _check_bound(walk: Walk, out: Analysis) -> None:
    """All symbols that a cost depends on and that nobody bound, in one error."""
    for draft in out.drafts:
        exprs = [g.macs for g in draft.cost.gemms] + [w.rows * w.length for w in draft.cost.vec]
        exprs += [out.values[n].elements for n in (*draft.inputs, *draft.outputs)]
        if any(t.startswith("?") for e in exprs for t in e.terms):
            raise CompileError(walk.unbound_sizes())
