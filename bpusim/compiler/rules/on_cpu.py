"""Ops that the core's units cannot do: they run on the CPU, at the stated vector work and with their traffic."""

from __future__ import annotations

import onnx

from bpusim.compiler.dims import Expr, product
from bpusim.compiler.values import Context, Cost, VecWork

__all__ = ["RULES"]

_SORTS = "sorting is no vector work"
_DRAWS = "random numbers are drawn on the CPU"
_SERIAL = "each step waits for the one before"


def _top_k(ctx: Context) -> Cost:
    """A heap of ``k``: ``log2 k`` comparisons (at least 1) for each element, all the way up."""
    value = ctx.value(0)
    axis = ctx.axis(-1)
    k = ctx.ints(1, "k")
    if not k:
        ctx.fail("the number of results is missing")
    if value.dims[axis].is_const and k[0] > int(value.dims[axis]):
        ctx.fail(f"the first {k[0]} of {value.dims[axis]}")
    dims: tuple[Expr | int, ...] = (*value.dims[:axis], k[0], *value.dims[axis + 1 :])
    ctx.out(dims)
    ctx.out(dims, index=1, dtype=onnx.TensorProto.INT64)
    levels = max((k[0] - 1).bit_length(), 1)
    return Cost(vec=[VecWork({"add": levels}, value.elements)], cpu=_SORTS)


def _draw(ctx: Context) -> Cost:
    """A generator's step (two products, a sum) for each number; a normal one takes a logarithm, a root and a cosine."""
    kind = ctx.node.type
    dims: tuple[Expr | int, ...] = tuple(ctx.attr("shape", ()))
    if kind.endswith("Like") or kind == "Bernoulli":
        dims = ctx.value(0).dims
    default = ctx.value(0).dtype if ctx.inputs else onnx.TensorProto.FLOAT
    out = ctx.out(dims, dtype=ctx.attr("dtype", default))
    assert out is not None
    work = {"mul": 2, "add": 1}
    if kind.startswith("RandomNormal"):
        work = {"mul": 4, "add": 2, "exp": 2, "div": 1}
    elif kind == "Bernoulli":
        work = {"mul": 2, "add": 2}
    return Cost(vec=[VecWork(work, out.elements)], cpu=_DRAWS)


def _multinomial(ctx: Context) -> Cost:
    """Running sums of the chances once, then a search through them for each sample."""
    batch, classes = ctx.ranked(2)
    samples = ctx.attr("sample_size", 1)
    out = ctx.out((batch, samples), dtype=ctx.attr("dtype", onnx.TensorProto.INT32))
    assert out is not None
    vec = [VecWork({"exp": 1, "add": 1}, ctx.value(0).elements), VecWork({"mul": 2, "add": classes}, out.elements)]
    return Cost(vec=vec, cpu=_DRAWS)


def _determinant(ctx: Context) -> Cost:
    """Elimination: ``n^3 / 3`` products and sums (rounded up) and ``n`` divisions a matrix."""
    value = ctx.value(0)
    if len(value.dims) < 2 or value.dims[-1] != value.dims[-2]:
        ctx.fail(f"{list(value.dims)} are no square matrices")
    n = ctx.number(value.dims[-1], "the size of a matrix")
    stack = product(value.dims[:-2])
    ctx.out(value.dims[:-2])
    steps = -(-(n**3) // 3)
    return Cost(vec=[VecWork({"mul": steps, "add": steps, "div": n}, stack)], cpu=_SERIAL)


RULES = {
    "TopK": _top_k,
    "Bernoulli": _draw,
    "RandomNormal": _draw,
    "RandomNormalLike": _draw,
    "RandomUniform": _draw,
    "RandomUniformLike": _draw,
    "Multinomial": _multinomial,
    "Det": _determinant,
}
