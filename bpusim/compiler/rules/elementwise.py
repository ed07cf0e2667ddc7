"""Elementwise ops and softmax: vector work by class and element."""

from __future__ import annotations

import onnx

from bpusim.compiler.dims import Expr, as_expr, product
from bpusim.compiler.quant import Role
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
    "CastLike": {"convert": 1},
    "Mean": {"add": 1},
    "GreaterOrEqual": {"add": 1},
    "LessOrEqual": {"add": 1},
    "Xor": {"add": 1},
    "IsInf": {"add": 1},
    "BitwiseAnd": {"add": 1},
    "BitwiseOr": {"add": 1},
    "BitwiseXor": {"add": 1},
    "BitwiseNot": {"add": 1},
    "BitShift": {"add": 1},
    "Mod": {"div": 1, "mul": 1, "add": 1},
    "Tan": {"exp": 2, "div": 1},
    "Asin": {"exp": 1},
    "Acos": {"exp": 1},
    "Atan": {"exp": 1},
    "Sinh": {"exp": 1, "add": 1, "mul": 1, "div": 1},
    "Cosh": {"exp": 1, "add": 1, "mul": 1, "div": 1},
    "Asinh": {"exp": 1, "mul": 1, "add": 2, "div": 1},
    "Acosh": {"exp": 1, "mul": 1, "add": 2, "div": 1},
    "Atanh": {"exp": 1, "mul": 1, "add": 2, "div": 1},
    "Celu": {"exp": 1, "mul": 2, "add": 2},
    "Selu": {"exp": 1, "mul": 2, "add": 1},
    "Mish": {"exp": 3, "add": 3, "div": 1, "mul": 1},
    "Softsign": {"add": 2, "div": 1},
    "Shrink": {"add": 3},
    "ThresholdedRelu": {"add": 1},
    "SwiGLU": {"exp": 1, "add": 1, "div": 1, "mul": 3},
    "BiasAdd": {"add": 2},
    "BiasGelu": {"exp": 1, "mul": 4, "add": 3},
    "QLinearAdd": {"convert": 2, "mul": 3, "add": 1},
    "QLinearMul": {"convert": 2, "mul": 2, "add": 2},
    "QLinearSigmoid": {"convert": 1},
    "QLinearLeakyRelu": {"convert": 1},
}
"""Vector operations by class for one output element. ``exp`` stands for any transcendental step."""

_BOOLEAN = {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf"}
_FIRST = {"Clip", "Cast", "CastLike", "QLinearSigmoid", "QLinearLeakyRelu"}
"""Only the first input has the results' shape; the others are parameters."""

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
                ctx.clash(d, out[i], f"shapes do not broadcast: {[list(x.dims) for x in values]}")
            out[i] = d
    return tuple(out)


def _elementwise(ctx: Context) -> Cost:
    kind = ctx.node.type
    given = [v for v in ctx.inputs if v is not None]
    shaped = given[:1] if kind in _FIRST else given
    if kind in ("QLinearAdd", "QLinearMul"):
        shaped = [ctx.value(0), ctx.value(3)]
    out = ctx.out(broadcast(ctx, shaped))
    assert out is not None
    if kind == "CastLike":
        out.dtype = ctx.value(1).dtype
    elif kind in _BOOLEAN:
        out.dtype = onnx.TensorProto.BOOL
    elif kind == "Cast":
        out.dtype = ctx.attr("to")
    elif kind == "Where":
        out.dtype = ctx.value(1).dtype
    per = ELEMENTWISE[kind]
    if kind == "FastGelu" and len(given) > 1:
        per = ELEMENTWISE["BiasGelu"]
    if kind == "Pow" and given[1].const is None and given[1].elements == 1 and given[1].weight:
        per = {"mul": 1}  # a scalar exponent: squares in every norm that exporters write out
    operations = max(len(given) - 1, 1) if kind in ("Sum", "Min", "Max", "Mean") else 1
    role: Role = "bias" if kind in ("Add", "Sub", "Sum", "BiasAdd", "BiasGelu", "FastGelu") else "norm"
    weights = [w for v in shaped for w in ctx.operand(v, role)]
    vec = [VecWork({c: n * operations for c, n in per.items()}, out.elements)]
    if kind == "Mean":
        vec.append(VecWork({"mul": 1}, out.elements))
    return Cost(vec=vec, weights=weights)


def _bit_cast(ctx: Context) -> None:
    ctx.view(ctx.value(0).dims)
    for out in ctx.outputs.values():
        out.dtype = ctx.attr("to")


def _split_gelu(ctx: Context) -> Cost:
    """``com.microsoft::BiasSplitGelu``: a bias, then the first half times the Gelu of the second."""
    value = ctx.value(0)
    width, odd = divmod(ctx.number(value.dims[-1], "the width"), 2)
    if odd:
        ctx.fail(f"the width {list(value.dims)} does not halve")
    out = ctx.out((*value.dims[:-1], width))
    assert out is not None
    gelu = ELEMENTWISE["Gelu"]
    vec = [VecWork({"add": 1}, value.elements), VecWork({**gelu, "mul": gelu["mul"] + 1}, out.elements)]
    return Cost(vec=vec, weights=ctx.operand(ctx.optional(1), "bias"))


def _softmax(ctx: Context) -> Cost:
    """Over one axis, or before opset 13 over all from ``axis`` on. ``LogSoftmax`` subtracts the logarithm of the sum,
    ``Hardmax`` compares with the largest, ``QLinearSoftmax`` converts on both sides."""
    value = ctx.value(0)
    ctx.out(value.dims)
    kind = ctx.node.type
    opset = ctx.attr("opset", 1) if kind == "QLinearSoftmax" else ctx.opset
    axis = ctx.axis(-1 if opset >= 13 else 1)
    rows = product(value.dims[:axis])
    length = product(value.dims[axis:]) if opset < 13 else value.dims[axis]
    if opset >= 13:
        rows = rows * product(value.dims[axis + 1 :])
    if kind == "LogSoftmax":
        return Cost(vec=[VecWork({"add": 2, "exp": 1, "reduce": 2}, rows, length), VecWork({"exp": 1}, rows)])
    if kind == "Hardmax":
        return Cost(vec=[VecWork({"add": 1, "reduce": 1}, rows, length)])
    vec = [VecWork(SOFTMAX, rows, length), VecWork({"div": 1}, rows)]
    if kind == "QLinearSoftmax":
        vec.append(VecWork({"convert": 2, "mul": 1}, rows, length))
    return Cost(vec=vec)


RULES = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "BitCast": _bit_cast,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Hardmax": _softmax,
    "QLinearSoftmax": _softmax,
    "BiasSplitGelu": _split_gelu,
}
