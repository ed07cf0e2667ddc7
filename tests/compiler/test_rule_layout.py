"""Views, copies and look-ups: what is free, and what is moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import helper
from rule_models import one

from bpusim.errors import CompileError

Make = Callable[..., Any]
node = helper.make_node


@pytest.mark.parametrize(
    ("kind", "x", "how"),
    [
        ("Reshape", [2, 3, 4], {"ints": {"s": [6, 4]}}),
        ("Flatten", [2, 3, 4], {}),
        ("Unsqueeze", [3, 4], {"ints": {"s": [0]}}),
        ("Squeeze", [1, 3], {"ints": {"s": [0]}}),
        ("Identity", [3], {}),
        ("Transpose", [1, 3, 1, 4], {"perm": [0, 2, 1, 3]}),
        ("Expand", [3, 1], {"ints": {"s": [3, 6]}}),
    ],
)
def test_a_view_is_free_and_listed(hand: Make, kind: str, x: list[int], how: dict[str, Any]) -> None:
    """It costs no op, and the report says that it was there."""
    relu = node("Relu", ["x"], ["r"])
    again = node(kind, ["r", *how.get("ints", {})], ["v"], **{k: v for k, v in how.items() if k != "ints"})
    last = node("Exp", ["v"], ["y"])
    model = hand([relu, again, last], {"x": x}, ["y"], ints=how.get("ints"))
    trace = model.trace()
    assert trace.header.report["views"] == {kind: 1}
    assert [op.type for op in trace.phase("frame").ops()] == ["Relu", "Exp"]


def test_a_transpose_that_moves_data_is_a_copy(hand: Make) -> None:
    """24 elements pass the vector unit once."""
    (op,) = one(hand, "Transpose", [2, 3, 4], perm=[2, 0, 1]).trace().phase("frame").ops()
    assert (op.type, op.unit, op.vec) == ("Transpose", "vector", {"convert": (24,)})


def test_a_transposed_weight_is_a_view(hand: Make) -> None:
    """A tied head reaches its product through a Transpose: stored once, read once."""
    nodes = [node("Transpose", ["w"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["y"])]
    model = hand(nodes, {"x": [5, 8]}, ["y"], weights={"w": [3, 8]})
    assert (model.macs(), model.weight_bytes()) == (120, 24 * 4)


def test_a_reshape_the_run_decides_is_an_error(hand: Make) -> None:
    model = hand([node("Reshape", ["x", "s"], ["y"])], {"x": [4], "s": [2]}, ["y"], integer=["s"])
    with pytest.raises(CompileError, match="Reshape 'y': the shape 's' is not known before the run"):
        model.trace()


@pytest.mark.parametrize(
    ("shape", "zero", "message"),
    [
        ([-1, -1], 0, "leaves more than one dimension open"),
        ([5, -1], 0, "24 elements do not divide into 5"),
        ([5, 5], 0, r"\[2, 3, 4\] does not reshape to \[5, 5\]"),
        ([2, 3, 4, 0], 0, "0 at place 3 copies a dimension the input"),
        ([0, -1], 1, "leaves more than one dimension open"),
    ],
)
def test_a_shape_that_does_not_fit_is_an_error(hand: Make, shape: list[int], zero: int, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        one(hand, "Reshape", [2, 3, 4], ints={"s": shape}, allowzero=zero).trace()


def test_concat_of_shapes_that_do_not_fit_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="shapes do not concatenate along 1"):
        one(hand, "Concat", [2, 3, 4], more={"z": [2, 5, 9]}, axis=1).trace()


def test_squeeze_of_a_size_that_is_not_1_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="are not all 1"):
        one(hand, "Squeeze", [1, 3], ints={"s": [1]}).trace()


def test_a_look_up_reads_its_rows_only(hand: Make) -> None:
    """Six rows of six fp32 values of a table of 50."""
    model = hand([node("Gather", ["t", "i"], ["y"])], {"i": [2, 3]}, ["y"], weights={"t": [50, 6]}, integer=["i"])
    assert model.weight_bytes() == 6 * 6 * 4
    assert model.trace().resident_bytes == 50 * 6 * 4


def test_a_concatenated_weight_is_read(hand: Make) -> None:
    """A class token is stored and joined to the patches of every image: 8 fp32 values from DRAM."""
    made = node("Concat", ["token", "x"], ["y"], axis=1)
    model = hand([made], {"x": [1, 16, 8]}, ["y"], weights={"token": [1, 1, 8]})
    assert model.weight_bytes() == 8 * 4


def test_an_expanded_weight_is_read_as_stored(hand: Make) -> None:
    """Broadcasting 8 stored values to 16 rows moves 8 values, not 128."""
    nodes = [node("Expand", ["w", "s"], ["e"]), node("Add", ["x", "e"], ["y"])]
    model = hand(nodes, {"x": [1, 16, 8]}, ["y"], weights={"w": [1, 1, 8]}, ints={"s": [1, 16, 8]})
    assert model.weight_bytes() == 8 * 4


def test_the_output_behind_a_view_leaves_the_chip(hand: Make) -> None:
    """MatMul -> Reshape -> output: 15 results of 2 B are written, as without the Reshape."""
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Reshape", ["m", "s"], ["y"])]
    model = hand(nodes, {"x": [5, 8]}, ["y"], weights={"w": [8, 3]}, ints={"s": [15]})
    assert model.trace().bind("frame").traffic()["io", True] == 15 * 2
