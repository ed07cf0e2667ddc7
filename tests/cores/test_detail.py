"""What each op of a call did, and what it has added to the call: by hand, and sums that hold in any world."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lone_core import GHZ, NS, RATE, FakePort, call_of, core_on, op, run
from programs import program, programs, worlds
from worlds import Work, World, play

from bpusim.cores import CallResult
from bpusim.dram import FlowChannel, Ideal, Rules
from bpusim.metrics import Recorder
from bpusim.ports import CALL_CAUSES, CallDetail
from bpusim.trace import CallProgram, Repeat


class Watch(Recorder):
    """Keeps the detail of calls."""

    __slots__ = ("details",)

    def __init__(self) -> None:
        super().__init__()
        self.details: list[CallDetail] = []

    @property
    def wants_detail(self) -> bool:
        return True

    def call_detailed(self, detail: CallDetail) -> None:
        self.details.append(detail)


@pytest.fixture
def env() -> simpy.Environment:
    return simpy.Environment()


def detail(env: simpy.Environment, call: CallProgram, port: Any = None, **changes: str) -> CallDetail:
    """Of a call on a core by itself."""
    watch = Watch()
    run(env, core_on(env, port or FakePort(env), watch, **changes), call)
    (only,) = watch.details
    return only


def shares(d: CallDetail) -> list[dict[str, int]]:
    """Of each op, in ns."""
    return [{c: n / NS for c, n in zip(CALL_CAUSES, row, strict=True) if n} for row in d.causes.tolist()]


def spans(rows: Any) -> list[tuple[float, float]]:
    """In ns."""
    return [(a / NS, b / NS) for a, b in rows.tolist()]


# Shares by hand


def test_an_op_that_waits_for_its_data_has_the_wait(env: simpy.Environment) -> None:
    # 10 B/ns: a arrives at 30, is computed at 42; b arrives at 40 and waits for nothing: 92.
    d = detail(env, call_of(op("a", 300, 12), op("b", 100, 50)))
    assert shares(d) == [{"compute": 12, "dram": 30}, {"compute": 50}]
    assert (d.start, d.end) == (0, 92 * NS)


def test_an_op_whose_data_others_hide_adds_its_compute_alone(env: simpy.Environment) -> None:
    d = detail(env, call_of(op("a", 100, 100), op("b", 500, 10)))
    assert shares(d) == [{"compute": 100, "dram": 10}, {"compute": 10}]


def test_a_write_that_the_call_waits_for_is_its_ops(env: simpy.Environment) -> None:
    d = detail(env, call_of(op("a", 100, 50), op("b", 100, 10, write=200)))  # b is computed at 70, written by 90
    assert shares(d) == [{"compute": 50, "dram": 10}, {"compute": 10, "dram": 20}]


def test_waiting_for_room_is_the_op_that_has_to_wait(env: simpy.Environment) -> None:
    # Room for one: b is fetched from 60 (a is computed) to 70, and would have been there at 20.
    d = detail(env, call_of(op("a", 100, 50), op("b", 100, 10)), scratchpad="100 B")
    assert shares(d) == [{"compute": 50, "dram": 10}, {"compute": 10, "scratchpad": 10}]


def test_a_slower_flow_is_contention_of_what_it_brings(env: simpy.Environment) -> None:
    # The first flow has a quarter of the rate: a is there at 40. b is fetched when it is computed, at 90, as before.
    port = FakePort(env, [RATE / 4, RATE])
    d = detail(env, call_of(op("a", 100, 50), op("b", 100, 10)), port, scratchpad="100 B")
    assert shares(d) == [{"compute": 50, "dram": 10, "contention": 30}, {"compute": 10, "scratchpad": 10}]


def test_contention_that_compute_hides_is_nobodys(env: simpy.Environment) -> None:
    # At half the rate b is there at 40, long before a is computed.
    d = detail(env, call_of(op("a", 100, 100), op("b", 100, 10)), FakePort(env, [RATE / 2]))
    assert shares(d) == [{"compute": 100, "dram": 10, "contention": 10}, {"compute": 10}]


def test_a_slow_clock_that_memory_hides_is_nobodys(env: simpy.Environment) -> None:
    # Full clock: a 10..30, b is there at 110, over at 114. Half: a 10..50, b 110..118: a's 20 are made up for.
    watch = Watch()
    core = core_on(env, FakePort(env), watch)
    core.clock.set_hz(GHZ // 2)  # type: ignore[attr-defined]
    run(env, core, call_of(op("a", 100, 20), op("b", 1000, 4)))
    (d,) = watch.details
    assert d.end == 118 * NS
    assert shares(d) == [{"compute": 20, "dram": 10}, {"compute": 4, "dram": 80, "throttling": 4}]


def test_overhead_is_dispatch_of_each_op_and_a_layers_of_its_last(env: simpy.Environment) -> None:
    call = call_of(Repeat(2, "l", (op("a", read=0), op("b", read=0))))
    d = detail(env, call, op_overhead="3 ns", layer_sync="5 ns")
    assert shares(d) == [{"compute": 4, "dispatch": 3}, {"compute": 4, "dispatch": 8}] * 2


def test_the_first_op_has_the_latency(env: simpy.Environment) -> None:
    d = detail(env, call_of(op("a"), op("b")), FakePort(env, latency=7 * NS))
    assert shares(d) == [{"compute": 4, "dram": 17}, {"compute": 4, "dram": 6}]


# When


def test_each_op_has_its_times_on_array_and_dma(env: simpy.Environment) -> None:
    d = detail(env, call_of(op("a", 200, 40, tiles=2), op("b", 100, 10, write=50)), FakePort(env, latency=5 * NS))
    # Fetched without a gap from 5 on; tiles of a are computed 15..35..55, b 55..65, and written when it is.
    assert spans(d.read) == [(5, 25), (25, 35)]
    assert spans(d.compute) == [(15, 55), (55, 65)]
    assert spans(d.write) == [(25, 25), (65, 70)]
    assert d.ops.tolist() == [0, 1]
    assert d.begun.all()


@pytest.mark.parametrize("merge", ["off", "exact"])
def test_an_op_is_fetched_from_its_first_byte_on(env: simpy.Environment, merge: Any) -> None:
    """Three bytes in four tiles: the first has none, and the latency before them is no fetch."""
    watch = Watch()
    run(env, core_on(env, FakePort(env, latency=7 * NS), watch, merge=merge), call_of(op("a", 3, 4, tiles=4)))
    assert spans(watch.details[0].read) == [(7, 7.3)]


def test_a_call_that_comes_later_has_later_times(env: simpy.Environment) -> None:
    env.run(until=100 * NS)
    d = detail(env, call_of(op("a")))
    assert (spans(d.read), spans(d.compute)) == ([(100, 110)], [(110, 114)])


def test_nobody_is_told_who_does_not_want_it(env: simpy.Environment) -> None:
    class Never(Watch):
        @property
        def wants_detail(self) -> bool:
            return False

    watch = Never()
    run(env, core_on(env, FakePort(env), watch), call_of(op("a")))
    assert not watch.details


# In any world


def check(details: list[CallDetail]) -> None:
    for d in details:
        assert (d.causes >= 0).all()
        assert int(d.causes.sum()) == d.end - d.start
        for table in (d.compute, d.read, d.write):
            assert (table[:, 0] <= table[:, 1]).all()
            assert (table >= d.start).all()
            assert (table <= d.end).all()
        for table in (d.compute, d.read):  # a unit does one thing at a time, in program order
            assert (table[1:, 0] >= table[:-1, 1]).all()
        assert (d.compute[:, 1] >= d.read[:, 1]).all()  # nothing is computed before it is there
        assert (np.diff(d.ops) == 1).all()


@settings(max_examples=60, deadline=None)
@given(world=worlds(programs()))
@example(
    world=World(
        works=tuple(
            Work(
                trace=program([(0, 0, 0, 1, None, False), (1, 0, 0, 1, None, False)], 1), kvs=(0,), start=start, room=1,
                op_overhead=0, layer_sync=0, window=1_000_000, path=1000, hz=10**9, limit=10**10,
            )
            for start in (0, 1)
        ),
        flows=(), clocks=(), limits=(), background=(), policy="proportional", speeds=(),
        behaviour=Ideal(10**10),
    )
)  # fmt: skip
def test_shares_of_ops_sum_to_their_call_and_units_do_one_thing_at_a_time(world: World) -> None:
    seen = play(world, "exact")
    check(seen.details)
    results: list[CallResult] = [r for why in seen.causes.values() for r in why]
    by_call = {(d.core, d.label): d for d in seen.details}
    for core, why in seen.causes.items():
        for n, result in enumerate(why):
            d = by_call[core, f"{n}/frame"]
            assert tuple(d.causes.sum(axis=0).tolist()) == result.causes
    assert len(results) == len(seen.details)


@settings(max_examples=25, deadline=None)
@given(world=worlds(programs(), disturbed=False))
def test_merged_calls_have_the_detail_of_calls_by_tiles(world: World) -> None:
    merged, tiles = play(world, "exact"), play(world, "off")
    for one, two in zip(merged.details, tiles.details, strict=True):
        assert (one.core, one.label) == (two.core, two.label)
        assert np.abs(one.causes - two.causes).max(initial=0) <= NS
        assert np.abs(one.compute - two.compute).max(initial=0) <= NS
        for a, b in ((one.read, two.read), (one.write, two.write)):
            moves = (a[:, 1] > a[:, 0]) & (b[:, 1] > b[:, 0])  # where an empty stretch lies is nobody's concern
            assert np.abs(a[moves] - b[moves]).max(initial=0) <= NS


# Interrupted


@settings(max_examples=30, deadline=None)
@given(bound=st.integers(20, 200), n=st.integers(1, 3))
def test_parts_of_a_call_have_detail_of_their_own_and_begin_each_op_once(bound: int, n: int) -> None:
    env, watch = simpy.Environment(), Watch()
    channel = FlowChannel(env, Ideal(RATE), watch, Rules("equal"))
    core = core_on(env, channel.port("bpu0", 10**6, NS, RATE), watch, scratchpad="700 B")
    call = call_of(*(op(f"o{k}", 100 * (k + 1), 30 + 7 * k, tiles=k + 1, write=20 * (k % 2)) for k in range(4)))
    done: list[CallResult] = []

    def drive(program: CallProgram, left: int) -> None:
        rest: list[CallProgram] = []

        def boundary() -> None:
            rest.append(core.rest())
            core.leave()

        def over(result: CallResult) -> None:
            done.append(result)
            if rest:
                drive(rest[0], left - 1)

        core.run(program, "s/frame", over, bound * NS)
        if left:
            core.at_boundary(bound * NS, boundary)

    drive(call, n)
    env.run()
    check(watch.details)
    assert [(d.start, d.end) for d in watch.details] == [(r.start, r.end) for r in done]
    begun = np.concatenate([d.ops[d.begun] for d in watch.details])
    assert begun.tolist() == [0, 1, 2, 3]
