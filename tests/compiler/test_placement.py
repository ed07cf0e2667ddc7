"""Where activations live: what stays on chip, what spills, and what crosses to the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from onnx import helper

from bpusim.hardware import CoreSpec
from bpusim.scenario import load_machine
from bpusim.trace import Trace

Make = Callable[..., Any]
node = helper.make_node
SIZE = 100 * 2
"""Bytes of one activation tensor here: 100 values of 16 bits."""


def _core(capacity: int) -> CoreSpec:
    """A core of the board with room for ``capacity`` bytes of activations."""
    return load_machine("bpu80", [f"machine.cores.activations={capacity} B"]).cores


def _trace(hand: Make, nodes: list[Any], capacity: int, outputs: tuple[str, ...] = ("y",), **options: Any) -> Trace:
    model = hand(nodes, {"x": [100]}, list(outputs))
    trace: Trace = replace(model, core=_core(capacity)).trace(**options)
    return trace


def _chain(*kinds: str) -> list[Any]:
    names = ["x", *(f"t{i}" for i in range(len(kinds) - 1)), "y"]
    return [node(kind, [names[i]], [names[i + 1]], name=f"n{i}") for i, kind in enumerate(kinds)]


SHUFFLE = [
    # x -> a (kept for the end) -> b -> y = a + b
    node("Relu", ["x"], ["a"], name="make_a"),
    node("Exp", ["a"], ["b"], name="make_b"),
    node("Add", ["a", "b"], ["y"], name="join"),
]


def _moved(trace: Trace) -> dict[tuple[str, bool], int]:
    return {(str(kind), write): n for (kind, write), n in trace.bind("frame").traffic().items()}


def test_what_fits_moves_inputs_and_outputs_only(hand: Make) -> None:
    assert _moved(_trace(hand, SHUFFLE, 10 * SIZE)) == {("io", False): SIZE, ("io", True): SIZE}


def test_what_does_not_fit_is_written_once_and_read_by_each_reader(hand: Make) -> None:
    """Nothing fits: a is written and read twice, b written and read once."""
    moved = _moved(_trace(hand, SHUFFLE, SIZE - 1))
    assert (moved["spill", True], moved["spill", False]) == (2 * SIZE, 3 * SIZE)


def test_spilled_tensors_are_counted_in_the_report(hand: Make) -> None:
    assert _trace(hand, SHUFFLE, SIZE - 1).header.report["spilled_tensors"] == {"frame": 2}


def test_nothing_spilled_is_reported_as_nothing(hand: Make) -> None:
    assert _trace(hand, SHUFFLE, 10 * SIZE).header.report["spilled_tensors"] == {}


def test_only_what_does_not_fit_beside_the_others_spills(hand: Make) -> None:
    """Room for one tensor: a stays, b does not."""
    moved = _moved(_trace(hand, SHUFFLE, SIZE))
    assert (moved["spill", True], moved["spill", False]) == (SIZE, SIZE)


def test_an_elementwise_chain_runs_in_place(hand: Make) -> None:
    """Room for one tensor is enough for any number of steps, because each overwrites what it reads."""
    moved = _moved(_trace(hand, _chain("Relu", "Exp", "Sigmoid", "Neg"), SIZE))
    assert moved == {("io", False): SIZE, ("io", True): SIZE}


def test_an_input_with_another_reader_is_not_overwritten(hand: Make) -> None:
    """make_b may not take a's place while join still needs it: with room for two nothing spills, with one it does."""
    assert ("spill", True) not in _moved(_trace(hand, SHUFFLE, 2 * SIZE))
    assert _moved(_trace(hand, SHUFFLE, 2 * SIZE - 1))["spill", True] == SIZE


def test_a_copy_cannot_run_in_place(hand: Make) -> None:
    """A transpose reads and writes at once: room for one tensor is not enough between two of them."""
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[1, 0]),
        node("Exp", ["b"], ["y"]),
    ]
    model = hand(nodes, {"x": [10, 10]}, ["y"])

    def spilled(capacity: int) -> int:
        trace = replace(model, core=_core(capacity)).trace()
        return _moved(trace).get(("spill", True), 0)

    assert (spilled(2 * SIZE), spilled(SIZE)) == (0, SIZE)


def test_a_graph_input_that_fits_is_read_once_for_all(hand: Make) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Exp", ["x"], ["b"]), node("Add", ["a", "b"], ["y"])]
    assert _moved(_trace(hand, nodes, 10 * SIZE))["io", False] == SIZE


def test_a_graph_input_that_does_not_fit_is_read_by_each_reader(hand: Make) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Exp", ["x"], ["b"]), node("Add", ["a", "b"], ["y"])]
    assert _moved(_trace(hand, nodes, SIZE - 1))["io", False] == 2 * SIZE


def test_every_graph_output_is_written(hand: Make) -> None:
    assert _moved(_trace(hand, SHUFFLE, 10 * SIZE, ("a", "y")))["io", True] == 2 * SIZE


def test_a_tensor_nobody_reads_is_not_written(hand: Make) -> None:
    """The sum that a fused norm could give, but nobody asked for."""
    made = node("SkipSimplifiedLayerNormalization", ["x", "k", "g"], ["y", "", "", "sum"], domain="com.microsoft")
    model = hand([made], {"x": [1, 1, 100], "k": [1, 1, 100]}, ["y"], weights={"g": [100]})
    assert _moved(model.trace())["io", True] == SIZE


def test_the_workspace_holds_what_is_off_chip_at_the_same_time(hand: Make) -> None:
    """Nothing fits: at the join x is gone; a, b and y are in DRAM."""
    assert _trace(hand, SHUFFLE, SIZE - 1).header.workspace == 3 * SIZE


# --- crossing to the CPU


def test_what_a_cpu_op_reads_and_makes_crosses_dram(hand: Make) -> None:
    """Relu -> [Exp on the CPU] -> Neg: one tensor goes out, one comes back, though all would fit on chip."""
    trace = _trace(hand, _chain("Relu", "Exp", "Neg"), 10 * SIZE, fallback_ops=frozenset({"Exp"}))
    moved = _moved(trace)
    assert (moved["spill", True], moved["spill", False]) == (SIZE, SIZE)


def test_a_cpu_op_splits_the_frame_into_calls(hand: Make) -> None:
    trace = _trace(hand, _chain("Relu", "Exp", "Neg"), 10 * SIZE, fallback_ops=frozenset({"Exp"}))
    assert len(trace.bind("frame").calls) == 2


def test_a_cpu_op_reads_and_writes_dram_itself(hand: Make) -> None:
    trace = _trace(hand, _chain("Relu", "Exp", "Neg"), 10 * SIZE, fallback_ops=frozenset({"Exp"}))
    work = trace.bind("frame").segments[1]
    assert work.moved == {("spill", False): SIZE, ("spill", True): SIZE}  # type: ignore[union-attr]


def test_a_cpu_op_converts_every_element_in_and_out(hand: Make) -> None:
    """100 values in, 100 out, beside its own 100 exponentials."""
    trace = _trace(hand, _chain("Relu", "Exp", "Neg"), 10 * SIZE, fallback_ops=frozenset({"Exp"}))
    work = trace.bind("frame").segments[1]
    assert work.elements == {"exp": 100, "convert": 200}  # type: ignore[union-attr]


def test_a_cpu_op_takes_no_time_of_the_core(hand: Make) -> None:
    ops = _trace(hand, _chain("Relu", "Exp", "Neg"), 10 * SIZE, fallback_ops=frozenset({"Exp"})).phase("frame").ops()
    assert [op.cycles for op in ops if op.unit == "cpu"] == [()]


def test_a_cpu_op_hands_over_its_own_tensors(hand: Make) -> None:
    """One in, one out."""
    ops = _trace(hand, _chain("Relu", "Exp", "Neg"), 10 * SIZE, fallback_ops=frozenset({"Exp"})).phase("frame").ops()
    assert [op.tensors for op in ops] == [0, 2, 0]


def test_a_tensor_carried_past_a_cpu_op_crosses_too(hand: Make) -> None:
    """b is made before the CPU op and read after it: no call keeps it on chip, so it is a third tensor to hand over."""
    nodes = [
        node("Relu", ["x"], ["a"], name="make_a"),
        node("Neg", ["x"], ["b"], name="make_b"),
        node("Exp", ["a"], ["c"], name="on_cpu"),
        node("Add", ["b", "c"], ["y"], name="join"),
    ]
    trace = _trace(hand, nodes, 10 * SIZE, fallback_ops=frozenset({"Exp"}))
    moved = _moved(trace)
    assert moved["spill", True] == 2 * SIZE  # a and b; c is the CPU's own write
    assert [op.tensors for op in trace.phase("frame").ops() if op.unit == "cpu"] == [3]


@pytest.mark.parametrize("kind", ["Relu", "Neg"])
def test_a_cpu_op_at_an_end_leaves_one_call(hand: Make, kind: str) -> None:
    """At the beginning or the end of a frame there is one call, not an empty second one."""
    trace = _trace(hand, _chain("Relu", "Exp", "Neg"), 10 * SIZE, fallback_ops=frozenset({kind}))
    assert len(trace.bind("frame").calls) == 1


# --- buffers are told apart


def _two_branches(hand: Make, first: str, second: str) -> Trace:
    """Two transposes that nothing on chip can hold, and the sum of both."""
    nodes = [
        node("Transpose", ["x"], ["a"], perm=[1, 0], name=first),
        node("Transpose", ["z"], ["b"], perm=[1, 0], name=second),
        node("Add", ["a", "b"], ["y"], name="/join"),
    ]
    model = hand(nodes, {"x": [10, 10], "z": [10, 10]}, ["y"])
    trace: Trace = replace(model, core=_core(SIZE - 1)).trace()
    return trace


@pytest.mark.parametrize("second", ["/block/right/Other", "/block/right/conv/T", "/block/left/conv/T"])
def test_both_spilled_branches_are_read(hand: Make, second: str) -> None:
    """Whatever their makers are called: the same end of the name, or the same name, is no same buffer."""
    moved = _moved(_two_branches(hand, "/block/left/conv/T", second))
    assert (moved["spill", True], moved["spill", False]) == (2 * SIZE, 2 * SIZE)


def test_both_spilled_outputs_of_one_op_are_written(hand: Make) -> None:
    """A fused skip norm gives the normed values and the sum: two tensors of 200 B each way, and then two more."""
    nodes = [
        node("SkipSimplifiedLayerNormalization", ["x", "z", "g"], ["n", "", "", "s"], domain="com.microsoft"),
        node("Transpose", ["n"], ["t"], perm=[1, 0]),
        node("Transpose", ["s"], ["u"], perm=[1, 0]),
        node("Add", ["t", "u"], ["y"]),
    ]
    model = hand(nodes, {"x": [10, 10], "z": [10, 10]}, ["y"], weights={"g": [10]})
    moved = _moved(replace(model, core=_core(SIZE - 1)).trace())
    assert (moved["spill", True], moved["spill", False]) == (4 * SIZE, 4 * SIZE)
