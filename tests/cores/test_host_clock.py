"""A CPU cluster whose clock changes: when work ends, and what the slow clock has cost it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import GHZ, NS, RATE, Counting

from bpusim.cores import HostCluster, HostTraffic
from bpusim.dram import FlowChannel, Ideal, Rules
from bpusim.hardware.presets import machine_preset
from bpusim.metrics import Recorder
from bpusim.thermal import ClockDomain

Change = tuple[int, int]
"""(when, Hz)."""
HALF = GHZ // 2


class Desk:
    """Two CPU cores at 1 GHz on a channel of 10 B/ns, and changes of their clock."""

    def __init__(self, *changes: Change, governed: bool = True, clock: bool = True, metered: bool = False) -> None:
        self.env = Counting()
        self.clock = ClockDomain("host", GHZ)
        observer = Recorder()
        channel = FlowChannel(self.env, Ideal(RATE), observer, Rules("equal"))
        spec, port = replace(machine_preset("bpu80").host, cores=2), channel.port("cpu", 10**6, NS, RATE)
        self.host = HostCluster(self.env, spec, port, observer, self.clock if clock else None)
        if metered:
            self.host.metered()
        if governed:
            self.host.governed()
        self.log: list[tuple[int, str, int, int]] = []
        for when, hz in changes:
            self.env.process(self._change(when, hz))

    def _change(self, when: int, hz: int) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(when)
        self.clock.set_hz(hz)

    def work(self, name: str, duration: int, size: int = 0, start: int = 0) -> None:
        """Logs (when done, name, time in line, time lost to the clock)."""
        self.env.process(self._work(name, duration, size, start))

    def _work(self, name: str, duration: int, size: int, start: int) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(start)
        done = self.host.work(duration, HostTraffic("io:x", {("io", False): size}) if size else None)
        assert done is not None
        queued, lost = yield done
        self.log.append((self.now, name, queued, lost))

    def alone(self, duration: int, size: int = 0, start: int = 0) -> tuple[int, int]:
        """(end, time lost) of one work with the machine to itself."""
        self.work("a", duration, size, start)
        self.env.run()
        ((end, _, queued, lost),) = self.log
        assert queued == 0
        return end, lost

    @property
    def now(self) -> int:
        return int(self.env.now)


# Work under way


def test_work_under_way_takes_twice_as_long_from_when_the_clock_halves() -> None:
    # 60 of 100 ns are left at 40.
    assert Desk((40 * NS, HALF)).alone(100 * NS) == (160 * NS, 60 * NS)


def test_work_ends_at_the_nearest_picosecond() -> None:
    # 60 001 ps are left: 85 715.71 at 0.7 GHz.
    assert Desk((40_000, GHZ * 7 // 10)).alone(100_001) == (125_716, 25_715)


def test_work_gets_faster_when_the_clock_is_back() -> None:
    # 60 ns at half the clock are 30; the last 30 take 30.
    assert Desk((40 * NS, HALF), (100 * NS, GHZ)).alone(100 * NS) == (130 * NS, 30 * NS)


def test_work_goes_by_every_change_of_the_clock() -> None:
    # 10 ns by 10, 10 more by 30, 20 more by 110 at a quarter: the last 60 end at 170.
    changes = ((10 * NS, HALF), (30 * NS, GHZ // 4), (110 * NS, GHZ))
    assert Desk(*changes).alone(100 * NS) == (170 * NS, 70 * NS)


def test_work_at_a_slow_clock_from_its_start_takes_longer_by_the_ratio() -> None:
    assert Desk((0, HALF)).alone(100 * NS, start=5 * NS) == (205 * NS, 100 * NS)
    assert Desk((0, GHZ * 7 // 10)).alone(100 * NS, start=5 * NS) == (5000 + 142_857, 42_857)


def test_work_after_the_clock_is_back_loses_nothing() -> None:
    assert Desk((0, HALF), (5 * NS, GHZ)).alone(100 * NS, start=5 * NS) == (105 * NS, 0)


def test_a_change_in_the_instant_of_the_end_comes_too_late() -> None:
    assert Desk((100 * NS, HALF)).alone(100 * NS) == (100 * NS, 0)


def test_a_change_to_the_same_clock_changes_nothing() -> None:
    assert Desk(*((k * 7001, GHZ) for k in range(9))).alone(100 * NS) == (100 * NS, 0)


def test_all_works_under_way_go_by_the_clock() -> None:
    desk = Desk((40 * NS, HALF))
    desk.work("a", 100 * NS)
    desk.work("b", 50 * NS, start=20 * NS)
    desk.env.run()
    assert desk.log == [(40 * NS + 60 * NS, "b", 0, 30 * NS), (160 * NS, "a", 0, 60 * NS)]


def test_work_for_somebody_with_a_core_goes_by_the_clock() -> None:
    desk = Desk((40 * NS, HALF))
    ends: list[int] = []
    desk.host.after(100 * NS, lambda _: ends.append(desk.now))
    desk.env.run()
    assert ends == [160 * NS]


# In line and aside


def test_work_in_line_waits_for_slow_work_and_is_slow_itself() -> None:
    desk = Desk((50 * NS, HALF))
    for name in "ab":
        desk.work(name, 100 * NS)
    desk.work("c", 10 * NS, start=20 * NS)
    desk.env.run()
    assert desk.log[-1] == (170 * NS, "c", 130 * NS, 10 * NS)


def test_the_clock_of_the_time_in_line_costs_work_nothing() -> None:
    desk = Desk((0, HALF), (200 * NS, GHZ))
    for name in "ab":
        desk.work(name, 100 * NS)
    desk.work("c", 10 * NS, start=20 * NS)
    desk.env.run()
    assert desk.log[-1] == (210 * NS, "c", 180 * NS, 0)


def test_work_set_aside_is_an_event_that_goes_by_the_clock() -> None:
    desk = Desk((40 * NS, HALF))
    event = desk.host.aside(100 * NS)
    assert isinstance(event, simpy.Event)
    desk.env.run(until=event)
    assert (desk.now, event.value) == (160 * NS, (0, 60 * NS))


def test_work_set_aside_occupies_its_core_as_long_as_it_takes() -> None:
    desk = Desk((0, HALF))
    desk.env.run(until=NS)
    for _ in range(2):
        desk.host.aside(100 * NS)
    desk.work("a", 10 * NS, start=50 * NS)
    desk.env.run()
    # It asks at 51; both cores are taken from 1 to 201.
    assert desk.log == [(221 * NS, "a", 150 * NS, 10 * NS)]


# Traffic


@pytest.mark.parametrize("when", [0, 10])
def test_work_that_waits_for_its_bytes_anyway_loses_nothing(when: int) -> None:
    # 1000 B take 100 ns; 50 ns of work are done by then at half the clock, or in 90 ns.
    assert Desk((when * NS, HALF)).alone(50 * NS, size=1000) == (100 * NS, 0)


def test_work_whose_bytes_are_there_long_since_loses_all_that_the_clock_costs() -> None:
    assert Desk((10 * NS, HALF)).alone(50 * NS, size=100) == (90 * NS, 40 * NS)


def test_work_that_only_a_slow_clock_makes_longer_than_its_bytes_loses_what_is_beyond_them() -> None:
    # 100 ns either way at the full clock, or at 10 + 140.
    assert Desk((10 * NS, HALF)).alone(80 * NS, size=1000) == (150 * NS, 50 * NS)


def test_bytes_without_work_do_not_know_the_clock() -> None:
    assert Desk((10 * NS, HALF)).alone(0, size=1000) == (100 * NS, 0)


# For any changes

CHANGES = st.lists(
    st.tuples(st.integers(0, 400_000), st.sampled_from([GHZ, HALF, GHZ * 7 // 10, GHZ // 3])), max_size=6
)


def worked(duration: int, changes: Sequence[Change], start: int) -> Fraction:
    """When so much work is over, in fractions of a picosecond."""
    at, left, hz = Fraction(start), Fraction(duration), GHZ
    for when, then in sorted(changes, key=lambda c: c[0]):
        if when > at:
            done = (when - at) * hz / GHZ
            if done >= left:
                break
            at, left = Fraction(when), left - done
        hz = then
    return at + left * GHZ / hz


@settings(max_examples=200, deadline=None)
@given(duration=st.integers(1, 300_000), changes=CHANGES, start=st.integers(0, 100_000))
def test_work_is_over_when_its_cycles_are(duration: int, changes: list[Change], start: int) -> None:
    end, lost = Desk(*changes).alone(duration, start=start)
    assert abs(end - worked(duration, changes, start)) <= len(changes) + 1  # rounded at each
    assert lost == end - start - duration


@settings(max_examples=200, deadline=None)
@given(duration=st.integers(1, 300_000), size=st.integers(1, 3000), changes=CHANGES)
def test_what_is_lost_is_the_difference_to_the_full_clock(duration: int, size: int, changes: list[Change]) -> None:
    nominal, none = Desk().alone(duration, size)
    assert (nominal, none) == (max(duration, 100 * size), 0)
    end, lost = Desk(*changes).alone(duration, size)
    assert lost == end - nominal
    assert lost >= 0


# A fixed clock


def busy_day(desk: Desk) -> list[tuple[int, str, int, int]]:
    for k, (name, duration, size) in enumerate([("a", 70, 0), ("b", 5, 900), ("c", 30, 0), ("d", 0, 50), ("e", 9, 9)]):
        desk.work(name, duration * NS, size, start=k * 3 * NS)
    desk.env.run()
    return desk.log


def test_a_clock_that_cannot_change_costs_no_event_more_than_none() -> None:
    fixed, none = Desk(governed=False), Desk(governed=False, clock=False)
    assert busy_day(fixed) == busy_day(none)
    assert fixed.env.steps == none.env.steps
    assert fixed.host.aside(10) == fixed.now + 10


def test_a_clock_that_does_not_change_changes_nothing() -> None:
    assert busy_day(Desk()) == busy_day(Desk(governed=False))


# Who looks


def test_the_cluster_is_awake_while_any_core_works() -> None:
    """One busy core of many is a busy cluster, as for cpufreq; slow work is work as long as it takes."""
    desk = Desk((40 * NS, HALF))
    desk.work("a", 100 * NS)
    desk.work("b", 20 * NS)
    desk.env.run(until=100 * NS)
    assert desk.host.awake() == pytest.approx(100e-9)
    desk.env.run(until=500 * NS)
    assert desk.host.awake() == pytest.approx(160e-9)
    desk.work("c", 10 * NS)
    desk.env.run(until=600 * NS)
    assert desk.host.awake() == pytest.approx(180e-9)


def test_a_look_says_when_cores_were_taken_and_given_back_since_the_last_one() -> None:
    desk = Desk((40 * NS, HALF), metered=True)
    desk.work("a", 100 * NS)
    desk.work("b", 20 * NS)
    desk.env.run(until=100 * NS)
    assert desk.host.look() == ([0, 0], [20 * NS])
    desk.env.run(until=500 * NS)
    assert desk.host.look() == ([], [160 * NS])


def test_a_core_that_goes_from_work_to_work_in_line_was_not_given_back() -> None:
    desk = Desk(metered=True)
    for name in "abc":
        desk.work(name, 10 * NS)
    desk.env.run()
    assert desk.host.look() == ([0, 0], [10 * NS, 20 * NS])


def test_work_set_aside_at_a_fixed_clock_is_given_back_when_it_was_over() -> None:
    desk = Desk(governed=False, metered=True)
    assert desk.host.aside(10 * NS) == 10 * NS
    desk.env.run(until=500 * NS)
    assert desk.host.look() == ([0], [10 * NS])


def test_nothing_is_kept_where_nobody_looks() -> None:
    desk = Desk(governed=False)
    busy_day(desk)
    assert desk.host.look() == ([], [])
