"""Conversions between floats and integers. Around other ops they fold away: see :mod:`bpusim.compiler.qdq`."""

from __future__ import annotations

from math import prod

import onnx

from bpusim.compiler.graph import Stored
from bpusim.compiler.values import Context, Cost, Value, VecWork

__all__ = ["DEQUANTISE", "QUANTISE", "QUANTISE_BY_RANGE", "RULES"]

QUANTISE = {"mul": 1, "convert": 1}
"""Scale, then round (the zero point included)."""
DEQUANTISE = {"convert": 1, "mul": 1}
QUANTISE_BY_RANGE = {"reduce": 2, **QUANTISE}
"""The smallest and the largest element first."""


def _check_scale(ctx: Context) -> None:
    """A scale is one number, one for each place along ``axis`` (1 unless stated), or one for each block of it."""
    value, scale, point = ctx.value(0), ctx.value(1), ctx.optional(2)
    if point is not None and point.dims != scale.dims and (point.elements != 1 or scale.elements != 1):
        ctx.fail(f"the zero point {list(point.dims)} is not shaped like the scale {list(scale.dims)}")
    if scale.elements == 1:
        return
    axis = ctx.axis(1)
    block = ctx.attr("block_size", 0)
    if block:
        blocks = tuple(d.ceil_div(block) if i == axis else d for i, d in enumerate(value.dims))
        if scale.dims != blocks:
            what = f"scales {list(scale.dims)} do not fit {list(value.dims)} in blocks of {block} along axis {axis}"
            ctx.fail(what, do=f"{list(blocks)} would")
    elif len(scale.dims) != 1 or scale.dims[0] != value.dims[axis]:
        stated = "" if "axis" in ctx.node.attrs else " (the default; the node states none)"
        ctx.fail(
            f"a scale of {list(scale.dims)} does not fit axis {axis}{stated} of {list(value.dims)}",
            do="state the axis that the scale runs along",
        )


def _dequantise(ctx: Context) -> Cost | None:
    """A stored tensor stays as narrow as it is, and is scaled where it is used; an activation is converted."""
    value, scale = ctx.value(0), ctx.value(1)
    _check_scale(ctx)
    if value.weight is not None:
        ctx.view(value.dims)
        (out,) = ctx.outputs.values()
        parameters = (scale.weight, *(p.weight for p in (ctx.optional(2),) if p is not None))
        out.scales = tuple(n for n in parameters if n is not None and prod(ctx.stored[n].dims) > 1)
    else:
        made = ctx.out(value.dims)
        assert made is not None
        out = made
    out.quant, out.dtype, out.const = value.dtype, scale.dtype, None
    if value.weight is not None:
        return None
    weights = [w for i in (1, 2) for w in ctx.operand(ctx.optional(i), "scale")]
    return Cost(vec=[VecWork(DEQUANTISE, value.elements)], weights=weights)


def _quantise(ctx: Context) -> Cost | None:
    """An activation is converted; a stored tensor is quantised once, when the model is prepared."""
    value, point = ctx.value(0), ctx.optional(2)
    _check_scale(ctx)
    dtype = ctx.attr("output_dtype", 0) or (onnx.TensorProto.UINT8 if point is None else point.dtype)
    if value.weight is not None and ctx.node.outputs:
        name = ctx.node.outputs[0]
        ctx.stored[name] = Stored(dtype, tuple(ctx.number(d, "a stored dimension") for d in value.dims))
        ctx.outputs[name] = Value.of_stored(name, ctx.stored[name])
        return None
    ctx.out(value.dims, dtype=dtype)
    weights = [w for i in (1, 2) for w in ctx.operand(ctx.optional(i), "scale")]
    return Cost(vec=[VecWork(QUANTISE, value.elements)], weights=weights)


def _by_range(ctx: Context) -> Cost:
    """``DynamicQuantizeLinear``: integers, their scale and their zero point, all made at run time."""
    value = ctx.value(0)
    ctx.out(value.dims, dtype=onnx.TensorProto.UINT8)
    ctx.out((), index=1)
    ctx.out((), index=2, dtype=onnx.TensorProto.UINT8)
    return Cost(vec=[VecWork(QUANTISE_BY_RANGE, value.elements)])


RULES = {
    "QuantizeLinear": _quantise,
    "DequantizeLinear": _dequantise,
    "DynamicQuantizeLinear": _by_range,
}
