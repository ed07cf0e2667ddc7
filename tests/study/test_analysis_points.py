"""The Pareto front, and the smallest machine that meets its limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_rows import grid, rows_of, written

from bpusim.errors import StudyError
from bpusim.metrics.studied import Front, Smallest
from bpusim.study.analysis import Asked, analyse
from bpusim.study.analysis.objectives import expressions
from bpusim.study.analysis.pareto import best


def front(rows: list[dict[str, Any]], tmp_path: Path, pareto: str, cost: str = "") -> Front:
    found = analyse(written(rows, tmp_path / "r.jsonl"), asked=Asked(pareto=pareto, cost=cost)).front
    assert found is not None
    return found


def smallest(rows: list[dict[str, Any]], tmp_path: Path, *slo: str, cost: str = "") -> Smallest:
    found = analyse(written(rows, tmp_path / "r.jsonl"), asked=Asked(slo=slo, cost=cost)).smallest
    assert found is not None
    return found


def beaten(p: tuple[int, ...], q: tuple[int, ...]) -> bool:
    """By definition: q is as small everywhere and smaller somewhere."""
    return all(b <= a for a, b in zip(p, q, strict=True)) and p != q


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)), max_size=40))
def test_the_front_is_that_of_the_definition(points: list[tuple[int, ...]]) -> None:
    assert best(points) == [not any(beaten(p, q) for q in points) for p in points]


def test_equal_points_stay_together() -> None:
    assert best([(1, 2), (1, 2), (2, 2)]) == [True, True, False]


def test_a_front_by_hand(tmp_path: Path) -> None:
    """Latency falls and power rises with n; m makes both worse."""
    rows = rows_of(grid({"n": [1, 2], "m": [0, 1]}), lambda p: {"t_ms": 10 / p["n"] + p["m"], "p_w": p["n"] + p["m"]})
    found = front(rows, tmp_path, "t_ms,p_w")
    assert [(p.point, p.values) for p in found.points if p.best] == [("n 2, m 0", (5, 2)), ("n 1, m 0", (10, 1))]
    assert len(found.points) == 4


def test_rates_are_better_the_more_there_is_unless_it_is_said(tmp_path: Path) -> None:
    ways = {
        text: [more for _, more in expressions(text)]
        for text in ("a.tokens_per_s,b_ms", "min:a.tokens_per_s,max: b_ms")
    }
    assert ways == {"a.tokens_per_s,b_ms": [True, False], "min:a.tokens_per_s,max: b_ms": [False, True]}


def test_several_figures_count_by_the_worst(tmp_path: Path) -> None:
    rows = rows_of(grid({"n": [1, 2]}), lambda p: {"s.a.t_ms": p["n"], "s.b.t_ms": 5, "s.a.fps": 3, "s.b.fps": p["n"]})
    found = front(rows, tmp_path, "s.*.t_ms,s.*.fps")
    assert [p.values for p in found.points] == [(5, 2), (5, 1)]
    assert found.notes == ("s.*.t_ms is the same at every point, and tells none apart",)


def test_parameters_expressions_and_the_cost_are_objectives(tmp_path: Path) -> None:
    rows = rows_of(grid({"m.n": [1, 2]}), lambda p: {"t": 4 / p["m.n"]})
    found = front(rows, tmp_path, "max(t, 3),cost", cost="m.n * 10")
    assert [p.values for p in found.points] == [(3, 20), (4, 10)]
    assert [o.text for o in found.objectives] == ["max(t, 3)", "cost"]


def test_points_without_an_objective_are_counted(tmp_path: Path) -> None:
    rows = rows_of(grid({"n": [1, 2]}), lambda p: {"t": p["n"]} | ({"u": 1} if p["n"] == 1 else {}))
    assert front(rows, tmp_path, "t,u").notes[0] == "1 points lack one of the figures, and are left out"


@pytest.mark.parametrize(
    ("pareto", "message"),
    [
        ("t", "one objective has no front"),
        ("t,", "has an empty part"),
        ("t,cost", "there is no cost"),
        ("t,v", "no row has 'v', as a parameter or a figure; the nearest names: .* or add --study"),
        ("nope", "no row has 'nope'"),
        ("t,figre", "did you mean 'figure'"),
        ("t,m.spead", "did you mean 'm.speed'"),
        ("t,speed", "did you mean 'm.speed'"),
        ("t,s.*.v", "no row has the figure 's.\\*.v'"),
        ("t,m", "'m' is 'x', not a number"),
    ],
)
def test_objectives_that_are_none(tmp_path: Path, pareto: str, message: str) -> None:
    rows = rows_of(grid({"m": ["x", "y"], "m.speed": [1]}), lambda _: {"t": 1, "figure": 1})
    with pytest.raises(StudyError, match=message):
        front(rows, tmp_path, pareto)


TIMES = {"cores": [1, 2, 4], "rate": ["1 GB/s", "2 GB/s"]}


def times(p: dict[str, Any]) -> dict[str, float]:
    """120, 60, 60, 30, 30, 15 ms."""
    return {"t_ms": 120 / p["cores"] / (1 if p["rate"] == "1 GB/s" else 2)}


def test_the_cheapest_point_that_meets_the_limit(tmp_path: Path) -> None:
    found = smallest(rows_of(grid(TIMES), times), tmp_path, "t_ms <= 40", cost="cores * 10 + rate / 1e8")
    assert (found.met, found.conditions) == (3, {"t_ms <= 40": 3})
    first = found.candidates[0]
    assert (first.point, first.cost, first.smallest) == ("cores 2, rate 2 GB/s", 40, True)
    assert first.room["t_ms <= 40"] == pytest.approx(0.25)
    assert [c.smallest for c in found.candidates] == [True, False, False, False, False, False]


def test_points_of_one_cost_are_all_the_smallest(tmp_path: Path) -> None:
    found = smallest(rows_of(grid(TIMES), times), tmp_path, "t_ms <= 60", cost="cores * rate / 1e9")
    assert [c.point for c in found.candidates if c.smallest] == ["cores 1, rate 2 GB/s", "cores 2, rate 1 GB/s"]


def test_without_a_cost_no_smaller_point_may_do(tmp_path: Path) -> None:
    found = smallest(rows_of(grid(TIMES), times), tmp_path, "t_ms <= 60")
    assert [c.point for c in found.candidates if c.smallest] == ["cores 1, rate 2 GB/s", "cores 2, rate 1 GB/s"]
    assert found.met == 5


def test_points_of_other_kinds_are_not_smaller(tmp_path: Path) -> None:
    rows = rows_of(grid({"m": ["x", "y"], "n": [1, 2]}), lambda _: {"t": 1})
    found = smallest(rows, tmp_path, "t <= 2")
    assert [c.point for c in found.candidates if c.smallest] == ["m x, n 1", "m y, n 1"]


def test_if_none_meets_the_nearest_comes_first(tmp_path: Path) -> None:
    found = smallest(rows_of(grid(TIMES), times), tmp_path, "t_ms <= 10 and cores < 4")
    assert found.met == 0
    assert found.conditions == {"t_ms <= 10": 0, "cores < 4": 4}
    assert found.candidates[0].point == "cores 4, rate 2 GB/s"
    assert found.candidates[0].room == {"t_ms <= 10": pytest.approx(-0.5), "cores < 4": pytest.approx(0)}


def test_a_condition_with_a_star_holds_for_each(tmp_path: Path) -> None:
    rows = rows_of(grid({"n": [1, 2]}), lambda p: {"s.a.t": 5, "s.b.t": 10 / p["n"]})
    found = smallest(rows, tmp_path, "s.*.t <= 8")
    assert [(c.point, c.met, c.room["s.*.t <= 8"]) for c in found.candidates] == [
        ("n 2", True, pytest.approx(0.375)), ("n 1", False, pytest.approx(-0.25)),
    ]  # fmt: skip


def test_the_mean_decides_and_seeds_are_told(tmp_path: Path) -> None:
    rows = rows_of(grid({"n": [1, 2]}), lambda p: {"t": [4, 8, 6] if p["n"] == 1 else [1, 2, 3]})
    found = {c.point: c for c in smallest(rows, tmp_path, "t <= 7").candidates}
    assert (found["n 1"].met, found["n 1"].seeds) == (True, (2, 3))
    assert found["n 2"].seeds == (3, 3)


def test_what_was_not_measured_is_not_met(tmp_path: Path) -> None:
    rows = rows_of(grid({"n": [1, 2]}), lambda p: {"t": 1 if p["n"] == 1 else None})
    found = smallest(rows, tmp_path, "t <= 7")
    assert found.met == 1
    assert found.notes == ("t <= 7: not measured at 1 points, which counts as not met",)


def test_quantities_in_conditions(tmp_path: Path) -> None:
    found = smallest(rows_of(grid(TIMES), times), tmp_path, "rate >= '1500 MB/s'")
    assert found.met == 3


def test_a_name_that_is_no_name_of_python_is_quoted(tmp_path: Path) -> None:
    rows = rows_of(grid({"n": [1, 2]}), lambda p: {"streams.my-chat.t_ms": p["n"]})
    assert smallest(rows, tmp_path, "value['streams.my-chat.t_ms'] < 2").met == 1
    assert smallest(rows, tmp_path, "streams.*.t_ms < 2").met == 1


def test_a_limit_of_a_figure_that_nobody_has_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no row has 'tt_ms'"):
        smallest(rows_of(grid(TIMES), times), tmp_path, "tt_ms <= 1")


def test_a_limit_that_is_no_condition_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"slo: 't_ms' is 120\.0, not true or false"):
        smallest(rows_of(grid(TIMES), times), tmp_path, "t_ms")
