"""Ops that no rule knows: on the CPU and listed, or refused, and never free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from onnx import TensorProto, helper
from rule_models import one

from bpusim.errors import CompileError

Make = Callable[..., Any]
node = helper.make_node


def _custom(hand: Make, domain: str = "acme") -> Any:
    """x -> acme::Fancy -> y, with the output's shape stated."""
    made = [node("Relu", ["x"], ["r"]), node("Fancy", ["r"], ["y"], name="f0", domain=domain)]
    model = hand(made, {"x": [2, 3]}, ["y"])
    model.proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3]))
    return model


@pytest.mark.parametrize("domain", ["acme", "com.microsoft"])
def test_an_op_without_a_rule_falls_back_to_the_cpu_and_is_listed(hand: Make, domain: str) -> None:
    trace = _custom(hand, domain).trace()
    listed = trace.header.report["cpu_fallbacks"]
    assert list(listed) == ["Fancy"]
    assert (listed["Fancy"]["count"], listed["Fancy"]["first"]) == (1, "f0")


def test_an_op_without_a_rule_is_never_free(hand: Make) -> None:
    """A multiply and an add for each of 6 elements in and 6 out."""
    ops = list(_custom(hand).trace().phase("frame").ops())
    assert ops[-1].unit == "cpu"
    assert (ops[-1].vec["mul"], ops[-1].vec["add"]) == ((12,), (12,))


def test_an_op_without_a_rule_is_an_error_when_strict(hand: Make) -> None:
    with pytest.raises(CompileError, match="acme::Fancy 'f0': no cost rule for acme::Fancy"):
        _custom(hand).trace(strict=True)


def test_strict_lists_every_op_without_a_rule(hand: Make) -> None:
    nodes = [node(f"Odd{i}", ["x"], [f"y{i}"], domain="acme") for i in range(3)]
    model = hand(nodes, {"x": [2]}, ["y0", "y1", "y2"])
    for i in range(3):
        model.proto.graph.output[i].CopyFrom(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [2]))
    with pytest.raises(CompileError) as caught:
        model.trace(strict=True)
    assert len(caught.value.problems) == 3


def test_strict_accepts_ops_with_rules(hand: Make) -> None:
    assert one(hand, "Relu", [2, 3]).trace(strict=True).phases


def test_a_result_of_unknown_shape_is_an_error_that_names_the_op(hand: Make) -> None:
    """No rule and no stated shape: nothing can be priced, so nothing is guessed."""
    nodes = [node("Fancy", ["x"], ["f"], domain="acme"), node("Relu", ["f"], ["y"])]
    with pytest.raises(
        CompileError, match="no cost rule for acme::Fancy, and the file does not state the shape of 'f'"
    ):
        hand(nodes, {"x": [2, 3]}, ["y"]).trace()


def test_a_result_of_unknown_shape_does_not_hide_behind_what_follows(hand: Make) -> None:
    """The op without a rule is the cause; a convolution that cannot read its unknown result is not."""
    nodes = [node("Fancy", ["x"], ["f"], domain="acme"), node("Conv", ["f", "w"], ["y"])]
    with pytest.raises(CompileError, match="no cost rule for acme::Fancy"):
        hand(nodes, {"x": [1, 3, 8, 8]}, ["y"], weights={"w": [4, 3, 3, 3]}).trace()


def _stated(model: Any, **outputs: list[int]) -> Any:
    """The model with the shapes of its outputs stated."""
    for out in model.proto.graph.output:
        out.CopyFrom(helper.make_tensor_value_info(out.name, TensorProto.FLOAT, outputs[out.name]))
    return model


def _no_rule(kind: str, op: str) -> str:
    return (
        f"hand.onnx: error: {op}: no cost rule for {kind}, whose work does not follow from the sizes of its results; "
        "replace it by ops that have one (a MatMul, a Conv), or cut it off with --until"
    )


DENSE: dict[str, tuple[list[int], dict[str, Any]]] = {
    "com.microsoft::SparseAttention": ([4, 8], {}),
    "com.microsoft::LongformerAttention": ([4, 8], {}),
    "com.microsoft::DynamicQuantizeLSTM": ([4, 1, 8], {"weights": {"w": [1, 8, 12], "r": [1, 3, 12]}}),
    "com.microsoft::BeamSearch": ([4, 8], {}),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", DENSE)
def test_an_op_that_does_more_than_touch_its_elements_is_refused(hand: Make, kind: str, strict: bool) -> None:
    """Priced by its elements it would be nearly free: a wrong number, not a rough one."""
    x, how = DENSE[kind]
    domain, _, name = kind.rpartition("::")
    model = _stated(one(hand, name, x, domain=domain, **how), y=[1, 2])
    with pytest.raises(CompileError) as caught:
        model.trace(strict=strict)
    assert _no_rule(kind, f"{kind} 'y'") in str(caught.value)


@pytest.mark.parametrize("rows", [64, 65])
def test_an_op_without_a_rule_may_have_a_table_but_no_matrix(hand: Make, rows: int) -> None:
    """4096 stored elements are a table of constants, more are multiplied by."""
    model = _stated(one(hand, "Fancy", [2, 64], domain="acme", weights={"w": [rows, 64]}), y=[2, 64])
    if rows == 64:
        assert model.trace().header.report["cpu_fallbacks"]["Fancy"]["count"] == 1
        return
    with pytest.raises(CompileError) as caught:
        model.trace()
    assert str(caught.value) == _no_rule("acme::Fancy", "acme::Fancy 'y'")


def test_a_stored_vector_is_no_matrix(hand: Make) -> None:
    model = _stated(one(hand, "Fancy", [2, 5000], domain="acme", weights={"w": [5000]}), y=[2, 5000])
    assert model.trace().header.report["cpu_fallbacks"]["Fancy"]["count"] == 1


def test_an_op_without_a_rule_reads_its_stored_operands(hand: Make) -> None:
    """Of 4 x 6 and 6 values of fp32; it touches the 12 elements in and 12 out as before."""
    weights = {"w": [4, 6], "b": [6]}
    trace = _stated(one(hand, "Fancy", [2, 6], domain="acme", weights=weights), y=[2, 6]).trace()
    (op,) = trace.phase("frame").ops()
    assert {b: n for b, n in op.read.items() if b.startswith("w:")} == {"w:w": (4 * 6 * 4,), "w:b": (6 * 4,)}
    assert (op.vec["mul"], op.vec["add"]) == ((24,), (24,))
    (work,) = trace.bind("frame").segments
    assert work.moved["weights", False] == 30 * 4  # type: ignore[union-attr]
    assert trace.resident_bytes == 30 * 4


def test_an_op_with_a_graph_inside_is_refused(hand: Make) -> None:
    """Whatever it is called: what the inner graph does is not in the sizes of the results."""
    value = helper.make_empty_tensor_value_info
    inner = helper.make_graph([node("Relu", ["x"], ["i"])], "inner", [], [value("i")])
    model = _stated(hand([node("Fancy", ["x"], ["y"], domain="acme", body=inner)], {"x": [2, 3]}, ["y"]), y=[2, 3])
    with pytest.raises(CompileError) as caught:
        model.trace()
    assert str(caught.value) == _no_rule("acme::Fancy", "acme::Fancy 'y'")


def test_a_forced_fallback_is_listed_with_its_reason(hand: Make) -> None:
    trace = one(hand, "Sigmoid", [10]).trace(fallback_ops=frozenset({"Sigmoid"}))
    assert trace.header.report["cpu_fallbacks"]["Sigmoid"]["why"] == "forced by --fallback-op"


def test_a_forced_fallback_that_is_not_in_the_model_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"no op of type 'Sigmiod'; did you mean 'Sigmoid'\?"):
        one(hand, "Sigmoid", [10]).trace(fallback_ops=frozenset({"Sigmiod"}))
