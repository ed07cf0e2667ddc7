"""Cooling devices, governors of clocks, and operating points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import simpy

from bpusim.hardware.heat import ClockSpec, PointSpec
from bpusim.thermal import ClockControl, ClockDomain, Fan, Group, points_of

MHZ = 10**6
MS = 10**9
US = 10**6


@pytest.fixture
def env() -> simpy.Environment:
    return simpy.Environment()


def spec_of(clocks: Sequence[int], **keys: Any) -> ClockSpec:
    """Points at so many MHz without voltages."""
    return ClockSpec(points=[PointSpec(clock=f * MHZ) for f in clocks], **keys)


def control(
    env: simpy.Environment, clocks: Sequence[int] = (1000, 800, 600, 400), load: Any = lambda: 0.0, **keys: Any
) -> ClockControl:
    spec = spec_of(clocks, **keys)
    clock = ClockDomain("bpu0", clocks[0] * MHZ, points_of(spec, clocks[0] * MHZ))
    return ClockControl(env, clock, spec, load)


def mhz(device: ClockControl) -> int:
    return device.clock.hz // MHZ


def changes(device: ClockControl) -> list[tuple[int, int]]:
    """(when, MHz) of each change from now on."""
    log: list[tuple[int, int]] = []
    device.clock.on_change(lambda hz: log.append((int(device.env.now), hz // MHZ)))
    return log


def test_performance_runs_at_the_fastest_point(env: simpy.Environment) -> None:
    assert mhz(control(env, governor="performance")) == 1000


def test_powersave_runs_at_the_slowest_point(env: simpy.Environment) -> None:
    assert mhz(control(env, governor="powersave")) == 400


def test_userspace_runs_at_the_point_it_is_told(env: simpy.Environment) -> None:
    assert mhz(control(env, governor="userspace", fixed=600 * MHZ)) == 600


def test_userspace_of_a_slower_unit_takes_the_next_point_below(env: simpy.Environment) -> None:
    """Made for 700 MHz it runs at 700, 600, 400: there is no 800 any more, and 700 is below it."""
    spec = spec_of([1000, 800, 600, 400], governor="userspace", fixed=800 * MHZ)
    clock = ClockDomain("bpu0", 700 * MHZ, points_of(spec, 700 * MHZ))
    assert mhz(ClockControl(env, clock, spec)) == 700


def test_a_clock_without_points_stays_as_it_is(env: simpy.Environment) -> None:
    device = ClockControl(env, ClockDomain("dram", 1600 * MHZ), None)
    device.request("zone", 0)
    assert (device.name, device.max_state, device.state, mhz(device)) == ("dram", 0, 0, 1600)


def ondemand(env: simpy.Environment, *busy: float, clocks: Sequence[int] = (1000, 800, 500, 200), **keys: Any) -> Any:
    """MHz after each look at a unit that was busy for these parts of the time."""
    total, spans = 0.0, iter(busy)

    def load() -> float:
        nonlocal total
        total += next(spans) * 0.05
        return total

    device = control(env, clocks, load, governor="simple_ondemand", **keys)
    seen = []
    for k in range(len(busy)):
        env.run(until=(k + 1) * 50 * MS + 1)
        seen.append(mhz(device))
    return seen


def test_by_load_it_starts_at_the_slowest_point(env: simpy.Environment) -> None:
    assert mhz(control(env, governor="simple_ondemand")) == 400


def test_by_load_it_goes_to_the_fastest_point_above_up(env: simpy.Environment) -> None:
    assert ondemand(env, 0.91) == [1000]


def test_by_load_it_stays_between_up_less_down_and_up(env: simpy.Environment) -> None:
    """By the load alone 983 MHz would do for the first."""
    assert ondemand(env, 1.0, 0.86, 0.89, clocks=(1000, 990, 500)) == [1000, 1000, 1000]


@pytest.mark.parametrize(("busy", "expected"), [(0.84, 1000), (0.69, 800), (0.4, 500), (0.17, 200), (0.0, 200)])
def test_by_load_it_takes_the_slowest_point_that_still_does(env: simpy.Environment, busy: float, expected: int) -> None:
    """The kernel's load x present clock / (up - down / 2): 0.84 needs 960 MHz, 0.69 789, 0.4 457, 0.17 194."""
    assert ondemand(env, 1.0, busy) == [1000, expected]


def test_by_load_the_clock_it_was_busy_at_counts(env: simpy.Environment) -> None:
    """0.4 of 1 GHz needs 457 MHz; 0.8 of 500 the same; 0.3 of 500 needs 171."""
    assert ondemand(env, 1.0, 0.4, 0.8, 0.3) == [1000, 500, 500, 200]


def test_by_load_only_what_it_did_since_the_last_look_counts(env: simpy.Environment) -> None:
    assert ondemand(env, 1.0, 0.0, 0.0) == [1000, 200, 200]


def test_by_load_up_and_down_can_be_told(env: simpy.Environment) -> None:
    """Above 60 %; below 40 % by the load over 50 %: 0.3 of 1 GHz needs 600 MHz."""
    assert ondemand(env, 0.61, 0.41, 0.3, up=60, down=20) == [1000, 1000, 800]


def test_by_load_it_looks_as_often_as_told(env: simpy.Environment) -> None:
    device = control(env, (1000, 400), lambda: int(env.now) / 10**12, governor="simple_ondemand", polling=7 * MS)
    log = changes(device)
    env.run(until=100 * MS)
    assert log == [(7 * MS, 1000)]


def test_cooling_slows_a_clock_down(env: simpy.Environment) -> None:
    device = control(env)
    device.request("zone", 2)
    assert (device.state, mhz(device)) == (2, 600)
    device.request("zone", 0)
    assert (device.state, mhz(device)) == (0, 1000)


def test_of_two_callers_the_one_who_asks_most_counts(env: simpy.Environment) -> None:
    device, seen = control(env), []
    for who, state in [("a", 1), ("b", 3), ("a", 2), ("b", 0), ("a", 0)]:
        device.request(who, state)
        seen.append((device.state, mhz(device)))
    assert seen == [(1, 800), (3, 400), (3, 400), (2, 600), (0, 1000)]


@pytest.mark.parametrize(("state", "expected"), [(0, 600), (1, 600), (2, 600), (3, 400)])
def test_the_slower_of_governor_and_cooling_counts(env: simpy.Environment, state: int, expected: int) -> None:
    device = control(env, governor="userspace", fixed=600 * MHZ)
    device.request("zone", state)
    assert mhz(device) == expected


def test_a_governor_by_load_stays_below_what_cooling_allows(env: simpy.Environment) -> None:
    device = control(env, load=lambda: int(env.now) / 10**12, governor="simple_ondemand")
    device.request("zone", 1)
    env.run(until=60 * MS)
    assert mhz(device) == 800
    device.request("zone", 0)
    assert mhz(device) == 1000


def test_listeners_hear_of_changes_only(env: simpy.Environment) -> None:
    device = control(env)
    log = changes(device)
    for state in (0, 1, 1, 0):
        device.request("zone", state)
    assert log == [(0, 800), (0, 1000)]


def test_a_choice_takes_effect_a_transition_later(env: simpy.Environment) -> None:
    device = control(env, transition=50 * US)
    log = changes(device)
    env.run(until=10 * US)
    device.request("zone", 1)
    assert (device.state, mhz(device)) == (1, 1000)
    env.run()
    assert log == [(60 * US, 800)]


def test_a_newer_choice_overtakes_one_that_has_had_no_effect(env: simpy.Environment) -> None:
    device = control(env, transition=50 * US)
    log = changes(device)
    device.request("zone", 1)
    env.run(until=10 * US)
    device.request("zone", 3)
    env.run()
    assert log == [(60 * US, 400)]


def test_a_choice_that_is_taken_back_in_time_has_no_effect(env: simpy.Environment) -> None:
    device = control(env, transition=50 * US)
    log = changes(device)
    device.request("zone", 1)
    env.run(until=10 * US)
    device.request("zone", 0)
    env.run()
    assert (log, mhz(device)) == ([], 1000)


def test_time_below_what_the_governor_picked_is_throttled(env: simpy.Environment) -> None:
    device = control(env)
    for until, state in [(100, 1), (300, 2), (350, 0), (500, 1)]:
        env.run(until=until)
        device.request("zone", state)
    assert [device.throttled_by(at) for at in (500, 700)] == [250, 450]


def test_a_governor_that_picked_as_slow_a_point_is_not_throttled(env: simpy.Environment) -> None:
    device = control(env, governor="powersave")
    env.run(until=100)
    device.request("zone", 3)
    assert device.throttled_by(1000) == 0


def test_a_governor_on_its_way_up_is_not_slowed_by_heat(env: simpy.Environment) -> None:
    """A transition of 50 us lies between its choice and the clock."""
    device = control(env, load=iter([0.05, 0.1]).__next__, governor="simple_ondemand", transition=50 * US)
    env.run(until=50 * MS + 1)
    assert mhz(device) == 400
    env.run(until=60 * MS)
    assert mhz(device) == 1000
    assert device.throttled_by(60 * MS) == 0


def test_a_group_asks_each_of_its_members_as_far_as_it_goes(env: simpy.Environment) -> None:
    long, short = control(env), control(env, (1000, 500))
    group = Group("cores", [long, short])
    group.request("zone", 3)
    assert (group.max_state, group.state, mhz(long), mhz(short)) == (3, 3, 400, 500)
    group.request("zone", 0)
    assert (group.state, mhz(long), mhz(short)) == (0, 1000, 1000)


def test_a_group_is_as_cool_as_the_coolest_of_its_members(env: simpy.Environment) -> None:
    members = [control(env), control(env)]
    group = Group("cores", members)
    members[1].request("another zone", 2)
    group.request("zone", 1)
    assert ([m.state for m in members], group.state) == ([1, 2], 2)


def test_a_fan_turns_when_its_level_changes() -> None:
    levels: list[int] = []
    fan = Fan(3, levels.append)
    for who, level in [("a", 0), ("a", 1), ("b", 3), ("a", 2), ("b", 0), ("a", 2), ("a", 0)]:
        fan.request(who, level)
    assert (levels, fan.state, fan.max_state) == ([1, 3, 2, 0], 0, 3)


def test_a_fan_turns_when_its_level_is_known_already() -> None:
    """Whoever turns it may ask it."""
    seen: list[int] = []
    fan = Fan(3, lambda level: seen.append(fan.state - level))
    fan.request("a", 2)
    assert seen == [0]


CURVE = ClockSpec(
    points=[
        PointSpec(clock=1000 * MHZ, voltage=0.8),
        PointSpec(clock=800 * MHZ, voltage=0.7),
        PointSpec(clock=400 * MHZ, voltage=0.6),
    ]
)


def rounded(spec: ClockSpec | None, hz: int) -> list[Any]:
    """(MHz, speed, volts) of each point."""
    return [(p.hz // MHZ, pytest.approx(p.speed), pytest.approx(p.volts)) for p in points_of(spec, hz)]


def test_points_are_parts_of_the_fastest() -> None:
    assert rounded(CURVE, 1000 * MHZ) == [(1000, 1.0, 1.0), (800, 0.8, 0.875), (400, 0.4, 0.75)]


def test_a_clock_between_two_points_has_a_voltage_between_theirs() -> None:
    assert rounded(CURVE, 900 * MHZ) == [(900, 0.9, 0.9375), (800, 0.8, 0.875), (400, 0.4, 0.75)]
    assert rounded(CURVE, 500 * MHZ) == [(500, 0.5, 0.78125), (400, 0.4, 0.75)]


def test_a_clock_that_is_a_lower_point_has_its_voltage() -> None:
    assert rounded(CURVE, 800 * MHZ) == [(800, 0.8, 0.875), (400, 0.4, 0.75)]


def test_a_clock_above_all_points_has_a_voltage_on_the_line_through_the_first_two() -> None:
    """0.8 V at 1 GHz and 0.7 at 0.8: 0.9 V at 1.2 GHz, of 0.8."""
    assert rounded(CURVE, 1200 * MHZ)[:2] == [(1200, 1.2, 1.125), (1000, 1.0, 1.0)]


def test_a_clock_below_all_points_keeps_the_lowest_voltage() -> None:
    assert rounded(CURVE, 200 * MHZ) == [(200, 0.2, 0.75)]


@pytest.mark.parametrize(("hz", "first"), [(1000, (1000, 1.0, 1.0)), (900, (900, 0.9, 1.0)), (1200, (1200, 1.2, 1.0))])
def test_points_without_voltages_keep_the_full_one(hz: int, first: tuple[int, float, float]) -> None:
    assert rounded(spec_of([1000, 800]), hz * MHZ)[0] == first


@pytest.mark.parametrize("hz", [500, 1000, 2000])
def test_the_only_point_gives_its_voltage_to_any_clock(hz: int) -> None:
    only = ClockSpec(points=[PointSpec(clock=1000 * MHZ, voltage=0.8)])
    assert rounded(only, hz * MHZ)[0] == (hz, hz / 1000, 1.0)


def test_without_points_a_unit_runs_at_the_clock_it_was_made_for() -> None:
    assert rounded(None, 700 * MHZ) == [(700, 1.0, 1.0)]


def test_a_clock_runs_at_the_first_of_its_points() -> None:
    clock = ClockDomain("bpu0", 900 * MHZ, points_of(CURVE, 900 * MHZ))
    assert (clock.hz, clock.nominal, clock.speed, clock.volts) == pytest.approx((900 * MHZ, 900 * MHZ, 0.9, 0.9375))


def test_a_change_of_clock_brings_its_speed_and_voltage() -> None:
    clock = ClockDomain("bpu0", 1000 * MHZ, points_of(CURVE, 1000 * MHZ))
    clock.set_hz(400 * MHZ)
    assert (clock.hz, clock.speed, clock.volts) == pytest.approx((400 * MHZ, 0.4, 0.75))


def test_a_clock_that_is_no_point_keeps_the_voltage() -> None:
    clock = ClockDomain("bpu0", 1000 * MHZ, points_of(CURVE, 1000 * MHZ))
    clock.set_hz(800 * MHZ)
    clock.set_hz(500 * MHZ)
    assert (clock.speed, clock.volts) == pytest.approx((0.5, 0.875))


def test_whoever_looks_before_a_change_still_sees_the_old_clock() -> None:
    clock = ClockDomain("bpu0", 1000 * MHZ, points_of(CURVE, 1000 * MHZ))
    log: list[tuple[str, int]] = []
    clock.on_change(lambda _: log.append(("listener", clock.hz // MHZ)))
    clock.before_change = lambda: log.append(("before", clock.hz // MHZ))
    clock.set_hz(400 * MHZ)
    assert log == [("before", 1000), ("listener", 400)]
