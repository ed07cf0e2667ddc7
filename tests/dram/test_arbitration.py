"""Sharing policies: who gets how much of a channel that is asked for too much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.dram.arbitration import Share, arbiter, equal, fill, proportional, strict
from bpusim.errors import HardwareError

POLICIES = [proportional, equal, strict]


@pytest.mark.parametrize("share", POLICIES)
def test_demands_that_fit_are_met(share: Share) -> None:
    assert share([3.0, 4.0], [1.0, 9.0], 7.0) == [3.0, 4.0]


def test_proportional_goes_by_window() -> None:
    # 12 over windows 1 and 3.
    assert proportional([10.0, 10.0], [1.0, 3.0], 12.0) == [3.0, 9.0]


def test_proportional_gives_what_a_small_demand_leaves_to_the_others() -> None:
    # By window each gets 4; the first wants 2 only, so the others share 10 by 1 to 1.
    assert proportional([2.0, 9.0, 9.0], [1.0, 1.0, 1.0], 12.0) == [2.0, 5.0, 5.0]


def test_proportional_fills_in_more_than_one_round() -> None:
    # Of 12: by 1:1:2 that is 3, 3, 6, so 2 is full; of 10 by 1:2 3.33, 6.67, so 3 is full; the last gets 12 - 2 - 3.
    assert proportional([2.0, 3.0, 50.0], [1.0, 1.0, 2.0], 12.0) == [2.0, 3.0, 7.0]


def test_equal_does_not_look_at_windows() -> None:
    assert equal([10.0, 10.0], [1.0, 3.0], 12.0) == [6.0, 6.0]


def test_strict_serves_the_first_and_gives_the_rest_on() -> None:
    assert strict([10.0, 10.0, 10.0], [1.0, 1.0, 1.0], 12.0) == [10.0, 2.0, 0.0]


def test_a_demand_of_nothing_gets_nothing() -> None:
    assert fill([0.0, 20.0], [1.0, 1.0], 12.0) == [0.0, 12.0]


@pytest.mark.parametrize(("name", "share"), [("proportional", proportional), ("equal", equal), ("strict", strict)])
def test_a_policy_is_found_by_its_name(name: str, share: Share) -> None:
    assert arbiter(name) is share


def test_an_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(HardwareError) as caught:
        arbiter("proportionate")
    assert str(caught.value) == "error: unknown arbitration 'proportionate'; did you mean 'proportional'?"


RATES = st.floats(0, 1e11, allow_nan=False)
MASTERS = st.lists(st.tuples(RATES, st.floats(1, 1e6)), min_size=1, max_size=8)


@pytest.mark.parametrize("share", POLICIES)
@given(masters=MASTERS, capacity=st.floats(1, 1e11))
def test_no_master_gets_more_than_it_asks_for(
    share: Share, masters: list[tuple[float, float]], capacity: float
) -> None:
    demands, windows = [d for d, _ in masters], [w for _, w in masters]
    rates = share(demands, windows, capacity)
    assert all(0 <= r <= d for r, d in zip(rates, demands, strict=True))


@pytest.mark.parametrize("share", POLICIES)
@given(masters=MASTERS, capacity=st.floats(1, 1e11))
def test_the_channel_is_used_up_or_every_demand_is_met(
    share: Share, masters: list[tuple[float, float]], capacity: float
) -> None:
    demands, windows = [d for d, _ in masters], [w for _, w in masters]
    assert sum(share(demands, windows, capacity)) == pytest.approx(min(sum(demands), capacity), rel=1e-9)


@given(masters=MASTERS, capacity=st.floats(1, 1e11))
def test_those_who_get_less_than_they_ask_get_the_same_per_window(
    masters: list[tuple[float, float]], capacity: float
) -> None:
    demands, windows = [d for d, _ in masters], [w for _, w in masters]
    rates = fill(demands, windows, capacity)
    short = [r / w for r, w, d in zip(rates, windows, demands, strict=True) if r < d]
    met = [r / w for r, w, d in zip(rates, windows, demands, strict=True) if r == d]
    if short:
        assert max(short) == pytest.approx(min(short), rel=1e-9)
        assert max(met, default=0.0) <= max(short) * (1 + 1e-9)
