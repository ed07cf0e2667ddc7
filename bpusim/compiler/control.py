"""Control flow: the branch of an If that is taken, the passes of a Loop or a Scan. Never both, never a guess."""

from __future__ import annotations

import numpy as np
import onnx

from bpusim.compiler.ahead import goes_on
from bpusim.compiler.dims import as_expr
from bpusim.compiler.graph import Body, Node, Stored
from bpusim.compiler.values import Value
from bpusim.compiler.walk import MOST, Step, Walk

__all__ = ["CONTROL", "expand"]

CONTROL = {"If", "Loop", "Scan"}
"""Ops whose work is that of the graphs inside them."""


def expand(walk: Walk, node: Node) -> None:
    """Put what ``node`` runs in its place."""
    start = len(walk.program.nodes)
    walk.push(lambda: walk.program.expanded.append((node, start, len(walk.program.nodes))))
    {"If": _if, "Loop": _loop, "Scan": _scan}[node.type](walk, node)


def _body(walk: Walk, node: Node, name: str) -> Body | None:
    body = node.attrs.get(name)
    if not isinstance(body, Body):
        walk.refuse(node, f"it has no {name}", "export the model again")
        return None
    return body


def _copy(walk: Walk, source: str, target: str) -> Step:
    return lambda: walk.rename(source, target)


def _if(walk: Walk, node: Node) -> None:
    """The branch that the condition picks; ``--assume NODE=then`` or ``else`` where it is not known before the run."""
    condition = walk.number(node.inputs[0])
    if condition is not None:
        branch, why = ("then" if condition else "else"), "its condition is known"
    else:
        assumed = walk.assumed(node)
        if assumed not in ("then", "else"):
            what = f"its condition '{node.inputs[0]}' is not known before the run"
            if assumed is not None:
                what = f"--assume {node.label}={assumed}: an If takes then or else"
            walk.refuse(node, what, walk.how(node.inputs[0], node, "then (or else)"))
            return
        branch, why = assumed, "assumed"
    body = _body(walk, node, f"{branch}_branch")
    if body is None:
        return
    if len(body.outputs) < len(node.outputs):
        walk.refuse(node, f"its {branch} branch has {len(body.outputs)} results, not {len(node.outputs)}")
        return
    walk.taken[str(node)] = f"{branch}, {why}"
    copies = [_copy(walk, s, t) for s, t in zip(body.outputs, node.outputs, strict=False) if t]
    walk.push(*body.nodes, *copies)


def _pass(body: Body, number: int) -> Body:
    """The body with names of pass ``number``."""
    return body.renamed({n: f"{n}.{number}" for n in body.own}, f".{number}")


def _too_many(walk: Walk, node: Node, body: Body, trips: int) -> bool:
    """Whether so many passes are refused."""
    nodes = trips * max(len(body.nodes), 1)
    if nodes > MOST:
        what = f"{trips} passes of {len(body.nodes)} nodes; at most {MOST} nodes are unrolled"
        walk.refuse(node, what, "bind or assume a smaller count, and scale the result")
    return nodes > MOST


def _endless(walk: Walk, node: Node, body: Body) -> bool:
    """Whether a loop without a trip count, by its condition, is known to take more passes than are unrolled."""
    size = len(body.nodes)
    most = min(MOST // max(size, 1), 2 * MOST // (size + len(node.inputs) - 1))  # nodes; and steps between them
    endless = goes_on(walk, body, tuple(node.inputs[2:]), most)
    if endless:
        what = f"its condition '{body.outputs[0]}' still holds after {most} passes of {size} nodes"
        do = "give it a trip count, or a condition that becomes false sooner"
        walk.refuse(node, f"{what}; at most {MOST} nodes are unrolled", do)
    return endless


def _loop(walk: Walk, node: Node) -> None:
    """As many passes as the trip count says, or until the condition is known to be false."""
    body = _body(walk, node, "body")
    if body is None:
        return
    trip, condition = (node.inputs[i] if len(node.inputs) > i else "" for i in (0, 1))
    states = len(node.inputs) - 2
    if len(body.inputs) != states + 2 or len(body.outputs) != len(node.outputs) + 1 or len(node.outputs) < states:
        walk.refuse(
            node, f"its body takes {len(body.inputs)} and gives {len(body.outputs)} tensors: not as a Loop does"
        )
        return
    trips = walk.number(trip) if trip else None
    given = None
    if trip and trips is None:
        given = trips = walk.assumed_count(node)
        if trips is None:
            why = f"its trip count '{trip}' is not known before the run"
            walk.refuse(node, why, walk.how(trip, node, "NUMBER"))
            return
    started = walk.number(condition) if condition else 1
    if started is None and given is None:
        given = trips = walk.assumed_count(node)
        if trips is None:
            why = f"its condition '{condition}' is not known before the run"
            walk.refuse(node, why, walk.how(condition, node, "NUMBER"))
            return
    if trips is not None and _too_many(walk, node, body, trips):
        return
    if trips is None and started and _endless(walk, node, body):
        return
    passes: list[Body] = []

    def step(carried: tuple[str, ...], going: int | None, going_name: str) -> None:
        """One more pass, if there is one."""
        nonlocal given, trips
        if going is None and given is None:  # the data may end the loop early
            given = trips = walk.assumed_count(node)
            if trips is None:
                why = f"whether it goes on ('{going_name}') is not known before the run"
                walk.refuse(node, why, walk.how(going_name, node, "NUMBER"))
                return
        if going == 0 or (trips is not None and len(passes) >= trips):
            walk.taken[str(node)] = f"{len(passes)} passes, {'known' if given is None else 'assumed'}"
            _end(walk, node, body, carried, passes, [0] * (len(body.outputs) - 1 - states))
            return
        one = _pass(body, len(passes))
        passes.append(one)
        count, goes, *formals = one.inputs
        walk.values[count] = Value((), 7, (as_expr(len(passes) - 1),), book=True, storage=count)
        walk.values[goes] = Value((), 9, (as_expr(1),), book=True, storage=goes)
        walk.program.known |= {count: np.array(len(passes) - 1), goes: np.array(True)}
        starts = [_copy(walk, s, t) for s, t in zip(carried, formals, strict=True)]
        after = one.outputs[1 : 1 + states]
        walk.push(*starts, *one.nodes, lambda: step(after, walk.number(one.outputs[0]), one.outputs[0]))

    step(tuple(node.inputs[2:]), started, condition)


def _scan(walk: Walk, node: Node) -> None:
    """One pass for each element along the scanned axis."""
    body = _body(walk, node, "body")
    if body is None:
        return
    scanned = node.attrs.get("num_scan_inputs", 0)
    states = len(node.inputs) - scanned
    if "directions" in node.attrs or len(body.inputs) != len(node.inputs) or len(body.outputs) != len(node.outputs):
        walk.refuse(node, "its body does not take and give as many tensors as it (or it is of opset 8)")
        return
    axes = node.attrs.get("scan_input_axes", [0] * scanned)
    lengths = []
    for name, axis in zip(node.inputs[states:], axes, strict=True):
        value = walk.values[name]
        if not -len(value.dims) <= axis < len(value.dims):
            walk.refuse(node, f"axis {axis} of '{name}' {list(value.dims)} is scanned")
            return
        lengths.append(value.dims[axis])
    if not lengths or any(n != lengths[0] for n in lengths):
        walk.refuse(node, f"the scanned inputs have lengths {lengths}")
        return
    if not lengths[0].is_const:
        if any(t.startswith("?") for t in lengths[0].terms):
            walk.unbound = True
            walk.lose(node)
        else:
            walk.refuse(node, f"'{node.inputs[states]}' has {lengths[0]} elements to scan: not known before the run")
        return
    if _too_many(walk, node, body, int(lengths[0])):
        return
    passes = [_pass(body, i) for i in range(int(lengths[0]))]
    carried = tuple(node.inputs[:states])
    for i, one in enumerate(passes):
        for name, axis, formal in zip(node.inputs[states:], axes, one.inputs[states:], strict=True):
            whole = walk.values[name]
            walk.program.take(name, axis, i, formal)
            rest = tuple(d for i, d in enumerate(whole.dims) if i != axis % len(whole.dims))
            if whole.weight is not None and all(d.is_const for d in rest):  # each pass reads its part of the weight
                walk.stored[formal] = Stored(whole.dtype, tuple(map(int, rest)))
                walk.values[formal] = Value.of_stored(formal, walk.stored[formal])
            else:
                walk.values[formal] = Value(rest, whole.dtype, book=whole.book, storage=whole.storage)
    items: list[Node | Step] = []
    for one in passes:
        items += [_copy(walk, s, t) for s, t in zip(carried, one.inputs[:states], strict=True)]
        items += one.nodes
        carried = one.outputs[:states]
    walk.taken[str(node)] = f"{len(passes)} passes, known"
    joined = node.attrs.get("scan_output_axes", [0] * (len(node.outputs) - states))
    last = carried
    walk.push(*items, lambda: _end(walk, node, body, last, passes, joined))


def _end(walk: Walk, node: Node, body: Body, carried: tuple[str, ...], passes: list[Body], axes: list[int]) -> None:
    """Results of a loop: the last state, and the passes' other results laid side by side (a copy each)."""
    states = len(carried)
    items: list[Node | Step] = [_copy(walk, s, t) for s, t in zip(carried, node.outputs, strict=False) if t]
    skip = len(body.outputs) - len(node.outputs)  # a Loop's condition
    for k, (target, axis) in enumerate(zip(node.outputs[states:], axes, strict=False)):
        if not target:
            continue
        inner = body.outputs[skip + states + k]
        if not passes:
            dtype, dims = body.declared.get(inner, (1, ()))
            rest = [walk.bindings.size(d, target) for d in dims]
            walk.values[target] = Value((as_expr(0), *rest), dtype, storage=target)
            if dtype and all(d.is_const for d in rest):
                shape = (0, *map(int, rest))
                walk.program.known[target] = np.zeros(shape, onnx.helper.tensor_dtype_to_np_dtype(dtype))
            continue
        pieces = [one.outputs[skip + states + k] for one in passes]
        rows = [f"{target}.{i}" for i in range(len(pieces))]
        items += [Node("Unsqueeze", "", r, (p,), (r,), {"axes": [axis]}) for p, r in zip(pieces, rows, strict=True)]
        items.append(Node("Concat", "", f"{node.label}/{target}", tuple(rows), (target,), {"axis": axis}))
    walk.push(*items)
