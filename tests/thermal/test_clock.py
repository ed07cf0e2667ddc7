"""Clock domains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.thermal import ClockDomain


def test_a_cycle_at_one_gigahertz_is_a_thousand_picoseconds() -> None:
    assert ClockDomain("c", 10**9).cycles_to_ps(3) == 3000


@pytest.mark.parametrize(
    ("hz", "cycles", "ps"), [(3 * 10**12, 1, 0), (3 * 10**12, 2, 1), (2 * 10**12, 1, 1), (3, 1, 333_333_333_333)]
)
def test_a_duration_is_the_nearest_picosecond(hz: int, cycles: int, ps: int) -> None:
    assert ClockDomain("c", hz).cycles_to_ps(cycles) == ps


@given(hz=st.integers(1, 10**11), cycles=st.integers(0, 10**18))
def test_a_duration_is_within_half_a_picosecond_of_its_cycles(hz: int, cycles: int) -> None:
    assert abs(2 * ClockDomain("c", hz).cycles_to_ps(cycles) * hz - 2 * cycles * 10**12) <= hz


def test_a_change_holds_from_then_on() -> None:
    clock = ClockDomain("c", 10**9)
    clock.set_hz(2 * 10**9)
    assert (clock.hz, clock.cycles_to_ps(4)) == (2 * 10**9, 2000)


def test_listeners_are_told_in_order_after_the_change() -> None:
    clock = ClockDomain("c", 10**9)
    log: list[tuple[str, int, int]] = []
    clock.on_change(lambda hz: log.append(("first", hz, clock.hz)))
    clock.on_change(lambda hz: log.append(("second", hz, clock.hz)))
    clock.set_hz(5)
    assert log == [("first", 5, 5), ("second", 5, 5)]


@pytest.mark.parametrize("hz", [0, -1])
def test_a_clock_does_not_stand_still(hz: int) -> None:
    clock = ClockDomain("bpu0", 10**9)
    with pytest.raises(ValueError, match=f"^clock bpu0 cannot run at {hz} Hz$"):
        clock.set_hz(hz)
    assert clock.hz == 10**9
