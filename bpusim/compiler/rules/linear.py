"""Matrix products and table look-ups."""

from __future__ import annotations

import onnx

from bpusim.compiler.dims import Expr, as_expr, product
from bpusim.compiler.rules.elementwise import broadcast
from bpusim.compiler.values import Context, Cost, Gemm, Value, VecWork

__all__ = ["RULES"]


def _weighted(ctx: Context, weight: Value, m: Expr, k: int, n: int, *extra: Value | None) -> Cost:
    """A product with a stored ``k x n`` weight; results are converted back to the activation type."""
    use = ctx.use(weight, "linear", n, k, *extra)
    return Cost(
        gemms=[Gemm(m, as_expr(k), as_expr(n))], vec=[VecWork({"convert": 1}, m, as_expr(n))], weights=[(use, None)]
    )


def _matmul_nbits(ctx: Context) -> Cost:
    value = ctx.value(0)
    k, n = ctx.attr("K"), ctx.attr("N")
    if value.dims[-1] != k:
        ctx.fail(f"the input has {value.dims[-1]} columns, the weight {k} rows")
    ctx.out((*value.dims[:-1], n))
    cost = _weighted(ctx, ctx.value(1), product(value.dims[:-1]), k, n, ctx.optional(2), ctx.optional(3))
    cost.weights += ctx.operand(ctx.optional(5), "bias")
    return cost


def _matmul(ctx: Context) -> Cost:
    a, b = ctx.value(0), ctx.value(1)
    if len(a.dims) < 2 or len(b.dims) < 2:
        ctx.fail("vectors are not supported; reshape them to matrices")
    if a.dims[-1] != b.dims[-2]:
        ctx.fail(f"shapes do not match: {list(a.dims)} by {list(b.dims)}")
    if b.weight is not None and product(b.dims[:-2]) == 1:
        k, n = ctx.number(b.dims[-2], "K"), ctx.number(b.dims[-1], "N")
        ctx.out((*a.dims[:-1], n))
        return _weighted(ctx, b, product(a.dims[:-1]), k, n)
    heads = Value(a.dims[:-2], a.dtype), Value(b.dims[:-2], b.dtype)
    batch = broadcast(ctx, list(heads)) if any(h.dims for h in heads) else ()
    ctx.out((*batch, a.dims[-2], b.dims[-1]))
    groups = ctx.number(product(batch), "the batch of a product of activations")
    gemm = Gemm(a.dims[-2], a.dims[-1], b.dims[-1], groups)
    return Cost(gemms=[gemm], vec=[VecWork({"convert": 1}, a.dims[-2] * groups, b.dims[-1])])


def _gemm(ctx: Context) -> Cost:
    a, b = ctx.value(0), ctx.value(1)
    m, ka = a.dims[::-1] if ctx.attr("transA", 0) else a.dims
    kb, n = b.dims[::-1] if ctx.attr("transB", 0) else b.dims
    if ka != kb:
        ctx.fail(f"shapes do not match: {list(a.dims)} by {list(b.dims)}")
    ctx.out((m, n))
    if b.weight is None:
        cost = Cost(gemms=[Gemm(m, ka, n)], vec=[VecWork({"convert": 1}, m, n)])
    else:
        cost = _weighted(ctx, b, m, ctx.number(ka, "K"), ctx.number(n, "N"))
    if ctx.optional(2) is not None:
        cost.vec.append(VecWork({"add": 1}, m, n))
        cost.weights += ctx.operand(ctx.optional(2), "bias")
    return cost


def _gather(ctx: Context) -> Cost | None:
    table, index = ctx.value(0), ctx.value(1)
    axis = ctx.attr("axis", 0) % max(len(table.dims), 1)
    dims = (*table.dims[:axis], *index.dims, *table.dims[axis + 1 :])
    out = ctx.out(dims)
    assert out is not None
    if table.weight is None or axis:
        return Cost(vec=[VecWork({"convert": 1}, out.elements)])
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
    "Gemm": _gemm,
    "Gather": _gather,
    "GatherBlockQuantized": _gather_block_quantized,
}
