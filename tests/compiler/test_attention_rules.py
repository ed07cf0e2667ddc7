"""Attention, its cache and its window, mixtures of experts: three lengths of a cache, two numbers of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from bpusim.errors import CompileError
from bpusim.trace import Trace

node = helper.make_node
F, I64 = TensorProto.FLOAT, TensorProto.INT64
MS = "com.microsoft"
Make = Callable[..., Any]

HEADS, KV_HEADS, WIDTH = 8, 2, 16
QUERY, CACHE = HEADS * WIDTH, KV_HEADS * WIDTH
SLOT = 2 * CACHE
"""Cached values of one entry."""


def grouped(hand: Make, past: Any = "past_sequence_length", total: list[int] | None = None, **attrs: Any) -> Any:
    """A language model of one GroupQueryAttention: 8 heads share 2 KV heads of 16."""
    made = node(
        "GroupQueryAttention",
        ["q", "k", "v", "pk", "pv", "", "total" if total else ""],
        ["y", "nk", "nv"],
        domain=MS,
        num_heads=HEADS,
        kv_num_heads=KV_HEADS,
        **attrs,
    )
    fixed = isinstance(past, int)
    tokens = 1 if fixed else "sequence_length"
    inputs = {
        "q": [1, tokens, QUERY],
        "k": [1, tokens, CACHE],
        "v": [1, tokens, CACHE],
        "pk": [1, KV_HEADS, past, WIDTH],
        "pv": [1, KV_HEADS, past, WIDTH],
    }
    return hand([made], inputs, ["y", "nk", "nv"], ints={"total": total} if total else {})


def _kv(trace: Trace, phase: str, kv: int, tokens: int = 1) -> tuple[int, int]:
    """(bytes of the cache read, written)."""
    moved = trace.bind(phase, kv=kv, tokens=tokens).traffic()
    return moved.get(("kv", False), 0), moved["kv", True]


# --- the cache: capacity, valid length, window


@pytest.mark.parametrize(("kv", "seen"), [(0, 0), (10, 10), (64, 64), (65, 64), (1000, 64)])
def test_a_window_bounds_what_is_read_not_what_is_kept(hand: Make, kv: int, seen: int) -> None:
    """A window of 64 entries: those before the token itself. Each entry is 2 x 2 x 16 values of 4 B; one is written; a
    token takes 2 x 8 x 16 MACs an entry."""
    trace = grouped(hand, local_window_size=64).trace(context=4096)
    assert _kv(trace, "decode", kv) == (SLOT * 4 * seen, SLOT * 4)
    assert trace.bind("decode", kv=kv).macs == 2 * QUERY * (seen + 1)
    assert (trace.header.context, trace.header.kv_bytes_per_token) == (4096, SLOT * 4)


def test_a_window_in_prefill_counts_real_tokens(hand: Make) -> None:
    """5 tokens after 100 entries, window 64: each at the 64 old entries and, dense, the 5 new ones."""
    trace = grouped(hand, local_window_size=64).trace(context=4096, chunk=8)
    assert trace.bind("prefill", kv=100, tokens=5).macs == 2 * QUERY * 5 * (64 + 5)
    assert trace.bind("prefill", kv=3, tokens=5).macs == 2 * QUERY * 5 * (3 + 5)
    assert _kv(trace, "prefill", 100, 5) == (SLOT * 4 * 64, SLOT * 4 * 8)


def test_a_windows_terms_are_in_the_trace(hand: Make) -> None:
    basis = grouped(hand, local_window_size=64).trace(context=4096).phase("decode").basis
    assert "batch*min(kv,64)" in basis
    assert not any(term.removeprefix("batch*") in ("kv", "tokens*kv") for term in basis)


def test_every_sequence_has_its_own_window(hand: Make) -> None:
    """10 entries and 64 of 1000."""
    trace = grouped(hand, local_window_size=64).trace(context=4096)
    together = trace.bind("decode", kv=(10, 1000)).traffic()["kv", False]
    assert together == SLOT * 4 * (10 + 64)


def test_a_window_as_long_as_the_cache_changes_nothing(hand: Make) -> None:
    wide = grouped(hand, local_window_size=5000).trace(context=4096).bind("decode", kv=4000)
    none = grouped(hand).trace(context=4096).bind("decode", kv=4000)
    assert (wide.macs, wide.traffic()) == (none.macs, none.traffic())
    assert sum(c.cycles for c in wide.calls) == sum(c.cycles for c in none.calls)


def test_a_window_of_one_entry_reads_one(hand: Make) -> None:
    trace = grouped(hand, local_window_size=1).trace(context=4096)
    assert trace.bind("decode", kv=100).macs == 2 * QUERY * 2
    assert _kv(trace, "decode", 100) == (SLOT * 4, SLOT * 4)


@pytest.mark.parametrize("window", [0, -5])
def test_a_window_of_nothing_is_an_error(hand: Make, window: int) -> None:
    with pytest.raises(CompileError, match=f"a window of {window} entries"):
        grouped(hand, local_window_size=window).trace(context=4096)


def test_capacity_is_not_valid_length(hand: Make) -> None:
    """A buffer of 4096 entries of which, with the new one, 512 are valid: 511 are read, and the buffer stays."""
    model = grouped(hand, past=4096, total=[512])
    assert model.macs() == 2 * QUERY * 512
    assert _kv(model.trace(), "frame", 0) == (SLOT * 4 * 511, SLOT * 4)
    assert model.dims("nk") == [1, KV_HEADS, 4096, WIDTH]


def test_a_window_within_valid_length_within_capacity(hand: Make) -> None:
    """Three numbers: 4096, 512, 64."""
    model = grouped(hand, past=4096, total=[512], local_window_size=64)
    assert model.macs() == 2 * QUERY * 65
    assert _kv(model.trace(), "frame", 0) == (SLOT * 4 * 64, SLOT * 4)


def test_more_valid_entries_than_capacity_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="a total of 5000 entries does not fit a cache of 4096 and 1 new ones"):
        grouped(hand, past=4096, total=[5000]).trace()


# --- other kinds of attention


def test_multi_head_attention_with_a_past(hand: Make) -> None:
    """4 heads of 8, each with its own keys and values: 2 x 4 x 8 MACs an entry, 2 x 32 cached values of 4 B."""
    made = node(
        "MultiHeadAttention", ["q", "k", "v", "", "", "", "pk", "pv"], ["y", "nk", "nv"], domain=MS, num_heads=4
    )
    rows = [1, "sequence_length", 32]
    past = [1, 4, "past_sequence_length", 8]
    model = hand([made], {"q": rows, "k": rows, "v": rows, "pk": past, "pv": past}, ["y", "nk", "nv"])
    trace = model.trace(context=512)
    assert trace.bind("decode", kv=99).macs == 2 * 32 * 100
    assert _kv(trace, "decode", 99) == (2 * 32 * 4 * 99, 2 * 32 * 4)


def test_multi_head_attention_across_sequences(hand: Make) -> None:
    """5 queries over 20 keys that the graph makes: 2 x 5 x 20 x 32 MACs, no cache."""
    nodes = [
        node("Relu", ["k"], ["kr"]),
        node("MultiHeadAttention", ["q", "kr", "kr", "b"], ["y"], domain=MS, num_heads=4),
    ]
    model = hand(nodes, {"q": [1, 5, 32], "k": [1, 20, 32]}, ["y"], weights={"b": [96]})
    trace = model.trace()
    assert trace.bind("frame").macs == 2 * 5 * 20 * 32
    assert not any(kind == "kv" for kind, _ in trace.bind("frame").traffic())
    assert trace.resident_bytes == 96 * 4


def test_packed_queries_keys_and_values(hand: Make) -> None:
    """[batch, tokens, heads, 3, width]: 2 sequences, 2 x 2 x 4 x 7 x 7 x 8 MACs."""
    made = node("MultiHeadAttention", ["q"], ["y"], domain=MS, num_heads=4)
    assert hand([made], {"q": [2, 7, 4, 3, 8]}, ["y"]).macs() == 2 * 2 * 4 * 7 * 7 * 8


@pytest.mark.parametrize("kind", ["Attention", "QAttention"])
def test_attention_with_its_projection(hand: Make, kind: str) -> None:
    """7 rows by 32 x 96, then 4 heads of 8: 7 x 32 x 96 + 2 x 7 x 7 x 32 MACs."""
    names = ["x", "w", "b"] if kind == "Attention" else ["x", "w", "b", "s", "s"]
    made = node(kind, names, ["y"], domain=MS, num_heads=4)
    stored = {"w": [32, 96], "b": [96], **({} if kind == "Attention" else {"s": [1]})}
    model = hand([made], {"x": [1, 7, 32]}, ["y"], weights=stored)
    assert model.macs() == 7 * 32 * 96 + 2 * 7 * 7 * 32
    assert model.weight_bytes() == (32 * 96 + 96) * 4


def test_sequences_without_padding_are_bounded_by_the_longest(hand: Make) -> None:
    """20 tokens of sequences of 16 at most: the projection, and 20 x 16 scores of each head."""
    made = node("PackedAttention", ["x", "w", "b", "o", "c"], ["y"], domain=MS, num_heads=4)
    inputs = {"x": [20, 32], "o": [3, 16], "c": [4]}
    model = hand([made], inputs, ["y"], weights={"w": [32, 96], "b": [96]}, integer=["o", "c"])
    assert model.macs() == 20 * 32 * 96 + 2 * 20 * 16 * 32


def test_attention_of_the_standard_set_with_a_cache(hand: Make) -> None:
    """Opset 24: 4 query heads share 2 KV heads of 8; a past of 10 and 3 new entries."""
    made = node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"])
    inputs = {
        "q": [1, 4, 3, 8],
        "k": [1, 2, 3, 8],
        "v": [1, 2, 3, 8],
        "pk": [1, 2, 10, 8],
        "pv": [1, 2, 10, 8],
    }
    model = hand([made], inputs, ["y", "nk", "nv"], opset=24)
    assert model.macs() == 2 * 4 * 3 * 13 * 8
    assert _kv(model.trace(), "frame", 0) == (2 * 2 * 8 * 10 * 4, 2 * 2 * 8 * 3 * 4)


def test_valid_entries_of_an_external_cache(hand: Make) -> None:
    """Opset 24: the caller's buffer has 4096 entries, 512 of them valid."""
    made = node("Attention", ["q", "k", "v", "", "", "", "n"], ["y"])
    inputs = {"q": [1, 4, 1, 8], "k": [1, 2, 4096, 8], "v": [1, 2, 4096, 8]}
    model = hand([made], inputs, ["y"], ints={"n": [512]}, opset=24)
    assert model.macs() == 2 * 4 * 512 * 8
    assert model.trace().bind("frame").traffic()["kv", False] == 2 * 2 * 512 * 8 * 4


def test_a_cache_that_is_updated_in_place(hand: Make) -> None:
    """Opset 24: buffers of 4096 entries take a new one each; of the 512 valid ones 2 x 2 x 8 fp32 values are read and
    of the new one as many written. The buffers are not copied, and no other bytes of them move."""
    nodes = [
        node("TensorScatter", ["pk", "k", "at"], ["nk"]),
        node("TensorScatter", ["pv", "v", "at"], ["nv"]),
        node("Attention", ["q", "nk", "nv", "", "", "", "n"], ["y"]),
    ]
    new, buffer = [1, 2, 1, 8], [1, 2, 4096, 8]
    inputs = {"q": [1, 4, 1, 8], "k": new, "v": new, "pk": buffer, "pv": buffer}
    model = hand(nodes, inputs, ["y", "nk", "nv"], ints={"n": [512], "at": [511]}, opset=24)
    assert model.macs() == 2 * 4 * 512 * 8
    moved = model.trace().bind("frame").traffic()
    assert (moved["kv", False], moved["kv", True]) == (2 * 2 * 8 * 512 * 4, 2 * 2 * 8 * 4)
    assert (moved["io", False], moved["io", True]) == ((32 + 16 + 16) * 2, 32 * 2)


@pytest.mark.parametrize(
    ("kind", "entries", "cached"),
    [("inputs", 9, True), ("inputs", 4, False), ("one made", 9, False), ("joined", 9, False)],
)
def test_which_inputs_are_a_cache(hand: Make, kind: str, entries: int, cached: bool) -> None:
    """4 queries. Keys and values are the cache where both are inputs and not as many as the queries."""
    past = [1, 2, entries, 8]
    inputs = {"q": [1, 2, 4, 8], "k": past, "v": past}
    nodes = [node("Attention", ["q", "k", "v"], ["y"])]
    if kind == "one made":
        nodes = [node("Relu", ["v"], ["w"]), node("Attention", ["q", "k", "w"], ["y"])]
    elif kind == "joined":
        inputs = {**inputs, "nk": [1, 2, 4, 8], "nv": [1, 2, 4, 8]}
        nodes = [node("Concat", [n, f"n{n}"], [f"{n}{n}"], axis=2) for n in "kv"]
        nodes.append(node("Attention", ["q", "kk", "vv"], ["y"]))
    moved = hand(nodes, inputs, ["y"], opset=23).trace().bind("frame").traffic()
    assert moved.get(("kv", False), 0) == (2 * 2 * entries * 8 * 4 if cached else 0)


def test_a_window_of_the_standard_set(hand: Make) -> None:
    """Opset 25: 15 positions to the left of the current one, and itself."""
    made = node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"], left_window_size=15)
    heads = [1, 2, 1, 8]
    inputs = {"q": heads, "k": heads, "v": heads, "pk": [1, 2, 100, 8], "pv": [1, 2, 100, 8]}
    assert hand([made], inputs, ["y", "nk", "nv"], opset=25).macs() == 2 * 2 * 16 * 8


def test_linear_attention_keeps_a_state(hand: Make) -> None:
    """2 KV heads of 8 x 6 serve 4 heads; 5 tokens: the update 2 x 48, the look-ups 4 x 48, the delta's 2 x 48 each."""
    made = node("LinearAttention", ["q", "k", "v"], ["y"], q_num_heads=4, kv_num_heads=2, update_rule="delta")
    model = hand([made], {"q": [1, 5, 32], "k": [1, 5, 16], "v": [1, 5, 12]}, ["y"], opset=27)
    assert model.macs() == 5 * 48 * (2 + 4 + 2)


def test_rotation_reads_its_rows_once_for_all_layers(hand: Make) -> None:
    """Two rotations by the same tables: one row of cosines and one of sines (16 fp32 values each) for 3 tokens."""
    nodes = [
        node("RotaryEmbedding", ["x", "p", "c", "s"], ["a"], domain=MS),
        node("RotaryEmbedding", ["a", "p", "c", "s"], ["y"], domain=MS),
    ]
    inputs = {"x": [1, 3, 64], "p": [1, 3]}
    model = hand(nodes, inputs, ["y"], weights={"c": [100, 16], "s": [100, 16]}, integer=["p"])
    assert model.weight_bytes() == 2 * 3 * 16 * 4
    assert model.trace().resident_bytes == 2 * 100 * 16 * 4


# --- experts: resident and active


def mixture(hand: Make, tokens: Any = "sequence_length", active: int = 2) -> Any:
    """16 experts of 32 x 64 and 64 x 32, of which a token takes ``active``."""
    made = node("MoE", ["x", "p", "a", "", "b"], ["y"], domain=MS, k=active, activation_type="relu")
    weights = {"a": [16, 64, 32], "b": [16, 32, 64]}
    inputs = {"x": [1, tokens, 32], "p": [tokens, 16]}
    if isinstance(tokens, str):  # a language model has a past as well
        inputs["c"] = [1, 1, "past_sequence_length", 1]
        return hand([made, node("Relu", ["c"], ["d"])], inputs, ["y", "d"], weights=weights)
    return hand([made], inputs, ["y"], weights=weights)


EXPERT = 2 * 32 * 64


def test_all_experts_are_resident_and_the_active_ones_read(hand: Make) -> None:
    """fp32: 16 experts of 4096 values; a token reads and works through 2 of them."""
    model = mixture(hand, tokens=1)
    trace = model.trace()
    assert trace.resident_bytes == 16 * EXPERT * 4
    assert model.weight_bytes() == 2 * EXPERT * 4
    assert model.macs() == 2 * EXPERT


@pytest.mark.parametrize(("tokens", "read"), [(3, 6), (8, 16), (100, 16)])
def test_tokens_choose_their_own_experts_until_all_are_read(hand: Make, tokens: int, read: int) -> None:
    model = mixture(hand, tokens=tokens)
    assert model.weight_bytes() == read * EXPERT * 4
    assert model.macs() == tokens * 2 * EXPERT


def test_each_sequence_of_a_batch_chooses_too(hand: Make) -> None:
    trace = mixture(hand).trace(context=128)
    assert trace.bind("decode", kv=(5, 9)).traffic()["weights", False] == 2 * 2 * EXPERT * 4


@pytest.mark.parametrize(("batch", "read"), [(1, 2), (3, 6), (8, 16), (20, 16)])
def test_a_batch_reads_no_more_experts_than_there_are(hand: Make, batch: int, read: int) -> None:
    """BH-33, with 16 experts: upper bound min(N, B k). Uniform routing would read 2.0, 5.3, 10.5, 14.9."""
    trace = mixture(hand).trace(context=128)
    moved = trace.bind("decode", kv=(5,) * batch).traffic()["weights", False]
    uniform = 16 * (1 - (1 - 2 / 16) ** batch)
    assert moved == read * EXPERT * 4
    assert 2 <= uniform <= read
    assert trace.resident_bytes == 16 * EXPERT * 4


def test_experts_of_nibbles(hand: Make) -> None:
    """QMoE: 32 inputs in 16 bytes, an fp32 scale for each of 64 and 32 columns of each expert; 2 of 16 are active."""
    made = node("QMoE", ["x", "p", "a", "sa", "", "b", "sb"], ["y"], domain=MS, k=2, expert_weight_bits=4)
    proto = hand([made], {"x": [1, 32], "p": [1, 16]}, ["y"], weights={"sa": [16, 64], "sb": [16, 32]})
    for name, dims in (("a", [16, 64, 16]), ("b", [16, 32, 32])):
        proto.proto.graph.initializer.append(
            onnx.TensorProto(name=name, dims=dims, data_type=TensorProto.UINT8, data_location=TensorProto.EXTERNAL)
        )
    assert proto.macs() == 2 * EXPERT
    assert proto.weight_bytes() == 2 * (EXPERT // 2 + (64 + 32) * 4)
    assert proto.trace().resident_bytes == 16 * (EXPERT // 2 + (64 + 32) * 4)


def test_gated_experts_have_a_third_matrix(hand: Make) -> None:
    made = node("MoE", ["x", "p", "a", "", "b", "", "c"], ["y"], domain=MS, k=1, activation_type="silu")
    weights = {"a": [4, 64, 32], "b": [4, 32, 64], "c": [4, 64, 32]}
    assert hand([made], {"x": [3, 32], "p": [3, 4]}, ["y"], weights=weights).macs() == 3 * 3 * 32 * 64


def test_more_active_experts_than_there_are_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="17 of 16 experts"):
        mixture(hand, tokens=1, active=17).trace()


def test_a_cap_on_scores_is_vector_work(hand: Make) -> None:
    """A tangent and two products for each of 8 heads x 11 entries."""
    plain, capped = (
        sum(op.vec["exp"][0] for op in grouped(hand, past=10, **attrs).trace().phase("frame").ops())
        for attrs in ({}, {"softcap": 30.0})
    )
    assert capped - plain == 8 * 11


def test_a_language_model_of_the_standard_set(hand: Make) -> None:
    """One layer of opset 23: 64 wide, 4 query heads share 2 KV heads of 16. A token: 64 x 128 and 64 x 64 MACs of the
    products, 2 x 64 an entry; 2 x 32 cached values of 4 B an entry; a row of cosines and one of sines (8 fp32 each)
    once for both rotations."""
    nodes = [
        node("RMSNormalization", ["x", "g"], ["n"]),
        node("MatMul", ["n", "w"], ["qkv"]),
        node("Split", ["qkv", "parts"], ["q", "k", "v"], axis=-1),
        node("RotaryEmbedding", ["q", "cos", "sin", "position_ids"], ["qr"], num_heads=4),
        node("RotaryEmbedding", ["k", "cos", "sin", "position_ids"], ["kr"], num_heads=2),
        node("Attention", ["qr", "kr", "v", "", "pk", "pv"], ["a", "nk", "nv"], q_num_heads=4, kv_num_heads=2),
        node("MatMul", ["a", "o"], ["p"]),
        node("Add", ["x", "p"], ["y"]),
    ]
    past = [1, 2, "past_sequence_length", 16]
    inputs = {"x": [1, "sequence_length", 64], "position_ids": [1, "sequence_length"], "pk": past, "pv": past}
    weights = {"g": [64], "w": [64, 128], "o": [64, 64], "cos": [512, 8], "sin": [512, 8]}
    model = hand(
        nodes,
        inputs,
        ["y", "nk", "nv"],
        weights=weights,
        ints={"parts": [64, 32, 32]},
        integer=["position_ids"],
        opset=23,
    )
    trace = model.trace(context=512, chunk=16, strict=True)
    token = 64 * 128 + 64 * 64
    assert trace.bind("decode", kv=99).macs == token + 2 * 64 * 100
    assert trace.bind("prefill", kv=10, tokens=5).macs == 5 * (token + 2 * 64 * 15)
    assert _kv(trace, "decode", 99) == (2 * 32 * 4 * 99, 2 * 32 * 4)
    assert trace.header.kv_bytes_per_token == 2 * 32 * 4
    streamed = (64 + token) * 4 + 2 * 8 * 4
    assert trace.bind("decode", kv=99).traffic()["weights", False] == streamed
    two = trace.bind("decode", kv=(99, 49))
    assert two.macs == 2 * token + 2 * 64 * (100 + 50)
    assert two.traffic()["weights", False] == streamed + 2 * 8 * 4


def test_a_prompt_without_a_past(hand: Make) -> None:
    """7 tokens by themselves: 7 x 7 scores, nothing read, 7 entries written (fp16 unless a past says otherwise)."""
    names = ["q", "k", "v"]
    made = node("GroupQueryAttention", names, ["y", "nk", "nv"], domain=MS, num_heads=HEADS, kv_num_heads=KV_HEADS)
    inputs = {"q": [1, 7, QUERY], "k": [1, 7, CACHE], "v": [1, 7, CACHE]}
    model = hand([made], inputs, ["y", "nk", "nv"])
    assert model.macs() == 2 * QUERY * 7 * 7
    assert _kv(model.trace(), "frame", 0) == (0, 7 * SLOT * 2)


@pytest.mark.parametrize(
    ("dtype", "width", "row"),
    [(TensorProto.FLOAT16, 16, 32), (TensorProto.INT8, 16, 16), (TensorProto.INT4, 16, 8), (TensorProto.UINT8, 8, 8)],
)
def test_a_cache_may_be_narrow(hand: Make, dtype: int, width: int, row: int) -> None:
    """16 values of a head in 16 bits, 8, 4, or two to a byte: 10 entries of 2 x 2 rows are read, one is written."""
    model = grouped(hand, past=10)
    for value in model.proto.graph.input:
        if value.name in ("pk", "pv"):
            value.CopyFrom(helper.make_tensor_value_info(value.name, dtype, [1, KV_HEADS, 10, width]))
    assert model.macs() == 2 * QUERY * 11
    assert _kv(model.trace(), "frame", 0) == (10 * 4 * row, 4 * row)
