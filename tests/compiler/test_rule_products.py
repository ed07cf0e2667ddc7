"""Products, convolutions and pools: MACs and bytes worked out in each test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import helper
from rule_models import one

from bpusim.errors import CompileError

Make = Callable[..., Any]
node = helper.make_node


def test_matmul_macs(hand: Make) -> None:
    """2 x 5 rows by 8 x 3: 10 x 8 x 3 = 240."""
    assert one(hand, "MatMul", [2, 5, 8], weights={"w": [8, 3]}).macs() == 240


def test_matmul_of_activations_macs_follow_broadcast_batches(hand: Make) -> None:
    """Batches [2, 1] and [3] make 6 products of 5 x 8 x 4 = 960."""
    assert one(hand, "MatMul", [2, 1, 5, 8], more={"z": [3, 8, 4]}).macs() == 960


def test_matmul_of_activations_reads_no_weight(hand: Make) -> None:
    assert one(hand, "MatMul", [5, 8], more={"z": [8, 4]}).weight_bytes() == 0


def test_matmul_weight_bytes_as_stored(hand: Make) -> None:
    assert one(hand, "MatMul", [5, 8], weights={"w": [8, 3]}).weight_bytes() == 8 * 3 * 4


def test_matmul_whose_columns_do_not_match_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"MatMul 'y': shapes do not match: \[5, 8\] by \[9, 3\]"):
        one(hand, "MatMul", [5, 8], weights={"w": [9, 3]}).trace()


def test_gemm_macs_and_bias(hand: Make) -> None:
    """5 x 8 x 3 MACs; the weight and the bias are read."""
    model = one(hand, "Gemm", [5, 8], weights={"w": [8, 3], "b": [3]})
    assert (model.macs(), model.weight_bytes()) == (120, (24 + 3) * 4)


def test_gemm_with_both_operands_transposed(hand: Make) -> None:
    assert one(hand, "Gemm", [8, 5], weights={"w": [3, 8]}, transA=1, transB=1).macs() == 120


@pytest.mark.parametrize(("kind", "extra"), [("MatMul", {}), ("Gemm", {})])
def test_a_weight_on_the_left_is_read_too(hand: Make, kind: str, extra: dict[str, Any]) -> None:
    """W x of 3 x 8 by 8 x 5: the 24 stored values come from DRAM like any weight."""
    model = one(hand, kind, [8, 5], weights={"w": [3, 8]}, order=["w", "x"], **extra)
    assert (model.macs(), model.weight_bytes()) == (120, 24 * 4)


def test_a_stack_of_weights_is_read(hand: Make) -> None:
    """Four stored 8 x 3 matrices, one per batch entry."""
    model = one(hand, "MatMul", [4, 5, 8], weights={"w": [4, 8, 3]})
    assert (model.macs(), model.weight_bytes()) == (480, 96 * 4)


def test_conv_1d_macs(hand: Make) -> None:
    """16 places ((20 - 5) + 1) x 6 kernels x 4 x 5."""
    assert one(hand, "Conv", [1, 4, 20], weights={"w": [6, 4, 5]}).macs() == 16 * 6 * 4 * 5


def test_conv_2d_macs(hand: Make) -> None:
    """10 x 10 places x 8 kernels x 3 x 3 x 3."""
    assert one(hand, "Conv", [1, 3, 12, 12], weights={"w": [8, 3, 3, 3]}).macs() == 100 * 8 * 27


def test_conv_3d_macs(hand: Make) -> None:
    """4 x 4 x 4 places x 4 kernels x 2 x 3 x 3 x 3."""
    assert one(hand, "Conv", [1, 2, 6, 6, 6], weights={"w": [4, 2, 3, 3, 3]}).macs() == 64 * 4 * 54


def test_depthwise_conv_macs(hand: Make) -> None:
    """7 x 7 places x 6 channels x 9: each channel sees itself only."""
    assert one(hand, "Conv", [1, 6, 9, 9], weights={"w": [6, 1, 3, 3]}, group=6).macs() == 49 * 6 * 9


def test_grouped_conv_macs(hand: Make) -> None:
    """Two groups: 8 kernels of 3 of the 6 channels."""
    assert one(hand, "Conv", [1, 6, 9, 9], weights={"w": [8, 3, 3, 3]}, group=2).macs() == 49 * 8 * 27


def test_conv_kernel_from_an_input_is_no_weight(hand: Make) -> None:
    model = one(hand, "Conv", [1, 3, 12, 12], more={"k": [8, 3, 3, 3]})
    assert (model.macs(), model.weight_bytes()) == (100 * 8 * 27, 0)


def test_conv_with_the_wrong_channels_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"Conv 'y': the input \[1, 3, 12, 12\] has 3 channels"):
        one(hand, "Conv", [1, 3, 12, 12], weights={"w": [8, 4, 3, 3]}).trace()


def test_conv_on_the_wrong_rank_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="a window of 2 dimensions on an input of 1"):
        one(hand, "Conv", [1, 3, 12], weights={"w": [8, 3, 3, 3]}).trace()


def test_a_pool_reduces_its_window(hand: Make) -> None:
    """5 x 5 places x 3 channels x 9 values."""
    trace = one(hand, "MaxPool", [1, 3, 11, 11], kernel_shape=[3, 3], strides=[2, 2]).trace()
    (op,) = trace.phase("frame").ops()
    assert (op.unit, op.vec) == ("vector", {"reduce": (25 * 3 * 9,)})
