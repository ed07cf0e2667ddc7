"""Attention of every kind: dense scores over the past and the new tokens, and the KV cache.

A cache has three lengths. Its capacity is the past's dimension; its valid entries are as many, unless the model is told
the total length (a stored or bound number); with a sliding window a token looks at the ``w`` entries before its own, so
that ``min(kv, w)`` old ones are read. Keys and values are read once per KV head, whose query heads share them.
Where keys and values are inputs of the model, they are its cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from bpusim.compiler.dims import KV, Expr, as_expr
from bpusim.compiler.rules.elementwise import SOFTMAX
from bpusim.compiler.values import Context, Cost, Gemm, Value, VecWork

__all__ = ["SOFTCAP", "Shape", "attention_cost", "one_sequence", "seen_entries", "valid_entries", "width_of_head"]

_SCORES = {**SOFTMAX, "mul": SOFTMAX["mul"] + 1, "add": SOFTMAX["add"] + 1, "convert": 1}
"""Per attended score: scale and mask, softmax, conversion to the activation type."""

SOFTCAP = {"exp": 1, "add": 2, "div": 1, "mul": 2}
"""Per attended score: a tangent, scaled on both sides."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Heads, their widths (of keys, of values), new tokens, old entries that are looked at."""

    heads: int
    kv_heads: int
    key: int
    value: int
    tokens: Expr
    past: Expr
    new: Expr
    """New entries; those of the tokens themselves unless it is cross attention."""
    batch: int = 1


def attention_cost(s: Shape, cached: bool = False, fed: bool = False) -> Cost:
    """MACs are ``heads x (key + value width)`` per (token, attended slot).

    ``cached``: old entries are read from the cache and new ones written; ``fed``: all entries are read from it.
    """
    group, attended = s.heads // s.kv_heads, s.past + s.new
    cost = Cost(
        gemms=[
            Gemm(s.tokens * group, as_expr(s.key), attended, s.kv_heads * s.batch),
            Gemm(s.tokens * group, attended, as_expr(s.value), s.kv_heads * s.batch),
        ],
        vec=[
            VecWork(_SCORES, s.tokens * (s.heads * s.batch), attended),
            VecWork({"div": 1}, s.tokens * (s.heads * s.batch)),
            VecWork({"convert": 1}, s.tokens, as_expr(s.heads * s.value * s.batch)),
        ],
    )
    slot = s.kv_heads * (s.key + s.value) * s.batch
    if fed:
        cost.kv_read = attended * slot
    elif cached:
        cost.kv_read, cost.kv_write = s.past * slot, s.new * slot
    return cost


def valid_entries(ctx: Context, past: Expr, new: Expr, total: Value | None) -> Expr:
    """Valid old entries: the past's dimension (the capacity), or what a known total length leaves."""
    if total is None or total.const is None or len(total.const) != 1:
        return past
    valid = total.const[0] - new
    if valid.is_const and past.is_const and not 0 <= int(valid) <= int(past):
        ctx.fail(f"a total of {total.const[0]} entries does not fit a cache of {past} and {new} new ones")
    return valid


def seen_entries(ctx: Context, past: Expr, left: int) -> Expr:
    """Old entries within a window of ``left`` entries before the token's own; -1: all."""
    if left == -1:
        return past
    if left < 0:
        ctx.fail(f"a window of {left} entries")
    if past.is_const:
        return as_expr(min(int(past), left))
    if past != KV:
        ctx.fail(f"a window over a past of {past} entries", do="bind the length of the past")
    return Expr({f"min(kv,{left})": 1}) if left else as_expr(0)


def width_of_head(ctx: Context, width: Expr, heads: int, what: str) -> int:
    """``width`` shared out evenly to ``heads``, or an error that names ``what``."""
    size, rest = divmod(ctx.number(width, f"the width of the {what}"), heads)
    if rest:
        ctx.fail(f"a {what} of width {width} does not divide into {heads} heads")
    return size


def one_sequence(ctx: Context, batch: Expr) -> None:
    """A cache is of one sequence: anything else is an error."""
    if batch != 1:
        ctx.fail(f"batch {batch} is not supported; bind it to 1 (the runtime batches by binding the trace)")
