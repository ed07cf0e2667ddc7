"""A BPU core whose clock, or whose channel's clock, changes: when ops end, and what the slow clock is charged.

A cycle is 1 ns, a byte 100 ps; all of it holds for tiles one by one, merged, and at a pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import programs, worlds
from worlds import GHZ, NS, RATE, US, Counting, Seen, Work, World, play, spec, trace_of

from bpusim.alarm import alarm
from bpusim.cores import BpuCore, CallResult, Merge
from bpusim.dram import FlowChannel, FlowPort, Ideal, Rules, flow_table
from bpusim.metrics import Recorder
from bpusim.thermal import ClockDomain
from bpusim.trace import CallProgram, Op, Repeat

MERGES: list[Merge] = ["off", "exact", "on"]
HALF = GHZ // 2
SLOWER = GHZ * 7 // 10


def op(tiles: int, size: int, cycles: int, write: int = 0) -> Op:
    """``tiles`` of ``size`` bytes, each computed in so many cycles."""
    return Op(
        f"o{tiles}", "A", "mac", cycles=(tiles * cycles,), tiles=(tiles,), read={"kv": (tiles * size,)},
        write={"io:w": (write,)} if write else {},
    )  # fmt: skip


def work_of(*ops: Op | Repeat, overhead: int = 0, start: int = 0) -> Work:
    return Work(trace_of(*ops), (0,), start=start, path=0, op_overhead=overhead, room=10**6)


COMPUTES = work_of(op(10, 100, 200), start=NS)
"""Alone 10 + 2000 ns: ten tiles there in 10 ns each, computed in 200."""
READS = work_of(op(20, 1000, 10), start=NS)
"""Alone 2000 + 10 ns: twenty tiles there in 100 ns each, computed in 10."""


def ended(work: Work, merge: Merge, *changes: tuple[int, int], speeds: Sequence[tuple[int, float]] = ()) -> list[int]:
    """When the ops of the first call end; changes of the core's clock as (when, Hz)."""
    seen = play(World((work,), clocks=tuple((t, 0, hz) for t, hz in changes), speeds=tuple(speeds)), merge)
    return seen.ops["bpu0", "0/frame"]


def charged(
    work: Work, merge: Merge, *changes: tuple[int, int], speeds: Sequence[tuple[int, float]] = ()
) -> dict[str, int]:
    """Causes of the first call in ns."""
    seen = play(World((work,), clocks=tuple((t, 0, hz) for t, hz in changes), speeds=tuple(speeds)), merge)
    return causes(seen.causes["bpu0"][0])


def causes(result: CallResult) -> dict[str, int]:
    assert sum(result[2:]) == result.end - result.start
    assert min(result[2:]) >= 0
    return {name: ps // NS for name, ps in zip(CallResult._fields[2:9], result.causes, strict=True) if ps >= NS}


# In the middle of an op


@pytest.mark.parametrize("merge", MERGES)
def test_a_tile_being_computed_takes_twice_as_long_from_when_the_clock_halves(merge: Merge) -> None:
    # There at 100, computed by 400: at 200 ns 200 of 300 cycles are left.
    work = work_of(op(1, 1000, 300))
    assert ended(work, merge) == [400 * NS]
    assert ended(work, merge, (200 * NS, HALF)) == [600 * NS]


@pytest.mark.parametrize("merge", MERGES)
def test_a_tile_being_computed_ends_at_the_picosecond(merge: Merge) -> None:
    # 200 ns at 0.7 GHz: 285 714.3 ps.
    assert ended(work_of(op(1, 1000, 300)), merge, (200 * NS, SLOWER)) == [485_714]


@pytest.mark.parametrize("merge", MERGES)
def test_a_tile_being_computed_goes_by_every_change(merge: Merge) -> None:
    # By 200 ns 100 cycles, by 260 30 more, by 300 ten more at a quarter: 160 are left.
    changes = ((200 * NS, HALF), (260 * NS, GHZ // 4), (300 * NS, GHZ))
    assert ended(work_of(op(1, 1000, 300)), merge, *changes) == [460 * NS]


@pytest.mark.parametrize("merge", MERGES)
def test_a_tile_that_is_not_there_yet_is_computed_at_the_new_clock(merge: Merge) -> None:
    assert ended(work_of(op(1, 1000, 300)), merge, (50 * NS, HALF)) == [700 * NS]


@pytest.mark.parametrize("merge", MERGES)
def test_tiles_behind_the_one_being_computed_are_computed_at_the_new_clock(merge: Merge) -> None:
    # Ten of 200 ns from 10 on, the fourth until 810: 110 ns are left of it at 700, 220 then, and six times 400.
    work = replace(COMPUTES, start=0)
    assert ended(work, merge, (700 * NS, HALF)) == [(920 + 2400) * NS]


@pytest.mark.parametrize("merge", MERGES)
def test_a_write_waits_for_a_slower_producer(merge: Merge) -> None:
    work = work_of(op(1, 1000, 300, write=200), op(1, 1000, 0), op(1, 1000, 0))
    # The second is there at 200. Written from 400 to 420, the third read until 520; with the clock halved at 200 ns all
    # of it 200 later.
    assert ended(work, merge) == [400 * NS, 400 * NS, 520 * NS]
    assert ended(work, merge, (200 * NS, HALF)) == [600 * NS, 600 * NS, 720 * NS]


@pytest.mark.parametrize("merge", MERGES)
def test_half_the_clock_doubles_the_compute_term(merge: Merge) -> None:
    assert ended(COMPUTES, merge) == [NS + 10 * NS + 2000 * NS]
    assert ended(COMPUTES, merge, (0, HALF)) == [NS + 10 * NS + 4000 * NS]


@pytest.mark.parametrize("merge", MERGES)
def test_op_overhead_does_not_know_the_clock(merge: Merge) -> None:
    work = replace(COMPUTES, op_overhead=30 * NS)
    assert ended(work, merge, (0, HALF)) == [NS + 10 * NS + 30 * NS + 4000 * NS]


@pytest.mark.parametrize("merge", MERGES)
def test_a_call_bound_by_bandwidth_ends_with_its_bytes_and_a_slower_last_tile(merge: Merge) -> None:
    assert ended(READS, merge) == [NS + 2000 * NS + 10 * NS]
    assert ended(READS, merge, (0, HALF)) == [NS + 2000 * NS + 20 * NS]


@pytest.mark.parametrize("merge", MERGES)
def test_half_the_channels_clock_doubles_the_time_of_the_bytes(merge: Merge) -> None:
    assert ended(READS, merge, speeds=((0, 0.5),)) == [NS + 4000 * NS + 10 * NS]
    # 1000 ns of bytes are left.
    assert ended(READS, merge, speeds=((1001 * NS, 0.5),)) == [NS + 3000 * NS + 10 * NS]
    assert ended(READS, merge, speeds=((1001 * NS, 0.5), (2001 * NS, 1.0))) == [NS + 2500 * NS + 10 * NS]


@pytest.mark.parametrize("merge", MERGES)
def test_both_clocks_halved_take_a_call_twice_as_long(merge: Merge) -> None:
    work = replace(COMPUTES, start=0)
    assert ended(work, merge, (0, HALF), speeds=((0, 0.5),)) == [2 * t for t in ended(work, merge)]


# Whatever is run: a clock is worth its ratio, and no more (a governor that saves more than it costs is a defect)

ONE = worlds(programs(), (1, 1), disturbed=False)
WHEN = st.integers(0, 600 * US)


def after(when: int, end: int, ratio: float) -> float:
    """``end`` if all from ``when`` on took ``ratio`` times as long."""
    return end if end <= when else when + (end - when) * ratio


@settings(max_examples=60, deadline=None, derandomize=True)
@given(world=ONE, when=WHEN, hz=st.sampled_from([HALF, SLOWER, GHZ // 5]), merge=st.sampled_from(MERGES))
def test_a_slower_clock_delays_an_op_by_no_more_than_its_ratio(world: World, when: int, hz: int, merge: Merge) -> None:
    full, slow = play(world, merge), play(replace(world, clocks=((when, 0, hz),)), merge)
    for before, then in op_ends(full, slow):
        assert before - NS <= then <= after(when, before, GHZ / hz) + NS


@settings(max_examples=60, deadline=None, derandomize=True)
@given(world=ONE, when=WHEN, hz=st.sampled_from([HALF, SLOWER, GHZ // 5]), merge=st.sampled_from(MERGES))
def test_a_faster_clock_brings_an_op_forward_by_no_more_than_its_ratio(
    world: World, when: int, hz: int, merge: Merge
) -> None:
    slow = play(replace(world, clocks=((0, 0, hz),)), merge)
    raised = play(replace(world, clocks=((0, 0, hz), (when, 0, GHZ))), merge)
    for before, then in op_ends(slow, raised):
        assert after(when, before, hz / GHZ) - NS <= then <= before + NS


@settings(max_examples=60, deadline=None, derandomize=True)
@given(world=ONE, when=WHEN, part=st.sampled_from([0.5, 0.7, 0.2]), merge=st.sampled_from(MERGES))
def test_the_channels_clock_is_worth_its_ratio_too(world: World, when: int, part: float, merge: Merge) -> None:
    full = play(world, merge)
    slow = play(replace(world, speeds=((when, part),)), merge)
    for before, then in op_ends(full, slow):
        assert before - NS <= then <= after(when, before, 1 / part) + NS
    slow = play(replace(world, speeds=((0, part),)), merge)
    raised = play(replace(world, speeds=((0, part), (when, 1.0))), merge)
    for before, then in op_ends(slow, raised):
        assert after(when, before, part) - NS <= then <= before + NS


def op_ends(one: Seen, two: Seen) -> list[tuple[int, int]]:
    assert one.ops.keys() == two.ops.keys()
    return [pair for key, ends in one.ops.items() for pair in zip(ends, two.ops[key], strict=True)]


# What is charged


@pytest.mark.parametrize("merge", MERGES)
def test_a_compute_bound_call_at_half_the_clock_is_throttled_by_its_compute(merge: Merge) -> None:
    assert charged(COMPUTES, merge) == {"compute": 2000, "dram": 10}
    assert charged(COMPUTES, merge, (0, HALF)) == {"compute": 2000, "dram": 10, "throttling": 2000}


@pytest.mark.parametrize("merge", MERGES)
def test_a_call_bound_by_bandwidth_is_hardly_throttled_by_the_cores_clock(merge: Merge) -> None:
    assert charged(READS, merge) == {"compute": 200, "dram": 1810}
    assert charged(READS, merge, (0, HALF)) == {"compute": 200, "dram": 1810, "throttling": 10}


@pytest.mark.parametrize("merge", MERGES)
def test_a_call_bound_by_bandwidth_is_throttled_by_the_channels_clock(merge: Merge) -> None:
    assert charged(READS, merge, speeds=((0, 0.5),)) == {"compute": 200, "dram": 1810, "throttling": 2000}
    assert charged(COMPUTES, merge, speeds=((0, 0.5),)) == {"compute": 2000, "dram": 10, "throttling": 10}


@pytest.mark.parametrize("merge", MERGES)
def test_both_clocks_are_charged_together(merge: Merge) -> None:
    found = charged(COMPUTES, merge, (0, HALF), speeds=((0, 0.5),))
    assert found == {"compute": 2000, "dram": 10, "throttling": 2010}


@pytest.mark.parametrize("merge", MERGES)
def test_a_clock_that_is_slow_for_a_part_of_a_call_is_charged_for_that(merge: Merge) -> None:
    # At half the clock from 201 to 601 ns: 200 ns of compute are late.
    assert charged(COMPUTES, merge, (201 * NS, HALF), (601 * NS, GHZ))["throttling"] == 200
    assert charged(READS, merge, speeds=((201 * NS, 0.5), (601 * NS, 1.0)))["throttling"] == 200


@pytest.mark.parametrize("merge", MERGES)
def test_waiting_for_room_at_the_full_clock_is_scratchpad_and_the_rest_throttling(merge: Merge) -> None:
    # Room for one tile: 10 + 25 twice, with an unlimited scratchpad 10 + 50. At half the clock 10 + 50 twice.
    work = replace(work_of(op(2, 100, 25), start=NS), room=100)
    assert charged(work, merge) == {"compute": 50, "dram": 10, "scratchpad": 10}
    assert charged(work, merge, (0, HALF)) == {"compute": 50, "dram": 10, "scratchpad": 10, "throttling": 50}


@pytest.mark.parametrize("merge", MERGES)
def test_overhead_is_dispatch_at_any_clock(merge: Merge) -> None:
    work = replace(COMPUTES, op_overhead=30 * NS)
    found = charged(work, merge, (0, HALF))
    assert found == {"compute": 2000, "dispatch": 30, "dram": 10, "throttling": 2000}


@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("speeds", [(), ((0, 0.5), (500 * NS, 1.0))])
@pytest.mark.parametrize("changes", [(), ((0, 0, HALF), (700 * NS, 0, GHZ))])
def test_nothing_is_throttled_once_the_clocks_are_back(
    merge: Merge, changes: tuple[tuple[int, int, int], ...], speeds: tuple[tuple[int, float], ...]
) -> None:
    world = World((replace(COMPUTES, kvs=(0, 0, 0)),), clocks=changes, speeds=speeds)
    first, *others = play(world, merge).causes["bpu0"]
    assert (first.throttling > 0) == bool(changes or speeds)
    assert [causes(r) for r in others] == [{"compute": 2000, "dram": 10}] * 2


@pytest.mark.parametrize("merge", MERGES)
def test_clocks_that_were_slow_before_a_call_are_not_charged_to_it(merge: Merge) -> None:
    work = replace(COMPUTES, start=9 * NS)
    slow = ((NS, HALF), (5 * NS, GHZ))
    assert charged(work, merge, *slow, speeds=((2 * NS, 0.5), (6 * NS, 1.0))) == {"compute": 2000, "dram": 10}


@pytest.mark.parametrize("merge", MERGES)
def test_a_port_that_is_slower_than_it_was_made_is_throttled(merge: Merge) -> None:
    world = World((READS,), limits=((0, 0, RATE // 2),))
    assert causes(play(world, merge).causes["bpu0"][0]) == {"compute": 200, "dram": 1810, "throttling": 2000}


@pytest.mark.parametrize("merge", MERGES)
def test_half_a_slow_channel_is_contention_by_as_much_as_half_a_fast_one(merge: Merge) -> None:
    # 20 kB alone take 2000 ns, 4000 beside another; at half the clock 8000, of which it would have saved 4000.
    both = World((READS, READS), policy="equal")
    (full,), (slow,) = (play(w, merge).causes["bpu0"] for w in (both, replace(both, speeds=((0, 0.5),))))
    assert causes(full) == {"compute": 200, "dram": 1810, "contention": 2000}
    assert causes(slow) == {"compute": 200, "dram": 1810, "contention": 2000, "throttling": 4000}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(world=worlds(programs()), merge=st.sampled_from(MERGES))
def test_causes_sum_to_the_call_whatever_the_clocks_do(world: World, merge: Merge) -> None:
    for results in play(world, merge).causes.values():
        for result in results:
            assert sum(result[2:]) == result.end - result.start
            assert min(result[2:]) >= 0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    world=ONE,
    hz=st.sampled_from([GHZ, HALF, SLOWER]),
    part=st.sampled_from([1.0, 0.5, 0.7]),
    merge=st.sampled_from(MERGES),
)
def test_throttling_is_the_difference_to_full_clocks(world: World, hz: int, part: float, merge: Merge) -> None:
    (work,) = world.works
    world = World((replace(work, start=US),))
    full = play(world, merge).causes["bpu0"]
    slow = play(replace(world, clocks=((0, 0, hz),), speeds=((0, part),)), merge).causes["bpu0"]
    for kv, at_full, at_slow in zip(work.kvs, full, slow, strict=True):
        rounding = 2 + len(work.call(kv).items.bytes)
        for cause in ("compute", "dispatch", "dram", "scratchpad"):
            assert getattr(at_slow, cause) == pytest.approx(getattr(at_full, cause), abs=rounding)
        lost = (at_slow.end - at_slow.start) - (at_full.end - at_full.start)
        assert at_slow.throttling == pytest.approx(lost, abs=rounding)
        assert at_slow.contention <= rounding


# Sleep


class Sleeper:
    """A core that falls asleep after 100 ns and takes 30 to wake up, on a channel with a path of 5 ns."""

    def __init__(self, sleep: tuple[int, int] | None = (100 * NS, 30 * NS)) -> None:
        self.env = Counting()
        channel = FlowChannel(self.env, Ideal(RATE), Recorder(), Rules("equal"))
        self.port: FlowPort = channel.port("bpu0", 10**6, 5 * NS, RATE)
        self.clock = ClockDomain("bpu0", GHZ)
        self.core = BpuCore(
            self.env, "bpu0", spec(10**6, 0, 0), self.clock, self.port, Recorder(), merge="exact", sleep=sleep
        )

    def call(self, at: int, call: CallProgram) -> CallResult:
        """Its result when it begins at ``at``."""
        if at > self.env.now:
            self.env.run(until=at)
        results: list[CallResult] = []
        self.core.run(call, "s/frame", results.append)
        self.env.run()
        (result,) = results
        assert result.start == at
        return result


def call_of(*ops: Op) -> CallProgram:
    return work_of(*ops).call(0)


CALL = call_of(op(1, 100, 4))  # 5 + 10 + 4 ns
QUIET = call_of(Op("n", "A", "mac", cycles=(4,)))
AWAKE = {"compute": 4, "dram": 15}


@pytest.mark.parametrize(("at", "wakeup"), [(0, 0), (99_999, 0), (100_000, 0), (100_001, 30 * NS), (10**9, 30 * NS)])
def test_the_first_call_finds_a_core_that_fell_asleep_when_it_was_idle_for_too_long(at: int, wakeup: int) -> None:
    result = Sleeper().call(at, CALL)
    assert result.end == at + wakeup + 19 * NS
    assert causes(result) == AWAKE | ({"wakeup": wakeup // NS} if wakeup else {})


@pytest.mark.parametrize(("gap", "wakeup"), [(0, 0), (1, 0), (100_000, 0), (100_001, 30 * NS), (10**9, 30 * NS)])
def test_the_gap_between_two_calls_is_what_a_core_is_idle(gap: int, wakeup: int) -> None:
    sleeper = Sleeper()
    first = sleeper.call(0, CALL)
    for _ in range(2):
        second = sleeper.call(first.end + gap, CALL)
        assert second.end == second.start + wakeup + 19 * NS
        assert causes(second) == AWAKE | ({"wakeup": wakeup // NS} if wakeup else {})
        first = second


def test_a_call_longer_than_it_takes_to_fall_asleep_does_not_count_as_idle() -> None:
    sleeper = Sleeper()
    long = sleeper.call(0, call_of(op(1, 100, 5000)))
    assert sleeper.call(long.end + 50 * NS, CALL).wakeup == 0


def test_a_call_without_bytes_wakes_a_core_too() -> None:
    result = Sleeper().call(US, QUIET)
    assert causes(result) == {"compute": 4, "wakeup": 30}


def test_a_core_that_does_not_sleep_is_always_awake() -> None:
    assert causes(Sleeper(None).call(10**9, CALL)) == AWAKE


def test_a_clock_that_changes_meanwhile_does_not_wake_a_core_sooner() -> None:
    sleeper = Sleeper()
    alarm(sleeper.env, US + 10 * NS, lambda _: sleeper.clock.set_hz(HALF))
    alarm(sleeper.env, US + 20 * NS, lambda _: sleeper.clock.set_hz(GHZ))
    result = sleeper.call(US, CALL)
    assert result.end == US + (30 + 19) * NS
    assert causes(result) == AWAKE | {"wakeup": 30}


def test_a_slow_clock_is_charged_beside_the_wakeup() -> None:
    sleeper = Sleeper()
    sleeper.env.run(until=US)
    sleeper.clock.set_hz(HALF)
    assert causes(sleeper.call(2 * US, CALL)) == AWAKE | {"wakeup": 30, "throttling": 4}


# What is not the core's own


def test_a_clock_that_is_back_just_before_the_end_is_charged_beside_others_too() -> None:
    # At half clock 4000 of 4006.5 ns, beside 50 bytes of the CPU that cost it 4 ns: each clock counts for its time.
    world = World((COMPUTES,), flows=((0, 50),), clocks=((0, 0, HALF), (4000 * NS, 0, GHZ)))
    (result,) = play(world, "exact").causes["bpu0"]
    assert causes(result)["throttling"] == pytest.approx(1992, abs=5)


def test_a_clock_that_goes_down_just_before_the_end_is_charged_little() -> None:
    mixed = work_of(op(20, 1000, 90), start=NS)
    late = World((mixed, READS), clocks=((4000 * NS, 0, HALF),), policy="equal")
    (result,) = play(late, "exact").causes["bpu0"]
    assert 0 < causes(result)["throttling"] < 90
    assert causes(result)["contention"] > 2000


def test_a_longer_latency_of_a_slow_channel_is_throttling() -> None:
    """A port that is slower than the channel even at half its clock: what is left is the way there and back."""
    reads = replace(work_of(op(20, 1000, 10), start=NS), window=8192, path=100 * NS, limit=10**9)
    world = World((reads,), behaviour=flow_table("LPDDR4X-3200x64"))
    (fast,), (slow,) = (play(replace(world, speeds=speeds), "exact").causes["bpu0"] for speeds in ((), ((0, 0.5),)))
    longer = slow.end - slow.start - (fast.end - fast.start)
    assert longer > 4 * NS
    assert slow.throttling == longer
    assert (slow.compute, slow.dram) == (fast.compute, fast.dram)


@pytest.mark.parametrize("changes", [((999, GHZ // 4),), ((0, GHZ // 4), (3990, GHZ))])
def test_the_array_is_never_busier_than_its_core(changes: tuple[tuple[int, int], ...]) -> None:
    """A call's cycles count at the mean clock it had."""
    work = work_of(Op("o", "A", "mac", cycles=(1000,), mac_cycles=(1000,), tiles=(1,)))
    world = World((work,), clocks=tuple((t * NS, 0, hz) for t, hz in changes))
    counters = play(world, "exact").cores["bpu0"]
    assert counters.mac_busy == pytest.approx(counters.occupied, abs=2)
