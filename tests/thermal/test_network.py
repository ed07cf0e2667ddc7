"""The heat path against theory: exponentials, eigenvectors, and the balance of energy."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.thermal import Network, Pulses

AIR = 25.0


def pulses(*rows: tuple[int, float, float, float]) -> Pulses:
    """Of rows (node, begin, end, watts)."""
    node, begin, end, watts = np.array(rows, dtype=float).reshape(-1, 4).T
    return Pulses(node.astype(np.int64), begin, end, watts)


NONE = pulses()


def single() -> Network:
    """10 J/K over 5 K/W: a time constant of 50 s."""
    return Network({"a": 10.0}, [("a", "ambient", 5.0)], AIR)


def board() -> Network:
    """Four nodes with time constants from milliseconds to minutes, two of them with a way to ambient of their own."""
    capacities = {"core": 0.1, "die": 1.5, "sink": 70.0, "board": 40.0}
    links = [
        ("core", "die", 0.4), ("die", "sink", 1.0), ("sink", "ambient", 8.0),
        ("die", "board", 8.0), ("board", "ambient", 16.0),
    ]  # fmt: skip
    return Network(capacities, links, AIR)


WATTS = [2.0, 0.5, 0.0, 3.0]
START = [30.0, 26.0, 20.0, 25.0]


def two_nodes() -> Network:
    """1 J/K on 10 J/K over 2 K/W, and that on ambient over 5 K/W."""
    return Network({"a": 1.0, "b": 10.0}, [("a", "b", 2.0), ("ambient", "b", 5.0)], AIR)


def of_two_nodes(start: Any, seconds: float, watts: Sequence[float]) -> Any:
    """``T' = A (T - T_end)`` with the matrix as it stands, which is not symmetric: another way than the code's."""
    conductance, capacity = np.array([[0.5, -0.5], [-0.5, 0.7]]), np.array([[1.0], [10.0]])
    end = AIR + np.linalg.inv(conductance) @ np.array(watts)
    values, vectors = np.linalg.eig(-conductance / capacity)
    return end + vectors @ (np.exp(values * seconds) * (np.linalg.inv(vectors) @ (start - end)))


@pytest.mark.parametrize("seconds", [0.001, 1.0, 50.0, 1000.0])
def test_a_single_node_warms_by_the_exponential(seconds: float) -> None:
    (after,) = single().after([AIR], seconds, [2.0], NONE)
    assert after - AIR == pytest.approx(10.0 * (1 - exp(-seconds / 50)), rel=1e-9)


@pytest.mark.parametrize("seconds", [0.001, 1.0, 50.0, 1000.0])
def test_a_single_node_cools_by_the_exponential(seconds: float) -> None:
    (after,) = single().after([75.0], seconds, [0.0], NONE)
    assert after == pytest.approx(AIR + 50 * exp(-seconds / 50), rel=1e-9)


def test_a_pulse_within_the_step_warms_while_it_lasts_and_then_decays() -> None:
    (after,) = single().after([AIR], 100.0, [0.0], pulses((0, 20.0, 60.0, 2.0)))
    assert after == pytest.approx(AIR + 10 * (1 - exp(-40 / 50)) * exp(-40 / 50), rel=1e-9)


@pytest.mark.parametrize("seconds", [0.1, 5.0, 300.0])
def test_two_nodes_follow_the_eigenvectors_of_their_matrix(seconds: float) -> None:
    expected = of_two_nodes(np.array([40.0, 20.0]), seconds, [3.0, 1.0])
    assert two_nodes().after([40.0, 20.0], seconds, [3.0, 1.0], NONE) == pytest.approx(expected, abs=1e-9)


def test_pulses_follow_the_eigenvectors_interval_by_interval() -> None:
    expected = np.array([40.0, 20.0])
    for seconds, watts in [(1.0, [3.0, 1.0]), (2.0, [7.0, 1.0]), (1.0, [7.0, 6.0]), (4.0, [3.0, 6.0])]:
        expected = of_two_nodes(expected, seconds, watts)
    overlapping = pulses((0, 1.0, 4.0, 4.0), (1, 3.0, 8.0, 5.0))
    assert two_nodes().after([40.0, 20.0], 8.0, [3.0, 1.0], overlapping) == pytest.approx(expected, abs=1e-9)


def test_links_side_by_side_share_the_heat() -> None:
    net = Network({"a": 1.0}, [("a", "ambient", 10.0), ("a", "ambient", 10.0)], AIR)
    assert net.steady([2.0]) == pytest.approx([AIR + 10.0])


def test_in_the_steady_state_each_link_carries_what_is_behind_it() -> None:
    """2 W over 0.5 and 4 K/W, and 1 W more over the latter."""
    net = Network({"core": 0.1, "sink": 70.0}, [("core", "sink", 0.5), ("sink", "ambient", 4.0)], AIR)
    assert net.steady([2.0, 1.0]) == pytest.approx([AIR + 12 + 1, AIR + 12], rel=1e-12)


def test_the_steady_state_is_where_a_very_long_step_ends() -> None:
    net = board()
    assert net.after(START, 1e6, WATTS, NONE) == pytest.approx(net.steady(WATTS), abs=1e-9)


def test_the_steady_state_lasts() -> None:
    net = board()
    assert net.after(net.steady(WATTS), 77.7, WATTS, NONE) == pytest.approx(net.steady(WATTS), abs=1e-9)


def test_without_power_all_nodes_come_to_ambient() -> None:
    assert board().after(START, 1e6, [0.0] * 4, NONE) == pytest.approx([AIR] * 4, abs=1e-9)


def test_a_step_of_no_time_changes_nothing() -> None:
    assert board().after(START, 0.0, WATTS, NONE) == pytest.approx(START, abs=1e-9)


@pytest.mark.parametrize("steps", [2, 1000])
def test_one_step_is_as_good_as_many(steps: int) -> None:
    net, now = board(), np.array(START)
    for _ in range(steps):
        now = net.after(now, 300.0 / steps, WATTS, NONE)
    assert now == pytest.approx(net.after(START, 300.0, WATTS, NONE), abs=1e-9)


def test_a_step_may_be_cut_within_a_pulse() -> None:
    net = board()
    whole = net.after(START, 10.0, WATTS, pulses((0, 2.0, 9.0, 5.0)))
    half = net.after(START, 4.0, WATTS, pulses((0, 2.0, 4.0, 5.0)))
    assert net.after(half, 6.0, WATTS, pulses((0, 0.0, 5.0, 5.0))) == pytest.approx(whole, abs=1e-9)


def test_a_pulse_over_the_whole_step_is_constant_power() -> None:
    net = board()
    constant = net.after(START, 10.0, [2.0, 0.5, 4.0, 3.0], NONE)
    assert net.after(START, 10.0, WATTS, pulses((2, 0.0, 10.0, 4.0))) == pytest.approx(constant, abs=1e-9)


def test_a_pulse_cut_into_two_is_the_same_pulse() -> None:
    net = board()
    whole = net.after(START, 10.0, WATTS, pulses((1, 1.0, 9.0, 4.0)))
    cut = pulses((1, 1.0, 2.5, 4.0), (1, 2.5, 9.0, 4.0))
    assert net.after(START, 10.0, WATTS, cut) == pytest.approx(whole, abs=1e-9)


def test_a_pulse_that_ends_early_may_be_written_as_one_that_is_taken_back() -> None:
    net = board()
    early = net.after(START, 10.0, WATTS, pulses((0, 1.0, 6.0, 4.0)))
    taken_back = pulses((0, 1.0, 10.0, 4.0), (0, 6.0, 10.0, -4.0))
    assert net.after(START, 10.0, WATTS, taken_back) == pytest.approx(early, abs=1e-9)


def test_the_order_of_pulses_does_not_matter() -> None:
    net = board()
    rows = [(0, 1.0, 6.0, 4.0), (3, 0.0, 2.0, 1.0), (0, 5.0, 10.0, 2.0), (1, 9.0, 9.5, 30.0)]
    forward, backward = (net.after(START, 10.0, WATTS, pulses(*r)) for r in (rows, rows[::-1]))
    assert forward == pytest.approx(backward, abs=1e-9)


def test_a_pulse_of_no_length_gives_nothing() -> None:
    net = board()
    nothing = net.after(START, 10.0, WATTS, pulses((0, 3.0, 3.0, 1e6)))
    assert nothing == pytest.approx(net.after(START, 10.0, WATTS, NONE), abs=1e-9)


@st.composite
def heated(draw: Any) -> tuple[Network, list[float], Pulses]:
    """(a network in which every node leads to ambient, watts, pulses within 10 s): power is never negative."""
    nodes = [f"n{k}" for k in range(draw(st.integers(1, 5)))]
    positive = st.floats(0.1, 100)
    capacities = {n: draw(positive) for n in nodes}
    links = [(n, draw(st.sampled_from(["ambient", *nodes[:k]])), draw(positive)) for k, n in enumerate(nodes)]
    more = st.tuples(st.sampled_from(nodes), st.sampled_from(["ambient", *nodes]), positive)
    links += [link for link in draw(st.lists(more, max_size=4)) if link[0] != link[1]]
    watts = draw(st.lists(st.floats(0, 10), min_size=len(nodes), max_size=len(nodes)))
    times = st.tuples(st.floats(0, 10), st.floats(0, 10)).map(sorted)
    rows = draw(st.lists(st.tuples(st.integers(0, len(nodes) - 1), times, st.floats(0, 10)), max_size=4))
    return Network(capacities, links, AIR), watts, pulses(*((n, a, b, w) for n, (a, b), w in rows))


@given(heated())
def test_what_is_heated_is_never_colder_than_the_air(case: tuple[Network, list[float], Pulses]) -> None:
    net, watts, extra = case
    after = net.after([AIR] * len(watts), 10.0, watts, extra)
    assert min(after) >= AIR - 1e-9


@given(heated(), st.floats(0.01, 9.99))
def test_a_step_may_be_cut_anywhere(case: tuple[Network, list[float], Pulses], at: float) -> None:
    net, watts, extra = case
    start = [AIR] * len(watts)

    def between(a: float, b: float) -> Pulses:
        return Pulses(extra.node, np.clip(extra.begin, a, b) - a, np.clip(extra.end, a, b) - a, extra.watts)

    first = net.after(start, at, watts, between(0.0, at))
    both = net.after(first, 10.0 - at, watts, between(at, 10.0))
    assert both == pytest.approx(net.after(start, 10.0, watts, extra), abs=1e-9)


def test_power_is_what_is_stored_and_what_the_air_takes() -> None:
    """What goes over the two links to ambient in 200 s by Simpson's rule, a pulse ending on the middle of them."""
    net, steps, seconds = board(), 4000, 200.0
    extra = pulses((1, 0.0, 100.0, 6.0))
    half, lost = seconds / steps, 0.0
    first = net.after([AIR] * 4, 100.0, WATTS, extra)
    for begin, watts in ([AIR] * 4, [2.0, 6.5, 0.0, 3.0]), (first, WATTS):
        path = [net.after(begin, k * half, watts, NONE) for k in range(steps // 2 + 1)]
        rates = np.array([(t[2] - AIR) / 8 + (t[3] - AIR) / 16 for t in path])
        lost += half / 3 * (rates[0] + 4 * rates[1:-1:2].sum() + 2 * rates[2:-1:2].sum() + rates[-1])
    stored = float(np.dot(net.after(first, 100.0, WATTS, NONE) - AIR, [0.1, 1.5, 70.0, 40.0]))
    assert stored + lost == pytest.approx(5.5 * 200 + 6 * 100, rel=1e-6)


def test_time_constants_come_slowest_first() -> None:
    net = Network({"a": 1.0, "b": 10.0}, [("a", "ambient", 2.0), ("b", "ambient", 5.0)], AIR)
    assert net.time_constants == pytest.approx([50.0, 2.0])


@pytest.mark.parametrize("capacity", [0.0, -1.0, float("nan")])
def test_a_node_needs_a_capacity(capacity: float) -> None:
    with pytest.raises(ValueError, match=r"^capacities and resistances must be positive$"):
        Network({"a": capacity}, [("a", "ambient", 1.0)], AIR)


@pytest.mark.parametrize("resistance", [0.0, -1.0, float("nan")])
def test_a_link_needs_a_resistance(resistance: float) -> None:
    with pytest.raises(ValueError, match=r"^capacities and resistances must be positive$"):
        Network({"a": 1.0}, [("a", "ambient", resistance)], AIR)


@pytest.mark.parametrize("links", [[("a", "ambient", 1.0)], [("a", "ambient", 1.0), ("b", "c", 3.0)]])
def test_heat_needs_a_way_out(links: list[tuple[str, str, float]]) -> None:
    with pytest.raises(ValueError, match=r"^a node has no way to ambient, or"):
        Network({"a": 1.0, "b": 20.0, "c": 0.3}, links, AIR)
