"""That moving many tiles as one flow changes no result: every op of every call, against the replay tile by tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import programs, worlds
from worlds import GHZ, KB, NS, RATE, US, Seen, Work, World, apart, play, trace_of

from bpusim.cores import Merge
from bpusim.cores.plan import Plan, Timing, plan_for
from bpusim.hardware import MasterSpec
from bpusim.trace import Op, Repeat, Trace
from bpusim.trace.basis import by_sequence

# Any programs, traffic and changes


@settings(max_examples=200, deadline=None, derandomize=True)
@given(worlds(programs()))
def test_merging_what_cannot_stall_changes_no_result(world: World) -> None:
    off, exact = play(world, "off"), play(world, "exact")
    assert apart(off, exact) <= NS
    assert exact.moved == off.moved
    assert exact.recorded == off.recorded


def by_sequences(trace: Trace) -> Trace:
    """The same costs for each of several sequences."""
    phase = trace.phases["frame"]
    basis = tuple(map(by_sequence, phase.basis))
    return Trace(trace.header, (), {"frame": replace(phase, basis=basis)})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(worlds(programs()), st.lists(st.integers(0, 1000), min_size=1, max_size=3))
def test_merging_changes_no_result_of_batches(world: World, others: list[int]) -> None:
    works = []
    for work in world.works:
        kvs = tuple((kv, *(kv + o for o in others)) for kv in work.kvs if isinstance(kv, int))
        batch = replace(work, trace=by_sequences(work.trace), kvs=kvs)
        tiles_of_it = work.room / max(work.largest_read, 1)
        works.append(replace(batch, room=max(1, int(batch.largest_read * tiles_of_it + 1))))
    world = replace(world, works=tuple(works))
    off, exact = play(world, "off"), play(world, "exact")
    assert apart(off, exact) <= NS
    assert (exact.moved, exact.recorded) == (off.moved, off.recorded)


# Stretches that stall, at the pace of the core

Even = st.tuples(
    st.integers(5, 60),  # kB of a tile
    st.sampled_from([0.6, 0.97, 1.0, 1.02, 1.05, 1.3, 2.5]),  # computed in so many times of its fetch
    st.lists(st.integers(2, 16), min_size=1, max_size=4),  # tiles of each op
)


def even(shape: tuple[int, float, list[int]], layers: int, write: int = 0) -> Trace:
    """Ops of equal tiles; one more writes so many tiles."""
    size, part, tiles = shape
    ops = [
        Op(
            f"o{k}", "A", "mac", cycles=(round(n * size * 100 * part),), tiles=(n,), read={"kv": (n * size * KB,)}
        ) for k, n in enumerate(tiles)
    ]  # fmt: skip
    if write:
        ops.append(Op("w", "A", "mac", read={"kv": (size * KB,)}, write={"io:w": (write * size * KB,)}))
    return trace_of(Repeat(layers, "l", tuple(ops)))


CHANGE = st.tuples(st.integers(0, 200 * US), st.sampled_from([0.4, 0.6, 0.8, 1.0]))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    worlds(st.builds(even, Even, st.integers(1, 3)), (1, 3), disturbed=False),
    st.lists(CHANGE, max_size=4),
    st.lists(CHANGE, max_size=4),
)
def test_merging_changes_no_result_while_clocks_of_core_and_channel_change(
    world: World, core: list[tuple[int, float]], channel: list[tuple[int, float]]
) -> None:
    # Tiles that are computed in about the time they are fetched in: whether they stall is a matter of both clocks.
    clocks = tuple((when, 0, round(part * GHZ)) for when, part in core)
    world = replace(world, clocks=clocks, speeds=tuple(channel))
    off, exact = play(world, "off"), play(world, "exact")
    assert apart(off, exact) <= NS
    assert (exact.moved, exact.recorded) == (off.moved, off.recorded)


def beyond(world: World, off: Seen, on: Seen) -> float:
    """The worst op, as a part of what it may be off by: two steps of the slowest core, and 1/20 of the time so far.

    A step is the largest tile at the lowest rate that its core ever got, and the longest compute at its lowest clock.
    """
    steps, begin = [], min(w.start for w in world.works)
    for k, work in enumerate(world.works):
        name, items = f"bpu{k}", [work.call(kv).items for kv in work.kvs]
        hz = min([work.hz, *(hz for _, core, hz in world.clocks if core == k)])
        cycles = max(int(i.cycles.max(initial=0)) for i in items)
        steps.append(work.largest_read * 1e12 / off.lowest.get(name, RATE) + cycles * 1e12 / hz)
    return max(
        abs(a - b) / (2 * max(steps) + (a - begin) / 20 + NS)
        for key in off.ops for a, b in zip(off.ops[key], on.ops[key], strict=True)
    )  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True)
@given(worlds(st.one_of(programs(), st.builds(even, Even, st.integers(1, 3))), (1, 1), disturbed=False))
def test_a_core_alone_moves_at_its_pace_and_ends_all_ops_when_it_would_tile_by_tile(world: World) -> None:
    off, on = play(world, "off"), play(world, "on")
    assert apart(off, on) <= NS
    assert (on.moved, on.recorded) == (off.moved, off.recorded)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(worlds(st.one_of(programs(), st.builds(even, Even, st.integers(1, 3)))))
def test_stretches_at_a_pace_stay_within_two_tiles_and_a_twentieth(world: World) -> None:
    off, on = play(world, "off"), play(world, "on")
    assert beyond(world, off, on) <= 1
    assert (on.moved, on.recorded) == (off.moved, off.recorded)


def test_a_large_write_does_not_excuse_small_tiles() -> None:
    # bpu1 has room for one tile: it fetches 9 kB (900 ns alone) and computes for 1350 ns in turns, so that whatever
    # slows its fetches slows it. Its write of 23 tiles says nothing of that.
    one = Work(even((50, 1.05, [60]), 1), (0,), room=125 * KB)
    two = Work(even((9, 1.5, [40]), 2, write=23), (0,), room=9 * KB)
    world = World((one, two))
    off, on = play(world, "off"), play(world, "on")
    assert beyond(world, off, on) <= 1


@pytest.mark.parametrize("room", [1.5, 1.9])
@pytest.mark.parametrize("part", [0.7, 0.8, 0.9])
def test_a_core_with_room_for_one_tile_and_a_half_is_as_slow_as_tile_by_tile(part: float, room: float) -> None:
    # It fetches and computes in turns: beside another, slower fetches are slower turns. To take such turns for an even
    # pace, as a tolerance of a quarter of the scratchpad would, hides most of it.
    works = [
        Work(even((20, part * slower, [7] * 12), 1), (0,), start=k * 3 * US, room=round(20 * KB * room))
        for k, slower in enumerate((1.0, 1.07))
    ]
    world = World(tuple(works))
    assert beyond(world, play(world, "off"), play(world, "on")) <= 1


def test_a_paced_write_goes_when_it_is_produced_at_the_new_clock() -> None:
    # a has nothing to fetch and is computed by 100 us; at four times the clock from 10 us on, by 32.5. Then its write
    # of 1 kB (0.1 us), b that reads it with 50 kB of its own, and c, which has to wait for room.
    ops = (
        Op("a", "A", "mac", cycles=(100_000,), write={"io:a": (1000,)}),
        Op("b", "A", "mac", cycles=(1000,), read={"kv": (50 * KB,), "io:a": (1000,)}),
        Op("c", "A", "mac", cycles=(1000,), read={"kv": (50 * KB,)}),
    )
    work = Work(trace_of(*ops), (0,), room=51 * KB, path=0)
    world = World((work,), clocks=((10 * US, 0, 4 * GHZ),))
    off, on = play(world, "off"), play(world, "on")
    assert off.ops["bpu0", "0/frame"] == [32_500 * NS, 37_950 * NS, 43_200 * NS]
    assert apart(off, on) <= 6 * US  # a tile


# Where a single flow would be wrong


def tiles(name: str, n: int, cycles: int, write: int = 0, size: int = 1000) -> Op:
    """``n`` tiles of ``size`` bytes (1000 take 100 ns), of so many cycles each."""
    return Op(
        name, "A", "mac", cycles=(n * cycles,), tiles=(n,), read={"kv": (n * size,)},
        write={f"io:{name}": (write,)} if write else {},
    )  # fmt: skip


def work_of(*ops: Op, room: int = 2000, limit: int = RATE) -> Work:
    return Work(trace_of(*ops), (0,), room=room, path=0, limit=limit)


def planned(work: Work, kv: int = 0, hz: int = GHZ) -> Plan | None:
    return plan_for(work.call(kv), Timing(hz, work.room, work.op_overhead, work.layer_sync, work.limit))


def ends(world: World) -> list[int]:
    """When the ops of the only call were computed, in ns; the same merged or not."""
    off, exact = play(world, "off"), play(world, "exact")
    assert apart(off, exact) <= 10
    return [round(e / NS) for e in off.ops["bpu0", "0/frame"]]


def one_flow(work: Work) -> bool:
    """Whether its plan is a single flow."""
    plan = planned(work)
    return plan is not None and [r.waits for r in plan.runs] == [None]


def test_a_clock_halved_inside_a_run_ends_the_run() -> None:
    # Tiles of 100 ns computed in 80: nothing waits. At half the clock, from 250 ns on, tile 2 is done at 310 (30 ns
    # were left), those behind it every 160 ns, and tile k is fetched when k - 2 is done: tile 12 at C(10) = 1590, the
    # last eight behind it.
    work = work_of(tiles("a", 10, 80), tiles("b", 10, 0))
    assert one_flow(work)
    assert ends(World((work,))) == [1080, 2000]
    assert ends(World((work,), clocks=((250 * NS, 0, GHZ // 2),))) == [310 + 8 * 160, 1590 + 9 * 100]


def test_a_clock_doubled_inside_a_run_changes_what_is_computed() -> None:
    # At 850 ns tile 8 (there at 800) has 30 of its 80 ns left: 15. Tile 10 is there at 1000 and takes 40.
    work = work_of(tiles("a", 10, 80), tiles("b", 10, 0))
    assert ends(World((work,), clocks=((850 * NS, 0, 2 * GHZ),))) == [1040, 2000]


def test_a_port_that_gets_faster_inside_a_run_ends_the_run() -> None:
    # At 5 B/ns tiles of 200 ns are computed in 150: nothing waits. At 500 ns the port doubles: tile 3 is there at 550,
    # C(3) = 700, tile 4 at 650, C(4) = 850, and tile k is fetched at C(k - 2) = 850 + 150 (k - 6): tile 12 at
    # C(10) = 1750, the last eight behind it. One flow would have brought the last at 2250.
    work = work_of(tiles("a", 10, 150), tiles("b", 10, 0), limit=RATE // 2)
    assert one_flow(work)
    assert ends(World((work,))) == [2150, 4000]
    assert ends(World((work,), limits=((500 * NS, 0, RATE),))) == [1750, 1750 + 9 * 100]


def test_a_port_that_gets_slower_inside_a_run_delays_it() -> None:
    work = work_of(tiles("a", 10, 80), tiles("b", 10, 0))
    assert ends(World((work,), limits=((550 * NS, 0, RATE // 2),))) == [550 + 900 + 80, 550 + 2900]


def test_a_channel_that_gets_faster_inside_a_run_ends_the_run() -> None:
    # The same by the channel's clock, a nanosecond later.
    work = replace(work_of(tiles("a", 10, 150), tiles("b", 10, 0)), start=NS)
    half = (0, 0.5)
    assert one_flow(replace(work, limit=RATE // 2))
    assert not one_flow(work)
    assert ends(World((work,), speeds=(half,))) == [2151, 4001]
    assert ends(World((work,), speeds=(half, (501 * NS, 1.0)))) == [1751, 1751 + 9 * 100]


def test_a_channel_that_gets_slower_inside_a_run_delays_it() -> None:
    work = work_of(tiles("a", 10, 80), tiles("b", 10, 0))
    assert ends(World((work,), speeds=((550 * NS, 0.5),))) == [550 + 900 + 80, 550 + 2900]


def test_a_channel_and_a_core_that_slow_down_together_stall_no_more_than_before() -> None:
    work = work_of(tiles("a", 10, 80), tiles("b", 10, 0))
    world = World((work,), clocks=((550 * NS, 0, GHZ // 2),), speeds=((550 * NS, 0.5),))
    assert ends(world) == [2 * (1080 - 275), 2 * (2000 - 275)]


def test_what_is_left_to_compute_holds_up_a_run_behind_it() -> None:
    # b alone would be one flow; tile 3 waits for a to be computed.
    assert one_flow(work_of(tiles("b", 10, 0)))
    assert ends(World((work_of(tiles("a", 1, 1000), tiles("b", 10, 0)),))) == [1100, 2000]


def test_what_is_left_to_compute_behind_a_write_holds_up_the_run_that_it_begins() -> None:
    # a, b, a's write at C(a) = 1100 until 1150, the first of c at 1250, while b is computed from 1100 to 1400: the
    # second of c waits for that. Without b's 300 ns all of c would be there at 1650.
    work = work_of(tiles("a", 1, 1000, write=500), tiles("b", 1, 300), tiles("c", 5, 0))
    assert ends(World((work,))) == [1100, 1400, 1800]
    assert ends(World((work_of(tiles("a", 1, 1000, write=500), tiles("b", 1, 0), tiles("c", 5, 0)),)))[2] == 1650


ITEMS = ((1050, 30), (0, 0), (3500, 0), (0, 0)) * 3
"""Cycles, and kB written, of tiles of 10 kB: a thousand cycles each at 10 B/ns."""


def stalls_if_writes_went_when_ready(ps_per_byte: float) -> int:
    """How many reads would wait for room of 30 kB if a write went as soon as it could."""
    size, room, at = 10 * KB, 3, 0.0
    done: list[float] = []
    ready: list[tuple[float, int]] = []
    found = 0
    for k, (cycles, write) in enumerate(ITEMS):
        free = done[k - room] if k >= room else 0.0
        while ready and (ready[0][0] <= at or ready[0][0] <= free):
            when, amount = ready.pop(0)
            at = max(at, when) + amount * ps_per_byte
        if free > at:
            found, at = found + 1, free
        at += size * ps_per_byte
        done.append(max(done[-1] if done else 0.0, at) + cycles * NS)
        if write:
            ready.append((done[-1], write * KB))
    return found


@pytest.mark.parametrize("rate", [RATE, RATE * 9 // 10])
def test_writes_keep_their_place_so_that_a_slower_channel_brings_no_stall(rate: int) -> None:
    assert stalls_if_writes_went_when_ready(10**12 / RATE) < stalls_if_writes_went_when_ready(10**13 / (9 * RATE))
    work = work_of(*(tiles(f"o{k}", 1, c, w * KB, 10 * KB) for k, (c, w) in enumerate(ITEMS)), room=30 * KB)
    world = World((work,), limits=((0, 0, rate),)) if rate != RATE else World((work,))
    ends(world)
    ends(World((replace(work, limit=rate),)))


# Plans


def growing(limit: int = 512) -> Work:
    """Tiles of some 3 us, computed in 1 us. Up to kv = ``limit`` two fit the scratchpad together; beyond, each waits
    for the one before to be computed."""
    ops = [Op(f"o{k}", "A", "mac", cycles=(1000,), read={"kv": (30 * KB, 4)}) for k in range(10)]
    return Work(trace_of(*ops), (0,), room=2 * (30 * KB + 4 * limit), path=0)


def test_a_plan_holds_at_every_position_of_its_range() -> None:
    # What is behind the tiles that decide when something is computed must not depend on the position.
    grows = Op("g", "A", "mac", cycles=(100, 1), tiles=(2, 0, 1), read={"kv": (20 * KB, 40)})
    work = Work(trace_of(Repeat(6, "l", (grows, tiles("w", 2, 500, 300, 10 * KB)))), (0,), room=10**6)
    plan = planned(work, 600)
    assert plan is not None
    assert (plan.low, plan.high) == ((513,), (768,))  # its tiles are as many from 513 to 768
    other = Work(trace_of(tiles("x", 40, 2000, 0, 20 * KB)), (0,), start=3 * US, room=40 * KB)
    for kv in range(plan.low[0], plan.high[0] + 1, 15):
        world = World((replace(work, kvs=(kv,)), other), ((10 * US, 100 * KB),))
        off, exact = play(world, "off"), play(world, "exact")
        assert apart(off, exact) <= len(work.call(kv).items.bytes)
        assert exact.steps < off.steps


def test_a_plan_is_not_used_outside_its_range() -> None:
    work = growing()
    plan = planned(work, 400)
    assert plan is not None
    assert plan.high == (512,)
    assert planned(work, 513) is None  # each waits for the one before
    world = World((replace(work, kvs=(400, 512, 513, 600, 400)),))
    off, exact = play(world, "off"), play(world, "exact")
    assert apart(off, exact) <= 10
    lengths = [e - s for s, e in off.calls["bpu0"]]
    assert lengths[1] == 10 * (30 * KB + 4 * 512) * 100 + US
    assert lengths[2] == 10 * (30 * KB + 4 * 513) * 100 + 10 * US
    assert exact.steps < off.steps


@pytest.mark.parametrize("hz", [GHZ, GHZ // 2])
def test_a_plan_is_made_for_a_clock(hz: int) -> None:
    work = work_of(tiles("a", 10, 80), tiles("b", 10, 0))
    assert (planned(work, hz=hz) is None) == (hz != GHZ)


@pytest.mark.parametrize("merge", ["exact", "on"])
def test_a_call_bound_by_bandwidth_costs_as_many_events_with_any_number_of_layers(merge: Merge) -> None:
    def steps(layers: int) -> int:
        layer = (tiles("a", 4, 500, 0, 10 * KB), tiles("b", 2, 100, 0, 20 * KB))
        return play(World((Work(trace_of(Repeat(layers, "l", layer)), (0,), room=100 * KB),)), merge).steps

    assert steps(10) == steps(100)


def test_ops_of_a_planned_call_end_when_they_do_tile_by_tile() -> None:
    # Two tiles of 1000 B: a at 200 + 50; b reads nothing and takes 300; c (there at 300) waits for it. Then d's tiles
    # come at 400 and 500, a's write before them: 50 ns later.
    ops = (tiles("a", 2, 50, 500), Op("b", "A", "mac", cycles=(300,)), tiles("c", 1, 10), tiles("d", 2, 500))
    work = work_of(*ops, room=10_000)
    assert one_flow(work)
    assert ends(World((work,))) == [250, 550, 560, 1560]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(programs(), st.sampled_from([0, 1, 700]))
def test_ops_of_a_call_end_in_program_order(trace: Trace, kv: int) -> None:
    work = Work(trace, (kv,), op_overhead=7 * NS)
    world = World((work, replace(work, start=5 * US)))
    off, exact = play(world, "off"), play(world, "exact")
    for key, found in exact.ops.items():
        assert len(found) == len(work.call(kv).ops)
        assert found == sorted(found)
        assert found == pytest.approx(off.ops[key], abs=NS)


# At the edges

NOTHING = Op("n", "A", "mac")


@pytest.mark.parametrize(
    "ops",
    [
        (NOTHING,),
        (NOTHING, Op("o", "A", "mac", cycles=(10,)), NOTHING),
        (tiles("a", 1, 0),),
        (Op("w", "A", "mac", write={"io:w": (1000,)}), Op("v", "A", "mac", cycles=(5,), write={"io:v": (100,)})),
        (Op("z", "A", "mac", read={"kv": (0, 1)}, write={"io:z": (0, 1)}), tiles("a", 3, 0, 100), NOTHING),
    ],
)
@pytest.mark.parametrize("merge", ["exact", "on"])
def test_calls_with_little_or_nothing_in_them(ops: tuple[Op, ...], merge: Merge) -> None:
    world = World((replace(work_of(*ops), kvs=(0, 1, 0)),), clocks=((0, 0, GHZ // 2), (50 * NS, 0, GHZ)))
    assert apart(play(world, "off"), play(world, merge)) <= 10


@pytest.mark.parametrize("merge", ["exact", "on"])
@pytest.mark.parametrize("rate", ["10 GB/s", "8 GB/s"])
def test_bursts_that_leave_nothing_to_a_flow_only_hold_it_up(rate: str, merge: Merge) -> None:
    camera = MasterSpec(rate=rate, written=0.0, on="5 us", period="10 us")  # type: ignore[arg-type]
    work = Work(trace_of(tiles("a", 20, 400, 500, 10 * KB), tiles("b", 10, 50, 0, 10 * KB)), (0, 0), room=10**6)
    changes = ((2 * US, 0, GHZ // 2), (15 * US, 0, GHZ), (60 * US, 0, 3 * GHZ))
    world = World((work,), clocks=changes, limits=((3 * US, 0, RATE // 2),), background=(("camera", camera),))
    assert apart(play(world, "off"), play(world, merge)) <= NS


@pytest.mark.parametrize("when", [100, 200, 300, 150, 250])
@pytest.mark.parametrize("merge", ["exact", "on"])
def test_a_change_in_the_instant_of_an_end(when: int, merge: Merge) -> None:
    work = work_of(tiles("a", 4, 50, 100), tiles("b", 3, 150), room=2000)
    for changes in (
        {"clocks": ((when * NS, 0, GHZ // 2),)},
        {"limits": ((when * NS, 0, RATE // 2),)},
        {"speeds": ((when * NS, 0.5),)},
        {"clocks": ((when * NS, 0, GHZ // 2),), "speeds": ((when * NS, 0.5),)},
    ):
        world = World((work,), **changes)
        assert apart(play(world, "off"), play(world, merge)) <= 10


@pytest.mark.parametrize("merge", ["off", "exact", "on"])
@pytest.mark.parametrize("moved", [0, 1000])
def test_a_change_while_a_flow_stands_still_leaves_alone_what_came_before(moved: int, merge: Merge) -> None:
    # The camera takes all for 900 ns from 2000 ns on. By then o has its bytes (none, or 1000 in 100 ns); it is computed
    # from 2000 on, until at 2200 the clock is halved: 400 of its 600 ns are left, which take 800.
    camera = MasterSpec(rate="10 GB/s", written=0.0, on="900 ns", period="1 us", buffer=1)  # type: ignore[arg-type]
    o = Op("o", "A", "mac", cycles=(600,), read={"kv": (moved,)} if moved else {})
    work = replace(work_of(o, tiles("b", 1, 0, 0, 5000), room=10**6), start=(2000 - moved // 10) * NS)
    world = World((work,), clocks=((2200 * NS, 0, GHZ // 2),), background=(("camera", camera),))
    assert play(world, merge).ops["bpu0", "0/frame"][0] == (2200 + 800) * NS


@pytest.mark.parametrize("merge", ["off", "exact", "on"])
@pytest.mark.parametrize(
    "change", [{"clocks": ((10 * NS, 0, GHZ),)}, {"limits": ((10 * NS, 0, RATE),)}, {"speeds": ((10 * NS, 1.0),)}]
)
def test_a_change_before_the_first_byte_does_not_bring_it_sooner(change: dict[str, Any], merge: Merge) -> None:
    work = replace(work_of(tiles("a", 1, 4)), path=100 * NS)
    assert play(World((work,), **change), merge).calls["bpu0"] == [(0, 204 * NS)]
