"""Governors of thermal zones: what they ask of cooling devices, look by look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from bpusim.hardware.heat import ClockSpec, PointSpec, TripSpec, ZoneSpec
from bpusim.thermal import ClockControl, ClockDomain, CoolingDevice, Fan, points_of
from bpusim.thermal.governors import (
    BangBang,
    Governor,
    PowerAllocator,
    PowerOf,
    StepWise,
    Trip,
    UserSpace,
    governor_of,
)

S = 10**12


def fan(levels: int) -> Fan:
    return Fan(levels, lambda _: None)


def trip(temp: float, hyst: float = 0.0, *devices: str) -> Trip:
    return Trip(TripSpec(temp=temp, type="passive", hyst=hyst, devices=list(devices) or ["a"]))


def look(governor: Governor, trips: Sequence[Trip], degc: float, interval: int = S) -> None:
    """As a zone does it: trips first."""
    for t in trips:
        t.look(round(degc * 1000))
    governor.look(round(degc * 1000), interval)


def states(governor: Governor, trips: Sequence[Trip], device: CoolingDevice, *temperatures: float) -> list[int]:
    """The state of a device after each look."""
    out = []
    for degc in temperatures:
        look(governor, trips, degc)
        out.append(device.state)
    return out


def step_wise(levels: int, *trips: Trip) -> tuple[StepWise, list[Trip], Fan]:
    device = fan(levels)
    return StepWise(trips, {"a": device}), list(trips), device


def test_a_trip_is_crossed_at_its_temperature() -> None:
    t = trip(72)
    assert [t.look(milli) for milli in (71_999, 72_000, 72_001)] == [False, True, True]


def test_a_trip_is_left_only_below_its_hysteresis() -> None:
    t = trip(72, 2)
    assert [t.look(milli) for milli in (72_000, 71_000, 70_000, 69_999)] == [True, True, True, False]


def test_a_trip_that_was_left_is_crossed_at_its_temperature_again() -> None:
    t = trip(72, 2)
    assert [t.look(milli) for milli in (72_000, 69_000, 71_999, 72_000)] == [True, False, False, True]


def test_a_trip_knows_whole_thousandths_only() -> None:
    """72.3 - 2.1 is a hair below 70.2 in floats; a fifth of a thousandth is nothing at all."""
    fine, coarse = trip(72.3, 2.1), trip(72.0002)
    assert [fine.look(milli) for milli in (72_300, 70_200, 70_199)] == [True, True, False]
    assert coarse.look(72_000)


def test_above_95_degc_it_steps_down_one_point_a_look_as_long_as_it_gets_hotter() -> None:
    env, hz = simpy.Environment(), [1000, 800, 600, 400]
    spec = ClockSpec(points=[PointSpec(clock=f * 10**6) for f in hz])
    clock = ClockDomain("bpu0", 10**9, points_of(spec, 10**9))
    trips = [trip(95, 2, "bpu0")]
    governor = StepWise(trips, {"bpu0": ClockControl(env, clock, spec)})
    seen = []
    for degc in (94.0, 94.999, 95.0, 95.5, 95.501, 96.0, 97.0):
        look(governor, trips, degc)
        seen.append(clock.hz // 10**6)
    assert seen == [1000, 1000, 800, 600, 400, 400, 400]


def test_it_holds_while_it_cools_above_the_trip() -> None:
    assert states(*step_wise(4, trip(72)), 72, 73, 72.5, 72.1) == [1, 2, 2, 2]


def test_it_holds_at_a_steady_temperature_above_the_trip() -> None:
    assert states(*step_wise(4, trip(72)), 72, 73, 73, 73) == [1, 2, 2, 2]


def test_it_holds_within_the_hysteresis() -> None:
    assert states(*step_wise(4, trip(72, 2)), 72, 73, 71, 70) == [1, 2, 2, 2]


def test_it_goes_on_within_the_hysteresis_when_it_gets_hotter_again() -> None:
    assert states(*step_wise(4, trip(72, 2)), 72, 71, 71.5) == [1, 1, 2]


def test_below_the_hysteresis_it_steps_back_one_a_look_as_long_as_it_cools() -> None:
    got = states(*step_wise(4, trip(72, 2)), 72, 73, 74, 69.9, 69.9, 69.95, 69.8, 69.0, 68.0)
    assert got == [1, 2, 3, 2, 2, 2, 1, 0, 0]


def test_it_steps_no_further_than_the_device_goes() -> None:
    assert states(*step_wise(2, trip(72)), 72, 73, 74, 75, 71.9, 71) == [1, 2, 2, 2, 1, 0]


def test_a_trip_found_crossed_at_the_first_look_counts_as_rising() -> None:
    assert states(*step_wise(4, trip(72)), 80, 80, 79) == [1, 1, 1]


def test_each_trip_has_its_steps_and_the_most_counts() -> None:
    device = fan(4)
    trips = [trip(72), trip(80)]
    assert states(StepWise(trips, {"a": device}), trips, device, 72, 80, 81, 79, 71) == [1, 2, 3, 3, 2]


def test_a_trip_steps_only_its_own_devices() -> None:
    devices = {"a": fan(4), "b": fan(4)}
    trips = [trip(72, 0, "a"), trip(80, 0, "b")]
    governor = StepWise(trips, devices)
    for degc in (72, 80, 81):
        look(governor, trips, degc)
    assert (devices["a"].state, devices["b"].state) == (3, 2)


@given(st.lists(st.floats(60, 80), max_size=40), st.sampled_from([0.0, 0.001, 2.0]))
def test_it_moves_one_step_a_look_at_most_and_never_past_its_ends(temperatures: list[float], hyst: float) -> None:
    seen = [0, *states(*step_wise(3, trip(70, hyst)), *temperatures)]
    assert all(abs(b - a) <= 1 for a, b in pairwise(seen))
    assert set(seen) <= {0, 1, 2, 3}


def bang_bang(levels: int, *trips: Trip) -> tuple[BangBang, list[Trip], Fan]:
    device = fan(levels)
    return BangBang(trips, {"a": device}), list(trips), device


def test_bang_bang_is_all_or_nothing() -> None:
    assert states(*bang_bang(3, trip(50)), 49.9, 50, 60, 49.999, 20) == [0, 3, 3, 0, 0]


def test_bang_bang_stays_on_within_the_hysteresis() -> None:
    assert states(*bang_bang(3, trip(50, 5)), 49.9, 50, 46, 45, 44.999, 49) == [0, 3, 3, 3, 0, 0]


def test_user_space_leaves_devices_alone() -> None:
    device = fan(3)
    device.request("user", 2)
    assert states(UserSpace(), [trip(50)], device, 20, 60, 100) == [2, 2, 2]


PASSIVE = TripSpec(temp=90.0, type="passive", devices=["a"])
SWITCH_ON = TripSpec(temp=70.0, type="passive", hyst=2.0, devices=["a"])


class Dealt:
    """A power allocator with a device for each (what it asks, what it takes at most, watts a state): how much each was
    granted can be read from its state."""

    def __init__(
        self, spec: ZoneSpec, asked: Sequence[tuple[float, float, float]] = ((10.0, 10.0, 0.1),), floor: float = 0.0
    ) -> None:
        self.trips = [Trip(t) for t in spec.trips]
        names = [chr(ord("a") + k) for k in range(len(asked))]
        self.fans = [fan(round((most - floor) / step)) for _, most, step in asked]

        def at_state(most: float, step: float) -> Callable[[int], float]:
            return lambda state: most - state * step

        powers = {n: PowerOf(lambda a=a: a, at_state(m, s)) for n, (a, m, s) in zip(names, asked, strict=True)}  # type: ignore[misc]
        self.governor = governor_of(spec, self.trips, dict(zip(names, self.fans, strict=True)), powers)

    def look(self, *temperatures: float, interval: int = S) -> list[int]:
        """The states after the last of these."""
        for degc in temperatures:
            look(self.governor, self.trips, degc, interval)
        return [f.state for f in self.fans]


def allocator(*trips: TripSpec, sustainable: float = 4.0, **keys: Any) -> ZoneSpec:
    return ZoneSpec(
        sensor="die", trips=list(trips) or [PASSIVE], governor="power_allocator", sustainable=sustainable, **keys
    )


def test_at_the_trip_it_grants_the_sustainable_power() -> None:
    assert Dealt(allocator()).look(90.0) == [60]  # 4 of 10 W


def test_below_the_trip_it_grants_k_pu_for_each_kelvin_more() -> None:
    assert Dealt(allocator(k_pu=0.5)).look(84.0) == [30]  # 4 + 0.5 x 6 of 10 W


def test_above_the_trip_it_grants_k_po_for_each_kelvin_less() -> None:
    assert Dealt(allocator(k_po=0.5, k_i=0.0)).look(93.0) == [75]  # 4 - 0.5 x 3 of 10 W


def test_gains_follow_from_the_sustainable_power_and_the_two_trips() -> None:
    """4 W over 20 K: k_po 0.2 W/K, k_pu 0.4, k_i 0.04, the last only above the trip."""
    assert Dealt(allocator(SWITCH_ON, PASSIVE)).look(85.0) == [40]  # 4 + 0.4 x 5
    assert Dealt(allocator(SWITCH_ON, PASSIVE)).look(95.0) == [72]  # 4 - 0.2 x 5 - 0.04 x 5


def test_with_one_trip_gains_reach_down_to_zero_degrees() -> None:
    assert Dealt(allocator(sustainable=4.5)).look(80.0) == [45]  # 4.5 + 2 x 4.5 / 90 x 10


def test_it_grants_no_more_than_devices_can_take_and_no_less_than_nothing() -> None:
    dealt = Dealt(allocator(k_pu=1.0, k_po=1.0))
    assert (dealt.look(20.0), dealt.look(120.0)) == ([0], [100])


def test_what_adds_up_above_the_trip_lowers_the_grant_look_by_look() -> None:
    dealt = Dealt(allocator(k_po=0.0, k_i=0.2))
    assert [dealt.look(91.0)[0] for _ in range(3)] == [62, 64, 66]


def test_below_the_trip_nothing_adds_up_beyond_the_cutoff() -> None:
    dealt = Dealt(allocator(k_pu=0.0, k_i=0.1, cutoff=5.0))
    assert [dealt.look(degc)[0] for degc in (85.0, 86.0, 86.0)] == [60, 56, 52]


def test_what_adds_up_is_limited_so_that_it_is_soon_paid_back() -> None:
    """0.3 W a look, 33 times, is the last below the 10 W that the device can take; 3 W a look leads back."""
    dealt = Dealt(allocator(sustainable=5.0, k_po=0.0, k_pu=0.0, k_i=0.3, cutoff=100.0))
    dealt.look(*[91.0] * 1000)
    assert [dealt.look(80.0)[0] for _ in range(3)] == [100, 89, 59]  # 5 - 6.9, 5 - 3.9, 5 - 0.9


@pytest.mark.parametrize(("interval", "state"), [(S, 80), (2 * S, 70)])
def test_k_d_acts_on_the_change_by_the_second(interval: int, state: int) -> None:
    dealt = Dealt(allocator(k_po=0.0, k_i=0.0, k_d=2.0))
    assert dealt.look(90.0, 91.0, interval=interval) == [state]
    assert dealt.look(91.0, interval=interval) == [60]


def test_below_the_switch_on_trip_there_is_no_cooling() -> None:
    dealt = Dealt(allocator(SWITCH_ON, PASSIVE, k_pu=0.0))
    assert (dealt.look(69.9), dealt.look(70.0)) == ([0], [60])


def test_the_switch_on_trip_is_left_below_its_hysteresis() -> None:
    dealt = Dealt(allocator(SWITCH_ON, PASSIVE, k_pu=0.0))
    assert [dealt.look(degc) for degc in (70.0, 68.0, 67.9)] == [[60], [60], [0]]


def test_below_the_switch_on_trip_all_is_forgotten() -> None:
    dealt = Dealt(allocator(SWITCH_ON, PASSIVE, k_po=0.0, k_pu=0.0, k_i=0.2, k_d=1.0))
    dealt.look(*[91.0] * 9, 60.0)
    assert dealt.look(90.0) == [60]


def test_power_is_dealt_out_by_what_is_asked_for() -> None:
    both = TripSpec(temp=90.0, type="passive", devices=["a", "b"])
    assert Dealt(allocator(both), [(6, 6, 0.1), (2, 8, 0.1)]).look(90.0) == [30, 70]  # 3 of 6 W, 1 of 8 W


def test_what_one_cannot_use_goes_to_the_other() -> None:
    """Of 10 W 7.5 and 2.5; the first can take 6."""
    both = TripSpec(temp=90.0, type="passive", devices=["a", "b"])
    assert Dealt(allocator(both, sustainable=10.0), [(6, 6, 0.1), (2, 8, 0.1)]).look(90.0) == [0, 40]


def test_what_one_cannot_use_is_shared_by_how_much_more_the_others_could() -> None:
    """Of 15 W 9, 3 and 3; the first can take 6, the others 1 and 3 more: they get 0.75 and 2.25."""
    three = TripSpec(temp=90.0, type="passive", devices=["a", "b", "c"])
    dealt = Dealt(allocator(three, sustainable=15.0), [(6, 6, 0.25), (2, 4, 0.25), (2, 6, 0.25)])
    assert dealt.look(90.0) == [0, 1, 3]


def test_devices_that_ask_for_nothing_are_not_slowed_down() -> None:
    both = TripSpec(temp=90.0, type="passive", devices=["a", "b"])
    powers = {n: PowerOf(lambda: 0.0, lambda _: 0.0) for n in "ab"}
    devices = {n: fan(4) for n in "ab"}
    trips = [Trip(both)]
    look(PowerAllocator(allocator(both), trips, devices, powers), trips, 95.0)
    assert [d.state for d in devices.values()] == [0, 0]


@pytest.mark.parametrize(("watts", "state"), [(4.0, 0), (3.9, 1), (3.0, 1), (2.9, 2), (0.5, 2)])
def test_a_device_takes_the_fastest_state_that_fits_or_else_the_slowest(watts: float, state: int) -> None:
    """4, 3 and 2 W."""
    assert Dealt(allocator(sustainable=watts), [(4, 4, 1)], floor=2.0).look(90.0) == [state]


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("step_wise", StepWise),
        ("bang_bang", BangBang),
        ("user_space", UserSpace),
        ("power_allocator", PowerAllocator),
    ],
)
def test_a_zone_gets_the_governor_it_asks_for(kind: str, made: type) -> None:
    keys = {"sustainable": 4.0} if kind == "power_allocator" else {}
    spec = ZoneSpec(sensor="die", trips=[PASSIVE], governor=kind, **keys)  # type: ignore[arg-type]
    powers = {"a": PowerOf(lambda: 0.0, lambda _: 0.0)}
    assert isinstance(governor_of(spec, [Trip(PASSIVE)], {"a": fan(3)}, powers), made)
