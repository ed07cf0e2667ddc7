"""``--verify``: each rewrite against what it replaces, and wrong rules that must be caught."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from bpusim.__main__ import main
from bpusim.compiler import Options, compile_graph, load_graph, lower, qdq
from bpusim.compiler.rewrites import REWRITES
from bpusim.compiler.rules import RULES
from bpusim.compiler.verify import Row, Verifier
from bpusim.errors import CompileError
from bpusim.hardware.presets import machine_preset
from bpusim.scenario import load_machine

FLOAT, INT64, BOOL, INT8, UINT8 = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.INT8,
    TensorProto.UINT8,
)
MS = "com.microsoft"
RNG = np.random.default_rng(7)
AFFINE = {n: RNG.standard_normal(8).astype(np.float32) for n in "gbc"}


def op(kind: str, inputs: str, outputs: str, **attrs: Any) -> NodeProto:
    """A node; names are parted by spaces, ``-`` is none."""
    names = ["" if i == "-" else i for i in inputs.split()]
    return helper.make_node(kind, names, outputs.split(), name=attrs.pop("name", f"n_{outputs.split()[0]}"), **attrs)


def model(
    nodes: list[NodeProto],
    inputs: dict[str, list[int]],
    outputs: list[str],
    weights: dict[str, Any] | None = None,
    *,
    opset: int = 17,
    functions: Any = (),
    types: dict[str, int] | None = None,
) -> ModelProto:
    declared = [helper.make_tensor_value_info(n, (types or {}).get(n, FLOAT), d) for n, d in inputs.items()]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", declared, [helper.make_empty_tensor_value_info(o) for o in outputs], stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("f", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=8)


def floats(*dims: int) -> Any:
    return RNG.standard_normal(dims).astype(np.float32)


def verified(proto: ModelProto, **options: Any) -> list[Row]:
    """The rows of one compilation."""
    verifier = Verifier(proto)
    compile_graph(load_graph(proto, "m.onnx", ""), machine_preset("bpu80").cores, Options(**options), verifier)
    return verifier.rows


def rules(proto: ModelProto, **options: Any) -> set[str]:
    """The rules that were applied; every row, the whole graph's too, must have passed."""
    rows = verified(proto, **options)
    assert all(r.passed for r in rows), "\n".join(map(str, rows))
    assert rows[-1].rule == "whole graph"
    return {r.rule for r in rows[:-1]}


def caught(proto: ModelProto, **options: Any) -> str:
    """What the compilation fails with."""
    with pytest.raises(CompileError) as error:
        verified(proto, **options)
    return "\n".join(p.what for p in error.value.problems)


# --- models, one or more a rule


def functions() -> ModelProto:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    inner = helper.make_function("f", "Inner", ["a"], ["r"], [op("Mul", "a a", "t"), op("Neg", "t", "r")], imports)
    twice = [op("Inner", "a", "t", domain="f"), op("Sub", "t b", "r")]
    outer = helper.make_function("f", "Outer", ["a", "b"], ["r"], twice, imports)
    nodes = [op("Outer", "x w", "t", domain="f"), op("Outer", "w t", "y", domain="f")]
    return model(nodes, {"x": [2, 3]}, ["y"], {"w": floats(2, 3)}, functions=[outer, inner])


def branch(condition: bool | None = True) -> ModelProto:
    def body(kind: str) -> Any:
        made = [helper.make_empty_tensor_value_info(f"{kind}_out")]
        return helper.make_graph([op(kind, "x w", f"{kind}_out")], kind, [], made)

    nodes = [op("If", "c", "y", name="choose", then_branch=body("Add"), else_branch=body("Mul"))]
    inputs = {"x": [2, 3]} | ({"c": [1]} if condition is None else {})
    weights = {"w": floats(2, 3)} | ({} if condition is None else {"c": np.array([condition])})
    return model(nodes, inputs, ["y"], weights, types={"c": BOOL})


def loop(trips: int | None = 3) -> ModelProto:
    """y = x + w + ... , all partial sums are stacked."""
    inputs = [
        helper.make_tensor_value_info("i", INT64, []),
        helper.make_tensor_value_info("go", BOOL, []),
        helper.make_tensor_value_info("s", FLOAT, [2, 3]),
    ]
    nodes = [op("Identity", "go", "on"), op("Add", "s w", "next"), op("Mul", "next next", "each")]
    outputs = [helper.make_tensor_value_info("on", BOOL, [])]
    outputs += [helper.make_tensor_value_info(o, FLOAT, [2, 3]) for o in ("next", "each")]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    weights = {"w": floats(2, 3), "true": np.array(True)} | ({} if trips is None else {"n": np.array(trips)})
    given = {"x": [2, 3]} | ({"n": []} if trips is None else {})
    return model(
        [op("Loop", "n true x", "y all", name="l", body=body)], given, ["y", "all"], weights, types={"n": INT64}
    )


def scan() -> ModelProto:
    """A running sum over axis 1."""
    inputs = [helper.make_tensor_value_info(n, FLOAT, [2]) for n in ("s", "e")]
    nodes = [op("Add", "s e", "next"), op("Relu", "next", "each")]
    body = helper.make_graph(nodes, "b", inputs, [helper.make_empty_tensor_value_info(o) for o in ("next", "each")])
    node = op("Scan", "w x", "last all", body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1])
    return model([node], {"x": [2, 4]}, ["last", "all"], {"w": floats(2)})


def old() -> ModelProto:
    node = op("Add", "x w", "t", broadcast=1, axis=1)
    weights = {"w": floats(3), "s": floats(4)}
    return model([node, op("Mul", "t s", "y", broadcast=1)], {"x": [2, 3, 4]}, ["y"], weights, opset=6)


def shapes() -> ModelProto:
    """[2, 3, 4] is reshaped by arithmetic on its shape, past a Where, a comparison and a detour over floats."""
    nodes = [
        op("Shape", "x", "s"),
        op("Gather", "s zero", "a"),
        op("Slice", "s one three", "b"),
        op("ReduceProd", "b", "p", keepdims=1),
        op("Cast", "p", "pf", to=FLOAT),
        op("Mul", "pf half", "ph"),
        op("Floor", "ph", "pr"),
        op("Cast", "pr", "pi", to=INT64),
        op("Add", "a a", "aa"),
        op("Equal", "aa pi", "e"),
        op("Where", "e aa a2", "w"),
        op("Concat", "w minus", "to", axis=0),
        op("Reshape", "x to", "y"),
    ]
    ints = {"zero": [0], "one": [1], "three": [3], "minus": [-1], "a2": [4]}
    weights: dict[str, Any] = {n: np.array(v) for n, v in ints.items()}
    return model(nodes, {"x": [2, 3, 4]}, ["y"], weights | {"half": np.array([0.5], np.float32)})


def views() -> ModelProto:
    nodes = [
        op("Identity", "x", "a"),
        op("Dropout", "a", "b"),
        op("Flatten", "b", "c", axis=2),
        op("Reshape", "c to", "d"),
        op("Unsqueeze", "d zero", "e"),
        op("Transpose", "e", "f", perm=[1, 0, 2, 3]),
        op("Squeeze", "f one", "g"),
        op("Expand", "g wide", "h"),
        op("Relu", "h", "y"),
    ]
    weights = {"to": np.array([1, -1, 3]), "zero": np.array([0]), "one": np.array([1]), "wide": np.array([5, 8, 3])}
    return model(nodes, {"x": [2, 3, 4]}, ["y"], weights)


NORM = {"s": floats(4), "b": floats(4), "m": floats(4), "v": np.abs(floats(4)) + 0.5}


def norm(**attrs: Any) -> ModelProto:
    nodes = [
        op("Conv", "x w", "c", pads=[1, 1, 1, 1], **attrs),
        op("BatchNormalization", "c s b m v", "n", epsilon=1e-3),
        op("Relu", "n", "y"),
    ]
    groups = attrs.get("group", 1)
    return model(nodes, {"x": [2, 4, 20, 9]}, ["y"], NORM | {"w": floats(4, 4 // groups, 3, 3)})


def norms() -> ModelProto:
    """Two norms behind a convolution with a bias, of 16-bit floats, then a sum."""
    nodes = [
        op("Conv", "x w k", "c"),
        op("BatchNormalization", "c s b m v", "n"),
        op("BatchNormalization", "n s b m v", "o"),
        op("Add", "o x", "y"),
    ]
    weights = NORM | {"w": floats(4, 4, 1, 1), "k": floats(4)}
    return model(nodes, {"x": [1, 4, 5, 5]}, ["y"], weights)


SCALE: dict[str, Any] = {
    "sx": np.float32(0.0625),
    "zx": np.int8(3),
    "sw": np.abs(floats(4)) * 0.01 + 0.001,
    "zw": np.zeros(4, np.int8),
    "sy": np.float32(0.25),
}


def integers(kind: str, **attrs: Any) -> ModelProto:
    """A product of integers with weights of a scale for each output."""
    conv = kind == "Conv"
    dims, shape = ([1, 3, 6, 6], (4, 3, 3, 3)) if conv else ([5, 8], (8, 4))
    axis = 0 if conv else 1
    operands = "xf wf" + (" k" if kind != "MatMul" else "")
    nodes = [
        op("DequantizeLinear", "x sx zx", "xf"),
        op("DequantizeLinear", "w sw zw", "wf", axis=axis),
        op(kind, operands, "f", **attrs),
        op("QuantizeLinear", "f sy zx", "q"),
        op("DequantizeLinear", "q sy zx", "y"),
    ]
    weights = SCALE | {"w": RNG.integers(-128, 128, shape).astype(np.int8), "k": floats(4)}
    return model(nodes, {"x": dims}, ["y"], weights, types={"x": INT8})


def moved(kind: str, back: str = "sx", **attrs: Any) -> ModelProto:
    nodes = [op("DequantizeLinear", "x sx zx", "f"), op(kind, "f", "g", **attrs)]
    nodes.append(op("QuantizeLinear", f"g {back} zx", "y"))
    return model(nodes, {"x": [1, 4, 6, 6]}, ["y"], SCALE, types={"x": INT8})


def fused() -> ModelProto:
    nodes = [op("Conv", "x w", "c"), op("Add", "c r", "a"), op("Relu", "a", "y")]
    return model(nodes, {"x": [1, 4, 5, 5], "r": [1, 4, 5, 5]}, ["y"], {"w": floats(4, 4, 1, 1)})


@pytest.mark.parametrize(
    ("proto", "applied"),
    [
        (functions(), {"function inlined"}),
        (branch(True), {"branch taken"}),
        (branch(False), {"branch taken"}),
        (loop(), {"loop unrolled", "view", "constant folded"}),
        (loop(0), {"loop unrolled"}),
        (scan(), {"scan unrolled", "view"}),
        (old(), {"old form"}),
        (shapes(), {"constant folded", "view"}),
        (views(), {"view"}),
        (norm(), {"batch norm folded", "fused into a convolution"}),
        (norm(group=4, strides=[2, 1], dilations=[1, 2]), {"batch norm folded", "fused into a convolution"}),
        (norms(), {"batch norm folded", "fused into a convolution"}),
        (integers("Conv", strides=[2, 2]), {"integers taken as they are"}),
        (integers("MatMul"), {"integers taken as they are"}),
        (integers("Gemm", alpha=0.5, beta=2.0), {"integers taken as they are"}),
        (moved("MaxPool", kernel_shape=[2, 2]), {"integers taken as they are"}),
        (moved("Relu"), {"integers taken as they are"}),
        (moved("Transpose", perm=[0, 2, 3, 1]), {"integers taken as they are"}),
        (moved("MaxPool", "sy", kernel_shape=[2, 2]), set()),
        (fused(), {"fused into a convolution"}),
    ],
    ids=lambda v: "" if isinstance(v, set) else v.graph.node[-1].op_type + str(len(v.graph.node)),
)
def test_every_rule_passes(proto: ModelProto, applied: set[str]) -> None:
    """The rules named were applied, and each row and the whole graph agree with the original."""
    assert rules(proto) == applied


DECOMPOSED = [
    model([op("Gelu", "x", "y")], {"x": [2, 8]}, ["y"], opset=20),
    model([op("HardSwish", "x", "y")], {"x": [2, 8]}, ["y"]),
    model([op("Mish", "x", "y")], {"x": [2, 8]}, ["y"], opset=18),
    model([op("Swish", "x", "y")], {"x": [2, 8]}, ["y"], opset=24),
    model([op("Swish", "x", "y", alpha=1.5)], {"x": [2, 8]}, ["y"], opset=24),
    model([op("QuickGelu", "x", "y", domain=MS)], {"x": [2, 8]}, ["y"]),
    model([op("LayerNormalization", "x g b", "y")], {"x": [2, 8]}, ["y"], AFFINE),
    model([op("LayerNormalization", "x g", "y", epsilon=0.5)], {"x": [2, 8]}, ["y"], AFFINE, opset=18),
    model([op("RMSNormalization", "x g", "y")], {"x": [2, 8]}, ["y"], AFFINE, opset=23),
    model([op("SimplifiedLayerNormalization", "x g", "y")], {"x": [2, 8]}, ["y"], AFFINE),
    model([op("SkipLayerNormalization", "x z g b c", "y", domain=MS)], {"x": [1, 2, 8], "z": [1, 2, 8]}, ["y"], AFFINE),
    model([op("SkipSimplifiedLayerNormalization", "x z g", "y", domain=MS)], {"x": [1, 2, 8], "z": [1, 2, 8]}, ["y"],
          AFFINE),
]  # fmt: skip
"""An op each of those that a toolchain may do without, by what else it takes."""


@pytest.fixture
def without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[ModelProto], None]:
    """``without(proto)``: from here on for a toolchain that takes no op like the only one of ``proto``."""

    def use(proto: ModelProto) -> None:
        lines = f'about: a test\nextends: "1.0"\nwithout: [{proto.graph.node[0].op_type}]\n'
        (tmp_path / "few.yaml").write_text(lines, encoding="utf-8")
        machine = load_machine("bpu80", {"machine.cores.toolchain": str(tmp_path / "few.yaml")})
        monkeypatch.setattr(sys.modules[__name__], "machine_preset", lambda _: machine)

    return use


@pytest.mark.parametrize("proto", DECOMPOSED, ids=lambda p: p.graph.node[0].op_type)
def test_what_a_toolchain_does_not_take_is_verified(proto: ModelProto, without: Callable[[ModelProto], None]) -> None:
    """The op against those in its place, and the whole graph."""
    if any(n.domain == MS or n.op_type.startswith("Simplified") for n in proto.graph.node):
        pytest.importorskip("onnxruntime")
    without(proto)
    assert rules(proto) == {"decomposed"}


def test_every_op_that_may_be_rewritten_is_verified() -> None:
    """Silu is of no operator set that an evaluator knows."""
    from bpusim.compiler.decompose import DECOMPOSED as TYPES

    assert {p.graph.node[0].op_type for p in DECOMPOSED} == set(TYPES) - {"Silu"}


def test_a_wrong_decomposition_is_caught(
    without: Callable[[ModelProto], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """QuickGelu's factor taken for Swish's."""
    proto = DECOMPOSED[3]
    without(proto)
    monkeypatch.setattr("bpusim.compiler.decompose.DECOMPOSED", {"Swish": wrong_swish})
    assert "decomposed, Swish 'n_y': max abs error" in caught(proto)


def wrong_swish(steps: Any, _: Any) -> bool:
    x = steps.node.inputs[0]
    steps.add("Mul", x, steps.add("Sigmoid", steps.add("Mul", x, steps.number("alpha", 1.702))))
    return True


def test_the_models_above_have_every_rule() -> None:
    kinds = {"branch taken", "decomposed"}  # with the loops, and for toolchains of less
    rows = {r for m in (functions(), old(), shapes(), norm(), moved("Relu")) for r in rules(m)}
    assert rows | kinds == set(REWRITES)


@pytest.mark.parametrize(("proto", "assume"), [(branch(None), "choose=else"), (loop(None), "l=2")])
def test_what_is_assumed_is_verified_as_assumed(proto: ModelProto, assume: str) -> None:
    """The branch or the passes agree; the whole graph, which the data steer, is left out and says so."""
    name, what = assume.split("=")
    rows = verified(proto, assume={name: what})
    assert rows[0].passed
    assert rows[-1].error is None
    assert rows[-1].why.endswith("is assumed, where the data decide")


# --- wrong rules


def test_a_norm_folded_past_a_relu_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relu before the norm: its shift and a negative factor do not pass through it."""
    nodes = [op("Conv", "x w", "c"), op("Relu", "c", "r"), op("BatchNormalization", "r s b m v", "y")]
    proto = model(nodes, {"x": [1, 4, 5, 5]}, ["y"], NORM | {"w": floats(4, 4, 1, 1)})
    assert rules(proto) == {"fused into a convolution"}
    monkeypatch.setattr(lower, "folds_norm", lambda _, node: node.type == "BatchNormalization")
    assert "batch norm folded, BatchNormalization 'n_y': max abs error" in caught(proto)


def test_an_op_that_does_not_move_integers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = moved("Sigmoid")
    rules(proto)
    monkeypatch.setattr(qdq, "MOVES", qdq.MOVES | {"Sigmoid"})
    assert "integers taken as they are, Sigmoid 'n_g': max abs error" in caught(proto)


def test_integers_of_another_scale_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A maximum that goes back at a quarter of the scale is no move of the same integers."""
    monkeypatch.setattr(qdq, "takes_integers", lambda draft, *_: draft.nodes[0].type in qdq.MOVES)
    assert "integers taken as they are, MaxPool 'n_g'" in caught(moved("MaxPool", "sy", kernel_shape=[2, 2]))


def test_a_transpose_taken_as_a_view_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def view(ctx: Any) -> None:
        ctx.view(tuple(ctx.value(0).dims[p] for p in ctx.attr("perm")))

    proto = model([op("Transpose", "x", "t", perm=[1, 0]), op("Relu", "t", "y")], {"x": [2, 3]}, ["y"])
    assert rules(proto) == set()
    monkeypatch.setitem(RULES, "Transpose", view)
    assert "view, Transpose 'n_t': max abs error" in caught(proto)


def test_wrong_arithmetic_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from bpusim.compiler import fold_ints

    proto = shapes()
    monkeypatch.setitem(fold_ints._ARITHMETIC, "Add", lambda a, b: a * 3 + b)
    assert "constant folded, Add 'n_aa': max abs error 4" in caught(proto)


def test_the_other_branch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from bpusim.compiler.walk import Walk

    proto = branch(True)
    number = Walk.number
    monkeypatch.setattr(Walk, "number", lambda self, name: 1 - (number(self, name) or 0))
    assert "branch taken, If 'choose': max abs error" in caught(proto)


def test_a_loop_of_one_pass_too_few_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from bpusim.compiler.walk import Walk

    proto = loop(3)
    number = Walk.number
    monkeypatch.setattr(Walk, "number", lambda self, name: 2 if name == "n" else number(self, name))
    assert "loop unrolled, Loop 'l'" in caught(proto)


def test_operands_laid_along_another_axis_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """[2, 2, 2] + [2] along axis 1, taken as along the last axis."""
    from dataclasses import replace

    from bpusim.compiler import analyse, opsets

    node = op("Add", "x w", "y", broadcast=1, axis=1)
    proto = model([node], {"x": [2, 2, 2]}, ["y"], {"w": floats(2)}, opset=6)
    assert rules(proto) == {"old form"}

    def last(ctx: Any) -> Any:
        a, b = opsets.adapted(ctx)
        return [a, replace(b, dims=b.dims[::-1])]

    monkeypatch.setattr(analyse, "adapted", last)
    assert "old form, Add 'n_y': max abs error" in caught(proto)


def test_a_function_inlined_with_its_operands_turned_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from bpusim.compiler.reader import _Reader

    inlined = _Reader._inlined
    monkeypatch.setattr(_Reader, "_inlined", lambda self, f, n, inputs, *rest: inlined(self, f, n, inputs[::-1], *rest))
    assert "function inlined, f::Outer" in caught(functions())


def test_a_result_hidden_in_a_fused_op_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The convolution's result has two readers; fused all the same, the second finds nothing."""
    nodes = [op("Conv", "x w", "c"), op("Relu", "c", "r"), op("Neg", "c", "n"), op("Mul", "r n", "y")]
    proto = model(nodes, {"x": [1, 4, 5, 5]}, ["y"], {"w": floats(4, 4, 1, 1)})
    assert rules(proto) == set()
    fuse = lower._fuse_convolutions

    def careless(drafts: Any, outputs: Any, epilogue: Any) -> Any:
        return [*fuse(drafts[:2], outputs, epilogue), *drafts[2:]]

    monkeypatch.setattr(lower, "_fuse_convolutions", careless)
    assert "'c' is read, but is inside a fused op" in caught(proto)


# --- what cannot be verified is said


def contributed() -> ModelProto:
    nodes = [op("FusedMatMul", "x w", "t", domain="com.microsoft", alpha=0.5), op("Reshape", "t to", "y")]
    return model(nodes, {"x": [2, 4]}, ["y"], {"w": floats(4, 4), "to": np.array([8])})


def test_contributed_operators_run_on_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    rows = verified(contributed())
    assert [r.passed for r in rows] == [True, True]
    assert rows[-1].why.endswith("onnxruntime")


def test_without_onnxruntime_the_operators_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpusim.compiler.evaluate.find_spec", lambda _: None)
    view, whole = verified(contributed())
    assert view.passed
    assert not whole.passed
    assert str(whole) == (
        "frame: whole graph, all: not verified: contributed operators (FusedMatMul) need onnxruntime; "
        "onnxruntime is not installed: pip install 'bpusim[verify]'"
    )


def test_large_tensors_are_refused_with_the_reason() -> None:
    proto = model([op("Flatten", "x", "y")], {"x": [1 << 13, 1 << 12]}, ["y"])
    assert [r.why for r in verified(proto)] == ["'x' has more than 16777216 elements"] * 2


def test_more_rewrites_than_are_run_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpusim.compiler.verify._MOST_CHECKS", 2)
    rows = verified(views())
    assert [r.error is None for r in rows] == [False, False, True, False]
    assert str(rows[2]) == "frame: rewrites, the rest: not verified: more than 2 of them"


def test_a_stored_output_is_compared_too() -> None:
    proto = model([op("Relu", "x", "y")], {"x": [2, 2]}, ["y", "w"], {"w": floats(2)})
    assert rules(proto) == set()


def test_missing_weights_are_random_and_named() -> None:
    proto = norm()
    weight = next(t for t in proto.graph.initializer if t.name == "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="gone.bin")
    verifier = Verifier(proto)
    compile_graph(load_graph(proto, "m.onnx", ""), machine_preset("bpu80").cores, Options(), verifier)
    assert all(r.passed for r in verifier.rows)
    assert "random weights stand for 1 tensors without data, such as w" in verifier.text()


def test_the_same_seed_gives_the_same_rows() -> None:
    proto = norm()
    assert verified(proto) == verified(proto)


# --- the command


def test_a_failed_verification_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "m.trace"
    path.write_bytes(shapes().SerializeToString())
    argv = ["bpusim", "compile", str(path), "--verify", "-o", str(out)]
    monkeypatch.setattr(sys, "argv", argv)

    def run() -> int:
        try:
            return int(main() or 0)
        except SystemExit as e:
            return int(e.code or 0)

    with monkeypatch.context() as wrong:
        from bpusim.compiler import fold_ints

        wrong.setitem(fold_ints._ARITHMETIC, "Add", lambda a, b: a * 3 + b)
        assert run() != 0
    assert not out.exists()
    assert "constant folded, Add 'n_aa': max abs error 4" in capsys.readouterr().err
    assert run() == 0
    assert out.exists()
    assert "14 of 14 checks passed, seed 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "bind"),
    [
        ("qwen2-tiny-decode-kv128-torch", {}),
        ("qwen2-tiny-prefill64-torch", {}),
        ("qwen2-tiny-int4-genai", {"kv_cache_dim": 16}),
        ("qwen2-tiny-fp16-genai", {}),
    ],
)
def test_tiny_language_models(export: Callable[[str], Path], name: str, bind: dict[str, int]) -> None:
    """Exports with their weights: every rewrite, and the whole graph of each phase."""
    from bpusim.compiler import compile_model

    if "genai" in name:
        pytest.importorskip("onnxruntime")
    path, seen = export(f"tiny/{name}.onnx"), []
    compile_model(path, machine_preset("bpu80").cores, Options(bind=bind), verified=lambda v: seen.extend(v.rows))
    assert seen
    assert all(r.passed for r in seen), "\n".join(map(str, seen))


@pytest.mark.parametrize("name", ["shufflenet", "squeezenet"])
def test_networks_of_the_onnx_package(light: Callable[[str], Path], name: str) -> None:
    from bpusim.compiler import compile_model

    seen: list[Row] = []
    compile_model(light(name), machine_preset("bpu80").cores, Options(), verified=lambda v: seen.extend(v.rows))
    assert all(r.passed for r in seen), "\n".join(map(str, seen))
