"""Work of each family of ops by hand: MACs, vector operations by class, bytes of stored operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from onnx import TensorProto, helper

from bpusim.compiler import Options, compile_graph
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec

node = helper.make_node
MS = "com.microsoft"
Make = Callable[..., Any]


def work(model: Any) -> dict[str, int]:
    """Vector operations of one frame by class."""
    total: dict[str, int] = {}
    for op in model.trace().phase("frame").ops():
        for kind, coefs in op.vec.items():
            total[kind] = total.get(kind, 0) + coefs[0]
    return total


def one(hand: Make, kind: str, inputs: dict[str, list[int]], outputs: int = 1, **how: Any) -> Any:
    """A model of one node; ``order`` names all its inputs."""
    keys = ("weights", "ints", "opset", "integer", "domain", "order")
    attrs = {k: v for k, v in how.items() if k not in keys}
    weights, ints = how.get("weights", {}), how.get("ints", {})
    made = [f"y{i}" for i in range(outputs)]
    names = how.get("order", [*inputs, *weights, *ints])
    return hand(
        [node(kind, names, made, domain=how.get("domain", ""), **attrs)],
        inputs,
        made,
        weights=weights,
        ints=ints,
        integer=how.get("integer", ()),
        opset=how.get("opset", 22),
    )


# --- convolutions


def test_a_transposed_convolution_makes_a_window_from_each_place(hand: Make) -> None:
    """7 x 9 places x 4 inputs x 6 outputs x 9 taps; windows overlap (3 > 2), so that all products are summed; every
    one of 6 x 15 x 19 results is converted."""
    model = one(hand, "ConvTranspose", {"x": [1, 4, 7, 9]}, weights={"w": [4, 6, 3, 3]}, strides=[2, 2])
    assert model.macs() == 63 * 4 * 6 * 9
    assert work(model) == {"convert": 6 * 15 * 19, "add": 63 * 6 * 9}
    assert model.weight_bytes() == 4 * 6 * 9 * 4


def test_a_transposed_convolution_whose_windows_do_not_overlap_sums_nothing(hand: Make) -> None:
    model = one(hand, "ConvTranspose", {"x": [1, 4, 7, 9]}, weights={"w": [4, 6, 2, 2]}, strides=[2, 2])
    assert (model.macs(), work(model)) == (63 * 4 * 6 * 4, {"convert": 6 * 14 * 18})


def test_a_grouped_transposed_convolution(hand: Make) -> None:
    """Each of 4 inputs makes 3 outputs of its group: 7 x 4 x 3 x 5."""
    assert one(hand, "ConvTranspose", {"x": [1, 4, 7]}, weights={"w": [4, 3, 5]}, group=2).macs() == 7 * 4 * 3 * 5


def test_int8_transposed_weights_have_a_scale_an_output_channel(hand: Make) -> None:
    model = one(hand, "ConvTranspose", {"x": [1, 4, 7, 9]}, weights={"w": [4, 6, 3, 3]})
    assert model.weight_bytes(quant="int8") == 6 * (4 * 9 + 2)


def test_a_deformable_convolution_interpolates_its_samples(hand: Make) -> None:
    """7 x 7 places x 9 taps x 4 channels: 4 products and 3 sums each, with a mask one product more; then 36 x 6 MACs a
    place."""
    inputs = {"x": [1, 4, 9, 9], "o": [1, 18, 7, 7], "m": [1, 9, 7, 7]}
    weights = {"w": [6, 4, 3, 3]}
    plain = one(hand, "DeformConv", {k: inputs[k] for k in "xo"}, weights=weights, order=["x", "w", "o"])
    masked = one(hand, "DeformConv", inputs, weights=weights, order=["x", "w", "o", "", "m"])
    samples = 49 * 9 * 4
    assert plain.macs() == masked.macs() == 49 * 36 * 6
    assert work(plain) == {"convert": 49 * 6, "mul": samples * 4, "add": samples * 3}
    assert work(masked)["mul"] == samples * 5


def test_a_causal_convolution_keeps_its_last_inputs(hand: Make) -> None:
    """6 channels of 9 places, 4 taps; 9 x 6 results converted, 3 x 6 inputs kept, 54 of a SiLU."""
    model = one(hand, "CausalConvWithState", {"x": [1, 6, 9]}, 2, weights={"w": [6, 1, 4]}, activation="silu", opset=27)
    assert model.macs() == 6 * 9 * 4
    assert work(model) == {"convert": 54 + 18, "exp": 54, "add": 54, "div": 54, "mul": 54}


def test_a_fused_activation_and_sum_are_work(hand: Make) -> None:
    inputs = {"x": [1, 2, 4, 4], "z": [1, 3, 4, 4]}
    model = one(
        hand, "FusedConv", inputs, weights={"w": [3, 2, 1, 1]}, order=["x", "w", "", "z"], domain=MS, activation="Relu"
    )
    assert (model.macs(), work(model)) == (96, {"convert": 48, "add": 96})


def test_an_activation_that_nobody_knows_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="the activation 'Wavy' is not known"):
        one(hand, "FusedConv", {"x": [1, 2, 4, 4]}, weights={"w": [3, 2, 1, 1]}, domain=MS, activation="Wavy").trace()


def test_channels_last(hand: Make) -> None:
    """[batch, height, width, channels] and a kernel of [outputs, height, width, inputs]."""
    model = one(hand, "NhwcConv", {"x": [1, 6, 5, 2]}, weights={"w": [4, 3, 3, 2]}, domain=MS)
    assert (model.macs(), model.dims("y0")) == (4 * 3 * 9 * 2 * 4, [1, 4, 3, 4])


# --- products


@pytest.mark.parametrize(
    ("equation", "a", "b", "macs"),
    [
        ("ij,jk->ik", [5, 8], [8, 3], 5 * 8 * 3),
        ("bhid,bhjd->bhij", [2, 4, 5, 8], [2, 4, 7, 8], 2 * 4 * 5 * 7 * 8),
        ("bhij,bhjd->bihd", [2, 4, 5, 7], [2, 4, 7, 8], 2 * 4 * 5 * 7 * 8),
        ("...ij,...jk->...ik", [2, 4, 5, 8], [2, 4, 8, 3], 2 * 4 * 5 * 8 * 3),
        ("ij,kj", [5, 8], [3, 8], 5 * 8 * 3),
        ("ij,jk->i", [5, 8], [8, 3], 5 * 8),
        ("i,j->ij", [5], [8], 0),
        ("ij,ij->ij", [5, 8], [5, 8], 0),
        ("ij,ij->", [5, 8], [5, 8], 40),
    ],
)
def test_einsum_macs(hand: Make, equation: str, a: list[int], b: list[int], macs: int) -> None:
    """Labels of both sides that go are K, those that stay batch; a label of one side that goes is summed first; without
    K it is an elementwise product."""
    model = one(hand, "Einsum", {"a": a, "b": b}, equation=equation)
    assert model.macs() == macs
    assert macs or work(model) == {"mul": 40}


def test_einsum_by_a_stored_operand(hand: Make) -> None:
    """[8, 3, 4] weights as 8 x 12: the rows of x stream through them; they are read once."""
    model = one(hand, "Einsum", {"x": [2, 5, 8]}, weights={"w": [8, 3, 4]}, equation="bsd,dhe->bshe")
    assert (model.macs(), model.weight_bytes()) == (10 * 8 * 12, 96 * 4)


def test_einsum_of_three_goes_from_left_to_right(hand: Make) -> None:
    """5 x 8 by 8 x 3, then 5 x 3 by 3 x 4."""
    model = one(hand, "Einsum", {"a": [5, 8], "b": [8, 3], "c": [3, 4]}, equation="ij,jk,kl->il")
    assert model.macs() == 5 * 8 * 3 + 5 * 3 * 4


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ii,ij->ij", "takes a diagonal"),
        ("ij->ij", "has 1 operands, the node 2"),
        ("ij,jkl->il", "does not name the dimensions"),
        ("ij,jk->iz", "makes a dimension that no operand has"),
        ("ij,ik->jk", "dimension 'i' is 5 and 8"),
    ],
)
def test_an_equation_that_does_not_fit_is_an_error(hand: Make, equation: str, message: str) -> None:
    a = [5, 5] if equation.startswith("ii") else [5, 8]
    with pytest.raises(CompileError, match=message):
        one(hand, "Einsum", {"a": a, "b": [5, 3] if "ii" in equation else [8, 3]}, equation=equation).trace()


@pytest.mark.parametrize(
    ("attrs", "a", "b", "dims"),
    [
        ({}, [2, 5, 8], [2, 8, 3], [2, 5, 3]),
        ({"transB": 1}, [2, 5, 8], [2, 3, 8], [2, 5, 3]),
        ({"transA": 1}, [2, 8, 5], [2, 8, 3], [2, 5, 3]),
        ({"transBatchA": 1}, [5, 2, 8], [2, 8, 3], [2, 5, 3]),
    ],
)
@pytest.mark.parametrize("kind", ["FusedMatMul", "TransposeMatMul"])
def test_a_fused_product_reads_its_sides_transposed(
    hand: Make, kind: str, attrs: dict[str, int], a: list[int], b: list[int], dims: list[int]
) -> None:
    model = one(hand, kind, {"a": a, "b": b}, domain=MS, **attrs)
    assert (model.macs(), model.dims("y0")) == (2 * 5 * 8 * 3, dims)


def test_a_fused_gemm_has_its_activation(hand: Make) -> None:
    model = one(hand, "FusedGemm", {"x": [5, 8]}, weights={"w": [8, 3], "b": [3]}, domain=MS, activation="Relu")
    assert (model.macs(), work(model)) == (120, {"convert": 15, "add": 15 + 15})


@pytest.mark.parametrize(("a", "b"), [([8], [8]), ([5, 8], [8]), ([8], [8, 3])])
def test_a_vector_is_a_row_or_a_column(hand: Make, a: list[int], b: list[int]) -> None:
    rows, cols = (a[0] if len(a) > 1 else 1), (b[1] if len(b) > 1 else 1)
    assert one(hand, "MatMul", {"a": a, "b": b}).macs() == rows * 8 * cols


# --- recurrent layers


@pytest.mark.parametrize(
    ("kind", "gates", "vec"),
    [
        ("LSTM", 4, {"exp": 5, "div": 5, "add": 12, "mul": 3}),
        ("GRU", 3, {"exp": 3, "div": 3, "add": 8, "mul": 3}),
        ("RNN", 1, {"exp": 1, "div": 1, "add": 3}),
    ],
)
@pytest.mark.parametrize("directions", [1, 2])
def test_gates_are_products_of_every_step(
    hand: Make, kind: str, gates: int, vec: dict[str, int], directions: int
) -> None:
    """7 steps of 2 rows, 5 inputs, a state of 3: gates x 3 columns of 5 + 3 inputs for each row and direction."""
    rows = gates * 3
    weights = {"w": [directions, rows, 5], "r": [directions, rows, 3], "b": [directions, 2 * rows]}
    way = "bidirectional" if directions == 2 else "forward"
    model = one(hand, kind, {"x": [7, 2, 5]}, weights=weights, hidden_size=3, direction=way)
    assert model.macs() == 7 * 2 * directions * rows * (5 + 3)
    states = 7 * 2 * directions * 3
    expected = {c: n * states for c, n in vec.items()} | {"convert": 2 * 7 * 2 * directions * rows}
    assert work(model) == expected
    assert model.weight_bytes() == directions * rows * (5 + 3 + 2) * 4


def test_recurrent_weights_that_fit_are_read_once_else_each_step(hand: Make, core: CoreSpec) -> None:
    """R is 400 x 100 fp32 = 160,000 B and stays in half of 1 MiB; in half of 256 KiB it does not, and 7 steps read it
    7 times. W is read once in either case: all steps pass through it together."""
    model = one(hand, "LSTM", {"x": [7, 1, 5]}, weights={"w": [1, 400, 5], "r": [1, 400, 100]}, hidden_size=100)
    once, again = 400 * 5 * 4 + 160_000, 400 * 5 * 4 + 7 * 160_000
    for scratchpad, read in ((1 << 20, once), (256 << 10, again)):
        trace = compile_graph(model.graph(), replace(core, scratchpad=scratchpad), Options())
        assert trace.bind("frame").traffic()["weights", False] == read
        assert trace.resident_bytes == once


def test_each_step_fills_and_drains_the_array(hand: Make, core: CoreSpec) -> None:
    """One tile for W (7 rows of 4 cycles) and one for R, 7 times over (1 row, 8 cycles to load); 1 + 7 fills."""
    model = one(hand, "LSTM", {"x": [7, 1, 5]}, weights={"w": [1, 12, 5], "r": [1, 12, 3]}, hidden_size=3)
    (op,) = model.trace().phase("frame").ops()
    rate, load = core.mac.cycles_per_row("int16"), -(-core.mac.rows // core.mac.load_rows_per_cycle)
    fill = core.mac.rows + core.mac.cols
    assert op.mac_cycles == (max(7 * rate, load) + fill + 7 * (max(rate, load) + fill),)


def test_recurrent_weights_that_do_not_fit_their_gates_are_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="do not fit 4 gates of 3 and inputs of 5"):
        one(hand, "LSTM", {"x": [7, 1, 5]}, weights={"w": [1, 12, 6], "r": [1, 12, 3]}, hidden_size=3).trace()


def test_peepholes_look_at_the_cell(hand: Make) -> None:
    weights = {"w": [1, 12, 5], "r": [1, 12, 3], "p": [1, 9]}
    order = ["x", "w", "r", "", "", "", "", "p"]
    model = one(hand, "LSTM", {"x": [7, 1, 5]}, weights=weights, order=order, hidden_size=3)
    assert (work(model)["mul"], work(model)["add"]) == (21 * (3 + 3), 21 * (12 + 3))


# --- normalisations and reductions


def test_a_group_is_normed_by_itself(hand: Make) -> None:
    """2 x 3 groups of 2 x 25 values; weights of 6 channels."""
    weights = {"s": [6], "b": [6]}
    model = one(hand, "GroupNormalization", {"x": [2, 6, 5, 5]}, weights=weights, num_groups=3)
    assert work(model) == {"add": 600 + 6, "mul": 900, "reduce": 600, "div": 6}
    assert model.weight_bytes() == 48
    assert model.dims("y0") == [2, 6, 5, 5]


def test_an_instance_is_a_group_of_one_channel(hand: Make) -> None:
    model = one(hand, "InstanceNormalization", {"x": [2, 6, 5, 5]}, weights={"s": [6], "b": [6]})
    assert work(model)["div"] == 12


def test_groups_that_do_not_divide_the_channels_are_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="6 channels do not divide into 4 groups"):
        one(hand, "GroupNormalization", {"x": [2, 6, 5]}, weights={"s": [6], "b": [6]}, num_groups=4).trace()


def test_a_layer_norm_over_two_axes_has_longer_rows(hand: Make) -> None:
    """2 rows of 30: one root each."""
    model = one(hand, "LayerNormalization", {"x": [2, 6, 5]}, weights={"s": [6, 5]}, axis=1)
    assert work(model) == {"add": 120 + 2, "mul": 180, "reduce": 120, "div": 2}


def test_mean_and_variance(hand: Make) -> None:
    """6 channels of 2 x 25 values."""
    model = one(hand, "MeanVarianceNormalization", {"x": [2, 6, 5, 5]})
    assert work(model) == {"add": 300 + 6, "mul": 600, "reduce": 600, "div": 6}


@pytest.mark.parametrize(
    ("kind", "vec"),
    [
        ("ReduceSum", {"reduce": 60}),
        ("ReduceL1", {"add": 60, "reduce": 60}),
        ("ReduceL2", {"mul": 60, "reduce": 60, "div": 10}),
        ("ReduceSumSquare", {"mul": 60, "reduce": 60}),
        ("ReduceProd", {"reduce": 60}),
        ("ReduceLogSum", {"reduce": 60, "exp": 10}),
        ("ReduceLogSumExp", {"add": 70, "exp": 70, "reduce": 120}),
    ],
)
def test_reductions(hand: Make, kind: str, vec: dict[str, int]) -> None:
    """[2, 6, 5] along 6: 60 values in, 10 out."""
    assert work(one(hand, kind, {"x": [2, 6, 5]}, ints={"a": [1]})) == vec


def test_an_embedding_norm_reads_rows_of_its_tables(hand: Make) -> None:
    """7 tokens: a row of 32 fp32 values each of words and positions, summed and normed; gains and shifts once."""
    made = node("EmbedLayerNormalization", ["i", "", "t", "p", "", "g", "b"], ["y"], domain=MS)
    weights = {"t": [100, 32], "p": [50, 32], "g": [32], "b": [32]}
    model = hand([made], {"i": [1, 7]}, ["y"], weights=weights, integer=["i"])
    assert model.weight_bytes() == 2 * 7 * 128 + 2 * 128
    assert work(model)["add"] == 7 * 32 + 2 * 7 * 32 + 7


# --- copies and resampling


@pytest.mark.parametrize(
    ("mode", "vec"),
    [
        ("linear", {"mul": 4 * 54, "add": 3 * 54}),
        ("cubic", {"mul": 16 * 54, "add": 15 * 54}),
        ("nearest", {"convert": 54}),
    ],
)
def test_resizing_takes_the_neighbours_of_changed_dimensions(hand: Make, mode: str, vec: dict[str, int]) -> None:
    """1 x 1 x 6 x 9 results from 3 x 3."""
    sizes = {"s": [1, 1, 6, 9]}
    model = one(hand, "Resize", {"x": [1, 1, 3, 3]}, ints=sizes, order=["x", "", "", "s"], mode=mode)
    assert work(model) == vec


def test_resizing_along_one_dimension_takes_two(hand: Make) -> None:
    model = one(hand, "Resize", {"x": [1, 1, 3, 9]}, ints={"s": [1, 1, 6, 9]}, order=["x", "", "", "s"], mode="linear")
    assert work(model) == {"mul": 108, "add": 54}


def test_a_cache_update_moves_what_is_new(hand: Make) -> None:
    """3 new entries of 2 x 4 in a buffer of 9: 24 copies, not 72."""
    model = one(hand, "TensorScatter", {"x": [1, 2, 9, 4], "u": [1, 2, 3, 4]}, opset=24)
    assert work(model) == {"convert": 24}


def test_a_scatter_copies_then_places(hand: Make) -> None:
    model = one(hand, "ScatterND", {"x": [4, 5], "i": [3, 1], "u": [3, 5]}, integer=["i"], reduction="add")
    assert work(model) == {"convert": 20 + 15, "reduce": 15}


def test_what_works_on_stored_tensors_alone_is_prepared(hand: Make) -> None:
    """Two stored halves of a kernel: concatenated once, they are one weight of 8 x 3 values."""
    nodes = [node("Concat", ["a", "b"], ["w"], axis=0), node("MatMul", ["x", "w"], ["y"])]
    model = hand(nodes, {"x": [5, 8]}, ["y"], weights={"a": [4, 3], "b": [4, 3]})
    trace = model.trace()
    assert [op.type for op in trace.phase("frame").ops()] == ["MatMul"]
    assert trace.resident_bytes == 24 * 4
    assert trace.header.report["views"] == {"Concat": 1}


def test_parts_that_do_not_add_up_are_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"parts of \[3, 4\] do not make 10"):
        one(hand, "Split", {"x": [2, 10]}, 2, ints={"s": [3, 4]}, axis=1).trace()


# --- signals


@pytest.mark.parametrize(("n", "vec"), [(16, {"mul": 4 * 32, "add": 6 * 32}), (10, {"mul": 4 * 100, "add": 4 * 100})])
def test_a_transform_by_butterflies_or_by_sums(hand: Make, n: int, vec: dict[str, int]) -> None:
    """16 = 2^4: 8 x 4 butterflies; 10: each of 10 values from 10."""
    assert work(one(hand, "DFT", {"x": [1, n, 2]}, opset=17, axis=1)) == vec


def test_short_transforms_frame_by_frame(hand: Make) -> None:
    """64 values, frames of 16 every 8: 7 frames of 32 butterflies, weighed by 16 window values each."""
    model = one(
        hand, "STFT", {"x": [1, 64, 1]}, weights={"w": [16]}, ints={"h": [8]}, order=["x", "h", "w"], onesided=1
    )
    assert work(model) == {"mul": 7 * (4 * 32 + 16), "add": 7 * 6 * 32}
    assert (model.dims("y0"), model.weight_bytes()) == ([1, 7, 9, 2], 64)


# --- on the CPU


def test_the_largest_are_found_on_the_cpu(hand: Make) -> None:
    """3 of 10 in each of 2 rows: 2 levels of a heap for each of 20 values; the reason is listed."""
    model = one(hand, "TopK", {"x": [2, 10]}, 2, ints={"k": [3]})
    trace = model.trace(strict=True)
    (op,) = trace.phase("frame").ops()
    assert (op.unit, op.vec["add"]) == ("cpu", (40,))
    assert trace.header.report["cpu_fallbacks"]["TopK"]["why"] == "sorting is no vector work"


def test_random_numbers_are_drawn_on_the_cpu(hand: Make) -> None:
    trace = one(hand, "RandomNormalLike", {"x": [2, 10]}).trace()
    (op,) = trace.phase("frame").ops()
    assert (op.unit, op.vec["exp"]) == ("cpu", (40,))


# --- quantised elementwise ops


def test_a_quantised_sum_scales_both_sides(hand: Make) -> None:
    made = node("QLinearAdd", ["a", "s", "z", "b", "s", "z", "s", "z"], ["y"], domain=MS)
    model = hand([made], {"a": [2, 3], "b": [3]}, ["y"], weights={"s": [1]}, ints={"z": [0]})
    assert work(model) == {"convert": 12, "mul": 18, "add": 6}


def test_a_quantised_concatenation_scales_every_input(hand: Make) -> None:
    made = node("QLinearConcat", ["s", "z", "a", "s", "z", "b", "s", "z"], ["y"], domain=MS, axis=1)
    model = hand([made], {"a": [2, 3], "b": [2, 5]}, ["y"], weights={"s": [1]}, ints={"z": [0]})
    assert (work(model), model.dims("y")) == ({"convert": 16, "mul": 16}, [2, 8])


def test_a_bias_within_an_activation_is_added(hand: Make) -> None:
    """A Gelu is an exponential, four products and two sums; the bias one more, read once."""
    for kind in ("BiasGelu", "FastGelu"):
        model = one(hand, kind, {"x": [2, 3]}, weights={"b": [3]}, domain=MS)
        assert (work(model), model.weight_bytes()) == ({"exp": 6, "mul": 24, "add": 18}, 12)
    assert work(one(hand, "FastGelu", {"x": [2, 3]}, domain=MS))["add"] == 12


def test_an_integer_type_stays_one(hand: Make) -> None:
    """Quantised elements are bytes on their way out."""
    made = node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=TensorProto.INT8)
    trace = hand([made], {"x": [2, 3]}, ["y"], weights={"s": [1]}, opset=21).trace()
    assert trace.bind("frame").traffic()["io", True] == 6


# --- the rest, one by one


def _quantised(hand: Make, kind: str, x: list[int], **attrs: Any) -> Any:
    made = node(kind, ["x", "s", "z", "s", "z"], ["y"], domain=MS, **attrs)
    return hand([made], {"x": x}, ["y"], weights={"s": [1]}, ints={"z": [0]})


def test_quantised_pools_and_softmax(hand: Make) -> None:
    """[1, 2, 4, 4] by windows of 2 x 2 at stride 1: 18 results of 4; 2 of 16; a softmax converts both ways."""
    assert work(_quantised(hand, "QLinearAveragePool", [1, 2, 4, 4], kernel_shape=[2, 2])) == {
        "reduce": 72,
        "mul": 18,
        "convert": 18,
    }
    assert work(_quantised(hand, "QLinearGlobalAveragePool", [1, 2, 4, 4])) == {"reduce": 32, "mul": 2, "convert": 2}
    softmax = work(_quantised(hand, "QLinearSoftmax", [2, 5], opset=13))
    assert softmax == {"add": 10, "exp": 10, "reduce": 20, "mul": 20, "div": 2, "convert": 20}


def test_quantised_products_and_look_ups(hand: Make) -> None:
    made = node("QLinearMul", ["a", "s", "z", "b", "s", "z", "s", "z"], ["y"], domain=MS)
    model = hand([made], {"a": [2, 3], "b": [3]}, ["y"], weights={"s": [1]}, ints={"z": [0]})
    assert work(model) == {"convert": 12, "mul": 12, "add": 12}
    for kind in ("QLinearSigmoid", "QLinearLeakyRelu"):
        assert work(_quantised(hand, kind, [2, 3])) == {"convert": 6}


def test_products_of_four_bit_floats(hand: Make) -> None:
    """5 x 32 x 3 MACs; 48 packed bytes and an fp32 maximum for each block, of 32 here."""
    made = node("MatMulBnb4", ["x", "w", "m"], ["y"], domain=MS, K=32, N=3, block_size=32, quant_type=1)
    model = hand([made], {"x": [5, 32]}, ["y"], weights={"m": [3]})
    model.proto.graph.initializer.append(
        TensorProto(name="w", dims=[48], data_type=TensorProto.UINT8, data_location=TensorProto.EXTERNAL)
    )
    assert (model.macs(), model.weight_bytes()) == (5 * 32 * 3, 48 + 12)


def test_a_quantised_table_gives_rows(hand: Make) -> None:
    """2 of 50 rows of 64 nibbles with 2 fp32 scales each; 128 conversions."""
    made = node("GatherBlockQuantized", ["t", "i", "s"], ["y"], domain=MS, block_size=32, quantize_axis=1)
    model = hand([made], {"i": [2]}, ["y"], weights={"s": [50, 2]}, integer=["i"])
    model.proto.graph.initializer.append(
        TensorProto(name="t", dims=[50, 32], data_type=TensorProto.UINT8, data_location=TensorProto.EXTERNAL)
    )
    assert (model.weight_bytes(), work(model)) == (2 * (32 + 8), {"convert": 128})


def test_decoding_attention_over_a_shared_buffer(hand: Make) -> None:
    """A buffer of 100 entries with 39 valid ones and the new one: 2 x 40 x 32 MACs."""
    names = ["q", "k", "v", "", "", "pk", "pv", "n"]
    made = node("DecoderMaskedMultiHeadAttention", names, ["y", "nk", "nv"], domain=MS, num_heads=4)
    row, past = [1, 1, 32], [1, 4, 100, 8]
    model = hand([made], {"q": row, "k": row, "v": row, "pk": past, "pv": past}, ["y", "nk", "nv"], ints={"n": [39]})
    assert model.macs() == 2 * 40 * 32


def test_packed_attention_without_a_projection(hand: Make) -> None:
    """20 tokens, sequences of 16 at most, 4 heads of 8."""
    made = node("PackedMultiHeadAttention", ["q", "k", "v", "", "o", "c"], ["y"], domain=MS, num_heads=4)
    rows = [20, 32]
    model = hand([made], {"q": rows, "k": rows, "v": rows, "o": [3, 16], "c": [4]}, ["y"], integer=["o", "c"])
    assert model.macs() == 2 * 20 * 16 * 32


def test_norms_with_a_sum_before(hand: Make) -> None:
    """8 rows of 4: the norm's 2 sums an element and one a row, the skip's sum, and that of a bias where it has one."""
    weights = {"g": [4], "b": [4], "c": [4]}
    plain = one(hand, "SkipLayerNormalization", {"x": [8, 4], "z": [8, 4]}, weights={"g": [4], "b": [4]}, domain=MS)
    biased = one(hand, "SkipLayerNormalization", {"x": [8, 4], "z": [8, 4]}, weights=weights, domain=MS)
    assert (work(plain)["add"], work(biased)["add"]) == (3 * 32 + 8, 4 * 32 + 8)
    simple = one(hand, "SimplifiedLayerNormalization", {"x": [8, 4]}, weights={"g": [4]})
    assert work(simple) == {"mul": 96, "reduce": 32, "div": 8, "add": 8}


def test_groups_of_channels_that_come_last(hand: Make) -> None:
    """2 x 3 groups; with a SiLU; with a sum before."""
    weights = {"s": [6], "b": [6]}
    model = one(hand, "GroupNorm", {"x": [2, 5, 5, 6]}, weights=weights, domain=MS, groups=3, activation=1)
    assert work(model) == {"add": 600 + 6 + 300, "mul": 900 + 300, "reduce": 600, "div": 6 + 300, "exp": 300}
    more = {"x": [2, 5, 5, 6], "z": [2, 5, 5, 6]}
    order = ["x", "s", "b", "z"]
    model = one(hand, "SkipGroupNorm", more, 2, weights=weights, order=order, domain=MS, groups=3, activation=0)
    assert work(model)["add"] == 600 + 6 + 300


def test_scans_and_smallest_values(hand: Make) -> None:
    assert work(one(hand, "CumProd", {"x": [2, 6]}, ints={"a": [1]}, opset=26)) == {"reduce": 12}
    assert work(one(hand, "ReduceMin", {"x": [2, 6]}, ints={"a": [1]})) == {"reduce": 12}


def test_half_of_a_gate(hand: Make) -> None:
    """A bias for 2 x 8 values, a Gelu of half of them, a product."""
    model = one(hand, "BiasSplitGelu", {"x": [2, 8]}, weights={"b": [8]}, domain=MS)
    assert work(model) == {"add": 16 + 16, "exp": 8, "mul": 40}
    assert model.dims("y0") == [2, 4]


def test_an_old_scatter_is_one_of_elements(hand: Make) -> None:
    model = one(hand, "Scatter", {"x": [4, 5], "i": [2, 5], "u": [2, 5]}, integer=["i"], opset=9)
    assert work(model) == {"convert": 30}


def test_biases_by_distance(hand: Make) -> None:
    """One for each of 4 heads, 5 rows and 7 columns."""
    made = node("RelativePositionBias", ["t", "n", "m"], ["y"], domain=MS, max_distance=128)
    model = hand([made], {"t": [32, 4]}, ["y"], ints={"n": [5], "m": [7]})
    assert (work(model), model.dims("y")) == ({"convert": 140}, [1, 4, 5, 7])


@pytest.mark.parametrize("kind", ["HammingWindow", "BlackmanWindow"])
def test_windows_of_a_known_size_are_prepared(hand: Make, kind: str) -> None:
    nodes = [node(kind, ["n"], ["w"]), node("Mul", ["x", "w"], ["y"])]
    model = hand(nodes, {"x": [2, 16]}, ["y"], ints={"n": [16]})
    assert (work(model), model.weight_bytes()) == ({"mul": 32}, 64)


@pytest.mark.parametrize(("kind", "exp"), [("RandomNormal", 12), ("RandomUniformLike", 0)])
def test_random_tensors(hand: Make, kind: str, exp: int) -> None:
    """A normal number takes two transcendental steps."""
    made = node(kind, ["x"] if kind.endswith("Like") else [], ["r"], **({} if "Like" in kind else {"shape": [2, 3]}))
    trace = hand([made, node("Add", ["x", "r"], ["y"])], {"x": [2, 3]}, ["y"]).trace()
    first, _ = trace.phase("frame").ops()
    assert (first.unit, first.vec.get("exp", (0,))) == ("cpu", (exp,))
