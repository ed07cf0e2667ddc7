"""Normalisations: vector work by row, weights read whole."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from bpusim.compiler.dims import Expr, as_expr, product
from bpusim.compiler.values import Context, Cost, VecWork

__all__ = ["RULES"]

Parts = Callable[[Expr, Expr], list[VecWork]]


def rms_norm(rows: Expr, length: Expr) -> list[VecWork]:
    """Square, reduce, scale by the reciprocal root, scale by the weight."""
    return [VecWork({"mul": 3, "reduce": 1}, rows, length), VecWork({"div": 1, "add": 1}, rows)]


def layer_norm(rows: Expr, length: Expr) -> list[VecWork]:
    """Mean, centre, square, reduce, scale, shift."""
    return [VecWork({"add": 2, "mul": 3, "reduce": 2}, rows, length), VecWork({"div": 1, "add": 1}, rows)]


def _norm(parts: Parts, skip: bool) -> Callable[[Context], Cost]:
    def rule(ctx: Context) -> Cost:
        value = ctx.value(0)
        axis = len(value.dims) - 1 if skip else ctx.axis(-1)
        ctx.out(value.dims)
        for index in (1, 2):
            ctx.out((*value.dims[:axis], *(1 for _ in value.dims[axis:])), index=index)
        if skip:
            ctx.out(value.dims, index=3)
        first = 2 if skip else 1
        vec = parts(product(value.dims[:axis]), product(value.dims[axis:]))
        if skip:
            vec = [VecWork({"add": 1}, value.elements), *vec]
        if skip and ctx.optional(first + (1 if parts is rms_norm else 2)) is not None:
            vec = [VecWork({"add": 1}, value.elements), *vec]
        weights = ctx.operand(ctx.optional(first), "norm")
        for i in range(first + 1, len(ctx.inputs)):
            weights += ctx.operand(ctx.optional(i), "bias")
        return Cost(vec=vec, weights=weights)

    return rule


def _batch_norm(ctx: Context) -> Cost:
    if ctx.attr("training_mode", 0):
        ctx.fail("it is in training mode", do="export the model for inference")
    value = ctx.value(0)
    ctx.out(value.dims)
    weights = [w for i in range(1, 5) for w in ctx.operand(ctx.optional(i), "norm")]
    return Cost(vec=[VecWork({"mul": 1, "add": 1}, value.elements)], weights=weights)


def _grouped(ctx: Context) -> Cost:
    """``InstanceNormalization`` (a group a channel), ``GroupNormalization``, ``com.microsoft::(Skip)GroupNorm``."""
    value, kind = ctx.value(0), ctx.node.type
    last = kind in ("GroupNorm", "SkipGroupNorm") and bool(ctx.attr("channels_last", 1))
    channels = ctx.number(value.dims[-1 if last else 1], "the number of channels")
    groups = channels
    if kind != "InstanceNormalization":
        groups = ctx.attr("num_groups" if kind == "GroupNormalization" else "groups")
    if channels % groups:
        ctx.fail(f"{channels} channels do not divide into {groups} groups")
    space = product(value.dims[1:-1] if last else value.dims[2:])
    out = ctx.out(value.dims)
    assert out is not None
    vec = layer_norm(value.dims[0] * groups, space * (channels // groups))
    if kind == "SkipGroupNorm":
        ctx.out(value.dims, index=1)
        terms = 1 + (ctx.optional(4) is not None)
        vec.append(VecWork({"add": terms}, value.elements))
    if kind.endswith("GroupNorm") and ctx.attr("activation", 0):
        vec.append(VecWork({"exp": 1, "add": 1, "div": 1, "mul": 1}, value.elements))
    weights = ctx.operand(ctx.optional(1), "norm") + ctx.operand(ctx.optional(2), "bias")
    if kind == "SkipGroupNorm":
        weights += ctx.operand(ctx.optional(4), "bias")
    return Cost(vec=vec, weights=weights)


def _mean_variance(ctx: Context) -> Cost:
    value = ctx.value(0)
    axes = {a % len(value.dims) for a in ctx.attr("axes", [0, 2, 3])}
    ctx.out(value.dims)
    rows = product(d for i, d in enumerate(value.dims) if i not in axes)
    length = product(d for i, d in enumerate(value.dims) if i in axes)
    return Cost(vec=[VecWork({"add": 1, "mul": 2, "reduce": 2}, rows, length), VecWork({"div": 1, "add": 1}, rows)])


def _lp(ctx: Context) -> Cost:
    """Each element is raised and summed along ``axis``, and divided by the root of the sum."""
    value = ctx.value(0)
    axis = ctx.axis(-1)
    ctx.out(value.dims)
    rows = product(value.dims[:axis]) * product(value.dims[axis + 1 :])
    return Cost(vec=[VecWork({"mul": 1, "reduce": 1, "div": 1}, rows, value.dims[axis]), VecWork({"exp": 1}, rows)])


def _lrn(ctx: Context) -> Cost:
    value = ctx.value(0)
    ctx.out(value.dims)
    size = ctx.attr("size")
    return Cost(vec=[VecWork({"mul": 2, "reduce": size, "exp": 1, "div": 1}, value.elements)])


def _embed(ctx: Context) -> Cost:
    """``com.microsoft::EmbedLayerNormalization``: rows of two or three tables, summed and normed."""
    ids, tables = ctx.value(0), [t for t in (ctx.value(2), ctx.value(3), ctx.optional(4)) if t is not None]
    width = tables[0].dims[-1]
    out = ctx.out((*ids.dims, width), dtype=tables[0].dtype)
    assert out is not None
    ctx.out((ids.dims[0],), index=1, dtype=ids.dtype)
    ctx.out(out.dims, index=2, dtype=out.dtype)
    cost = Cost(vec=[VecWork({"add": len(tables) - 1}, ids.elements, width), *layer_norm(ids.elements, width)])
    for t in tables:
        if t.weight is not None:
            rows, k = (ctx.number(d, "the size of a table") for d in t.dims)
            cost.weights.append((ctx.use(t, "embedding", rows, k), ids.elements))
    cost.weights += ctx.operand(ctx.optional(5), "norm") + ctx.operand(ctx.optional(6), "bias")
    return cost


_REDUCE: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "ReduceSum": ({"reduce": 1}, {}),
    "ReduceMean": ({"reduce": 1}, {}),
    "ReduceMax": ({"reduce": 1}, {}),
    "ReduceMin": ({"reduce": 1}, {}),
    "ReduceProd": ({"reduce": 1}, {}),
    "ReduceL1": ({"add": 1, "reduce": 1}, {}),
    "ReduceL2": ({"mul": 1, "reduce": 1}, {"div": 1}),
    "ReduceSumSquare": ({"mul": 1, "reduce": 1}, {}),
    "ReduceLogSum": ({"reduce": 1}, {"exp": 1}),
    "ReduceLogSumExp": ({"add": 1, "exp": 1, "reduce": 2}, {"exp": 1, "add": 1}),
}
"""Vector operations of a reduction, for each element in and each out."""


def _reduce(ctx: Context) -> Cost:
    value = ctx.value(0)
    rank = len(value.dims)
    axes = ctx.ints(1, "axes")
    if not axes and ctx.attr("noop_with_empty_axes", 0):
        axes, gone = (), set[int]()
    else:
        axes = axes or tuple(range(rank))
        gone = {a % rank for a in axes} if rank else set()
    if rank and any(not -rank <= a < rank for a in axes):
        ctx.fail(f"axes {list(axes)} are not all within the {rank} dimensions")
    keep = ctx.attr("keepdims", 1)
    out = ctx.out(tuple(as_expr(1) if i in gone else d for i, d in enumerate(value.dims) if keep or i not in gone))
    assert out is not None
    each, result = _REDUCE[ctx.node.type]
    return Cost(vec=[VecWork(each, value.elements), *([VecWork(result, out.elements)] if result else [])])


def _arg(ctx: Context) -> Cost:
    """The value and its place are carried along: a reduction and a selection for each element."""
    value = ctx.value(0)
    axis = ctx.axis(0)
    kept = (as_expr(1),) if ctx.attr("keepdims", 1) else ()
    ctx.out((*value.dims[:axis], *kept, *value.dims[axis + 1 :]), dtype=onnx.TensorProto.INT64)
    return Cost(vec=[VecWork({"reduce": 1, "add": 1}, value.elements)])


def _scan(ctx: Context) -> Cost:
    """``CumSum`` and ``CumProd``: one dependent step for each element."""
    value = ctx.value(0)
    ctx.out(value.dims)
    return Cost(vec=[VecWork({"reduce": 1}, value.elements)])


RULES = {
    **dict.fromkeys(_REDUCE, _reduce),
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumSum": _scan,
    "CumProd": _scan,
    "SimplifiedLayerNormalization": _norm(rms_norm, skip=False),
    "RMSNormalization": _norm(rms_norm, skip=False),
    "SkipSimplifiedLayerNormalization": _norm(rms_norm, skip=True),
    "LayerNormalization": _norm(layer_norm, skip=False),
    "SkipLayerNormalization": _norm(layer_norm, skip=True),
    "EmbedLayerNormalization": _embed,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _grouped,
    "GroupNormalization": _grouped,
    "GroupNorm": _grouped,
    "SkipGroupNorm": _grouped,
    "MeanVarianceNormalization": _mean_variance,
    "LpNormalization": _lp,
    "LRN": _lrn,
}
