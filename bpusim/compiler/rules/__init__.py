"""Cost rules: one function per family of ops, found by op type. An op without a rule is never free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.graph import INTEGER, Stored
from bpusim.compiler.quant import WeightUse
from bpusim.compiler.rules import (
    attention,
    contract,
    conv,
    elementwise,
    experts,
    layout,
    linear,
    moves,
    norms,
    on_cpu,
    pooling,
    projected,
    quantise,
    recurrent,
    signal,
)
from bpusim.compiler.rules.refused import FRONT_END, REFUSED
from bpusim.compiler.values import Context, Cost, Value

__all__ = ["DOMAINS", "FAMILIES", "FRONT_END", "REFUSED", "RULES", "Rule"]

Rule = Callable[[Context], Cost | None]
"""Sets the outputs' dims and returns the cost; None for a view."""

DOMAINS = {"", "com.microsoft"}
"""Operator sets whose ops the rules know."""

FAMILIES: dict[str, tuple[Mapping[str, Rule], str]] = {
    "Matrix products, look-ups": (linear.RULES, "GEMM; a stored operand stays in the array; look-ups read their rows"),
    "Contractions": (contract.RULES, "batch, M, K and N by label: GEMMs from left to right; without a K, vector work"),
    "Convolutions": (conv.RULES, "GEMM over output places (transposed: input places); deformable ones sample first"),
    "Pooling": (pooling.RULES, "`reduce` for each element of a window"),
    "Attention": (
        {**attention.RULES, **projected.RULES},
        "two GEMMs a KV head over past and new tokens; softmax on the vector unit",
    ),
    "Mixtures of experts": (experts.RULES, "GEMMs of the active experts; all are resident, the active ones are read"),
    "Recurrent layers": (recurrent.RULES, "GEMMs of the gates, step by step; `R` is read each step if it does not fit"),
    "Normalisations, reductions": (norms.RULES, "vector work by row"),
    "Elementwise, softmax": (elementwise.RULES, "vector work by element"),
    "Copies, resampling": (moves.RULES, "`convert` for each element; products and sums of its neighbours"),
    "Layout": (layout.RULES, "views are free and listed; what moves data is a copy"),
    "Conversions": (quantise.RULES, "fold into the ops around them; alone, vector work"),
    "Signals": (signal.RULES, "butterflies for a power of two, else a direct sum, on the vector unit"),
    "On the CPU": (on_cpu.RULES, "CPU cycles by class, conversions and traffic; a call of its own"),
}
"""Modules of rules by what they are called in the documentation, with how they cost."""


def _with_scales(rule: Rule) -> Rule:
    """The rule, for operands whose scales are stored apart (behind a ``DequantizeLinear``): these are read too.

    What works on stored tensors alone is worked out when the model is prepared: its results are stored tensors.
    """

    def apply(ctx: Context) -> Cost | None:
        cost = rule(ctx)
        _check(ctx, cost)
        if cost is None:
            return None
        if _is_constant(ctx, cost):
            for name, made in ctx.outputs.items():
                ctx.stored[name] = Stored(made.dtype, tuple(int(d) for d in made.dims))
                ctx.outputs[name] = Value.of_stored(name, ctx.stored[name])
            return None
        scaled = {v.weight: v.scales for v in ctx.inputs if v is not None and v.weight and v.scales}
        if scaled:
            cost.weights = [use for part in cost.weights for use in _scaled(ctx, part, scaled)]
        return cost

    return apply


def _check(ctx: Context, cost: Cost | None) -> None:
    """Attributes and sizes that do not go together must not pass as less than no work."""
    for name, made in ctx.outputs.items():
        if any(d.is_const and int(d) < 0 for d in made.dims):
            ctx.fail(f"its result '{name}' would be {list(made.dims)}", do="check the model with onnx")
    if cost is None:
        return
    amounts = [e for g in cost.gemms for e in (g.m, g.k, g.n, as_expr(g.groups))]
    amounts += [e for w in cost.vec for e in (w.rows, w.length)]
    counts = [int(e) for e in amounts if e.is_const] + [n for w in cost.vec for n in w.per.values()]
    if not all(isinstance(n, int) and n >= 0 for n in counts):
        ctx.fail("its attributes do not fit the sizes of its inputs", do="check the model with onnx")


def _scaled(
    ctx: Context, part: tuple[WeightUse, Expr | None], scaled: Mapping[str, tuple[str, ...]]
) -> list[tuple[WeightUse, Expr | None]]:
    use, rows = part
    scales = {n: ctx.stored[n] for n in scaled.get(use.tensor, ())}
    if rows is not None:  # of some rows, their share
        return [(replace(use, stored=use.stored + sum(s.bytes for s in scales.values())), rows)]
    return [part, *((WeightUse(n, "scale", 1, max(s.bytes, 1), s.bytes), None) for n, s in scales.items())]


def _is_constant(ctx: Context, cost: Cost) -> bool:
    given = [v for v in ctx.inputs if v is not None]
    made = list(ctx.outputs.values())
    return (
        bool(given)
        and all(v.weight is not None or v.const is not None for v in given)
        and not cost.cpu
        and not any(v.dtype in INTEGER or not v.elements.is_const for v in made)
    )


RULES: dict[str, Rule] = {t: _with_scales(rule) for rules, _ in FAMILIES.values() for t, rule in rules.items()}
