"""Ops that name, move or repeat data: views are free and listed, copies go through the vector unit."""

from __future__ import annotations

import onnx

from bpusim.compiler.dims import Expr, as_expr, product
from bpusim.compiler.values import Context, Cost, VecWork

__all__ = ["RULES"]


def _identity(ctx: Context) -> None:
    ctx.view(ctx.value(0).dims)
    mask = ctx.out(ctx.value(0).dims, index=1, dtype=onnx.TensorProto.BOOL)
    if mask is not None:  # of a dropout: all true where nothing is trained
        mask.book = True


def _reshape(ctx: Context) -> None:
    value = ctx.value(0)
    shape = ctx.optional(1)
    wanted = shape.const if shape is not None else tuple(as_expr(d) for d in ctx.attr("shape"))
    if wanted is None:
        ctx.unknown(1, f"the shape '{ctx.node.inputs[1]}' is not known before the run")
    zero = ctx.attr("allowzero", 0)
    dims: list[Expr] = []
    for i, d in enumerate(wanted):
        if d == 0 and not zero:
            if i >= len(value.dims):
                ctx.fail(f"0 at place {i} copies a dimension the input {list(value.dims)} does not have")
            dims.append(value.dims[i])
        else:
            dims.append(d)
    hole = [i for i, d in enumerate(dims) if d == -1]
    if len(hole) > 1 or (hole and zero and any(d == 0 for d in dims)):
        ctx.fail(f"the shape {list(wanted)} leaves more than one dimension open")
    if hole:
        known = product(d for i, d in enumerate(dims) if i != hole[0])
        dims[hole[0]] = _divide(ctx, value.elements, known)
    if product(dims) != value.elements:
        ctx.fail(f"{list(value.dims)} does not reshape to {list(wanted)}")
    ctx.view(tuple(dims))


def _divide(ctx: Context, total: Expr, known: Expr) -> Expr:
    """``total / known`` where it comes out even."""
    if known.is_const and int(known) and all(c % int(known) == 0 for c in total.terms.values()):
        return Expr({t: c // int(known) for t, c in total.terms.items()})
    common = [
        t
        for t in ("tokens", "kv")
        if total == Expr({t: total.terms.get(t, 0)}) and known == Expr({t: known.terms.get(t, 0)})
    ]
    if common and known.terms and total.terms[common[0]] % known.terms[common[0]] == 0:
        return as_expr(total.terms[common[0]] // known.terms[common[0]])
    return ctx.fail(f"{total} elements do not divide into {known}")


def _flatten(ctx: Context) -> None:
    dims = ctx.value(0).dims
    axis = ctx.attr("axis", 1)
    axis += len(dims) if axis < 0 else 0
    ctx.view((product(dims[:axis]), product(dims[axis:])))


def _unsqueeze(ctx: Context) -> None:
    dims = list(ctx.value(0).dims)
    axes = ctx.ints(1, "axes") or ()
    rank = len(dims) + len(axes)
    if any(not -rank <= a < rank for a in axes) or len({a % rank for a in axes}) != len(axes):
        ctx.fail(f"axes {list(axes)} do not name {len(axes)} of {rank} dimensions")
    for a in sorted(a % rank for a in axes):
        dims.insert(a, as_expr(1))
    ctx.view(tuple(dims))


def _squeeze(ctx: Context) -> None:
    dims = ctx.value(0).dims
    axes = ctx.ints(1, "axes")
    if any(not -len(dims) <= a < len(dims) for a in axes or ()):
        ctx.fail(f"axes {list(axes or ())} are not all within the {len(dims)} dimensions")
    gone = {a % len(dims) for a in axes} if axes else {i for i, d in enumerate(dims) if d == 1}
    if any(dims[i] != 1 for i in gone):
        ctx.fail(f"axes {sorted(gone)} of {list(dims)} are not all 1")
    ctx.view(tuple(d for i, d in enumerate(dims) if i not in gone))


def _transpose(ctx: Context) -> Cost | None:
    value = ctx.value(0)
    perm = ctx.attr("perm", list(range(len(value.dims)))[::-1])
    if sorted(perm) != list(range(len(value.dims))):
        ctx.fail(f"perm {list(perm)} is not an order of the {len(value.dims)} dimensions")
    dims = tuple(value.dims[p] for p in perm)
    kept = [p for p in perm if value.dims[p] != 1]
    if value.weight is not None or kept == sorted(kept):
        ctx.view(dims)
        return None
    ctx.out(dims)
    return _copy(ctx)


def _expand(ctx: Context) -> None:
    from bpusim.compiler.rules.elementwise import broadcast
    from bpusim.compiler.values import Value

    value = ctx.value(0)
    shape = ctx.value(1).const
    if shape is None:
        ctx.unknown(1, f"the shape '{ctx.node.inputs[1]}' is not known before the run")
    ctx.view(broadcast(ctx, [value, Value(shape, value.dtype)]))


def _concat(ctx: Context) -> Cost:
    values = [v for v in ctx.inputs if v is not None]
    rank = len(values[0].dims)
    axis = ctx.attr("axis", 1) % rank
    dims = list(values[0].dims)
    for v in values[1:]:
        if len(v.dims) != rank or any(v.dims[i] != dims[i] for i in range(rank) if i != axis):
            ctx.fail(f"shapes do not concatenate along {axis}: {[list(x.dims) for x in values]}")
        dims[axis] = dims[axis] + v.dims[axis]
    ctx.out(tuple(dims))
    cost = _copy(ctx)
    cost.weights = [use for v in values for use in ctx.part(v, v.elements)]
    return cost


def _slice(ctx: Context) -> Cost:
    value = ctx.value(0)
    dims = list(value.dims)
    starts, ends = ctx.ints(1, "starts"), ctx.ints(2, "ends")
    if starts is None or ends is None:
        ctx.fail("starts and ends are missing")
    axes = ctx.ints(3, "axes") or tuple(range(len(starts)))
    steps = ctx.ints(4) or (1,) * len(starts)
    for a, low, high, step in zip(axes, starts, ends, steps, strict=True):
        size = ctx.number(dims[a % len(dims)], "a sliced dimension")
        dims[a % len(dims)] = as_expr(len(range(*slice(low, high, step).indices(size))))
    ctx.out(tuple(dims))
    cost = _copy(ctx)
    cost.weights = ctx.part(value, product(dims))
    return cost


def _copy(ctx: Context) -> Cost:
    """Every output element passes the vector unit once."""
    (out,) = ctx.outputs.values()
    first = ctx.value(0)
    out.quant = first.quant
    return Cost(vec=[VecWork({"convert": 1}, out.elements)])


RULES = {
    "Identity": _identity,
    "Dropout": _identity,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Concat": _concat,
    "Slice": _slice,
}
