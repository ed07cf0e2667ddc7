"""Models that other tools got wrong, of one or a few nodes each, with exact values.

The graphs are built here. Where real files lie beside the repository they are compiled too; else these tests are
skipped. The numbers in brackets name the cases there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bpusim.compiler import Options, compile_model
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec
from bpusim.trace import Trace

node = helper.make_node
F, U8, I8, I32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32
Whole = Callable[[onnx.ModelProto], Any]


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int]]],
    outputs: list[str],
    stored: dict[str, np.ndarray[Any, Any]] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "case",
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in (stored or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def floats(*dims: int) -> np.ndarray[Any, Any]:
    return np.zeros(dims, np.float32)


def ints(*dims: int) -> np.ndarray[Any, Any]:
    return np.ones(dims, np.int8)


def frame(trace: Trace) -> dict[tuple[str, bool], int]:
    """Bytes of one frame by (kind, written)."""
    return dict(trace.bind("frame").traffic())


def roles(trace: Trace) -> dict[str, int]:
    """Resident bytes by role."""
    out: dict[str, int] = {}
    for t in trace.tensors:
        out[t.role] = out.get(t.role, 0) + t.bytes * t.count
    return out


# --- new ops (IN-30)


def _attention(q: list[int], k: list[int], v: list[int], **attrs: Any) -> onnx.ModelProto:
    return model(
        [node("Attention", ["q", "k", "v"], ["y"], **attrs)], {"q": (F, q), "k": (F, k), "v": (F, v)}, ["y"], opset=23
    )


@pytest.mark.parametrize(
    ("proto", "macs", "kv"),
    [
        (_attention([1, 8, 1, 16], [1, 2, 32, 16], [1, 2, 32, 16]), 8192, 8192),
        (_attention([1, 1, 128], [1, 32, 32], [1, 32, 32], q_num_heads=8, kv_num_heads=2), 8192, 8192),
        (_attention([1, 4, 2, 8], [1, 4, 50, 8], [1, 4, 50, 24]), 4 * 2 * 50 * (8 + 24), 4 * 50 * (8 + 24) * 4),
    ],
)
def test_attention_over_the_callers_cache(whole: Whole, proto: onnx.ModelProto, macs: int, kv: int) -> None:
    """8 query heads, 2 KV heads of 16, 32 entries: 2 x 8 x 1 x 32 x 16 MACs; 2 x 2 x 32 x 16 values of 4 B are read
    once per KV head, not once per query head. The same in rows; the third has values of another width."""
    trace = whole(proto).trace()
    assert trace.bind("frame").macs == macs
    assert frame(trace)["kv", False] == kv


def test_a_norm_without_a_mean(whole: Whole) -> None:
    """4 rows of 64: three products and a sum of squares an element, a root a row; 256 B of weights."""
    proto = model(
        [node("RMSNormalization", ["x", "s"], ["y"])], {"x": (F, [1, 4, 64])}, ["y"], {"s": floats(64)}, opset=23
    )
    trace = whole(proto).trace()
    (op,) = trace.phase("frame").ops()
    assert dict(op.vec) == {"mul": (768,), "reduce": (256,), "div": (4,), "add": (4,)}
    assert trace.resident_bytes == 256


def test_a_rotation(whole: Whole) -> None:
    """4 heads of 8, 3 tokens, cosines by token: two products and a sum for each of 96 elements; 2 x 3 x 4 x 4 B."""
    proto = model(
        [node("RotaryEmbedding", ["x", "c", "s"], ["y"])],
        {"x": (F, [1, 4, 3, 8])},
        ["y"],
        {"c": floats(1, 3, 4), "s": floats(1, 3, 4)},
        opset=23,
    )
    trace = whole(proto).trace()
    (op,) = trace.phase("frame").ops()
    assert (dict(op.vec), trace.resident_bytes) == ({"mul": (192,), "add": (96,)}, 96)


# --- a runtime's own ops (IN-32)


def test_a_chain_of_contributed_ops_needs_no_cpu(whole: Whole) -> None:
    """4 heads of 16 over 8 tokens: 2 x 4 x 8 x 8 x 16 = 8192 MACs."""
    ms = "com.microsoft"
    proto = model(
        [
            node("Gelu", ["x"], ["a"], domain=ms),
            node("SkipSimplifiedLayerNormalization", ["a", "x", "g"], ["b"], domain=ms, epsilon=1e-5),
            node("MultiHeadAttention", ["b", "b", "b"], ["y"], domain=ms, num_heads=4),
        ],
        {"x": (F, [1, 8, 64])},
        ["y"],
        {"g": floats(64)},
    )
    trace = whole(proto).trace(strict=True)
    assert trace.bind("frame").macs == 8192
    assert trace.header.report["cpu_fallbacks"] == {}


# --- windows of one and three dimensions, a channel at a time (IN-44)


@pytest.mark.parametrize(
    ("x", "w", "attrs", "macs", "places"),
    [
        ([1, 8, 100], [16, 8, 3], {}, 3 * 8 * 16 * 98, [1, 16, 98]),
        ([1, 8, 32, 32], [8, 1, 3, 3], {"group": 8}, 9 * 8 * 900, [1, 8, 30, 30]),
        ([1, 2, 8, 8, 8], [4, 2, 3, 3, 3], {}, 27 * 2 * 4 * 216, [1, 4, 6, 6, 6]),
        ([1, 4, 8, 8, 8], [8, 1, 3, 3, 3], {"group": 4}, 27 * 8 * 216, [1, 8, 6, 6, 6]),
        ([2, 6, 50], [6, 2, 5], {"group": 3, "strides": [2]}, 5 * 2 * 6 * 23 * 2, [2, 6, 23]),
    ],
)
def test_convolutions_of_any_rank(
    whole: Whole, x: list[int], w: list[int], attrs: dict[str, Any], macs: int, places: list[int]
) -> None:
    """Taps x inputs of a group x outputs x places x batch."""
    made = whole(model([node("Conv", ["x", "w"], ["y"], **attrs)], {"x": (F, x)}, ["y"], {"w": floats(*w)}))
    assert (made.macs(), made.dims("y")) == (macs, places)


@pytest.mark.parametrize(
    ("x", "kernel", "strides", "places"),
    [([1, 8, 100], [3], [2], [1, 8, 49]), ([1, 2, 8, 8, 8], [2, 2, 2], [2, 2, 2], [1, 2, 4, 4, 4])],
)
def test_pools_of_any_rank(
    whole: Whole, x: list[int], kernel: list[int], strides: list[int], places: list[int]
) -> None:
    proto = model([node("MaxPool", ["x"], ["y"], kernel_shape=kernel, strides=strides)], {"x": (F, x)}, ["y"])
    made = whole(proto)
    (op,) = made.trace().phase("frame").ops()
    assert made.dims("y") == places
    assert dict(op.vec) == {"reduce": (int(np.prod(places)) * int(np.prod(kernel)),)}


# --- quantised convolutions, as conversions around floats (IN-45)


def _qdq(axis: dict[str, int], zero: bool = False, scales: int = 8) -> onnx.ModelProto:
    stored: dict[str, Any] = {
        "wq": ints(8, 3, 3, 3),
        "sw": np.full(scales, 0.01, np.float32),
        "sx": np.float32(0.02),
        "sy": np.float32(0.05),
        "zx": np.int8(0),
        "zw": np.zeros(scales, np.int8),
    }
    weight = ["wq", "sw", "zw"] if zero else ["wq", "sw"]
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        node("DequantizeLinear", weight, ["wd"], name="dqw", **axis),
        node("Conv", ["xd", "wd"], ["c"]),
        node("QuantizeLinear", ["c", "sy", "zx"], ["yq"]),
        node("DequantizeLinear", ["yq", "sy", "zx"], ["y"]),
    ]
    return model(nodes, {"x": (F, [1, 3, 32, 32])}, ["y"], {k: np.asarray(v) for k, v in stored.items()})


@pytest.mark.parametrize("zero", [False, True])
def test_conversions_fold_into_one_integer_convolution(whole: Whole, zero: bool) -> None:
    """8 x 27 bytes of weights stay bytes, 8 fp32 scales (and 8 zero points) beside them; 27 x 8 x 900 MACs. Only the
    input is quantised (3072 elements) and the output dequantised (7200): the convolution has one conversion a result.
    """
    trace = whole(_qdq({"axis": 0}, zero)).trace()
    ops = list(trace.phase("frame").ops())
    assert [op.type for op in ops] == ["QuantizeLinear", "Conv+DequantizeLinear+QuantizeLinear", "DequantizeLinear"]
    assert roles(trace) == {"conv": 216, "scale": 32 + 8 * zero}
    assert trace.bind("frame").macs == 194_400
    assert [op.vec["convert"] for op in ops] == [(3072,), (7200,), (7200,)]
    assert trace.header.report["views"] == {"DequantizeLinear": 1}
    assert trace.header.report["folded"] == {"DequantizeLinear": 1, "QuantizeLinear": 1}
    assert trace.header.report["of_bytes"] == {"Conv": 1}


def test_an_activation_between_the_convolution_and_its_conversion_folds_too(whole: Whole) -> None:
    """Convolution, ReLU and quantisation leave the array together: a conversion and a comparison a result."""
    proto = _qdq({"axis": 0})
    proto.graph.node[4].input[0] = "r"
    proto.graph.node.insert(4, node("Relu", ["c"], ["r"]))
    _, op, _ = whole(proto).trace().phase("frame").ops()
    assert op.type == "Conv+DequantizeLinear+Relu+QuantizeLinear"
    assert dict(op.vec) == {"convert": (7200,), "add": (7200,)}


def test_a_quantised_bias_is_read_as_it_is_stored(whole: Whole) -> None:
    """8 biases of 32 bits with a scale each."""
    proto = _qdq({"axis": 0})
    proto.graph.initializer.extend(
        [numpy_helper.from_array(np.zeros(8, np.int32), "bq"), numpy_helper.from_array(floats(8), "sb")]
    )
    proto.graph.node.insert(3, node("DequantizeLinear", ["bq", "sb"], ["bd"], axis=0))
    proto.graph.node[4].input.append("bd")
    assert roles(whole(proto).trace()) == {"conv": 216, "bias": 32, "scale": 64}


def test_a_product_of_quantised_activations_is_one_of_bytes(whole: Whole) -> None:
    """Scores of attention: both sides dequantised, one transposed, quantised again: 5 x 8 x 7 MACs of bytes."""
    s = {"s": np.asarray(np.float32(0.1)), "z": np.asarray(np.int8(0))}
    nodes = [
        node("DequantizeLinear", ["a", "s", "z"], ["ad"]),
        node("DequantizeLinear", ["b", "s", "z"], ["bd"]),
        node("Transpose", ["bd"], ["bt"], perm=[1, 0]),
        node("MatMul", ["ad", "bt"], ["c"]),
        node("QuantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    made = whole(model(nodes, {"a": (I8, [5, 8]), "b": (I8, [7, 8])}, ["y"], s))
    transposed, op = made.trace().phase("frame").ops()
    assert (transposed.type, op.type) == ("Transpose+DequantizeLinear", "MatMul+DequantizeLinear+QuantizeLinear")
    assert made.macs() == 280
    assert made.analysis().drafts[-2].cost.gemms[0].narrow


def test_a_quantised_table_is_read_by_rows(whole: Whole) -> None:
    """50 rows of 64 bytes with an fp32 scale each: 2 rows take 2 x 68 B."""
    nodes = [node("DequantizeLinear", ["t", "s"], ["td"], axis=0), node("Gather", ["td", "i"], ["y"])]
    proto = model(nodes, {"i": (TensorProto.INT64, [2])}, ["y"], {"t": ints(50, 64), "s": floats(50)})
    trace = whole(proto).trace()
    assert frame(trace)["weights", False] == 2 * 68


def test_a_folded_convolution_runs_at_the_rate_of_bytes(whole: Whole, core: CoreSpec) -> None:
    """900 rows of one tile at one cycle each, whatever the other activations are: 16-bit rows take four."""
    _, folded, _ = whole(_qdq({"axis": 0})).trace().phase("frame").ops()
    fill = core.mac.rows + core.mac.cols
    assert folded.mac_cycles == (900 * core.mac.cycles_per_row("int8") + fill,)
    plain = model([node("Conv", ["x", "w"], ["y"])], {"x": (F, [1, 3, 32, 32])}, ["y"], {"w": floats(8, 3, 3, 3)})
    (op,) = whole(plain).trace().phase("frame").ops()
    assert op.mac_cycles == (900 * core.mac.cycles_per_row("int16") + fill,)


def test_a_plan_replaces_the_scales_of_the_file(whole: Whole) -> None:
    """Plan int8: 27 bytes and an fp16 scale a channel; the file's own scales are not read."""
    trace = whole(_qdq({"axis": 0})).trace(quant="int8")
    assert roles(trace) == {"conv": 8 * (27 + 2)}


def test_a_scale_along_the_wrong_axis_names_the_node(whole: Whole) -> None:
    with pytest.raises(
        CompileError, match=r"DequantizeLinear 'dqw': a scale of \[8\] does not fit axis 1 \(the default"
    ):
        whole(_qdq({})).trace()


def test_a_zero_point_of_another_shape_is_an_error(whole: Whole) -> None:
    made = node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, name="dq")
    stored = {"w": ints(8, 4), "s": floats(8), "z": np.zeros(4, np.int8)}
    proto = model([made, node("MatMul", ["x", "d"], ["y"])], {"x": (F, [2, 8])}, ["y"], stored)
    with pytest.raises(CompileError, match=r"'dq': the zero point \[4\] is not shaped like the scale \[8\]"):
        whole(proto).trace()


def _blocked(block: int, scales: list[int]) -> onnx.ModelProto:
    w = TensorProto(name="w", data_type=TensorProto.INT4, dims=[64, 6], raw_data=bytes(192))
    proto = model(
        [node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=block), node("MatMul", ["x", "d"], ["y"])],
        {"x": (F, [2, 64])},
        ["y"],
        {"s": floats(*scales)},
        opset=21,
    )
    proto.graph.initializer.append(w)
    return proto


def test_weights_in_blocks_stay_nibbles(whole: Whole) -> None:
    """64 x 6 nibbles are 192 B; two blocks of 32 in each column have 12 fp32 scales."""
    trace = whole(_blocked(32, [2, 6])).trace()
    assert roles(trace) == {"linear": 192, "scale": 48}
    assert trace.bind("frame").macs == 2 * 64 * 6


def test_blocks_that_do_not_fit_their_scales_are_an_error(whole: Whole) -> None:
    with pytest.raises(CompileError, match=r"scales \[4, 6\] do not fit \[64, 6\] in blocks of 32 along axis 0"):
        whole(_blocked(32, [4, 6])).trace()


def test_other_ops_convert_on_their_way(whole: Whole) -> None:
    """A sum of two quantised tensors and a third: 12 elements in twice (a conversion and a product each), a sum, and
    out once; no float of them is stored."""
    s = {"s": np.asarray(np.float32(0.1)), "z": np.asarray(np.int8(0))}
    nodes = [
        node("DequantizeLinear", ["a", "s", "z"], ["ad"]),
        node("DequantizeLinear", ["b", "s", "z"], ["bd"]),
        node("Add", ["ad", "bd"], ["c"]),
        node("QuantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    trace = whole(model(nodes, {"a": (I8, [3, 4]), "b": (I8, [3, 4])}, ["y"], s)).trace()
    (op,) = trace.phase("frame").ops()
    assert op.type == "Add+DequantizeLinear+DequantizeLinear+QuantizeLinear"
    assert dict(op.vec) == {"add": (12,), "convert": (36,), "mul": (36,)}
    assert frame(trace) == {("io", False): 24, ("io", True): 12}


def test_elements_that_only_move_stay_integers(whole: Whole) -> None:
    """A pool of 2 of 8 values: 4 maxima, nothing else."""
    s = {"s": np.asarray(np.float32(0.1)), "z": np.asarray(np.int8(0))}
    nodes = [
        node("DequantizeLinear", ["a", "s", "z"], ["ad"]),
        node("MaxPool", ["ad"], ["c"], kernel_shape=[2], strides=[2]),
        node("QuantizeLinear", ["c", "s", "z"], ["y"]),
    ]
    trace = whole(model(nodes, {"a": (I8, [1, 1, 8])}, ["y"], s)).trace()
    (op,) = trace.phase("frame").ops()
    assert dict(op.vec) == {"reduce": (8,)}


def test_a_float_that_others_read_too_is_made(whole: Whole) -> None:
    """The sum is quantised and also an output: it stays an op of its own."""
    s = {"s": np.asarray(np.float32(0.1)), "z": np.asarray(np.int8(0))}
    nodes = [node("Add", ["a", "a"], ["c"]), node("QuantizeLinear", ["c", "s", "z"], ["y"])]
    trace = whole(model(nodes, {"a": (F, [8])}, ["c", "y"], s)).trace()
    assert [op.type for op in trace.phase("frame").ops()] == ["Add", "QuantizeLinear"]


def test_weights_that_are_quantised_in_the_graph_are_stored_quantised(whole: Whole) -> None:
    """Floats through QuantizeLinear and DequantizeLinear: 32 bytes once the model is prepared."""
    stored = {"w": floats(8, 4), "s": np.asarray(np.float32(0.1)), "z": np.asarray(np.int8(0))}
    nodes = [
        node("QuantizeLinear", ["w", "s", "z"], ["wq"]),
        node("DequantizeLinear", ["wq", "s", "z"], ["wd"]),
        node("MatMul", ["x", "wd"], ["y"]),
    ]
    assert whole(model(nodes, {"x": (F, [2, 8])}, ["y"], stored)).trace().resident_bytes == 32


# --- leftovers of dynamic quantisation (IN-46)


def test_quantisation_by_range_is_placed_and_its_inverse_folded(whole: Whole) -> None:
    """64 elements: two reductions, a product and a conversion each; back on the way into the product."""
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    trace = whole(model(nodes, {"x": (F, [1, 64])}, ["y"], {"w": floats(64, 16)})).trace()
    first, second = trace.phase("frame").ops()
    assert (first.type, dict(first.vec)) == (
        "DynamicQuantizeLinear",
        {"reduce": (128,), "mul": (64,), "convert": (64,)},
    )
    assert (second.type, dict(second.vec)) == ("MatMul+DequantizeLinear", {"convert": (16 + 64,), "mul": (64,)})
    assert trace.header.report["cpu_fallbacks"] == {}


def test_the_usual_dynamic_quantisation(whole: Whole) -> None:
    """Bytes by their own range, a product of integers, a cast, and the product of the scales: 64 x 16 MACs of bytes,
    16 casts and 16 + 1 products after it."""
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", "zw"], ["i"]),
        node("Cast", ["i"], ["f"], to=F),
        node("Mul", ["s", "sw"], ["t"]),
        node("Mul", ["f", "t"], ["y"]),
    ]
    stored = {"w": ints(64, 16), "zw": np.asarray(np.int8(0)), "sw": np.asarray(np.float32(0.1))}
    trace = whole(model(nodes, {"x": (F, [1, 64])}, ["y"], stored)).trace(strict=True)
    ops = {op.nodes[0]: op for op in trace.phase("frame").ops()}
    assert trace.bind("frame").macs == 1024
    assert roles(trace) == {"linear": 1024}
    assert (dict(ops["f"].vec), dict(ops["y"].vec), dict(ops["t"].vec)) == (
        {"convert": (16,)},
        {"mul": (16,)},
        {"mul": (1,)},
    )


# --- quantised ops (IN-47)


def _small(**more: Any) -> dict[str, Any]:
    stored = {"s": np.float32(0.1), "z": np.uint8(128), "zw": np.int8(0), **more}
    return {k: np.asarray(v) for k, v in stored.items()}


def test_a_quantised_convolution(whole: Whole) -> None:
    """27 x 8 x 900 MACs; 216 B of weights and 8 biases of 4 B; bytes in and out."""
    made = node("QLinearConv", ["x", "s", "z", "w", "s", "zw", "s", "z", "b"], ["y"])
    stored = _small(w=ints(8, 3, 3, 3), b=np.zeros(8, np.int32))
    trace = whole(model([made], {"x": (U8, [1, 3, 32, 32])}, ["y"], stored)).trace()
    assert trace.bind("frame").macs == 194_400
    assert roles(trace) == {"conv": 216, "bias": 32}
    assert (frame(trace)["io", False], frame(trace)["io", True]) == (3072, 7200)


def test_a_product_of_integers(whole: Whole) -> None:
    """32 x 32 MACs at one cycle a row; 32-bit sums come out."""
    proto = model([node("MatMulInteger", ["x", "w"], ["y"])], {"x": (U8, [1, 32])}, ["y"], {"w": ints(32, 32)})
    trace = whole(proto).trace()
    assert (trace.bind("frame").macs, trace.resident_bytes, frame(trace)["io", True]) == (1024, 1024, 128)


def test_a_convolution_of_integers(whole: Whole) -> None:
    proto = model([node("ConvInteger", ["x", "w"], ["y"])], {"x": (U8, [1, 3, 8, 8])}, ["y"], {"w": ints(4, 3, 3, 3)})
    trace = whole(proto).trace()
    assert (trace.bind("frame").macs, frame(trace)["io", True]) == (27 * 4 * 36, 4 * 36 * 4)


def test_a_quantised_product(whole: Whole) -> None:
    """5 x 8 x 3 MACs; 24 B of weights, 3 fp32 scales by column."""
    made = node("QLinearMatMul", ["x", "s", "z", "w", "sw", "zw", "s", "z"], ["y"])
    stored = _small(w=ints(8, 3), sw=floats(3))
    trace = whole(model([made], {"x": (U8, [5, 8])}, ["y"], stored)).trace()
    assert (trace.bind("frame").macs, roles(trace)) == (120, {"linear": 24, "scale": 12})
    assert (frame(trace)["io", False], frame(trace)["io", True]) == (40, 15)


@pytest.mark.parametrize("kind", ["MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm"])
def test_contributed_quantised_products(whole: Whole, kind: str) -> None:
    """5 x 8 x 3 MACs of bytes, at the rate of bytes (5 rows take less than a tile takes to load)."""
    names = {
        "MatMulIntegerToFloat": ["x", "w", "s", "s", "z", "zw", "b"],
        "DynamicQuantizeMatMul": ["x", "w", "s", "zw", "b"],
        "QGemm": ["x", "s", "z", "w", "s", "zw", "b", "s", "z"],
    }[kind]
    bias = np.zeros(3, np.int32 if kind == "QGemm" else np.float32)
    dtype = F if kind == "DynamicQuantizeMatMul" else U8
    made = node(kind, names, ["y"], domain="com.microsoft")
    proto = model([made], {"x": (dtype, [5, 8])}, ["y"], _small(w=ints(8, 3), b=bias))
    trace = whole(proto).trace()
    assert (trace.bind("frame").macs, roles(trace)) == (120, {"linear": 24, "bias": 12})
    (draft,) = whole(proto).analysis().drafts
    assert draft.cost.gemms[0].narrow


# --- the real files

FILES: dict[str, tuple[int, int]] = {
    "IN-30_attn": (8192, 0),
    "IN-30_rms": (0, 256),
    "IN-32": (8192, 256),
    "IN-44_c1": (37_632, 1536),
    "IN-44_dw": (64_800, 288),
    "IN-44_c3": (46_656, 864),
    "IN-44_mp": (0, 0),
    "IN-45_ok": (194_400, 216 + 32),
    "IN-46": (1024, 4096),
    "IN-47_qc": (194_400, 216 + 32),
    "IN-47_mi": (1024, 1024),
}


@pytest.mark.parametrize("case", FILES)
def test_the_real_file(export: Callable[[str], Any], core: CoreSpec, case: str) -> None:
    """(MACs, resident bytes); nothing on the CPU."""
    trace = compile_model(export(f"cases/{case}.onnx"), core, Options(strict=True))
    assert (trace.bind("frame").macs, trace.resident_bytes) == FILES[case]
    assert trace.header.report["cpu_fallbacks"] == {}


def test_the_real_file_with_a_wrong_axis(export: Callable[[str], Any], core: CoreSpec) -> None:
    with pytest.raises(CompileError, match="DequantizeLinear 'dqw'"):
        compile_model(export("cases/IN-45_badaxis.onnx"), core)
