"""Recurrent layers: the gates as matrix products, the states as vector work.

The inputs of all steps pass through ``W`` together; ``R`` waits for the state, so that the array fills and drains once
a step. ``R`` is read once a sequence if it stays on chip, else once a step.
"""

from __future__ import annotations

from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.values import Context, Cost, Gemm, VecWork

__all__ = ["RULES"]

_GATES: dict[str, tuple[int, dict[str, int]]] = {
    "LSTM": (4, {"exp": 5, "div": 5, "add": 12, "mul": 3}),
    "GRU": (3, {"exp": 3, "div": 3, "add": 8, "mul": 3}),
    "RNN": (1, {"exp": 1, "div": 1, "add": 3}),
}
"""Gates, and vector operations for each element of the state and step. A sigmoid is ``exp, add, div`` and a tangent
``exp, 2 add, div``. LSTM: three sigmoids, two tangents, four sums with the input's part, one of the cell, three
products. GRU: two sigmoids, a tangent, three sums, ``h = (1 - z) n + z h``, the reset's product. RNN: a tangent,
a sum."""


def _recurrent(ctx: Context) -> Cost:
    value, w, r = ctx.value(0), ctx.value(1), ctx.value(2)
    if len(value.dims) != 3 or len(w.dims) != 3 or len(r.dims) != 3:
        ctx.fail(f"the input {list(value.dims)} and the weights {list(w.dims)}, {list(r.dims)} need 3 dimensions each")
    first = bool(ctx.attr("layout", 0))
    steps = ctx.number(value.dims[1 if first else 0], "the number of steps")
    batch, width = value.dims[0 if first else 1], value.dims[2]
    gates, per = _GATES[ctx.node.type]
    directions, rows, k = (ctx.number(d, "a size of the weights") for d in w.dims)
    hidden = ctx.attr("hidden_size", rows // gates)
    if k != width or rows != gates * hidden or list(r.dims) != [directions, rows, hidden]:
        ctx.fail(
            f"the weights {list(w.dims)} and {list(r.dims)} do not fit {gates} gates of {hidden} and inputs of {width}"
        )
    if directions != (2 if ctx.attr("direction", "forward") == "bidirectional" else 1):
        ctx.fail(f"{directions} sets of weights for direction '{ctx.attr('direction', 'forward')}'")

    def out(index: int, *dims: Expr | int) -> None:
        ctx.out((dims[-2], *dims[:-2], dims[-1]) if first else dims, index=index)

    out(0, steps, directions, batch, hidden)
    out(1, directions, batch, hidden)
    out(2, directions, batch, hidden)
    every = batch * steps
    cost = Cost(
        gemms=[
            Gemm(every, width, as_expr(rows), directions, w.weight is not None),
            Gemm(batch, as_expr(hidden), as_expr(rows), directions * steps, False, turns=directions * steps),
        ],
        vec=[
            VecWork({"convert": 2}, every, as_expr(directions * rows)),
            VecWork(per, every * directions, as_expr(hidden)),
        ],
    )
    if ctx.optional(7) is not None:  # an LSTM's peepholes: the cell looks at three gates
        cost.vec.append(VecWork({"mul": 3, "add": 3}, every * directions, as_expr(hidden)))
        cost.weights += ctx.operand(ctx.optional(7), "bias")
    for value, length in ((w, k), (r, hidden)):
        if value.weight is not None:
            cost.weights.append((ctx.use(value, "linear", directions * rows, length), None))
    if r.weight is not None:
        cost.rereads[r.weight] = steps
    cost.weights += ctx.operand(ctx.optional(3), "bias")
    return cost


RULES = dict.fromkeys(_GATES, _recurrent)
