"""What tests of the front end do with model protos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from input_cases import FLOAT, floats, model, node, stored, value
from onnx import ModelProto, helper

from bpusim.compiler import load_graph
from bpusim.compiler.analyse import Analysis, analyse
from bpusim.compiler.symbols import bind
from bpusim.errors import CompileError
from bpusim.trace import Trace


def refusal(trace: Callable[..., Trace], proto: ModelProto, **options: Any) -> list[str]:
    """What is wrong with a model, and what to do, a line each."""
    with pytest.raises(CompileError) as caught:
        trace(proto, **options)
    return [f"{p.what}; {p.do}" if p.do else p.what for p in caught.value.problems]


def analysis(proto: ModelProto, **bound: int) -> Analysis:
    """What the compiler knows of a model's tensors."""
    graph = load_graph(proto, "m.onnx", "")
    return analyse(graph, bind(graph, bound, {}, {}), {}, frozenset(), False)


def macs(made: Trace) -> int:
    """Multiply-accumulates of a frame."""
    return made.bind("frame").macs


def io(x: list[Any], y: list[Any]) -> tuple[list[Any], list[Any]]:
    """An input ``x`` and an output ``y``."""
    return [value("x", FLOAT, x)], [value("y", FLOAT, y)]


W8 = stored("w", floats(8, 8))


def one_if(condition: list[Any], then: list[Any], other: list[Any], inputs: list[Any]) -> ModelProto:
    """An If ``sel`` with branches that make ``o`` of what is outside, on a condition ``c``."""
    out = [helper.make_empty_tensor_value_info("o")]
    branches = {
        "then_branch": helper.make_graph(then, "t", [], out),
        "else_branch": helper.make_graph(other, "e", [], out),
    }
    nodes = [*condition, node("If", ["c"], ["y"], name="sel", **branches)]
    return model(nodes, inputs, [helper.make_empty_tensor_value_info("y")], [W8])
