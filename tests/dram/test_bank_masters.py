"""Masters of the bank model beside each other: shares, priority, places; and those that do not wait: buffers, bursts.

Runs are of the LPDDR4-4266 reference channel without refresh unless they say otherwise: a line of 64 B takes 8 clocks
of the bus, 64 lines are a row, a row hit's data is back ``HIT`` clocks after its injection. Tests of single clocks stay
within a row: with the mapping ``ROWS``, a region of ``ROW`` bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpusim.dram.bank.kernel import WR
from bpusim.dram.bank.model import BankRun, Controller, Master
from bpusim.dram.timing import channel
from bpusim.errors import HardwareError

CH = channel("LPDDR4-4266x32")
GIB = 1 << 30
ROWS = "co ba bg ra ro"
ROW = 64 * CH.line
HIT = 1 + CH.timing.read_done
"""Seen a clock after its injection, then the read and its data."""
RCD = CH.timing.timing.RCD
PLAIN = Controller(refresh="off")
FAIR = Controller(arbitration="fair", refresh="off")
FIRST_COME = Controller(arbitration="first_come", refresh="off")
LONG = 400_000
"""Clocks: 50,000 lines."""
FOREVER = 1 << 40


def shares(masters: Sequence[Master], controller: Controller, until: int = LONG) -> list[int]:
    """Lines each master has got by ``until``; the n-th one walks through a part of memory of its own."""
    placed = [replace(m, base=n * GIB // 4, count=FOREVER, region=GIB // 8) for n, m in enumerate(masters)]
    run = BankRun(CH, placed, controller)
    run.run(until)
    return [run.served(n) for n in range(len(masters))]


def near(what: str, measured: float, expected: float, percent: float) -> None:
    off = 100 * (measured / expected - 1)
    assert abs(off) <= percent, f"{what}: expected {expected:.5g}, measured {measured:.5g}, deviation {off:+.2f} %"


# Fair queueing.


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (1, 3), (0.5, 0.25), (10, 1)])
def test_shares_are_as_the_weights(weights: tuple[float, float]) -> None:
    a, b = shares([Master(weight=w, places=16) for w in weights], FAIR)
    near(f"shares by weights {weights}", a / b, weights[0] / weights[1], 2)


@pytest.mark.parametrize("windows", [(12, 64), (16, 64), (64, 64)])
def test_shares_do_not_depend_on_windows(windows: tuple[int, int]) -> None:
    """Twelve lines in flight, 104 to 150 clocks each beside another, are worth a half of the bus or more."""
    a, b = shares([Master(out=n, places=16) for n in windows], FAIR)
    near(f"shares by windows {windows}", a / b, 1, 2)


def test_what_one_does_not_ask_for_goes_to_the_others_by_weight() -> None:
    """A line every 80 clocks is a tenth of the bus; weights 1 and 2 divide the rest."""
    small, a, b = shares([Master(pace=80), Master(places=16), Master(weight=2, places=16)], FAIR)
    near("lines of the small", small, LONG / 80, 1)
    near("shares of the others", b / a, 2, 2)


def test_masters_of_a_group_share_one_weight() -> None:
    """Two masters of one group get together what the third gets, and the same each."""
    a, b, c = shares([Master(group=0, places=8), Master(group=0, places=8), Master(places=16)], FAIR)
    near("the group to the third", (a + b) / c, 1, 2)
    near("one of the group to the other", a / b, 1, 2)


def test_masters_without_a_group_have_a_weight_each() -> None:
    a, b, c = shares([Master(places=8), Master(places=8), Master(places=16)], FAIR)
    near("two to the third", (a + b) / c, 2, 2)


def test_a_master_that_was_away_does_not_catch_up_for_long() -> None:
    """The second comes after 200,000 clocks. Its credit is 1024 lines; then both get the same."""
    lists = [Master("list", count=0, out=64, places=16) for _ in range(2)]
    run = BankRun(CH, lists, FAIR)
    run.start(0, [(0, 10**6, False)], 0)
    run.run(200_000)
    run.start(1, [(1 << 22, 10**6, False)], 200_000)
    before = run.served(0)
    run.run(300_000)
    a, b = run.served(0) - before, run.served(1)
    assert 0 <= b - a <= 1024 + 32
    run.run(400_000)
    near("later shares", (run.served(1) - b) / (run.served(0) - before - a), 1, 2)


def test_first_come_shares_are_by_window() -> None:
    """Both always have all their lines under way: 48 and 16 of them, of which the controller holds what it can."""
    a, b = shares([Master(out=48, path=300), Master(out=16, path=300)], FIRST_COME)
    near("shares by windows", a / b, 3, 3)


# Levels and places.


def test_a_level_goes_before_all_others() -> None:
    """A master with a line every 16 clocks, half of the bus, gets all of them; the next level all that is left.

    All but what their row conflicts cost, some 4 % of the bus: the second waits for a bank now and then."""
    masters = [Master(level=2, places=16), Master(pace=16, level=0), Master(level=1)]
    last, first, second = shares(masters, FIRST_COME)
    near("first level", first, LONG / 16, 0.1)
    near("both levels", first + second, LONG / 8, 5)
    assert last < 0.01 * LONG / 8


@pytest.mark.parametrize("arbitration", ["polled", "first_come", "fair"])
@pytest.mark.parametrize("places", [16, 31, None])
def test_levels_hold_whatever_decides_within_one(arbitration: Any, places: int | None) -> None:
    """The first level alone takes the whole bus, and leaves nothing."""
    controller = Controller(arbitration=arbitration, refresh="off")
    low, high = shares([Master(level=1, places=places), Master(level=0)], controller)
    near("first level", high, LONG / 8, 0.5)
    assert low <= 32


def test_a_master_holds_no_more_reads_than_its_places() -> None:
    """Stopped at every seventh clock of a busy while."""
    masters = [Master("rand", places=3, count=2000, out=32), Master("rand", count=2000, out=32, seed=2)]
    run = BankRun(CH, masters, FIRST_COME)
    held = []
    while run.run(run.now + 7) < 0:
        held.append((int(run.state.masters[0]["queued"]), int(run.state.masters[1]["queued"])))
    assert max(n for n, _ in held) == 3
    assert max(n for _, n in held) > 3


def test_places_do_not_bound_what_is_written() -> None:
    """They are places for reads: a writer takes the whole bus with one."""
    (got,) = shares([Master(write=100, places=1)], FIRST_COME)
    near("lines written", got, LONG / 8, 3)


def test_places_leave_room_for_who_goes_first() -> None:
    """A greedy reader of 64 lines fills the controller; a light one then waits for a place, 8 clocks at most."""

    def latency(places: int | None) -> float:
        light = Master("rand", count=2000, out=1, gap=97, region=GIB)
        greedy = Master(base=GIB, count=FOREVER, level=1, background=True, region=GIB, places=places)
        run = BankRun(CH, [light, greedy], FIRST_COME)
        run.run()
        return run.result().masters[0].latency_mean

    assert 4 <= latency(None) - latency(31) <= 8


@pytest.mark.parametrize("wrong", [{"places": 0}, {"group": 2}, {"group": -1}])
def test_a_master_without_a_place_or_in_no_group_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(HardwareError, match="a master without a place in the controller, or of a group that is not"):
        BankRun(CH, [Master(), Master(**wrong)])


def test_an_open_loop_master_needs_a_pace() -> None:
    with pytest.raises(HardwareError, match="an open-loop master needs a pace"):
        BankRun(CH, [Master(buffer=4)])


# Open loop: lines come at their own pace.


def one_at_a_time(until: int, **keys: Any) -> tuple[int, int]:
    """(got, dropped) at ``until`` by an open-loop reader with a line in flight, 100 clocks from one to the next.

    But for the first, which waits for its row: 100 + tRCD.
    """
    run = BankRun(CH, [Master(out=1, path=100 - HIT, count=FOREVER, region=ROW, **keys)], PLAIN, ROWS)
    run.run(until)
    return run.served(0), run.dropped(0)


def test_drops_worked_by_hand() -> None:
    """A line every 30 clocks, room for two, one leaves at 0, 139 (tRCD 39 more), 239, 339, 439.

    0 leaves at once, 30 and 60 are kept, 90 and 120 dropped; at 139 one leaves: 150 is kept, 180 and 210 dropped; 239:
    240 is kept, 270, 300 and 330 dropped; 339: 360 is kept, 390 and 420 dropped; 439: 450 is kept, 480 dropped.
    """
    keys: dict[str, Any] = {"pace": 30, "buffer": 2}
    assert [one_at_a_time(t, **keys)[1] for t in (91, 121, 180, 239, 331, 340, 440, 481)] == [1, 2, 2, 4, 7, 7, 9, 10]
    assert one_at_a_time(440, **keys)[0] == 4


def test_bursts_worked_by_hand() -> None:
    """A line every 10 clocks in the first 35 of every 200, room for one; lines leave at 0, 139, 239, 339, ...

    0 leaves, 10 is kept until 139, 20 and 30 are dropped. 200 is kept until 239; 210, 220, 230 are dropped. 400 goes at
    once, 410 is kept until 500, 420 and 430 are dropped.
    """
    keys: dict[str, Any] = {"pace": 10, "buffer": 1, "on": 35, "period": 200}
    assert [one_at_a_time(t, **keys) for t in (200, 400, 600, 601)] == [(1, 2), (3, 5), (4, 7), (5, 7)]


def expected(until: int, pace: float, buffer: int, on: int, period: int) -> tuple[int, int]:
    """(got, dropped) by clock ``until``, worked out line by line: the same rules, written apart from the kernel.

    A line is there from the first whole clock that is not before its time; a time between two bursts is moved to the
    start of the next. A line that comes as another leaves is a moment too early for its place.
    """
    lines, time = [], 0.0
    while time < until:
        lines.append(ceil(time))
        time += pace
        if period and time % period >= on:
            time = (time // period + 1) * period
    waiting: list[int] = []
    gone: list[int] = []
    free, dropped = 0, 0
    for at in lines:
        if at >= until:
            break
        while waiting and max(waiting[0], free) < at:
            gone.append(max(waiting.pop(0), free))
            free = gone[-1] + 100 + (RCD if len(gone) == 1 else 0)
        if len(waiting) < buffer:
            waiting.append(at)
        else:
            dropped += 1
    for at in waiting:
        if max(at, free) < until:
            gone.append(max(at, free))
            free = gone[-1] + 100 + (RCD if len(gone) == 1 else 0)
    back = [t + 100 + (RCD if n == 0 else 0) for n, t in enumerate(gone)]
    return sum(t < until for t in back), dropped


@settings(deadline=None, max_examples=150)
@given(
    pace=st.integers(1024, 400 * 1024).map(lambda n: n / 1024),
    buffer=st.integers(1, 12),
    on=st.sampled_from([0, 1, 35, 399, 900]),
    off=st.integers(0, 1500),
    until=st.integers(1, 20_000),
)
def test_drops_worked_by_line(pace: float, buffer: int, on: int, off: int, until: int) -> None:
    period = on + off if on else 0
    got = one_at_a_time(until, pace=pace, buffer=buffer, on=on, period=period)
    assert got == expected(until, pace, buffer, on, period)


def test_a_buffer_that_is_large_enough_drops_nothing() -> None:
    """40 lines of a burst come in 40 clocks; the channel takes one every 8 clocks, so 35 wait at the end of it."""
    camera = Master(write=100, count=FOREVER, pace=1, on=40, period=4000, region=ROW)
    drops = []
    for room in (30, 40):
        run = BankRun(CH, [replace(camera, buffer=room)], Controller(refresh="off", writes=1))
        run.run(3900)
        drops.append(run.dropped(0))
        assert run.served(0) + run.dropped(0) == 40
    assert drops[0] > 0
    assert drops[1] == 0


# Paces.


@settings(deadline=None, max_examples=40)
@given(pace=st.integers(9 * 1024, 60 * 1024).map(lambda n: n / 1024), lines=st.integers(50, 4000))
def test_lines_take_as_long_as_their_pace_says(pace: float, lines: int) -> None:
    """Line n leaves at n x pace, rounded up, however many there are; the last is a hit.

    Those that waited for the row, tRCD 39, are out of the way after 39 lines, as the pace is a clock above the bus's.
    """
    run = BankRun(CH, [Master(count=lines, pace=pace, region=ROW)], PLAIN, ROWS)
    run.run()
    assert abs(run.result().clocks - HIT - (lines - 1) * pace) <= 1


@pytest.mark.parametrize("pace", [9.375, 10.1, 12 + 1 / 3])
def test_a_wide_window_keeps_its_pace_through_refreshes(pace: float) -> None:
    """A refresh closes the channel for some 700 clocks; lines that were held up are not lost, but catch up."""
    run = BankRun(CH, [Master(count=20_000, pace=pace, out=128)], Controller())
    run.run()
    near("clocks", run.result().clocks, 20_000 * pace, 0.5)


def test_a_pace_that_the_window_held_up_starts_anew() -> None:
    """One line in flight, back after 100 clocks: a pace of 30 is none, and does not save up for a burst."""
    run = BankRun(CH, [Master(count=101, out=1, pace=30, path=100 - HIT, region=ROW)], PLAIN, ROWS)
    run.run()
    assert run.result().clocks == RCD + 101 * 100


def test_a_pace_may_change_on_the_way() -> None:
    """1000 clocks at a line in 10, then at one in 50."""
    run = BankRun(CH, [Master(count=FOREVER, pace=10, region=ROW)], PLAIN, ROWS)
    run.run(1000)
    run.pace(0, 50)
    run.run(11_000)
    assert run.served(0) == pytest.approx(100 + 200, abs=6)


# Stops.


SOME = st.builds(
    Master,
    kind=st.sampled_from(["seq", "rand"]),
    base=st.sampled_from([0, 0, GIB // 4]),
    region=st.sampled_from([ROW, 1 << 20]),
    write=st.sampled_from([0, 0, 30, 100]),
    count=st.sampled_from([FOREVER, FOREVER, 60]),
    out=st.integers(1, 40),
    pace=st.sampled_from([3.3, 9, 21.7, 160]),
    path=st.sampled_from([0, 130]),
    level=st.sampled_from([0, 0, 1]),
    weight=st.sampled_from([0.5, 1, 3]),
    group=st.sampled_from([None, 0]),
    places=st.sampled_from([None, 2, 16]),
    buffer=st.sampled_from([0, 1, 20]),
    on=st.sampled_from([0, 300]),
    period=st.just(900),
    seed=st.integers(1, 9),
)


def go_on(run: BankRun, until: int, at_end: bool = False) -> None:
    """To clock ``until``, whoever is done meanwhile."""
    while run.now < until:
        run.run(until, stop_at_end=at_end)


def outcome(run: BankRun, masters: int) -> Any:
    """All that a run has to say."""
    log = [tuple(map(int, n)) for n in run.log]
    return log, run.result(), [(run.dropped(n), run.waited(n)) for n in range(masters)], run.now


@pytest.mark.parametrize("arbitration", ["polled", "first_come", "fair"])
@settings(deadline=None, max_examples=60)
@given(
    masters=st.lists(SOME, min_size=1, max_size=4),
    refresh=st.sampled_from(["all_bank", "per_bank", "off"]),
    stops=st.lists(st.integers(0, 30_000), max_size=40),
    at_end=st.booleans(),
)
def test_stops_change_nothing(
    masters: list[Master], arbitration: Any, refresh: Any, stops: list[int], at_end: bool
) -> None:
    """However often a run is stopped, and whether or not the ends of its masters stop it too."""
    controller = Controller(arbitration=arbitration, refresh=refresh)
    masters = [replace(m, period=900 if m.on else 0) for m in masters]
    whole, parts = (BankRun(CH, masters, controller, log=20_000) for _ in range(2))
    go_on(whole, 30_000)
    for stop in (*sorted(stops), 30_000):
        go_on(parts, stop, at_end)
    assert outcome(parts, len(masters)) == outcome(whole, len(masters))


def test_stops_do_not_decide_between_equal_tags() -> None:
    """Weights of 1 and 1/2 make tags that coincide all the time; one stop at clock 153 is enough to see it."""
    masters = [
        Master(count=FOREVER, region=1 << 12, out=n, pace=3.3, weight=w) for n, w in ((1, 0.5), (3, 0.5), (7, 1))
    ]
    whole, parts = (BankRun(CH, masters, Controller(arbitration="fair"), log=1000) for _ in range(2))
    go_on(whole, 1000)
    go_on(parts, 153)
    go_on(parts, 1000)
    assert outcome(parts, 3) == outcome(whole, 3)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(1, 1000), stops=st.lists(st.integers(1, 9_999), min_size=1, max_size=60))
def test_what_an_open_loop_master_generates_is_moved_dropped_or_held(seed: int, stops: list[int]) -> None:
    """At every stop: a line every 5 clocks from clock 0 on, 30 in the buffer and 16 on their way at most."""
    camera = Master("rand", count=FOREVER, out=16, pace=5, buffer=30, seed=seed, region=GIB)
    run = BankRun(CH, [camera, Master(count=FOREVER, out=32)], FAIR)
    for stop in sorted(stops):
        run.run(stop)
        assert 0 <= ceil(stop / 5) - run.served(0) - run.dropped(0) <= 30 + 16


def test_dropped_lines_are_never_written() -> None:
    """What got through is in the log, once each."""
    camera = Master(write=100, count=FOREVER, pace=3, buffer=4)
    run = BankRun(CH, [camera], PLAIN, log=20_000)
    run.run(20_000)
    writes = sum(int(n[1]) == WR for n in run.log)
    assert run.dropped(0) > 0
    assert 0 <= run.served(0) - writes <= 32
