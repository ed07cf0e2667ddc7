"""Attention over a KV cache: the kinds that language models are exported with, and the rotation of positions."""

from __future__ import annotations

from dataclasses import replace

import onnx

from bpusim.compiler.dims import ONE, Expr, as_expr
from bpusim.compiler.rules.heads import (
    SOFTCAP,
    Shape,
    attention_cost,
    one_sequence,
    seen_entries,
    valid_entries,
    width_of_head,
)
from bpusim.compiler.rules.operands import (
    AGAIN,
    Rows,
    check_mask,
    check_padding,
    check_past,
    check_rows,
    count_of,
    differ,
    rows_of,
    unlike,
)
from bpusim.compiler.rules.projected import projected_attention
from bpusim.compiler.values import Context, Cost, VecWork

__all__ = ["RULES"]

_SHORTER = 24
"""From this operator set on a mask may be shorter than what it masks."""


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
    heads, kv_heads = count_of(ctx, "num_heads"), count_of(ctx, "kv_num_heads")
    if len(query.dims) != 3:
        ctx.fail(f"the queries {list(query.dims)} have {len(query.dims)} dimensions, not 3", AGAIN)
    width = ctx.number(query.dims[-1], "the width of the query")
    head_dim, rest = divmod(width, heads if key is not None else heads + 2 * kv_heads)
    if rest or heads % kv_heads:
        ctx.fail(f"width {width} does not divide into {heads} heads and {kv_heads} KV heads", AGAIN)
    batch, tokens = query.dims[0], query.dims[1]
    rows = [Rows(what, batch, kv_heads, tokens, head_dim) for what in ("keys", "values")]
    for own, given in zip(rows, (key, None if key is None else ctx.value(2)), strict=True):
        if given is not None and unlike(given.dims, (batch, tokens, kv_heads * head_dim)):
            what = (
                f"the {own.what} {list(given.dims)} are not {kv_heads} heads of {head_dim} for each token and sequence"
            )
            ctx.fail(f"{what} of the queries {list(query.dims)}", AGAIN)
    stored = head_dim  # elements of a cached row: fewer where several share a byte
    if past is not None and past.dims[-1].is_const:
        stored = int(past.dims[-1])
        if stored != head_dim and (past.dtype != onnx.TensorProto.UINT8 or not stored or head_dim % stored):
            ctx.fail(f"a cache {list(past.dims)} of rows of {stored}, not {head_dim}", AGAIN)
    check_past(ctx, (past, ctx.optional(4)), [replace(own, width=stored) for own in rows])
    one_sequence(ctx, batch)
    capacity = as_expr(0) if past is None else past.dims[2]
    valid = capacity if past is None else valid_entries(ctx, capacity, tokens, ctx.optional(6))
    ctx.out((batch, tokens, heads * head_dim))
    held = capacity + tokens if valid == capacity else capacity  # of a known total: a buffer used in place
    check_mask(ctx, 10, (batch, heads, tokens), (valid + tokens, held))
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


def _apart(ctx: Context, heads: int) -> tuple[Rows, Rows, Rows]:
    """Queries, keys and values of a multi-head attention: apart, or two or three of them packed together."""
    query, key = ctx.value(0), ctx.optional(1)
    packed = query if key is None else key
    names = ("queries", "keys", "values")[0 if key is None else 1 :]
    if len(packed.dims) == 5:  # those of each head packed together
        if packed.dims[2] != heads or packed.dims[3] != len(names):
            what = "query" if key is None else "key"
            ctx.fail(f"a packed {what} {list(packed.dims)} is not [batch, tokens, {heads}, {len(names)}, width]", AGAIN)
        width = ctx.number(packed.dims[4], "the width of a head")
        made = [Rows(n, packed.dims[0], heads, packed.dims[1], width) for n in names]
    elif key is None and ctx.node.type == "DecoderMaskedMultiHeadAttention":  # side by side
        width = width_of_head(ctx, packed.dims[-1], 3 * heads, "packed query")
        made = [Rows(n, packed.dims[0], heads, packed.dims[1], width) for n in names]
    else:
        made = [rows_of(ctx, "keys", ctx.value(1), heads), rows_of(ctx, "values", ctx.value(2), heads)]
    if len(made) == 2:
        made.insert(0, rows_of(ctx, "queries", query, heads))
    check_rows(ctx, *made)
    return made[0], made[1], made[2]


def _multi_head_attention(ctx: Context) -> Cost:
    """``com.microsoft::MultiHeadAttention`` and its decoding form: apart, packed, or with keys of another sequence."""
    masked = ctx.node.type == "DecoderMaskedMultiHeadAttention"
    first = 5 if masked else 6
    key, value = ctx.optional(1), ctx.optional(2)
    heads = count_of(ctx, "num_heads")
    queries, keys, values = _apart(ctx, heads)
    batch, tokens, new, head_dim, v_dim = queries.batch, queries.length, keys.length, queries.width, values.width
    past = ctx.optional(first)
    check_past(ctx, (past, ctx.optional(first + 1)), (keys, values))
    old = as_expr(0) if past is None else past.dims[2]
    held = old + new
    totals = [old + new]
    stated = ctx.optional(7) if masked else None  # valid entries of a buffer that is used in place
    if stated is not None and stated.const is not None:
        old, held = valid_entries(ctx, old, new, replace(stated, const=(stated.const[0] + new,))), old
        totals += [old + new, held]
    check_padding(ctx, 3 if masked else 4, batch, tokens, [*totals, new])
    check_mask(ctx, 4 if masked else 5, (batch, heads, tokens), totals)
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
        wanted = heads * (2 * head_dim + v_dim)
        if differ(bias.elements, wanted):
            ctx.fail(f"the bias {list(bias.dims)} is not of {wanted} elements for queries, keys and values", AGAIN)
        cost.vec.append(VecWork({"add": 1}, (tokens + new) * count, as_expr(heads * head_dim)))
        cost.weights += ctx.operand(bias, "bias")
    return cost


def _attention(ctx: Context) -> Cost:
    """``Attention`` of opset 23 on; another of that name is ``com.microsoft``'s."""
    if ctx.node.domain:
        return projected_attention(ctx)
    query, key, value = ctx.value(0), ctx.value(1), ctx.value(2)
    past = ctx.optional(4)
    apart = len(query.dims) == 4
    queries = rows_of(ctx, "queries", query, None if apart else count_of(ctx, "q_num_heads"))
    kv_heads = queries.heads if apart else count_of(ctx, "kv_num_heads")
    keys, values = (
        rows_of(ctx, what, v, None if len(v.dims) == 4 else kv_heads) for what, v in (("keys", key), ("values", value))
    )
    check_rows(ctx, queries, keys, values)
    check_past(ctx, (past, ctx.optional(5)), (keys, values))
    heads, kv_heads, head_dim, v_dim = queries.heads, keys.heads, queries.width, values.width
    tokens, new = queries.length, keys.length
    if heads % kv_heads:
        ctx.fail(f"{heads} query heads do not share {kv_heads} KV heads evenly", AGAIN)
    batch = ctx.number(query.dims[0], "the batch")
    if past is not None:
        one_sequence(ctx, query.dims[0])
    capacity = as_expr(0) if past is None else past.dims[2]
    valid = new if past is not None else valid_entries(ctx, new, as_expr(0), ctx.optional(6))
    check_mask(ctx, 3, (queries.batch, heads, tokens), (capacity + new, ONE), shorter=ctx.opset >= _SHORTER)
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
