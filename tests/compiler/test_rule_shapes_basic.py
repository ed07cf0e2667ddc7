"""Shapes that cost rules give, against onnx's own shape inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import helper
from rule_models import one

Make = Callable[..., Any]
node = helper.make_node


SHAPES: dict[str, tuple[str, list[int], dict[str, Any]]] = {
    "matmul of a stack": ("MatMul", [2, 5, 8], {"weights": {"w": [8, 3]}}),
    "matmul of activations": ("MatMul", [2, 1, 5, 8], {"more": {"z": [3, 8, 4]}}),
    "gemm": ("Gemm", [5, 8], {"weights": {"w": [8, 3], "b": [3]}}),
    "gemm transposed": ("Gemm", [8, 5], {"weights": {"w": [3, 8]}, "transA": 1, "transB": 1}),
    "conv 1-d": ("Conv", [1, 4, 20], {"weights": {"w": [6, 4, 5]}, "strides": [2], "pads": [2, 1]}),
    "conv 2-d": ("Conv", [2, 3, 17, 23], {"weights": {"w": [8, 3, 3, 5]}, "pads": [1, 2, 0, 1]}),
    "conv 3-d": ("Conv", [1, 2, 7, 8, 9], {"weights": {"w": [4, 2, 2, 3, 3]}, "strides": [1, 2, 2]}),
    "conv depthwise": ("Conv", [1, 6, 9, 9], {"weights": {"w": [6, 1, 3, 3]}, "group": 6}),
    "conv multiplied channels": ("Conv", [1, 6, 9, 9], {"weights": {"w": [12, 1, 3, 3]}, "group": 6}),
    "conv strides": ("Conv", [1, 3, 31, 30], {"weights": {"w": [4, 3, 3, 3]}, "strides": [2, 3]}),
    "conv dilations": ("Conv", [1, 3, 31, 30], {"weights": {"w": [4, 3, 3, 3]}, "dilations": [2, 3]}),
    "conv same upper": (
        "Conv",
        [1, 3, 31, 30],
        {"weights": {"w": [4, 3, 3, 3]}, "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ),
    "conv same lower": (
        "Conv",
        [1, 3, 31, 30],
        {"weights": {"w": [4, 3, 4, 4]}, "auto_pad": "SAME_LOWER", "strides": [3, 2]},
    ),
    "conv valid": ("Conv", [1, 3, 31, 30], {"weights": {"w": [4, 3, 3, 3]}, "auto_pad": "VALID", "strides": [2, 2]}),
    "maxpool": ("MaxPool", [1, 3, 31, 30], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "maxpool 1-d": ("MaxPool", [1, 4, 100], {"kernel_shape": [4], "strides": [2]}),
    "maxpool rounded up": ("MaxPool", [1, 3, 32, 30], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "maxpool dilated": ("MaxPool", [1, 3, 31, 30], {"kernel_shape": [3, 3], "dilations": [2, 2]}),
    "averagepool rounded up": (
        "AveragePool",
        [1, 3, 33, 30],
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
    ),
    "averagepool same": (
        "AveragePool",
        [1, 3, 33, 30],
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ),
    "global average": ("GlobalAveragePool", [2, 3, 5, 7], {}),
    "global maximum": ("GlobalMaxPool", [2, 3, 5], {}),
    "reshape": ("Reshape", [2, 3, 4], {"ints": {"s": [6, 4]}}),
    "reshape 0": ("Reshape", [2, 3, 4], {"ints": {"s": [0, 12]}}),
    "reshape -1": ("Reshape", [2, 3, 4], {"ints": {"s": [4, -1]}}),
    "reshape 0 and -1": ("Reshape", [2, 3, 4], {"ints": {"s": [0, -1]}}),
    "reshape 0 to 0 by allowzero": ("Reshape", [0, 3, 4], {"ints": {"s": [3, 0]}, "allowzero": 1}),
    "flatten": ("Flatten", [2, 3, 4, 5], {"axis": 2}),
    "flatten from behind": ("Flatten", [2, 3, 4, 5], {"axis": -1}),
    "flatten at 0": ("Flatten", [2, 3, 4, 5], {"axis": 0}),
    "transpose": ("Transpose", [2, 3, 4], {"perm": [2, 0, 1]}),
    "transpose by default": ("Transpose", [2, 3, 4], {}),
    "expand": ("Expand", [3, 1], {"ints": {"s": [2, 1, 6]}}),
    "expand keeps a larger size": ("Expand", [3, 4], {"ints": {"s": [1, 1]}}),
    "slice": ("Slice", [10, 20], {"ints": {"a": [1, 2], "b": [8, 19], "c": [0, 1], "d": [2, 3]}}),
    "slice from behind": ("Slice", [10, 20], {"ints": {"a": [-3], "b": [2**62], "c": [-1]}}),
    "slice backwards": ("Slice", [10, 20], {"ints": {"a": [8], "b": [-(2**62)], "c": [0], "d": [-2]}}),
    "slice past the end": ("Slice", [10, 20], {"ints": {"a": [5], "b": [100], "c": [0]}}),
    "slice of opset 9": ("Slice", [10, 20], {"starts": [1], "ends": [4], "axes": [1], "opset": 9}),
    "concat": ("Concat", [2, 3, 4], {"more": {"z": [2, 5, 4]}, "axis": 1}),
    "concat from behind": ("Concat", [2, 3, 4], {"more": {"z": [2, 3, 1]}, "axis": -1}),
    "unsqueeze": ("Unsqueeze", [3, 4], {"ints": {"s": [0, 3]}}),
    "unsqueeze from behind": ("Unsqueeze", [3, 4], {"ints": {"s": [-1, 0]}}),
    "unsqueeze of opset 11": ("Unsqueeze", [3, 4], {"axes": [1], "opset": 11}),
    "squeeze": ("Squeeze", [1, 3, 1, 4], {"ints": {"s": [0, -2]}}),
    "squeeze all": ("Squeeze", [1, 3, 1, 4], {"opset": 13}),
    "reduce mean": ("ReduceMean", [2, 3, 4], {"axes": [1]}),
    "reduce without the axis": ("ReduceMax", [2, 3, 4], {"axes": [-1], "keepdims": 0}),
    "reduce all": ("ReduceMean", [2, 3, 4], {"keepdims": 0}),
    "reduce sum by input": ("ReduceSum", [2, 3, 4], {"ints": {"s": [0, 2]}}),
    "softmax": ("Softmax", [2, 3, 4], {"axis": 1}),
    "layer norm": ("LayerNormalization", [2, 3, 4], {"weights": {"g": [4], "b": [4]}}),
    "batch norm": (
        "BatchNormalization",
        [2, 3, 4, 5],
        {"weights": {"s": [3], "b": [3], "m": [3], "v": [3]}},
    ),
    "lrn": ("LRN", [2, 3, 4, 5], {"size": 3}),
    "add broadcast": ("Add", [2, 1, 4], {"more": {"z": [3, 1]}}),
    "where broadcast": ("Equal", [2, 1, 4], {"more": {"z": [3, 1]}}),
    "clip": ("Clip", [2, 3], {"opset": 6, "min": 0.0, "max": 6.0}),
    "dropout": ("Dropout", [2, 3], {}),
    "sum of three": ("Sum", [2, 3], {"more": {"z": [3], "q": [2, 1]}}),
}


@pytest.mark.parametrize("case", SHAPES)
def test_shape_equals_what_onnx_infers(hand: Make, case: str) -> None:
    kind, x, how = SHAPES[case]
    model = one(hand, kind, x, **how)
    assert model.dims("y") == model.oracle("y")


def test_a_window_that_would_start_in_the_end_padding_is_dropped(hand: Make) -> None:
    """MaxPool of ai.onnx 22: "sliding windows that would start in the right padded region are ignored".

    7 values with a pad of 1 before: windows start at -1, 2, 5 and 8, and 8 is behind the last value.
    """
    model = one(hand, "MaxPool", [1, 3, 7], kernel_shape=[2], strides=[3], pads=[1, 1], ceil_mode=1, opset=22)
    assert model.dims("y") == [1, 3, 3]


def test_the_shape_of_a_reshape_was_an_attribute(hand: Make) -> None:
    """Opset 1, which shape inference no longer reads."""
    assert one(hand, "Reshape", [2, 3, 4], shape=[0, -1], opset=1).dims("y") == [2, 12]


def test_shape_of_a_look_up(hand: Make) -> None:
    """Rows of a [50, 6] table for a [2, 3] index: onnx agrees on [2, 3, 6]."""
    model = hand([node("Gather", ["t", "i"], ["y"])], {"i": [2, 3]}, ["y"], weights={"t": [50, 6]}, integer=["i"])
    assert model.dims("y") == model.oracle("y") == [2, 3, 6]


def test_shape_of_a_look_up_along_a_later_axis(hand: Make) -> None:
    made = node("Gather", ["x", "i"], ["y"], axis=-1)
    model = hand([made], {"x": [4, 5, 6], "i": [2]}, ["y"], integer=["i"])
    assert model.dims("y") == model.oracle("y") == [4, 5, 2]


def test_shape_of_a_convolution_follows_a_reshape_by_computed_sizes(hand: Make) -> None:
    """Shape -> Slice -> Concat -> Reshape is how exporters keep the batch; it is arithmetic on sizes."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["n"]),
        node("Concat", ["n", "rest"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
    ]
    model = hand(nodes, {"x": [2, 3, 4]}, ["y"], ints={"zero": [0], "one": [1], "rest": [-1]})
    assert model.dims("y") == model.oracle("y") == [2, 12]


def test_shape_of_constant_positions_is_kept(hand: Make) -> None:
    """Positions [4] -> Unsqueeze -> [1, 4] -> look-up -> [1, 4, 6]: known numbers have a shape too."""
    nodes = [node("Unsqueeze", ["p", "zero"], ["i"]), node("Gather", ["t", "i"], ["y"])]
    model = hand(nodes, {}, ["y"], weights={"t": [50, 6]}, ints={"p": [0, 1, 2, 3], "zero": [0]})
    assert model.dims("y") == model.oracle("y") == [1, 4, 6]
