"""Every quantisation plan sees the same MACs; stored bytes follow the type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import TensorProto, helper
from rule_models import one

from bpusim.compiler import Options, compile_graph
from bpusim.errors import CompileError

Make = Callable[..., Any]
node = helper.make_node


@pytest.mark.parametrize("quant", ["int4", "int8", "fp16", "keep"])
def test_a_plan_does_not_change_macs(hand: Make, quant: str) -> None:
    assert one(hand, "MatMul", [5, 8], weights={"w": [8, 3]}).macs(quant=quant) == 120


def test_an_unknown_plan_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"unknown plan 'int44'; did you mean 'int4'\?"):
        one(hand, "Relu", [2]).trace(quant="int44")


def test_an_element_type_no_one_knows_the_size_of_is_an_error(hand: Make) -> None:
    model = hand([node("MatMul", ["x", "w"], ["y"])], {"x": [5, 8]}, ["y"], weights={"w": [8, 3]}, dtype=8)
    with pytest.raises(CompileError, match="tensor 'w' has element type STRING"):
        model.trace()


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [
        (TensorProto.FLOAT, 60),
        (TensorProto.FLOAT16, 30),
        (TensorProto.BFLOAT16, 30),
        (TensorProto.INT8, 15),
        (TensorProto.INT4, 8),
    ],
)
def test_stored_bytes_follow_the_element_type(hand: Make, dtype: int, stored: int) -> None:
    """[3, 5]: 15 elements; 15 nibbles round up to 8 bytes."""
    model = hand([node("MatMul", ["x", "w"], ["y"])], {"x": [2, 3]}, ["y"], weights={"w": [3, 5]}, dtype=dtype)
    assert model.trace(quant="keep").resident_bytes == stored


def test_compile_graph_leaves_the_proto_as_it_was(hand: Make) -> None:
    """A graph loaded once may be compiled many times."""
    model = one(hand, "MatMul", [5, 8], weights={"w": [8, 3]})
    graph = model.graph()
    first = compile_graph(graph, model.core, Options(quant="int4"))
    assert compile_graph(graph, model.core, Options(quant="int4")) == first
