"""Sizes of an op's operands that contradict each other: never priced, refused in one line with file and node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from onnx import helper

from bpusim.errors import CompileError

node = helper.make_node
MS = "com.microsoft"
Make = Callable[..., Any]
Dims = dict[str, Sequence[int | str]]


def _refused(model: Any, message: str, **options: Any) -> None:
    """One problem, which names the file, the node by its result ``y`` and what to do."""
    with pytest.raises(CompileError, match=message) as e:
        model.trace(**options)
    (problem,) = e.value.problems
    assert str(problem.place) == "hand.onnx"
    assert " 'y': " in problem.what
    assert problem.do


# --- MultiHeadAttention: 5 queries, 7 keys and values, 4 heads of 8


MULTI: Dims = {"q": [1, 5, 32], "k": [1, 7, 32], "v": [1, 7, 32]}


def _multi(hand: Make, dims: Dims, names: str = "q k v", **attrs: Any) -> Any:
    given = ["" if n == "-" else n for n in names.split()]
    made = node("MultiHeadAttention", given, ["y"], domain=MS, **{"num_heads": 4, **attrs})
    return hand([made], {n: d for n, d in {**MULTI, **dims}.items() if n in given}, ["y"])


@pytest.mark.parametrize(
    ("dims", "names"),
    [
        ({}, "q k v"),
        ({"k": [1, 4, 7, 8], "v": [1, 4, 7, 8]}, "q k v"),
        ({"k": [1, 7, 4, 2, 8]}, "q k"),
        ({"m": [1, 7]}, "q k v - m"),
        ({"m": [1]}, "q k v - m"),
        ({"m": [1, 5, 7]}, "q k v - m"),
        ({"m": [1, 1, 5, 7]}, "q k v - - m"),
        ({"b": [96]}, "q k v b"),
    ],
)
def test_operands_of_multi_head_attention_that_fit(hand: Make, dims: Dims, names: str) -> None:
    """2 products of 5 x 7 x 32 MACs, whichever way keys and values are handed over."""
    assert _multi(hand, dims, names).macs() == 2 * 5 * 7 * 32


@pytest.mark.parametrize(
    ("dims", "names", "message"),
    [
        ({"v": [1, 9, 32]}, "q k v", "the length of the values is 9, that of the keys 7"),
        ({"k": [1, 7, 64]}, "q k v", "the width of a head of the keys is 16, that of the queries 8"),
        ({"k": [2, 7, 32]}, "q k v", "the batch of the keys is 2, that of the queries 1"),
        ({"v": [2, 7, 32]}, "q k v", "the batch of the values is 2, that of the queries 1"),
        ({"v": [1, 3, 7, 8]}, "q k v", r"the values \[1, 3, 7, 8\] have 3 heads, not 4"),
        ({"k": [7, 32]}, "q k v", r"the keys \[7, 32\] have 2 dimensions, not 3 or 4"),
        ({"k": [1, 7, 4, 3, 8]}, "q k", r"a packed key \[1, 7, 4, 3, 8\] is not \[batch, tokens, 4, 2, width\]"),
        ({"m": [1, 9]}, "q k v - m", r"the mask 'm' \[1, 9\] does not fit 7 attended entries"),
        ({"m": [1, 1, 5, 8]}, "q k v - - m", r"the mask 'm' \[1, 1, 5, 8\] does not fit 7 attended entries"),
        ({"m": [1, 3, 5, 7]}, "q k v - - m", r"the mask 'm' \[1, 3, 5, 7\] does not fit \[1, 4, 5, 7\]"),
        ({"b": [64]}, "q k v b", r"the bias \[64\] is not of 96 elements"),
        ({"p": [1, 4, 3, 8]}, "q k v - - - p", "one cache of two"),
        (
            {"p": [1, 4, 3, 8], "r": [1, 4, 2, 8]},
            "q k v - - - p r",
            r"a cache \[1, 4, 2, 8\] of the values is not \[1, 4, 3, 8\]",
        ),
    ],
)
def test_operands_of_multi_head_attention_that_do_not_fit(hand: Make, dims: Dims, names: str, message: str) -> None:
    _refused(_multi(hand, dims, names), message)


@pytest.mark.parametrize("heads", [0, -4, "4", 2.0])
@pytest.mark.parametrize("kind", ["MultiHeadAttention", "DecoderMaskedMultiHeadAttention"])
def test_a_number_of_heads_that_is_none(hand: Make, kind: str, heads: Any) -> None:
    made = node(kind, ["q", "k", "v"], ["y"], domain=MS, num_heads=heads)
    _refused(hand([made], MULTI, ["y"]), f"attribute 'num_heads' is {heads!r}, not a number of one or more")


def test_no_number_of_heads(hand: Make) -> None:
    made = node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain=MS)
    _refused(hand([made], MULTI, ["y"]), "'y': attribute 'num_heads' is missing")


# --- Attention of the standard set: 5 queries of 4 heads of 8; 7 keys and values of 2 heads


STANDARD: Dims = {"q": [1, 4, 5, 8], "k": [1, 2, 7, 8], "v": [1, 2, 7, 8]}


def _standard(hand: Make, dims: Dims, names: str = "q k v", opset: int = 23, **attrs: Any) -> Any:
    given = ["" if n == "-" else n for n in names.split()]
    made = node("Attention", given, ["y"], **attrs)
    return hand([made], {n: d for n, d in {**STANDARD, **dims}.items() if n in given}, ["y"], opset=opset)


@pytest.mark.parametrize("mask", [[7], [1], [5, 7], [5, 1], [1, 7], [4, 5, 7], [1, 4, 5, 7], [1, 1, 1, 7]])
def test_masks_that_broadcast(hand: Make, mask: list[int]) -> None:
    assert _standard(hand, {"m": mask}, "q k v m").macs() == 2 * 4 * 5 * 7 * 8


@pytest.mark.parametrize("mask", [[9], [5, 9], [6, 7], [3, 5, 7], [2, 4, 5, 7], [1, 1, 1, 1, 7]])
def test_masks_that_do_not_broadcast(hand: Make, mask: list[int]) -> None:
    _refused(_standard(hand, {"m": mask}, "q k v m"), "the mask 'm' .* does not fit")


def test_a_mask_may_be_shorter_from_opset_24_on(hand: Make) -> None:
    assert _standard(hand, {"m": [5, 4]}, "q k v m", opset=24).macs() == 2 * 4 * 5 * 7 * 8
    _refused(_standard(hand, {"m": [5, 4]}, "q k v m", opset=23), "does not fit 7 or 1 attended entries")
    _refused(_standard(hand, {"m": [5, 8]}, "q k v m", opset=24), "does not fit 7 or 1 attended entries")


def test_a_mask_over_a_past_has_both_lengths(hand: Make) -> None:
    past: Dims = {"p": [1, 2, 3, 8], "r": [1, 2, 3, 8]}
    assert _standard(hand, {**past, "m": [5, 10]}, "q k v m p r").macs() == 2 * 4 * 5 * 10 * 8
    _refused(_standard(hand, {**past, "m": [5, 7]}, "q k v m p r"), "does not fit 10 or 1 attended entries")


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"v": [1, 2, 8, 8]}, "the length of the values is 8, that of the keys 7"),
        ({"v": [1, 4, 7, 8]}, "the number of heads of the values is 4, that of the keys 2"),
        ({"k": [1, 2, 7, 9]}, "the width of a head of the keys is 9, that of the queries 8"),
        ({"k": [3, 2, 7, 8]}, "the batch of the keys is 3, that of the queries 1"),
        ({"k": [1, 3, 7, 8], "v": [1, 3, 7, 8]}, "4 query heads do not share 3 KV heads evenly"),
    ],
)
def test_operands_of_standard_attention_that_do_not_fit(hand: Make, dims: Dims, message: str) -> None:
    _refused(_standard(hand, dims), message)


def test_rows_of_heads_side_by_side(hand: Make) -> None:
    """3 dimensions: heads are counted by attributes; values may be of another width, keys may not."""
    wide: Dims = {"q": [1, 5, 32], "k": [1, 7, 16], "v": [1, 7, 12]}
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    assert _standard(hand, wide, **heads).macs() == 4 * 5 * 7 * (8 + 6)
    _refused(_standard(hand, {**wide, "k": [1, 7, 32]}, **heads), "the width of a head of the keys is 16")
    _refused(_standard(hand, wide, q_num_heads=0, kv_num_heads=2), "'q_num_heads' is 0, not a number of one or more")


# --- GroupQueryAttention: 5 tokens, 4 query heads share 2 KV heads of 8


GROUPED: Dims = {"q": [1, 5, 32], "k": [1, 5, 16], "v": [1, 5, 16], "p": [1, 2, 9, 8], "r": [1, 2, 9, 8]}


def _grouped(hand: Make, dims: Dims, names: str = "q k v p r", kv_heads: int = 2) -> Any:
    given = ["" if n == "-" else n for n in names.split()]
    made = node("GroupQueryAttention", given, ["y", "a", "b"], domain=MS, num_heads=4, kv_num_heads=kv_heads)
    shapes = {n: d for n, d in {**GROUPED, "s": [1], "t": [1], **dims}.items() if n in given}
    return hand([made], shapes, ["y", "a", "b"], integer=["s", "t"])


@pytest.mark.parametrize(
    ("dims", "names", "message"),
    [
        ({"k": [1, 6, 16]}, "q k v p r", r"the keys \[1, 6, 16\] are not 2 heads of 8"),
        ({"v": [1, 5, 32]}, "q k v p r", r"the values \[1, 5, 32\] are not 2 heads of 8"),
        ({"v": [2, 5, 16]}, "q k v p r", r"the values \[2, 5, 16\] are not 2 heads of 8"),
        ({}, "q k - p r", "input 2 is missing"),
        ({"r": [1, 2, 8, 8]}, "q k v p r", r"a cache \[1, 2, 8, 8\] of the values is not \[1, 2, 9, 8\]"),
        ({"p": [1, 4, 9, 8]}, "q k v p r", r"a cache \[1, 4, 9, 8\] of the keys is not \[1, 2, 9, 8\]"),
        ({"p": [1, 2, 9, 6], "r": [1, 2, 9, 6]}, "q k v p r", "of rows of 6, not 8"),
        ({"m": [1, 1, 5, 9]}, "q k v p r - - - - - m", r"the mask 'm' \[1, 1, 5, 9\] does not fit 14 attended"),
    ],
)
def test_operands_of_grouped_attention_that_do_not_fit(hand: Make, dims: Dims, names: str, message: str) -> None:
    _refused(_grouped(hand, dims, names), message)


def test_a_bias_over_past_and_new_entries_fits(hand: Make) -> None:
    assert _grouped(hand, {"m": [1, 1, 5, 14]}, "q k v p r - - - - - m").macs() == 2 * 4 * 5 * 14 * 8


@pytest.mark.parametrize(
    ("batch", "kv_heads", "message"),
    [(2, 2, "batch 2 is not supported"), (1, 3, "width 32 does not divide into 4 heads and 3 KV heads")],
)
def test_no_advice_to_bind_what_does_not_help(hand: Make, batch: int, kv_heads: int, message: str) -> None:
    """Lengths are unknown here, but neither the batch nor the heads come from them."""
    dims = {n: [batch, *d[1:]] for n, d in GROUPED.items()}
    with pytest.raises(CompileError, match=message) as e:
        _grouped(hand, {**dims, "s": [batch]}, "q k v p r s t", kv_heads).trace()
    assert "NUMBER" not in str(e.value)


# --- others with keys and values of their own


def test_a_mask_of_attention_with_its_projection(hand: Make) -> None:
    made = node("Attention", ["x", "w", "b", "m"], ["y"], domain=MS, num_heads=4)
    inputs: Dims = {"x": [1, 7, 32], "m": [1, 7]}
    weights = {"w": [32, 96], "b": [96]}
    assert hand([made], inputs, ["y"], weights=weights).macs() == 7 * 32 * 96 + 2 * 7 * 7 * 32
    _refused(hand([made], {**inputs, "m": [1, 8]}, ["y"], weights=weights), "does not fit 7 attended entries")


def test_rows_of_packed_attention_that_do_not_fit(hand: Make) -> None:
    made = node("PackedMultiHeadAttention", ["q", "k", "v", "", "o", "c"], ["y"], domain=MS, num_heads=4)
    inputs: Dims = {"q": [20, 32], "k": [20, 32], "v": [19, 32], "o": [3, 16], "c": [4]}
    _refused(hand([made], inputs, ["y"], integer=["o", "c"]), r"keys \[20, 32\] and values \[19, 32\] do not fit")


def test_rows_of_linear_attention_that_do_not_fit(hand: Make) -> None:
    made = node("LinearAttention", ["q", "k", "v"], ["y"], q_num_heads=4, kv_num_heads=2, update_rule="delta")
    inputs: Dims = {"q": [1, 5, 32], "k": [1, 5, 16], "v": [1, 6, 12]}
    _refused(hand([made], inputs, ["y"], opset=27), "the length of the values is 6, that of the keys 5")


# --- Gemm: C broadcasts to the result, not the other way


@pytest.mark.parametrize("c", [[], [1], [5], [1, 1], [3, 1], [1, 5], [3, 5]])
def test_a_c_that_broadcasts(hand: Make, c: list[int]) -> None:
    made = node("Gemm", ["a", "b", "c"], ["y"])
    assert hand([made], {"a": [3, 4], "c": c}, ["y"], weights={"b": [4, 5]}).macs() == 3 * 4 * 5


@pytest.mark.parametrize("c", [[7], [3], [5, 3], [4, 5], [3, 4], [1, 3, 5]])
def test_a_c_that_does_not_broadcast(hand: Make, c: list[int]) -> None:
    made = node("Gemm", ["a", "b", "c"], ["y"])
    model = hand([made], {"a": [3, 4]}, ["y"], weights={"b": [4, 5], "c": c})
    _refused(model, r"C \[.*\] does not broadcast to the result \[3, 5\]")


# --- no more entries are found than there are


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "most"),
    [
        ("NonZero", {"x": [3, 4]}, {}, 12),
        ("Unique", {"x": [3, 4]}, {}, 12),
        ("Unique", {"x": [3, 4]}, {"axis": 1}, 4),
        ("Compress", {"x": [3, 4], "c": [3]}, {"axis": 0}, 3),
        ("Compress", {"x": [3, 4], "c": [12]}, {}, 12),
        ("NonMaxSuppression", {"x": [2, 6, 4], "c": [2, 5, 6]}, {}, 60),
    ],
)
def test_more_entries_than_there_are(hand: Make, kind: str, inputs: Dims, attrs: dict[str, int], most: int) -> None:
    model = hand([node(kind, list(inputs), ["y"], **attrs)], inputs, ["y"])
    assert model.trace(assume={"y": str(most)}).bind("frame").calls == ()
    _refused(model, f"{most + 1} entries are assumed, and at most {most} can be found", assume={"y": str(most + 1)})
