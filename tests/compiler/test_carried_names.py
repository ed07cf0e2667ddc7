"""A spilled tensor is read under the name under which it was written, also from one pass of a repeat to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, helper

from bpusim.compiler import Options, compile_graph, load_graph
from bpusim.hardware import CoreSpec
from bpusim.hardware.presets import machine_preset
from bpusim.trace import Op, Repeat, Trace, load_trace
from bpusim.trace.check import check_trace
from bpusim.trace.model import Coefs

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.trace"))
node = helper.make_node
Graph = tuple[list[NodeProto], list[str]]


def unrolled(trace: Trace, phase: str) -> Iterator[Op]:
    """Ops as they run, repeats pass by pass."""
    for item in trace.phase(phase).items:
        if isinstance(item, Repeat):
            for _ in range(item.count):
                yield from item.body
        else:
            yield item


def _check(trace: Trace) -> int:
    """Every read of a spilled tensor is of as many bytes as the last write under its name; how many reads there are."""
    reads = 0
    for phase in trace.phases:
        written: dict[str, Coefs] = {}
        for op in unrolled(trace, phase):
            for name, coefs in op.read.items():
                if name.startswith("spill:"):
                    reads += 1
                    assert written.get(name.rstrip("'")) == coefs, f"{phase}, {op.id}: {name}"
            written |= {b.rstrip("'"): c for b, c in op.write.items() if b.startswith("spill:")}
    return reads


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.stem)
def test_committed_traces_read_what_was_written(path: Path) -> None:
    _check(load_trace(path))


def _small() -> CoreSpec:
    """A core that holds next to nothing: a row of 4096 is spilled."""
    return replace(machine_preset("bpu80").cores, activations=4096)


def _compiled(nodes: list[NodeProto], outputs: list[str]) -> Trace:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4096])]
    made = [helper.make_empty_tensor_value_info(o) for o in outputs]
    proto = helper.make_model(helper.make_graph(nodes, "g", inputs, made), opset_imports=[helper.make_opsetid("", 17)])
    return compile_graph(load_graph(proto, "m.onnx", ""), _small(), Options())


def _repeats(trace: Trace) -> list[int]:
    return [i.count for i in trace.phase("frame").items if isinstance(i, Repeat)]


def test_a_stream_through_layers_has_one_name() -> None:
    """x, then four layers, each a Relu and a sum with what came in; the last is read by an Exp."""
    nodes = [node("Sigmoid", ["x"], ["s0"])]
    for k in range(4):
        nodes += [node("Relu", [f"s{k}"], [f"r{k}"]), node("Add", [f"s{k}", f"r{k}"], [f"s{k + 1}"])]
    trace = _compiled([*nodes, node("Exp", ["s4"], ["y"])], ["y"])
    assert _repeats(trace) == [4]
    assert _check(trace) > 0
    ops = {op.id: op for op in trace.phase("frame").ops()}
    assert list(ops["s0"].write) == list(ops["r0"].read) == list(ops["s1"].write) == list(ops["y"].read) == ["spill:s0"]
    assert check_trace(trace).problems == []


def test_both_of_the_two_passes_before() -> None:
    """Each sum reads the two before it: two reads of one name, the other pass's with a mark."""
    nodes = [node("Sigmoid", ["x"], ["s0"]), node("Relu", ["s0"], ["s1"])]
    nodes += [node("Add", [f"s{k}", f"s{k + 1}"], [f"s{k + 2}"]) for k in range(5)]
    trace = _compiled([*nodes, node("Exp", ["s6"], ["y"])], ["y"])
    assert max(_repeats(trace)) >= 3
    assert _check(trace) > 0
    assert any(b.endswith("'") for op in trace.phase("frame").ops() for b in op.read)
    assert check_trace(trace).problems == []


def test_what_every_pass_reads_keeps_its_name() -> None:
    """Layers that all add the same tensor, beside their own stream."""
    nodes = [node("Sigmoid", ["x"], ["m"]), node("Relu", ["m"], ["s0"])]
    for k in range(4):
        nodes += [node("Exp", [f"s{k}"], [f"r{k}"]), node("Add", ["m", f"r{k}"], [f"s{k + 1}"])]
    trace = _compiled([*nodes, node("Tanh", ["s4"], ["y"])], ["y"])
    (repeat,) = [i for i in trace.phase("frame").items if isinstance(i, Repeat)]
    assert "spill:m" in next(op for op in repeat.body if op.type == "Add").read
    assert _check(trace) > 0
    assert check_trace(trace).problems == []


@st.composite
def graphs(draw: Any) -> Graph:
    """Layers of one pattern after each other: each op reads any of the few results before it, in every layer alike."""
    pattern = draw(
        st.lists(st.tuples(st.sampled_from(["Relu", "Exp", "Add", "Mul"]), st.integers(1, 5), st.integers(1, 5)),
                 min_size=1, max_size=4)
    )  # fmt: skip
    nodes, made = [], ["x"]
    for kind, a, b in [("Sigmoid", 1, 1), *draw(st.integers(1, 5)) * pattern, ("Tanh", 1, 1)]:
        reads = [made[-min(a, len(made))]] + ([made[-min(b, len(made))]] if kind in ("Add", "Mul") else [])
        name = f"t{len(made)}"
        nodes.append(node(kind, reads, [name]))
        made.append(name)
    return nodes, draw(st.sampled_from([made[-1:], made[-2:]]))


@settings(max_examples=120, deadline=None)
@given(graphs())
def test_every_graph_of_layers_reads_what_was_written(graph: Graph) -> None:
    trace = _compiled(*graph)
    _check(trace)
    assert check_trace(trace).problems == []


def test_layers_of_a_network_that_does_not_fit(light: Callable[[str], Path], core: CoreSpec) -> None:
    """ResNet-50 of a core with little on chip: most blocks spill, and what they hand on is read as it was written."""
    from bpusim.compiler import compile_model

    options = Options(activation="int8", quant="int8", shapes={"gpu_0/data_0": (1, 3, 224, 224)})
    trace = compile_model(light("resnet50"), replace(core, activations=256 << 10), options)
    assert _check(trace) > 20
    assert check_trace(trace).problems == []
