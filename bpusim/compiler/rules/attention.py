"""Fused attention with a KV cache."""

from __future__ import annotations

from bpusim.compiler.dims import as_expr
from bpusim.compiler.rules.elementwise import SOFTMAX
from bpusim.compiler.values import Context, Cost, Gemm, VecWork

__all__ = ["RULES"]

_SCORES = {**SOFTMAX, "mul": SOFTMAX["mul"] + 1, "add": SOFTMAX["add"] + 1, "convert": 1}
"""Per attended score: scale and mask, softmax, conversion to the activation type."""


def _group_query_attention(ctx: Context) -> Cost:
    """``com.microsoft::GroupQueryAttention``: dense scores over the past and the new tokens.

    MACs are ``2 x heads x head dim`` per (token, attended slot). The cached keys and values are read once per KV head
    (its query heads share them) and held stationary; the new tokens' are written to the cache.
    """
    query, key, past = ctx.value(0), ctx.optional(1), ctx.value(3)
    heads, kv_heads = ctx.attr("num_heads"), ctx.attr("kv_num_heads")
    width = ctx.number(query.dims[-1], "the width of the query")
    head_dim, rest = divmod(width, heads if key is not None else heads + 2 * kv_heads)
    if rest or heads % kv_heads:
        ctx.fail(f"width {width} does not divide into {heads} heads and {kv_heads} KV heads")
    if ctx.attr("local_window_size", -1) != -1:
        ctx.fail("a sliding window is not supported yet")
    batch, tokens = query.dims[0], query.dims[1]
    if batch != 1:
        ctx.fail(f"batch {batch} is not supported; bind it to 1 (the runtime batches by binding the trace)")
    past_len = past.dims[2]
    attended = past_len + tokens
    ctx.out((batch, tokens, heads * head_dim))
    for index in (1, 2):
        ctx.out((batch, kv_heads, attended, head_dim), index=index, dtype=past.dtype)
    group = heads // kv_heads
    per_slot = kv_heads * head_dim * 2
    cost = Cost(
        gemms=[
            Gemm(tokens * group, as_expr(head_dim), attended, kv_heads),
            Gemm(tokens * group, attended, as_expr(head_dim), kv_heads),
        ],
        vec=[
            VecWork(_SCORES, tokens * heads, attended),
            VecWork({"div": 1}, tokens * heads),
            VecWork({"convert": 1}, tokens, as_expr(heads * head_dim)),
        ],
        kv_read=past_len * per_slot,
        kv_write=tokens * per_slot,
        cache_inputs=(3, 4),
        cache_outputs=(1, 2),
    )
    if ctx.attr("do_rotary", 0):
        rotated = (heads + kv_heads) * head_dim
        cost.vec.append(VecWork({"mul": 2, "add": 1}, tokens, as_expr(rotated)))
        for index in (7, 8):
            table = ctx.value(index)
            rows, k = (ctx.number(d, "the RoPE table") for d in table.dims)
            cost.resident.append(ctx.use(table, "rope", rows, k))
    return cost


RULES = {"GroupQueryAttention": _group_query_attention}
