"""What toolchains change: fusions, ops that are rewritten, ops that go to the CPU with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from bpusim.compiler import Options
from bpusim.compiler.build import compile_llm_config
from bpusim.compiler.dims import as_expr
from bpusim.compiler.rules import FAMILIES
from bpusim.compiler.target import Target
from bpusim.compiler.values import Cost, Gemm, VecWork
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec
from bpusim.hardware.toolchain import load_toolchain
from bpusim.scenario import load_machine
from bpusim.trace import Trace
from bpusim.trace.basis import evaluator
from bpusim.trace.tensor_split import grouped

Make = Callable[..., Any]
node = helper.make_node


def with_toolchain(which: str | Path) -> CoreSpec:
    return load_machine("bpu80", {"machine.cores.toolchain": str(which)}).cores


@pytest.fixture
def mine(tmp_path: Path) -> Callable[[str], CoreSpec]:
    """``mine("without: [Pad]")``: a core with 1.0 and these lines."""

    def make(lines: str) -> CoreSpec:
        path = tmp_path / "mine.yaml"
        path.write_text(f'about: of a test\nextends: "1.0"\n{lines}\n', encoding="utf-8")
        return with_toolchain(path)

    return make


def test_toolchain_1_0_takes_every_op_with_a_rule() -> None:
    """A new rule: add its op types to hardware/toolchains/1.0.yaml, or they would go to the CPU."""
    ruled = {t for family, (rules, _) in FAMILIES.items() if family != "On the CPU" for t in rules}
    assert set(load_toolchain("1.0").ops) == ruled


# SwiGLU ---------------------------------------------------------------------------------------------------------------

HIDDEN, INNER, LAYERS, CHUNK = 256, 640, 3, 16
LANES, PER = 64, 8 + 1 + 4 + 1 + 1
"""Vector cycles of 64 elements of g sigmoid(g) u: exp 8, add 1, div 4, and two products."""


def _llm(folder: Path, core: CoreSpec, **options: Any) -> Trace:
    config = folder / "config.json"
    config.write_text(
        json.dumps({
            "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": INNER, "vocab_size": 512, "max_position_embeddings": 128,
            "tie_word_embeddings": True,
        })
    )  # fmt: skip
    return compile_llm_config(config, core, Options(quant="int4", chunk=CHUNK, **options))


@pytest.mark.parametrize(("phase", "tokens"), [("decode", 1), ("prefill", CHUNK)])
def test_fused_swiglu_saves_its_vector_cycles_and_nothing_else_changes(tmp_path: Path, phase: str, tokens: int) -> None:
    """Of each layer the SwiGLU and the conversion of the product's results run beside the array: 10 weight tiles of 4
    cycles a row at 16 bits. The vector work of a row of 640, 16 x 10 cycles, is longer than those 40."""
    core = with_toolchain("1.0")
    old, new = (_llm(tmp_path, c).bind(phase, kv=0, tokens=tokens) for c in (core, with_toolchain("1.2")))
    cycles = [sum(int(c.cycles.sum()) for c in (call.items for call in p.calls)) for p in (old, new)]
    tiles = (HIDDEN // 128) * (INNER // 128)
    vector = tokens * INNER // LANES * (PER + 1)
    array = max(tiles * 4 * tokens, tiles * 8)
    assert cycles[0] - cycles[1] == LAYERS * (array + vector - max(array, vector))
    assert old.macs == new.macs
    assert old.traffic() == new.traffic()


def test_fused_swiglu_does_the_same_vector_work(tmp_path: Path) -> None:
    def work(trace: Trace) -> dict[str, int]:
        out: dict[str, int] = {}
        phase = trace.phase("decode")
        at = evaluator(phase.basis)((0,), 1)
        for item in phase.items:
            for op in getattr(item, "body", (item,)):
                for kind, coefs in op.vec.items():
                    n = sum(a * c for a, c in zip(at, coefs, strict=False)) * getattr(item, "count", 1)
                    out[kind] = out.get(kind, 0) + n
        return out

    assert work(_llm(tmp_path, with_toolchain("1.0"))) == work(_llm(tmp_path, with_toolchain("1.2")))


def test_a_batch_with_fused_swiglu_is_checked_like_any(tmp_path: Path) -> None:
    trace = _llm(tmp_path, with_toolchain("1.2"))
    one, four = (trace.bind("decode", kv=(5,) * n) for n in (1, 4))
    assert four.macs == 4 * one.macs


@given(
    k=st.integers(1, 2000), n=st.integers(1, 2000), rows=st.integers(1, 64), work=st.integers(0, 3000),
    batch=st.integers(1, 64),
)  # fmt: skip
def test_vector_work_behind_a_stored_product_bounds_a_batch_from_above(
    k: int, n: int, rows: int, work: int, batch: int
) -> None:
    """The longer of array and vector work of a whole batch, or at most the array's fill and drain more."""
    core = with_toolchain("1.0")
    target = Target(core, "int16", rows, batched=True)
    cost = Cost([Gemm(as_expr(rows), as_expr(k), as_expr(n), stored=True)], [VecWork({"mul": work}, as_expr(64))])

    def value(c: Cost) -> int:
        cycles = target.compute(c)[0]
        at = evaluator(tuple(cycles.terms))((0,) * batch, rows)
        return sum(a * b for a, b in zip(at, cycles.terms.values(), strict=True))

    array, vector, fill = value(replace(cost, vec=[])), work * batch, 2 * 128
    fused = value(replace(cost, fused=True))
    assert max(array, vector) <= fused <= max(array, vector) + fill
    tiles = -(-k // 128) * -(-n // 128)
    if work <= tiles * rows * 4:
        assert fused == array


@pytest.mark.parametrize("lines", ["fusions: {swiglu: true}", "fusions: {swiglu: true, norm_residual: true}"])
@pytest.mark.parametrize("unsplit", [set(), {"SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"}])
def test_cores_wait_for_each_other_as_often_with_fused_ops(
    tmp_path: Path, mine: Callable[[str], CoreSpec], lines: str, unsplit: set[str]
) -> None:
    """The layer behind a fused SwiGLU is split by rows, as it is behind one in basic ops."""
    old, new = (_llm(tmp_path, c).bind("decode", kv=0).calls for c in (with_toolchain("1.0"), mine(lines)))
    assert any("+Sigmoid" in op.type for op in new[0].ops)
    assert len(grouped(old[0].ops, unsplit)) == len(grouped(new[0].ops, unsplit))


def test_a_fused_sum_and_norm_stays_on_one_core_like_the_norm(hand: Make, mine: Callable[[str], CoreSpec]) -> None:
    nodes = [
        node("Add", ["x", "x2"], ["r"], name="residual"),
        node("LayerNormalization", ["r", "w"], ["n"], name="norm"),
        node("Relu", ["n"], ["y"], name="act"),
    ]
    core = mine("fusions: {norm_residual: true}")
    made = replace(hand(nodes, {"x": [8, 64], "x2": [8, 64]}, ["y"], weights={"w": [64]}), core=core)
    (call,) = made.trace().bind("frame").calls
    assert [op.type for op in call.ops] == ["Add+LayerNormalization", "Relu"]
    assert [g.split for g in grouped(call.ops, {"LayerNormalization"})] == [False, True]
    assert len(grouped(call.ops, set())) == 2  # the norm's rows are joined behind it


def _gate(middle: list[Any]) -> list[Any]:
    return [node("MatMul", ["x", "a"], ["g"], name="gate"), node("MatMul", ["x", "b"], ["u"], name="up"), *middle]


SILU = [
    node("Sigmoid", ["g"], ["s"], name="sigmoid"),
    node("Mul", ["g", "s"], ["h"], name="silu"),
    node("Mul", ["h", "u"], ["y"], name="product"),
]


def _types(hand: Make, nodes: list[Any], core: CoreSpec, outputs: tuple[str, ...] = ("y",), **more: Any) -> list[str]:
    weights = more.pop("weights", {"a": [64, 64], "b": [64, 64]})
    made = replace(hand(nodes, more.pop("inputs", {"x": [8, 64]}), list(outputs), weights=weights, **more), core=core)
    return [op.type for op in made.trace().phase("frame").ops()]


def test_swiglu_joins_the_later_product(hand: Make) -> None:
    assert _types(hand, _gate(SILU), with_toolchain("1.0")) == ["MatMul", "MatMul", "Sigmoid", "Mul", "Mul"]
    assert _types(hand, _gate(SILU), with_toolchain("1.2")) == ["MatMul", "MatMul+Sigmoid+Mul+Mul"]


def test_swiglu_stays_apart_where_somebody_else_reads_a_part(hand: Make) -> None:
    for output in ("g", "u", "s", "h"):
        assert not any("+" in t for t in _types(hand, _gate(SILU), with_toolchain("1.2"), ("y", output)))


def test_a_product_that_is_no_gate_stays_apart(hand: Make) -> None:
    """The sigmoid of u does not gate g."""
    nodes = [node("Sigmoid", ["u"], ["s"]), *SILU[1:]]
    assert len(_types(hand, _gate(nodes), with_toolchain("1.2"))) == 5


# Other fusions --------------------------------------------------------------------------------------------------------

ATTENTION = [
    node("MatMul", ["q", "k"], ["s"], name="scores"),
    node("Div", ["s", "root"], ["d"], name="scale"),
    node("Softmax", ["d"], ["p"], name="softmax"),
    node("MatMul", ["p", "v"], ["y"], name="values"),
]
QKV = {"q": [2, 8, 16], "k": [2, 16, 8], "v": [2, 8, 16]}


def test_attention_runs_as_one_op_with_the_same_cycles(hand: Make, mine: Callable[[str], CoreSpec]) -> None:
    core = mine("fusions: {attention: true}")
    made = hand(ATTENTION, QKV, ["y"], weights={"root": [1]})
    old, new = made.trace(), replace(made, core=core).trace()
    assert [op.type for op in new.phase("frame").ops()] == ["MatMul+Div+Softmax+MatMul"]
    sums = [sum(sum(op.cycles) for op in t.phase("frame").ops()) for t in (old, new)]
    assert sums[0] == sums[1]
    assert old.bind("frame").macs == new.bind("frame").macs


def test_scores_that_are_an_output_keep_attention_apart(hand: Make, mine: Callable[[str], CoreSpec]) -> None:
    core = mine("fusions: {attention: true}")
    assert len(_types(hand, ATTENTION, core, ("y", "p"), inputs=QKV, weights={"root": [1]})) == 4


def test_a_sum_and_its_norm_run_as_one_op_with_two_results(hand: Make, mine: Callable[[str], CoreSpec]) -> None:
    nodes = [
        node("Add", ["x", "x2"], ["r"], name="residual"),
        node("LayerNormalization", ["r", "w"], ["n"], name="norm"),
        node("Relu", ["n"], ["m"], name="act"),
        node("Add", ["m", "r"], ["y"], name="next"),
    ]
    both = {"x": [8, 64], "x2": [8, 64]}
    core = mine("fusions: {norm_residual: true}")
    assert _types(hand, nodes, core, inputs=both, weights={"w": [64]}) == ["Add+LayerNormalization", "Relu", "Add"]


def test_the_epilogue_of_convolutions_is_data(hand: Make, mine: Callable[[str], CoreSpec]) -> None:
    nodes = [node("Conv", ["x", "w"], ["c"], name="conv"), node("Relu", ["c"], ["y"], name="relu")]
    for core, types in ((with_toolchain("1.0"), ["Conv+Relu"]), (mine("fusions: {convolution: []}"), ["Conv", "Relu"])):
        assert _types(hand, nodes, core, inputs={"x": [1, 8, 16, 16]}, weights={"w": [8, 8, 3, 3]}) == types


# Limits and the whitelist ---------------------------------------------------------------------------------------------


def _fallbacks(hand: Make, nodes: list[Any], core: CoreSpec, inputs: dict[str, list[int]], **more: Any) -> Any:
    trace = replace(hand(nodes, inputs, ["y"], **more), core=core).trace()
    return {kind: (row["count"], row["why"]) for kind, row in trace.header.report["cpu_fallbacks"].items()}


@pytest.mark.parametrize(
    ("limit", "kernel", "strides", "why"),
    [
        ("kernel: 7", 11, 1, "kernel 11 exceeds 7 of toolchain mine"),
        ("kernel: 7", 7, 1, ""),
        ("stride: 2", 3, 4, "stride 4 exceeds 2 of toolchain mine"),
        ("rank: 3", 3, 1, "rank 4 exceeds 3 of toolchain mine"),
        ("opset: [18, 21]", 3, 1, "opset 17 is not within 18 to 21 of toolchain mine"),
        ("types: [FLOAT16, INT8]", 3, 1, "FLOAT is not of FLOAT16, INT8 of toolchain mine"),
    ],
)
def test_an_op_beyond_a_limit_goes_to_the_cpu_with_the_reason(
    hand: Make, mine: Callable[[str], CoreSpec], limit: str, kernel: int, strides: int, why: str
) -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], name="conv", strides=[strides, strides])]
    core = mine(f"limits: {{Conv: {{{limit}}}}}")
    weights = {"w": [4, 3, kernel, kernel]}
    found = _fallbacks(hand, nodes, core, {"x": [1, 3, 32, 32]}, weights=weights)
    assert found == ({"Conv": (1, why)} if why else {})


def test_an_op_that_is_not_listed_goes_to_the_cpu(hand: Make, mine: Callable[[str], CoreSpec]) -> None:
    nodes = [node("Tanh", ["x"], ["t"], name="t"), node("Relu", ["t"], ["y"], name="r")]
    found = _fallbacks(hand, nodes, mine("without: [Tanh]"), {"x": [100]})
    assert found == {"Tanh": (1, "Tanh is not among the ops of toolchain mine")}


def test_views_need_nobodys_leave(hand: Make, mine: Callable[[str], CoreSpec]) -> None:
    nodes = [node("Relu", ["x"], ["t"], name="r"), node("Flatten", ["t"], ["y"], name="f")]
    assert _fallbacks(hand, nodes, mine("without: [Flatten]"), {"x": [10, 10]}) == {}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("ops: [Convv]", "ops of toolchain mine: no op with a cost rule is called 'Convv'; did you mean 'Conv'?"),
        ("ops: [TopK]", "ops of toolchain mine: no unit of a core can do TopK; remove it: it runs on the CPU"),
        ("without: [Pad]\nlimits: {Pad: {rank: 3}}", "limits.Pad of toolchain mine: Pad is not among its ops"),
        ("limits: {Relu: {kernel: 3}}", "limits.Relu of toolchain mine: Relu has no kernel and no stride; remove both"),
        ("limits: {Relu: {types: [FLOAT61]}}", "no element type is called 'FLOAT61'; did you mean 'FLOAT16'?"),
    ],
)
def test_what_would_do_nothing_is_refused(
    hand: Make, mine: Callable[[str], CoreSpec], lines: str, message: str
) -> None:
    with pytest.raises(CompileError) as caught:
        replace(hand([node("Relu", ["x"], ["y"])], {"x": [8]}, ["y"]), core=mine(lines)).trace()
    assert message in str(caught.value)


def test_the_file_in_the_documentation_is_a_toolchain(hand: Make, tmp_path: Path, repository: Path) -> None:
    text = (repository / "docs" / "TRACES.md").read_text(encoding="utf-8").partition("## Toolchains")[2]
    path = tmp_path / "supplier.yaml"
    path.write_text(text.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    nodes = [node("Conv", ["x", "w"], ["y"], name="conv")]
    found = _fallbacks(hand, nodes, with_toolchain(path), {"x": [1, 3, 32, 32]}, weights={"w": [4, 3, 11, 11]})
    assert found == {"Conv": (1, "kernel 11 exceeds 7 of toolchain supplier")}


# Rewriting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "attrs", "into"),
    [
        ("Gelu", {}, ["Mul", "Erf", "Add", "Mul", "Mul"]),
        ("HardSwish", {}, ["HardSigmoid", "Mul"]),
        ("Mish", {}, ["Softplus", "Tanh", "Mul"]),
        ("Swish", {}, ["Sigmoid", "Mul"]),
        ("Swish", {"alpha": 2.0}, ["Mul", "Sigmoid", "Mul"]),
    ],
)
def test_an_activation_is_rewritten(
    hand: Make, mine: Callable[[str], CoreSpec], kind: str, attrs: dict[str, Any], into: list[str]
) -> None:
    made = hand([node(kind, ["x"], ["y"], name="act", **attrs)], {"x": [8, 64]}, ["y"], opset=22)
    trace = replace(made, core=mine(f"without: [{kind}]")).trace()
    assert [op.type for op in trace.phase("frame").ops()] == into
    why = f"{kind} is not among the ops of toolchain mine"
    assert trace.header.report["decomposed"] == {kind: {"count": 1, "into": into, "why": why}}
    assert trace.header.report["cpu_fallbacks"] == {}


@pytest.mark.parametrize(
    ("kind", "domain", "inputs", "into"),
    [
        ("LayerNormalization", "", ["x", "w", "b"], "ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul Add"),
        ("RMSNormalization", "", ["x", "w"], "Mul ReduceMean Add Sqrt Div Mul"),
        ("SkipLayerNormalization", "com.microsoft", ["x", "x2", "w", "b"],
         "Add ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul Add"),
        ("SkipSimplifiedLayerNormalization", "com.microsoft", ["x", "x2", "w"], "Add Mul ReduceMean Add Sqrt Div Mul"),
    ],
)  # fmt: skip
def test_a_norm_is_rewritten(
    hand: Make, mine: Callable[[str], CoreSpec], kind: str, domain: str, inputs: list[str], into: str
) -> None:
    made = hand(
        [node(kind, inputs, ["y"], name="norm", domain=domain)], {"x": [8, 64], "x2": [8, 64]}, ["y"],
        weights={"w": [64], "b": [64]}, opset=22,
    )  # fmt: skip
    trace = replace(made, core=mine(f"without: [{kind}]")).trace()
    assert [op.type for op in trace.phase("frame").ops()] == into.split()
    assert [int(d) for d in made.analysis().values["y"].dims] == [8, 64]


def test_what_the_rewriting_needs_must_be_taken_too(hand: Make, mine: Callable[[str], CoreSpec]) -> None:
    nodes = [node("Gelu", ["x"], ["y"], name="act")]
    found = _fallbacks(hand, nodes, mine("without: [Gelu, Erf]"), {"x": [64]}, opset=22)
    assert found == {"Gelu": (1, "Gelu is not among the ops of toolchain mine")}


def test_a_norm_over_more_than_the_last_axis_goes_to_the_cpu(hand: Make, mine: Callable[[str], CoreSpec]) -> None:
    nodes = [node("LayerNormalization", ["x", "w"], ["y"], name="norm", axis=1)]
    core = mine("without: [LayerNormalization]")
    assert list(_fallbacks(hand, nodes, core, {"x": [2, 4, 8]}, weights={"w": [4, 8]})) == ["LayerNormalization"]
