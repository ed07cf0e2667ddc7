"""Nodes put together at random: each is costed or refused in one line; none crashes or costs less than nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from bpusim.compiler.rules import RULES
from bpusim.errors import CompileError

T = TensorProto
Whole = Callable[[onnx.ModelProto], Any]
STANDARD = {s.name: s for s in onnx.defs.get_all_schemas() if s.domain == ""}
CONTRIBUTED = ("num_heads", "kv_num_heads", "k", "K", "N", "groups", "block_size", "hidden_size")


def _attributes(draw: random.Random, name: str) -> dict[str, Any]:
    if name not in STANDARD:
        return {k: draw.randint(-1, 4) for k in CONTRIBUTED if draw.random() < 0.7}
    made: dict[str, Any] = {}
    for key, what in STANDARD[name].attributes.items():
        if not what.required and draw.random() < 0.6:
            continue
        values: dict[str, Any] = {
            "INT": draw.randint(-2, 4),
            "INTS": [draw.randint(-1, 3) for _ in range(draw.randint(1, 4))],
            "FLOAT": 1.5,
            "STRING": draw.choice(["x", "linear", "ij,jk->ik"]),
        }
        if what.type.name in values:
            made[key] = values[what.type.name]
    return made


def _node(draw: random.Random, name: str) -> onnx.ModelProto:
    rank = draw.randint(0, 4)
    common = [draw.choice([0, 1, 2, 3, 4, 8]) for _ in range(rank)]
    names, inputs, stored = [], [], []
    for i in range(draw.randint(0, 6)):
        same = draw.random() < 0.6
        dims = common if same else [draw.choice([1, 2, 3, 4]) for _ in range(draw.randint(0, 4))]
        dtype = draw.choice([T.FLOAT, T.FLOAT, T.INT8, T.UINT8, T.INT64])
        kind = draw.random()
        names.append("" if kind < 0.1 else f"i{i}")
        if 0.1 <= kind < 0.5:
            inputs.append(helper.make_tensor_value_info(f"i{i}", dtype, dims))
        elif 0.5 <= kind < 0.75:
            stored.append(T(name=f"i{i}", dims=dims, data_type=T.FLOAT, data_location=T.EXTERNAL))
        elif kind >= 0.75:
            numbers = [draw.randint(-1, 4) for _ in range(draw.randint(0, 4))]
            stored.append(helper.make_tensor(f"i{i}", T.INT64, [len(numbers)], numbers))
    outputs = [f"o{j}" for j in range(draw.randint(1, 3))]
    domain = "" if name in STANDARD else "com.microsoft"
    made = helper.make_node(name, names, outputs, domain=domain, **_attributes(draw, name))
    graph = helper.make_graph([made], "g", inputs, [helper.make_empty_tensor_value_info(o) for o in outputs], stored)
    opset = draw.choice([11, 13, 18, 23])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    )


def test_no_node_crashes_or_costs_less_than_nothing(whole: Whole) -> None:
    draw = random.Random(7)
    costed = 0
    for name in [n for n in RULES for _ in range(12)]:
        model = whole(_node(draw, name))
        try:
            trace = model.trace()
        except CompileError:
            continue
        costed += 1
        assert min(trace.bind("frame").macs, *trace.bind("frame").traffic().values(), 0) == 0, name
        for op in trace.phase("frame").ops():
            assert all(n >= 0 for coefs in (*op.vec.values(), op.cycles) for n in coefs), name
    assert costed > 500


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "message"),
    [
        ("RandomNormal", {}, {"shape": [2, -3]}, r"its result 'y' would be \[2, -3\]"),
        ("LRN", {"x": [1, 4, 2]}, {"size": -1}, "its attributes do not fit the sizes of its inputs"),
        ("GridSample", {"x": [3], "g": [3]}, {}, "its attributes do not fit the sizes of its inputs"),
    ],
)
def test_less_than_nothing_is_an_error(
    hand: Callable[..., Any], kind: str, inputs: dict[str, list[int]], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(CompileError, match=message):
        hand([helper.make_node(kind, list(inputs), ["y"], **attrs)], inputs, ["y"]).trace()
