"""Matrix products and table look-ups."""

from __future__ import annotations

import onnx

from bpusim.compiler.dims import ONE, Expr, as_expr, product
from bpusim.compiler.rules.elementwise import broadcast
from bpusim.compiler.values import Context, Cost, Gemm, Value, VecWork

__all__ = ["RULES"]


def _product(ctx: Context, a: Value, b: Value, m: Expr, k: Expr, n: Expr, groups: Expr, *extra: Value | None) -> Cost:
    """``groups`` products ``m x k`` by ``k x n``; the results are converted back to the activation type.

    A stored operand is held stationary and read once, whichever side it stands on; else the right one is.
    """
    if a.weight is not None and b.weight is not None:
        ctx.fail("both operands are stored", do="fold the constants before compiling")
    count = ctx.number(groups, "the batch of a product")
    cost = Cost(vec=[VecWork({"convert": 1}, m * count, n)])
    if a.weight is not None:
        cost.gemms.append(Gemm(n, k, m, count, stored=True))
        cost.weights.append((ctx.use(a, "linear", ctx.number(m, "M") * count, ctx.number(k, "K"), *extra), None))
        return cost
    cost.gemms.append(Gemm(m, k, n, count, stored=b.weight is not None))
    if b.weight is not None:
        cost.weights.append((ctx.use(b, "linear", ctx.number(n, "N") * count, ctx.number(k, "K"), *extra), None))
    return cost


def _matmul_nbits(ctx: Context) -> Cost:
    value, weight = ctx.value(0), ctx.value(1)
    k, n = ctx.attr("K"), ctx.attr("N")
    if value.dims[-1] != k:
        ctx.fail(f"the input has {value.dims[-1]} columns, the weight {k} rows")
    if weight.weight is None:
        ctx.fail("the packed weight is not stored in the model")
    ctx.out((*value.dims[:-1], n))
    rows = product(value.dims[:-1])
    cost = _product(ctx, value, weight, rows, as_expr(k), as_expr(n), ONE, ctx.optional(2), ctx.optional(3))
    if ctx.optional(5) is not None:
        cost.vec.append(VecWork({"add": 1}, rows, as_expr(n)))
        cost.weights += ctx.operand(ctx.optional(5), "bias")
    return cost


def _matmul(ctx: Context) -> Cost:
    a, b = ctx.value(0), ctx.value(1)
    if len(a.dims) < 2 or len(b.dims) < 2:
        ctx.fail("vectors are not supported; reshape them to matrices")
    if a.dims[-1] != b.dims[-2]:
        ctx.fail(f"shapes do not match: {list(a.dims)} by {list(b.dims)}")
    if product(b.dims[:-2]) == 1 and len(b.dims) <= len(a.dims):
        ctx.out((*a.dims[:-1], b.dims[-1]))  # one matrix on the right: all rows of the left stream through it
        if a.weight is None:
            return _product(ctx, a, b, product(a.dims[:-1]), a.dims[-1], b.dims[-1], ONE)
    heads = Value(a.dims[:-2], a.dtype), Value(b.dims[:-2], b.dtype)
    batch = broadcast(ctx, list(heads)) if any(h.dims for h in heads) else ()
    ctx.out((*batch, a.dims[-2], b.dims[-1]))
    return _product(ctx, a, b, a.dims[-2], a.dims[-1], b.dims[-1], product(batch))


def _gemm(ctx: Context) -> Cost:
    a, b = ctx.value(0), ctx.value(1)
    m, ka = a.dims[::-1] if ctx.attr("transA", 0) else a.dims
    kb, n = b.dims[::-1] if ctx.attr("transB", 0) else b.dims
    if ka != kb:
        ctx.fail(f"shapes do not match: {list(a.dims)} by {list(b.dims)}")
    ctx.out((m, n))
    cost = _product(ctx, a, b, m, ka, n, ONE)
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
    "Gemm": _gemm,
    "Gather": _gather,
    "GatherBlockQuantized": _gather_block_quantized,
}
