"""Behaviour of compilers that users of real boards report (shared/cases, BH rows): ratios, signs, laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from bpusim import simulate
from bpusim.cli.main import main
from bpusim.compiler import Options, compile_graph, load_graph
from bpusim.compiler.crossings import Board, estimate_lines, estimates
from bpusim.errors import CompileError
from bpusim.hardware import MachineSpec
from bpusim.metrics import FrameStats
from bpusim.scenario import load_machine
from bpusim.system.roof import roof_of
from bpusim.trace import Trace, load_trace, save_trace

node = helper.make_node
SIMD = "{add: 1, mul: 1, exp: 1, div: 1, reduce: 1, convert: 1, mac: 1}"
"""CPU kernels of one cycle an element, where real ones do a vector at a time."""


def model(
    nodes: list[onnx.NodeProto],
    dims: list[int],
    output: str,
    weights: dict[str, list[int]] | None = None,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model of one input ``x``; weights have no data, ``p`` is a pad of one element on each side."""
    made = helper.make_empty_tensor_value_info(output)
    graph = helper.make_graph(nodes, "case", [helper.make_tensor_value_info("x", dtype, dims)], [made])
    graph.initializer.append(helper.make_tensor("p", TensorProto.INT64, [4], [0, 1, 0, 1]))
    for name, shape in (weights or {}).items():
        location = TensorProto.EXTERNAL
        graph.initializer.append(
            TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT, data_location=location)
        )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def compiled(proto: onnx.ModelProto, *sets: str, **options: Any) -> tuple[Trace, MachineSpec, dict[str, Any]]:
    """(trace, machine, estimates of its only phase)."""
    machine = load_machine("bpu80", sets)
    trace = compile_graph(load_graph(proto, "case.onnx", ""), machine.cores, Options(**options))
    return trace, machine, estimates(trace, Board(machine.host, roof_of(machine)))["frame"]


def toolchain(folder: Path, lines: str) -> str:
    """``--set`` of toolchain 1.0 with these lines."""
    path = folder / "mine.yaml"
    path.write_text(f'about: of a test\nextends: "1.0"\n{lines}\n', encoding="utf-8")
    return f"machine.cores.toolchain={path}"


# BH-18: a net of two small layers -------------------------------------------------------------------------------------

DENSE = model(
    [
        node("Gemm", ["x", "a", "ab"], ["h"], name="first"),
        node("Relu", ["h"], ["r"], name="act"),
        node("Gemm", ["r", "b", "bb"], ["y"], name="second"),
    ],
    [1, 784],
    "y",
    {"a": [784, 128], "ab": [128], "b": [128, 10], "bb": [10]},
)
DENSE_CYCLES = 784 * 128 + 128 * 10 + 3 * 128 + 2 * 10
"""MACs, and conversions, biases and the activation, at a cycle each."""
FAST_CPU = (
    f"machine.host.fallback_cycles={SIMD}",
    "machine.host.fallback_op=0 s",
    f"machine.host.clock={DENSE_CYCLES * 1000 // 14} kHz",  # 14 us: several lanes and cores stand for the clock
)
INT8: dict[str, Any] = {"quant": "int8", "activation": "int8"}


def test_bh18_a_tiny_net_is_faster_on_the_cpu(tmp_path: Path) -> None:
    """Reported: 37.5 us against 14 us a call. Of the core's time most is dispatch, and the report says so."""
    path = tmp_path / "dense.onnx"
    onnx.save(DENSE, path)
    sets = [w for s in (*FAST_CPU, "machine.host.dispatch=14.246 us") for w in ("--set", s)]
    out = tmp_path / "dense.trace"
    words = ["compile", str(path), "--quant", "int8", "--activations", "int8", *sets, "-o", str(out)]
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 0, told.output
    assert (
        "  frame: about 37.5 us with the core, 14 us on the CPU alone: the CPU is faster; 78% of 37.5 us is dispatch"
        in told.output.splitlines()
    )
    row = load_trace(out).header.report["estimates"]["frame"]
    assert row["cpu_us"] == pytest.approx(14.0, abs=0.003)  # an op of the second layer waits for its weights
    assert row["core_us"] / row["cpu_us"] == pytest.approx(37.5 / 14, rel=0.01)


def test_bh18_break_even_follows_from_the_dispatch() -> None:
    """A microsecond of dispatch is a microsecond a call: below break-even the core is faster, above it the CPU."""
    quick = (*FAST_CPU, "machine.host.interrupt=2 us")
    free = compiled(DENSE, *quick, "machine.host.dispatch=0 s", **INT8)[2]
    even = free["cpu_us"] - free["core_us"]
    assert 0 < even < 14
    for dispatch, faster in ((even - 1, False), (even + 1, True)):
        trace, machine, row = compiled(DENSE, *quick, f"machine.host.dispatch={dispatch:.3f} us", **INT8)
        assert row["core_us"] == pytest.approx(free["core_us"] + dispatch, abs=0.002)
        assert (row["cpu_us"] < row["core_us"]) == faster
        told = estimate_lines(estimates(trace, Board(machine.host, roof_of(machine))))
        assert ("the CPU is faster" in told[0]) == faster


# BH-20: a chain with fallbacks ----------------------------------------------------------------------------------------


def chain(length: int, pads: int) -> onnx.ModelProto:
    """Relus, with pads spread evenly among them."""
    every = length // (pads + 1)
    at = {every * (k + 1) for k in range(pads)}
    names = ["x", *(f"t{i}" for i in range(length))]
    nodes = [
        node("Pad", [names[i], "p"], [names[i + 1]], name=f"pad{i}")
        if i in at
        else node("Relu", [names[i]], [names[i + 1]], name=f"relu{i}")
        for i in range(length)
    ]
    return model(nodes, [1, 1000], names[-1])


def test_bh20_each_crossing_costs_a_call_and_the_op(tmp_path: Path) -> None:
    """226 nodes, 14 of them on the CPU: 15 pieces, and 14 times a call of 55 us (reported: 50 to 100) and the op."""
    proto = chain(226, 14)
    whole = compiled(proto)[2]
    _, machine, cut = compiled(proto, toolchain(tmp_path, "without: [Pad]"))
    assert (whole["crossings"], whole["pieces"]) == (0, 1)
    assert (cut["crossings"], cut["pieces"], cut["kinds"]["Pad"]["count"]) == (14, 15, 14)
    assert cut["call_us"] == 55 == (machine.host.dispatch + machine.host.interrupt) / 1e6
    assert cut["parts_us"]["dispatch"] - whole["parts_us"]["dispatch"] == pytest.approx(14 * 55, abs=0.01)
    # Pad k reads 1000 + 2k elements of 2 B and writes two more; the CPU converts both ways and copies: 12 cycles each.
    read = [1000 + 2 * k for k in range(14)]
    assert cut["bytes"] == sum(2 * n + 2 * (n + 2) for n in read)
    work = sum(12 * (n + n + 2) + 12 * (n + 2) for n in read) / 1500
    assert cut["fallback_us"]["entry"] == 14 * 50
    assert cut["fallback_us"]["work"] == pytest.approx(work, abs=0.01)
    assert cut["fallback_us"]["cache"] == pytest.approx(cut["bytes"] * 50e-6, abs=0.001)
    assert cut["core_us"] == pytest.approx(sum(cut["parts_us"].values()), abs=0.01)


def test_bh20_a_piece_less_saves_a_tenth(tmp_path: Path) -> None:
    """4 -> 3 pieces, reported 3.798 -> 3.403 ms (11.6 %): with ops of 12 us on the core (reported: 10 to 14) ours saves
    less where a pool keeps the tensors that cross, and more where each is allocated."""
    sets = toolchain(tmp_path, "without: [Pad]"), "machine.cores.op_overhead=12 us"
    four, three = (compiled(chain(226, pads), *sets)[2] for pads in (3, 2))
    assert (four["pieces"], three["pieces"]) == (4, 3)
    one_pad = four["parts_us"]["fallback"] / 3
    assert four["core_us"] - three["core_us"] == pytest.approx(55 + one_pad - 12, rel=0.01)
    with_pool = four["core_us"] / three["core_us"]
    without = (four["core_us"] + four["allocate_us"]) / (three["core_us"] + three["allocate_us"])
    assert with_pool < 3.798 / 3.403 < without


def test_bh20_tiny_ops_may_be_faster_on_the_cpu(tmp_path: Path) -> None:
    """Ops that take less than 1 us on the CPU and 12 us on the core: pieces of them are advised to go there."""
    sets = toolchain(tmp_path, "without: [Pad]"), "machine.cores.op_overhead=12 us"
    kernels = (f"machine.host.fallback_cycles={SIMD}", "machine.host.fallback_op=0.1 us")
    slow, quick = compiled(chain(226, 14), *sets)[2], compiled(chain(226, 14), *sets, *kernels)[2]
    assert "faster_pieces" not in slow
    assert quick["faster_pieces"]["count"] == 15
    assert quick["faster_pieces"]["types"] == ["Relu"]
    assert quick["faster_pieces"]["saved_us"] > 212 * (12 - 1)


def test_bh20_what_the_report_says_is_what_the_simulator_takes(tmp_path: Path) -> None:
    """A frame alone, submitted synchronously: the estimate and the host's work of a frame, within 2 %."""
    trace, machine, row = compiled(chain(226, 14), toolchain(tmp_path, "without: [Pad]"))
    save_trace(trace, tmp_path / "chain.trace")
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        f"machine: {{preset: bpu80, cores: {{toolchain: '{tmp_path / 'mine.yaml'}'}}}}\n"
        "host: {submit: sync}\nmodels: {net: {trace: chain.trace, cores: bpu0}}\n"
        "streams: {cam: {frames: net, rate: 10 Hz, count: 3}}\n"
    )
    stats = simulate(scenario).streams["cam"]
    assert isinstance(stats, FrameStats)
    assert stats.latency_mean_ms is not None
    assert stats.latency_mean_ms * 1000 == pytest.approx(row["core_us"] + machine.host.per_frame / 1e6, rel=0.02)


# BH-38: dequantisation of the output ----------------------------------------------------------------------------------

ELEMENTS = 2_300_000


def quantised() -> onnx.ModelProto:
    """A pool over 8-bit integers, dequantised at the end."""
    nodes = [
        node("MaxPool", ["x"], ["q"], name="pool", kernel_shape=[1, 1]),
        node("DequantizeLinear", ["q", "scale"], ["y"], name="dequantise"),
    ]
    return model(nodes, [1, 23, 1000, 100], "y", {"scale": []}, TensorProto.INT8)


def test_bh38_folding_the_output_dequantise_saves_its_elements(tmp_path: Path) -> None:
    """2.3 M elements at 2.2 ns: 5.06 ms a frame (reported: 5.15 ms, from 66 to 100 frames a second)."""
    # A product, a conversion and those of what comes in and goes out, a cycle each at 1.818 GHz: 2.2 ns an element.
    cpu = (f"machine.host.fallback_cycles={SIMD}", "machine.host.clock=1818182 kHz")
    sets = (toolchain(tmp_path, "without: [DequantizeLinear]"), *cpu)
    given = compiled(quantised(), *sets, activation="int8")[2]
    folded = compiled(quantised(), *sets, activation="int8", fold_dequantise=True)[2]
    assert (given["crossings"], folded["crossings"]) == (1, 0)
    assert given["fallback_us"]["work"] / ELEMENTS * 1000 == pytest.approx(2.2, rel=1e-3)
    assert given["fallback_us"]["work"] == pytest.approx(5060, rel=1e-3)
    saved = given["core_us"] - folded["core_us"]
    rest = given["fallback_us"]["entry"] + given["fallback_us"]["cache"]
    shared = folded["parts_us"]["dispatch"] - given["parts_us"]["dispatch"]  # the core hands the output over itself
    assert saved == pytest.approx(5060 + rest - shared, rel=0.01)
    assert pytest.approx(saved, rel=0.06) == 1e6 / 66 - 1e6 / 100


def test_bh38_the_saving_follows_the_size() -> None:
    """On the core it is vector work: a conversion and a product for each 64 elements."""
    given, folded = (compiled(quantised(), fold_dequantise=fold)[0] for fold in (False, True))
    cycles = [sum(sum(op.cycles) for op in t.phase("frame").ops()) for t in (given, folded)]
    assert cycles[0] - cycles[1] == 2 * -(-ELEMENTS // 64)
    assert folded.bind("frame").traffic()["io", True] == ELEMENTS
    assert "DequantizeLinear 'dequantise' is left to whoever reads the output" in folded.header.report["notes"][0]


def test_bh38_there_must_be_something_to_fold() -> None:
    with pytest.raises(CompileError, match="no output comes from a DequantizeLinear"):
        compiled(DENSE, fold_dequantise=True)


# BH-41: an encoder that the core hardly knows -------------------------------------------------------------------------


def encoder() -> onnx.ModelProto:
    """Ten ops of 256 x 256 layers; the four activations are 40 % of them."""
    kinds = ["MatMul", "Tanh", "MatMul", "MatMul", "Tanh", "MatMul", "Tanh", "MatMul", "Tanh", "MatMul"]
    nodes = [
        node(kind, [f"t{i}" if i else "x", *(["w"] if kind == "MatMul" else [])], [f"t{i + 1}"], name=f"{kind}{i}")
        for i, kind in enumerate(kinds)
    ]
    return model(nodes, [1, 256], "t10", {"w": [256, 256]})


def test_bh41_an_encoder_of_unsupported_ops_is_answered_with_the_reason(tmp_path: Path) -> None:
    """Reported: 8 s on the CPU, 20 s with the NPU. The report has both, the reason, and why each op falls back."""
    cpu = (f"machine.host.fallback_cycles={SIMD}", "machine.host.fallback_op=2 us")
    trace, machine, row = compiled(encoder(), toolchain(tmp_path, "without: [Tanh]"), *cpu)
    assert (row["crossings"], row["pieces"]) == (4, 5)
    assert trace.header.report["cpu_fallbacks"]["Tanh"]["why"] == "Tanh is not among the ops of toolchain mine"
    # On the CPU: ten kernels of 2 us, 6 x 65536 MACs and the conversions of six products, and four activations.
    alone = 10 * 2 + (6 * 256 * 257 + 4 * 256 * (1 + 2 + 1 + 2)) / 1500
    assert row["cpu_us"] == pytest.approx(alone, rel=0.01)
    assert row["most"] == "dispatch"
    assert row["parts_us"]["dispatch"] == pytest.approx(5 * 55, abs=0.1)
    told = estimate_lines(estimates(trace, Board(machine.host, roof_of(machine))))
    assert "the CPU is faster" in told[0]
    assert told[0].endswith("is dispatch")


def test_bh41_the_same_encoder_wholly_on_the_core_is_faster_there() -> None:
    cpu = (f"machine.host.fallback_cycles={SIMD}", "machine.host.fallback_op=2 us")
    row = compiled(encoder(), *cpu)[2]
    assert row["crossings"] == 0
    assert row["core_us"] < row["cpu_us"]
