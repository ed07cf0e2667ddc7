"""Mixtures of experts. All experts are resident; a token is worked on by ``k`` of them, and only these are read.

Each token may choose other experts: a step reads ``tokens x k`` of them, or all, whichever is less. So a batch of
sequences reads ``min(batch x k, all)``: an upper bound, since two of them may choose the same one.
"""

from __future__ import annotations

from bpusim.compiler.dims import Expr, as_expr, product
from bpusim.compiler.quant import WeightUse
from bpusim.compiler.rules.conv import activation
from bpusim.compiler.values import Context, Cost, Gemm, Value, VecWork

__all__ = ["RULES"]


def _matrix(ctx: Context, value: Value, k: int, pack: int) -> tuple[int, int]:
    """(experts, columns) of stored matrices that take ``k`` inputs; which of the two dimensions that is follows from
    the sizes, ``pack`` elements to a byte."""
    if len(value.dims) != 3 or value.weight is None:
        ctx.fail(f"the experts' weights {list(value.dims)} must be stored, as [experts, columns, rows]")
    experts, a, b = (ctx.number(d, "a size of the experts") for d in value.dims)
    if b * pack == k:
        return experts, a
    if a == k:
        return experts, b * pack
    return ctx.fail(f"experts of {list(value.dims)} do not take {k} inputs")


def _mixture(ctx: Context) -> Cost:
    """``com.microsoft::MoE`` and ``QMoE``: two or three matrices an expert, an activation between them."""
    quantised = ctx.node.type == "QMoE"
    value, chances = ctx.value(0), ctx.value(1)
    width = ctx.number(value.dims[-1], "the width of the input")
    tokens = product(value.dims[:-1])
    active = ctx.attr("k", 1)
    pack = 8 // ctx.attr("expert_weight_bits", 4) if quantised else 1
    step = 3 if quantised else 2
    first, second, third = ctx.value(2), ctx.value(2 + step), ctx.optional(2 + 2 * step)
    experts, wide = _matrix(ctx, first, width, pack)
    gated = ctx.attr("activation_type", "relu") == "swiglu" and third is None
    inner = wide // 2 if gated else wide
    if not 1 <= active <= experts or chances.dims[-1] != experts:
        ctx.fail(f"{active} of {experts} experts, with chances {list(chances.dims)}")
    out = ctx.out(value.dims)
    assert out is not None
    cost = Cost()

    def run(index: int, k: int) -> None:
        weight = ctx.value(index)
        count, columns = _matrix(ctx, weight, k, pack)
        if count != experts:
            ctx.fail(f"{count} experts where there are {experts}")
        cost.gemms.append(Gemm(tokens, as_expr(k), as_expr(columns), active))
        cost.vec.append(VecWork({"convert": 1}, tokens * active, as_expr(columns)))
        scales = ctx.optional(index + 1) if quantised else None
        use = ctx.use(weight, "linear", experts * columns, k, scales)
        cost.weights.append((use, tokens * (active * columns)))
        bias = ctx.optional(index + step - 1)
        if bias is not None:
            cost.vec.append(VecWork({"add": 1}, tokens * active, as_expr(columns)))
            cost.weights += _rows(ctx, bias, tokens, active, experts)

    run(2, width)
    kind = ctx.attr("activation_type", "relu")
    if kind in ("swiglu", "silu"):
        cost.vec += activation(ctx, "Silu", tokens * (active * inner))
    elif kind != "identity":
        cost.vec += activation(ctx, kind, tokens * (active * inner))
    if third is not None:
        run(2 + 2 * step, width)
    if third is not None or gated:
        cost.vec.append(VecWork({"mul": 1}, tokens * active, as_expr(inner)))
    run(2 + step, inner)
    if second.dims[0] != experts:
        ctx.fail(f"{second.dims[0]} experts where there are {experts}")
    cost.vec += [
        VecWork({"add": 1, "exp": 1, "reduce": active + 1, "mul": 1}, tokens, as_expr(experts)),  # softmax, k picks
        VecWork({"mul": 1, "add": 1}, tokens * active, as_expr(width)),  # results weighed and summed
    ]
    return cost


def _rows(ctx: Context, bias: Value, tokens: Expr, active: int, experts: int) -> list[tuple[WeightUse, Expr | None]]:
    """A bias of each active expert."""
    if bias.weight is None:
        return []
    columns = ctx.number(bias.dims[-1], "a bias")
    return [(ctx.use(bias, "bias", experts, columns), tokens * active)]


RULES = {"MoE": _mixture, "QMoE": _mixture}
