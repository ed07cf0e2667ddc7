"""Sharing policies: who gets how much of a channel that is asked for too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.dram.arbitration import (
    Arbitration,
    Ask,
    Rules,
    Share,
    equal,
    fill,
    meeting,
    proportional,
    settle,
    strict,
    weighted,
)

POLICIES = [proportional, equal, weighted, strict]
NS = 1000


def asks(rates: list[float], windows: list[float], latency: int = 100 * NS) -> list[Ask]:
    """Masters of one idle latency; under strict priority the first comes first."""
    return [Ask(r, w, latency, rank=i) for i, (r, w) in enumerate(zip(rates, windows, strict=True))]


@pytest.mark.parametrize("share", POLICIES)
def test_demands_that_fit_are_met(share: Share) -> None:
    assert share(asks([3.0, 4.0], [1.0, 9.0]), 7.0) == [3.0, 4.0]


@pytest.mark.parametrize("share", POLICIES)
def test_nobody_gets_anything_of_nothing(share: Share) -> None:
    assert share([Ask(3.0, 1.0, 100), Ask(4.0, 9.0, 200)], 0.0) == [0.0, 0.0]


@pytest.mark.parametrize("share", POLICIES)
def test_nobody_asks_and_nobody_gets(share: Share) -> None:
    assert share([], 7.0) == []


def test_a_demand_of_nothing_gets_nothing() -> None:
    assert fill([0.0, 20.0], [1.0, 1.0], 12.0) == [0.0, 12.0]


# Proportional, all of one latency


def test_proportional_goes_by_window() -> None:
    # 12 over windows 1 and 3.
    assert proportional(asks([10.0, 10.0], [1.0, 3.0]), 12.0) == [3.0, 9.0]


def test_proportional_gives_what_a_small_demand_leaves_to_the_others() -> None:
    # By window each gets 4; the first wants 2 only, so the others share 10 by 1 to 1.
    assert proportional(asks([2.0, 9.0, 9.0], [1.0, 1.0, 1.0]), 12.0) == [2.0, 5.0, 5.0]


def test_proportional_fills_in_more_than_one_round() -> None:
    # Of 12: by 1:1:2 that is 3, 3, 6, so 2 is full; of 10 by 1:2 3.33, 6.67, so 3 is full; the last gets 12 - 2 - 3.
    assert proportional(asks([2.0, 3.0, 50.0], [1.0, 1.0, 2.0]), 12.0) == [2.0, 3.0, 7.0]


# Proportional, of different latencies. A window of 1200 B in 100 ns is 12 B/ns.


def test_all_wait_the_same_longer_until_the_channel_is_used_up() -> None:
    # Alone 12 and 6 B/ns of a channel of 12. With q = 100 ns more: 1200 / 200 = 6 and 1800 / 400 = 4.5; with
    # q = 60: 1200 / 160 = 7.5 and 1800 / 360 = 5, which is 12.5; so for 12.5 B/ns q is 60 ns.
    found = proportional([Ask(12e9, 1200, 100 * NS), Ask(6e9, 1800, 300 * NS)], 12.5e9)
    assert found == pytest.approx([7.5e9, 5e9], rel=1e-12)
    assert 1200 / found[0] * 1e9 - 100 == pytest.approx(60)
    assert 1800 / found[1] * 1e9 - 300 == pytest.approx(60)


def test_the_nearer_of_two_equal_windows_gets_more_but_less_so_the_fuller_the_channel() -> None:
    # q = 100: 1200 / 200 and 1200 / 400, that is 2 to 1. q = 500: 1200 / 600 and 1200 / 800, that is 4 to 3.
    both = [Ask(12e9, 1200, 100 * NS), Ask(4e9, 1200, 300 * NS)]
    assert proportional(both, 9e9) == pytest.approx([6e9, 3e9], rel=1e-12)
    assert proportional(both, 3.5e9) == pytest.approx([2e9, 1.5e9], rel=1e-12)


def test_a_master_that_a_longer_wait_does_not_touch_keeps_its_rate() -> None:
    # The first takes 2 B/ns through a narrow port; its window would do for 1200 / (100 + q) >= 2 up to q = 500.
    # The others fill 8 B/ns at q = 100: 1200 / 200 + 800 / 400.
    found = proportional([Ask(2e9, 1200, 100 * NS), Ask(12e9, 1200, 100 * NS), Ask(2.6e9, 800, 300 * NS)], 10e9)
    assert found == pytest.approx([2e9, 6e9, 2e9], rel=1e-12)


def test_a_master_without_latency_waits_like_the_others() -> None:
    # q = 200: 1200 / 200 + 1200 / 400 = 9.
    assert proportional([Ask(12e9, 1200, 0), Ask(6e9, 1200, 200 * NS)], 9e9) == pytest.approx([6e9, 3e9], rel=1e-12)


# The others


def test_equal_does_not_look_at_windows() -> None:
    assert equal(asks([10.0, 10.0], [1.0, 3.0]), 12.0) == [6.0, 6.0]


def test_equal_looks_at_neither_weights_nor_latencies() -> None:
    assert equal([Ask(10.0, 1.0, 5, weight=3.0), Ask(10.0, 1.0, 500)], 12.0) == [6.0, 6.0]


def test_weighted_goes_by_weight_alone() -> None:
    assert weighted([Ask(10.0, 1.0, 5, weight=3.0), Ask(10.0, 9.0, 500, weight=1.0)], 12.0) == [9.0, 3.0]


def test_weighted_gives_what_a_heavy_master_leaves_to_the_others() -> None:
    # By 4:1:1 of 12 the first may have 8 and wants 2; the others share 10.
    found = weighted([Ask(2.0, 1.0, 5, weight=4.0), Ask(9.0, 1.0, 5), Ask(9.0, 1.0, 5)], 12.0)
    assert found == [2.0, 5.0, 5.0]


def test_strict_serves_the_first_and_gives_the_rest_on() -> None:
    assert strict(asks([10.0, 10.0, 10.0], [1.0, 1.0, 1.0]), 12.0) == [10.0, 2.0, 0.0]


def test_strict_goes_by_rank_not_by_place() -> None:
    assert strict([Ask(10.0, 1.0, 5, rank=2), Ask(10.0, 1.0, 5, rank=0)], 12.0) == [2.0, 10.0]


def test_masters_of_one_rank_share_by_window() -> None:
    # 4 are left for windows 1 and 3.
    found = strict([Ask(10.0, 1.0, 5, rank=1), Ask(8.0, 1.0, 5, rank=0), Ask(10.0, 3.0, 5, rank=1)], 12.0)
    assert found == [1.0, 8.0, 3.0]


def test_a_rank_that_takes_all_leaves_nothing_at_all() -> None:
    assert strict([Ask(20e9, 139, 5, rank=0), Ask(20e9, 64, 5, rank=1)], 10e9)[1] == 0.0


# Settling


def test_one_master_beside_what_is_taken_is_asked_once() -> None:
    seen: list[tuple[float, float]] = []

    def ask(others: tuple[float, float]) -> float:
        seen.append(others)
        return 5.0

    assert settle([ask], [100.0], (2.0, 30.0)) == [5.0]
    assert seen == [(2.0, 30.0)]


def test_nobody_settles_at_nothing() -> None:
    assert settle([], [], (2.0, 30.0)) == []


def test_each_is_told_what_the_others_take_and_have_in_flight() -> None:
    seen: list[tuple[float, float]] = []

    def first(others: tuple[float, float]) -> float:
        seen.append(others)
        return 5.0

    settle([first, lambda _: 3.0, lambda _: 1.0], [100.0, 20.0, 7.0], (2.0, 30.0))
    # At first only what is taken; then the 3 and 1 of the others with it, and 20 + 7 + 30 bytes.
    assert seen[0] == (2.0, 30.0)
    assert seen[1:] == [(6.0, 57.0)] * (len(seen) - 1)


def test_what_each_asks_settles_where_both_hold() -> None:
    # Each takes 10 less a tenth of what the other takes: r = 10 - r / 10, so 100 / 11.
    def slowed(others: tuple[float, float]) -> float:
        return 10.0 - others[0] / 10

    assert settle([slowed, slowed], [1.0, 1.0], (0.0, 0.0)) == pytest.approx([100 / 11] * 2, rel=1e-3)


# Rules


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("proportional", proportional),
        ("equal", equal),
        ("weighted", weighted),
        ("strict", strict),
        ("regulated", proportional),
    ],
)
def test_a_policy_is_found_by_its_name(name: Arbitration, share: Share) -> None:
    assert Rules(name).share is share


def test_every_policy_has_its_function() -> None:
    assert all(callable(Rules(name).share) for name in get_args(Arbitration))


def test_the_rules_are_first_come_unless_told_otherwise() -> None:
    rules = Rules()
    assert rules.share is proportional
    assert (rules.rank("a"), rules.weight("a"), rules.limit("a", 5.0)) == (0, 1.0, 5.0)


def test_ranks_follow_the_order_and_those_not_named_share_the_last() -> None:
    rules = Rules("strict", order=["cam", "bpu0"])
    assert [rules.rank(n) for n in ("cam", "bpu0", "bpu1", "cpu")] == [0, 1, 2, 2]


def test_who_has_no_weight_weighs_one() -> None:
    rules = Rules("weighted", weights={"bpu0": 3.0})
    assert [rules.weight(n) for n in ("bpu0", "bpu1")] == [3.0, 1.0]


@pytest.mark.parametrize("policy", ["proportional", "equal", "strict", "regulated"])
def test_weights_mean_nothing_to_other_policies(policy: Arbitration) -> None:
    assert Rules(policy, weights={"bpu0": 3.0}).weight("bpu0") == 1.0


def test_a_limit_narrows_the_port_and_never_widens_it() -> None:
    rules = Rules("regulated", limits={"bpu0": 6})
    assert [rules.limit("bpu0", 5.0), rules.limit("bpu0", 8.0), rules.limit("bpu1", 8.0)] == [5.0, 6, 8.0]


# For any masters

MASTER = st.builds(
    lambda part, window, latency, weight, rank: Ask(part * window * 1e12 / latency, window, latency, weight, rank),
    st.floats(0, 1),  # of what its window does in its latency
    st.floats(64, 1e6),
    st.integers(1, 10**6),
    st.floats(0.01, 100),
    st.integers(0, 3),
)
MASTERS = st.lists(MASTER, min_size=1, max_size=8)
CAPACITY = st.floats(1, 1e11)


@pytest.mark.parametrize("share", POLICIES)
@given(masters=MASTERS, capacity=CAPACITY)
def test_no_master_gets_more_than_it_asks_for(share: Share, masters: list[Ask], capacity: float) -> None:
    assert all(0 <= r <= m.rate for r, m in zip(share(masters, capacity), masters, strict=True))


@pytest.mark.parametrize("share", POLICIES)
@given(masters=MASTERS, capacity=CAPACITY)
def test_the_channel_is_used_up_or_every_demand_is_met(share: Share, masters: list[Ask], capacity: float) -> None:
    most = min(sum(m.rate for m in masters), capacity)
    assert sum(share(masters, capacity)) == pytest.approx(most, rel=1e-9)


def _same_among_the_short(rates: list[float], masters: list[Ask], of: Callable[[float, Ask], float]) -> None:
    """Who gets less than it asks has the same ``of``; who gets what it asks has no more."""
    short = [of(r, m) for r, m in zip(rates, masters, strict=True) if r < m.rate * (1 - 1e-9)]
    met = [of(r, m) for r, m in zip(rates, masters, strict=True) if r >= m.rate * (1 - 1e-9)]
    if short:
        assert max(short) == pytest.approx(min(short), rel=1e-6)
        assert max(met, default=0.0) <= max(short) * (1 + 1e-6)


@given(masters=MASTERS, capacity=CAPACITY)
def test_those_who_get_less_than_they_ask_get_the_same_per_weight(masters: list[Ask], capacity: float) -> None:
    _same_among_the_short(weighted(masters, capacity), masters, lambda r, m: r / m.weight)


@given(masters=MASTERS, capacity=CAPACITY)
def test_those_who_get_less_than_they_ask_wait_the_same_longer(masters: list[Ask], capacity: float) -> None:
    rates = proportional(masters, capacity)
    waits = [
        m.window * 1e12 / r - m.latency for r, m in zip(rates, masters, strict=True) if 0 < r < m.rate * (1 - 1e-9)
    ]
    if waits:
        # A difference of large numbers: as exact as the larger of them allows.
        slack = 1e-6 * (max(m.latency for m in masters) + max(waits))
        assert max(waits) - min(waits) <= slack
        for r, m in zip(rates, masters, strict=True):
            if m.rate > 0 and r >= m.rate * (1 - 1e-9):  # it could wait longer than the others and keep its rate
                assert m.window * 1e12 / r - m.latency >= min(waits) - slack


@given(masters=MASTERS, capacity=CAPACITY)
def test_no_rank_gets_anything_while_one_before_it_is_short(masters: list[Ask], capacity: float) -> None:
    rates = strict(masters, capacity)
    short = min((m.rank for r, m in zip(rates, masters, strict=True) if r < m.rate * (1 - 1e-9)), default=9)
    assert all(r <= 1e-9 * capacity for r, m in zip(rates, masters, strict=True) if m.rank > short)


# Reads and writes that meet


def test_readers_never_meet() -> None:
    assert meeting([(4.0, 0.0, False), (9.0, 0.0, False)]) == (0.0, 0.0)


def test_one_stream_in_stretches_never_meets_itself() -> None:
    assert meeting([(4.0, 0.3, False)]) == (0.0, 0.0)


def test_a_stream_that_mixes_meets_itself_all_the_time() -> None:
    assert meeting([(4.0, 0.25, True)]) == (pytest.approx(0.25), 1.0)


def test_a_reader_and_a_writer_meet_all_the_time() -> None:
    # 4 of 16 B/s are writes.
    assert meeting([(12.0, 0.0, False), (4.0, 1.0, True)]) == (pytest.approx(0.25), 1.0)


def test_two_that_write_a_tenth_meet_for_18_percent_of_the_time_half_and_half() -> None:
    written, part = meeting([(5.0, 0.1, False), (5.0, 0.1, False)])
    assert (written, part) == (pytest.approx(0.5), pytest.approx(0.18))
