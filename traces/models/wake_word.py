"""Builds the wake-word net of the shipped scenarios: DS-CNN-L, a depthwise-separable net for keyword spotting.

Layers and sizes are those of Zhang, Suda, Lai, Chandra: "Hello Edge: Keyword Spotting on Microcontrollers" (2017),
table 6: 49 frames of 10 coefficients, a convolution of 276 filters of 10 x 4 at stride (2, 1), five depthwise-separable
layers of 276 (the first at stride 2 x 2), average pooling, 12 classes. Weights are zeros: only shapes count.

    python traces/models/wake_word.py wake_word.onnx
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FILTERS = 276


def main(path: str) -> None:
    """Write the net to ``path``."""
    nodes, weights = [], []

    def conv(
        name: str, x: str, cin: int, cout: int, kernel: tuple[int, int], stride: tuple[int, int], group: int = 1
    ) -> str:
        weights.append(numpy_helper.from_array(np.zeros((cout, cin // group, *kernel), np.float32), f"{name}.w"))
        sizes = {"kernel_shape": kernel, "strides": stride, "group": group, "auto_pad": "SAME_UPPER"}
        nodes.append(helper.make_node("Conv", [x, f"{name}.w"], [f"{name}.y"], name, **sizes))
        nodes.append(helper.make_node("Relu", [f"{name}.y"], [f"{name}.out"], f"{name}.relu"))
        return f"{name}.out"

    x = conv("conv", "mfcc", 1, FILTERS, (10, 4), (2, 1))
    for k in range(5):
        x = conv(f"ds{k}.depthwise", x, FILTERS, FILTERS, (3, 3), (2, 2) if not k else (1, 1), FILTERS)
        x = conv(f"ds{k}.pointwise", x, FILTERS, FILTERS, (1, 1), (1, 1))
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"], "pool"))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"))
    weights.append(numpy_helper.from_array(np.zeros((12, FILTERS), np.float32), "fc.w"))
    nodes.append(helper.make_node("Gemm", ["flat", "fc.w"], ["classes"], "fc", transB=1))
    graph = helper.make_graph(
        nodes, "ds_cnn_l",
        [helper.make_tensor_value_info("mfcc", TensorProto.FLOAT, [1, 1, 49, 10])],
        [helper.make_tensor_value_info("classes", TensorProto.FLOAT, [1, 12])],
        weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)


if __name__ == "__main__":
    main(sys.argv[1])
