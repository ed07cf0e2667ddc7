"""Attention over a KV cache: the kinds that language models are exported with, and the rotation of positions."""

from __future__ import annotations

from dataclasses import replace

from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.rules.heads import (
    SOFTCAP,
    Shape,
    attention_cost,
    one_sequence,
    seen_entries,
    valid_entries,
    width_of_head,
)
from bpusim.compiler.rules.projected import projected_attention
from bpusim.compiler.values import Context, Cost, VecWork

__all__ = ["RULES"]


def _rotate(ctx: Context, cost: Cost, rotated: Expr, tokens: Expr, tables: tuple[int, int]) -> None:
    """Rotation on the vector unit; the rows of stored tables are read once a step for all layers."""
    cost.vec.append(VecWork({"mul": 2, "add": 1}, tokens, rotated))
    for index in tables:
        table = ctx.value(index)
        if table.weight is not None:
            rows, k = (ctx.number(d, "the RoPE table") for d in table.dims)
            cost.resident.append(ctx.use(table, "rope", rows, k))


def _group_query_attention(ctx: Context) -> Cost:
    """``com.microsoft::GroupQueryAttention``."""
    query, key, past = ctx.value(0), ctx.optional(1), ctx.optional(3)
    heads, kv_heads = ctx.attr("num_heads"), ctx.attr("kv_num_heads")
    width = ctx.number(query.dims[-1], "the width of the query")
    head_dim, rest = divmod(width, heads if key is not None else heads + 2 * kv_heads)
    if rest or heads % kv_heads:
        ctx.fail(f"width {width} does not divide into {heads} heads and {kv_heads} KV heads")
    for what, given in (("keys", key), ("values", ctx.optional(2))):
        if given is not None and len(given.dims) == 3 and given.dims[2] != kv_heads * head_dim:
            ctx.fail(f"{what} {list(given.dims)} are not {kv_heads} heads of {head_dim}")
    if past is not None and past.dims[1] != kv_heads:
        ctx.fail(f"a cache {list(past.dims)} is not of {kv_heads} heads")
    batch, tokens = query.dims[0], query.dims[1]
    one_sequence(ctx, batch)
    capacity = as_expr(0) if past is None else past.dims[2]
    valid = capacity if past is None else valid_entries(ctx, capacity, tokens, ctx.optional(6))
    ctx.out((batch, tokens, heads * head_dim))
    held = capacity + tokens if valid == capacity else capacity  # of a known total: a buffer used in place
    stored = head_dim  # elements of a cached row: fewer where several share a byte
    if past is not None and past.dims[3].is_const:
        stored = int(past.dims[3])
    for index in (1, 2):
        ctx.out((batch, kv_heads, held, stored), index=index, dtype=None if past is None else past.dtype)
    left = ctx.attr("local_window_size", -1)
    if not left:
        ctx.fail("a window of 0 entries", do="state -1 for none")
    old = seen_entries(ctx, valid, left)
    cost = attention_cost(Shape(heads, kv_heads, head_dim, head_dim, tokens, old, tokens), cached=True)
    slot = 2 * kv_heads * stored
    cost.kv_read, cost.kv_write = old * slot, tokens * slot
    cost.cache_inputs, cost.cache_outputs = (() if past is None else (3, 4)), (1, 2)
    if ctx.attr("softcap", 0.0):
        cost.vec.append(VecWork(SOFTCAP, tokens * heads, old + tokens))
    if ctx.attr("do_rotary", 0):
        _rotate(ctx, cost, as_expr((heads + kv_heads) * head_dim), tokens, (7, 8))
    return cost


def _multi_head_attention(ctx: Context) -> Cost:
    """``com.microsoft::MultiHeadAttention`` and its decoding form: apart, packed, or with keys of another sequence."""
    masked = ctx.node.type == "DecoderMaskedMultiHeadAttention"
    first = 5 if masked else 6
    query, key, value = ctx.value(0), ctx.optional(1), ctx.optional(2)
    heads = ctx.attr("num_heads")
    batch, tokens = query.dims[0], query.dims[1]
    if len(query.dims) == 5:  # queries, keys and values of each head packed together
        head_dim = v_dim = ctx.number(query.dims[4], "the width of a head")
        if query.dims[2] != heads or query.dims[3] != 3:
            ctx.fail(f"a packed query {list(query.dims)} is not [batch, tokens, {heads}, 3, width]")
        new = tokens
    else:
        head_dim = v_dim = width_of_head(ctx, query.dims[-1], heads, "query")
        new = tokens
        if key is not None and len(key.dims) == 5:
            new = key.dims[1]
        elif key is not None:
            new = key.dims[2] if len(key.dims) == 4 else key.dims[1]
            if value is not None:
                v_dim = (
                    ctx.number(value.dims[3], "the width of a head")
                    if len(value.dims) == 4
                    else width_of_head(ctx, value.dims[-1], heads, "value")
                )
    past = ctx.optional(first)
    old = as_expr(0) if past is None else past.dims[2]
    held = old + new
    stated = ctx.optional(7) if masked else None  # valid entries of a buffer that is used in place
    if stated is not None and stated.const is not None:
        old, held = valid_entries(ctx, old, new, replace(stated, const=(stated.const[0] + new,))), old
    ctx.out((batch, tokens, heads * v_dim))
    for index, width in ((1, head_dim), (2, v_dim)):
        ctx.out((batch, heads, held, width), index=index)
    fed = past is None and key is not None and key.fed and value is not None and value.fed and new != tokens
    count = ctx.number(batch, "the batch")
    if past is not None:
        one_sequence(ctx, batch)
    cost = attention_cost(
        Shape(heads, heads, head_dim, v_dim, tokens, old, new, count), cached=past is not None, fed=fed
    )
    if past is not None:
        cost.cache_inputs, cost.cache_outputs = (first, first + 1), (1, 2)
    elif fed:
        cost.cache_inputs = (1, 2)
    bias = ctx.optional(10 if masked else 3)
    if bias is not None:
        cost.vec.append(VecWork({"add": 1}, (tokens + new) * count, as_expr(heads * head_dim)))
        cost.weights += ctx.operand(bias, "bias")
    return cost


def _attention(ctx: Context) -> Cost:
    """``Attention`` of opset 23 on; another of that name is ``com.microsoft``'s."""
    if ctx.node.domain:
        return projected_attention(ctx)
    query, key, value = ctx.value(0), ctx.value(1), ctx.value(2)
    past = ctx.optional(4)
    if len(query.dims) == 4:
        heads, kv_heads = (ctx.number(v.dims[1], "the number of heads") for v in (query, key))
        head_dim, v_dim = (ctx.number(v.dims[3], "the width of a head") for v in (query, value))
        tokens, new = query.dims[2], key.dims[2]
    else:
        heads, kv_heads = ctx.attr("q_num_heads"), ctx.attr("kv_num_heads")
        head_dim = width_of_head(ctx, query.dims[-1], heads, "query")
        v_dim = width_of_head(ctx, value.dims[-1], kv_heads, "value")
        tokens, new = query.dims[1], key.dims[1]
    if heads % kv_heads:
        ctx.fail(f"{heads} query heads do not share {kv_heads} KV heads evenly")
    batch = ctx.number(query.dims[0], "the batch")
    if past is not None:
        one_sequence(ctx, query.dims[0])
    capacity = as_expr(0) if past is None else past.dims[2]
    valid = new if past is not None else valid_entries(ctx, new, as_expr(0), ctx.optional(6))
    left = ctx.attr("left_window_size", -1)
    old = seen_entries(ctx, capacity, left)
    looked_at = valid
    if past is None and left != -1 and valid.is_const and tokens.is_const:
        looked_at = as_expr(min(int(valid), left + int(tokens)))
    ctx.out((batch, heads, tokens, v_dim) if len(query.dims) == 4 else (batch, tokens, heads * v_dim))
    for index, width in ((1, head_dim), (2, v_dim)):
        ctx.out((batch, kv_heads, capacity + new, width), index=index)
    scores = ctx.out((batch, heads, tokens, capacity + new), index=3)
    fed = past is None and key.fed and value.fed and new != tokens
    shape = Shape(heads, kv_heads, head_dim, v_dim, tokens, old, looked_at, batch)
    cost = attention_cost(shape, cached=past is not None, fed=fed)
    if past is not None:
        cost.cache_inputs, cost.cache_outputs = (4, 5), (1, 2)
    elif fed:
        cost.cache_inputs = (1, 2)
    if ctx.attr("softcap", 0.0):
        cost.vec.append(VecWork(SOFTCAP, tokens * (heads * batch), old + looked_at))
    if scores is not None:
        cost.vec.append(VecWork({"convert": 1}, scores.elements))
    return cost


def _rotary_embedding(ctx: Context) -> Cost:
    """Of opset 23 on (positions last, or cosines by token) and of ``com.microsoft`` (positions second)."""
    value = ctx.value(0)
    ctx.out(value.dims)
    tables = (2, 3) if ctx.node.domain else (1, 2)
    batch, tokens = value.dims[0], value.dims[2 if len(value.dims) == 4 else 1]
    width = ctx.number(value.dims[-1], "the width of the input")
    if len(value.dims) == 4:
        heads, width = ctx.number(value.dims[1], "the number of heads"), width
    else:
        heads = ctx.attr("num_heads", 0) or 0
        if not heads:
            part = ctx.number(ctx.value(tables[0]).dims[-1], "the RoPE table") * 2
            heads = width // part if not width % part else 1
        width = width // heads
    part = ctx.attr("rotary_embedding_dim", 0) or width
    cost = Cost()
    if len(ctx.value(tables[0]).dims) == 2 and ctx.optional(1 if ctx.node.domain else 3) is not None:
        _rotate(ctx, cost, batch * (heads * part), tokens, tables)
    else:  # a row for each token, not chosen by position
        cost.vec.append(VecWork({"mul": 2, "add": 1}, tokens, batch * (heads * part)))
        for index in tables:
            cost.weights += ctx.operand(ctx.optional(index), "rope")
    if part < width:
        cost.vec.append(VecWork({"convert": 1}, tokens, batch * (heads * (width - part))))
    return cost


RULES = {
    "GroupQueryAttention": _group_query_attention,
    "MultiHeadAttention": _multi_head_attention,
    "DecoderMaskedMultiHeadAttention": _multi_head_attention,
    "Attention": _attention,
    "RotaryEmbedding": _rotary_embedding,
}
