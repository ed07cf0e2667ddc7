"""Folding repeated layers loses nothing: what is unfolded is what was there."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bpusim.compiler.names import template
from bpusim.compiler.repeats import Run, find_repeats


def _unfolded(row: Sequence[object], runs: Sequence[Run]) -> list[object]:
    """The sequence written out from the first pass of each run and what lies between runs."""
    out: list[object] = []
    at = 0
    for start, period, count in runs:
        out.extend(row[at:start])
        out.extend(list(row[start : start + period]) * count)
        at = start + period * count
    return out + list(row[at:])


ROWS = st.lists(st.integers(0, 3), max_size=60)
MODELS = st.builds(
    lambda head, layer, n, tail: head + layer * n + tail,
    st.lists(st.integers(0, 5), max_size=5),
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.integers(1, 12),
    st.lists(st.integers(0, 5), max_size=5),
)


@given(ROWS)
def test_unfolded_repeats_give_the_sequence(row: list[int]) -> None:
    assert _unfolded(row, find_repeats(row)) == row


@given(MODELS)
def test_unfolded_layers_give_the_model(row: list[int]) -> None:
    assert _unfolded(row, find_repeats(row)) == row


@given(ROWS)
def test_runs_are_in_order_and_do_not_overlap(row: list[int]) -> None:
    end = 0
    for start, period, count in find_repeats(row):
        assert start >= end
        assert period >= 1
        assert count >= 2
        end = start + period * count
    assert end <= len(row)


@given(st.integers(2, 40), st.integers(1, 9))
def test_layers_of_different_ops_fold_into_one_run(count: int, period: int) -> None:
    layer = list(range(period))
    row = [-1, *layer * count, -2]
    assert find_repeats(row) == [(1, period, count)]


def test_a_row_without_repeats_has_no_run() -> None:
    assert find_repeats("abc") == []


def test_an_empty_row_has_no_run() -> None:
    assert find_repeats([]) == []


def test_the_longest_stretch_from_a_start_wins() -> None:
    """aab aab aab folds as three times aab, not as twice a first."""
    assert find_repeats("aabaabaab") == [(0, 3, 3)]


def test_a_last_layer_that_is_cut_short_stays_outside() -> None:
    assert find_repeats("abcabcab") == [(0, 3, 2)]


def test_signatures_need_only_be_hashable() -> None:
    assert find_repeats([("a", 1), ("a", 1.0), "x"]) == [(0, 1, 2)]


# --- one name for all layers


def test_a_number_that_counts_up_becomes_a_place_holder() -> None:
    assert template(["layers.0.q", "layers.1.q", "layers.2.q"]) == "layers.{i}.q"


def test_a_number_that_counts_up_from_elsewhere_says_so() -> None:
    assert template(["layers.1.norm", "layers.2.norm"]) == "layers.{i+1}.norm"


def test_equal_names_stay() -> None:
    assert template(["head", "head"]) == "head"


def test_numbers_that_do_not_count_up_have_no_template() -> None:
    assert template(["n3", "n7"]) is None


def test_names_of_different_form_have_no_template() -> None:
    assert template(["conv1", "pool"]) is None
