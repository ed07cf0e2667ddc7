"""Ops that pick, place, repeat or resample elements: each passes the vector unit."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, prod

from bpusim.compiler.dims import Expr, as_expr, product
from bpusim.compiler.values import Context, Cost, VecWork

__all__ = ["RULES"]

_COPY = {"convert": 1}
Dims = tuple[Expr | int, ...]


def _copied(ctx: Context, dims: Dims, source: int = 0, dtype: int | None = None) -> Cost:
    """Output 0 is copied together, element by element, from input ``source``."""
    value = ctx.value(source)
    out = ctx.out(dims, dtype=value.dtype if dtype is None else dtype)
    assert out is not None
    out.quant, out.scales = value.quant, value.scales
    return Cost(vec=[VecWork(_COPY, out.elements)], weights=ctx.part(value, out.elements))


def _split(ctx: Context) -> Cost:
    """Sizes as given (attribute or input), else equal parts, the last one smaller."""
    value = ctx.value(0)
    axis = ctx.axis(0)
    sizes = ctx.ints(1, "split")
    if sizes is None:
        parts = ctx.attr("num_outputs", len(ctx.node.outputs))
        whole = ctx.number(value.dims[axis], "the dimension that is split")
        part = -(-whole // parts)
        sizes = (*[part] * (parts - 1), whole - part * (parts - 1))
        if sizes[-1] < 0 or (whole % parts and "num_outputs" not in ctx.node.attrs):
            ctx.fail(f"{whole} does not split into {parts} parts", do="give the sizes of the parts")
    if len(sizes) != len(ctx.node.outputs):
        ctx.fail(f"{len(sizes)} parts for {len(ctx.node.outputs)} outputs")
    if sum(sizes) != value.dims[axis]:
        ctx.fail(f"parts of {list(sizes)} do not make {value.dims[axis]} (dimension {axis} of {list(value.dims)})")
    for index, size in enumerate(sizes):
        ctx.out((*value.dims[:axis], size, *value.dims[axis + 1 :]), index=index)
    return Cost(vec=[VecWork(_COPY, value.elements)], weights=ctx.part(value, value.elements))


def _pad(ctx: Context) -> Cost:
    value = ctx.value(0)
    dims = list(value.dims)
    pads = ctx.ints(1, "pads" if "pads" in ctx.node.attrs else "paddings")
    axes = ctx.ints(3) or tuple(range(len(dims)))
    if pads is None or len(pads) != 2 * len(axes):
        ctx.fail(f"{len(pads or ())} pads for {len(axes)} dimensions")
    for i, a in enumerate(axes):
        dims[a % len(dims)] = dims[a % len(dims)] + (pads[i] + pads[i + len(axes)])
    return _copied(ctx, tuple(dims))


def _tile(ctx: Context) -> Cost:
    value = ctx.value(0)
    times = ctx.value(1).const
    if times is None or len(times) != len(value.dims):
        ctx.unknown(1, f"the repeats '{ctx.node.inputs[1]}' are not known, or not one for each dimension")
    return _copied(ctx, tuple(d * t for d, t in zip(value.dims, times, strict=True)))


def _blocks(ctx: Context) -> Cost:
    batch, channels, high, wide = ctx.ranked(4)
    size = ctx.attr("blocksize")
    if ctx.node.type == "DepthToSpace":
        if channels % size**2:
            ctx.fail(f"{channels} channels do not divide into blocks of {size} x {size}")
        return _copied(ctx, (batch, channels // size**2, high * size, wide * size))
    if high % size or wide % size:
        ctx.fail(f"{high} x {wide} does not divide into blocks of {size} x {size}")
    return _copied(ctx, (batch, channels * size**2, high // size, wide // size))


def _same(ctx: Context) -> Cost:
    """``ReverseSequence``, ``Trilu``: every element, moved or masked."""
    return _copied(ctx, ctx.value(0).dims)


def _crop(ctx: Context) -> Cost:
    value = ctx.value(0)
    dims = list(value.dims)
    shape = ctx.value(1).const
    axes = ctx.attr("axes", list(range(len(dims))))
    if shape is None or len(shape) != len(axes):
        ctx.unknown(1, f"the shape '{ctx.node.inputs[1]}' is not known, or not one size for each axis")
    for a, size in zip(axes, shape, strict=True):
        dims[a % len(dims)] = size
    return _copied(ctx, tuple(dims))


def _gather_elements(ctx: Context) -> Cost:
    return _copied(ctx, ctx.value(1).dims)


def _gather_nd(ctx: Context) -> Cost:
    value, index = ctx.value(0), ctx.value(1)
    batch = ctx.attr("batch_dims", 0)
    depth = ctx.number(index.dims[-1], "the depth of the index")
    if batch + depth > len(value.dims):
        ctx.fail(f"an index of {depth} behind {batch} batch dimensions is too deep for {list(value.dims)}")
    return _copied(ctx, (*index.dims[:-1], *value.dims[batch + depth :]))


def _scatter(ctx: Context) -> Cost:
    """The data is copied, then the updates are placed (and reduced, where asked)."""
    value, updates = ctx.value(0), ctx.value(2)
    out = ctx.out(value.dims)
    assert out is not None
    vec = [VecWork(_COPY, updates.elements)]
    if ctx.attr("reduction", "none") != "none":
        vec.append(VecWork({"reduce": 1}, updates.elements))
    weights = ctx.part(value, value.elements) + ctx.part(updates, updates.elements)
    return Cost(vec=[VecWork(_COPY, value.elements), *vec], weights=weights)


def _cache_update(ctx: Context) -> Cost:
    """``TensorScatter`` writes new entries in place: into the KV cache, where the buffer is an input of the model."""
    value, updates = ctx.value(0), ctx.value(1)
    out = ctx.out(value.dims)
    assert out is not None
    cost = Cost(vec=[VecWork(_COPY, updates.elements)], weights=ctx.part(updates, updates.elements))
    if value.fed:
        out.fed = True
        cost.kv_write = updates.elements
        cost.cache_inputs, cost.cache_outputs = (0,), (0,)
    return cost


def _one_hot(ctx: Context) -> Cost:
    index, depth, pair = ctx.value(0), ctx.value(1), ctx.value(2)
    if depth.const is None:
        ctx.unknown(1, f"the depth '{ctx.node.inputs[1]}' is not known before the run")
    axis = ctx.axis(-1, len(index.dims) + 1)
    out = ctx.out((*index.dims[:axis], depth.const[0], *index.dims[axis:]), dtype=pair.dtype)
    assert out is not None
    return Cost(vec=[VecWork({"add": 1}, out.elements)])


def _eye(ctx: Context) -> Cost:
    out = ctx.out(ctx.value(0).dims, dtype=ctx.attr("dtype", ctx.value(0).dtype))
    assert out is not None
    return Cost(vec=[VecWork(_COPY, out.elements)])


def _col2im(ctx: Context) -> Cost:
    """Columns are added up where their windows overlap."""
    value = ctx.value(0)
    image, block = ctx.ints(1), ctx.ints(2)
    if image is None or block is None:
        ctx.fail("the shapes of the image and the block are missing")
    channels, rest = divmod(ctx.number(value.dims[1], "the number of rows"), prod(block))
    if rest:
        ctx.fail(f"{value.dims[1]} rows do not divide into blocks of {list(block)}")
    ctx.out((value.dims[0], channels, *image))
    return Cost(vec=[VecWork({"add": 1}, value.elements)])


def _resize_sizes(ctx: Context) -> tuple[Expr, ...]:
    """Output dims of ``Resize`` and ``Upsample``, whichever way the opset states them."""
    value, attrs = ctx.value(0), ctx.node.attrs
    rank = len(value.dims)
    old = ctx.node.type == "Upsample" or ctx.opset < 11
    axes = [a % rank for a in ctx.attr("axes", list(range(rank)))]
    sizes = None if old else ctx.optional(3)
    dims = list(value.dims)
    if sizes is not None and sizes.elements != 0:
        if sizes.const is None or len(sizes.const) != len(axes):
            ctx.unknown(3, f"the sizes '{ctx.node.inputs[3]}' are not known, or not one for each axis")
        policy = ctx.attr("keep_aspect_ratio_policy", "stretch")
        if policy == "stretch":
            for a, size in zip(axes, sizes.const, strict=True):
                dims[a] = size
            return tuple(dims)
        wanted = [ctx.number(s, "a size") for s in sizes.const]
        given = [ctx.number(dims[a], "a dimension") for a in axes]
        pick: Callable[[list[float]], float] = min if policy == "not_larger" else max
        scale = pick([w / g for w, g in zip(wanted, given, strict=True)])
        for a, g in zip(axes, given, strict=True):
            dims[a] = as_expr(floor(scale * g + 0.5))
        return tuple(dims)
    scales = attrs.get("scales") or ctx.floats(1 if old else 2)
    if scales is None and "height_scale" in attrs:
        scales = [1.0, 1.0, attrs["height_scale"], attrs["width_scale"]]
    if scales is None or len(scales) != len(axes):
        ctx.fail("its scales are not known, or not one for each axis", do="export it with constant scales or sizes")
    for a, s in zip(axes, scales, strict=True):
        if s != 1:
            dims[a] = as_expr(floor(ctx.number(dims[a], "a resized dimension") * s + 1e-6))
    return tuple(dims)


def _resize(ctx: Context) -> Cost:
    """Each result is interpolated between 2 (linear) or 4 (cubic) neighbours along every dimension that changes."""
    value = ctx.value(0)
    dims = _resize_sizes(ctx)
    changed = sum(a != b for a, b in zip(value.dims, dims, strict=True))
    mode = ctx.attr("mode", "nearest")
    if mode == "nearest" or not changed:
        return _copied(ctx, dims)
    out = ctx.out(dims)
    assert out is not None
    taps = (4 if mode == "cubic" else 2) ** changed
    return Cost(vec=[VecWork({"mul": taps, "add": taps - 1}, out.elements)])


def _affine_grid(ctx: Context) -> Cost:
    """A matrix of ``d`` rows by the ``d + 1`` homogeneous coordinates of every place."""
    size = ctx.value(1).const
    if size is None:
        ctx.unknown(1, "the size is not known before the run")
    space = size[2:]
    out = ctx.out((size[0], *space, len(space)))
    assert out is not None
    return Cost(vec=[VecWork({"mul": len(space), "add": len(space)}, out.elements)])


def _grid_sample(ctx: Context) -> Cost:
    value, grid = ctx.value(0), ctx.value(1)
    n = len(value.dims) - 2
    out = ctx.out((*value.dims[:2], *grid.dims[1:-1]))
    assert out is not None
    mode = ctx.attr("mode", "linear")
    taps = {"nearest": 1, "cubic": 4**n, "bicubic": 4**n}.get(mode, 2**n)
    work = _COPY if taps == 1 else {"mul": taps, "add": taps - 1}
    return Cost(vec=[VecWork({"mul": n, "add": 2 * n}, product(grid.dims[:-1])), VecWork(work, out.elements)])


def _qlinear_concat(ctx: Context) -> Cost:
    """Every input is scaled to the results' type: (scale, zero point), then (tensor, scale, zero point) each."""
    values = [ctx.value(i) for i in range(2, len(ctx.inputs), 3)]
    axis = ctx.axis(rank=len(values[0].dims))
    dims = list(values[0].dims)
    for v in values[1:]:
        if len(v.dims) != len(dims) or any(
            a != b for i, (a, b) in enumerate(zip(v.dims, dims, strict=True)) if i != axis
        ):
            ctx.fail(f"shapes do not concatenate along {axis}: {[list(x.dims) for x in values]}")
        dims[axis] = dims[axis] + v.dims[axis]
    out = ctx.out(tuple(dims), dtype=values[0].dtype)
    assert out is not None
    return Cost(vec=[VecWork({"convert": 1, "mul": 1}, out.elements)])


def _relative_bias(ctx: Context) -> Cost:
    """``com.microsoft::RelativePositionBias``: one look-up for each head, row and column."""
    table, rows, cols = ctx.value(0), ctx.value(1).const, ctx.value(2).const
    if rows is None or cols is None:
        ctx.unknown(1 if rows is None else 2, "the lengths are not known before the run")
    return _copied(ctx, (1, table.dims[1], rows[0], cols[0]))


RULES = {
    "Split": _split,
    "Pad": _pad,
    "Tile": _tile,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
    "ReverseSequence": _same,
    "Trilu": _same,
    "CenterCropPad": _crop,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Scatter": _scatter,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "TensorScatter": _cache_update,
    "OneHot": _one_hot,
    "EyeLike": _eye,
    "Col2Im": _col2im,
    "Resize": _resize,
    "Upsample": _resize,
    "AffineGrid": _affine_grid,
    "GridSample": _grid_sample,
    "QLinearConcat": _qlinear_concat,
    "RelativePositionBias": _relative_bias,
}
