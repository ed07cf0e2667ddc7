"""Matrix products and table look-ups."""

from __future__ import annotations

from dataclasses import replace

import onnx

from bpusim.compiler.dims import ONE, Expr, as_expr, product
from bpusim.compiler.rules.conv import activation
from bpusim.compiler.rules.elementwise import broadcast
from bpusim.compiler.rules.operands import AGAIN, differ
from bpusim.compiler.rules.quantise import QUANTISE_BY_RANGE
from bpusim.compiler.values import Context, Cost, Gemm, Value, VecWork

__all__ = ["RULES", "stack"]


def stack(ctx: Context, a: Value, b: Value, m: Expr, k: Expr, n: Expr, groups: Expr, *extra: Value | None) -> Cost:
    """``groups`` products ``m x k`` by ``k x n``; the results are converted back to the activation type.

    A stored operand is held stationary and read once, whichever side it stands on; else the right one is.
    """
    if a.weight is not None and b.weight is not None:
        ctx.fail("both operands are stored", do="fold the constants before compiling")
    count = ctx.number(groups, "the batch of a product")
    cost = Cost(vec=[VecWork({"convert": 1}, m * count, n)])
    narrow = a.narrow and b.narrow
    if a.weight is not None:
        cost.gemms.append(Gemm(n, k, m, count, stored=True, narrow=narrow))
        cost.weights.append((ctx.use(a, "linear", ctx.number(m, "M") * count, ctx.number(k, "K"), *extra), None))
        return cost
    cost.gemms.append(Gemm(m, k, n, count, stored=b.weight is not None, narrow=narrow))
    if b.weight is not None:
        cost.weights.append((ctx.use(b, "linear", ctx.number(n, "N") * count, ctx.number(k, "K"), *extra), None))
    return cost


def _matmul_nbits(ctx: Context) -> Cost:
    """Packed weights with their scales (and zero points, where there are any) by block."""
    value, weight = ctx.value(0), ctx.value(1)
    k, n = ctx.attr("K"), ctx.attr("N")
    if value.dims[-1] != k:
        ctx.fail(f"the input has {value.dims[-1]} columns, the weight {k} rows")
    if weight.weight is None:
        ctx.fail("the packed weight is not stored in the model")
    ctx.out((*value.dims[:-1], n))
    rows = product(value.dims[:-1])
    cost = stack(ctx, value, weight, rows, as_expr(k), as_expr(n), ONE, ctx.optional(2), ctx.optional(3))
    if ctx.optional(5) is not None:
        cost.vec.append(VecWork({"add": 1}, rows, as_expr(n)))
        cost.weights += ctx.operand(ctx.optional(5), "bias")
    return cost


def _multiply(ctx: Context, a: Value, b: Value, dtype: int, *extra: Value | None) -> Cost:
    """Numpy's product of two stacks of matrices; a vector is a matrix of one row (left) or column (right)."""
    left, right = len(a.dims) == 1, len(b.dims) == 1
    if not a.dims or not b.dims:
        ctx.fail("a product needs vectors or matrices, not a single number")
    a = replace(a, dims=(ONE, *a.dims)) if left else a
    b = replace(b, dims=(*b.dims, ONE)) if right else b
    if a.dims[-1] != b.dims[-2]:
        ctx.fail(f"shapes do not match: {list(a.dims)} by {list(b.dims)}")

    def out(*dims: Expr) -> None:
        ctx.out((*dims[: len(dims) - 2], *([] if left else [dims[-2]]), *([] if right else [dims[-1]])), dtype=dtype)

    if product(b.dims[:-2]) == 1 and len(b.dims) <= len(a.dims):
        out(*a.dims[:-1], b.dims[-1])  # one matrix on the right: all rows of the left stream through it
        if a.weight is None:
            return stack(ctx, a, b, product(a.dims[:-1]), a.dims[-1], b.dims[-1], ONE, *extra)
    heads = Value(a.dims[:-2], a.dtype), Value(b.dims[:-2], b.dtype)
    batch = broadcast(ctx, list(heads)) if any(h.dims for h in heads) else ()
    out(*batch, a.dims[-2], b.dims[-1])
    return stack(ctx, a, b, a.dims[-2], a.dims[-1], b.dims[-1], product(batch), *extra)


def _matmul(ctx: Context) -> Cost:
    return _multiply(ctx, ctx.value(0), ctx.value(1), ctx.value(0).dtype)


def _fused_matmul(ctx: Context) -> Cost:
    """``com.microsoft::FusedMatMul`` (once ``TransposeMatMul``): either side transposed as it is read. A scale folds
    into the conversion."""
    sides: list[Value] = []
    for i, side in enumerate("AB"):
        v = ctx.value(i)
        dims = v.dims
        if ctx.attr(f"transBatch{side}", 0):
            dims = (*dims[1:-1], dims[0], dims[-1])
        if ctx.attr(f"trans{side}", 0) and len(dims) > 1:
            dims = (*dims[:-2], dims[-1], dims[-2])
        sides.append(replace(v, dims=dims))
    return _multiply(ctx, sides[0], sides[1], ctx.value(0).dtype)


def _matmul_integer(ctx: Context) -> Cost:
    """32-bit sums; ``MatMulIntegerToFloat`` scales them and adds a bias."""
    if ctx.node.type == "MatMulInteger":
        return _multiply(ctx, ctx.value(0), ctx.value(1), onnx.TensorProto.INT32)
    cost = _multiply(ctx, ctx.value(0), ctx.value(1), ctx.value(2).dtype)
    return _finish(ctx, cost, scales=(2, 3), points=(4, 5), bias=6)


def _qlinear_matmul(ctx: Context) -> Cost:
    """Requantisation is the conversion that every product has."""
    cost = _multiply(ctx, ctx.value(0), ctx.value(3), ctx.value(7).dtype)
    return _finish(ctx, cost, scales=(1, 4, 6), points=(2, 5, 7))


def _dynamic_matmul(ctx: Context) -> Cost:
    """``com.microsoft::DynamicQuantizeMatMul``: the left side is quantised on the fly, by its own range."""
    value, weight = ctx.value(0), ctx.value(1)
    quantised = replace(value, quant=onnx.TensorProto.UINT8)
    cost = _multiply(ctx, quantised, weight, value.dtype)
    cost.vec.append(VecWork(QUANTISE_BY_RANGE, value.elements))
    return _finish(ctx, cost, scales=(2,), points=(3,), bias=4)


def _finish(
    ctx: Context, cost: Cost, scales: tuple[int, ...] = (), points: tuple[int, ...] = (), bias: int | None = None
) -> Cost:
    """Scales by channel, zero points and the bias of a quantised product are read and applied."""
    out = next(iter(ctx.outputs.values()))
    for i in (*scales, *points):
        cost.weights += ctx.operand(ctx.optional(i), "scale")
    if bias is not None and ctx.optional(bias) is not None:
        cost.vec.append(VecWork({"add": 1}, out.elements))
        cost.weights += ctx.operand(ctx.optional(bias), "bias")
    return cost


def _gemm_of(ctx: Context, a: Value, b: Value, bias: int, dtype: int) -> Cost:
    if len(a.dims) != 2 or len(b.dims) != 2:
        ctx.fail(f"both sides must be matrices: {list(a.dims)} by {list(b.dims)}")
    m, ka = a.dims[::-1] if ctx.attr("transA", 0) else a.dims
    kb, n = b.dims[::-1] if ctx.attr("transB", 0) else b.dims
    if ka != kb:
        ctx.fail(f"shapes do not match: {list(a.dims)} by {list(b.dims)}")
    ctx.out((m, n), dtype=dtype)
    added = ctx.optional(bias)
    if added is not None and (
        len(added.dims) > 2
        or any(d != 1 and differ(d, own) for d, own in zip(reversed(added.dims), (n, m), strict=False))
    ):
        ctx.fail(f"C {list(added.dims)} does not broadcast to the result {[m, n]}", AGAIN)
    cost = stack(ctx, a, b, m, ka, n, ONE)
    if added is not None:
        cost.vec.append(VecWork({"add": 1}, m, n))
        cost.weights += ctx.operand(added, "bias")
    return cost


def _gemm(ctx: Context) -> Cost:
    """``Gemm`` and, with an activation built in, ``com.microsoft::FusedGemm``."""
    cost = _gemm_of(ctx, ctx.value(0), ctx.value(1), 2, ctx.value(0).dtype)
    if ctx.node.type == "FusedGemm":
        cost.vec += activation(ctx, ctx.attr("activation", ""), next(iter(ctx.outputs.values())).elements)
    return cost


def _qgemm(ctx: Context) -> Cost:
    """``com.microsoft::QGemm``: integers in; out as the zero point of the results says, else floats."""
    point = ctx.optional(8)
    dtype = ctx.value(1).dtype if point is None else point.dtype
    cost = _gemm_of(ctx, ctx.value(0), ctx.value(3), 6, dtype)
    return _finish(ctx, cost, scales=(1, 4, 7), points=(2, 5))


def _gather(ctx: Context) -> Cost | None:
    table, index = ctx.value(0), ctx.value(1)
    axis = ctx.attr("axis", 0) % max(len(table.dims), 1)
    dims = (*table.dims[:axis], *index.dims, *table.dims[axis + 1 :])
    out = ctx.out(dims)
    assert out is not None
    if table.weight is None or axis:
        return Cost(vec=[VecWork({"convert": 1}, out.elements)], weights=ctx.part(table, out.elements))
    rows, k = ctx.number(table.dims[0], "the table's length"), ctx.number(product(table.dims[1:]), "the table's width")
    return Cost(weights=[(ctx.use(table, "embedding", rows, k), index.elements)])


def _gather_block_quantized(ctx: Context) -> Cost:
    table, index, scales = ctx.value(0), ctx.value(1), ctx.value(2)
    axis, block = ctx.attr("quantize_axis", 1), ctx.attr("block_size", 128)
    if ctx.attr("gather_axis", 0) != 0 or axis != 1 or len(table.dims) != 2:
        ctx.fail("only tables of rows, quantised along the row, are supported")
    packed = ctx.number(table.dims[1], "the table's width")
    k = packed * (8 // ctx.attr("bits", 4)) if table.dtype == onnx.TensorProto.UINT8 else packed
    blocks = ctx.number(scales.elements, "the number of scales") // ctx.number(table.dims[0], "the table's length")
    if blocks != -(-k // block):
        ctx.fail(f"{blocks} scales a row do not fit {k} elements in blocks of {block}")
    ctx.out((*index.dims, k), dtype=scales.dtype)
    rows = ctx.number(table.dims[0], "the table's length")
    use = ctx.use(table, "embedding", rows, k, scales, ctx.optional(3))
    return Cost(weights=[(use, index.elements)], vec=[VecWork({"convert": 1}, index.elements, as_expr(k))])


RULES = {
    "MatMul": _matmul,
    "MatMulNBits": _matmul_nbits,
    "MatMulBnb4": _matmul_nbits,
    "FusedMatMul": _fused_matmul,
    "TransposeMatMul": _fused_matmul,
    "MatMulInteger": _matmul_integer,
    "MatMulIntegerToFloat": _matmul_integer,
    "QLinearMatMul": _qlinear_matmul,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    "QGemm": _qgemm,
    "Gather": _gather,
    "GatherBlockQuantized": _gather_block_quantized,
}
