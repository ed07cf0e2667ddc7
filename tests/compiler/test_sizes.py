"""Sizes that are bound, worked out, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from input_cases import FLOAT, INT64, floats, model, node, stored, value
from onnx import TensorProto, helper
from protos import W8, analysis, io, macs, refusal

from bpusim.compiler import load_graph
from bpusim.compiler.symbols import bind, expression
from bpusim.errors import CompileError
from bpusim.trace import Trace

BOOL = TensorProto.BOOL


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
        "the size '(n + 1) / 2' has no whole value for n = 2; bind others, or itself: --bind \"(n + 1) / 2=NUMBER\""
    ]
    assert trace(proto, bind={"n": 3}).bind("frame").traffic()["io", False] == 3 * 2 * 2


@pytest.mark.parametrize(
    ("dims", "bound", "message"),
    [
        (["a/b", "a", "b"], {"a": 3, "b": 2}, "the size 'a/b' has no whole value for a = 3, b = 2"),
        (["a/b", "a", "b"], {"a": 3, "b": 0}, "the size 'a/b' has no whole value for a = 3, b = 0"),
        (["n - 5", 4], {"n": 3}, "the size 'n - 5' comes to -2 for n = 3; bind others"),
    ],
)
def test_a_size_without_a_value_names_the_file(
    trace: Callable[..., Trace], dims: list[Any], bound: dict[str, int], message: str
) -> None:
    with pytest.raises(CompileError) as e:
        trace(model([node("Relu", ["x"], ["y"])], *io(dims, [])), bind=bound)
    assert str(e.value).startswith(f"m.onnx: error: {message}")


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
