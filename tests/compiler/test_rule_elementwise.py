"""Softmax, norms, elementwise ops, and what is fused with what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import TensorProto, helper
from rule_models import one

from bpusim.errors import CompileError

Make = Callable[..., Any]
node = helper.make_node


def test_softmax_runs_over_one_axis_since_opset_13(hand: Make) -> None:
    """[2, 3, 4] along axis 1: 8 rows of 3, a division each; 24 exponentials."""
    (op,) = one(hand, "Softmax", [2, 3, 4], axis=1, opset=13).trace().phase("frame").ops()
    assert (op.vec["exp"], op.vec["div"]) == ((24,), (8,))


def test_softmax_ran_over_all_later_axes_before(hand: Make) -> None:
    """The same node in opset 11: 2 rows of 12, so 2 divisions."""
    (op,) = one(hand, "Softmax", [2, 3, 4], axis=1, opset=11).trace().phase("frame").ops()
    assert (op.vec["exp"], op.vec["div"]) == ((24,), (2,))


def test_softmax_defaults_to_the_last_axis_since_opset_13(hand: Make) -> None:
    (op,) = one(hand, "Softmax", [2, 3, 4], opset=13).trace().phase("frame").ops()
    assert op.vec["div"] == (6,)


def test_softmax_defaulted_to_axis_1_before(hand: Make) -> None:
    (op,) = one(hand, "Softmax", [2, 3, 4], opset=11).trace().phase("frame").ops()
    assert op.vec["div"] == (2,)


def test_layer_norm_divides_once_a_row_and_reads_its_weights(hand: Make) -> None:
    model = one(hand, "LayerNormalization", [2, 3, 64], weights={"g": [64], "b": [64]})
    (op,) = model.trace().phase("frame").ops()
    assert op.vec["div"] == (6,)
    assert model.weight_bytes() == 2 * 64 * 4


@pytest.mark.parametrize("quant", ["int4", "int8", "fp16"])
def test_norm_weights_are_fp16_under_every_plan(hand: Make, quant: str) -> None:
    model = one(hand, "LayerNormalization", [2, 64], weights={"g": [64], "b": [64]})
    assert model.weight_bytes(quant=quant) == 2 * 64 * 2


def test_a_fused_skip_norm_gives_the_sum_too(hand: Make) -> None:
    """SkipSimplifiedLayerNormalization: output 3 is x + skip, and both are shaped like x."""
    made = node(
        "SkipSimplifiedLayerNormalization", ["x", "k", "g"], ["y", "", "", "sum"], domain="com.microsoft", epsilon=1e-6
    )
    model = hand([made], {"x": [1, 3, 64], "k": [1, 3, 64]}, ["y", "sum"], weights={"g": [64]})
    assert model.dims("y") == model.dims("sum") == [1, 3, 64]


def test_a_batch_norm_reads_four_vectors(hand: Make) -> None:
    model = one(hand, "BatchNormalization", [1, 3, 4, 4], weights={"s": [3], "b": [3], "m": [3], "v": [3]})
    assert model.weight_bytes() == 4 * 3 * 4


def test_elementwise_work_counts_broadcast_results(hand: Make) -> None:
    """[2, 1, 4] + [3, 1] gives 24 sums."""
    (op,) = one(hand, "Add", [2, 1, 4], more={"z": [3, 1]}).trace().phase("frame").ops()
    assert op.vec == {"add": (24,)}


def test_shapes_that_do_not_broadcast_are_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="Add 'y': shapes do not broadcast"):
        one(hand, "Add", [2, 3], more={"z": [4]}).trace()


def test_a_sigmoid_needs_an_exponential_and_a_division(hand: Make) -> None:
    (op,) = one(hand, "Sigmoid", [10]).trace().phase("frame").ops()
    assert op.vec == {"exp": (10,), "add": (10,), "div": (10,)}


def test_a_bias_is_read_once(hand: Make) -> None:
    assert one(hand, "Add", [7, 8], weights={"b": [8]}).weight_bytes() == 8 * 4


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
