"""Fast and slow CPU cores: who gets which, how long work then takes, and work that is cut over several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from worlds import GHZ, NS, RATE

from bpusim.cores import Affinity, HostCluster, HostTraffic, Laid
from bpusim.cores.pools import CorePool, cut
from bpusim.dram import FlowChannel, Ideal, Rules
from bpusim.hardware import SlowSpec
from bpusim.hardware.presets import machine_preset
from bpusim.metrics import Recorder
from bpusim.thermal import ClockDomain


class Desk:
    """A cluster on a channel of 10 B/ns; a log of (when done, name, time in line, time lost to the clock)."""

    def __init__(
        self, fast: int, slow: int, speed: float = 0.5, affinity: Affinity = "any", join: int = 0, hz: int = 0
    ) -> None:
        self.env = simpy.Environment()
        observer = Recorder()
        channel = FlowChannel(self.env, Ideal(RATE), observer, Rules("equal"))
        spec = replace(
            machine_preset("bpu80").host, cores=fast, slow=SlowSpec(slow, speed) if slow else None,
            join_per_part=f"{join} ps",
        )  # fmt: skip
        clock = ClockDomain("host", GHZ) if hz else None
        self.host = HostCluster(
            self.env, spec, channel.port("cpu", 10**6, NS, RATE), observer, clock, affinity=affinity
        )
        self.host.metered()
        if clock is not None:
            self.host.governed()
            clock.set_hz(hz)
        self.log: list[tuple[int, str, int, int]] = []

    def work(self, name: str, duration: int, laid: Laid | None = None, size: int = 0, start: int = 0) -> None:
        self.env.process(self._work(name, duration, laid or Laid(), size, start))

    def _work(self, name: str, duration: int, laid: Laid, size: int, start: int) -> Iterator[Any]:
        yield self.env.timeout(start)
        traffic = HostTraffic("io:x", {("io", False): size}) if size else None
        queued, lost = yield self.host.work(duration, traffic, laid)
        self.log.append((self.env.now, name, queued, lost))

    def run(self) -> list[tuple[int, str, int, int]]:
        self.env.run()
        return self.log


def took(desk: Desk, duration: int, laid: Laid) -> int:
    """When work is done that begins at 0."""
    desk.work("w", duration, laid)
    return desk.run()[0][0]


def test_a_free_fast_core_is_taken_before_a_slow_one() -> None:
    desk = Desk(1, 2)
    for name in "abc":
        desk.work(name, 10)
    assert desk.run() == [(10, "a", 0, 0), (20, "b", 0, 0), (20, "c", 0, 0)]


def test_who_waits_takes_the_first_core_that_it_may_use() -> None:
    """b may use any: the fast one is free first. c must have the slow one, d the fast one."""
    desk = Desk(1, 1)
    desk.work("long", 30, Laid(1, "slow"))
    desk.work("a", 10)
    desk.work("c", 5, Laid(1, "slow"), start=1)
    desk.work("b", 5, start=2)
    desk.work("d", 5, Laid(1, "fast"), start=3)
    assert desk.run() == [(10, "a", 0, 0), (15, "b", 8, 0), (20, "d", 12, 0), (60, "long", 0, 0), (70, "c", 59, 0)]


@pytest.mark.parametrize(("affinity", "end"), [("any", 10), ("fast", 10), ("slow", 20)])
def test_the_runtime_has_an_affinity_that_work_may_override(affinity: Affinity, end: int) -> None:
    assert took(Desk(1, 1, affinity=affinity), 10, Laid()) == end
    assert took(Desk(1, 1, affinity=affinity), 10, Laid(1, "slow")) == 20


@given(st.integers(1, 10**12), st.sampled_from([0.45, 0.3, 0.01, 0.999, 1 / 3]))
def test_a_slow_core_takes_the_duration_over_its_speed_rounded_up(duration: int, speed: float) -> None:
    exact = Fraction(duration) / Fraction(str(speed))
    span = CorePool(1, Fraction(str(speed))).span(duration)
    assert 0 <= span - exact < 1
    assert CorePool(1).span(duration) == duration


def test_parts_are_equal_and_sum_to_the_whole() -> None:
    assert cut(100, 6) == [16, 17, 17, 16, 17, 17]
    assert HostTraffic("x", {("io", False): 7, ("io", True): 2}).cut(2)[1].moved == {("io", False): 4, ("io", True): 1}


PARTS = 6
D = 60


@pytest.mark.parametrize(
    ("affinity", "speed", "end"),
    [
        ("fast", 0.5, 30),  # 6 parts of 10 on 2 cores: three rounds
        ("slow", 0.5, 40),  # on 4: two rounds of 20
        ("any", 0.5, 20),  # one each: the slowest takes 20
        ("slow", 0.25, 80),
        ("any", 0.25, 40),  # more cores, and slower than the two fast ones alone: 40 for 30
    ],
)
def test_six_parts_wait_for_the_slowest(affinity: Affinity, speed: float, end: int) -> None:
    """BH-49: 6 equal parts on 2 fast and 4 slow cores, by hand."""
    assert took(Desk(2, 4, speed), D, Laid(PARTS, affinity)) == end


def test_all_cores_may_be_slower_than_the_slow_ones_and_these_than_the_fast_ones() -> None:
    """BH-49: a part on each core, each paying 6 for starting and joining every part: 120 of work at speed 0.4."""
    ends = {}
    for affinity in ("fast", "slow", "any"):
        desk = Desk(2, 4, 0.4, join=6)
        ends[affinity] = took(desk, 120, Laid(desk.host.cores(affinity), affinity))  # type: ignore[arg-type]
    assert ends == {"fast": 60 + 12, "slow": (30 + 24) * 5 // 2, "any": (20 + 36) * 5 // 2}
    assert ends["fast"] < ends["slow"] < ends["any"]


def test_four_parts_may_be_slower_than_one() -> None:
    """BH-49: 29 for one, and with joins of 8 a quarter and four joins."""
    assert took(Desk(4, 0, join=8), 28, Laid(1)) == 28
    assert took(Desk(4, 0, join=8), 28, Laid(4)) == 7 + 32


def test_a_part_that_waits_in_line_makes_all_of_it_wait() -> None:
    desk = Desk(2, 0)
    desk.work("other", 50)
    desk.work("w", 20, Laid(2), start=1)
    # One part runs from 1 to 11 on the free core, and then the second one there: it has waited for 10.
    assert desk.run() == [(21, "w", 10, 0), (50, "other", 0, 0)]


def test_parts_move_their_bytes_at_the_same_time() -> None:
    desk = Desk(2, 0)
    desk.work("w", 2 * NS, Laid(2), size=1000)
    assert desk.run() == [(100 * NS, "w", 0, 0)]


def test_parts_of_nothing_are_over_at_once() -> None:
    desk = Desk(2, 1)
    desk.work("w", 2, Laid(8), size=3)
    (entry,) = desk.run()
    assert entry[1] == "w"
    assert desk.host.fast.free == 2
    assert desk.host.slow.free == 1


def test_a_slow_clock_stretches_slow_cores_too() -> None:
    desk = Desk(1, 1, hz=GHZ // 2)
    for name in "ab":
        desk.work(name, 10 * NS)
    # A fast core: 20 instead of 10. A slow one: 40 instead of 20, and only the clock's part is its loss.
    assert desk.run() == [(20 * NS, "a", 0, 10 * NS), (40 * NS, "b", 0, 20 * NS)]
    assert desk.host.awake() == pytest.approx(40e-9)


def test_work_set_aside_may_go_to_a_slow_core() -> None:
    desk = Desk(1, 1)
    desk.work("a", 100)
    desk.env.run(until=1)
    assert desk.host.aside(10) == 1 + 20
    desk.work("b", 5)
    assert desk.run()[0] == (1 + 20 + 10, "b", 20, 0)


def test_a_meter_sees_slow_cores_apart() -> None:
    desk = Desk(1, 1)
    for name in "ab":
        desk.work(name, 10)
    desk.run()
    assert desk.host.look() == ([0], [10])
    assert desk.host.look(slow=True) == ([0], [20])
    assert desk.host.look() == ([], [])


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 60), st.integers(1, 5), st.sampled_from(["any", "fast", "slow"])),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_no_core_is_idle_while_somebody_waits_who_may_use_it(works: list[Any], fast: int, slow: int) -> None:
    """And all work is done, as long as it takes, with all cores given back."""
    desk = Desk(fast, slow)
    for k, (start, duration, parts, affinity) in enumerate(works):
        desk.work(f"{k}", duration, Laid(parts, affinity), start=start)
    log = desk.run()
    assert len(log) == len(works)
    host = desk.host
    assert (host.fast.free, host.slow.free) == (fast, slow)
    spent = sum(map(int.__sub__, sorted(host.fast.given), sorted(host.fast.taken)))
    spent_slow = sum(map(int.__sub__, sorted(host.slow.given), sorted(host.slow.taken)))
    whole = sum(d for _, d, _, _ in works)
    assert spent + spent_slow // 2 == whole
    for pool, n in ((host.fast, fast), (host.slow, slow)):
        steps = sorted([(t, 1) for t in pool.taken] + [(t, -1) for t in pool.given])
        level = 0
        for _, by in steps:
            level += by
            assert level <= n
