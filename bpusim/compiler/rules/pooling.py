"""Pooling in any number of spatial dimensions, over windows, regions or all positions."""

from __future__ import annotations

from math import prod

import onnx

from bpusim.compiler.dims import Expr
from bpusim.compiler.rules.conv import window_sizes
from bpusim.compiler.values import Context, Cost, VecWork

__all__ = ["RULES"]

_SAMPLE = {"mul": 4, "add": 3}
"""Bilinear interpolation between four neighbours."""


def _pool(ctx: Context) -> Cost:
    """Each result reduces its window; an Lp norm raises every element and takes the root."""
    value = ctx.value(0)
    kernel = tuple(ctx.attr("kernel_shape"))
    sizes = [ctx.number(d, "a spatial size") for d in value.dims[2:]]
    out = ctx.out((*value.dims[:2], *window_sizes(ctx, kernel, sizes)))
    assert out is not None
    ctx.out(out.dims, index=1, dtype=onnx.TensorProto.INT64)
    window = prod(kernel)
    if ctx.node.type == "LpPool":
        return Cost(vec=[VecWork({"mul": window, "reduce": window, "exp": 1}, out.elements)])
    return Cost(vec=[VecWork({"reduce": window}, out.elements)])


def _global_pool(ctx: Context) -> Cost:
    value = ctx.value(0)
    out = ctx.out((*value.dims[:2], *(1 for _ in value.dims[2:])))
    assert out is not None
    if ctx.node.type == "GlobalLpPool":
        return Cost(vec=[VecWork({"mul": 1, "reduce": 1}, value.elements), VecWork({"exp": 1}, out.elements)])
    return Cost(vec=[VecWork({"reduce": 1}, value.elements)])


def _qlinear_pool(ctx: Context) -> Cost:
    """Sums of integers, scaled to the results' type."""
    value = ctx.value(0)
    if ctx.attr("channels_last", 0):
        ctx.fail("channels last are not supported", do="export with channels first")
    if ctx.node.type == "QLinearGlobalAveragePool":
        out = ctx.out((*value.dims[:2], *(1 for _ in value.dims[2:])))
        assert out is not None
        return Cost(vec=[VecWork({"reduce": 1}, value.elements), VecWork({"mul": 1, "convert": 1}, out.elements)])
    kernel = tuple(ctx.attr("kernel_shape"))
    sizes = [ctx.number(d, "a spatial size") for d in value.dims[2:]]
    out = ctx.out((*value.dims[:2], *window_sizes(ctx, kernel, sizes)))
    assert out is not None
    return Cost(vec=[VecWork({"reduce": prod(kernel), "mul": 1, "convert": 1}, out.elements)])


def _unpool(ctx: Context) -> Cost:
    """The output is cleared, then each input goes to the place its index names."""
    value = ctx.value(0)
    shape = ctx.optional(2)
    dims: tuple[Expr | int, ...]
    if shape is not None:
        if shape.const is None:
            ctx.unknown(2, "the output shape is not known before the run")
        dims = shape.const
    else:
        kernel = list(ctx.attr("kernel_shape"))
        n = len(kernel)
        strides, pads = ctx.attr("strides", [1] * n), ctx.attr("pads", [0] * (2 * n))
        sizes = [ctx.number(d, "a spatial size") for d in value.dims[2:]]
        if len(sizes) != n:
            ctx.fail(f"a window of {n} dimensions on an input of {len(sizes)}")
        places = ((sizes[i] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + n] for i in range(n))
        dims = (*value.dims[:2], *places)
    out = ctx.out(dims)
    assert out is not None
    return Cost(vec=[VecWork({"convert": 1}, out.elements), VecWork({"convert": 1}, value.elements)])


def _regions(ctx: Context) -> Cost:
    """``RoiAlign`` interpolates ``sampling_ratio``^2 points of each bin; ``MaxRoiPool`` reduces at most the whole map.

    A ratio of 0 means as many points as the region is large: the run decides, so a whole bin of the map is taken.
    """
    value, rois = ctx.value(0), ctx.value(1)
    if len(value.dims) != 4:
        ctx.fail(f"the input {list(value.dims)} is no map of [N, C, H, W]")
    high, wide = (ctx.number(d, "a spatial size") for d in value.dims[2:])
    if ctx.node.type == "MaxRoiPool":
        rows, cols = ctx.attr("pooled_shape")
        out = ctx.out((rois.dims[0], value.dims[1], rows, cols))
        assert out is not None
        return Cost(vec=[VecWork({"reduce": -(-high // rows) * -(-wide // cols)}, out.elements)])
    rows, cols, ratio = ctx.attr("output_height", 1), ctx.attr("output_width", 1), ctx.attr("sampling_ratio", 0)
    out = ctx.out((rois.dims[0], value.dims[1], rows, cols))
    assert out is not None
    points = ratio * ratio if ratio else -(-high // rows) * -(-wide // cols)
    return Cost(vec=[VecWork(_SAMPLE | {"reduce": 1}, out.elements * points)])


RULES = {
    "MaxPool": _pool,
    "AveragePool": _pool,
    "LpPool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "GlobalLpPool": _global_pool,
    "QLinearAveragePool": _qlinear_pool,
    "QLinearGlobalAveragePool": _qlinear_pool,
    "MaxUnpool": _unpool,
    "RoiAlign": _regions,
    "MaxRoiPool": _regions,
}
