"""Values of a study: lists and ranges, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.errors import StudyError
from bpusim.study.axes import Axis, axis_of, zipped


def values(given: Any) -> list[Any]:
    return [v for (v,) in axis_of("p", given).rows]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["a", "b"], ["a", "b"]),
        ({"from": 1, "to": 4}, [1, 2, 3, 4]),
        ({"from": 1, "to": 8, "step": 3}, [1, 4, 7]),
        ({"from": "1 GHz", "to": "1.2 GHz", "step": "0.1 GHz"}, ["1 GHz", "1.1 GHz", "1.2 GHz"]),
        ({"from": "10 GB/s", "to": "20 GB/s", "points": 3}, ["10 GB/s", "15 GB/s", "20 GB/s"]),
        ({"from": 1, "to": 100, "points": 3, "scale": "log"}, [1, 10, 100]),
        ({"from": 0.5, "to": 1.0, "points": 2}, [0.5, 1.0]),
        ({"from": 3, "to": 3}, [3]),
        ({"from": "900 MHz", "to": "1.1 GHz", "step": "0.1 GHz"}, ["900 MHz", "1000 MHz", "1100 MHz"]),
        ({"from": "1 GHz", "to": "1.1 GHz", "step": "50 MHz"}, ["1000 MHz", "1050 MHz", "1100 MHz"]),
        ({"from": "1 MiB", "to": "2 MB", "points": 2}, ["1.048576 MB", "2 MB"]),
    ],
)
def test_values_of_an_axis(given: Any, wanted: list[Any]) -> None:
    assert values(given) == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "p: an empty list"),
        ("x", "p: not a list of values"),
        ({"from": 4, "to": 1}, "p: an empty range, from 4 to 1"),
        ({"from": 1}, "p: the range has no 'to'"),
        ({"from": 1, "to": 2, "steps": 3}, "p: a range has no 'steps'"),
        ({"from": "1 GHz", "to": "900 MHz"}, "p: an empty range, from 1 GHz to 900 MHz"),
        ({"from": "1 GHz", "to": "2 GHz", "step": "1 MB"}, "p: from: 1 GHz, to: 2 GHz, step: 1 MB"),
        ({"from": 1, "to": 2, "step": 0}, "p: from 1 in steps of 0"),
        ({"from": 1, "to": 2, "step": 1, "points": 2}, "p: both a step and a number of points"),
        ({"from": 0, "to": 2, "points": 2, "scale": "log"}, "p: even in ratios, from 0"),
        ({"from": 1, "to": 2, "points": 0}, "p: 0 points"),
        ({"from": 1, "to": 10**9}, "p: more than 100000 values"),
        ({"from": "1 GHz", "to": "2 GHz", "points": 1}, "p: one point of a range with two ends"),
        ({"from": 1, "to": 4, "points": 3}, "p: 3 whole numbers from 1 to 4 are not evenly spaced"),
        ({"from": True, "to": 2}, "p: True is no end of a range"),
    ],
)
def test_a_mistake_in_an_axis_is_said(given: Any, said: str) -> None:
    with pytest.raises(StudyError) as caught:
        axis_of("p", given)
    assert caught.value.problems[0].what == said
    assert caught.value.problems[0].do


@given(part=st.floats(0, 1, exclude_max=True), low=st.integers(-50, 50), more=st.integers(0, 50))
def test_a_whole_number_drawn_is_within_its_range(part: float, low: int, more: int) -> None:
    axis = Axis(("p",), tuple((k,) for k in range(low, low + more + 1)))
    (value,) = axis.at(part)
    assert low <= value <= low + more


def test_a_range_without_steps_is_drawn_anywhere() -> None:
    axis = axis_of("p", {"from": "1 GHz", "to": "2 GHz"})
    assert axis.rows == ()
    assert [axis.at(part) for part in (0.0, 0.25, 0.5)] == [("1 GHz",), ("1.25 GHz",), ("1.5 GHz",)]


def test_values_that_go_together() -> None:
    axis = zipped([axis_of("a", [1, 2]), axis_of("b", ["x", "y"])])
    assert axis == Axis(("a", "b"), ((1, "x"), (2, "y")))


def test_values_that_go_together_are_as_many() -> None:
    with pytest.raises(StudyError, match=r"different numbers \(a: 1, b: 2\)"):
        zipped([axis_of("a", [1]), axis_of("b", [1, 2])])
