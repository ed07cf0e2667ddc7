"""Calibration: planted parameters come back, what the data cannot carry is refused, contradictions are left out."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bpusim.cli.calibrate import compile_wish
from bpusim.errors import StudyError
from bpusim.study.calibration import Calibration, Noise, calibrate, read_measurements
from bpusim.study.calibration.baselines import constant_efficiency, per_layer, per_token
from bpusim.study.calibration.fit import Fit, _check_known
from bpusim.study.calibration.parameters import Parameter
from bpusim.study.calibration.rows import chunk_of
from bpusim.study.calibration.writing import Command, machine_text

SLOW = ("machine.cores.scratchpad=256 KiB", "machine.cores.dma.port=2 GB/s", "machine.cores.clock=40 MHz")
"""So slow that small models are no matter of the host alone, and that a layer's cost is not hidden behind transfers."""
PLANTED = (*SLOW, "machine.cores.layer_sync=150 us")
START = (*SLOW[:2], "machine.cores.clock=60 MHz")
COLUMNS = "row_id,board,model,layers,hidden,n_heads,n_kv,head_dim,ffn,vocab,tied,w_bits,a_bits,prompt_len"
MODELS = (  # small, so that they run in milliseconds, and unlike in bytes a layer, so that costs can be told apart
    "a,toy,deep,16,256,4,2,64,512,2000,0,8,16,64",
    "b,toy,wide,2,1024,8,4,128,4096,8000,0,8,16,64",
    "c,toy,wide w4,2,1024,8,4,128,4096,8000,0,4,16,64",
    "d,toy,mid,8,512,8,4,64,2048,4000,1,8,16,64",
    "e,toy,flat,4,768,6,6,128,3072,4000,1,8,16,64",
)

Fitted = Callable[..., Calibration]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled once for all tests."""
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def truth(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[float, float]]:
    """(TTFT in ms, tokens a second) of each model on the planted machine."""
    path = tmp_path_factory.mktemp("truth") / "truth.csv"
    path.write_text("\n".join([f"{COLUMNS},ttft_ms,decode_tps", *(f"{m},1,1" for m in MODELS)]) + "\n")
    done = calibrate(read_measurements(path), "bpu80", [], compile_wish, overrides=PLANTED, traces=traces)
    return [(r.fitted.ttft_ms, r.fitted.decode_tps) for r in done.rows]


@pytest.fixture
def fitted(tmp_path: Path, traces: Path, truth: list[tuple[float, float]]) -> Fitted:
    """``fitted(*paths, noise, times, rows)``: a fit to the truth with noise, some figures of it multiplied."""

    def run(
        *paths: str,
        seed: int | None = None,
        times: dict[tuple[int, int], float] | None = None,
        rows: int = len(MODELS),
        more: tuple[str, ...] = (),
        **options: Any,
    ) -> Calibration:
        draws = np.random.default_rng(seed).normal(size=(len(MODELS), 2)) if seed is not None else np.zeros((9, 2))
        lines = [f"{COLUMNS},ttft_ms,decode_tps"]
        for k, model in enumerate(MODELS[:rows]):
            factors = [math.exp(draws[k][i] * (0.12, 0.03)[i]) * (times or {}).get((k, i), 1.0) for i in (0, 1)]
            lines.append(f"{model},{truth[k][0] * factors[0]},{truth[k][1] * factors[1]}")
        path = tmp_path / "rows.csv"
        path.write_text("\n".join([*lines, *more]) + "\n")
        return calibrate(read_measurements(path), "bpu80", paths, compile_wish, traces=traces, **options)

    return run


def test_planted_parameters_come_back_from_exact_figures(fitted: Fitted) -> None:
    start = (SLOW[0], "machine.cores.dma.port=3 GB/s", START[2])
    done = fitted("cores.layer_sync", "cores.dma.port", "machine.cores.clock", overrides=start)
    found = done.found
    assert found is not None
    values = [p.value(x) for p, x in zip(done.parameters, found.at, strict=True)]
    assert values == pytest.approx([150e6, 2e9, 40e6], rel=1e-2)
    assert done.observations == 10
    assert found.freedom == 7
    assert all(abs(r.error("decode", r.unseen) or 0) < 0.01 for r in done.rows)


def test_planted_parameters_lie_in_the_stated_intervals(fitted: Fitted) -> None:
    """Eight intervals of 95 %: more than one miss has a chance of 6 %, and the seeds are fixed."""
    hits = 0
    for seed in range(4):
        found = fitted("cores.layer_sync", "cores.clock", seed=seed, overrides=START).found
        assert found is not None
        for k, planted in enumerate((150e6, 40e6)):
            low, high = found.interval(k)
            assert high / low < 3, "an interval that holds everything says nothing"
            hits += low <= planted <= high
    assert hits >= 7


def test_an_unseen_row_is_told_without_it(fitted: Fitted) -> None:
    """A row that is off pulls the fit to all rows towards itself, and not the fit without it."""
    done = fitted("cores.layer_sync", times={(0, 1): 1.3}, overrides=SLOW)
    row = done.rows[0]
    with_it, without = row.error("decode", row.fitted), row.error("decode", row.unseen)
    assert with_it is not None
    assert without is not None
    assert without == pytest.approx(1 / 1.3 - 1, abs=6e-3)
    assert abs(without) > abs(with_it) + 0.01


# --- what is refused


@pytest.mark.parametrize(
    ("paths", "says"),
    [
        (["dram.efficiency"], "'dram.efficiency' is no number of a machine; the channel's efficiency comes from"),
        (["cores.layer_sinc"], "'cores.layer_sinc' is no number of a machine; did you mean 'cores.layer_sync'?"),
        (["cores.vector.lanes"], "cores.vector.lanes shapes the compiled trace"),
        (["host.cores"], "host.cores is a count"),
        (["cores.layer_sync", "machine.cores.layer_sync"], "--fit machine.cores.layer_sync: error: named twice"),
        (["host.per_frame"], "machine.host.per_frame has no effect on what was measured; leave it out of --fit"),
        (["host.fallback_op"], "machine.host.fallback_op has no effect"),
    ],
)
def test_paths_that_cannot_be_fitted(fitted: Fitted, paths: list[str], says: str) -> None:
    with pytest.raises(StudyError) as caught:
        fitted(*paths)
    assert says in str(caught.value)


def test_all_wrong_paths_are_told_at_once(fitted: Fitted) -> None:
    with pytest.raises(StudyError) as caught:
        fitted("cores.nothing", "host.cores")
    assert len(caught.value.problems) == 2


def test_more_parameters_than_the_data_carry(fitted: Fitted) -> None:
    with pytest.raises(StudyError) as caught:
        fitted("cores.layer_sync", "cores.clock", rows=1)
    assert "2 parameters and 2 observations to fit; 3 are the fewest" in str(caught.value)


def test_two_parameters_with_one_effect(fitted: Fitted) -> None:
    """Both are paid once a token and nothing tells them apart."""
    with pytest.raises(StudyError, match=r"machine\.host\.per_token and machine\.host\.interrupt cannot be told apart"):
        fitted("host.per_token", "host.interrupt", overrides=SLOW)


@pytest.mark.parametrize(("variance", "says"), [(1e6, ""), (4.0, ": 95 % from ")])
def test_what_the_rows_hardly_show(variance: float, says: str) -> None:
    """An interval is shown where its ends are within what floats and people can take."""
    parameter = Parameter("machine.cores.op_overhead", 1e6, "time")
    found = Fit((parameter,), (0.0,), np.ones((9, 1)), np.zeros(9), np.array([[variance]]))
    with pytest.raises(StudyError) as caught:
        _check_known(found)
    text = caught.value.problems[0].what
    assert text.startswith(f"machine.cores.op_overhead is not determined by the rows{says}")
    assert ("95 %" in text) == bool(says)


def test_what_ends_at_a_bound(fitted: Fitted) -> None:
    """A channel four times as fast would not do: the core's clock is what limits the first token."""
    with pytest.raises(StudyError, match=r"machine\.dram\.speed ended at 0\.25, the least it may be"):
        fitted(
            "dram.speed",
            times={(k, 1): 0.1 for k in range(5)},
            overrides=["machine.dram.speed=0.3"],
            keep_outliers=True,
        )


# --- outliers


def test_a_figure_23_times_off_is_left_out_and_told(fitted: Fitted) -> None:
    """BH-36: the same model 0.95 and 22 ms apart on a busy board; the fit is as if the row were not there."""
    done = fitted("cores.layer_sync", "cores.clock", times={(1, 0): 23.0}, overrides=START)
    assert done.found is not None
    assert [(o.observation.recipe.row.id, o.observation.kind) for o in done.outliers] == [("b", "ttft")]
    assert str(done.outliers[0]).startswith("row b (wide), TTFT")
    values = [p.value(x) for p, x in zip(done.parameters, done.found.at, strict=True)]
    assert values == pytest.approx([150e6, 40e6], rel=2e-2)
    assert [r.counted("ttft") for r in done.rows] == [True, False, True, True, True]
    assert done.observations == 9


@pytest.mark.parametrize(
    ("column", "times", "says"),
    [
        (
            0,
            1e-3,
            "ttft_ms: 5 of 5 figures are too short, by about 989 times; are they milliseconds? 1000 times is",
        ),
        (0, 1e3, "are they milliseconds? 1000 times is what microseconds would give; --keep"),
        (1, 1e-2, "decode_tps: 5 of 5 figures are too slow, by about 101 times; are they tokens a second?"),
    ],
)
def test_figures_in_another_unit_are_no_outliers(fitted: Fitted, column: int, times: float, says: str) -> None:
    factors = {(k, column): times for k in range(5)}
    with pytest.raises(StudyError) as caught:
        fitted("cores.clock" if column else "host.interrupt", times=factors, overrides=SLOW)
    assert says in str(caught.value)


def test_rates_above_the_peak_in_most_rows_are_a_unit(tmp_path: Path, traces: Path) -> None:
    path = tmp_path / "rows.csv"
    head = f"{COLUMNS},peak_gbs,decode_tps"
    path.write_text("\n".join([head, *(f"{m},10,1e6" for m in MODELS[:3])]) + "\n")
    with pytest.raises(StudyError, match=r"decode_tps: 3 of 3 figures are too fast, by about .* tokens a second\?"):
        calibrate(read_measurements(path), "bpu80", [], compile_wish, traces=traces)


def test_one_fault_is_told_in_one_direction(fitted: Fitted) -> None:
    for column, times, says in (
        (0, 5, "as long as"),
        (0, 0.2, "as short as"),
        (1, 5, "as fast as"),
        (1, 0.2, "as slow as"),
    ):
        (outlier,) = fitted("cores.layer_sync", "cores.clock", times={(1, column): times}, overrides=START).outliers
        assert says in outlier.why
        assert float(outlier.why.split()[0]) > 2


def test_repeats_that_contradict_each_other_are_both_left_out(fitted: Fitted, truth: list[tuple[float, float]]) -> None:
    again = MODELS[0].replace("a,toy,deep", "again,toy,deep") + f",{truth[0][0]},{truth[0][1] / 20}"
    done = fitted("cores.layer_sync", overrides=SLOW, more=(again,))
    assert {o.observation.recipe.row.id for o in done.outliers} == {"a", "again"}
    assert "rows a, again measure the same, 20 times apart" in str(done.outliers[0])


def test_kept_outliers_are_fitted_to(fitted: Fitted) -> None:
    done = fitted("cores.layer_sync", times={(1, 1): 0.45}, overrides=SLOW, keep_outliers=True)
    assert not done.outliers
    assert done.found is not None
    assert done.parameters[0].value(done.found.at[0]) > 160e6


# --- the file of rows


def _read(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(StudyError) as caught:
        read_measurements(path)
    return str(caught.value).replace(f"{path}", "rows.csv")


def test_missing_columns_are_named(tmp_path: Path) -> None:
    text = _read(tmp_path, "row_id,layers,hiden,n_heads,n_kv,ffn,vocab,tied,decode_tps", "1,2,3,4,5,6,7,1,9")
    assert text == "rows.csv:1: error: column 'hidden' is missing; did you mean 'hiden'?"


def test_all_missing_columns_are_one_error(tmp_path: Path) -> None:
    text = _read(tmp_path, "row_id,layers,hidden,n_heads,ffn,vocab", "1,2,3,4,5,6")
    assert text.count("error:") == 1
    assert "columns 'n_kv', 'tied', 'ttft_ms' or 'decode_tps' are missing; add them, or a column trace or" in text


def test_files_that_are_no_table(tmp_path: Path) -> None:
    assert "the file is empty; give it a head" in _read(tmp_path, "")
    assert "rows.csv:1: error: columns are separated by ';'; separate them by commas" in _read(
        tmp_path, "row_id;layers"
    )


# --- what a row does not say


def _row(tmp_path: Path, **cells: str) -> str:
    """A file of one row, MODELS[0] with other cells; its text."""
    known = dict(zip(COLUMNS.split(","), MODELS[0].split(","), strict=True)) | {"decode_tps": "1"} | cells
    path = tmp_path / "rows.csv"
    path.write_text(",".join(known) + "\n" + ",".join(known.values()) + "\n")
    return f"{path}"


def _wrong(tmp_path: Path, **cells: str) -> str:
    with pytest.raises(StudyError) as caught:
        read_measurements(Path(_row(tmp_path, **cells)))
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("quant", "bits"),
    [("w4", 4), ("w4a16", 4), ("W8", 8), ("w8a8", 8), ("int4", 4), ("int8", 8), ("fp16", 16), ("f16", 16), ("q4_0", 4)],
)
def test_bits_of_weights_by_quant(tmp_path: Path, quant: str, bits: int) -> None:
    (row,) = read_measurements(Path(_row(tmp_path, w_bits="", quant=quant))).rows
    assert row.weight_bits == bits
    assert f"weights of {bits} bits by quant '{quant}'" in row.assumed
    (row,) = read_measurements(Path(_row(tmp_path, quant="odd"))).rows
    assert not any("bits by quant" in a for a in row.assumed)


def test_bits_of_weights_that_nothing_says(tmp_path: Path) -> None:
    assert _wrong(tmp_path, w_bits="") == (
        "rows.csv:2: error: nothing says how wide the weights are; "
        "write 4, 8 or 16 into w_bits, or w4, w8, fp16 into quant"
    )
    assert "rows.csv:2: error: nothing says" in _wrong(tmp_path, w_bits="", quant="best")
    assert "quant 'w4' and w_bits 8 contradict each other; correct one" in _wrong(tmp_path, quant="w4")
    assert _wrong(tmp_path, w_bits="eight").count("error:") == 1


def test_groups_that_do_not_divide(tmp_path: Path) -> None:
    assert "rows.csv:2: error: w_group: 100 does not divide hidden 256" in _wrong(tmp_path, w_group="100")


def test_cores_of_which_one_number_is_known(tmp_path: Path) -> None:
    for cells in ({"npu_cores_total": "2"}, {"npu_cores_used": "2"}):
        (row,) = read_measurements(Path(_row(tmp_path, **cells))).rows
        assert row.cores == (2, 2)
        assert "all cores used, 2" in row.assumed


def test_what_is_assumed_is_in_the_notes(fitted: Fitted) -> None:
    (note,) = fitted(rows=1).rows[0].notes
    assert note == "assumed: a context of 512, chunks of 128 tokens, a scale a channel"


def test_configurations_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    do = "name a file, by its path from the folder of rows.csv"
    assert _wrong(tmp_path, config="no.json") == f"rows.csv:2: error: config: 'no.json' does not exist; {do}"
    assert _wrong(tmp_path, config="folder") == f"rows.csv:2: error: config: 'folder' is a folder; {do}"
    assert (
        _wrong(tmp_path, config="latin.json")
        == "rows.csv:2: error: config: 'latin.json' is not UTF-8; save it as UTF-8"
    )
    assert _wrong(tmp_path, trace="no.trace") == f"rows.csv:2: error: trace: 'no.trace' does not exist; {do}"


def test_text_in_a_number_is_told_with_its_line(tmp_path: Path) -> None:
    head = f"{COLUMNS},ttft_ms,decode_tps"
    text = _read(tmp_path, head, f"{MODELS[0]},1 ms,2", f"{MODELS[1]},1,-2", MODELS[2])
    assert text.splitlines() == [
        "rows.csv:2: error: ttft_ms: '1 ms' is not a number; write digits without a unit, or leave it empty",
        "rows.csv:3: error: decode_tps: -2 is not above 0; leave it empty if it was not measured",
        "rows.csv:4: error: 16 columns in the head, and fewer in this line; give the line as many; "
        "quote texts with commas",
    ]


def test_rows_of_two_boards_are_of_two_machines(tmp_path: Path) -> None:
    text = _read(tmp_path, f"{COLUMNS},decode_tps", f"{MODELS[0]},1", f"{MODELS[1].replace('toy', 'other')},1")
    assert text == "rows.csv: error: rows of 2 boards: toy, other; a machine is one of them: --board 'toy'"


def test_a_row_that_cannot_be_compiled_is_listed(fitted: Fitted) -> None:
    odd = MODELS[0].replace("a,toy", "odd,toy").replace("0,8,16,64", "0,6,16,64")
    done = fitted(more=(f"{odd},1,1", MODELS[1].replace("b,toy", "bare,toy").replace(",2,1024", ",,1024") + ",1,1"))
    assert [(row.id, why) for row, why in done.unusable] == [
        ("odd", "weights of 6 bits: 4, 8 and 16 can be compiled"),
        ("bare", "layers not given: the model cannot be compiled"),
    ]


@pytest.mark.parametrize(
    ("prompt", "context", "chunk"),
    [(64, None, 128), (256, 1024, 256), (300, None, 512), (2000, 4096, 512), (None, 4096, 256), (64, 96, 96)],
)
def test_chunks(prompt: int | None, context: int | None, chunk: int) -> None:
    assert chunk_of(prompt, context) == chunk


def test_fewer_cores_are_a_narrower_core(fitted: Fitted, tmp_path: Path, traces: Path) -> None:
    path = tmp_path / "cores.csv"
    head = f"{COLUMNS},npu_cores_used,npu_cores_total,decode_tps,ttft_ms"
    path.write_text("\n".join([head, f"{MODELS[1]},1,2,1,1", f"{MODELS[1].replace('b,', 'b2,')},2,2,1,1"]) + "\n")
    one = (*PLANTED, "machine.cores.count=1")
    half, whole = calibrate(read_measurements(path), "bpu80", [], compile_wish, overrides=one, traces=traces).rows
    assert half.recipe.overrides["machine.cores.mac.cols"] == 64
    assert half.fitted.ttft_ms > 1.2 * whole.fitted.ttft_ms
    assert half.fitted.decode_tps < whole.fitted.decode_tps
    split = calibrate(read_measurements(path), "bpu80", [], compile_wish, traces=traces).rows[1]
    assert split.recipe.model["split"] == "tensor"


# --- the baselines


def test_constant_efficiency_leaves_the_row_out() -> None:
    """tokens/s x bytes are 8, 8 and 2: without the last it is 8 and the prediction 4 times too high."""
    assert constant_efficiency([(2.0, 1, 4.0), (4.0, 1, 2.0), (1.0, 1, 2.0)])[2] == pytest.approx(8.0)


def test_bytes_and_layers_are_told_exactly_where_they_are_the_law() -> None:
    data = [(size, layers, 1 / (size / 20e9 + layers * 3e-4)) for size, layers in ((1e9, 10), (2e9, 40), (5e8, 24))]
    assert per_layer(data) == pytest.approx([tps for _, _, tps in data])
    assert per_layer(data[:2]) == [None, None]


def test_bytes_and_a_constant_are_told_exactly_where_they_are_the_law() -> None:
    data = [(size, layers, 1 / (size / 20e9 + 7e-3)) for size, layers in ((1e9, 10), (2e9, 40), (5e8, 24))]
    assert per_token(data) == pytest.approx([tps for _, _, tps in data])


# --- the machine file


def test_the_written_machine_gives_what_was_fitted(
    fitted: Fitted, tmp_path: Path, traces: Path, truth: list[tuple[float, float]]
) -> None:
    done = fitted("cores.layer_sync", "cores.clock", overrides=START)
    out = tmp_path / "mine.yaml"
    command = Command(tmp_path / "rows.csv", "bpu80", START)
    text = machine_text(done, command, out, "9.9")
    assert text == machine_text(done, command, out, "9.9")
    assert (
        "# Fitted by bpusim 9.9: bpusim calibrate rows.csv --machine bpu80 --fit cores.layer_sync,cores.clock --set"
        in text
    )
    assert done.measurements.digest in text
    assert "fitted; 95 %: " in text
    out.write_text(text)
    again = calibrate(read_measurements(tmp_path / "rows.csv"), str(out), [], compile_wish, traces=traces)
    assert again.machine.name == "mine"
    assert [r.fitted for r in again.rows] == [r.fitted for r in done.rows]
    assert [r.fitted.decode_tps for r in again.rows] == pytest.approx([t for _, t in truth], rel=5e-3)


def test_the_written_command_gives_the_file_again(tmp_path: Path) -> None:
    """With all that changes the result, and paths from the folder of the file."""
    out = tmp_path / "out" / "mine.yaml"
    command = Command(
        tmp_path / "data" / "my rows.csv",
        f"{tmp_path}/base.yml",
        ("machine.cores.count=1",),
        "B 1",
        Noise(0.05, 0.2),
        True,
    )
    assert command.words(["cores.clock"], out) == [
        "bpusim", "calibrate", "../data/my rows.csv", "--machine", "../base.yml", "--board", "B 1",
        "--fit", "cores.clock", "--set", "machine.cores.count=1",
        "--decode-noise", "0.05", "--ttft-noise", "0.2", "--keep-outliers", "-o", "mine.yaml",
    ]  # fmt: skip
    assert "--decode-noise" not in Command(tmp_path / "a.csv", "bpu80").words(["cores.clock"], out)


def test_rows_of_the_shipped_file_are_those_of_their_sources() -> None:
    path = Path(__file__).parents[2] / "studies" / "measured" / "boards_calibration.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 21
    with path.with_name("boards_held_back.csv").open(newline="") as file:
        rows += list(csv.DictReader(file))
    assert len({r["row_id"] for r in rows}) == 26
    assert all(r["source_repo"] and r["source_path"] for r in rows)
