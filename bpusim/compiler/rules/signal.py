"""Fourier transforms and what goes with them, on the vector unit.

A length that is a power of two takes ``n/2 log2 n`` butterflies (a complex product and two complex sums: 4 ``mul``,
6 ``add``); any other length a direct sum, a complex product and sum (4 ``mul``, 4 ``add``) for each pair.
"""

from __future__ import annotations

from bpusim.compiler.dims import Expr, as_expr, product
from bpusim.compiler.values import Context, Cost, VecWork

__all__ = ["RULES"]


def _transform(n: int, results: int) -> list[tuple[dict[str, int], int]]:
    """(vector operations, how many) of one transform of length ``n`` that keeps ``results`` of its values."""
    if n > 1 and n & (n - 1) == 0:
        return [({"mul": 4, "add": 6}, n // 2 * (n.bit_length() - 1))]
    return [({"mul": 4, "add": 4}, n * results)]


def _dft(ctx: Context) -> Cost:
    """Along one axis; ``dft_length`` cuts or pads it, ``onesided`` keeps half of it and one more."""
    value = ctx.value(0)
    rank = len(value.dims)
    if rank < 2:
        ctx.fail(f"the input {list(value.dims)} has no dimension of real and imaginary parts")
    if ctx.opset >= 20:
        given = ctx.ints(2)
        axis = given[0] if given else -2
    else:
        axis = ctx.attr("axis", 1)
    if not -rank <= axis < rank:
        ctx.fail(f"axis {axis} is not within the {rank} dimensions")
    axis %= rank
    length = ctx.ints(1)
    n = length[0] if length else ctx.number(value.dims[axis], "the length of the transform")
    one, inverse = ctx.attr("onesided", 0), ctx.attr("inverse", 0)
    kept = n // 2 + 1 if one and not inverse else n
    others = product(d for i, d in enumerate(value.dims[:-1]) if i != axis)
    ctx.out((*value.dims[:axis], kept, *value.dims[axis + 1 : -1], 1 if one and inverse else 2))
    return Cost(vec=[VecWork(per, others * count) for per, count in _transform(n, kept)])


def _stft(ctx: Context) -> Cost:
    """Frames are weighed by the window, then transformed one by one."""
    value, window = ctx.value(0), ctx.optional(2)
    step, given = ctx.ints(1), ctx.ints(3)
    if step is None or (window is None and given is None):
        ctx.fail("the step, and the window or the length of a frame, are missing")
    n = given[0] if given else ctx.number(window.dims[0], "the window")  # type: ignore[union-attr]
    length = ctx.number(value.dims[1], "the length of the signal")
    if length < n or step[0] < 1:
        ctx.fail(f"frames of {n} every {step[0]} do not fit a signal of {length}")
    frames = (length - n) // step[0] + 1
    kept = n // 2 + 1 if ctx.attr("onesided", 1) else n
    ctx.out((value.dims[0], frames, kept, 2))
    rows = value.dims[0] * frames
    cost = Cost(vec=[VecWork(per, rows * count) for per, count in _transform(n, kept)])
    if window is not None:
        cost.vec.append(VecWork({"mul": 1}, rows, as_expr(n)))
        cost.weights += ctx.operand(window, "other")
    return cost


def _window(ctx: Context) -> Cost:
    """A cosine for each element (two for Blackman)."""
    size = ctx.ints(0)
    if not size:
        ctx.fail("its size is missing")
    out = ctx.out((size[0],), dtype=ctx.attr("output_datatype", 1))
    assert out is not None
    terms = 2 if ctx.node.type == "BlackmanWindow" else 1
    return Cost(vec=[VecWork({"exp": terms, "mul": terms, "add": terms}, out.elements)])


def _mel(ctx: Context) -> Cost:
    """Each element is the distance to two edges, divided."""
    bins, length = ctx.ints(0), ctx.ints(1)
    if not bins or not length:
        ctx.fail("the number of bins and the length of the transform are missing")
    dims: tuple[Expr | int, ...] = (length[0] // 2 + 1, bins[0])
    out = ctx.out(dims, dtype=ctx.attr("output_datatype", 1))
    assert out is not None
    return Cost(vec=[VecWork({"add": 3, "div": 2}, out.elements)])


RULES = {
    "DFT": _dft,
    "STFT": _stft,
    "HannWindow": _window,
    "HammingWindow": _window,
    "BlackmanWindow": _window,
    "MelWeightMatrix": _mel,
}
