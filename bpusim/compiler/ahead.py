"""How long a loop without a trip count goes on, worked out ahead from its condition alone.

NOTE: for speed. A pass that is walked costs each of its nodes; an endless loop is found out by the few that its
condition needs.
"""

from __future__ import annotations

from bpusim.compiler.dims import as_expr
from bpusim.compiler.folding import MALFORMED, folded
from bpusim.compiler.graph import Body, Node
from bpusim.compiler.nested import live, needs
from bpusim.compiler.values import Value
from bpusim.compiler.walk import Walk
from bpusim.errors import CompileError

__all__ = ["goes_on"]

_OLD = 7
"""Operator sets before it have forms that take their inputs otherwise."""


def goes_on(walk: Walk, body: Body, carried: tuple[str, ...], most: int) -> bool:
    """Whether the condition of ``body`` is known to hold for more than ``most`` passes.

    ``carried``: the states before the first pass. False also where the condition is not known: the walk finds out.
    """
    count, going, *formals = body.inputs
    result, *after = body.outputs
    nodes, steered = _slice(body)
    states = [k for k, name in enumerate(formals) if name in steered]
    if any(n.bodies or (n.opset or walk.graph.opsets.get("ai.onnx", 1)) < _OLD for n in nodes):
        return False
    known = {going: Value((), 9, (as_expr(1),), book=True)}
    for k in states:
        start = walk.values.get(carried[k])
        if start is None:
            return False
        known[formals[k]] = start
    for number in range(most):
        known[count] = Value((), 7, (as_expr(number),), book=True)
        if not _one_pass(walk, nodes, known) or _truth(walk, known, result) != 1:
            return False
        if count not in steered and not states:
            return True  # each pass is as the one before it
        known |= {formals[k]: _value(walk, known, after[k]) for k in states}
    return True


def _slice(body: Body) -> tuple[list[Node], set[str]]:
    """The nodes that the condition needs, those that make a state it needs too, and the names that they read."""
    formals, after = body.inputs[2:], body.outputs[1:]
    wanted = {body.outputs[0]}
    while True:
        nodes = live(body.nodes, wanted)
        reads = wanted | set(needs(nodes))
        more = {a for f, a in zip(formals, after, strict=False) if f in reads} - wanted
        if not more:
            return nodes, reads
        wanted |= more


def _one_pass(walk: Walk, nodes: list[Node], known: dict[str, Value]) -> bool:
    """Work out ``nodes``; whether that can be done."""
    for n in nodes:
        inputs = [known.get(i) or walk.values.get(i) for i in n.inputs]
        try:
            made = (
                None
                if any(i and v is None for i, v in zip(n.inputs, inputs, strict=True))
                else folded(n, inputs, walk.stored)
            )
        except (*MALFORMED, CompileError):
            return False
        if made is None:
            return False
        known.update(zip(n.outputs, made, strict=False))
    return True


def _value(walk: Walk, known: dict[str, Value], name: str) -> Value:
    return known[name] if name in known else walk.values[name]


def _truth(walk: Walk, known: dict[str, Value], name: str) -> int | None:
    value = known.get(name) or walk.values.get(name)
    if value is None or value.const is None or len(value.const) != 1 or not value.const[0].is_const:
        return None
    return int(value.const[0])
