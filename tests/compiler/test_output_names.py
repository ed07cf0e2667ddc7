"""Outputs are called what the file calls them, whatever makes them: in the report and by ``--until``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import TensorProto, helper

from bpusim.compiler.job import report_text

node = helper.make_node
Make = Callable[..., Any]


def _view(hand: Make) -> Any:
    return hand([node("Relu", ["x"], ["h"]), node("Reshape", ["h", "s"], ["y"])], {"x": [4]}, ["y"], ints={"s": [2, 2]})


def _view_of_an_input(hand: Make) -> Any:
    return hand([node("Reshape", ["x", "s"], ["y"])], {"x": [4]}, ["y"], ints={"s": [2, 2]})


def _loop(hand: Make) -> Any:
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("s", TensorProto.FLOAT, [4]),
    ]
    outputs = [helper.make_empty_tensor_value_info(n) for n in ("co", "so")]
    nodes = [node("Relu", ["s"], ["so"]), node("Identity", ["c"], ["co"])]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    return hand([node("Loop", ["n", "", "x"], ["y"], body=body)], {"x": [4]}, ["y"], ints={"n": [7]})


def _branch(hand: Make) -> Any:
    body = helper.make_graph([node("Relu", ["x"], ["q"])], "body", [], [helper.make_empty_tensor_value_info("q")])
    return hand([node("If", ["c"], ["y"], then_branch=body, else_branch=body)], {"x": [4]}, ["y"], ints={"c": [1]})


def _function(hand: Make) -> Any:
    model = hand([node("F", ["x"], ["y"], domain="f")], {"x": [4]}, ["y"])
    nodes = [node("Relu", ["a"], ["t"]), node("Identity", ["t"], ["b"])]
    model.proto.functions.append(helper.make_function("f", "F", ["a"], ["b"], nodes, [helper.make_opsetid("", 17)]))
    model.proto.opset_import.append(helper.make_opsetid("f", 1))
    return model


def _fed(hand: Make) -> Any:
    return hand([node("Relu", ["x"], ["z"])], {"x": [4], "y": [4]}, ["y", "z"])


def _stored(hand: Make) -> Any:
    return hand([node("Relu", ["x"], ["z"])], {"x": [4]}, ["y", "z"], weights={"y": [4]})


def _constant(hand: Make) -> Any:
    value = helper.make_tensor("v", TensorProto.FLOAT, [4], [1, 2, 3, 4])
    return hand([node("Constant", [], ["y"], value=value), node("Relu", ["x"], ["z"])], {"x": [4]}, ["y", "z"])


KINDS = [_view, _view_of_an_input, _loop, _branch, _function, _fed, _stored, _constant]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_the_report_names_outputs_as_the_file_does(hand: Make, kind: Callable[[Make], Any]) -> None:
    """4 fp32 values each."""
    model = kind(hand)
    names = [o.name for o in model.proto.graph.output]
    assert model.trace().header.report["output_bytes"] == dict.fromkeys(names, 16)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_until_takes_every_output_of_the_file(hand: Make, kind: Callable[[Make], Any]) -> None:
    model = kind(hand)
    names = [o.name for o in model.proto.graph.output]
    assert model.trace(outputs=names).phases == model.trace().phases
    assert model.trace(outputs=["y"]).header.report["output_bytes"] == {"y": 16}


def test_an_output_twice_is_told_twice(hand: Make) -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Identity", ["y"], ["z"])]
    assert hand(nodes, {"x": [4]}, ["y", "z"]).trace().header.report["output_bytes"] == {"y": 16, "z": 16}


def test_an_output_left_as_integers_keeps_its_name(hand: Make, tmp_path: Any) -> None:
    """``--fold-dequantise``: 4 bytes of ``y``, whatever tensor they are in."""
    nodes = [node("QuantizeLinear", ["x", "s", "p"], ["q"]), node("DequantizeLinear", ["q", "s", "p"], ["y"])]
    model = hand(nodes, {"x": [4]}, ["y"])
    model.proto.graph.initializer.extend(
        [helper.make_tensor("s", TensorProto.FLOAT, [], [0.5]), helper.make_tensor("p", TensorProto.UINT8, [], [3])]
    )
    trace = model.trace(fold_dequantise=True)
    assert trace.header.report["output_bytes"] == {"y": 4}
    assert "out, in the file's types: y 4 B" in report_text(trace, tmp_path / "m.trace")


def test_logits_of_the_last_row_behind_a_view(hand: Make) -> None:
    """A head behind the embedding of its table, its logits reshaped: one row of 100 fp32 values whatever the chunk."""
    nodes = [
        node("Gather", ["E", "ids"], ["x"]),
        node("Transpose", ["E"], ["Et"], perm=[1, 0]),
        node("MatMul", ["x", "Et"], ["l"]),
        node("Identity", ["l"], ["logits"]),
        node("Relu", ["p"], ["r"]),
    ]
    inputs = {"ids": [1, "sequence_length"], "p": [1, "past_sequence_length"]}
    model = hand(nodes, inputs, ["logits", "r"], weights={"E": [100, 8]}, integer=["ids"])
    trace = model.trace(last_logit=True, context=64)
    assert trace.header.report["output_bytes"] == {"logits": 400}
