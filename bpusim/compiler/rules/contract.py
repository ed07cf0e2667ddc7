"""``Einsum``: a contraction is a stack of matrix products, anything else a sum, a product or a copy."""

from __future__ import annotations

from bpusim.compiler.dims import Expr, product
from bpusim.compiler.rules.linear import stack
from bpusim.compiler.values import Context, Cost, Value, VecWork

__all__ = ["RULES"]


def _labels(ctx: Context, equation: str, values: list[Value]) -> tuple[list[str], str]:
    """(labels of each operand, of the result); an ellipsis becomes digits, counted from the last dimension."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        ctx.fail(f"the equation '{equation}' has {len(terms)} operands, the node {len(values)}")
    widest, out = "", []
    for term, value in zip(terms, values, strict=True):
        if "..." in term:
            more = len(value.dims) - len(term) + 3
            digits = "0123456789"[:more][::-1] if more > 0 else ""
            term, widest = term.replace("...", digits), max(widest, digits, key=len)
        if len(term) != len(value.dims):
            ctx.fail(f"'{term}' of the equation '{equation}' does not name the dimensions of {list(value.dims)}")
        if len(set(term)) != len(term):
            ctx.fail(f"'{term}' of the equation '{equation}' takes a diagonal, which has no cost rule")
        out.append(term)
    if arrow:
        return out, right.replace("...", widest)
    every = "".join(out)
    return out, widest + "".join(sorted(c for c in set(every) if c.isalpha() and every.count(c) == 1))


def _sizes(ctx: Context, terms: list[str], values: list[Value]) -> dict[str, Expr]:
    sizes: dict[str, Expr] = {}
    for term, value in zip(terms, values, strict=True):
        for label, dim in zip(term, value.dims, strict=True):
            known = sizes.setdefault(label, dim)
            if known == 1:
                sizes[label] = dim
            elif dim not in (known, 1):
                ctx.fail(f"dimension '{label}' is {known} and {dim}")
    return sizes


def _pair(
    ctx: Context, a: tuple[str, Value], b: tuple[str, Value], keep: set[str], sizes: dict[str, Expr]
) -> tuple[str, Cost]:
    """(labels of the result, cost) of two operands: labels of one side that nobody needs are summed first."""
    cost = Cost()
    sides: list[tuple[str, Value]] = []
    for (term, value), other in ((a, b[0]), (b, a[0])):
        left = "".join(c for c in term if c in keep or c in other)
        if left != term:
            cost.vec.append(VecWork({"reduce": 1}, value.elements))
            cost.weights += ctx.part(value, value.elements)
            value = Value(tuple(sizes[c] for c in left), value.dtype)
        sides.append((left, value))
    (ta, va), (tb, vb) = sides

    def size(labels: list[str]) -> Expr:
        return product(sizes[c] for c in labels)

    both = [c for c in ta if c in tb]
    batch, k = [c for c in both if c in keep], [c for c in both if c not in keep]
    m, n = [c for c in ta if c not in tb], [c for c in tb if c not in ta]
    result = "".join(batch + m + n)
    if not k:
        cost.vec.append(VecWork({"mul": 1}, size([*result])))
        for v in (va, vb):
            cost.weights += ctx.part(v, v.elements)
        return result, cost
    made = stack(ctx, va, vb, size(m), size(k), size(n), size(batch))
    return result, Cost(made.gemms, [*cost.vec, *made.vec], [*cost.weights, *made.weights])


def _einsum(ctx: Context) -> Cost:
    """Operands are contracted from left to right."""
    values = [ctx.value(i) for i in range(len(ctx.inputs))]
    terms, result = _labels(ctx, ctx.attr("equation"), values)
    sizes = _sizes(ctx, terms, values)
    if any(c not in sizes for c in result):
        ctx.fail(f"the equation '{ctx.attr('equation')}' makes a dimension that no operand has")
    out = ctx.out(tuple(sizes[c] for c in result))
    assert out is not None
    total = Cost()
    left = (terms[0], values[0])
    for i in range(1, len(values)):
        keep = set(result).union(*terms[i + 1 :])
        made, cost = _pair(ctx, left, (terms[i], values[i]), keep, sizes)
        left = (made, Value(tuple(sizes[c] for c in made), out.dtype))
        total = Cost(total.gemms + cost.gemms, total.vec + cost.vec, total.weights + cost.weights)
    if len(values) == 1:
        summed = any(c not in result for c in terms[0])
        total.vec.append(VecWork({"reduce": 1} if summed else {"convert": 1}, values[0].elements))
        total.weights += ctx.part(values[0], values[0].elements)
    return total


RULES = {"Einsum": _einsum}
