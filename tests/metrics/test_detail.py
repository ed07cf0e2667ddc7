"""Detail of a run: amounts over time, what is kept and what is left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.metrics import CAUSES, Detail, Keep, Ledger, Profile

MS = 10**9

Amounts = st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 10**12), st.integers(1, 10**6)), max_size=30)


def test_an_amount_lies_evenly_over_its_time() -> None:
    profile = Profile()
    profile.add(MS // 2, 5 * MS // 2, 200)  # 2 ms: half a bin, a bin, half a bin
    edges, rates = profile.per_second(3 * MS)
    assert edges == [0, 0.001, 0.002, 0.003]
    assert rates == [50_000, 100_000, 50_000]


def test_the_last_bin_is_as_wide_as_the_run_is_long() -> None:
    profile = Profile()
    profile.add(0, 3 * MS // 2, 300)
    assert profile.per_second(3 * MS // 2) == ([0, 0.001, 0.0015], [200_000, 200_000])


def test_bins_double_when_they_no_longer_reach() -> None:
    profile = Profile()
    profile.add(0, 512 * MS, 512)
    assert profile.width == MS
    profile.add(512 * MS, 513 * MS, 1)
    assert profile.width == 2 * MS
    _, rates = profile.per_second(513 * MS)
    assert rates == pytest.approx([1000] * 257)


@given(amounts=Amounts)
def test_nothing_is_lost_whatever_comes_in_whatever_order(amounts: list[tuple[int, int, int]]) -> None:
    profile = Profile()
    for start, duration, amount in amounts:
        profile.add(start, start + duration, amount)
    end = max((s + d for s, d, _ in amounts), default=0)
    edges, rates = profile.per_second(end)
    assert len(rates) == len(edges) - 1 <= 513
    assert np.dot(rates, np.diff(edges)) == pytest.approx(sum(a for _, _, a in amounts))


# Steps


def told(ledger: Ledger, end: int) -> Detail:
    detail = Detail()
    detail.log("alice", "token", 0, 10, end, ledger)
    return detail


def test_a_step_knows_its_causes_and_their_order() -> None:
    ledger = Ledger(path=True)
    ledger.add("dispatch", 3)
    ledger.add_call((5, 0, 0, 2))
    ledger.add("host", 4)
    (step,) = told(ledger, 24).steps
    assert (step.stream, step.kind, step.number, step.start, step.end) == ("alice", "token", 0, 10, 24)
    assert dict(zip(CAUSES, step.spent, strict=True)) | {} == dict.fromkeys(CAUSES, 0) | {
        "compute": 5, "contention": 2, "dispatch": 3, "host": 4,
    }  # fmt: skip
    assert step.path == (("dispatch", 3), ("call", 7), ("host", 4))


def test_a_path_that_is_not_all_of_a_step_is_none() -> None:
    ledger = Ledger(path=True)
    ledger.add("host", 4)
    assert told(ledger, 24).steps[0].path == ()


def test_a_ledger_without_a_path_leaves_it_out() -> None:
    ledger = Ledger()
    ledger.add("host", 14)
    assert told(ledger, 24).steps[0].path == ()


def test_what_a_ledger_takes_from_another_is_on_its_path() -> None:
    one, two, three = Ledger(path=True), Ledger(path=True), Ledger()
    one.add("queueing", 1)
    two.add("host", 2)
    three.add("camera", 3)
    one.take(two)
    one.take(three)
    assert one.path == [("queueing", 1), ("host", 2), ("camera", 3)]


# CPU cores


def test_cpu_cores_are_counted_in_order_of_time_whenever_they_are_told() -> None:
    detail = Detail()
    detail.host_took(0)
    detail.host_took(5)
    detail.host_took(20)
    detail.host_gave(10)  # a core that was set aside is told late
    detail.host_gave(20)
    detail.host_gave(30)
    assert detail.cpu_busy() == [(0, 1), (5, 2), (10, 1), (20, 1), (30, 0)]


# What is kept


@pytest.mark.parametrize(
    ("keep", "start", "end", "inside"),
    [
        (Keep(), 0, 5, True),
        (Keep(10, 20), 0, 9, False),
        (Keep(10, 20), 0, 10, True),
        (Keep(10, 20), 19, 30, True),
        (Keep(10, 20), 20, 30, False),
        (Keep(10), 10**15, 10**15 + 1, True),
    ],
)
def test_a_window_keeps_what_reaches_into_it(keep: Keep, start: int, end: int, inside: bool) -> None:
    assert keep.within(start, end) is inside
