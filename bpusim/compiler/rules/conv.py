"""Convolutions and pooling in any number of spatial dimensions."""

from __future__ import annotations

from math import prod

import onnx

from bpusim.compiler.dims import as_expr
from bpusim.compiler.values import Context, Cost, Gemm, VecWork

__all__ = ["RULES"]


def _spatial(ctx: Context, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Output sizes of a window of ``kernel`` with the node's strides, pads, dilations and rounding."""
    n = len(kernel)
    sizes = [ctx.number(d, "a spatial size") for d in ctx.value(0).dims[2:]]
    if len(sizes) != n:
        ctx.fail(f"a window of {n} dimensions on an input of {len(sizes)}")
    strides, dilations = ctx.attr("strides", [1] * n), ctx.attr("dilations", [1] * n)
    pads = ctx.attr("pads", [0] * (2 * n))
    auto = ctx.attr("auto_pad", "NOTSET")
    out = []
    for i in range(n):
        reach = (kernel[i] - 1) * dilations[i] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            out.append(-(-sizes[i] // strides[i]))
            continue
        space = sizes[i] + (0 if auto == "VALID" else pads[i] + pads[i + n]) - reach
        if space < 0:
            ctx.fail(f"a window of {reach} does not fit {sizes[i]} (dimension {i})", do="bind a larger input")
        steps = -(-space // strides[i]) if ctx.attr("ceil_mode", 0) else space // strides[i]
        if ctx.attr("ceil_mode", 0) and steps * strides[i] >= sizes[i] + pads[i]:
            steps -= 1  # a window may not start in the end padding
        out.append(steps + 1)
    return tuple(out)


def _conv(ctx: Context) -> Cost:
    value, weight = ctx.value(0), ctx.value(1)
    channels, per_group, *kernel = (ctx.number(d, "a kernel size") for d in weight.dims)
    groups = ctx.attr("group", 1)
    if value.dims[1] != per_group * groups or channels % groups:
        ctx.fail(
            f"the input {list(value.dims)} has {value.dims[1]} channels, the kernel {list(weight.dims)} "
            f"takes {per_group} in each of {groups} groups"
        )
    sizes = _spatial(ctx, tuple(kernel))
    batch = value.dims[0]
    out = ctx.out((batch, channels, *sizes))
    assert out is not None
    k = per_group * prod(kernel)
    cost = Cost(
        gemms=[Gemm(batch * prod(sizes), as_expr(k), as_expr(channels // groups), groups, weight.weight is not None)],
        vec=[VecWork({"convert": 1}, out.elements)],
        fused=True,
    )
    if weight.weight is not None:
        cost.weights.append((ctx.use(weight, "conv", channels, k), None))
    cost.weights += ctx.operand(ctx.optional(2), "bias")
    return cost


def _pool(ctx: Context) -> Cost:
    value = ctx.value(0)
    kernel = tuple(ctx.attr("kernel_shape"))
    out = ctx.out((*value.dims[:2], *_spatial(ctx, kernel)))
    assert out is not None
    ctx.out(out.dims, index=1, dtype=onnx.TensorProto.INT64)
    return Cost(vec=[VecWork({"reduce": prod(kernel)}, out.elements)])


def _global_pool(ctx: Context) -> Cost:
    value = ctx.value(0)
    ctx.out((*value.dims[:2], *(1 for _ in value.dims[2:])))
    return Cost(vec=[VecWork({"reduce": 1}, value.elements)])


RULES = {
    "Conv": _conv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
}
