"""Attention of every kind: dense scores over the past and the new tokens, and the KV cache.

A cache has three lengths. Its capacity is the past's dimension; its valid entries are as many, unless the model is told
the total length (a stored or bound number); with a sliding window a token looks at the ``w`` entries before its own, so
that ``min(kv, w)`` old ones are read. Keys and values are read once per KV head, whose query heads share them.
Where keys and values are inputs of the model, they are its cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bpusim.compiler.dims import KV, ONE, Expr, as_expr
from bpusim.compiler.rules.elementwise import SOFTMAX
from bpusim.compiler.rules.linear import stack
from bpusim.compiler.values import Context, Cost, Gemm, Value, VecWork

__all__ = ["RULES", "SCORES"]

SCORES = {**SOFTMAX, "mul": SOFTMAX["mul"] + 1, "add": SOFTMAX["add"] + 1, "convert": 1}
"""Per attended score: scale and mask, softmax, conversion to the activation type."""

_SOFTCAP = {"exp": 1, "add": 2, "div": 1, "mul": 2}
"""Per attended score: a tangent, scaled on both sides."""


@dataclass(frozen=True, slots=True)
class _Shape:
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


def _cost(s: _Shape, cached: bool = False, fed: bool = False) -> Cost:
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
            VecWork(SCORES, s.tokens * (s.heads * s.batch), attended),
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


def _valid(ctx: Context, past: Expr, new: Expr, total: Value | None) -> Expr:
    """Valid old entries: the past's dimension (the capacity), or what a known total length leaves."""
    if total is None or total.const is None or len(total.const) != 1:
        return past
    valid = total.const[0] - new
    if valid.is_const and past.is_const and not 0 <= int(valid) <= int(past):
        ctx.fail(f"a total of {total.const[0]} entries does not fit a cache of {past} and {new} new ones")
    return valid


def _seen(ctx: Context, past: Expr, left: int) -> Expr:
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


def _divide(ctx: Context, width: Expr, heads: int, what: str) -> int:
    size, rest = divmod(ctx.number(width, f"the width of the {what}"), heads)
    if rest:
        ctx.fail(f"a {what} of width {width} does not divide into {heads} heads")
    return size


def _rotary(ctx: Context, cost: Cost, rotated: Expr, tokens: Expr, tables: tuple[int, int]) -> None:
    """Rotation on the vector unit; the rows of stored tables are read once a step for all layers."""
    cost.vec.append(VecWork({"mul": 2, "add": 1}, tokens, rotated))
    for index in tables:
        table = ctx.value(index)
        if table.weight is not None:
            rows, k = (ctx.number(d, "the RoPE table") for d in table.dims)
            cost.resident.append(ctx.use(table, "rope", rows, k))


def _one(ctx: Context, batch: Expr) -> None:
    if batch != 1:
        ctx.fail(f"batch {batch} is not supported; bind it to 1 (the runtime batches by binding the trace)")


def _group_query_attention(ctx: Context) -> Cost:
    """``com.microsoft::GroupQueryAttention``."""
    query, key, past = ctx.value(0), ctx.optional(1), ctx.optional(3)
    heads, kv_heads = ctx.attr("num_heads"), ctx.attr("kv_num_heads")
    width = ctx.number(query.dims[-1], "the width of the query")
    head_dim, rest = divmod(width, heads if key is not None else heads + 2 * kv_heads)
    if rest or heads % kv_heads:
        ctx.fail(f"width {width} does not divide into {heads} heads and {kv_heads} KV heads")
    batch, tokens = query.dims[0], query.dims[1]
    _one(ctx, batch)
    capacity = as_expr(0) if past is None else past.dims[2]
    valid = capacity if past is None else _valid(ctx, capacity, tokens, ctx.optional(6))
    ctx.out((batch, tokens, heads * head_dim))
    held = capacity + tokens if valid == capacity else capacity  # of a known total: a buffer used in place
    for index in (1, 2):
        ctx.out((batch, kv_heads, held, head_dim), index=index, dtype=None if past is None else past.dtype)
    left = ctx.attr("local_window_size", -1)
    if not left:
        ctx.fail("a window of 0 entries", do="state -1 for none")
    old = _seen(ctx, valid, left)
    cost = _cost(_Shape(heads, kv_heads, head_dim, head_dim, tokens, old, tokens), cached=True)
    cost.cache_inputs, cost.cache_outputs = (() if past is None else (3, 4)), (1, 2)
    if ctx.attr("softcap", 0.0):
        cost.vec.append(VecWork(_SOFTCAP, tokens * heads, old + tokens))
    if ctx.attr("do_rotary", 0):
        _rotary(ctx, cost, as_expr((heads + kv_heads) * head_dim), tokens, (7, 8))
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
        head_dim = v_dim = _divide(ctx, query.dims[-1], heads, "query")
        new = tokens
        if key is not None and len(key.dims) == 5:
            new = key.dims[1]
        elif key is not None:
            new = key.dims[2] if len(key.dims) == 4 else key.dims[1]
            if value is not None:
                v_dim = (
                    ctx.number(value.dims[3], "the width of a head")
                    if len(value.dims) == 4
                    else _divide(ctx, value.dims[-1], heads, "value")
                )
    past = ctx.optional(first)
    old = as_expr(0) if past is None else past.dims[2]
    held = old + new
    stated = ctx.optional(7) if masked else None  # valid entries of a buffer that is used in place
    if stated is not None and stated.const is not None:
        old, held = _valid(ctx, old, new, replace(stated, const=(stated.const[0] + new,))), old
    ctx.out((batch, tokens, heads * v_dim))
    for index, width in ((1, head_dim), (2, v_dim)):
        ctx.out((batch, heads, held, width), index=index)
    fed = past is None and key is not None and key.fed and value is not None and value.fed and new != tokens
    count = ctx.number(batch, "the batch")
    if past is not None:
        _one(ctx, batch)
    cost = _cost(_Shape(heads, heads, head_dim, v_dim, tokens, old, new, count), cached=past is not None, fed=fed)
    if past is not None:
        cost.cache_inputs, cost.cache_outputs = (first, first + 1), (1, 2)
    elif fed:
        cost.cache_inputs = (1, 2)
    bias = ctx.optional(10 if masked else 3)
    if bias is not None:
        cost.vec.append(VecWork({"add": 1}, (tokens + new) * count, as_expr(heads * head_dim)))
        cost.weights += ctx.operand(bias, "bias")
    return cost


def _projected_attention(ctx: Context) -> Cost:
    """``com.microsoft::Attention`` and ``QAttention``: the projection of queries, keys and values is part of it."""
    quantised = ctx.node.type == "QAttention"
    value, weight, bias, past = ctx.value(0), ctx.value(1), ctx.optional(2), ctx.optional(8 if quantised else 4)
    heads = ctx.attr("num_heads")
    batch, tokens = value.dims[0], value.dims[1]
    k, n = (ctx.number(d, "a size of the weight") for d in weight.dims)
    if value.dims[2] != k:
        ctx.fail(f"the input has {value.dims[2]} columns, the weight {k} rows")
    q_width, k_width, v_width = ctx.attr("qkv_hidden_sizes", [n // 3] * 3)
    if q_width + k_width + v_width != n or q_width != k_width:
        ctx.fail(f"a weight of {n} columns is not {q_width}, {k_width} and {v_width} for queries, keys and values")
    key, v_dim = (_divide(ctx, as_expr(w), heads, "projection") for w in (q_width, v_width))
    old = as_expr(0) if past is None else past.dims[3]
    ctx.out((batch, tokens, v_width), dtype=ctx.value(3).dtype if quantised else None)
    ctx.out((2, batch, heads, old + tokens, key), index=1, dtype=None if past is None else past.dtype)
    count = ctx.number(batch, "the batch")
    cost = _cost(_Shape(heads, heads, key, v_dim, tokens, old, tokens, count), cached=past is not None)
    made = stack(ctx, value, weight, batch * tokens, as_expr(k), as_expr(n), ONE)
    cost.gemms, cost.vec, cost.weights = made.gemms + cost.gemms, made.vec + cost.vec, made.weights
    if past is not None:
        _one(ctx, batch)
        cost.cache_inputs, cost.cache_outputs = ((8,) if quantised else (4,)), (1,)
    if bias is not None:
        cost.vec.append(VecWork({"add": 1}, batch * tokens, as_expr(n)))
        cost.weights += ctx.operand(bias, "bias")
    return cost


def _packed_attention(ctx: Context) -> Cost:
    """``com.microsoft::PackedAttention``, ``PackedMultiHeadAttention``: sequences without padding, one after another.

    How long each is, the run decides: every token looks at the longest sequence there may be.
    """
    value, heads = ctx.value(0), ctx.attr("num_heads")
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
        q_width = ctx.number(value.dims[1], "the width of the query")
        v_width = ctx.number(ctx.value(2).dims[1], "the width of the value")
    key, v_dim = (_divide(ctx, as_expr(w), heads, "query") for w in (q_width, v_width))
    ctx.out((total, v_width))
    made = _cost(_Shape(heads, heads, key, v_dim, total, as_expr(0), longest))
    return Cost(cost.gemms + made.gemms, cost.vec + made.vec, cost.weights)


def _attention(ctx: Context) -> Cost:
    """``Attention`` of opset 23 on; another of that name is ``com.microsoft``'s."""
    if ctx.node.domain:
        return _projected_attention(ctx)
    query, key, value = ctx.value(0), ctx.value(1), ctx.value(2)
    past = ctx.optional(4)
    if len(query.dims) == 4:
        heads, kv_heads = (ctx.number(v.dims[1], "the number of heads") for v in (query, key))
        head_dim, v_dim = (ctx.number(v.dims[3], "the width of a head") for v in (query, value))
        tokens, new = query.dims[2], key.dims[2]
    else:
        heads, kv_heads = ctx.attr("q_num_heads"), ctx.attr("kv_num_heads")
        head_dim = _divide(ctx, query.dims[-1], heads, "query")
        v_dim = _divide(ctx, value.dims[-1], kv_heads, "value")
        tokens, new = query.dims[1], key.dims[1]
    if heads % kv_heads:
        ctx.fail(f"{heads} query heads do not share {kv_heads} KV heads evenly")
    batch = ctx.number(query.dims[0], "the batch")
    if past is not None:
        _one(ctx, query.dims[0])
    capacity = as_expr(0) if past is None else past.dims[2]
    valid = new if past is not None else _valid(ctx, new, as_expr(0), ctx.optional(6))
    left = ctx.attr("left_window_size", -1)
    old = _seen(ctx, capacity, left)
    looked_at = valid
    if past is None and left != -1 and valid.is_const and tokens.is_const:
        looked_at = as_expr(min(int(valid), left + int(tokens)))
    ctx.out((batch, heads, tokens, v_dim) if len(query.dims) == 4 else (batch, tokens, heads * v_dim))
    for index, width in ((1, head_dim), (2, v_dim)):
        ctx.out((batch, kv_heads, capacity + new, width), index=index)
    scores = ctx.out((batch, heads, tokens, capacity + new), index=3)
    fed = past is None and key.fed and value.fed and new != tokens
    shape = _Shape(heads, kv_heads, head_dim, v_dim, tokens, old, looked_at, batch)
    cost = _cost(shape, cached=past is not None, fed=fed)
    if past is not None:
        cost.cache_inputs, cost.cache_outputs = (4, 5), (1, 2)
    elif fed:
        cost.cache_inputs = (1, 2)
    if ctx.attr("softcap", 0.0):
        cost.vec.append(VecWork(_SOFTCAP, tokens * (heads * batch), old + looked_at))
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
        _rotary(ctx, cost, batch * (heads * part), tokens, tables)
    else:  # a row for each token, not chosen by position
        cost.vec.append(VecWork({"mul": 2, "add": 1}, tokens, batch * (heads * part)))
        for index in tables:
            cost.weights += ctx.operand(ctx.optional(index), "rope")
    if part < width:
        cost.vec.append(VecWork({"convert": 1}, tokens, batch * (heads * (width - part))))
    return cost


def _linear_attention(ctx: Context) -> Cost:
    """A state of key by value width for each KV head, updated token by token.

    MACs per token: the state's update and the look-up for each query head; the delta rules look the state up once more.
    The state stays on chip within a call; it comes in and goes out like any tensor.
    """
    query, key, value = ctx.value(0), ctx.value(1), ctx.value(2)
    heads, kv_heads = ctx.attr("q_num_heads"), ctx.attr("kv_num_heads")
    batch, tokens = query.dims[0], query.dims[1]
    k, v = _divide(ctx, key.dims[-1], kv_heads, "key"), _divide(ctx, value.dims[-1], kv_heads, "value")
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
    "GroupQueryAttention": _group_query_attention,
    "MultiHeadAttention": _multi_head_attention,
    "DecoderMaskedMultiHeadAttention": _multi_head_attention,
    "QAttention": _projected_attention,
    "PackedAttention": _packed_attention,
    "PackedMultiHeadAttention": _packed_attention,
    "Attention": _attention,
    "RotaryEmbedding": _rotary_embedding,
    "LinearAttention": _linear_attention,
}
