"""Elementwise ops, reductions and norms: vector work by class and element."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from bpusim.compiler.dims import Expr, as_expr, product
from bpusim.compiler.values import Context, Cost, Value, VecWork

__all__ = ["ELEMENTWISE", "RULES", "SOFTMAX"]

ELEMENTWISE: dict[str, dict[str, int]] = {
    "Add": {"add": 1},
    "Sub": {"add": 1},
    "Mul": {"mul": 1},
    "Div": {"div": 1},
    "Sum": {"add": 1},
    "Neg": {"add": 1},
    "Abs": {"add": 1},
    "Min": {"add": 1},
    "Max": {"add": 1},
    "Relu": {"add": 1},
    "Clip": {"add": 2},
    "Where": {"add": 1},
    "Equal": {"add": 1},
    "Greater": {"add": 1},
    "Less": {"add": 1},
    "And": {"add": 1},
    "Or": {"add": 1},
    "Not": {"add": 1},
    "IsNaN": {"add": 1},
    "Floor": {"add": 1},
    "Ceil": {"add": 1},
    "Round": {"add": 1},
    "Sign": {"add": 1},
    "Pow": {"mul": 1, "exp": 1},
    "Sqrt": {"div": 1},
    "Reciprocal": {"div": 1},
    "Exp": {"exp": 1},
    "Log": {"exp": 1},
    "Erf": {"exp": 1, "mul": 2, "add": 1},
    "Sigmoid": {"exp": 1, "add": 1, "div": 1},
    "Tanh": {"exp": 1, "add": 2, "div": 1},
    "Gelu": {"exp": 1, "mul": 4, "add": 2},
    "FastGelu": {"exp": 1, "mul": 4, "add": 2},
    "Silu": {"exp": 1, "add": 1, "div": 1, "mul": 1},
    "QuickGelu": {"exp": 1, "add": 1, "div": 1, "mul": 2},
    "Swish": {"exp": 1, "add": 1, "div": 1, "mul": 2},
    "HardSigmoid": {"mul": 1, "add": 3},
    "HardSwish": {"mul": 2, "add": 3},
    "LeakyRelu": {"mul": 1, "add": 1},
    "PRelu": {"mul": 1, "add": 1},
    "Elu": {"exp": 1, "mul": 1, "add": 1},
    "Softplus": {"exp": 2, "add": 1},
    "Sin": {"exp": 1},
    "Cos": {"exp": 1},
    "Cast": {"convert": 1},
}
"""Vector operations by class for one output element. ``exp`` stands for any transcendental step."""

SOFTMAX = {"add": 1, "exp": 1, "reduce": 2, "mul": 1}
"""Per element: subtract the maximum, exponentiate, reduce twice, multiply by the reciprocal of the sum."""


def broadcast(ctx: Context, values: list[Value]) -> tuple[Expr, ...]:
    """Numpy broadcasting of all inputs' dims."""
    rank = max(len(v.dims) for v in values)
    out: list[Expr] = [as_expr(1)] * rank
    for v in values:
        for i, d in enumerate(v.dims, start=rank - len(v.dims)):
            if d == out[i] or d == 1:
                continue
            if out[i] != 1:
                ctx.fail(f"shapes do not broadcast: {[list(x.dims) for x in values]}")
            out[i] = d
    return tuple(out)


def _elementwise(ctx: Context) -> Cost:
    kind = ctx.node.type
    given = [v for v in ctx.inputs if v is not None]
    shaped = given[:1] if kind in ("Clip", "Cast") else given
    out = ctx.out(broadcast(ctx, shaped))
    assert out is not None
    if kind in ("Equal", "Greater", "Less", "And", "Or", "Not", "IsNaN"):
        out.dtype = onnx.TensorProto.BOOL
    elif kind == "Cast":
        out.dtype = ctx.attr("to")
    elif kind == "Where":
        out.dtype = ctx.value(1).dtype
    per = ELEMENTWISE[kind]
    if kind == "Pow" and given[1].const is None and given[1].elements == 1 and given[1].weight:
        per = {"mul": 1}  # a scalar exponent: squares in every norm that exporters write out
    operations = max(len(given) - 1, 1) if kind in ("Sum", "Min", "Max") else 1
    role = "bias" if kind in ("Add", "Sub", "Sum") else "norm"
    weights = [w for v in shaped for w in ctx.operand(v, role)]  # type: ignore[arg-type]
    return Cost(vec=[VecWork({c: n * operations for c, n in per.items()}, out.elements)], weights=weights)


def _reduce(ctx: Context) -> Cost:
    value = ctx.value(0)
    rank = len(value.dims)
    axes = ctx.ints(1, "axes")
    if axes is None or (not axes and not ctx.attr("noop_with_empty_axes", 0)):
        axes = tuple(range(rank))
    gone = {a % rank for a in axes} if rank else set()
    keep = ctx.attr("keepdims", 1)
    ctx.out(tuple(as_expr(1) if i in gone else d for i, d in enumerate(value.dims) if keep or i not in gone))
    return Cost(vec=[VecWork({"reduce": 1}, value.elements)])


def _softmax(ctx: Context) -> Cost:
    value = ctx.value(0)
    ctx.out(value.dims)
    axis = ctx.attr("axis", -1 if ctx.opset >= 13 else 1) % len(value.dims)
    rows = product(value.dims[:axis])
    length = product(value.dims[axis:]) if ctx.opset < 13 else value.dims[axis]
    if ctx.opset >= 13:
        rows = rows * product(value.dims[axis + 1 :])
    return Cost(vec=[VecWork(SOFTMAX, rows, length), VecWork({"div": 1}, rows)])


def rms_norm(rows: Expr, length: Expr) -> list[VecWork]:
    """Square, reduce, scale by the reciprocal root, scale by the weight."""
    return [VecWork({"mul": 3, "reduce": 1}, rows, length), VecWork({"div": 1, "add": 1}, rows)]


def layer_norm(rows: Expr, length: Expr) -> list[VecWork]:
    """Mean, centre, square, reduce, scale, shift."""
    return [VecWork({"add": 2, "mul": 3, "reduce": 2}, rows, length), VecWork({"div": 1, "add": 1}, rows)]


def _norm(parts: Callable[[Expr, Expr], list[VecWork]], skip: bool) -> Callable[[Context], Cost]:
    def rule(ctx: Context) -> Cost:
        value = ctx.value(0)
        ctx.out(value.dims)
        for index in (1, 2):
            ctx.out((*value.dims[:-1], 1), index=index)
        if skip:
            ctx.out(value.dims, index=3)
        first = 2 if skip else 1
        vec = parts(product(value.dims[:-1]), value.dims[-1])
        if skip:
            vec = [VecWork({"add": 1}, value.elements), *vec]
        weights = ctx.operand(ctx.optional(first), "norm")
        for i in range(first + 1, len(ctx.inputs)):
            weights += ctx.operand(ctx.optional(i), "bias")
        return Cost(vec=vec, weights=weights)

    return rule


def _batch_norm(ctx: Context) -> Cost:
    value = ctx.value(0)
    ctx.out(value.dims)
    weights = [w for i in range(1, 5) for w in ctx.operand(ctx.optional(i), "norm")]
    return Cost(vec=[VecWork({"mul": 1, "add": 1}, value.elements)], weights=weights)


def _lrn(ctx: Context) -> Cost:
    value = ctx.value(0)
    ctx.out(value.dims)
    size = ctx.attr("size")
    return Cost(vec=[VecWork({"mul": 2, "reduce": size, "exp": 1, "div": 1}, value.elements)])


RULES = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"), _reduce),
    "Softmax": _softmax,
    "SimplifiedLayerNormalization": _norm(rms_norm, skip=False),
    "RMSNormalization": _norm(rms_norm, skip=False),
    "SkipSimplifiedLayerNormalization": _norm(rms_norm, skip=True),
    "LayerNormalization": _norm(layer_norm, skip=False),
    "SkipLayerNormalization": _norm(layer_norm, skip=True),
    "BatchNormalization": _batch_norm,
    "LRN": _lrn,
}
