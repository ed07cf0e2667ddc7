"""Cost rules, one op family at a time, on small hand-made graphs.

Shapes are checked against onnx's own shape inference; MACs and bytes are worked out in each test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import TensorProto, helper

from bpusim.compiler import Options, compile_graph
from bpusim.errors import CompileError

Make = Callable[..., Any]
node = helper.make_node


def _one(hand: Make, kind: str, x: list[int], **how: Any) -> Any:
    """A model of one node ``kind`` from input x to output y; ``how`` holds weights, ints, opset and attributes."""
    keys = ("weights", "ints", "opset", "domain", "more", "order")
    attrs = {k: v for k, v in how.items() if k not in keys}
    weights, ints = how.get("weights", {}), how.get("ints", {})
    more = how.get("more", {})
    names = how.get("order", ["x", *more, *weights, *ints])
    made = node(kind, names, ["y"], domain=how.get("domain", ""), **attrs)
    return hand([made], {"x": x, **more}, ["y"], weights=weights, ints=ints, opset=how.get("opset", 17))


# --- shapes against the oracle

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
    model = _one(hand, kind, x, **how)
    assert model.dims("y") == model.oracle("y")


def test_a_window_that_would_start_in_the_end_padding_is_dropped(hand: Make) -> None:
    """MaxPool of ai.onnx 22: "sliding windows that would start in the right padded region are ignored".

    7 values with a pad of 1 before: windows start at -1, 2, 5 and 8, and 8 is behind the last value.
    """
    model = _one(hand, "MaxPool", [1, 3, 7], kernel_shape=[2], strides=[3], pads=[1, 1], ceil_mode=1, opset=22)
    assert model.dims("y") == [1, 3, 3]


def test_the_shape_of_a_reshape_was_an_attribute(hand: Make) -> None:
    """Opset 1, which shape inference no longer reads."""
    assert _one(hand, "Reshape", [2, 3, 4], shape=[0, -1], opset=1).dims("y") == [2, 12]


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


# --- matrix products


def test_matmul_macs(hand: Make) -> None:
    """2 x 5 rows by 8 x 3: 10 x 8 x 3 = 240."""
    assert _one(hand, "MatMul", [2, 5, 8], weights={"w": [8, 3]}).macs() == 240


def test_matmul_of_activations_macs_follow_broadcast_batches(hand: Make) -> None:
    """Batches [2, 1] and [3] make 6 products of 5 x 8 x 4 = 960."""
    assert _one(hand, "MatMul", [2, 1, 5, 8], more={"z": [3, 8, 4]}).macs() == 960


def test_matmul_of_activations_reads_no_weight(hand: Make) -> None:
    assert _one(hand, "MatMul", [5, 8], more={"z": [8, 4]}).weight_bytes() == 0


def test_matmul_weight_bytes_as_stored(hand: Make) -> None:
    assert _one(hand, "MatMul", [5, 8], weights={"w": [8, 3]}).weight_bytes() == 8 * 3 * 4


def test_matmul_whose_columns_do_not_match_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"MatMul 'y': shapes do not match: \[5, 8\] by \[9, 3\]"):
        _one(hand, "MatMul", [5, 8], weights={"w": [9, 3]}).trace()


def test_gemm_macs_and_bias(hand: Make) -> None:
    """5 x 8 x 3 MACs; the weight and the bias are read."""
    model = _one(hand, "Gemm", [5, 8], weights={"w": [8, 3], "b": [3]})
    assert (model.macs(), model.weight_bytes()) == (120, (24 + 3) * 4)


def test_gemm_with_both_operands_transposed(hand: Make) -> None:
    assert _one(hand, "Gemm", [8, 5], weights={"w": [3, 8]}, transA=1, transB=1).macs() == 120


@pytest.mark.parametrize(("kind", "extra"), [("MatMul", {}), ("Gemm", {})])
def test_a_weight_on_the_left_is_read_too(hand: Make, kind: str, extra: dict[str, Any]) -> None:
    """W x of 3 x 8 by 8 x 5: the 24 stored values come from DRAM like any weight."""
    model = _one(hand, kind, [8, 5], weights={"w": [3, 8]}, order=["w", "x"], **extra)
    assert (model.macs(), model.weight_bytes()) == (120, 24 * 4)


def test_a_stack_of_weights_is_read(hand: Make) -> None:
    """Four stored 8 x 3 matrices, one per batch entry."""
    model = _one(hand, "MatMul", [4, 5, 8], weights={"w": [4, 8, 3]})
    assert (model.macs(), model.weight_bytes()) == (480, 96 * 4)


# --- convolutions and pools


def test_conv_1d_macs(hand: Make) -> None:
    """16 places ((20 - 5) + 1) x 6 kernels x 4 x 5."""
    assert _one(hand, "Conv", [1, 4, 20], weights={"w": [6, 4, 5]}).macs() == 16 * 6 * 4 * 5


def test_conv_2d_macs(hand: Make) -> None:
    """10 x 10 places x 8 kernels x 3 x 3 x 3."""
    assert _one(hand, "Conv", [1, 3, 12, 12], weights={"w": [8, 3, 3, 3]}).macs() == 100 * 8 * 27


def test_conv_3d_macs(hand: Make) -> None:
    """4 x 4 x 4 places x 4 kernels x 2 x 3 x 3 x 3."""
    assert _one(hand, "Conv", [1, 2, 6, 6, 6], weights={"w": [4, 2, 3, 3, 3]}).macs() == 64 * 4 * 54


def test_depthwise_conv_macs(hand: Make) -> None:
    """7 x 7 places x 6 channels x 9: each channel sees itself only."""
    assert _one(hand, "Conv", [1, 6, 9, 9], weights={"w": [6, 1, 3, 3]}, group=6).macs() == 49 * 6 * 9


def test_grouped_conv_macs(hand: Make) -> None:
    """Two groups: 8 kernels of 3 of the 6 channels."""
    assert _one(hand, "Conv", [1, 6, 9, 9], weights={"w": [8, 3, 3, 3]}, group=2).macs() == 49 * 8 * 27


def test_conv_kernel_from_an_input_is_no_weight(hand: Make) -> None:
    model = _one(hand, "Conv", [1, 3, 12, 12], more={"k": [8, 3, 3, 3]})
    assert (model.macs(), model.weight_bytes()) == (100 * 8 * 27, 0)


def test_conv_with_the_wrong_channels_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"Conv 'y': the input \[1, 3, 12, 12\] has 3 channels"):
        _one(hand, "Conv", [1, 3, 12, 12], weights={"w": [8, 4, 3, 3]}).trace()


def test_conv_on_the_wrong_rank_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="a window of 2 dimensions on an input of 1"):
        _one(hand, "Conv", [1, 3, 12], weights={"w": [8, 3, 3, 3]}).trace()


def test_a_pool_reduces_its_window(hand: Make) -> None:
    """5 x 5 places x 3 channels x 9 values."""
    trace = _one(hand, "MaxPool", [1, 3, 11, 11], kernel_shape=[3, 3], strides=[2, 2]).trace()
    (op,) = trace.phase("frame").ops()
    assert (op.unit, op.vec) == ("vector", {"reduce": (25 * 3 * 9,)})


# --- views, copies, look-ups


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
    (op,) = _one(hand, "Transpose", [2, 3, 4], perm=[2, 0, 1]).trace().phase("frame").ops()
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
        _one(hand, "Reshape", [2, 3, 4], ints={"s": shape}, allowzero=zero).trace()


def test_concat_of_shapes_that_do_not_fit_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="shapes do not concatenate along 1"):
        _one(hand, "Concat", [2, 3, 4], more={"z": [2, 5, 9]}, axis=1).trace()


def test_squeeze_of_a_size_that_is_not_1_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="are not all 1"):
        _one(hand, "Squeeze", [1, 3], ints={"s": [1]}).trace()


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


# --- softmax, norms, elementwise


def test_softmax_runs_over_one_axis_since_opset_13(hand: Make) -> None:
    """[2, 3, 4] along axis 1: 8 rows of 3, a division each; 24 exponentials."""
    (op,) = _one(hand, "Softmax", [2, 3, 4], axis=1, opset=13).trace().phase("frame").ops()
    assert (op.vec["exp"], op.vec["div"]) == ((24,), (8,))


def test_softmax_ran_over_all_later_axes_before(hand: Make) -> None:
    """The same node in opset 11: 2 rows of 12, so 2 divisions."""
    (op,) = _one(hand, "Softmax", [2, 3, 4], axis=1, opset=11).trace().phase("frame").ops()
    assert (op.vec["exp"], op.vec["div"]) == ((24,), (2,))


def test_softmax_defaults_to_the_last_axis_since_opset_13(hand: Make) -> None:
    (op,) = _one(hand, "Softmax", [2, 3, 4], opset=13).trace().phase("frame").ops()
    assert op.vec["div"] == (6,)


def test_softmax_defaulted_to_axis_1_before(hand: Make) -> None:
    (op,) = _one(hand, "Softmax", [2, 3, 4], opset=11).trace().phase("frame").ops()
    assert op.vec["div"] == (2,)


def test_layer_norm_divides_once_a_row_and_reads_its_weights(hand: Make) -> None:
    model = _one(hand, "LayerNormalization", [2, 3, 64], weights={"g": [64], "b": [64]})
    (op,) = model.trace().phase("frame").ops()
    assert op.vec["div"] == (6,)
    assert model.weight_bytes() == 2 * 64 * 4


@pytest.mark.parametrize("quant", ["int4", "int8", "fp16"])
def test_norm_weights_are_fp16_under_every_plan(hand: Make, quant: str) -> None:
    model = _one(hand, "LayerNormalization", [2, 64], weights={"g": [64], "b": [64]})
    assert model.weight_bytes(quant=quant) == 2 * 64 * 2


def test_a_fused_skip_norm_gives_the_sum_too(hand: Make) -> None:
    """SkipSimplifiedLayerNormalization: output 3 is x + skip, and both are shaped like x."""
    made = node(
        "SkipSimplifiedLayerNormalization", ["x", "k", "g"], ["y", "", "", "sum"], domain="com.microsoft", epsilon=1e-6
    )
    model = hand([made], {"x": [1, 3, 64], "k": [1, 3, 64]}, ["y", "sum"], weights={"g": [64]})
    assert model.dims("y") == model.dims("sum") == [1, 3, 64]


def test_a_batch_norm_reads_four_vectors(hand: Make) -> None:
    model = _one(hand, "BatchNormalization", [1, 3, 4, 4], weights={"s": [3], "b": [3], "m": [3], "v": [3]})
    assert model.weight_bytes() == 4 * 3 * 4


def test_elementwise_work_counts_broadcast_results(hand: Make) -> None:
    """[2, 1, 4] + [3, 1] gives 24 sums."""
    (op,) = _one(hand, "Add", [2, 1, 4], more={"z": [3, 1]}).trace().phase("frame").ops()
    assert op.vec == {"add": (24,)}


def test_shapes_that_do_not_broadcast_are_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="Add 'y': shapes do not broadcast"):
        _one(hand, "Add", [2, 3], more={"z": [4]}).trace()


def test_a_sigmoid_needs_an_exponential_and_a_division(hand: Make) -> None:
    (op,) = _one(hand, "Sigmoid", [10]).trace().phase("frame").ops()
    assert op.vec == {"exp": (10,), "add": (10,), "div": (10,)}


def test_a_bias_is_read_once(hand: Make) -> None:
    assert _one(hand, "Add", [7, 8], weights={"b": [8]}).weight_bytes() == 8 * 4


def test_a_batch_norm_behind_an_activation_is_not_free(hand: Make) -> None:
    """Conv -> Relu -> BatchNormalization: it cannot fold into the weights before the Relu, so it costs 2 a value."""
    norms = {"s": [8], "b": [8], "m": [8], "v": [8]}
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("BatchNormalization", ["r", *norms], ["y"]),
    ]
    with_norm = hand(nodes, {"x": [1, 3, 12, 12]}, ["y"], weights={"w": [8, 3, 3, 3], **norms})
    without = hand(nodes[:2], {"x": [1, 3, 12, 12]}, ["r"], weights={"w": [8, 3, 3, 3]})

    def work(model: Any) -> int:
        return sum(c[0] for op in model.trace().phase("frame").ops() for c in op.vec.values())

    assert work(with_norm) == work(without) + 2 * 8 * 100


def test_a_convolution_whose_result_is_also_an_output_still_writes_it(hand: Make) -> None:
    """Conv -> (output c) and Relu -> (output y): both of 800 values leave the chip at 2 B."""
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])]
    model = hand(nodes, {"x": [1, 3, 12, 12]}, ["c", "y"], weights={"w": [8, 3, 3, 3]})
    assert model.trace().bind("frame").traffic()["io", True] == 2 * 800 * 2


@pytest.mark.parametrize(
    ("kind", "attrs", "weights"),
    [
        ("MaxPool", {"kernel_shape": [2, 2]}, {}),
        ("Dropout", {}, {}),
        ("LayerNormalization", {}, {"g": [12]}),
    ],
)
def test_a_second_output_can_be_read(
    hand: Make, kind: str, attrs: dict[str, Any], weights: dict[str, list[int]]
) -> None:
    """Indices of a pool, mask of a dropout, mean of a norm: all are outputs a later node may use."""
    nodes = [
        node(kind, ["x", *weights], ["a", "second"], **attrs),
        node("Cast", ["second"], ["y"], to=TensorProto.FLOAT),
    ]
    model = hand(nodes, {"x": [1, 3, 12, 12]}, ["a", "y"], weights=weights)
    assert model.dims("y") == model.oracle("y")


# --- ops without a rule


def _custom(hand: Make, domain: str = "acme") -> Any:
    """x -> acme::Fancy -> y, with the output's shape stated."""
    made = [node("Relu", ["x"], ["r"]), node("Fancy", ["r"], ["y"], name="f0", domain=domain)]
    model = hand(made, {"x": [2, 3]}, ["y"])
    model.proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3]))
    return model


@pytest.mark.parametrize("domain", ["acme", "com.microsoft"])
def test_an_op_without_a_rule_falls_back_to_the_cpu_and_is_listed(hand: Make, domain: str) -> None:
    trace = _custom(hand, domain).trace()
    listed = trace.header.report["cpu_fallbacks"]
    assert list(listed) == ["Fancy"]
    assert (listed["Fancy"]["count"], listed["Fancy"]["first"]) == (1, "f0")


def test_an_op_without_a_rule_is_never_free(hand: Make) -> None:
    """A multiply and an add for each of 6 elements in and 6 out."""
    ops = list(_custom(hand).trace().phase("frame").ops())
    assert ops[-1].unit == "cpu"
    assert (ops[-1].vec["mul"], ops[-1].vec["add"]) == ((12,), (12,))


def test_an_op_without_a_rule_is_an_error_when_strict(hand: Make) -> None:
    with pytest.raises(CompileError, match="acme::Fancy 'f0': no cost rule for acme::Fancy"):
        _custom(hand).trace(strict=True)


def test_strict_lists_every_op_without_a_rule(hand: Make) -> None:
    nodes = [node(f"Odd{i}", ["x"], [f"y{i}"], domain="acme") for i in range(3)]
    model = hand(nodes, {"x": [2]}, ["y0", "y1", "y2"])
    for i in range(3):
        model.proto.graph.output[i].CopyFrom(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [2]))
    with pytest.raises(CompileError) as caught:
        model.trace(strict=True)
    assert len(caught.value.problems) == 3


def test_strict_accepts_ops_with_rules(hand: Make) -> None:
    assert _one(hand, "Relu", [2, 3]).trace(strict=True).phases


def test_a_result_of_unknown_shape_is_an_error_that_names_the_op(hand: Make) -> None:
    """No rule and no stated shape: nothing can be priced, so nothing is guessed."""
    nodes = [node("Fancy", ["x"], ["f"], domain="acme"), node("Relu", ["f"], ["y"])]
    with pytest.raises(
        CompileError, match="no cost rule for acme::Fancy, and the file does not state the shape of 'f'"
    ):
        hand(nodes, {"x": [2, 3]}, ["y"]).trace()


def test_a_result_of_unknown_shape_does_not_hide_behind_what_follows(hand: Make) -> None:
    """The op without a rule is the cause; a convolution that cannot read its unknown result is not."""
    nodes = [node("Fancy", ["x"], ["f"], domain="acme"), node("Conv", ["f", "w"], ["y"])]
    with pytest.raises(CompileError, match="no cost rule for acme::Fancy"):
        hand(nodes, {"x": [1, 3, 8, 8]}, ["y"], weights={"w": [4, 3, 3, 3]}).trace()


def _stated(model: Any, **outputs: list[int]) -> Any:
    """The model with the shapes of its outputs stated."""
    for out in model.proto.graph.output:
        out.CopyFrom(helper.make_tensor_value_info(out.name, TensorProto.FLOAT, outputs[out.name]))
    return model


def _no_rule(kind: str, op: str) -> str:
    return (
        f"hand.onnx: error: {op}: no cost rule for {kind}, whose work does not follow from the sizes of its results; "
        "replace it by ops that have one (a MatMul, a Conv), or cut it off with --until"
    )


DENSE: dict[str, tuple[list[int], dict[str, Any]]] = {
    "com.microsoft::SparseAttention": ([4, 8], {}),
    "com.microsoft::LongformerAttention": ([4, 8], {}),
    "com.microsoft::DynamicQuantizeLSTM": ([4, 1, 8], {"weights": {"w": [1, 8, 12], "r": [1, 3, 12]}}),
    "com.microsoft::BeamSearch": ([4, 8], {}),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", DENSE)
def test_an_op_that_does_more_than_touch_its_elements_is_refused(hand: Make, kind: str, strict: bool) -> None:
    """Priced by its elements it would be nearly free: a wrong number, not a rough one."""
    x, how = DENSE[kind]
    domain, _, name = kind.rpartition("::")
    model = _stated(_one(hand, name, x, domain=domain, **how), y=[1, 2])
    with pytest.raises(CompileError) as caught:
        model.trace(strict=strict)
    assert _no_rule(kind, f"{kind} 'y'") in str(caught.value)


@pytest.mark.parametrize("rows", [64, 65])
def test_an_op_without_a_rule_may_have_a_table_but_no_matrix(hand: Make, rows: int) -> None:
    """4096 stored elements are a table of constants, more are multiplied by."""
    model = _stated(_one(hand, "Fancy", [2, 64], domain="acme", weights={"w": [rows, 64]}), y=[2, 64])
    if rows == 64:
        assert model.trace().header.report["cpu_fallbacks"]["Fancy"]["count"] == 1
        return
    with pytest.raises(CompileError) as caught:
        model.trace()
    assert str(caught.value) == _no_rule("acme::Fancy", "acme::Fancy 'y'")


def test_a_stored_vector_is_no_matrix(hand: Make) -> None:
    model = _stated(_one(hand, "Fancy", [2, 5000], domain="acme", weights={"w": [5000]}), y=[2, 5000])
    assert model.trace().header.report["cpu_fallbacks"]["Fancy"]["count"] == 1


def test_an_op_without_a_rule_reads_its_stored_operands(hand: Make) -> None:
    """Of 4 x 6 and 6 values of fp32; it touches the 12 elements in and 12 out as before."""
    weights = {"w": [4, 6], "b": [6]}
    trace = _stated(_one(hand, "Fancy", [2, 6], domain="acme", weights=weights), y=[2, 6]).trace()
    (op,) = trace.phase("frame").ops()
    assert {b: n for b, n in op.read.items() if b.startswith("w:")} == {"w:w": (4 * 6 * 4,), "w:b": (6 * 4,)}
    assert (op.vec["mul"], op.vec["add"]) == ((24,), (24,))
    (work,) = trace.bind("frame").segments
    assert work.moved["weights", False] == 30 * 4  # type: ignore[union-attr]
    assert trace.resident_bytes == 30 * 4


def test_an_op_with_a_graph_inside_is_refused(hand: Make) -> None:
    """Whatever it is called: what the inner graph does is not in the sizes of the results."""
    value = helper.make_empty_tensor_value_info
    inner = helper.make_graph([node("Relu", ["x"], ["i"])], "inner", [], [value("i")])
    model = _stated(hand([node("Fancy", ["x"], ["y"], domain="acme", body=inner)], {"x": [2, 3]}, ["y"]), y=[2, 3])
    with pytest.raises(CompileError) as caught:
        model.trace()
    assert str(caught.value) == _no_rule("acme::Fancy", "acme::Fancy 'y'")


def test_a_forced_fallback_is_listed_with_its_reason(hand: Make) -> None:
    trace = _one(hand, "Sigmoid", [10]).trace(fallback_ops=frozenset({"Sigmoid"}))
    assert trace.header.report["cpu_fallbacks"]["Sigmoid"]["why"] == "forced by --fallback-op"


def test_a_forced_fallback_that_is_not_in_the_model_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"no op of type 'Sigmiod'; did you mean 'Sigmoid'\?"):
        _one(hand, "Sigmoid", [10]).trace(fallback_ops=frozenset({"Sigmiod"}))


# --- sizes that nobody bound


def test_all_unbound_sizes_are_listed_at_once(hand: Make) -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["z", "w"], ["b"])]
    model = hand(nodes, {"x": ["rows", 8], "z": ["lines", 8]}, ["a", "b"], weights={"w": [8, 3]})
    with pytest.raises(CompileError) as caught:
        model.trace()
    assert [p.what for p in caught.value.problems] == ["the size 'lines' is not bound", "the size 'rows' is not bound"]


def test_a_bound_size_is_used(hand: Make) -> None:
    model = _one(hand, "MatMul", ["rows", 8], weights={"w": [8, 3]})
    assert model.macs(bind={"rows": 5}) == 120


def test_a_size_with_dots_in_its_name_can_be_bound(hand: Make) -> None:
    model = _one(hand, "MatMul", ["p2o.DynamicDimension.1", 8], weights={"w": [8, 3]})
    assert model.macs(bind={"p2o.DynamicDimension.1": 5}) == 120


def test_an_unnamed_size_is_bound_by_the_whole_shape(hand: Make) -> None:
    model = _one(hand, "MatMul", [None, 8], weights={"w": [8, 3]})
    assert model.macs(shapes={"x": (5, 8)}) == 120


def test_an_unnamed_size_is_reported_by_its_place(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"the size 'x\[0\]' is not bound"):
        _one(hand, "MatMul", [None, 8], weights={"w": [8, 3]}).trace()


def test_a_size_the_model_does_not_have_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"no size called 'row'; did you mean 'rows'\?"):
        _one(hand, "MatMul", ["rows", 8], weights={"w": [8, 3]}).trace(bind={"row": 5})


def test_a_shape_of_another_rank_is_an_error(hand: Make) -> None:
    """The file says [rows, 8]; three numbers cannot be meant for it."""
    with pytest.raises(CompileError):
        _one(hand, "Relu", ["rows", 8]).trace(shapes={"x": (1, 5, 8)})


@pytest.mark.parametrize("bad", [[0, 1, 5], [0, 0, 1]])
def test_a_permutation_that_is_none_is_an_error(hand: Make, bad: list[int]) -> None:
    with pytest.raises(CompileError, match="Transpose 'y'"):
        _one(hand, "Transpose", [2, 3, 4], perm=bad).trace()


def test_an_axis_out_of_range_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="Squeeze 'y'"):
        _one(hand, "Squeeze", [3, 1], ints={"s": [5]}).trace()


def test_a_constant_index_out_of_range_is_an_error(hand: Make) -> None:
    """Shape has two entries; number 7 does not exist."""
    nodes = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "i"], ["n"]), node("Reshape", ["x", "n"], ["y"])]
    with pytest.raises(CompileError, match="Gather 'n'"):
        hand(nodes, {"x": [2, 3]}, ["y"], ints={"i": [7]}).trace()


# --- every quantisation plan sees the same MACs


@pytest.mark.parametrize("quant", ["int4", "int8", "fp16", "keep"])
def test_a_plan_does_not_change_macs(hand: Make, quant: str) -> None:
    assert _one(hand, "MatMul", [5, 8], weights={"w": [8, 3]}).macs(quant=quant) == 120


def test_an_unknown_plan_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"unknown plan 'int44'; did you mean 'int4'\?"):
        _one(hand, "Relu", [2]).trace(quant="int44")


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
    model = _one(hand, "MatMul", [5, 8], weights={"w": [8, 3]})
    graph = model.graph()
    first = compile_graph(graph, model.core, Options(quant="int4"))
    assert compile_graph(graph, model.core, Options(quant="int4")) == first
