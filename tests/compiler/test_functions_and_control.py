"""Functions inlined, branches chosen, loops unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from input_cases import FLOAT, INT64, floats, model, node, stored, value
from onnx import AttributeProto, ModelProto, TensorProto, helper
from protos import W8, analysis, io, macs, one_if, refusal

from bpusim.trace import Trace

BOOL = TensorProto.BOOL


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


def test_a_branch_is_chosen_by_a_bound_value(trace: Callable[..., Trace]) -> None:
    """``rate == 16000`` decides, with names that both branches and the graph use."""
    condition = [node("Constant", [], ["k"], value_int=16000), node("Equal", ["rate", "k"], ["c"])]
    then = [node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w"], ["o"])]
    other = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["o"])]
    proto = one_if(condition, then, other, [value("x", FLOAT, [1, 8]), value("rate", INT64, [])])
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
    proto = one_if(condition, [node("MatMul", ["x", "w"], ["o"])], [node("Relu", ["x"], ["o"])], io([1, 8], [])[0])
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
    proto = one_if(
        [], [node("Relu", ["x"], ["o"])], [node("Relu", ["x"], ["o"])], [*io([1, 8], [])[0], value("c", BOOL, [])]
    )
    assert any(line.startswith(message) for line in refusal(trace, proto, assume=assume))


def test_an_assumption_of_what_is_known_is_refused(trace: Callable[..., Trace]) -> None:
    proto = one_if(
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
        "Loop 'lp': 1000000000 passes of 2 nodes; at most 20000 nodes are unrolled; "
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
        "Loop 'lp': its condition 'going' still holds after 20000 passes of 0 nodes; at most 20000 nodes are unrolled; "
        "give it a trip count, or a condition that becomes false sooner"
    ]


ENDLESS = {
    "handed through": ([], ON),
    "of a constant": ([], node("Identity", ["true"], ["on"])),
    "of the pass": ([], node("Less", ["i", "far"], ["on"])),
    "by way of others": ([node("Add", ["i", "i"], ["twice"])], node("Less", ["twice", "far"], ["on"])),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_loop_without_end_is_refused_before_its_first_pass(
    trace: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("bpusim.compiler.control._pass", None)
    nodes, go = ENDLESS[kind]
    proto = _loop([STEP, *nodes], go, trips="")
    proto.graph.initializer.append(stored("far", np.int64(10**9)))
    (told,) = refusal(trace, proto)
    assert told.startswith("Loop 'lp': its condition 'on' still holds after")
    assert f"passes of {len(nodes) + 2} nodes; at most 20000 nodes are unrolled; give it a trip count" in told


@pytest.mark.parametrize(("last", "passes"), [(0, 1), (8, 9), (9, 10), (10, None)])
def test_the_longest_loop_is_taken_whole(
    trace: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch, last: int, passes: int | None
) -> None:
    """Two nodes a pass; of 20 nodes at most, ten passes are the most."""
    monkeypatch.setattr("bpusim.compiler.control.MOST", 20)
    proto = _loop([STEP], node("Less", ["i", "far"], ["on"]), trips="")
    proto.graph.initializer.append(stored("far", np.int64(last)))
    if passes is None:
        assert "still holds after 10 passes of 2 nodes; at most 20 nodes" in refusal(trace, proto)[0]
    else:
        assert macs(trace(proto)) == passes * 64


@pytest.mark.parametrize(("step", "passes"), [(30, 4), (100, 1), (0, None)])
def test_a_loop_that_a_count_of_its_own_ends(trace: Callable[..., Trace], step: int, passes: int | None) -> None:
    """A second state counts up from 0 by ``step`` until it is 100 or more."""
    body = helper.make_graph(
        [STEP, node("Add", ["n", "step"], ["m"]), node("Less", ["m", "end"], ["on"])],
        "body",
        [value("i", INT64, []), value("going", BOOL, []), value("s", FLOAT, [1, 8]), value("n", INT64, [])],
        [value("on", BOOL, []), value("t", FLOAT, [1, 8]), value("m", INT64, [])],
    )
    numbers = {"zero": 0, "step": step, "end": 100}
    weights = [W8, stored("true", np.array(True)), *(stored(n, np.int64(v)) for n, v in numbers.items())]
    loop = node("Loop", ["", "true", "x", "zero"], ["y", "count"], name="lp", body=body)
    proto = model([loop], *io([1, 8], [1, 8]), weights)
    if passes is None:
        assert "its condition 'on' still holds" in refusal(trace, proto)[0]
    else:
        assert macs(trace(proto)) == passes * 64


def test_a_node_without_results_is_left_out(trace: Callable[..., Trace]) -> None:
    """A loop that makes nothing leads to no output, whatever is in it."""
    body = helper.make_graph([ON], "body", [value("i", INT64, []), value("going", BOOL, [])], [value("on", BOOL, [])])
    loop = node("Loop", ["", "true"], [], body=body)
    proto = model([loop, node("Relu", ["x"], ["y"])], *io([1, 8], [1, 8]), [stored("true", np.array(True))])
    assert "leads to no output" in trace(proto).header.report["notes"][0]


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
