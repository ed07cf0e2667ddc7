"""Forms that operators had in old versions: our dims against those of onnx's own shape inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from input_cases import FLOAT, floats, model, node, stored, value
from onnx import helper

from bpusim.compiler import load_graph
from bpusim.compiler.analyse import analyse
from bpusim.compiler.symbols import bind

X = [1, 4, 8, 8]
NORM = {"s": floats(4), "b": floats(4), "m": floats(4), "v": floats(4)}
CASES: list[tuple[str, int, list[int], dict[str, Any], dict[str, Any]]] = [
    ("BatchNormalization", 6, X, NORM, {"is_test": 1}),
    ("BatchNormalization", 7, X, NORM, {"spatial": 1}),
    ("Dropout", 6, X, {}, {"is_test": 1}),
    ("Dropout", 10, X, {}, {"ratio": 0.5}),
    ("Pad", 2, X, {}, {"pads": [0, 0, 1, 1, 0, 0, 1, 1]}),
    ("Slice", 1, X, {}, {"starts": [1, 2], "ends": [3, 100], "axes": [1, 2]}),
    ("Slice", 1, X, {}, {"starts": [0, 1], "ends": [1, 3]}),
    ("Clip", 6, X, {}, {"min": 0.0, "max": 6.0}),
    ("Gemm", 6, [3, 4], {"B": floats(4, 5), "C": floats(5)}, {"broadcast": 1}),
    ("Squeeze", 1, [1, 4, 1], {}, {"axes": [0]}),
    ("Unsqueeze", 1, X, {}, {"axes": [0, 5]}),
    ("ReduceMean", 1, X, {}, {"axes": [2, 3], "keepdims": 0}),
    ("TopK", 1, [3, 10], {}, {"k": 4, "axis": 1}),
    ("Cast", 6, X, {}, {"to": 7}),
    ("Softmax", 1, X, {}, {}),
    ("AveragePool", 1, X, {}, {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}),
    ("Tile", 6, X, {"r": np.array([1, 2, 3, 1])}, {}),
    ("Upsample", 7, X, {}, {"scales": [1.0, 1.0, 2.0, 2.0]}),
    ("Resize", 10, X, {"r": np.array([1, 1, 2, 2], np.float32)}, {}),
    ("Split", 2, X, {}, {"axis": 1, "split": [1, 3]}),
    ("Concat", 4, X, {"k": floats(1, 2, 8, 8)}, {"axis": 1}),
    ("Flatten", 9, X, {}, {"axis": 2}),
    ("PRelu", 6, X, {"s": floats(4)}, {}),
    ("ConvTranspose", 1, X, {"k": floats(4, 2, 3, 3)}, {"strides": [2, 2], "output_shape": [16, 16]}),
    *((op, 6, X, {"b": floats(4)}, {"broadcast": 1, "axis": 1}) for op in ("Add", "Sub", "Mul", "Div", "Pow")),
    ("Add", 6, X, {"b": floats(4, 8)}, {"broadcast": 1, "axis": -3}),
    ("Add", 6, X, {"b": np.float32(1)}, {"broadcast": 1}),
]


@pytest.mark.parametrize(("op", "opset", "x", "weights", "attrs"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_an_old_form(op: str, opset: int, x: list[int], weights: dict[str, Any], attrs: dict[str, Any]) -> None:
    outputs = ["y", "z"] if op in ("Split", "TopK") else ["y"]
    kept = [stored(n, v) for n, v in weights.items()]
    inputs = [value("x", FLOAT, x), *(value(t.name, t.data_type, list(t.dims)) for t in kept)]
    made = [helper.make_empty_tensor_value_info(o) for o in outputs]
    proto = model([node(op, ["x", *weights], outputs, **attrs)], inputs, made, kept, opset=opset, ir=3)
    inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True).graph.output
    graph = load_graph(proto, "old.onnx", "")
    ours = analyse(graph, bind(graph, {}, {}, {}), {}, frozenset(), False).values
    for told in inferred:
        assert [int(d) for d in ours[told.name].dims] == [d.dim_value for d in told.type.tensor_type.shape.dim]
