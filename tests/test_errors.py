"""Errors a user can mend: where, what, what to do, all at once."""

from __future__ import annotations

import pytest

from bpusim import errors
from bpusim.errors import BpusimError, Place, Problem, ScenarioError, UnitError, did_you_mean


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Place("a.yaml"), "a.yaml"),
        (Place("a.yaml", 3), "a.yaml:3"),
        (Place("a.yaml", 3, 7), "a.yaml:3:7"),
        (Place("a.yaml", 0, 7), "a.yaml"),
    ],
)
def test_a_place_prints_as_much_as_is_known(place: Place, text: str) -> None:
    assert str(place) == text


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("bad"), "error: bad"),
        (Problem("bad", Place("a", 1, 2)), "a:1:2: error: bad"),
        (Problem("bad", do="mend it"), "error: bad; mend it"),
        (Problem("bad", Place("a", 1, 2), "mend it"), "a:1:2: error: bad; mend it"),
    ],
)
def test_a_problem_prints_where_what_and_what_to_do(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_an_error_made_of_text_has_one_problem() -> None:
    error = ScenarioError("bad", place=Place("a", 1, 2), do="mend it")
    assert error.problems == (Problem("bad", Place("a", 1, 2), "mend it"),)


def test_an_error_made_of_a_problem_has_that_problem() -> None:
    assert ScenarioError(Problem("bad")).problems == (Problem("bad"),)


def test_an_error_prints_each_problem_on_its_line() -> None:
    assert str(ScenarioError(Problem(what) for what in ("one", "two"))) == "error: one\nerror: two"


@pytest.mark.parametrize("name", [n for n in errors.__all__ if n.endswith("Error")])
def test_every_error_is_a_bpusim_error(name: str) -> None:
    assert issubclass(getattr(errors, name), BpusimError)


@pytest.mark.parametrize("name", [n for n in errors.__all__ if n.endswith("Error")])
def test_the_tree_in_the_docstring_names_every_error(name: str) -> None:
    assert name in str(errors.__doc__)


def test_a_unit_error_is_a_value_error_for_pydantic() -> None:
    assert issubclass(UnitError, ValueError)


def test_all_names_are_sorted() -> None:
    assert errors.__all__ == sorted(errors.__all__, key=lambda n: (n[0].islower(), n))


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("promt", ["prompt", "output"], "did you mean 'prompt'?"),
        ("zzz", ["prompt", "output"], "known: output, prompt"),
        ("zzz", [], ""),
    ],
)
def test_did_you_mean(word: str, known: list[str], hint: str) -> None:
    assert did_you_mean(word, known) == hint
