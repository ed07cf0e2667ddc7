"""Rows as tables: what is varied, what belongs together, what is missing."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from study_rows import grid, rows_of, written

from bpusim.errors import StudyError
from bpusim.study.analysis import Asked, analyse
from bpusim.study.analysis.data import figures_of, gather
from bpusim.study.axes import Axis, axis_of, zipped


def test_no_rows_is_an_error() -> None:
    with pytest.raises(StudyError, match="there are no rows"):
        gather([])


def test_no_row_with_a_result_is_an_error_that_says_why() -> None:
    rows = rows_of(grid({"a": [1, 2]}), lambda _: {"error": "too hot"})
    with pytest.raises(StudyError, match="none of the 2 rows has a result: too hot"):
        gather(rows)


def test_failed_rows_are_counted_with_their_errors(tmp_path: Path) -> None:
    def figures(p: dict[str, int]) -> dict[str, object]:
        if p["a"] == 3:
            return {"error": "no core", "status": "infeasible"}
        return {"error": "broke"} if p["a"] == 4 else {"y": p["a"]}

    found = analyse(written(rows_of(grid({"a": [1, 2, 3, 4, 5]}), figures), tmp_path / "r.jsonl"))
    assert found.counts == {"ok": 3, "infeasible": 1, "failed": 1}
    assert found.errors == {"no core": 1, "broke": 1}
    assert found.parameters == {"a": ("1", "2", "5")}


def test_values_are_in_the_order_of_numbers_and_quantities() -> None:
    rows = rows_of(grid({"rate": ["25 GB/s", "8 GB/s", "800 MB/s"], "n": [10, 9]}), lambda _: {"y": 1})
    rate, n = gather(rows).factors
    assert rate.labels == ("800 MB/s", "8 GB/s", "25 GB/s")
    assert rate.band_at == (8e8, 8e9, 25e9)
    assert n.labels == ("9", "10")


def test_text_is_in_natural_order_whatever_the_order_of_rows_and_in_that_of_the_study_if_it_is_known() -> None:
    rows = rows_of(grid({"m": ["x10", "x2", "big"]}), lambda _: {"y": 1})
    assert gather(rows).factors[0].labels == gather(rows[::-1]).factors[0].labels == ("big", "x2", "x10")
    assert gather(rows, [axis_of("m", ["x2", "big", "x10"])]).factors[0].labels == ("x2", "big", "x10")


def test_values_of_all_kinds_are_labels() -> None:
    values = [None, True, 2, 1.5, "text", ["bpu0", "bpu1"], {"a": 1}]
    (factor,) = gather(rows_of(grid({"m": values}), lambda _: {"y": 1})).factors
    assert factor.at is None
    assert set(factor.labels) == {"none", "true", "2", "1.5", "text", '["bpu0", "bpu1"]', '{"a": 1}'}


def test_numbers_of_two_units_are_no_numbers() -> None:
    (factor,) = gather(rows_of(grid({"m": ["1 s", "1 GB"]}), lambda _: {"y": 1})).factors
    assert factor.at is None


def test_a_rate_that_is_no_whole_number_is_a_number() -> None:
    (factor,) = gather(rows_of(grid({"m": ["12.5 Hz", "30 Hz"]}), lambda _: {"y": 1})).factors
    assert factor.band_at == (12.5, 30.0)


ZIP = [{"n": n, "x": x, "y": y} for n, x, y in ((1, "a", "a"), (2, "b", "a"), (3, "b", "c"))]


def test_parameters_of_a_zip_are_one_even_if_the_study_is_not_known() -> None:
    rows = rows_of([{"d": d} | z for d in (10, 20) for z in ZIP], lambda _: {"y": 1})
    data = gather(rows)
    assert [f.paths for f in data.factors] == [("d",), ("n", "x", "y")]
    assert data.design == "grid"
    assert data.factors[1].name == "n & 2 with it"
    assert data.factors[1].labels == ("1", "2", "3")


def test_a_zip_is_told_by_as_many_parameters_as_it_takes() -> None:
    axis = zipped([Axis((n,), tuple((z[n],) for z in ZIP)) for n in ("x", "y", "n")])
    factor = gather(rows_of(ZIP, lambda _: {"y": 1}), [axis]).factors[0]
    assert factor.labels == ("a / a", "b / a", "b / c")
    assert factor.at is None


def test_a_grid_without_a_few_points_is_one_with_holes() -> None:
    points = [p for p in grid({"a": [1, 2, 3], "b": [1, 2]}) if p != {"a": 3, "b": 1}]
    data = gather(rows_of(points, lambda _: {"y": 1}))
    assert data.design == "grid with holes"
    assert [f.paths for f in data.factors] == [("a",), ("b",)]


def test_a_value_at_which_no_point_has_a_result_leaves_a_full_grid() -> None:
    rows = rows_of(grid({"a": [1, 2, 3], "b": [1, 2]}), lambda p: {"error": "no"} if p["a"] == 1 else {"y": 1})
    data = gather(rows)
    assert data.design == "grid"
    assert data.factors[0].labels == ("2", "3")


def test_a_drawn_sample_is_seen_and_shown_in_ranges() -> None:
    points = [{"a": k, "b": (7 * k) % 40} for k in range(40)]
    data = gather(rows_of(points, lambda _: {"y": 1}))
    assert data.design == "drawn"
    assert data.factors[0].band_labels == ("0 to 7", "8 to 15", "16 to 23", "24 to 31", "32 to 39")
    assert data.factors[0].band_at == (3.5, 11.5, 19.5, 27.5, 35.5)


def test_rows_of_two_studies_are_refused() -> None:
    rows = rows_of([{"a": 1}, {"b": 2}], lambda _: {"y": 1})
    with pytest.raises(StudyError, match="rows of 2 studies: they vary a / b"):
        gather(rows)


def test_two_rows_of_one_point_are_refused() -> None:
    with pytest.raises(StudyError, match="1 points have several rows"):
        gather(rows_of([{"a": 1}, {"a": 1}], lambda _: {"y": 1}))


def test_figures_by_pattern_and_a_near_miss() -> None:
    data = gather(rows_of(grid({"a": [1]}), lambda _: {"streams.al.x_ms": 1, "streams.bo.x_ms": 2, "total": 3}))
    assert figures_of(data, ["streams.*.x_ms"]) == ["streams.al.x_ms", "streams.bo.x_ms"]
    assert len(figures_of(data, [])) == 3
    with pytest.raises(StudyError, match="did you mean 'total'"):
        figures_of(data, ["totl"])


def test_a_figure_that_is_missing_at_some_points_counts_at_the_others(tmp_path: Path) -> None:
    rows = rows_of(grid({"a": [1, 2, 3]}), lambda p: {"y": p["a"]} if p["a"] < 3 else {"z": 1})
    rows[0]["measures"]["z"] = [None]
    found = analyse(written(rows, tmp_path / "r.jsonl"))
    assert "y is missing at 1 of 3 points, and counts at the others" in found.notes
    assert [level.label for level in found.effects[0].levels] == ["1", "2"]


def test_constant_and_unmeasured_figures_are_told_and_left_out(tmp_path: Path) -> None:
    rows = rows_of(grid({"a": [1, 2]}), lambda p: {"same": 5, "never": None, "y": p["a"]})
    found = analyse(written(rows, tmp_path / "r.jsonl"))
    assert found.figures == ("y",)
    assert found.notes == ("same is 5 at every point", "never was not measured at any point")


def test_one_point_has_nothing_to_compare(tmp_path: Path) -> None:
    found = analyse(written(rows_of([{"a": 1}], lambda _: {"y": 2}), tmp_path / "r.jsonl"))
    assert found.notes == ("one point has a result: there is nothing to compare it with",)
    assert (found.effects, found.maps, found.sensitivity) == ((), (), ())


def test_a_pair_that_is_not_there_or_is_one_parameter(tmp_path: Path) -> None:
    file = written(rows_of(grid({"aa": [1, 2], "bb": [1, 2]}), lambda p: {"y": p["aa"]}), tmp_path / "r.jsonl")
    with pytest.raises(StudyError, match="no parameter 'ab'"):
        analyse(file, asked=Asked(pair=("aa", "ab")))
    with pytest.raises(StudyError, match="are one parameter"):
        analyse(file, asked=Asked(pair=("aa", "aa")))


def test_the_mean_over_seeds_has_an_interval_from_the_same_seeds() -> None:
    """Seed by seed the mean over b is 10 and 12: mean 11, half width t(1) * sd / sqrt(2) = 12.706 * 1.4142 / 1.4142."""
    from bpusim.study.analysis.effects import effect

    rows = rows_of(grid({"a": [1], "b": [1, 2]}), lambda p: {"y": [9, 12] if p["b"] == 1 else [11, 12]})
    data = gather(rows)
    (level,) = effect(data, "y", data.factors[0]).levels
    assert (level.mean, level.points) == (11, 2)
    assert level.half is not None
    assert math.isclose(level.half, 12.706)


def test_main_effects_and_a_heat_map_by_hand() -> None:
    """y = a * b over a in 1, 2, 3 and b in 1, 3, and c, which does nothing: means over b are 2a, over a 2b."""
    from bpusim.study.analysis.effects import effect, heat_map

    data = gather(rows_of(grid({"a": [1, 2, 3], "b": [1, 3], "c": ["x", "y"]}), lambda p: {"y": p["a"] * p["b"]}))
    a, b, c = data.factors
    found = effect(data, "y", a)
    assert [level.mean for level in found.levels] == [2, 4, 6]
    assert (found.change, found.relative) == (4, 2)
    assert effect(data, "y", c).change == 0
    table = heat_map(data, "y", a, b)
    assert table.means == ((1, 3), (2, 6), (3, 9))
    assert table.points == ((2, 2), (2, 2), (2, 2))


def test_a_cell_without_a_point_is_empty() -> None:
    from bpusim.study.analysis.effects import heat_map

    points = [p for p in grid({"a": [1, 2], "b": [1, 2]}) if p != {"a": 1, "b": 2}]
    data = gather(rows_of(points, lambda p: {"y": p["a"]}))
    table = heat_map(data, "y", *data.factors)
    assert table.means == ((1, None), (2, 2))
    assert table.points == ((1, 0), (1, 1))


@pytest.mark.parametrize(
    "part",
    [
        {"point": [1]},
        {"measures": []},
        {"measures": {"y": 3}},
        {"measures": {"y": ["x"]}},
        {"measures": {"y": [math.nan]}},
    ],
)
def test_a_row_that_no_sweep_writes_is_named(part: dict[str, object]) -> None:
    rows = rows_of(grid({"a": [1, 2]}), lambda _: {"y": 1})
    with pytest.raises(StudyError, match="the row with key k1 is no row of a sweep"):
        gather([rows[0], rows[1] | part])


def test_very_large_figures_have_indices_too(tmp_path: Path) -> None:
    rows = rows_of(grid({"a": [1, 2], "b": [1, 2]}), lambda p: {"y": (p["a"] - 1.5) * 3e307})
    found = {s.parameter: s for s in analyse(written(rows, tmp_path / "r.jsonl")).sensitivity}
    assert (found["a"].first, found["b"].total) == pytest.approx((1, 0))
