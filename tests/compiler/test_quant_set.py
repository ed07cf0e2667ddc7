"""Overrides of a plan by class and by name: exact bytes, what the header says, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from bpusim.compiler import Options, compile_model
from bpusim.compiler.job import report_text
from bpusim.compiler.quant import Plan, Role
from bpusim.compiler.widths import WeightUse, Width
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec


def use(role: Role, rows: int = 1, k: int = 256, name: str = "w") -> WeightUse:
    return WeightUse(name, role, rows, k, 1)


def plan(name: str, *sets: str) -> Plan:
    return Plan.parse(name, sets, "int16")


@pytest.mark.parametrize(
    ("text", "k", "row"),
    [
        ("linear=int4/32", 256, 128 + 8 * 2),
        ("linear=int4/32/fp32", 256, 128 + 8 * 4),
        ("linear=int8/channel", 256, 256 + 2),
        ("linear=int8/channel/fp32", 256, 256 + 4),
        ("linear=int4/256", 256, 128 + 2),
        ("linear=int4/1024", 256, 128 + 2),
        # Each block begins at a byte: 51 blocks of 3 B with a scale, and one element in 1 B with its own.
        ("linear=int4/5", 256, 51 * (3 + 2) + (1 + 2)),
        ("linear=int4/128", 129, 64 + 2 + 1 + 2),
        ("linear=fp16", 129, 258),
        ("linear=fp32", 129, 516),
    ],
)
def test_a_row(text: str, k: int, row: int) -> None:
    assert plan("int4", text).row_bytes(use("linear", k=k)) == row


@pytest.mark.parametrize(("role", "row"), [("linear", 132), ("head", 512), ("embedding", 512), ("conv", 512)])
def test_w4a16_rounds_linear_layers_alone(role: Role, row: int) -> None:
    """256 elements: nibbles with two scales, or floats of 2 B."""
    assert plan("w4a16").row_bytes(use(role)) == row


def test_w4a16_with_8_bit_activations_is_refused() -> None:
    with pytest.raises(CompileError, match="16-bit activations, not int8"):
        Plan.parse("w4a16", (), "int8")


def test_a_convolution_has_a_scale_a_channel_unless_a_block_is_stated() -> None:
    assert plan("int8", "conv=int4").row_bytes(use("conv")) == 128 + 2
    assert plan("int8", "conv=int4/64").row_bytes(use("conv")) == 128 + 4 * 2


def test_the_last_that_matches_counts() -> None:
    both = plan("int4", "*=int4/32", "a.*=int8", "head=fp16")
    assert [
        str(both.width(u)) for u in (use("linear", name="b"), use("linear", name="a.x"), use("head", name="a.y"))
    ] == [
        "int4/32/fp16",
        "int8/128/fp16",
        "fp16",
    ]


def test_names_mean_rounded_tensors_only() -> None:
    assert plan("int4", "*=int4/32").row_bytes(use("norm")) == 512


@given(st.integers(1, 3000), st.integers(1, 300), st.sampled_from([4, 8]), st.sampled_from([2, 4]))
def test_a_row_is_the_sum_of_its_blocks(k: int, block: int, bits: int, scale: int) -> None:
    blocks = [min(block, k - at) for at in range(0, k, block)]
    assert Width(bits, block, scale).row_bytes(k) == sum(-(-n * bits // 8) + scale for n in blocks)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int8", "sets nothing"),
        ("=int8", "sets nothing"),
        ("head=int5", "unknown width 'int5'"),
        ("head=int4/0", "'0' is no block"),
        ("head=int4/-3", "'-3' is no block"),
        ("head=int4/", "not WIDTH"),
        ("head=int4/32/int8", "a scale is fp16 or fp32"),
        ("head=int4/32/fp16/2", "not WIDTH"),
        ("head=fp16/32", "floats have no blocks"),
        ("norm=int8", "norms and biases are floats"),
        ("rope=fp32", "'rope' follows the plan"),
    ],
)
def test_refused(text: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        plan("int4", text)


def test_keep_takes_no_overrides() -> None:
    with pytest.raises(CompileError, match="leaves weights as the file has them"):
        plan("keep", "head=int8")


def test_an_override_without_effect_is_refused() -> None:
    with pytest.raises(CompileError, match=r"no weight is of that class or name; did you mean 'linear'"):
        plan("int4", "linaer=int8").check([use("linear")])
    with pytest.raises(CompileError, match="later ones replace it everywhere"):
        plan("int4", "linear=int8", "*=fp16").check([use("linear")])


def test_one_tensor_has_one_width() -> None:
    with pytest.raises(CompileError, match=r"head \(int8/128/fp16\) and embedding \(int4/128/fp16\), but stored once"):
        plan("int4", "embedding=int4").check([use("head"), use("embedding")])


@pytest.fixture
def two(hand: Callable[..., object]) -> Callable[..., object]:
    nodes = [helper.make_node("MatMul", ["x", "a"], ["y"]), helper.make_node("MatMul", ["y", "b"], ["z"])]
    return lambda: hand(nodes, {"x": [1, 64]}, ["z"], weights={"a": [64, 48], "b": [48, 10]})


def test_a_compiled_model_reads_what_its_plan_says(two: Callable[..., object]) -> None:
    """``a``: 48 rows of 64 int4 in two blocks; ``b``: 10 rows of 48 int8 in one."""
    net = two()
    assert net.weight_bytes(quant="int4", quant_set=("a=int4/32", "b=int8")) == 48 * (32 + 4) + 10 * (48 + 2)  # type: ignore[attr-defined]
    trace = net.trace(quant="int4", quant_set=("a=int4/32", "b=int8"))  # type: ignore[attr-defined]
    assert trace.header.quant["linear"] == "int4/32/fp16, int8/128/fp16"
    assert trace.header.quant["set"] == "a=int4/32 b=int8"
    assert (
        "  weights by class: linear 2228 B (int4/32/fp16, int8/128/fp16)" in report_text(trace, Path("x")).splitlines()
    )


def test_one_layer_at_int8(export: Callable[[str], Path], core: CoreSpec) -> None:
    """shared/facts: the 0.5B takes 322,909,184 B without RoPE tables, and has 357,826,560 linear elements in 24 layers.

    All K are whole blocks, so the last layer at int8 adds half a byte an element, and leaves the repeat of 24.
    """
    path = export("llm/qwen2.5-0.5b-int4-genai.onnx")
    trace = compile_model(path, core, Options(quant="int4", quant_set=("model.layers.23.*=int8",)))
    more = 357_826_560 // 24 // 2
    assert sum(t.bytes * t.count for t in trace.tensors if t.role != "rope") == 322_909_184 + more
    counts = [t.count for t in trace.tensors if t.role == "linear"]
    assert counts.count(23) == 5
    assert sum(counts) == 24 * 5


def test_bytes_of_the_torch_export(export: Callable[[str], Path], core: CoreSpec) -> None:
    """shared/facts: linear layers and embedding at int4/32 with fp16 scales take 277,853,184 B."""
    path = export("llm/qwen2.5-0.5b-prefill64-torch.onnx")
    trace = compile_model(path, core, Options(quant="int4", quant_set=("*=int4/32",)))
    assert sum(t.bytes * t.count for t in trace.tensors if t.role in ("linear", "head", "embedding")) == 277_853_184


def test_bytes_of_the_3b_at_int8_throughout(export: Callable[[str], Path], core: CoreSpec) -> None:
    """shared/facts: 3,134,394,368 B by plan int8/128, the RoPE tables aside; so by overrides of int4."""
    path = export("llm/qwen2.5-3b-int4-genai.onnx")
    trace = compile_model(path, core, Options(quant="int4", quant_set=("linear=int8",)))
    assert sum(t.bytes * t.count for t in trace.tensors if t.role != "rope") == 3_134_394_368
