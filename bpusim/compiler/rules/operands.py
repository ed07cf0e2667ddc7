"""What an attention op is given: queries, keys, values, caches and masks that must fit each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from bpusim.compiler.dims import ONE, Expr, as_expr
from bpusim.compiler.rules.heads import width_of_head
from bpusim.compiler.values import Context, Value

__all__ = [
    "AGAIN",
    "Rows",
    "check_mask",
    "check_padding",
    "check_past",
    "check_rows",
    "count_of",
    "differ",
    "rows_of",
    "unlike",
]

AGAIN = "export the model again, or bind the same sizes"
"""What to do about sizes that contradict each other."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Queries, keys or values: ``heads`` of ``length`` rows of ``width`` elements, for each of ``batch`` sequences."""

    what: str
    batch: Expr
    heads: int
    length: Expr
    width: int


def differ(a: Expr | int, b: Expr | int) -> bool:
    """Whether two sizes can never be equal; one that grows with the position, or is not bound yet, may be."""
    gap = as_expr(a) - b
    return gap.is_const and int(gap) != 0


def unlike(dims: Sequence[Expr], wanted: Sequence[Expr | int]) -> bool:
    """Whether ``dims`` can never be ``wanted``."""
    return len(dims) != len(wanted) or any(differ(a, b) for a, b in zip(dims, wanted, strict=True))


def count_of(ctx: Context, name: str, default: int | None = None) -> int:
    """An attribute that counts something: a whole number of one or more."""
    count = ctx.attr(name, default)
    if not isinstance(count, int) or count < 1:
        ctx.fail(f"attribute '{name}' is {count!r}, not a number of one or more", "export the model again")
    return count


def rows_of(ctx: Context, what: str, value: Value, heads: int | None) -> Rows:
    """A tensor ``[batch, heads, length, width]``, or ``[batch, length, heads x width]`` of so many ``heads``."""
    dims = value.dims
    if len(dims) == 4:
        own = ctx.number(dims[1], f"the number of heads of the {what}")
        if heads not in (None, own):
            ctx.fail(f"the {what} {list(dims)} have {own} heads, not {heads}", AGAIN)
        return Rows(what, dims[0], own, dims[2], ctx.number(dims[3], f"the width of the {what}"))
    if len(dims) != 3:
        ctx.fail(f"the {what} {list(dims)} have {len(dims)} dimensions, not 3 or 4", AGAIN)
    if heads is None:
        ctx.fail(f"the {what} {list(dims)} have 3 dimensions, and nothing says of how many heads", AGAIN)
    return Rows(what, dims[0], heads, dims[1], width_of_head(ctx, dims[2], heads, what))


def check_rows(ctx: Context, query: Rows, key: Rows, value: Rows) -> None:
    """Keys and values are of one batch, length and number of heads; keys are as wide as queries."""
    for name, a, b, one, two in (
        ("batch", key.batch, query.batch, key, query),
        ("batch", value.batch, query.batch, value, query),
        ("number of heads", value.heads, key.heads, value, key),
        ("length", value.length, key.length, value, key),
        ("width of a head", key.width, query.width, key, query),
    ):
        if differ(a, b):
            ctx.fail(f"the {name} of the {one.what} is {a}, that of the {two.what} {b}", AGAIN)


def check_past(ctx: Context, pasts: Sequence[Value | None], rows: Sequence[Rows]) -> None:
    """Both caches of keys and values or none, ``[batch, heads, capacity, width]``, as long as each other."""
    given = [p for p in pasts if p is not None]
    if len(given) == 1:
        ctx.fail("one cache of two: keys and values both have a past, or neither", "export the model again")
    for past, own in zip(given, rows, strict=False):
        if len(past.dims) != 4:
            ctx.fail(f"a cache {list(past.dims)} has {len(past.dims)} dimensions, not 4", AGAIN)
        wanted: list[Expr | int] = [own.batch, own.heads, given[0].dims[2], own.width]
        if unlike(past.dims, wanted):
            ctx.fail(f"a cache {list(past.dims)} of the {own.what} is not {wanted}", AGAIN)


def check_mask(
    ctx: Context, index: int, shape: Sequence[Expr | int], totals: Sequence[Expr], *, shorter: bool = False
) -> None:
    """Input ``index``, if given, broadcasts to ``shape`` but for its last axis, which is one of ``totals``.

    ``shape``: without the last axis; dimensions are matched from the back. ``shorter``: it may be any less, the rest is
    masked.
    """
    mask = ctx.optional(index)
    if mask is None or not mask.dims:
        return
    *front, last = mask.dims

    def wrong(what: str) -> NoReturn:
        name = ctx.node.inputs[index]
        ctx.fail(f"the mask '{name}' {list(mask.dims)} does not fit {what}", AGAIN)

    fits = any(not differ(last, t) for t in totals)
    if not fits and not (shorter and last.is_const and any(t.is_const and int(last) < int(t) for t in totals)):
        wrong(f"{' or '.join(dict.fromkeys(map(str, totals)))} attended entries")
    pairs = zip(reversed(front), reversed(shape), strict=False)
    if len(front) > len(shape) or any(have != ONE and differ(have, wanted) for have, wanted in pairs):
        wrong(f"{[*shape, totals[0]]}")


def check_padding(ctx: Context, index: int, batch: Expr, tokens: Expr, totals: Sequence[Expr]) -> None:
    """Input ``index``, if given: a padding mask ``[batch, entries]`` or ``[batch, tokens, entries]``; lengths by
    sequence are no matter of shape."""
    mask = ctx.optional(index)
    if mask is not None and len(mask.dims) in (2, 3):
        check_mask(ctx, index, (batch, tokens)[: len(mask.dims) - 1], totals)
