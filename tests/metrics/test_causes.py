"""Time by cause: every picosecond is charged once, and printed shares sum to the printed mean."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.cores import CallResult
from bpusim.metrics import CAUSES, Ledger, shares_ms

MS = 10**9


def test_a_ledger_begins_with_nothing_of_every_cause() -> None:
    assert Ledger().spent == dict.fromkeys(CAUSES, 0)


def test_charges_of_a_cause_add_up() -> None:
    ledger = Ledger()
    ledger.add("host", 3)
    ledger.add("host", 4)
    ledger.add("dram", 5)
    assert {c: n for c, n in ledger.spent.items() if n} == {"host": 7, "dram": 5}


def test_an_unknown_cause_is_an_error() -> None:
    with pytest.raises(KeyError):
        Ledger().add("weather", 1)


def test_a_negative_charge_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^-1 ps of host$"):
        Ledger().add("host", -1)


def test_what_no_cause_claims_is_other() -> None:
    ledger = Ledger()
    ledger.add("host", 3)
    ledger.close(10)
    assert ledger.spent["other"] == 7


def test_causes_that_claim_more_than_there_was_are_an_error() -> None:
    ledger = Ledger()
    ledger.add("host", 11)
    with pytest.raises(ValueError, match=r"^-1 ps of other$"):
        ledger.close(10)


def test_a_ledger_takes_another() -> None:
    a, b = Ledger(), Ledger()
    a.add("host", 1)
    b.add("host", 2)
    b.add("dram", 3)
    a.take(b)
    assert (a.spent["host"], a.spent["dram"]) == (3, 3)
    assert b.spent["host"] == 2


# Shares


def test_shares_are_means_in_milliseconds() -> None:
    assert shares_ms({"host": 4 * MS, "dram": 8 * MS}, 4) == (3.0, {"host": 1.0, "dram": 2.0})


def test_the_mean_of_nothing_is_zero() -> None:
    assert shares_ms({"host": 4, "dram": 8}, 0) == (0.0, {"host": 0.0, "dram": 0.0})


def test_picoseconds_that_are_left_go_to_the_largest_remainders() -> None:
    # 10 + 11 + 12 over 3 are 11; rounded down they are 3 + 3 + 4, and the one that is left goes to 11 / 3 = 3 + 2/3.
    assert shares_ms({"host": 10, "dram": 11, "compute": 12}, 3) == (
        11e-9,
        {"host": 3e-9, "dram": 4e-9, "compute": 4e-9},
    )


TOTALS = st.dictionaries(st.sampled_from(CAUSES), st.integers(0, 10**14), min_size=1)


@given(totals=TOTALS, count=st.integers(1, 10**4))
def test_shares_sum_to_the_mean_in_picoseconds(totals: dict[str, int], count: int) -> None:
    mean, shares = shares_ms(totals, count)
    assert sum(round(s * 1e9) for s in shares.values()) == round(mean * 1e9)


@given(totals=TOTALS, count=st.integers(1, 10**4))
def test_printed_shares_sum_to_the_printed_mean(totals: dict[str, int], count: int) -> None:
    mean, shares = shares_ms(totals, count)
    assert sum(Decimal(f"{s:.9f}") for s in shares.values()) == Decimal(f"{mean:.9f}")
    assert sum(Decimal(repr(s)) for s in shares.values()) == Decimal(repr(mean))  # as JSON writes them


@given(totals=TOTALS, count=st.integers(1, 10**4))
def test_every_share_is_within_a_picosecond_of_the_truth(totals: dict[str, int], count: int) -> None:
    mean, shares = shares_ms(totals, count)
    assert abs(2 * round(mean * 1e9) * count - 2 * sum(totals.values())) <= count
    for cause, total in totals.items():
        assert abs(round(shares[cause] * 1e9) * count - total) < count


@given(totals=TOTALS, count=st.integers(1, 10**4))
def test_a_cause_of_no_time_has_no_share(totals: dict[str, int], count: int) -> None:
    _, shares = shares_ms({**totals, "host": 0}, count)
    assert shares["host"] == 0


def test_the_first_causes_are_those_of_a_call() -> None:
    """A core's result and a ledger do not know each other: their order is what joins them."""
    assert CAUSES[:7] == CallResult._fields[2:9]
    ledger = Ledger()
    ledger.add_call(
        CallResult(0, 28, compute=1, dram=2, scratchpad=3, contention=4, throttling=5, wakeup=6, dispatch=7).causes
    )
    assert {c: n for c, n in ledger.spent.items() if n} == dict(zip(CAUSES, range(1, 8), strict=False))


def test_a_negative_part_of_a_call_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^-1 ps of dram$"):
        Ledger().add_call((3, -1, 0))
