"""What an attack by a new user found: operands that no rule had charged, sizes beyond counting, types of no size."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from bpusim.compiler import Options, compile_llm_config
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec
from bpusim.trace import Repeat, load_trace, save_trace

Make = Callable[..., Any]
MS = "com.microsoft"
ROOT = Path(__file__).resolve().parents[2]


def op(kind: str, inputs: str, outputs: str = "y", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(kind, ["" if n == "-" else n for n in inputs.split()], outputs.split(), **attrs)


@pytest.mark.parametrize(
    ("made", "inputs", "weights", "opset"),
    [
        # A mask of attention, a position table of a sum with a norm, a sampling grid, an initial state.
        (op("Attention", "q k v m"), {n: [1, 8, 128, 64] for n in "qkv"}, {"m": [1, 1, 128, 128]}, 23),
        (op("SkipLayerNormalization", "x s g", domain=MS), {"x": [1, 197, 768]}, {"s": [1, 197, 768], "g": [768]}, 17),
        (op("GridSample", "x g"), {"x": [1, 3, 32, 32]}, {"g": [1, 72, 128, 2]}, 17),
        (
            op("LSTM", "x w r - - h c", "y", hidden_size=16),
            {"x": [4, 1, 8]},
            {"w": [1, 64, 8], "r": [1, 64, 16], "h": [1, 1, 16], "c": [1, 1, 16]},
            17,
        ),
    ],
)
def test_a_stored_operand_is_read_wherever_it_stands(
    hand: Make, made: onnx.NodeProto, inputs: dict[str, Any], weights: dict[str, Any], opset: int
) -> None:
    model = hand([made], inputs, ["y"], weights=weights, opset=opset)
    every = sum(4 * int(onnx.numpy_helper.np.prod(d)) for d in weights.values())
    assert model.trace().resident_bytes == every
    assert model.weight_bytes() == every


def test_stored_indices_are_read_unless_they_are_few(hand: Make) -> None:
    """Up to 4096 integers are known when the model is prepared, and part of the program."""
    gather = op("GatherElements", "x i")
    model = hand([gather], {"x": [128, 128]}, ["y"], weights={"i": [128, 128]}, dtype=onnx.TensorProto.INT64)
    assert model.weight_bytes() == 128 * 128 * 8


@pytest.mark.parametrize("size", [2**31, 2**24])
def test_sizes_beyond_counting_are_one_error_that_names_the_node(hand: Make, size: int) -> None:
    model = hand([op("MatMul", "a b")], {"a": [size, size], "b": [size, size]}, ["y"])
    with pytest.raises(CompileError, match=r"^hand.onnx: error: MatMul 'y': its costs exceed what can be counted"):
        model.trace()


def test_an_input_of_an_unknown_type_is_one_error(hand: Make) -> None:
    model = hand([op("Relu", "x")], {"x": [4]}, ["y"])
    model.proto.graph.input[0].type.tensor_type.elem_type = 65
    with pytest.raises(CompileError, match="input 'x' has element type 65, which has no known size"):
        model.trace()


def test_phases_that_repeat_unlike_call_a_tensor_by_one_name(core: CoreSpec, tmp_path: Path) -> None:
    """In prefill the last layer spills what the others keep; in decode all are alike. Each layer is stored once."""
    config = json.loads((ROOT / "traces" / "models" / "qwen2.5-7b.config.json").read_text(encoding="utf-8"))
    config |= {"hidden_size": 896, "intermediate_size": 2432, "num_hidden_layers": 4, "vocab_size": 8192}
    config |= {"num_attention_heads": 14, "num_key_value_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    whole, cut = (
        compile_llm_config(tmp_path / "config.json", core, Options(quant="int4", chunk=n, context=8448))
        for n in (128, 1024)
    )
    repeats = [[i.count for i in p.items if isinstance(i, Repeat)] for p in cut.phases.values()]
    assert repeats[0] == repeats[1]
    assert repeats[0][0] == 3
    assert cut.resident_bytes == whole.resident_bytes
    save_trace(cut, tmp_path / "cut.trace")
    assert load_trace(tmp_path / "cut.trace").resident_bytes == whole.resident_bytes


@pytest.mark.parametrize(
    ("made", "inputs", "weights", "says"),
    [
        (op("Conv", "x w", kernel_shape=[5, 5]), {"x": [1, 3, 8, 8]}, {"w": [8, 3, 3, 3]}, "kernel_shape"),
        (op("Conv", "x w", dilations=[0, 1]), {"x": [1, 3, 8, 8]}, {"w": [8, 3, 3, 3]}, "must be 1 or more"),
        (op("Conv", "x w", strides=[0, 1]), {"x": [1, 3, 8, 8]}, {"w": [8, 3, 3, 3]}, "must be 1 or more"),
        (op("Conv", "x w", strides=[2]), {"x": [1, 3, 8, 8]}, {"w": [8, 3, 3, 3]}, "2 dimensions take 2 strides"),
        (op("Conv", "x w", auto_pad="SAME"), {"x": [1, 3, 8, 8]}, {"w": [8, 3, 3, 3]}, "auto_pad 'SAME' is not known"),
        (op("Conv", "x w b"), {"x": [1, 3, 8, 8]}, {"w": [8, 3, 3, 3], "b": [7]}, "a bias of .7. for 8 channels"),
        (
            op("GroupQueryAttention", "q k v pk pv s t", "y a b", domain=MS, num_heads=4, kv_num_heads=4),
            {"q": [1, 1, 128], "k": [1, 1, 64], "v": [1, 1, 64], "pk": [1, 2, 8, 32], "pv": [1, 2, 8, 32],
             "s": [1], "t": [1]},
            {},
            "are not 4 heads of 32",
        ),
    ],
)  # fmt: skip
def test_what_the_operator_set_forbids_is_no_price(
    hand: Make, made: onnx.NodeProto, inputs: dict[str, Any], weights: dict[str, Any], says: str
) -> None:
    with pytest.raises(CompileError, match=says):
        hand([made], inputs, list(made.output), weights=weights).trace()


def test_more_than_there_are_are_not_picked(hand: Make) -> None:
    with pytest.raises(CompileError, match="the first 50 of 10"):
        hand([op("TopK", "x k", "y i")], {"x": [1, 10]}, ["y", "i"], ints={"k": [50]}).trace()
