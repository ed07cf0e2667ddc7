"""What the front end takes apart: functions, control flow, sizes, known integers, data files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from input_cases import FLOAT, INT64, external, floats, model, node, product, stored, value
from onnx import AttributeProto, ModelProto, TensorProto, helper

from bpusim.cli import main
from bpusim.compiler import Options, compile_graph, compile_model, load_graph
from bpusim.compiler.analyse import Analysis, analyse
from bpusim.compiler.symbols import bind, expression
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec
from bpusim.trace import Trace

BOOL = TensorProto.BOOL


@pytest.fixture
def trace(core: CoreSpec) -> Callable[..., Trace]:
    """``trace(proto, bind=...)``."""
    return lambda proto, **options: compile_graph(load_graph(proto, "m.onnx", ""), core, Options(**options))


def refusal(trace: Callable[..., Trace], proto: ModelProto, **options: Any) -> list[str]:
    """What is wrong with a model, and what to do, a line each."""
    with pytest.raises(CompileError) as caught:
        trace(proto, **options)
    return [f"{p.what}; {p.do}" if p.do else p.what for p in caught.value.problems]


def analysis(proto: ModelProto, **bound: int) -> Analysis:
    graph = load_graph(proto, "m.onnx", "")
    return analyse(graph, bind(graph, bound, {}, {}), {}, frozenset(), False)


def macs(made: Trace) -> int:
    return made.bind("frame").macs


def io(x: list[Any], y: list[Any]) -> tuple[list[Any], list[Any]]:
    return [value("x", FLOAT, x)], [value("y", FLOAT, y)]


W8 = stored("w", floats(8, 8))


# --- functions


def _function(name: str, nodes: list[Any], inputs: list[str], outputs: list[str], attributes: Any = ()) -> Any:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, inputs, outputs, nodes, imports, list(attributes))


def test_functions_in_functions_are_inlined(trace: Callable[..., Trace]) -> None:
    """Two calls of a function that calls another twice: four products of 8 x 8; inner names are used again."""
    inner = _function("Inner", [node("MatMul", ["a", "b"], ["t"]), node("Relu", ["t"], ["r"])], ["a", "b"], ["r"])
    calls = [node("Inner", ["a", "b"], ["t"], domain="f"), node("Inner", ["t", "b"], ["r"], domain="f")]
    outer = _function("Outer", calls, ["a", "b"], ["r"])
    nodes = [
        node("Outer", ["x", "w"], ["m"], domain="f", name="o"),
        node("Outer", ["m", "w"], ["y"], domain="f", name="o"),
    ]
    made = trace(model(nodes, *io([1, 8], [1, 8]), [W8], domains=["f"], functions=[outer, inner]))
    assert (macs(made), made.resident_bytes) == (4 * 64, 256)
    assert trace(model(nodes, *io([1, 8], [1, 8]), [W8], domains=["f"], functions=[inner, outer])) == made


def test_a_call_gives_a_function_its_attributes(trace: Callable[..., Trace]) -> None:
    """``perm`` of the caller: [2, 3, 4] becomes [4, 2, 3]."""
    turn = node("Transpose", ["a"], ["r"])
    turn.attribute.add(name="perm", ref_attr_name="order", type=AttributeProto.INTS)
    function = _function("Turn", [turn], ["a"], ["r"], ["order"])
    proto = model([node("Turn", ["x"], ["y"], domain="f", order=[2, 0, 1])], *io([2, 3, 4], [4, 2, 3]), domains=["f"],
                  functions=[function])  # fmt: skip
    assert [int(d) for d in analysis(proto).values["y"].dims] == [4, 2, 3]


def test_a_function_that_calls_itself_is_refused(trace: Callable[..., Trace]) -> None:
    function = _function("Again", [node("Again", ["a"], ["r"], domain="f", name="deep")], ["a"], ["r"])
    proto = model([node("Again", ["x"], ["y"], domain="f")], *io([2], [2]), domains=["f"], functions=[function])
    assert refusal(trace, proto) == ["function f::Again calls itself, by node 'deep'; export the model again"]


def test_a_function_sees_nothing_of_the_graph_around_it(trace: Callable[..., Trace]) -> None:
    function = _function("Peek", [node("Add", ["a", "w"], ["r"], name="sum")], ["a"], ["r"])
    proto = model([node("Peek", ["x"], ["y"], domain="f", name="p")], *io([8, 8], [8, 8]), [W8], domains=["f"],
                  functions=[function])  # fmt: skip
    assert refusal(trace, proto) == ["input 'p/w' of Add 'p/sum' is made by nothing; export the model again"]


# --- control flow


def _if(condition: list[Any], then: list[Any], other: list[Any], inputs: list[Any]) -> ModelProto:
    out = [helper.make_empty_tensor_value_info("o")]
    branches = {
        "then_branch": helper.make_graph(then, "t", [], out),
        "else_branch": helper.make_graph(other, "e", [], out),
    }
    nodes = [*condition, node("If", ["c"], ["y"], name="sel", **branches)]
    return model(nodes, inputs, [helper.make_empty_tensor_value_info("y")], [W8])


def test_a_branch_is_chosen_by_a_bound_value(trace: Callable[..., Trace]) -> None:
    """``rate == 16000`` decides, with names that both branches and the graph use."""
    condition = [node("Constant", [], ["k"], value_int=16000), node("Equal", ["rate", "k"], ["c"])]
    then = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w"], ["o"])]
    other = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["o"])]
    proto = _if(condition, then, other, [value("x", FLOAT, [1, 8]), value("rate", INT64, [])])
    assert [macs(trace(proto, bind={"rate": rate})) for rate in (16000, 8000)] == [128, 64]
    assert trace(proto, bind={"rate": 8000}).header.report["taken"] == {
        "If 'sel'": "else, its condition is known",
        "input 'rate'": "8000, bound",
    }
    assert refusal(trace, proto) == [
        "If 'sel': its condition 'c' is not known before the run; "
        "add --bind rate=NUMBER, or --assume sel=then (or else)"
    ]


def test_a_condition_on_data_can_only_be_assumed(trace: Callable[..., Trace]) -> None:
    condition = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Cast", ["s"], ["c"], to=BOOL)]
    proto = _if(condition, [node("MatMul", ["x", "w"], ["o"])], [node("Relu", ["x"], ["o"])], io([1, 8], [])[0])
    assert refusal(trace, proto) == [
        "If 'sel': its condition 'c' is not known before the run; add --assume sel=then (or else)"
    ]
    assert macs(trace(proto, assume={"sel": "then"})) == 64


@pytest.mark.parametrize(
    ("assume", "message"),
    [
        ({"sel": "both"}, "If 'sel': --assume sel=both: an If takes then or else"),
        ({"sell": "then"}, "--assume sell: the model has no such node; did you mean 'sel'?"),
    ],
)
def test_an_assumption_that_cannot_be(trace: Callable[..., Trace], assume: dict[str, str], message: str) -> None:
    proto = _if(
        [], [node("Relu", ["x"], ["o"])], [node("Relu", ["x"], ["o"])], [*io([1, 8], [])[0], value("c", BOOL, [])]
    )
    assert any(line.startswith(message) for line in refusal(trace, proto, assume=assume))


def test_an_assumption_of_what_is_known_is_refused(trace: Callable[..., Trace]) -> None:
    proto = _if(
        [], [node("Relu", ["x"], ["o"])], [node("Relu", ["x"], ["o"])], [*io([1, 8], [])[0], value("c", BOOL, [])]
    )
    assert refusal(trace, proto, bind={"c": 1}, assume={"sel": "then"}) == [
        "--assume sel: nothing is unknown of this node, or it is not reached; leave it out"
    ]


def _loop(nodes: list[Any], go: Any, scan: bool = False, trips: str = "trip") -> ModelProto:
    """Nodes make ``t`` of the state ``s``; ``go`` makes ``on``; the state is collected too if ``scan``."""
    body_in = [value("i", INT64, []), value("going", BOOL, []), value("s", FLOAT, [1, 8])]
    body_out = [value("on", BOOL, []), value("t", FLOAT, [1, 8])] + ([value("t2", FLOAT, [1, 8])] if scan else [])
    extra = [node("Identity", ["t"], ["t2"])] if scan else []
    body = helper.make_graph([*nodes, go, *extra], "body", body_in, body_out)
    outputs = ["y", "all"] if scan else ["y"]
    weights = [W8, stored("true", np.array(True)), stored("trip", np.int64(3)), stored("two", np.int64(2))]
    loop = node("Loop", [trips, "true", "x"], outputs, name="lp", body=body)
    return model([loop], io([1, 8], [])[0], [helper.make_empty_tensor_value_info(o) for o in outputs], weights)


STEP = node("MatMul", ["s", "w"], ["t"], name="mm")
ON = node("Identity", ["going"], ["on"])


def test_results_of_all_passes_are_laid_side_by_side(trace: Callable[..., Trace]) -> None:
    """Three results of [1, 8] make [3, 1, 8]."""
    proto = _loop([STEP], ON, scan=True)
    assert [int(d) for d in analysis(proto).values["all"].dims] == [3, 1, 8]
    assert macs(trace(proto)) == 3 * 64


def test_a_loop_ends_when_its_condition_is_known_to_be_false(trace: Callable[..., Trace]) -> None:
    """``i < 2`` holds in passes 0 and 1; pass 2 is the last."""
    proto = _loop([STEP], node("Less", ["i", "two"], ["on"]), trips="")
    made = trace(proto)
    assert (macs(made), made.header.report["taken"]) == (3 * 64, {"Loop 'lp'": "3 passes, known"})


def test_a_loop_that_the_data_end_is_not_guessed(trace: Callable[..., Trace]) -> None:
    """Even a known trip count is only a bound then."""
    ends = node("Cast", ["sum"], ["on"], to=BOOL)
    proto = _loop([STEP, node("ReduceSum", ["t"], ["sum"], keepdims=0)], ends)
    (line,) = refusal(trace, proto)
    assert line == "Loop 'lp': whether it goes on ('on.0') is not known before the run; add --assume lp=NUMBER"
    assert macs(trace(proto, assume={"lp": "2"})) == 2 * 64


def test_a_loop_in_a_loop(trace: Callable[..., Trace]) -> None:
    """Three times two products; the inner state starts at the outer one each time."""
    inner = helper.make_graph(
        [node("MatMul", ["q", "w"], ["r"], name="mm"), node("Identity", ["g"], ["h"])],
        "inner",
        [value("j", INT64, []), value("g", BOOL, []), value("q", FLOAT, [1, 8])],
        [value("h", BOOL, []), value("r", FLOAT, [1, 8])],
    )
    proto = _loop([node("Loop", ["two", "true", "s"], ["t"], name="in", body=inner)], ON)
    made = trace(proto)
    assert (macs(made), made.resident_bytes) == (6 * 64, 256)


def test_an_if_in_a_loop_is_assumed_once_for_all_passes(trace: Callable[..., Trace]) -> None:
    out = [helper.make_empty_tensor_value_info("o")]
    then = helper.make_graph([node("MatMul", ["s", "w"], ["o"])], "t", [], out)
    other = helper.make_graph([node("Relu", ["s"], ["o"])], "e", [], out)
    nodes = [
        node("ReduceSum", ["s"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["c"], to=BOOL),
        node("If", ["c"], ["t"], name="sel", then_branch=then, else_branch=other),
    ]
    assert macs(trace(_loop(nodes, ON), assume={"sel": "then"})) == 3 * 64


def test_a_loop_of_too_many_passes_is_refused_at_once(trace: Callable[..., Trace]) -> None:
    proto = _loop([STEP], ON)
    proto.graph.initializer[2].CopyFrom(stored("trip", np.int64(10**9)))
    assert refusal(trace, proto) == [
        "Loop 'lp': 1000000000 passes of 2 nodes; at most 100000 nodes are unrolled; "
        "bind or assume a smaller count, and scale the result"
    ]


def test_an_empty_loop_without_end_is_refused(trace: Callable[..., Trace]) -> None:
    """Its condition is its own input, its state is handed through: no node in it ever runs."""
    state = [value("s", FLOAT, [1, 8])]
    flags = [value("going", BOOL, [])]
    body = helper.make_graph([], "body", [value("i", INT64, []), *flags, *state], [*flags, *state])
    loop = node("Loop", ["", "true", "x"], ["y"], name="lp", body=body)
    proto = model([loop], *io([1, 8], [1, 8]), [stored("true", np.array(True))])
    assert refusal(trace, proto) == [
        "more than 100000 nodes once loops are unrolled; bind or assume a smaller trip count"
    ]


def test_a_loop_of_no_pass_hands_its_state_through(trace: Callable[..., Trace]) -> None:
    body = _loop([STEP], ON, scan=True)
    body.graph.initializer[2].CopyFrom(stored("trip", np.int64(0)))
    made = analysis(body)
    assert [int(d) for d in made.values["y"].dims] == [1, 8]
    assert [int(d) for d in made.values["all"].dims] == [0, 1, 8]


def test_a_scan_takes_one_pass_an_element(trace: Callable[..., Trace]) -> None:
    """Five rows of 8 along axis 1, each by an 8 x 8 matrix and added to the state; results come back on axis 0."""
    body = helper.make_graph(
        [node("MatMul", ["row", "w"], ["p"]), node("Add", ["s", "p"], ["t"]), node("Identity", ["p"], ["q"])],
        "body",
        [value("s", FLOAT, [2, 8]), value("row", FLOAT, [2, 8])],
        [value("t", FLOAT, [2, 8]), value("q", FLOAT, [2, 8])],
    )
    scan = node("Scan", ["s0", "x"], ["y", "all"], body=body, num_scan_inputs=1, scan_input_axes=[1], name="sc")
    inputs = [value("s0", FLOAT, [2, 8]), value("x", FLOAT, [2, "n", 8])]
    proto = model([scan], inputs, [helper.make_empty_tensor_value_info(o) for o in ("y", "all")], [W8])
    assert macs(trace(proto, bind={"n": 5})) == 5 * 2 * 64
    assert [int(d) for d in analysis(proto, n=5).values["all"].dims] == [5, 2, 8]
    assert refusal(trace, proto) == [
        "the size 'n' is not bound; add --bind n=NUMBER, or the input's whole shape: --bind x=2xNx8"
    ]


def test_a_scan_over_weights_reads_each_part_once(trace: Callable[..., Trace]) -> None:
    """Five 8 x 8 matrices, one a pass: 5 x 64 products and 5 x 256 B, not five times all."""
    body = helper.make_graph(
        [node("MatMul", ["s", "m"], ["t"], name="mm")],
        "body",
        [value("s", FLOAT, [1, 8]), value("m", FLOAT, [8, 8])],
        [value("t", FLOAT, [1, 8])],
    )
    scan = node("Scan", ["x", "w5"], ["y"], body=body, num_scan_inputs=1)
    made = trace(model([scan], *io([1, 8], [1, 8]), [stored("w5", floats(5, 8, 8))]))
    assert (macs(made), made.resident_bytes) == (5 * 64, 5 * 256)
    assert made.bind("frame").traffic()["weights", False] == 5 * 256


# --- sizes


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("past + seq", 11),
        ("past_sequence_length + 1", None),
        ("2*seq", 6),
        ("floor(past/seq)", 2),
        ("(past - 1)//seq + 1", 3),
        ("ceil(past/seq)", 3),
        ("max(past, seq)", 8),
        ("Mod(past, 3)", 2),
        ("-seq + past", 5),
        ("past/4", 2),
    ],
)
def test_expressions_of_sizes(text: str, result: int | None) -> None:
    graph = load_graph(model([node("Relu", ["x"], ["y"])], *io(["past", "seq"], [])), "m.onnx", "")
    bound = bind(graph, {"past": 8, "seq": 3}, {}, {})
    size = bound.size(text, "")
    assert size == result if result is not None else "?past_sequence_length" in size.terms


@pytest.mark.parametrize(
    "name", ["p2o.DynamicDimension.1", "Squeeze/decoder/out_dim_0", "batch-size", "a:0", "x[0]", "("]
)
def test_names_that_are_no_expressions(name: str) -> None:
    assert expression(name, frozenset()) is None


def test_a_division_that_leaves_a_rest_asks_for_a_number(trace: Callable[..., Trace]) -> None:
    proto = model([node("Relu", ["x"], ["y"])], *io(["n", "(n + 1) / 2"], []))
    assert refusal(trace, proto, bind={"n": 2}) == [
        "the size '(n + 1) / 2' has no whole value; bind it: --bind \"(n + 1) / 2=NUMBER\""
    ]
    assert trace(proto, bind={"n": 3}).bind("frame").traffic()["io", False] == 3 * 2 * 2


def test_a_shape_binds_the_symbols_of_other_inputs(trace: Callable[..., Trace]) -> None:
    inputs = [value("x", FLOAT, ["n", 8]), value("z", FLOAT, ["n", 8])]
    proto = model([node("Add", ["x", "z"], ["y"])], inputs, [helper.make_empty_tensor_value_info("y")])
    (op,) = trace(proto, shapes={"x": (3, 8)}).phase("frame").ops()
    assert op.vec == {"add": (24,)}
    assert refusal(trace, proto, shapes={"x": (3, 8), "z": (4, 8)}) == [
        "--bind z=4x8: the size 'n' is 3 by --bind x=3x8"
    ]


def test_one_number_is_the_shape_of_an_input_of_one_dimension(trace: Callable[..., Trace]) -> None:
    made = trace(model([node("Relu", ["x"], ["y"])], *io([None], [])), bind={"x": 512})
    assert made.bind("frame").traffic()["io", False] == 1024


def test_an_input_without_a_stated_shape(trace: Callable[..., Trace]) -> None:
    inputs = [helper.make_tensor_value_info("x", FLOAT, None)]
    proto = model([node("MatMul", ["x", "w"], ["y"])], inputs, io([], [])[1], [W8])
    assert refusal(trace, proto) == ["the file does not state the shape of input 'x'; give it: --bind x=1x3x224x224"]
    assert macs(trace(proto, shapes={"x": (5, 8)})) == 320


def test_what_is_bound_must_be_a_size_or_a_value(trace: Callable[..., Trace]) -> None:
    proto = model([node("Relu", ["x"], ["y"])], *io(["n", 8], []))
    assert refusal(trace, proto, bind={"x": 3, "n": -1, "m": 2}) == [
        "--bind x=3: the input is float ['n', 8]; one number is its shape or value only if it has one dimension, or is "
        "one integer; write --bind x=Nx8",
        "--bind n=-1: a size is 0 or more; write --bind n=NUMBER",
        "the model has no size called 'm'; known: n, x",
    ]


# --- known integers


def _steered(nodes: list[Any], dims: list[Any], weights: list[TensorProto]) -> list[int]:
    """The dims that ``shape``, made by ``nodes``, gives a reshaped ``x``."""
    proto = model([*nodes, node("Reshape", ["x", "shape"], ["y"])], *io(dims, []), weights)
    return [int(d) for d in analysis(proto).values["y"].dims]


def test_a_pads_detour_is_worked_out() -> None:
    """What torch writes for a pad: reshape, reverse, transpose, flatten: pairs of [1, 2, 3, 4] make [3, 1, 4, 2]."""
    numbers = stored("p", np.array([1, 2, 3, 4]))
    more = [stored("two", np.array([-1, 2])), stored("flat", np.array([-1]))]
    more += [stored(n, np.array(v)) for n, v in (("a", [-1]), ("b", [np.iinfo(np.int64).min]), ("z", [0]), ("s", [-1]))]
    nodes = [
        node("Reshape", ["p", "two"], ["q"]),
        node("Slice", ["q", "a", "b", "z", "s"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[1, 0]),
        node("Reshape", ["t", "flat"], ["u"]),
        node("Cast", ["u"], ["shape"], to=INT64),
    ]
    assert _steered(nodes, [24], [numbers, *more]) == [3, 1, 4, 2]


def test_shape_arithmetic_of_many_kinds() -> None:
    """[4, 6]: 4 * 6 / 3 = 8 by where(4 > 5, 0, 3)."""
    weights = [stored("three", np.array(3)), stored("five", np.array(5)), stored("zero", np.array(0))]
    nodes = [
        node("Shape", ["x"], ["d"]),
        node("Size", ["x"], ["n"]),
        node("Div", ["n", "three"], ["eight"]),
        node("Split", ["d"], ["four", "six"], axis=0),
        node("Greater", ["four", "five"], ["no"]),
        node("Where", ["no", "zero", "three"], ["t"]),
        node("Constant", [], ["axes"], value_ints=[0]),
        node("Unsqueeze", ["eight", "axes"], ["e"]),
        node("Concat", ["e", "t"], ["shape"], axis=0),
    ]
    assert _steered(nodes, [4, 6], weights) == [8, 3]


def test_weights_turned_by_constants_stay_weights(trace: Callable[..., Trace]) -> None:
    """A small integer matrix is data, not a shape: its bytes are read."""
    weight = TensorProto(name="q", dims=[8, 4], data_type=TensorProto.INT8, raw_data=bytes(32))
    nodes = [
        node("Transpose", ["q"], ["t"], perm=[1, 0]),
        node("Transpose", ["t"], ["u"], perm=[1, 0]),
        node("DequantizeLinear", ["u", "s"], ["w"]),
        node("MatMul", ["x", "w"], ["y"]),
    ]
    made = trace(model(nodes, *io([1, 8], [1, 4]), [weight, stored("s", np.float32(1))]))
    assert (made.resident_bytes, macs(made)) == (32, 32)


def test_weights_in_constant_nodes_and_behind_views(trace: Callable[..., Trace]) -> None:
    nodes = [
        node("Constant", [], ["c"], value=stored("any", floats(4, 16))),
        node("Reshape", ["c", "d"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[1, 0]),
        node("MatMul", ["x", "t"], ["y"]),
    ]
    made = trace(model(nodes, *io([1, 8], [1, 8]), [stored("d", np.array([8, 8]))]))
    assert (made.resident_bytes, macs(made)) == (256, 64)


# --- data files


def _beside(folder: Path, tensor: TensorProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(product([1, 64], [64, 64], [1, 64], tensor).SerializeToString())
    return path


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, core: CoreSpec) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "secret").write_bytes(bytes(16_384))
    os.symlink("../secret", tmp_path / "home" / "w.data")
    with pytest.raises(CompileError, match=r"data location 'w\.data' is a link out of the model's folder"):
        compile_model(_beside(tmp_path / "home", external([64, 64], "w.data")), core)


@pytest.mark.parametrize("location", ["C:\\w.data", "\\\\host\\w.data", "a\\..\\..\\w.data", "a/../../w.data"])
def test_paths_of_other_systems_are_refused(tmp_path: Path, core: CoreSpec, location: str) -> None:
    with pytest.raises(CompileError, match="nothing is opened there"):
        compile_model(_beside(tmp_path, external([64, 64], location)), core)


def test_a_data_file_that_is_a_pointer_is_as_good_as_missing(tmp_path: Path, core: CoreSpec) -> None:
    (tmp_path / "w.data").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 16384\n")
    told: list[str] = []
    path = _beside(tmp_path, external([64, 64], "w.data"))
    assert compile_model(path, core, warn=told.append).resident_bytes == 16_384
    assert told == [
        "data file 'w.data' is a Git LFS pointer (git lfs pull fetches the data): 1 tensor, first 'w'; "
        "sizes are from the dims"
    ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"length": 100}, "tensor 'w': the file states offset None, 100 bytes; its dims need 16384 bytes"),
        ({"offset": -4}, "tensor 'w': the file states offset -4, None bytes; its dims need 16384 bytes"),
    ],
)
def test_an_entry_that_cannot_be(tmp_path: Path, core: CoreSpec, more: dict[str, int], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile_model(_beside(tmp_path, external([64, 64], "w.data", **more)), core)


def test_every_bad_location_is_told_at_once(tmp_path: Path, core: CoreSpec) -> None:
    proto = product([1, 64], [64, 64], [1, 64], external([64, 64], "/w"))
    other = external([64, 64], "../v")
    other.name = "v"
    inner = helper.make_graph([node("MatMul", ["x", "v"], ["o"])], "t", [], [value("o", FLOAT, [1, 64])], [other])
    proto.graph.node.append(node("If", ["c"], ["z"], then_branch=inner, else_branch=inner))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(CompileError) as caught:
        compile_model(tmp_path / "m.onnx", core)
    assert [p.what.partition(":")[0] for p in caught.value.problems] == ["tensor 'w'", "tensor 'v'", "tensor 'v'"]


# --- real files


@pytest.mark.parametrize("side", [640, 960])
def test_the_text_detector(export: Callable[[str], Path], core: CoreSpec, side: int) -> None:
    """Its weights are Constant nodes, its sizes have dots in their names.

    All maps divide by 32, so MACs are ``a (side / 32)^2 + c`` with whole a and c: 5,754,560 and 111,744 here.
    """
    path = export("vision/ppocrv4-det.onnx")
    sizes = {f"p2o.DynamicDimension.{i}": n for i, n in enumerate((1, side, side))}
    by_name = compile_model(path, core, Options(bind=sizes))
    assert macs(by_name) == 5_754_560 * (side // 32) ** 2 + 111_744
    assert compile_model(path, core, Options(shapes={"x": (1, 3, side, side)})).phases == by_name.phases


def test_the_voice_activity_model(export: Callable[[str], Path], core: CoreSpec) -> None:
    """Nested Ifs fold once the shapes and the rate are bound; the LSTM of 128 is one step of 2 x 128 x 512 products."""
    path = export("audio/silero-vad.onnx")
    bound = {"shapes": {"input": (1, 512), "state": (2, 1, 128)}, "bind": {"sr": 16000}}
    made = compile_model(path, core, Options(**bound))  # type: ignore[arg-type]
    assert len(made.header.report["taken"]) == 8
    lstm = [op for op in made.phase("frame").ops() if "LSTM" in op.type]
    assert [op.macs for op in lstm] == [(2 * 128 * 512,)]
    with pytest.raises(CompileError) as caught:
        compile_model(path, core)
    assert [p.what for p in caught.value.problems] == [
        "the size 'input[0]' is not bound",
        "the size 'input[1]' is not bound",
        "the size 'state[1]' is not bound",
        "If 'If_0': its condition 'Equal_0_C' is not known before the run",
    ]


# --- sizes over floats, old forms


def test_a_size_multiplied_by_a_scale_is_known() -> None:
    """What torch writes for an interpolation: 7 rows x 1.5, rounded down, are 10."""
    names = {"zero": np.array(0), "scale": np.float32(1.5), "first": np.array([0]), "keep": np.array([1, 2])}
    weights = [stored(n, v) for n, v in names.items()]
    nodes = [
        node("Shape", ["x"], ["d"]),
        node("Constant", [], ["two"], value_int=2),
        node("Gather", ["d", "two"], ["h"]),
        node("Cast", ["h"], ["f"], to=FLOAT),
        node("Mul", ["f", "scale"], ["g"]),
        node("Floor", ["g"], ["k"]),
        node("Cast", ["k"], ["n"], to=INT64),
        node("Unsqueeze", ["n", "first"], ["u"]),
        node("Concat", ["keep", "u", "u"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest"),
    ]
    made = analysis(model(nodes, *io([1, 2, 7, 7], []), weights))
    assert [int(d) for d in made.values["y"].dims] == [1, 2, 10, 10]


def test_a_scale_of_scores_from_a_size_is_host_work(trace: Callable[..., Trace]) -> None:
    """The root of the head's width: known before the run, no op of its own."""
    nodes = [
        node("Shape", ["x"], ["d"], start=1),
        node("Cast", ["d"], ["f"], to=FLOAT),
        node("Sqrt", ["f"], ["r"]),
        node("Div", ["x", "r"], ["y"]),
    ]
    (op,) = trace(model(nodes, *io([2, 16], [2, 16]))).phase("frame").ops()
    assert (op.type, op.vec) == ("Div", {"div": (32,)})


def test_stored_floats_are_not_worked_out(trace: Callable[..., Trace]) -> None:
    """A small bias stays a weight that is read."""
    made = trace(model([node("Add", ["x", "b"], ["y"])], *io([1, 8], [1, 8]), [stored("b", floats(8))]))
    assert made.bind("frame").traffic()["weights", False] == 32


def test_a_slope_for_each_channel_in_the_old_form(trace: Callable[..., Trace]) -> None:
    proto = model([node("PRelu", ["x", "s"], ["y"])], *io([2, 3, 4], [2, 3, 4]), [stored("s", floats(3))], opset=6)
    assert [int(d) for d in analysis(proto).values["y"].dims] == [2, 3, 4]


def test_a_cast_to_a_type_by_name(trace: Callable[..., Trace]) -> None:
    proto = model([node("Cast", ["x"], ["y"], to="INT64")], *io([2, 3], []), opset=5)
    assert analysis(proto).values["y"].dtype == INT64
    assert trace(proto).header.report["notes"] == [
        "the model is written for opset 5 of ai.onnx; forms are known from 6 on"
    ]


def test_an_input_that_steers_a_shape_can_be_bound(trace: Callable[..., Trace]) -> None:
    inputs = [value("x", FLOAT, [8, 16]), value("k", INT64, [1])]
    outputs = [helper.make_empty_tensor_value_info(o) for o in ("best", "at")]
    proto = model([node("TopK", ["x", "k"], ["best", "at"])], inputs, outputs)
    assert refusal(trace, proto) == [
        "TopK 'best': input 1 'k' steers the shape, but is not known before the run; add --bind k=NUMBER"
    ]
    assert [int(d) for d in analysis(proto, k=5).values["best"].dims] == [8, 5]


def test_a_list_of_tensors_is_no_input(trace: Callable[..., Trace]) -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    proto = model([node("SequenceLength", ["x"], ["y"])], [helper.make_value_info("x", kind)], [value("y", INT64, [])])
    assert "input 'x' is a list or an optional, no tensor; cut it off with --until" in refusal(trace, proto)


def test_tensors_of_one_value_are_no_twins(trace: Callable[..., Trace]) -> None:
    """Zeros stand for weights that were left out."""
    weights = [stored(n, np.zeros((256, 256), np.float32)) for n in ("v", "w")]
    nodes = [node("MatMul", ["x", "v"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    assert "notes" not in trace(model(nodes, *io([1, 256], [1, 256]), weights)).header.report


# --- the command


def _run(folder: Path, proto: ModelProto, *arguments: str) -> tuple[int, list[str]]:
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    command = ["compile", str(folder / "m.onnx"), "-o", str(folder / "m.trace"), *arguments]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    return done.exit_code, done.output.splitlines()


def test_the_command_assumes_binds_and_tells(tmp_path: Path) -> None:
    condition = [node("Less", ["rate", "zero"], ["c"])]
    proto = _if(condition, [node("MatMul", ["x", "w"], ["o"])], [node("Relu", ["x"], ["o"])], io([1, 8], [])[0])
    proto.graph.input.append(value("rate", INT64, []))
    proto.graph.initializer.append(stored("zero", np.array(0)))
    code, lines = _run(tmp_path, proto, "--bind", "rate=-1")
    assert (code, lines[2:4]) == (0, ["  If 'sel': then, its condition is known", "  input 'rate': -1, bound"])
    code, lines = _run(tmp_path, proto, "--assume", "sel=else")
    assert (code, lines[2]) == (0, "  If 'sel': else, assumed")
    assert _run(tmp_path, proto)[0] == 2


def test_the_command_warns_of_missing_data(tmp_path: Path) -> None:
    code, lines = _run(tmp_path, product([1, 64], [64, 64], [1, 64], external([64, 64], "w.data")))
    assert code == 0
    assert lines[-1] == "  warning: data file 'w.data' is not there: 1 tensor, first 'w'; sizes are from the dims"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--assume", "sel"], "--assume sel: says nothing of a node; write NODE=then, or NODE=10"),
        (["--assume", "a=1", "--assume", "a=2"], "--assume a=2: 'a' is assumed twice; say it once"),
        (["--bind", "n=1", "--bind", "n=2"], "--bind n=2: 'n' is bound twice; bind it once"),
        (["--bind", "n=-"], "--bind n=-: not a size; write NAME=64, or INPUT=1x3x224x224"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, arguments: list[str], message: str) -> None:
    code, lines = _run(tmp_path, model([node("Relu", ["x"], ["y"])], *io(["n"], [])), *arguments)
    assert (code, lines) == (2, [f"error: {message}"])


def test_a_name_that_is_no_text(tmp_path: Path, core: CoreSpec) -> None:
    data = model([node("Relu", ["x"], ["y"], name="abcd")], *io([2], [2])).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data.replace(b"abcd", b"ab\xff\xfe"))
    with pytest.raises(CompileError, match="the file is damaged: a name in it is not UTF-8 text"):
        compile_model(tmp_path / "m.onnx", core)


# --- names used twice


def test_a_tensor_stored_twice(trace: Callable[..., Trace]) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], *io([1, 8], [1, 8]), [W8, W8])
    assert refusal(trace, proto) == ["tensor 'w' is stored twice; export the model again"]


def test_a_tensor_stored_and_made(trace: Callable[..., Trace]) -> None:
    nodes = [node("Relu", ["x"], ["w"], name="r"), node("MatMul", ["x", "w"], ["y"])]
    assert refusal(trace, model(nodes, *io([8, 8], [8, 8]), [W8])) == ["tensor 'w' is stored, and made by Relu 'r'"]


def test_an_inner_graph_may_use_the_names_around_it_again(trace: Callable[..., Trace]) -> None:
    """Its own ``w`` of 8 x 4 hides the 8 x 8 outside."""
    out = [helper.make_empty_tensor_value_info("y")]
    own = helper.make_graph([node("MatMul", ["x", "w"], ["y"])], "t", [], out, [stored("w", floats(8, 4))])
    other = helper.make_graph([node("MatMul", ["x", "w"], ["y"])], "e", [], out)
    nodes = [node("If", ["c"], ["y"], name="sel", then_branch=own, else_branch=other)]
    proto = model(nodes, [value("x", FLOAT, [1, 8]), value("c", BOOL, [])], out, [W8])
    assert [macs(trace(proto, bind={"c": c})) for c in (1, 0)] == [32, 64]


@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_of_none(trace: Callable[..., Trace], batch: int) -> None:
    """Nothing goes in, nothing is done, and nothing fails."""
    nodes = [
        node("Conv", ["x", "k"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("MatMul", ["f", "w"], ["m"]),
        node("Softmax", ["m"], ["y"]),
    ]
    weights = [stored("k", floats(8, 3, 3, 3)), W8]
    made = trace(model(nodes, *io(["n", 3, 6, 6], ["n", 8]), weights), bind={"n": batch})
    assert macs(made) == batch * (27 * 8 * 16 + 64)
    assert made.bind("frame").traffic().get(("io", False), 0) == batch * 3 * 36 * 2


def test_nodes_with_one_mistake_are_counted(trace: Callable[..., Trace]) -> None:
    """Three convolutions with a kernel for other channels, and a product that does not fit: two lines."""
    nodes = [node("Conv", ["x", "k"], [f"c{i}"], name=f"conv{i}") for i in range(3)]
    nodes.append(node("MatMul", ["x", "w"], ["m"], name="mm"))
    outputs = [helper.make_empty_tensor_value_info(o) for o in ("c0", "c1", "c2", "m")]
    proto = model(nodes, io([1, 4, 6, 6], [])[0], outputs, [stored("k", floats(8, 3, 3, 3)), W8])
    assert refusal(trace, proto) == [
        "3 x Conv, first 'conv0': the input [1, 4, 6, 6] has 4 channels, the kernel [8, 3, 3, 3] takes 3 in each of 1 "
        "groups",
        "MatMul 'mm': shapes do not match: [1, 4, 6, 6] by [8, 8]",
    ]


# --- files that are no models


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"PK\x03\x04archive/data.pkl", "it looks like a ZIP archive, as PyTorch checkpoints are"),
        (b"GGUF\x03\x00\x00\x00", "it looks like a GGUF file"),
        (b"<!DOCTYPE html>", "it looks like an HTML or XML page, as a failed download leaves it"),
        (b"\x1c\x00\x00\x00TFL3\x00", "it looks like a TensorFlow Lite file"),
        (b'\x80\x00\x00\x00\x00\x00\x00\x00{"__metadata__":{}}', "it looks like a safetensors file"),
        (b"\xff\xff\xff\x00\x01", "its bytes do not read as a protobuf message"),
    ],
)
def test_other_files_are_told_by_their_first_bytes(tmp_path: Path, core: CoreSpec, data: bytes, what: str) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(CompileError) as caught:
        compile_model(tmp_path / "m.onnx", core)
    (problem,) = caught.value.problems
    assert problem.what == f"not an ONNX file, or a damaged one: {what}"
