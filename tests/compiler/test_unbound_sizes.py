"""Sizes that nobody bound, and shapes that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import helper
from rule_models import one

from bpusim.errors import CompileError

Make = Callable[..., Any]
node = helper.make_node


def test_all_unbound_sizes_are_listed_at_once(hand: Make) -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["z", "w"], ["b"])]
    model = hand(nodes, {"x": ["rows", 8], "z": ["lines", 8]}, ["a", "b"], weights={"w": [8, 3]})
    with pytest.raises(CompileError) as caught:
        model.trace()
    assert [p.what for p in caught.value.problems] == ["the size 'lines' is not bound", "the size 'rows' is not bound"]


def test_a_bound_size_is_used(hand: Make) -> None:
    model = one(hand, "MatMul", ["rows", 8], weights={"w": [8, 3]})
    assert model.macs(bind={"rows": 5}) == 120


def test_a_size_with_dots_in_its_name_can_be_bound(hand: Make) -> None:
    model = one(hand, "MatMul", ["p2o.DynamicDimension.1", 8], weights={"w": [8, 3]})
    assert model.macs(bind={"p2o.DynamicDimension.1": 5}) == 120


def test_an_unnamed_size_is_bound_by_the_whole_shape(hand: Make) -> None:
    model = one(hand, "MatMul", [None, 8], weights={"w": [8, 3]})
    assert model.macs(shapes={"x": (5, 8)}) == 120


def test_an_unnamed_size_is_reported_by_its_place(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"the size 'x\[0\]' is not bound"):
        one(hand, "MatMul", [None, 8], weights={"w": [8, 3]}).trace()


def test_a_size_the_model_does_not_have_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"no size called 'row'; did you mean 'rows'\?"):
        one(hand, "MatMul", ["rows", 8], weights={"w": [8, 3]}).trace(bind={"row": 5})


def test_a_shape_of_another_rank_is_an_error(hand: Make) -> None:
    """The file says [rows, 8]; three numbers cannot be meant for it."""
    with pytest.raises(CompileError):
        one(hand, "Relu", ["rows", 8]).trace(shapes={"x": (1, 5, 8)})


@pytest.mark.parametrize("bad", [[0, 1, 5], [0, 0, 1]])
def test_a_permutation_that_is_none_is_an_error(hand: Make, bad: list[int]) -> None:
    with pytest.raises(CompileError, match="Transpose 'y'"):
        one(hand, "Transpose", [2, 3, 4], perm=bad).trace()


def test_an_axis_out_of_range_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="Squeeze 'y'"):
        one(hand, "Squeeze", [3, 1], ints={"s": [5]}).trace()


def test_a_constant_index_out_of_range_is_an_error(hand: Make) -> None:
    """Shape has two entries; number 7 does not exist."""
    nodes = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "i"], ["n"]), node("Reshape", ["x", "n"], ["y"])]
    with pytest.raises(CompileError, match="Gather 'n'"):
        hand(nodes, {"x": [2, 3]}, ["y"], ints={"i": [7]}).trace()
