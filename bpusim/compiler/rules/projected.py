"""Attention with its projections, attention of sequences packed without padding, attention with a state instead of a
cache."""

from __future__ import annotations

from bpusim.compiler.dims import ONE, as_expr
from bpusim.compiler.rules.heads import Shape, attention_cost, one_sequence, width_of_head
from bpusim.compiler.rules.linear import stack
from bpusim.compiler.rules.operands import (
    AGAIN,
    check_mask,
    check_padding,
    check_rows,
    count_of,
    differ,
    rows_of,
    unlike,
)
from bpusim.compiler.values import Context, Cost, Gemm, VecWork

__all__ = ["RULES", "projected_attention"]


def projected_attention(ctx: Context) -> Cost:
    """``com.microsoft::Attention`` and ``QAttention``: the projection of queries, keys and values is part of it."""
    quantised = ctx.node.type == "QAttention"
    value, weight, bias, past = ctx.value(0), ctx.value(1), ctx.optional(2), ctx.optional(8 if quantised else 4)
    heads = count_of(ctx, "num_heads")
    batch, tokens = value.dims[0], value.dims[1]
    k, n = (ctx.number(d, "a size of the weight") for d in weight.dims)
    if value.dims[2] != k:
        ctx.fail(f"the input has {value.dims[2]} columns, the weight {k} rows")
    q_width, k_width, v_width = ctx.attr("qkv_hidden_sizes", [n // 3] * 3)
    if q_width + k_width + v_width != n or q_width != k_width:
        ctx.fail(f"a weight of {n} columns is not {q_width}, {k_width} and {v_width} for queries, keys and values")
    key, v_dim = (width_of_head(ctx, as_expr(w), heads, "projection") for w in (q_width, v_width))
    old = as_expr(0)
    if past is not None:
        if unlike(past.dims, (2, batch, heads, past.dims[3] if len(past.dims) == 5 else 0, key)) or key != v_dim:
            ctx.fail(f"a cache {list(past.dims)} is not [2, {batch}, {heads}, entries, {key}]", AGAIN)
        old = past.dims[3]
    check_padding(ctx, 5 if quantised else 3, batch, tokens, (old + tokens, tokens))
    if not quantised:
        check_mask(ctx, 5, (batch, heads, tokens), (old + tokens,))
    ctx.out((batch, tokens, v_width), dtype=ctx.value(3).dtype if quantised else None)
    ctx.out((2, batch, heads, old + tokens, key), index=1, dtype=None if past is None else past.dtype)
    count = ctx.number(batch, "the batch")
    cost = attention_cost(Shape(heads, heads, key, v_dim, tokens, old, tokens, count), cached=past is not None)
    made = stack(ctx, value, weight, batch * tokens, as_expr(k), as_expr(n), ONE)
    cost.gemms, cost.vec, cost.weights = made.gemms + cost.gemms, made.vec + cost.vec, made.weights
    if past is not None:
        one_sequence(ctx, batch)
        cost.cache_inputs, cost.cache_outputs = ((8,) if quantised else (4,)), (1,)
    if bias is not None:
        cost.vec.append(VecWork({"add": 1}, batch * tokens, as_expr(n)))
        cost.weights += ctx.operand(bias, "bias")
    return cost


def _packed_attention(ctx: Context) -> Cost:
    """``com.microsoft::PackedAttention``, ``PackedMultiHeadAttention``: sequences without padding, one after another.

    How long each is, the run decides: every token looks at the longest sequence there may be.
    """
    value, heads = ctx.value(0), count_of(ctx, "num_heads")
    total = value.dims[0]
    projected = ctx.node.type == "PackedAttention"
    offsets = ctx.value(3 if projected else 4)
    longest = offsets.dims[1]
    cost = Cost()
    if projected:
        weight = ctx.value(1)
        k, n = (ctx.number(d, "a size of the weight") for d in weight.dims)
        if value.dims[1] != k:
            ctx.fail(f"the input has {value.dims[1]} columns, the weight {k} rows")
        q_width, _, v_width = ctx.attr("qkv_hidden_sizes", [n // 3] * 3)
        cost = stack(ctx, value, weight, total, as_expr(k), as_expr(n), ONE)
        cost.vec.append(VecWork({"add": 1}, total, as_expr(n)))
        cost.weights += ctx.operand(ctx.optional(2), "bias")
    elif len(value.dims) == 4:
        q_width = v_width = heads * ctx.number(value.dims[3], "the width of a head")
    else:
        keys, values = ctx.value(1), ctx.value(2)
        if unlike(keys.dims, value.dims) or differ(values.dims[0], total):
            what = f"keys {list(keys.dims)} and values {list(values.dims)} do not fit queries {list(value.dims)}"
            ctx.fail(what, AGAIN)
        q_width = ctx.number(value.dims[1], "the width of the query")
        v_width = ctx.number(values.dims[1], "the width of the value")
    key, v_dim = (width_of_head(ctx, as_expr(w), heads, "query") for w in (q_width, v_width))
    ctx.out((total, v_width))
    made = attention_cost(Shape(heads, heads, key, v_dim, total, as_expr(0), longest))
    return Cost(cost.gemms + made.gemms, cost.vec + made.vec, cost.weights)


def _linear_attention(ctx: Context) -> Cost:
    """A state of key by value width for each KV head, updated token by token.

    MACs per token: the state's update and the look-up for each query head; the delta rules look the state up once more.
    The state stays on chip within a call; it comes in and goes out like any tensor.
    """
    query, key, value = ctx.value(0), ctx.value(1), ctx.value(2)
    heads, kv_heads = count_of(ctx, "q_num_heads"), count_of(ctx, "kv_num_heads")
    batch, tokens = query.dims[0], query.dims[1]
    k, v = width_of_head(ctx, key.dims[-1], kv_heads, "key"), width_of_head(ctx, value.dims[-1], kv_heads, "value")
    check_rows(
        ctx,
        rows_of(ctx, "queries", query, heads),
        rows_of(ctx, "keys", key, kv_heads),
        rows_of(ctx, "values", value, kv_heads),
    )
    count = ctx.number(batch, "the batch")
    ctx.out((batch, tokens, heads * v))
    ctx.out((batch, kv_heads, k, v), index=1)
    rule = ctx.attr("update_rule", "gated_delta")
    gemms = [
        Gemm(tokens * k, ONE, as_expr(v), kv_heads * count),
        Gemm(tokens, as_expr(k), as_expr(v), heads * count),
    ]
    if "delta" in rule:
        gemms.append(Gemm(tokens, as_expr(k), as_expr(v), kv_heads * count))
    vec = [VecWork({"convert": 1}, tokens, as_expr(heads * v * count))]
    if "gated" in rule:
        vec += [
            VecWork({"mul": 1}, tokens, as_expr(kv_heads * k * v * count)),
            VecWork({"exp": 1}, tokens, as_expr(kv_heads * count)),
        ]
    if "delta" in rule:
        vec.append(VecWork({"add": 1, "mul": 1}, tokens, as_expr(kv_heads * v * count)))
    return Cost(gemms=gemms, vec=vec)


RULES = {
    "QAttention": projected_attention,
    "PackedAttention": _packed_attention,
    "PackedMultiHeadAttention": _packed_attention,
    "LinearAttention": _linear_attention,
}
