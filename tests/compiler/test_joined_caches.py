"""Language models without a fused attention: caches that a Concat joins, and masks made of the step's own sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from bpusim.compiler import Options, compile_graph
from bpusim.compiler.dims import KV, TOKENS, Expr, as_expr
from bpusim.compiler.fold_ints import fold
from bpusim.compiler.graph import Node
from bpusim.compiler.target import Target
from bpusim.compiler.values import Value, VecWork
from bpusim.compiler.verify import Verifier
from bpusim.errors import CompileError, TraceError
from bpusim.hardware import CoreSpec
from bpusim.hardware.presets import machine_preset
from bpusim.scenario import load_machine
from bpusim.trace import Trace
from bpusim.trace.basis import dot, evaluator

Make = Callable[..., Any]
node = helper.make_node
STEP, PAST, TOTAL = "sequence_length", "past_sequence_length", "total_sequence_length"
HEADS, KV_HEADS, WIDTH = 4, 2, 8


def _constant(name: str, value: Any) -> onnx.NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(np.array(value)))


def _sizes() -> list[onnx.NodeProto]:
    """``s`` and ``t``, lists of one: the step's tokens, and those with the past."""
    return [
        _constant("zero", 0),
        _constant("one", 1),
        _constant("first", [0]),
        _constant("second", [1]),
        _constant("minus", [-1]),
        _constant("off", np.float32(-1e4)),
        _constant("on", np.float32(0)),
        node("Shape", ["x"], ["x_shape"]),
        node("Gather", ["x_shape", "second"], ["s"], axis=0),
        node("Shape", ["attention_mask"], ["mask_shape"]),
        node("Gather", ["mask_shape", "second"], ["t"], axis=0),
    ]


def _mask(rows: str, columns: str, wanted: str) -> list[onnx.NodeProto]:
    """As exporters write a causal mask: a fill of ``rows x columns``, zero up to the diagonal, expanded to
    ``s x wanted``; the shape goes through the Where that puts ones in place of -1."""
    return [
        node("Concat", [rows, columns], ["square"], axis=0),
        node("ConstantOfShape", ["square"], ["fill"], value=numpy_helper.from_array(np.array([-1e4], np.float32))),
        node("Squeeze", [columns, "first"], ["n"]),
        node("Range", ["zero", "n", "one"], ["column"]),
        node("Squeeze", [rows, "first"], ["m"]),
        node("Range", ["zero", "m", "one"], ["row"]),
        node("Add", ["row", "one"], ["next"]),
        node("Concat", [rows, "second"], ["upright"], axis=0),
        node("Reshape", ["next", "upright"], ["limit"]),
        node("Less", ["column", "limit"], ["seen"]),
        node("Where", ["seen", "on", "fill"], ["triangle"]),
        node("Concat", ["second", "second", "s", wanted], ["shape"], axis=0),
        node("Shape", ["shape"], ["rank"]),
        node("ConstantOfShape", ["rank"], ["ones"], value=numpy_helper.from_array(np.array([1]))),
        node("Mul", ["ones", "minus"], ["holes"]),
        node("Equal", ["shape", "holes"], ["open"]),
        node("Where", ["open", "ones", "shape"], ["whole"]),
        node("Expand", ["triangle", "whole"], ["causal"]),
    ]


def _attention() -> list[onnx.NodeProto]:
    """4 heads of 8 on 2 KV heads: the cache is joined, repeated for the heads, multiplied."""
    repeat = [
        _constant("four", [0, KV_HEADS, HEADS // KV_HEADS, -1, WIDTH]),
        _constant("flat", [0, HEADS, -1, WIDTH]),
        _constant("split", [0, 0, -1, WIDTH]),
        _constant("third", [2]),
        _constant("group", [1, KV_HEADS, HEADS // KV_HEADS, 1, 1]),
    ]
    out = [*repeat, node("MatMul", ["x", "wq"], ["q"])]
    out += [node("Reshape", ["q", "split"], ["q4"]), node("Transpose", ["q4"], ["qh"], perm=[0, 2, 1, 3])]
    for side in ("key", "value"):
        a = side[0]
        out += [
            node("MatMul", ["x", f"w{a}"], [a]),
            node("Reshape", [a, "split"], [f"{a}4"]),
            node("Transpose", [f"{a}4"], [f"{a}h"], perm=[0, 2, 1, 3]),
            node("Concat", [f"past_{side}", f"{a}h"], [f"present_{side}"], axis=2),
            node("Unsqueeze", [f"present_{side}", "third"], [f"{a}5"]),
            node("Expand", [f"{a}5", "group"], [f"{a}r"]),
            node("Reshape", [f"{a}r", "flat"], [f"{a}all"]),
        ]
    return [
        *out,
        node("Transpose", ["kall"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["qh", "kt"], ["scores"]),
        node("Add", ["scores", "causal"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "vall"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        _constant("wide", [0, 0, HEADS * WIDTH]),
        node("Reshape", ["ot", "wide"], ["y"]),
    ]


def _model(hand: Make, *mask: str, width: int | str = "kv_cache_dim") -> Any:
    cache = [1, KV_HEADS, PAST, width]
    return hand(
        [*_sizes(), *_mask(*mask), *_attention()],
        {"x": [1, STEP, 32], "attention_mask": [1, TOTAL], "past_key": cache, "past_value": cache},
        ["y", "present_key", "present_value"],
        weights={"wq": [32, 32], "wk": [32, 16], "wv": [32, 16]},
        integer=["attention_mask"],
    )


@pytest.fixture
def square(hand: Make) -> Any:
    """Its mask is [s, s], expanded to [s, t]: right over an empty cache, or for one token."""
    return _model(hand, "s", "s", "t")


@pytest.fixture
def oblong(hand: Make) -> Any:
    """Its mask is [s, t]: right over any cache."""
    return _model(hand, "s", "t", "t")


PROJECTED = 32 * (32 + 16 + 16)
SLOT = HEADS * WIDTH * 2
"""MACs a token, and of each slot that it attends."""


def _both(model: Any) -> Trace:
    return model.trace(context=512, chunk=64)  # type: ignore[no-any-return]


def test_macs_of_both_phases(square: Any) -> None:
    """A token: 32 x 64 of the projections; 4 heads x 8 x 2 products a slot. 64 tokens over nothing attend 64 each."""
    trace = _both(square)
    assert trace.bind("decode", kv=99).macs == PROJECTED + 100 * SLOT
    assert trace.bind("prefill", kv=0, tokens=64).macs == 64 * PROJECTED + 64 * 64 * SLOT


@pytest.mark.parametrize("kv", [0, 1, 300])
def test_a_joined_cache_is_appended_to_and_read_once(square: Any, kv: int) -> None:
    """Keys and values of 2 KV heads x 8, 16-bit under int8: 64 B an entry. Two ops read it, one each: old entries come
    from the cache, the new one, which is written, from where it was made."""
    trace = square.trace(context=512, quant="int8")
    moved = trace.bind("decode", kv=kv).traffic()
    assert moved.get(("kv", False), 0) == 64 * kv
    assert moved["kv", True] == 64
    assert trace.header.kv_bytes_per_token == 64


def test_new_entries_are_read_where_they_were_made(square: Any) -> None:
    """The keys' Transpose on the CPU takes 10 old entries of 16 x 4 B from the cache, and the new one, 16 x 2 B of an
    activation, from what the projection left in DRAM."""
    trace = square.trace(context=512, fallback_ops=frozenset({"Transpose"}))
    phase = trace.phase("decode")
    (op,) = [op for op in phase.ops() if op.id == "kt"]
    at = evaluator(phase.basis)((10,), 1)
    assert {b: dot(c, at) for b, c in op.read.items()} == {"kv": 10 * 16 * 4, "spill:k": 16 * 2}


def test_keys_and_values_of_a_layer_are_one_cache(square: Any) -> None:
    trace = _both(square)
    assert trace.header.layers == 1
    (op,) = [op for op in trace.phase("decode").ops() if "kv" in op.write]
    assert op.type == "Concat+Concat"


def test_layers_of_one_cache_each_stay_apart(hand: Make) -> None:
    """The second layer's entries come from what the first made of its cache: the two are no keys and values."""
    nodes = [_constant("rows", [0, 1, -1, 8]), _constant("sum", [2]), node("Reshape", ["x", "rows"], ["h0"])]
    for j in range(2):
        nodes += [
            node("Concat", [f"past_{j}", f"h{j}"], [f"present_{j}"], axis=2),
            node("ReduceSum", [f"present_{j}", "sum"], [f"r{j}"]),
            node("Mul", [f"h{j}", f"r{j}"], [f"h{j + 1}"]),
        ]
    inputs = {"x": [1, STEP, 8], "past_0": [1, 1, PAST, 8], "past_1": [1, 1, PAST, 8]}
    trace = hand(nodes, inputs, ["h2", "present_0", "present_1"]).trace(context=512, quant="int8")
    assert trace.header.layers == 2
    moved = trace.bind("decode", kv=10).traffic()
    assert (moved["kv", False], moved["kv", True]) == (2 * 10 * 8 * 2, 2 * 8 * 2)


def test_a_fused_attention_reads_both_caches(square: Any, tmp_path: Path) -> None:
    """Products, mask and softmax in one op: what its parts read and write of the cache is all there."""
    path = tmp_path / "fused.yaml"
    path.write_text('about: of a test\nextends: "1.0"\nfusions: {attention: true}\n')
    core = load_machine("bpu80", {"machine.cores.toolchain": str(path)}).cores
    trace = compile_graph(square.graph(), core, Options(context=512, quant="int8"))
    assert any("MatMul+Add+Softmax+MatMul" in op.type for op in trace.phase("decode").ops())
    moved = trace.bind("decode", kv=300).traffic()
    assert (moved["kv", False], moved["kv", True]) == (64 * 300, 64)


def test_two_sequences_read_a_cache_each(square: Any) -> None:
    program = _both(square).bind("decode", kv=(10, 300))
    assert program.macs == 2 * PROJECTED + (11 + 301) * SLOT
    assert program.traffic()["kv", False] == 2 * 64 * 310  # fp32 as in the file


def test_a_square_mask_holds_over_an_empty_cache_only(square: Any) -> None:
    """It has no columns for what is in the cache, and says so; a step of one token needs none."""
    trace = _both(square)
    assert trace.phase("prefill").empty_cache
    assert not trace.phase("decode").empty_cache
    notes = trace.header.report["notes"]
    shapes = "[[tokens, tokens], [1, 1, tokens, kv + tokens]]"
    what = f"Expand 'causal': shapes do not broadcast: {shapes}; over an empty cache they do"
    assert f"prefill is for an empty cache: {what}" in notes
    with pytest.raises(TraceError, match="phase 'prefill' holds over an empty cache only, not behind 64 entries"):
        trace.bind("prefill", kv=64, tokens=64)


def test_a_mask_with_columns_for_the_cache_holds_over_any(oblong: Any) -> None:
    trace = _both(oblong)
    assert not trace.phase("prefill").empty_cache
    assert trace.bind("prefill", kv=100, tokens=64).macs == 64 * PROJECTED + 64 * 164 * SLOT
    assert not any("empty cache" in n for n in trace.header.report["notes"])


def test_what_is_known_of_the_mask_is_bookkeeping_and_the_rest_is_not_free(square: Any) -> None:
    """Ranges and their comparison are integers made of sizes; the fill is a stored number; the Where is work."""
    trace = _both(square)
    listed = trace.header.report["host_bookkeeping"]
    assert listed["Range"] == 2
    assert listed["Less"] == 1
    phase = trace.phase("prefill")
    (where,) = [op for op in phase.ops() if op.type == "Where"]
    assert dot(where.vec["add"], evaluator(phase.basis)((0,), 64)) == 64 * 64
    assert trace.header.report["cpu_fallbacks"] == {}
    assert trace.resident_bytes == PROJECTED * 4


def test_the_width_of_a_cache_follows_from_what_joins_it(hand: Make) -> None:
    unbound, bound = _both(_model(hand, "s", "s", "t")), _both(_model(hand, "s", "s", "t", width=WIDTH))
    assert unbound.phases == bound.phases
    assert (
        "the size 'kv_cache_dim' of a cache is taken from the entries that join it: 8"
        in (unbound.header.report["notes"])
    )


def test_a_cache_of_another_width_than_its_entries_is_an_error(hand: Make) -> None:
    """It alone: that the mask is for an empty cache is none."""
    with pytest.raises(CompileError) as caught:
        _both(_model(hand, "s", "s", "t", width=9))
    (problem,) = caught.value.problems
    assert problem.what.startswith("2 x Concat, first 'present_key': shapes do not concatenate along 2")


def test_shapes_that_conflict_over_an_empty_cache_too_are_an_error(hand: Make) -> None:
    """[s, t] does not go into [s, 7]."""
    seven = _model(hand, "s", "t", "seven")
    seven.proto.graph.initializer.append(numpy_helper.from_array(np.array([7]), "seven"))
    with pytest.raises(CompileError) as caught:
        _both(seven)
    (problem,) = caught.value.problems
    assert problem.what == "Expand 'causal': shapes do not broadcast: [[tokens, kv + tokens], [1, 1, tokens, 7]]"


def test_a_decode_step_over_an_empty_cache_only_is_an_error(hand: Make) -> None:
    """[s, 2 t - s] goes into [s, t] for kv = 0 alone: a decode step always has a past."""
    model = _model(hand, "s", "more", "t")
    at = next(j for j, n in enumerate(model.proto.graph.node) if n.output[0] == "square")
    for made in (node("Sub", ["twice", "s"], ["more"]), node("Add", ["t", "t"], ["twice"])):
        model.proto.graph.node.insert(at, made)
    with pytest.raises(CompileError) as caught:
        _both(model)
    (problem,) = caught.value.problems
    shapes = "[[1, 2*kv + 1], [1, 1, 1, kv + 1]]"
    assert problem.what == f"Expand 'causal': shapes do not broadcast: {shapes}; over an empty cache they do"


def test_the_rewrites_of_both_phases_are_verified(square: Any) -> None:
    """Run in onnx's evaluator: prefill over nothing, decode over some entries."""
    verifier = Verifier(square.proto)
    compile_graph(square.graph(), square.core, Options(context=512), verifier)
    assert {r.phase for r in verifier.rows if r.rule == "whole graph"} == {"prefill", "decode"}
    assert all(r.passed for r in verifier.rows), "\n".join(map(str, verifier.rows))


def test_a_concat_whose_result_is_no_output_is_a_copy(hand: Make) -> None:
    """Nobody keeps it: the past is read as an input, the whole is written."""
    inputs = {"new": [1, 2, STEP, 8], "past": [1, 2, PAST, 8]}
    model = hand([node("Concat", ["past", "new"], ["all"], axis=2), node("Relu", ["all"], ["y"])], inputs, ["y"])
    moved = model.trace(context=512).bind("decode", kv=10).traffic()
    assert not any(kind == "kv" for kind, _ in moved)
    assert moved["io", False] == (10 + 1) * 16 * 2


# --- what a step's sizes decide

COMPARED: dict[str, Callable[[int, int], int]] = {
    "Equal": operator.eq,
    "Less": operator.lt,
    "Greater": operator.gt,
    "LessOrEqual": operator.le,
    "GreaterOrEqual": operator.ge,
    "Min": min,
    "Max": max,
}
LINEAR = st.builds(
    lambda a, b, c: as_expr(a) + TOKENS * b + KV * c, st.integers(-3, 3), st.integers(-2, 2), st.integers(-2, 2)
)
POSITIONS = [(tokens, kv) for tokens in (1, 2, 3, 64) for kv in (0, 1, 2, 500)]


def _compared(kind: str, a: Expr, b: Expr) -> Expr | None:
    inputs: list[Value | None] = [Value((as_expr(1),), TensorProto.INT64, (e,)) for e in (a, b)]
    made = fold(Node(kind, "", "", ("a", "b"), ("y",), {}), inputs, {})
    return None if made is None or made.const is None else made.const[0]


def _at(e: Expr, tokens: int, kv: int) -> int:
    return dot(list(e.terms.values()), evaluator(list(e.terms))((kv,), tokens))


@given(st.sampled_from(sorted(COMPARED)), LINEAR, LINEAR)
def test_a_comparison_of_sizes_is_decided_only_as_it_comes_out_everywhere(kind: str, a: Expr, b: Expr) -> None:
    found = _compared(kind, a, b)
    seen = [COMPARED[kind](_at(a, *p), _at(b, *p)) for p in POSITIONS]
    if found is not None:
        assert [_at(found, *p) for p in POSITIONS] == [int(n) for n in seen]


@pytest.mark.parametrize(
    ("kind", "a", "b", "result"),
    [
        ("Equal", TOKENS, as_expr(-1), 0),
        ("Equal", KV, as_expr(-1), 0),
        ("Equal", KV + TOKENS, as_expr(0), 0),
        ("Equal", TOKENS, TOKENS, 1),
        ("Less", KV, KV + TOKENS, 1),
        ("GreaterOrEqual", KV, as_expr(0), 1),
        ("Max", TOKENS, as_expr(1), TOKENS),
        ("Min", KV + TOKENS, KV, KV),
        ("Equal", TOKENS, as_expr(1), None),
        ("Equal", KV, as_expr(0), None),
        ("Less", TOKENS, KV, None),
        ("Max", TOKENS, KV, None),
        ("Equal", Expr({"?n": 1}), as_expr(-1), None),
        ("And", TOKENS, as_expr(1), None),
    ],
)
def test_comparisons_of_sizes(kind: str, a: Expr, b: Expr, result: Expr | int | None) -> None:
    """One token or more, no entry or more: what holds for all of them is known, what does not is left open."""
    assert _compared(kind, a, b) == result


@pytest.mark.parametrize(
    ("start", "limit", "step", "entries"),
    [("zero", "t", "one", 12), ("s", "t", "one", 8), ("t", "zero", "minus", 12), ("one", "s", "one", 3)],
)
def test_a_range_of_sizes_has_as_many_entries_as_they_say(
    hand: Make, start: str, limit: str, step: str, entries: int
) -> None:
    """4 tokens behind 8 entries; cast and given out, so that 4 B each show."""
    nodes = [
        *(_constant(n, v) for n, v in (("zero", 0), ("one", 1), ("minus", -1), ("at", 2))),
        node("Shape", ["past"], ["p"]),
        node("Shape", ["x"], ["d"]),
        node("Gather", ["p", "at"], ["kv"], axis=0),
        node("Gather", ["d", "one"], ["s"], axis=0),
        node("Add", ["s", "kv"], ["t"]),
        node("Range", [start, limit, step], ["r"]),
        node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
        node("Relu", ["past"], ["z"]),
    ]
    model = hand(nodes, {"x": [1, STEP], "past": [1, 2, PAST, 8]}, ["y", "z"])
    moved = model.trace(context=512, chunk=4).bind("prefill", kv=8, tokens=4).traffic()
    assert moved["io", True] == 2 * (entries + 2 * 8 * 8)


@pytest.mark.parametrize("start", ["s", "at"])
def test_a_range_that_may_run_backwards_is_the_datas(hand: Make, start: str) -> None:
    """From the tokens, or from 2, up to the cache's entries: which is longer differs from step to step."""
    nodes = [
        *(_constant(n, v) for n, v in (("one", 1), ("at", 2))),
        node("Shape", ["past"], ["p"]),
        node("Shape", ["x"], ["d"]),
        node("Gather", ["p", "at"], ["kv"], axis=0),
        node("Gather", ["d", "one"], ["s"], axis=0),
        node("Range", [start, "kv", "one"], ["r"]),
        node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
        node("Relu", ["past"], ["z"]),
    ]
    model = hand(nodes, {"x": [1, STEP], "past": [1, 2, PAST, 8]}, ["y", "z"])
    with pytest.raises(CompileError, match="Range 'r': only the data decide the size of 'r'"):
        model.trace(context=512)


# --- activations that grow with the cache


def _grown(hand: Make, context: int, core: CoreSpec) -> Trace:
    """A row of 8 a token of the whole cache, in two steps: 16 B an entry."""
    nodes = [node("Relu", ["past"], ["a"]), node("Transpose", ["a"], ["y"], perm=[0, 2, 1, 3])]
    inputs = {"x": [1, STEP], "past": [1, 2, PAST, 8]}
    model = hand([*nodes, node("Relu", ["x"], ["z"])], inputs, ["y", "z"])
    return compile_graph(model.graph(), core, Options(context=context))


def test_what_grows_with_the_cache_stays_on_chip_if_it_does_over_a_full_one(hand: Make, core: CoreSpec) -> None:
    """32 B an entry and two of them live at once: 64 B, and 8 B of the other input and result."""
    room = core.activations
    fits, beyond = room // 64 - 64, room // 32 + 1
    assert not _grown(hand, fits, core).bind("decode", kv=5).traffic().get(("spill", True))
    spilled = _grown(hand, beyond, core)
    assert spilled.bind("decode", kv=5).traffic()["spill", True] == 5 * 32
    assert spilled.header.workspace >= beyond * 32


CORE = machine_preset("bpu80").cores


@given(st.integers(1, 500), st.integers(0, 500), st.integers(0, 3000))
def test_loose_elements_share_passes(each: int, fixed: int, kv: int) -> None:
    """A pass takes as many as there are lanes. Old and new ones have passes of their own, and the old ones' last passes
    are as many as an entry has blocks that share a pass with others."""
    lanes, unit = CORE.vector.lanes, CORE.vector.cost("add")
    cycles, _ = Target(CORE, "int16", 1).vector([VecWork({"add": 1}, KV * each + fixed)])
    passes = _at(cycles, 1, kv) // unit
    assert passes >= -(-(each * kv + fixed) // lanes)
    assert passes <= -(-fixed // lanes) + each * kv // lanes + each // gcd(each, lanes)


@pytest.mark.parametrize(("each", "passes"), [(1, 2), (2, 4), (64, 100), (128, 200), (96, 150), (3, 6)])
def test_passes_over_what_grows(each: int, passes: int) -> None:
    """64 lanes, 100 entries: of 96 each, 3 blocks of 32 go two by two: 3 x 50."""
    assert CORE.vector.lanes == 64
    cycles, _ = Target(CORE, "int16", 1).vector([VecWork({"add": 1}, KV * each)])
    assert _at(cycles, 1, 100) == passes * CORE.vector.cost("add")
