"""Shapes of every family of ops against onnx's own shape inference, on models of one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

node = helper.make_node
F, I64, U8, I8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8
Whole = Callable[[onnx.ModelProto], Any]


def one(
    kind: str,
    inputs: dict[str, Any],
    outputs: int = 1,
    *,
    ints: dict[str, list[int]] | None = None,
    floats: dict[str, list[float]] | None = None,
    scalars: tuple[str, ...] = (),
    order: list[str] | None = None,
    opset: int = 22,
    domain: str = "",
    **attrs: Any,
) -> onnx.ModelProto:
    """A model of one node. ``inputs``: dims, or (type, dims), by name; ``order``: all inputs, ``""`` for none."""
    made = [f"y{i}" for i in range(outputs)]
    names = order or [*inputs, *(ints or {}), *(floats or {})]
    declared = []
    for name, what in inputs.items():
        dtype, dims = what if isinstance(what, tuple) else (F, what)
        declared.append(helper.make_tensor_value_info(name, dtype, dims))
    graph = helper.make_graph(
        [node(kind, names, made, domain=domain, **attrs)],
        "one",
        declared,
        [helper.make_empty_tensor_value_info(o) for o in made],
        [helper.make_tensor(n, I64, [] if n in scalars else [len(v)], v) for n, v in (ints or {}).items()]
        + [helper.make_tensor(n, F, [] if n in scalars else [len(v)], v) for n, v in (floats or {}).items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    )


def theirs(model: onnx.ModelProto) -> list[list[int]]:
    """Dims of the outputs as onnx infers them."""
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    return [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in inferred.graph.output]


CASES: dict[str, onnx.ModelProto] = {
    "conv transposed": one("ConvTranspose", {"x": [1, 4, 7, 9], "w": [4, 6, 3, 3]}, strides=[2, 3], pads=[1, 0, 1, 2]),
    "conv transposed, grouped, padded out": one(
        "ConvTranspose", {"x": [2, 4, 7], "w": [4, 3, 5]}, group=2, strides=[2], output_padding=[1], dilations=[2]
    ),
    "conv transposed to a shape": one(
        "ConvTranspose", {"x": [1, 4, 7, 9], "w": [4, 6, 3, 3]}, strides=[2, 2], output_shape=[15, 18]
    ),
    "conv transposed, same": one(
        "ConvTranspose", {"x": [1, 4, 7, 9], "w": [4, 6, 3, 3]}, strides=[2, 3], auto_pad="SAME_UPPER"
    ),
    "conv deformable": one(
        "DeformConv", {"x": [1, 4, 9, 9], "w": [6, 4, 3, 3], "o": [1, 18, 7, 7]}, kernel_shape=[3, 3]
    ),
    "conv of integers": one("ConvInteger", {"x": (U8, [1, 3, 9, 9]), "w": (U8, [4, 3, 3, 3])}),
    "conv quantised": one(
        "QLinearConv",
        {
            "x": (U8, [1, 3, 9, 9]),
            "xs": [],
            "xz": (U8, []),
            "w": (U8, [4, 3, 3, 3]),
            "ws": [],
            "wz": (U8, []),
            "ys": [],
            "yz": (U8, []),
        },
        pads=[1, 1, 1, 1],
        strides=[2, 2],
    ),
    "pool by norm": one("LpPool", {"x": [1, 3, 15, 16]}, kernel_shape=[3, 2], strides=[2, 2]),
    "pool by norm, global": one("GlobalLpPool", {"x": [1, 3, 15, 16]}),
    "pool in 3-D with places": one("MaxPool", {"x": [1, 3, 8, 9, 10]}, 2, kernel_shape=[2, 3, 2], strides=[2, 1, 3]),
    "unpool": one("MaxUnpool", {"x": [1, 2, 4, 5], "i": (I64, [1, 2, 4, 5])}, kernel_shape=[2, 2], strides=[2, 2]),
    "regions": one(
        "RoiAlign",
        {"x": [2, 8, 16, 20], "r": [5, 4], "b": (I64, [5])},
        output_height=3,
        output_width=4,
        sampling_ratio=2,
    ),
    "regions by maximum": one("MaxRoiPool", {"x": [2, 8, 16, 20], "r": [5, 5]}, pooled_shape=[3, 4]),
    "product of a vector": one("MatMul", {"a": [8], "b": [2, 8, 3]}),
    "product by a vector": one("MatMul", {"a": [2, 5, 8], "b": [8]}),
    "product of vectors": one("MatMul", {"a": [8], "b": [8]}),
    "product of integers": one("MatMulInteger", {"a": (U8, [2, 5, 8]), "b": (I8, [8, 3])}),
    "product quantised": one(
        "QLinearMatMul",
        {
            "a": (U8, [5, 8]),
            "as": [],
            "az": (U8, []),
            "b": (U8, [8, 3]),
            "bs": [],
            "bz": (U8, []),
            "ys": [],
            "yz": (U8, []),
        },
    ),
    "einsum product": one("Einsum", {"a": [5, 8], "b": [8, 3]}, equation="ij,jk->ik"),
    "einsum attention": one("Einsum", {"q": [2, 4, 5, 8], "k": [2, 4, 7, 8]}, equation="bhid,bhjd->bhij"),
    "einsum with an ellipsis": one("Einsum", {"a": [2, 4, 5, 8], "b": [2, 1, 8, 3]}, equation="...ij,...jk->...ik"),
    "einsum implicit": one("Einsum", {"a": [5, 8], "b": [8, 3]}, equation="ij, jk"),
    "einsum of three": one("Einsum", {"a": [5, 8], "b": [8, 3], "c": [3, 4]}, equation="ij,jk,kl->il"),
    "einsum transposes": one("Einsum", {"a": [5, 8, 2]}, equation="ijk->kij"),
    "einsum sums": one("Einsum", {"a": [5, 8, 2]}, equation="ijk->j"),
    "lstm": one("LSTM", {"x": [7, 2, 5], "w": [1, 12, 5], "r": [1, 12, 3]}, 3, hidden_size=3),
    "lstm both ways": one(
        "LSTM", {"x": [7, 2, 5], "w": [2, 12, 5], "r": [2, 12, 3]}, 3, hidden_size=3, direction="bidirectional"
    ),
    "gru batch first": one("GRU", {"x": [2, 7, 5], "w": [1, 9, 5], "r": [1, 9, 3]}, 2, hidden_size=3, layout=1),
    "rnn": one("RNN", {"x": [7, 2, 5], "w": [1, 3, 5], "r": [1, 3, 3]}, 2, hidden_size=3, direction="reverse"),
    "instance norm": one("InstanceNormalization", {"x": [2, 6, 5, 5], "s": [6], "b": [6]}),
    "layer norm over two axes": one("LayerNormalization", {"x": [2, 6, 5], "s": [6, 5]}, 3, axis=1),
    "rms norm": one("RMSNormalization", {"x": [2, 6, 5], "s": [5]}, opset=23),
    "lp norm": one("LpNormalization", {"x": [2, 6, 5]}, axis=1),
    "reduce by logarithms": one("ReduceLogSumExp", {"x": [2, 6, 5]}, ints={"a": [1]}),
    "reduce by squares": one("ReduceSumSquare", {"x": [2, 6, 5]}, ints={"a": [0, -1]}, keepdims=0),
    "reduce nothing": one("ReduceSum", {"x": [2, 6, 5]}, noop_with_empty_axes=1),
    "place of the largest": one("ArgMax", {"x": [2, 6, 5]}, axis=1, keepdims=0),
    "place of the smallest": one("ArgMin", {"x": [2, 6, 5]}, axis=-1),
    "running sum": one("CumSum", {"x": [2, 6]}, ints={"a": [1]}, scalars=("a",)),
    "log softmax": one("LogSoftmax", {"x": [2, 6]}),
    "hardmax": one("Hardmax", {"x": [2, 6]}),
    "split evenly": one("Split", {"x": [2, 10]}, 2, axis=1, num_outputs=2),
    "split unevenly": one("Split", {"x": [2, 10]}, 3, axis=1, num_outputs=3),
    "split as told": one("Split", {"x": [2, 10]}, 2, ints={"s": [3, 7]}, axis=-1),
    "pad": one("Pad", {"x": [2, 10]}, ints={"p": [0, 1, 2, 3]}),
    "pad some axes": one("Pad", {"x": [2, 10]}, ints={"p": [1, 3], "a": [1]}, order=["x", "p", "", "a"]),
    "tile": one("Tile", {"x": [2, 10]}, ints={"t": [3, 2]}),
    "depth to space": one("DepthToSpace", {"x": [1, 12, 3, 4]}, blocksize=2),
    "space to depth": one("SpaceToDepth", {"x": [1, 3, 6, 4]}, blocksize=2),
    "reversed": one("ReverseSequence", {"x": [4, 2, 3], "n": (I64, [2])}),
    "triangle": one("Trilu", {"x": [4, 5]}),
    "crop or pad": one("CenterCropPad", {"x": [4, 5, 6]}, ints={"s": [3, 9]}, axes=[0, 2]),
    "gather elements": one("GatherElements", {"x": [4, 5], "i": (I64, [2, 5])}, axis=0),
    "gather by tuples": one("GatherND", {"x": [4, 5, 6], "i": (I64, [3, 2])}),
    "gather by tuples in batches": one("GatherND", {"x": [4, 5, 6], "i": (I64, [4, 3, 1])}, batch_dims=1),
    "scatter elements": one("ScatterElements", {"x": [4, 5], "i": (I64, [2, 5]), "u": [2, 5]}, reduction="add"),
    "scatter by tuples": one("ScatterND", {"x": [4, 5], "i": (I64, [3, 1]), "u": [3, 5]}),
    "cache update": one("TensorScatter", {"x": [1, 2, 9, 4], "u": [1, 2, 3, 4]}, opset=24),
    "one hot": one("OneHot", {"x": (I64, [4, 5])}, ints={"d": [7]}, floats={"v": [0.0, 1.0]}, scalars=("d",), axis=1),
    "eye": one("EyeLike", {"x": [4, 5]}),
    "columns to image": one("Col2Im", {"x": [1, 12, 20]}, ints={"i": [5, 6], "b": [2, 2]}),
    "resize to sizes": one(
        "Resize", {"x": [1, 3, 8, 8]}, ints={"s": [1, 3, 12, 20]}, order=["x", "", "", "s"], mode="linear"
    ),
    "resize by scales": one(
        "Resize", {"x": [1, 3, 8, 9]}, floats={"s": [1.0, 1.0, 2.0, 1.5]}, order=["x", "", "s"], mode="cubic"
    ),
    "resize of opset 10": one("Resize", {"x": [1, 3, 8, 9]}, floats={"s": [1.0, 1.0, 2.0, 0.5]}, opset=10),
    "resize some axes": one("Resize", {"x": [1, 3, 8, 9]}, floats={"s": [2.0, 1.5]}, order=["x", "", "s"], axes=[2, 3]),
    "resize within": one(
        "Resize",
        {"x": [1, 3, 8, 10]},
        ints={"s": [4, 20]},
        order=["x", "", "", "s"],
        axes=[2, 3],
        keep_aspect_ratio_policy="not_larger",
    ),
    "upsample": one("Upsample", {"x": [1, 3, 8, 9]}, floats={"s": [1.0, 1.0, 2.0, 3.0]}, opset=9),
    "upsample by attribute": one("Upsample", {"x": [1, 3, 8, 9]}, opset=7, scales=[1.0, 1.0, 2.0, 3.0]),
    "affine grid": one("AffineGrid", {"t": [2, 2, 3]}, ints={"s": [2, 3, 5, 6]}),
    "affine grid in 3-D": one("AffineGrid", {"t": [2, 3, 4]}, ints={"s": [2, 3, 4, 5, 6]}),
    "sample a grid": one("GridSample", {"x": [2, 3, 8, 9], "g": [2, 5, 6, 2]}),
    "quantise": one("QuantizeLinear", {"x": [2, 3], "s": [], "z": (I8, [])}),
    "dequantise": one("DequantizeLinear", {"x": (I8, [2, 3]), "s": [3], "z": (I8, [3])}),
    "quantise by range": one("DynamicQuantizeLinear", {"x": [2, 3]}, 3),
    "dft": one("DFT", {"x": [2, 8, 1]}, ints={"a": [1]}, order=["x", "", "a"], scalars=("a",), onesided=1),
    "dft of opset 17": one("DFT", {"x": [2, 10, 2]}, opset=17, axis=1),
    "stft": one(
        "STFT",
        {"x": [2, 64, 1]},
        ints={"h": [8], "n": [16]},
        order=["x", "h", "", "n"],
        scalars=("h", "n"),
        onesided=1,
    ),
    "window": one("HannWindow", {}, ints={"n": [16]}, scalars=("n",)),
    "mel": one(
        "MelWeightMatrix",
        {},
        ints={"m": [8], "n": [16], "r": [8000]},
        floats={"a": [0.0], "b": [4000.0]},
        scalars=("m", "n", "r", "a", "b"),
    ),
    "attention": one("Attention", {"q": [1, 8, 3, 16], "k": [1, 2, 9, 16], "v": [1, 2, 9, 12]}, opset=23),
    "attention of rows": one(
        "Attention", {"q": [1, 3, 128], "k": [1, 9, 32], "v": [1, 9, 32]}, opset=23, q_num_heads=8, kv_num_heads=2
    ),
    "attention with a past": one(
        "Attention",
        {
            "q": [1, 8, 3, 16],
            "k": [1, 2, 3, 16],
            "v": [1, 2, 3, 16],
            "pk": [1, 2, 9, 16],
            "pv": [1, 2, 9, 16],
        },
        3,
        order=["q", "k", "v", "", "pk", "pv"],
        opset=23,
    ),
    "rotation": one("RotaryEmbedding", {"x": [1, 4, 3, 8], "c": [1, 3, 4], "s": [1, 3, 4]}, opset=23),
    "swiglu": one("SwiGLU", {"a": [2, 3], "b": [2, 3]}, opset=28),
    "causal conv": one(
        "CausalConvWithState", {"x": [1, 6, 9], "w": [6, 1, 4], "p": [1, 6, 3]}, 2, order=["x", "w", "", "p"], opset=27
    ),
    "linear attention": one(
        "LinearAttention",
        {"q": [1, 5, 32], "k": [1, 5, 16], "v": [1, 5, 12], "p": [1, 2, 8, 6]},
        2,
        opset=27,
        q_num_heads=4,
        kv_num_heads=2,
        update_rule="linear",
    ),
    "largest": one("TopK", {"x": [2, 10]}, 2, ints={"k": [3]}),
    "random": one("RandomNormalLike", {"x": [2, 10]}),
    "random of a shape": one("RandomUniform", {}, shape=[2, 3]),
    "bernoulli": one("Bernoulli", {"x": [2, 10]}),
    "multinomial": one("Multinomial", {"x": [2, 10]}, sample_size=4),
    "determinant": one("Det", {"x": [2, 3, 3]}),
    "cast like": one("CastLike", {"x": [2, 3], "t": (I8, [1])}),
    "bit cast": one("BitCast", {"x": [2, 3]}, opset=26, to=TensorProto.INT32),
    "compare": one("LessOrEqual", {"a": [2, 1], "b": [3]}),
    "modulo": one("Mod", {"a": [2, 1], "b": [3]}, fmod=1),
}


@pytest.mark.parametrize("case", CASES)
def test_shapes_are_what_onnx_infers(whole: Whole, case: str) -> None:
    proto = CASES[case]
    model = whole(proto)
    assert [model.dims(o.name) for o in proto.graph.output] == theirs(proto)


@pytest.mark.parametrize("case", CASES)
def test_no_op_is_free(whole: Whole, case: str) -> None:
    """Every one of these does something (array or vector work), but for a view and two tables that are worked out when
    the model is prepared, since all their inputs are stored."""
    drafts = whole(CASES[case]).analysis().drafts
    assert any(d.cost.gemms or d.cost.vec for d in drafts) != (case in ("bit cast", "window", "mel"))


WORK: dict[str, dict[str, int]] = {
    "pool by norm": {"mul": 168 * 6, "reduce": 168 * 6, "exp": 168},  # 3 x 7 x 8 results of 3 x 2
    "pool by norm, global": {"mul": 720, "reduce": 720, "exp": 3},
    "pool in 3-D with places": {"reduce": 3 * 4 * 7 * 3 * 12},  # windows of 2 x 3 x 2
    "unpool": {"convert": 160 + 40},  # 8 x 10 places of 2 channels cleared, 4 x 5 of them set
    "regions": {"mul": 480 * 4 * 4, "add": 480 * 4 * 3, "reduce": 480 * 4},  # 5 x 8 x 3 x 4 bins of 2 x 2 points
    "regions by maximum": {"reduce": 480 * 6 * 5},  # a bin of 16/3 x 20/4 places, rounded up
    "lp norm": {"mul": 60, "reduce": 60, "div": 60, "exp": 10},
    "place of the largest": {"reduce": 60, "add": 60},
    "running sum": {"reduce": 12},
    "log softmax": {"add": 24, "exp": 12 + 2, "reduce": 24},
    "hardmax": {"add": 12, "reduce": 12},
    "split unevenly": {"convert": 20},
    "pad": {"convert": 4 * 14},
    "tile": {"convert": 6 * 20},
    "depth to space": {"convert": 144},
    "space to depth": {"convert": 72},
    "reversed": {"convert": 24},
    "triangle": {"convert": 20},
    "crop or pad": {"convert": 3 * 5 * 9},
    "gather elements": {"convert": 10},
    "gather by tuples": {"convert": 18},
    "scatter elements": {"convert": 20 + 10, "reduce": 10},
    "one hot": {"add": 140},
    "eye": {"convert": 20},
    "columns to image": {"add": 240},
    "affine grid": {"mul": 120 * 2, "add": 120 * 2},  # 2 x 5 x 6 places of 2 coordinates
    "sample a grid": {"mul": 60 * 2 + 180 * 4, "add": 60 * 4 + 180 * 3},  # places into pixels, then 4 neighbours
    "swiglu": {"exp": 6, "add": 6, "div": 6, "mul": 18},
    "bernoulli": {"mul": 40, "add": 40, "convert": 40},  # the CPU converts what comes in and goes out
    "multinomial": {"exp": 20, "add": 20 + 80, "mul": 16, "convert": 20 + 16},  # 8 samples of 4 B: two elements each
    "determinant": {"mul": 18, "add": 18, "div": 6, "convert": 18 + 2},
}


@pytest.mark.parametrize("case", WORK)
def test_work_by_hand(whole: Whole, case: str) -> None:
    """Vector operations by class, from the shapes in ``CASES``."""
    total: dict[str, int] = {}
    for op in whole(CASES[case]).trace().phase("frame").ops():
        for kind, coefs in op.vec.items():
            total[kind] = total.get(kind, 0) + coefs[0]
    assert total == WORK[case]
