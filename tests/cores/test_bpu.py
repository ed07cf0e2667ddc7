"""A BPU core on a port whose rates are written down: when calls end, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import simpy
from flows import Parts
from hypothesis import given, settings
from hypothesis import strategies as st
from lone_core import GHZ, NS, RATE, FakePort, begin, call_of, core_on, op, run

from bpusim.cores import BpuCore, CallResult
from bpusim.dram import FlowChannel, Ideal, Rules
from bpusim.errors import SimulationError
from bpusim.metrics import Recorder
from bpusim.ports import CallCounters, Work
from bpusim.trace import Op, Repeat


class Log(Recorder):
    """Writes down when calls start and end."""

    __slots__ = ("calls", "counters", "work")

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def call_started(self, core: str, label: str, at: int, work: Work) -> None:
        self.calls.append((at, "start", core, label))
        self.work = work

    def calls_passed(self, *_: object, **__: object) -> None:
        raise AssertionError("nobody takes calls ahead")

    def call_ended(self, core: str, label: str, at: int, counters: CallCounters) -> None:
        self.calls.append((at, "end", core, label))
        self.counters = counters


@pytest.fixture
def env() -> simpy.Environment:
    return simpy.Environment()


def causes(result: CallResult) -> dict[str, int]:
    """Causes that took time; they must sum to the call."""
    out = {c: getattr(result, c) for c in CallResult._fields[2:9]}
    assert all(v >= 0 for v in out.values())
    assert sum(out.values()) == result.end - result.start
    return {c: v for c, v in out.items() if v}


# When


def test_a_call_streams_its_tiles_in_one_flow(env: simpy.Environment) -> None:
    port = FakePort(env)
    result = run(env, core_on(env, port), call_of(op("a", 300, 12, tiles=3)))
    assert port.log == [(0, 300)]
    assert (result.start, result.end) == (0, 30 * NS + 4 * NS)


def test_the_first_byte_comes_after_the_latency(env: simpy.Environment) -> None:
    port = FakePort(env, latency=7 * NS)
    assert run(env, core_on(env, port), call_of(op("a"))).end == (7 + 10 + 4) * NS
    assert port.log == [(7 * NS, 100)]


def test_a_call_without_bytes_pays_no_latency(env: simpy.Environment) -> None:
    assert run(env, core_on(env, FakePort(env, latency=7 * NS)), call_of(op("a", read=0))).end == 4 * NS


def test_a_tile_without_room_starts_a_flow_of_its_own(env: simpy.Environment) -> None:
    port = FakePort(env)
    # Room for one tile of two: the second is fetched when the first is computed.
    result = run(env, core_on(env, port, scratchpad="100 B"), call_of(op("a", 200, 50, tiles=2)))
    assert port.log == [(0, 100), (35 * NS, 100)]
    assert result.end == (35 + 10 + 25) * NS


def test_a_write_starts_when_its_producer_is_computed(env: simpy.Environment) -> None:
    port = FakePort(env)
    result = run(env, core_on(env, port), call_of(op("a", 100, 50, write=200)))
    assert port.log == [(0, 100), (60 * NS, 200)]
    assert result.end == 80 * NS


def test_slow_data_is_waited_for(env: simpy.Environment) -> None:
    assert run(env, core_on(env, FakePort(env, [RATE / 4])), call_of(op("a"))).end == (40 + 4) * NS


def test_a_call_begins_when_it_is_given(env: simpy.Environment) -> None:
    env.run(until=50)
    result = run(env, core_on(env, FakePort(env)), call_of(op("a")))
    assert (result.start, result.end) == (50, 50 + 14 * NS)


def test_an_observer_sees_the_call_and_what_it_did(env: simpy.Environment) -> None:
    log = Log()
    call = call_of(op("a", macs=(70,), issued=(80,), mac_cycles=(3,), write=200), op("b", macs=(5,), issued=(6,)))
    end = run(env, core_on(env, FakePort(env), log), call).end
    assert log.calls == [(0, "start", "bpu0", "s/frame"), (end, "end", "bpu0", "s/frame")]
    assert log.counters == CallCounters(3 * NS, 75, 86, 2, [0, 200, 0, 0, 0, 0, 0, 200])
    assert log.work is call


def test_two_calls_at_once_are_an_error(env: simpy.Environment) -> None:
    core = core_on(env, FakePort(env))
    begin(core, call_of(op("a")), "one/frame")
    with pytest.raises(SimulationError) as caught:
        begin(core, call_of(op("a")), "two/frame")
    assert str(caught.value) == "error: bpu0 was given 'two/frame' while it runs 'one/frame'"


def test_a_core_is_busy_from_start_to_end(env: simpy.Environment) -> None:
    core = core_on(env, FakePort(env))
    assert not core.busy
    done = begin(core, call_of(op("a")))
    assert core.busy
    env.run(until=done)
    assert not core.busy


def test_the_next_call_may_start_in_the_instant_of_the_end(env: simpy.Environment) -> None:
    core = core_on(env, FakePort(env))
    log: list[tuple[int, str]] = []

    def two() -> Iterator[Any]:
        for name in "ab":
            yield begin(core, call_of(op(name)), name)
            log.append((env.now, name))

    env.process(two())
    env.run()
    assert log == [(14 * NS, "a"), (28 * NS, "b")]


def test_an_estimate_is_the_call_alone(env: simpy.Environment) -> None:
    core = core_on(env, FakePort(env, latency=7 * NS))
    call = call_of(op("a", 300, 12, tiles=3))
    assert core.estimate(call) == (7 + 30 + 4) * NS
    assert run(env, core, call).end == core.estimate(call)


def test_an_estimate_of_a_call_without_bytes_has_no_latency(env: simpy.Environment) -> None:
    assert core_on(env, FakePort(env, latency=7 * NS)).estimate(call_of(op("a", read=0))) == 4 * NS


def test_a_call_that_comes_again_runs_at_the_present_clock(env: simpy.Environment) -> None:
    core, call = core_on(env, FakePort(env)), call_of(op("a", read=0))
    assert run(env, core, call).end == 4 * NS
    core.clock.set_hz(2 * GHZ)  # type: ignore[attr-defined]
    again = env.now
    assert run(env, core, call).end - again == 2 * NS


def test_a_tile_larger_than_the_scratchpad_is_an_error_and_leaves_the_core_free(env: simpy.Environment) -> None:
    core = core_on(env, FakePort(env), scratchpad="99 B")
    with pytest.raises(SimulationError, match="exceeds the scratchpad of 99 B"):
        begin(core, call_of(op("a")))
    assert not core.busy


# Why


def test_a_compute_bound_call_is_compute_and_the_first_fetch(env: simpy.Environment) -> None:
    result = run(env, core_on(env, FakePort(env)), call_of(op("a", 200, 80, tiles=2)))
    assert causes(result) == {"compute": 80 * NS, "dram": 10 * NS}


def test_a_bandwidth_bound_call_is_compute_and_waiting_for_data(env: simpy.Environment) -> None:
    result = run(env, core_on(env, FakePort(env, latency=7 * NS)), call_of(op("a", 300, 12, tiles=3)))
    assert causes(result) == {"compute": 12 * NS, "dram": (7 + 30 + 4 - 12) * NS}


def test_waiting_for_room_is_scratchpad(env: simpy.Environment) -> None:
    # Unlimited: 10 + 25 + 25; with room for one tile the second fetch comes on top.
    result = run(env, core_on(env, FakePort(env), scratchpad="100 B"), call_of(op("a", 200, 50, tiles=2)))
    assert causes(result) == {"compute": 50 * NS, "dram": 10 * NS, "scratchpad": 10 * NS}


def test_slower_rates_than_alone_are_contention(env: simpy.Environment) -> None:
    # 300 B take 120 ns instead of 30.
    result = run(env, core_on(env, FakePort(env, [RATE / 4])), call_of(op("a", 300, 12, tiles=3)))
    assert causes(result) == {"compute": 12 * NS, "dram": 22 * NS, "contention": 90 * NS}


def test_contention_of_an_early_flow_counts_though_the_last_had_the_channel(env: simpy.Environment) -> None:
    # The read takes 40 ns instead of 10, the write has its own rate.
    result = run(env, core_on(env, FakePort(env, [RATE / 4, RATE])), call_of(op("a", 100, 50, write=200)))
    assert causes(result) == {"compute": 50 * NS, "dram": 30 * NS, "contention": 30 * NS}


def test_compute_hides_contention(env: simpy.Environment) -> None:
    # 10 + 80 alone. At half the rate tile 1 is there at 40 ns, before C0 = 60: only the first fetch is late.
    result = run(env, core_on(env, FakePort(env, [RATE / 2])), call_of(op("a", 200, 80, tiles=2)))
    assert causes(result) == {"compute": 80 * NS, "dram": 10 * NS, "contention": 10 * NS}


def test_op_overhead_is_dispatch(env: simpy.Environment) -> None:
    core = core_on(env, FakePort(env), op_overhead="3 ns")
    result = run(env, core, call_of(op("a", read=0), op("b", read=0), op("c", read=0)))
    assert causes(result) == {"compute": 12 * NS, "dispatch": 9 * NS}


def test_layer_sync_is_dispatch(env: simpy.Environment) -> None:
    core = core_on(env, FakePort(env), layer_sync="5 ns")
    result = run(env, core, call_of(Repeat(2, "l", (op("a", read=0), op("b", read=0)))))
    assert causes(result) == {"compute": 16 * NS, "dispatch": 10 * NS}


OPS = st.lists(
    st.builds(
        op, st.just("o"), st.integers(0, 500), st.integers(0, 60), st.integers(1, 5), st.sampled_from([0, 0, 40, 300])
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(
    ops=OPS,
    rates=st.lists(st.sampled_from([RATE, RATE / 2, RATE / 7]), min_size=1, max_size=5),
    scratchpad=st.integers(500, 1500),
    latency=st.integers(0, 9000),
    overhead=st.integers(0, 5000),
)
def test_causes_sum_to_the_call(
    ops: list[Op], rates: list[float], scratchpad: int, latency: int, overhead: int
) -> None:
    env = simpy.Environment()
    core = core_on(env, FakePort(env, rates, latency), scratchpad=f"{scratchpad} B", op_overhead=f"{overhead} ps")
    result = run(env, core, call_of(*ops))
    found = causes(result)
    assert result.dispatch == len(ops) * overhead
    assert result.compute == sum(o.cycles[0] for o in ops) * NS
    if set(rates) == {RATE}:
        assert "contention" not in found


# On the channel


def on_channel(env: simpy.Environment) -> tuple[BpuCore, FlowChannel]:
    channel = FlowChannel(env, Ideal(RATE), Recorder(), Rules("equal"))
    return core_on(env, channel.port("bpu0", 10**6, NS, RATE)), channel


def test_a_call_alone_on_the_channel_has_no_contention(env: simpy.Environment) -> None:
    core, _ = on_channel(env)
    result = run(env, core, call_of(op("a", 300, 12, tiles=3)))
    assert causes(result) == {"compute": 12 * NS, "dram": (1 + 22) * NS}


def test_another_master_on_the_channel_is_contention(env: simpy.Environment) -> None:
    core, channel = on_channel(env)
    channel.port("cpu", 10**6, NS, RATE).start(Parts(110))
    # The core begins at 1 ns, with 100 B left to the other: 5 B/ns each until 21 ns, then 200 B in 20 ns.
    result = run(env, core, call_of(op("a", 300, 12, tiles=3)))
    assert result.end == (1 + 20 + 20 + 4) * NS
    assert causes(result) == {"compute": 12 * NS, "dram": 23 * NS, "contention": 10 * NS}


def test_all_bytes_of_a_call_cross_the_channel(env: simpy.Environment) -> None:
    core, channel = on_channel(env)
    run(env, core, call_of(op("a", 300, 12, tiles=3, write=50), op("b", 70)))
    assert channel.moved() == {"bpu0": 420}
