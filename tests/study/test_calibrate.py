"""Calibration: planted parameters come back, what the data cannot carry is refused, contradictions are left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toy_boards import COLUMNS, MODELS, SLOW, START, Fitted

from bpusim.cli.calibrate import compile_wish
from bpusim.errors import StudyError
from bpusim.study.calibration import calibrate, read_measurements
from bpusim.study.calibration.baselines import constant_efficiency, per_layer, per_token
from bpusim.study.calibration.fit import Fit, _check_known
from bpusim.study.calibration.parameters import Parameter


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
