"""Ops whose results have a size that only the data decide: it is taken from ``--assume``, never guessed."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.values import Context, Cost, Value, VecWork
from bpusim.compiler.walk import Walk
from bpusim.errors import CompileError

__all__ = ["DATA_SIZED", "data_sized"]

DATA_SIZED = {"NonZero", "NonMaxSuppression", "Unique", "Compress", "Range"}
"""Ops without a size of their own."""


def data_sized(walk: Walk) -> Callable[[Context], Cost]:
    """Their cost rule: CPU work, one comparison for each element they look at."""

    def rule(ctx: Context) -> Cost:
        node = ctx.node
        length = _range_length(ctx.inputs) if node.type == "Range" else None
        if length is not None:  # of a step's own sizes: known, but no plain number
            ctx.out((length,))
            return Cost(vec=[VecWork({"add": 1}, length)])
        count = walk.assumed_count(node)
        if count is None:
            results = " and ".join(f"'{o}'" for o in node.outputs if o)
            why = f"only the data decide the size of {results}"
            after = walk.after(node)
            why += f", and so of {', '.join(after)}" if after else ""
            raise CompileError(f"{node}: {why}", place=walk.place, do=f"add --assume {node.label}=NUMBER")
        looked_at = _results(ctx, count)
        _check_most(ctx, count)
        return Cost(vec=[VecWork({"add": 1}, looked_at)], cpu="only the data decide the size of its results")

    return rule


def _range_length(bounds: list[Value | None]) -> Expr | None:
    """Entries of a Range from sizes, one apart; None where it is not known that there are none below zero."""
    known = [v.const[0] for v in bounds if v is not None and v.const is not None and len(v.const) == 1]
    if len(known) != 3 or known[2] not in (1, -1):
        return None
    start, limit, step = known
    span = limit - start if step == 1 else start - limit
    least = span.least()
    return span if least is not None and least >= 0 else None


def _check_most(ctx: Context, count: int) -> None:
    """No more entries can be found than there are to look at: elements, or places along the axis."""
    value, kind = ctx.value(0), ctx.node.type
    most = value.elements
    if kind == "Range":
        return
    if kind == "NonMaxSuppression":
        most = ctx.value(1).elements
    elif kind != "NonZero" and "axis" in ctx.node.attrs:
        most = value.dims[ctx.axis()]
    if most.is_const and count > int(most):
        what = f"{count} entries are assumed, and at most {most} can be found in {list(value.dims)}"
        ctx.fail(what, do=f"write --assume {ctx.node.label}=NUMBER with {most} or less")


def _results(ctx: Context, count: int) -> Expr:
    """Declare the results of ``count`` entries; the elements that are looked at."""
    value, kind, integer = ctx.value(0), ctx.node.type, onnx.TensorProto.INT64
    if kind == "Range":
        ctx.out((count,))
        return as_expr(count)
    if kind == "NonZero":
        ctx.out((len(value.dims), count), dtype=integer)
    elif kind == "NonMaxSuppression":
        ctx.out((count, 3), dtype=integer)
        scores = ctx.value(1)
        return scores.elements * ctx.number(scores.dims[-1], "the number of boxes")  # each against all others
    elif "axis" in ctx.node.attrs:
        dims = list(value.dims)
        dims[ctx.axis()] = as_expr(count)
        ctx.out(tuple(dims))
    else:
        ctx.out((count,))
    if kind == "Unique":
        ctx.out((count,), index=1, dtype=integer)
        ctx.out((value.elements,), index=2, dtype=integer)
        ctx.out((count,), index=3, dtype=integer)
    return value.elements
