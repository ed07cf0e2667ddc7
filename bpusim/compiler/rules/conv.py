"""Convolutions in any number of spatial dimensions: dense, grouped, transposed, deformable, quantised."""

from __future__ import annotations

from math import prod

import onnx

from bpusim.compiler.dims import ONE, Expr, as_expr, product
from bpusim.compiler.rules.elementwise import ELEMENTWISE
from bpusim.compiler.values import Context, Cost, Gemm, Value, VecWork

__all__ = ["RULES", "activation", "window_sizes"]

Sizes = tuple[int, ...]
_AUTO = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_ACTIVATIONS = {"Swish": "Silu"}


def window_sizes(ctx: Context, kernel: Sizes, sizes: list[int]) -> Sizes:
    """Places of a window of ``kernel`` on ``sizes`` with the node's strides, pads, dilations and rounding."""
    n = len(kernel)
    if len(sizes) != n:
        ctx.fail(f"a window of {n} dimensions on an input of {len(sizes)}")
    strides, dilations = ctx.attr("strides", [1] * n), ctx.attr("dilations", [1] * n)
    pads = ctx.attr("pads", [0] * (2 * n))
    auto = ctx.attr("auto_pad", "NOTSET")
    if [len(strides), len(dilations), len(pads)] != [n, n, 2 * n]:
        ctx.fail(f"{n} dimensions take {n} strides and dilations and {2 * n} pads, not {strides}, {dilations}, {pads}")
    if min(*strides, *dilations) < 1:
        ctx.fail(f"strides {strides} and dilations {dilations} must be 1 or more")
    if auto not in _AUTO:
        ctx.fail(f"auto_pad '{auto}' is not known", do=f"it may be {', '.join(_AUTO)}")
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


def _numbers(ctx: Context, dims: tuple[Expr, ...], what: str) -> list[int]:
    return [ctx.number(d, what) for d in dims]


def _weigh(ctx: Context, cost: Cost, weight: Value, rows: int, k: int, bias: Value | None) -> None:
    """The kernel (``rows`` output channels of ``k``) and the bias are read where they are stored."""
    if weight.weight is not None:
        cost.weights.append((ctx.use(weight, "conv", rows, k), None))
    cost.weights += ctx.operand(bias, "bias")


def activation(ctx: Context, kind: str, elements: Expr) -> list[VecWork]:
    """Vector work of an activation that an op has built in."""
    if kind in ("", "none"):
        return []
    found = next((t for t in ELEMENTWISE if t.lower() == _ACTIVATIONS.get(kind, kind).lower()), None)
    if found is None:
        ctx.fail(f"the activation '{kind}' is not known")
    return [VecWork(ELEMENTWISE[found], elements)]


def _dense(ctx: Context, value: Value, weight: Value, bias: Value | None, dtype: int, last: bool = False) -> Cost:
    """A GEMM whose rows are output positions; ``last``: channels come last (NHWC)."""
    shape, kernel = weight.dims, weight.dims[2:]
    dims = value.dims
    if last:
        kernel, dims = shape[1:-1], (dims[0], dims[-1], *dims[1:-1])
        shape = (shape[0], shape[-1], *kernel)
    channels, per_group, *window = _numbers(ctx, shape, "a kernel size")
    groups = ctx.attr("group", 1)
    if dims[1] != per_group * groups or channels % groups:
        ctx.fail(
            f"the input {list(value.dims)} has {dims[1]} channels, the kernel {list(weight.dims)} "
            f"takes {per_group} in each of {groups} groups"
        )
    told = ctx.node.attrs.get("kernel_shape")
    if told is not None and list(told) != window:
        ctx.fail(f"kernel_shape {list(told)} is not that of the kernel {list(weight.dims)}")
    if bias is not None and bias.elements != channels:
        ctx.fail(f"a bias of {list(bias.dims)} for {channels} channels")
    sizes = window_sizes(ctx, tuple(window), _numbers(ctx, dims[2:], "a spatial size"))
    batch = dims[0]
    out = ctx.out((batch, *sizes, channels) if last else (batch, channels, *sizes), dtype=dtype)
    assert out is not None
    k = per_group * prod(window)
    narrow = value.narrow and weight.narrow
    stored = weight.weight is not None
    cost = Cost(
        gemms=[Gemm(batch * prod(sizes), as_expr(k), as_expr(channels // groups), groups, stored, narrow)],
        vec=[VecWork({"convert": 1}, out.elements)],
        fused=True,
    )
    _weigh(ctx, cost, weight, channels, k, bias)
    return cost


def _conv(ctx: Context) -> Cost:
    """``Conv`` and, with an activation or a sum built in, ``FusedConv``."""
    value = ctx.value(0)
    cost = _dense(ctx, value, ctx.value(1), ctx.optional(2), value.dtype, last=ctx.node.type == "NhwcConv")
    (out,) = ctx.outputs.values()
    if ctx.node.type == "FusedConv":
        cost.vec += activation(ctx, ctx.attr("activation", ""), out.elements)
        if ctx.optional(3) is not None:
            cost.vec.append(VecWork({"add": 1}, out.elements))
    return cost


def _conv_integer(ctx: Context) -> Cost:
    """32-bit sums leave the array as they are; zero points fold into the sums."""
    return _dense(ctx, ctx.value(0), ctx.value(1), None, onnx.TensorProto.INT32)


def _qlinear_conv(ctx: Context) -> Cost:
    """Requantisation by channel is the conversion that every convolution has."""
    point = ctx.optional(7)
    dtype = ctx.value(0).dtype if point is None else point.dtype
    last = bool(ctx.attr("channels_last", 0))
    cost = _dense(ctx, ctx.value(0), ctx.value(3), ctx.optional(8), dtype, last)
    for index in (4, 5):
        cost.weights += ctx.operand(ctx.optional(index), "scale")
    return cost


def _conv_transpose(ctx: Context) -> Cost:
    """Every input position makes a whole window of products, which are summed where windows overlap."""
    value, weight = ctx.value(0), ctx.value(1)
    channels, per_group, *kernel = _numbers(ctx, weight.dims, "a kernel size")
    groups, n = ctx.attr("group", 1), len(kernel)
    if value.dims[1] != channels or channels % groups:
        ctx.fail(f"the input {list(value.dims)} has {value.dims[1]} channels, the kernel {list(weight.dims)}")
    sizes = _numbers(ctx, value.dims[2:], "a spatial size")
    if len(sizes) != n:
        ctx.fail(f"a window of {n} dimensions on an input of {len(sizes)}")
    strides, dilations = ctx.attr("strides", [1] * n), ctx.attr("dilations", [1] * n)
    more, pads = ctx.attr("output_padding", [0] * n), ctx.attr("pads", [0] * (2 * n))
    auto = ctx.attr("auto_pad", "NOTSET")
    if "output_shape" in ctx.node.attrs:
        places = list(ctx.attr("output_shape"))[-n:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        places = [s * t for s, t in zip(sizes, strides, strict=True)]
    else:
        cut = [0] * n if auto == "VALID" else [pads[i] + pads[i + n] for i in range(n)]
        places = [strides[i] * (sizes[i] - 1) + more[i] + (kernel[i] - 1) * dilations[i] + 1 - cut[i] for i in range(n)]
    if any(p < 0 for p in places):
        ctx.fail(f"the padding leaves {places} places", do="bind a larger input")
    out = ctx.out((value.dims[0], per_group * groups, *places))
    assert out is not None
    rows, made = value.dims[0] * prod(sizes), per_group * prod(kernel)
    stored = weight.weight is not None
    cost = Cost(
        gemms=[Gemm(rows, as_expr(channels // groups), as_expr(made), groups, stored, value.narrow and weight.narrow)],
        vec=[VecWork({"convert": 1}, out.elements)],
        fused=True,
    )
    if any((kernel[i] - 1) * dilations[i] >= strides[i] for i in range(n)):
        cost.vec.append(VecWork({"add": 1}, rows, as_expr(made * groups)))
    _weigh(ctx, cost, weight, per_group * groups, channels // groups * prod(kernel), ctx.optional(2))
    return cost


def _deformable(ctx: Context) -> Cost:
    """Samples are interpolated on the vector unit (four taps in two dimensions), then convolved like any others."""
    value, weight = ctx.value(0), ctx.value(1)
    offset, bias, mask = ctx.value(2), ctx.optional(3), ctx.optional(4)
    cost = _dense(ctx, value, weight, bias, value.dtype)
    (out,) = ctx.outputs.values()
    taps = 2 ** len(out.dims[2:])
    samples = product((out.dims[0], *out.dims[2:])) * value.dims[1] * product(weight.dims[2:])
    groups = ctx.attr("offset_group", 1)
    if offset.dims[1] != product(weight.dims[2:]) * (groups * len(out.dims[2:])):
        ctx.fail(f"the offsets {list(offset.dims)} do not fit {groups} groups of the kernel {list(weight.dims)}")
    cost.vec.append(VecWork({"mul": taps + (mask is not None), "add": taps - 1}, samples))
    cost.fused = False
    return cost


def _causal(ctx: Context) -> Cost:
    """A depthwise window over the past and the new positions; the last ``k - 1`` inputs stay for the next step."""
    value, weight = ctx.value(0), ctx.value(1)
    if len(value.dims) != 3 or len(weight.dims) != 3 or weight.dims[:2] != (value.dims[1], ONE):
        ctx.fail(f"the input {list(value.dims)} and the kernel {list(weight.dims)} are not of a depthwise window")
    channels, k = ctx.number(weight.dims[0], "the number of channels"), ctx.number(weight.dims[2], "the window")
    out = ctx.out(value.dims)
    assert out is not None
    ctx.out((*value.dims[:2], k - 1), index=1)
    cost = Cost(
        gemms=[Gemm(value.dims[0] * value.dims[2], as_expr(k), ONE, channels, weight.weight is not None)],
        vec=[VecWork({"convert": 1}, out.elements), VecWork({"convert": 1}, value.dims[0] * (channels * (k - 1)))],
        fused=True,
    )
    name = ctx.attr("activation", "none")
    cost.vec += activation(ctx, "Silu" if name in ("silu", "swish") else name, out.elements)
    _weigh(ctx, cost, weight, channels, k, ctx.optional(2))
    return cost


RULES = {
    "Conv": _conv,
    "FusedConv": _conv,
    "NhwcConv": _conv,
    "ConvInteger": _conv_integer,
    "QLinearConv": _qlinear_conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deformable,
    "CausalConvWithState": _causal,
}
