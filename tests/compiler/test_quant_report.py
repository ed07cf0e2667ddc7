"""The noise of a plan: exact on matrices worked by hand, by the law of rounding on random ones, and on real files."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import Callable
from math import inf, log10
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bpusim.cli import main
from bpusim.compiler import Options
from bpusim.compiler.build import compile_file
from bpusim.compiler.quant import Plan
from bpusim.compiler.quant_report import QuantReport, quant_report
from bpusim.compiler.rounding import decibels, noise, rounded
from bpusim.compiler.widths import Width
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec

INT4 = Width(4, 0, 4)
HAND = np.array([[7.0, 3.5, -7.0, 1.2], [0.0, 0.0, 0.0, 0.0]])
"""A step of 1: 3.5 becomes 4 and 1.2 becomes 1. Signal 111.69, noise 0.25 + 0.04."""

Study = Callable[..., QuantReport]


def db(ratio: float) -> float:
    return 10 * log10(ratio)


def test_rounding_by_hand() -> None:
    assert rounded(HAND, INT4).tolist() == [[7, 4, -7, 1], [0, 0, 0, 0]]


def test_a_block_has_its_own_step() -> None:
    """The second pair: the largest is 0.7, a step 0.1, and -0.26 becomes -0.3."""
    got = rounded(np.array([[7.0, 3.1, 0.7, -0.26]]), Width(4, 2, 4))
    assert got == pytest.approx(np.array([[7, 3, 0.7, -0.3]]), rel=1e-6)


def test_a_block_that_is_not_full() -> None:
    assert rounded(np.array([[7.0, 3.1, 14.0]]), Width(4, 2, 4)).tolist() == [[7, 3, 14]]


def test_the_scale_is_rounded_to_its_type() -> None:
    """1 / 7 in fp16 is 0.142822265625, in fp32 0.142857149243."""
    one = np.array([[1.0]])
    assert rounded(one, Width(4, 0, 2))[0, 0] == 7 * 0.142822265625
    assert rounded(one, Width(4, 0, 4))[0, 0] == 7 * float(np.float32(1) / np.float32(7))


def test_floats_round_to_the_nearest_and_stay_finite() -> None:
    got = rounded(np.array([[1 + 2**-12, 1e6]]), Width(16))
    assert got.tolist() == [[1.0, 65504.0]]


def test_signal_and_noise_by_hand() -> None:
    signal, errors = noise(lambda a, b: HAND[a:b], 2, 4, [INT4])
    assert signal[0] == pytest.approx(111.69)
    assert errors[0, 0] == pytest.approx(0.29)


def test_activations_weigh_the_noise() -> None:
    """Samples that see 7 alone lose nothing, one that sees 3.5 loses 0.5 of it, one that sees both 0.5 of 10.5."""
    x = np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]])
    signal, errors = noise(lambda a, b: HAND[a:b], 2, 4, [INT4], x)
    assert signal == pytest.approx([49, 12.25, 110.25])
    assert errors[0] == pytest.approx([0, 0.25, 0.25])


def test_decibels_at_the_ends() -> None:
    assert (decibels(1, 0), decibels(0, 0), decibels(0, 1)) == (inf, inf, -inf)


@pytest.mark.parametrize(("bits", "steps"), [(4, 7), (8, 127)])
def test_noise_of_uniform_weights_is_a_twelfth_of_the_step_squared(bits: int, steps: int) -> None:
    """Signal 1/3 against (1/steps)^2 / 12 is 4 steps^2: 22.92 dB at int4, 48.10 dB at int8."""
    w = np.random.default_rng(1).uniform(-1, 1, (40, 5000))
    signal, errors = noise(lambda a, b: w[a:b], 40, 5000, [Width(bits, 0, 4)])
    assert decibels(signal[0], errors[0, 0]) == pytest.approx(db(4 * steps**2), abs=0.1)


def save(folder: Path, nodes: list[onnx.NodeProto], weights: dict[str, NDArray[Any]], k: int, external: bool) -> Path:
    """A net of one input ``x`` of ``k`` features, and of the last node's output."""
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, k])],
        [helper.make_empty_tensor_value_info(nodes[-1].output[0])],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = folder / "net.onnx"
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, path, save_as_external_data=external, location="net.data", size_threshold=0)
    return path


@pytest.fixture
def study(tmp_path: Path, core: CoreSpec) -> Study:
    """``study(nodes, weights, k, ...)``: the report on a net made of them."""

    def run(
        nodes: list[onnx.NodeProto],
        weights: dict[str, NDArray[Any]],
        k: int,
        *sets: str,
        quant: str = "int4",
        given: dict[str, NDArray[Any]] | None = None,
        external: bool = True,
    ) -> QuantReport:
        path = save(tmp_path, nodes, weights, k, external)
        if given is not None:
            np.savez(tmp_path / "x.npz", **given)  # type: ignore[arg-type]
        compiled = compile_file(path, core, Options(quant=quant, quant_set=sets))
        plan = Plan.parse(quant, sets, "int16")
        return quant_report(compiled, plan, path, 1e9, tmp_path / "x.npz" if given is not None else None)

    return run


CHANNEL = "linear=int4/channel/fp32"
ONE = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
W = HAND.astype(np.float32).T.copy()
"""As MatMul has it: columns are the rows that share steps."""


@pytest.mark.parametrize("external", [True, False])
@pytest.mark.parametrize(
    ("node", "w"),
    [
        (ONE, W),
        (helper.make_node("Gemm", ["x", "w"], ["y"], transB=1), W.T.copy()),
        (helper.make_node("Gemm", ["x", "w"], ["y"]), W),
        (helper.make_node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft", transB=1), W.T.copy()),
    ],
)
def test_a_layer_of_a_file(study: Study, node: onnx.NodeProto, w: NDArray[Any], external: bool) -> None:
    (row,) = study([node], {"w": w}, 4, CHANNEL, external=external).layers
    assert row.sqnr_db == pytest.approx(db(111.69 / 0.29), abs=1e-5)
    assert (row.rows, row.k, row.width, row.bytes) == (2, 4, "int4/channel/fp32", 2 * (2 + 4))


def test_a_weight_behind_a_transpose(study: Study) -> None:
    turn = helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0])
    (row,) = study([turn, helper.make_node("MatMul", ["x", "t"], ["y"])], {"w": W.T.copy()}, 4, CHANNEL).layers
    assert row.sqnr_db == pytest.approx(db(111.69 / 0.29), abs=1e-5)


def test_packed_weights_are_what_they_stand_for(study: Study) -> None:
    """16 nibbles a row around 8, low half first, times 0.5: 0 to 7 and back is int4 already, of another scale."""
    q = np.array([[15, 8, 1, 9, 8, 8, 8, 8] * 2], np.uint8)
    packed = (q[:, 0::2] | q[:, 1::2] << 4).reshape(1, 1, 8)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=16, N=1, bits=4, block_size=16
    )
    weights = {"w": packed, "s": np.array([0.5], np.float32)}
    (row,) = study([node], weights, 16, CHANNEL, given={"w": np.eye(16)}).layers
    assert row.sqnr_db == inf
    assert row.to_dict()["sqnr_db"] is None
    assert row.gain_db == 0


@pytest.mark.parametrize("points", [np.array([0xF3], np.uint8), np.array([3.0], np.float32)])
def test_packed_weights_with_zero_points(study: Study, points: NDArray[Any]) -> None:
    """Around 3 with a scale of 1: 10, 3 and 6 are 7, 0 and 3, which a step of 1 holds; of 10, 3, 6 around 8 the
    largest is 5, and its step of 5/7 holds neither 2 nor -2."""
    q = np.array([[10, 3, 6, 3] * 4], np.uint8)
    packed = (q[:, 0::2] | q[:, 1::2] << 4).reshape(1, 1, 8)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s", "z"], ["y"], domain="com.microsoft", K=16, N=1, bits=4, block_size=16
    )
    report = study([node], {"w": packed, "s": np.array([1], np.float32), "z": points}, 16, "linear=int4/channel/fp32")
    assert report.layers[0].sqnr_db == inf


def test_a_convolution_by_its_windows(study: Study) -> None:
    node = helper.make_node("Conv", ["i", "w"], ["y"])
    shape = helper.make_node("Reshape", ["x", "to"], ["i"])
    weights = {"w": HAND.astype(np.float32).reshape(2, 1, 2, 2), "to": np.array([1, 1, 2, 2])}
    (row,) = study([shape, node], weights, 4, "conv=int4/channel/fp32", given={"w": np.eye(4)}, external=False).layers
    assert (row.role, row.k) == ("conv", 4)
    assert row.calibrated_db["all"] == row.sqnr_db == pytest.approx(db(111.69 / 0.29), abs=1e-5)


def test_few_samples_and_many(study: Study) -> None:
    """One sees 7 alone, the next eight 3.5: a signal of 49 and of 12.25 each, a noise of 0.25 each."""
    x = np.zeros((16, 4))
    x[0, 0] = 1
    x[1:9, 1] = 1
    (row,) = (report := study([ONE], {"w": W}, 4, CHANNEL, given={"x": x})).layers
    assert row.calibrated_db["1"] == inf
    assert row.calibrated_db["8"] == pytest.approx(db((49 + 7 * 12.25) / (7 * 0.25)), abs=1e-5)
    assert row.calibrated_db["all"] == pytest.approx(db((49 + 8 * 12.25) / (8 * 0.25)), abs=1e-5)
    places, change = report.moved("8")
    assert places == 0
    assert change == pytest.approx(row.calibrated_db["8"] - row.calibrated_db["all"])


def test_samples_are_the_first_axis(study: Study) -> None:
    """Two samples of two tokens: one sample is both of its tokens."""
    x = np.zeros((2, 2, 4))
    x[0, 0, 0] = x[0, 1, 1] = 1
    (row,) = study([ONE], {"w": W}, 4, CHANNEL, given={"product": x}).layers
    assert row.calibrated_db["1"] == pytest.approx(db(61.25 / 0.25), abs=1e-5)


TWO = [helper.make_node("MatMul", ["x", "a"], ["y"], "first"), helper.make_node("MatMul", ["y", "b"], ["z"], "second")]


def test_the_ranking_is_db_a_byte_and_says_what_it_costs(study: Study) -> None:
    """``a`` is 64 x 64, ``b`` 64 x 8: gains are alike, so the small one goes first. 8 rows of 64: 32 B more each."""
    rng = np.random.default_rng(2)
    weights = {"a": rng.normal(size=(64, 64)).astype(np.float32), "b": rng.normal(size=(64, 8)).astype(np.float32)}
    first, second = study(TWO, weights, 64).ranked
    assert (first.tensor, first.more_bytes, first.more_us) == ("b", 8 * 32, pytest.approx(0.256))
    assert (second.tensor, second.more_bytes) == ("a", 64 * 32)
    assert first.gain_db == pytest.approx(20 * log10(127 / 7), abs=1)


def test_samples_change_the_ranking(study: Study) -> None:
    """Equal sizes: the samples see nothing of ``a`` but a column that int4 holds as well as int8."""
    a, b = np.eye(4, dtype=np.float32), W[:, [0, 0, 0, 0]].copy()
    a[1] = 0.3
    one = np.array([[1.0, 0, 0, 0]] * 9)
    report = study(TWO, {"a": a, "b": b}, 4, CHANNEL, given={"a": one, "b": np.eye(4)})
    assert [r.tensor for r in report.ranked] == ["b", "a"]
    assert report.layers[0].ranks["weights"] != report.layers[0].ranks["all"]
    assert report.moved("weights")[0] == 2


def test_what_is_wide_already_is_not_ranked(study: Study) -> None:
    report = study([ONE], {"w": W}, 4, quant="int8")
    assert report.ranked == []
    assert report.layers[0].gain_db is None


def test_what_cannot_be_read_is_listed(study: Study) -> None:
    nodes = [ONE, helper.make_node("Reshape", ["v", "to"], ["m"]), helper.make_node("MatMul", ["y", "m"], ["z"])]
    nodes.insert(0, helper.make_node("ConvTranspose", ["i", "c"], ["o"]))
    nodes.insert(0, helper.make_node("Unsqueeze", ["x", "axes"], ["i"]))
    nodes.append(helper.make_node("ReduceMax", ["o"], ["r"], keepdims=0))
    nodes.append(helper.make_node("Add", ["z", "r"], ["sum"]))
    more = {"c": np.ones((1, 2, 3), np.float32), "axes": np.array([1])}
    report = study(nodes, more | {"w": W, "v": np.ones(6, np.float32), "to": np.array([2, 3])}, 4, external=False)
    assert report.skipped == {"v": "behind Reshape", "c": "its op is ConvTranspose"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"q": np.ones((2, 4))}, "'q' is the input, the weight or the node of no layer"),
        ({"x": np.ones((2, 5))}, "'x' is 2x5; 'w' takes samples of 4 features"),
        ({"x": np.ones(4)}, "'x' is 4; "),
        ({"x": np.full((1, 4), np.nan)}, "no finite numbers"),
        ({"x": np.array([["a", "b", "c", "d"]])}, "no finite numbers|cannot be read"),
        ({}, "holds no array"),
    ],
)
def test_calibration_that_does_not_fit(study: Study, given: dict[str, NDArray[Any]], said: str) -> None:
    with pytest.raises(CompileError, match=said):
        study([ONE], {"w": W}, 4, given=given)


def test_weights_that_are_no_numbers(study: Study) -> None:
    with pytest.raises(CompileError, match="tensor 'w' has infinite elements or NaN"):
        study([ONE], {"w": np.full_like(W, np.inf)}, 4)


def test_memory_does_not_follow_the_model(tmp_path: Path, core: CoreSpec) -> None:
    """A matrix of 32 MiB is read in parts; doubles of it would be 64 MiB, and there are several."""
    w = np.random.default_rng(3).normal(size=(2048, 4096)).astype(np.float32)
    path = save(tmp_path, [ONE], {"w": w}, 2048, True)
    del w
    made = compile_file(path, core, Options(quant="int4"))
    tracemalloc.start()
    try:
        report = quant_report(made, Plan("int4"), path, 1e9, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(report.layers) == 1
    assert peak < 24 * 2**20


def compiled(path: Path, folder: Path, *more: str) -> Result:
    words = ["compile", str(path), "--quant", "int4", "-o", str(folder / "x.trace"), "--quant-report", *more]
    return CliRunner().invoke(main, words)


def test_formats(tmp_path: Path) -> None:
    path = save(tmp_path, [ONE], {"w": W}, 4, True)
    np.savez(tmp_path / "x.npz", x=np.eye(4))
    more = ("--calibration", str(tmp_path / "x.npz"))
    table = compiled(path, tmp_path, *more)
    assert table.exit_code == 0, table.output
    assert "Worth keeping at int8" in table.stdout
    assert "1 sample against all: 0 of 1 places differ" in table.stdout
    (row,) = csv.DictReader(io.StringIO(compiled(path, tmp_path, *more, "--format", "csv").stdout))
    said = json.loads(compiled(path, tmp_path, *more, "--format", "json").stdout)
    assert said["worth_int8"] == ["w"]
    assert float(row["db_all"]) == said["layers"][0]["calibrated_db"]["all"]
    assert (tmp_path / "x.trace").is_file()


def test_a_file_without_its_weights(tmp_path: Path) -> None:
    path = save(tmp_path, [ONE], {"w": W}, 4, True)
    (tmp_path / "net.data").unlink()
    done = compiled(path, tmp_path)
    assert done.exit_code == 2
    assert done.stderr.count("error") == 1
    assert "--quant-report needs the weights: data file 'net.data' is not there" in done.stderr
    assert not (tmp_path / "x.trace").exists()


def test_options_that_need_the_report(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["compile", "x.onnx", "-o", str(tmp_path / "x"), "--format", "csv"])
    assert done.exit_code == 2
    assert "--quant-report: add it" in done.stderr


def test_a_plan_that_rounds_nothing(study: Study) -> None:
    with pytest.raises(CompileError, match="the plan 'keep' rounds nothing"):
        study([ONE], {"w": W}, 4, quant="keep")


@pytest.mark.parametrize("name", ["int4-genai", "decode-kv128-torch", "prefill64-torch"])
def test_real_files(export: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    """Weights are nearly normal: int4 in blocks of 64 leaves about 20 dB, and int8 brings 20 log10(127 / 7) = 25."""
    done = compiled(export(f"tiny/qwen2-tiny-{name}.onnx"), tmp_path, "--format", "json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["not_read"] == {}
    assert len(said["layers"]) == (11 if name == "int4-genai" else 15)
    for row in said["layers"]:
        if row["role"] == "linear":
            assert 18 < row["sqnr_db"] < 22
            assert 24 < row["gain_db"] < 26.5
