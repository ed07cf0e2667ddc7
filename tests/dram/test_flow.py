"""The channel as a fluid: exact times of hand-worked flows, and what holds for any.

One byte at 1e9 B/s takes 1000 ps; most channels here give 10 B/ns, that is 10 bytes in 1000 ps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import simpy
from flows import Parts, Watcher
from hypothesis import given, settings
from hypothesis import strategies as st

from bpusim.dram import FlowChannel, FlowPort, Ideal, Rules
from bpusim.dram.transmission import Transmission
from bpusim.metrics import Recorder
from bpusim.ports import Flow

GB = 10**9
NS = 1000


class Counting(simpy.Environment):
    steps = 0

    def step(self) -> None:
        super().step()  # raises when there is nothing left
        self.steps += 1


@pytest.fixture
def env() -> Counting:
    return Counting()


@pytest.fixture
def log() -> list[Any]:
    return []


def channel(
    env: simpy.Environment, peak: int = 10 * GB, policy: Any = "equal", observer: Any = None, **rules: Any
) -> FlowChannel:
    return FlowChannel(env, Ideal(peak), observer or Recorder(), Rules(policy, **rules))


def port(ch: FlowChannel, name: str, rate: int = 10 * GB, window: int = 10**6) -> FlowPort:
    """A port whose window never limits it: 1 MB in 1 ns."""
    return ch.port(name, window, NS, rate)


def mover(env: simpy.Environment, log: list[Any], p: FlowPort, size: int, start: int = 0) -> Iterator[Any]:
    """Starts a flow at ``start`` and logs its end."""
    yield env.timeout(start)
    flow = yield p.start(Parts(size)).done
    log.append((env.now, p.name))
    assert isinstance(flow, Transmission)


# Rates of a port


def test_a_port_alone_is_limited_by_its_window_over_its_latency(env: Counting) -> None:
    # 8192 B in 479 ns: 17.1 GB/s.
    assert channel(env, 30 * GB).port("a", 8192, 479 * NS, 20 * GB).rate_alone == pytest.approx(8192 / 479e-9)


def test_a_port_alone_is_limited_by_its_width(env: Counting) -> None:
    assert channel(env, 30 * GB).port("a", 10**6, NS, 20 * GB).rate_alone == 20 * GB


def test_a_port_alone_is_limited_by_the_channel(env: Counting) -> None:
    assert channel(env, 15 * GB).port("a", 10**6, NS, 20 * GB).rate_alone == 15 * GB


# Times


def test_a_flow_alone_takes_its_bytes_over_its_rate(env: Counting, log: list[Any]) -> None:
    env.process(mover(env, log, port(channel(env), "a", 5 * GB), 500))
    env.run()
    assert log == [(100 * NS, "a")]


def test_an_end_rounds_to_the_nearest_picosecond(env: Counting, log: list[Any]) -> None:
    env.process(mover(env, log, port(channel(env), "a", 3 * GB), 1))  # 333.33 ps
    env.run()
    assert log == [(333, "a")]


def test_no_bytes_are_there_at_once(env: Counting, log: list[Any]) -> None:
    env.process(mover(env, log, port(channel(env), "a"), 0, start=7))
    env.run()
    assert log == [(7, "a")]


def test_two_flows_that_fit_do_not_slow_each_other(env: Counting, log: list[Any]) -> None:
    ch = channel(env)
    env.process(mover(env, log, port(ch, "a", 4 * GB), 400))
    env.process(mover(env, log, port(ch, "b", 6 * GB), 900))
    env.run()
    assert log == [(100 * NS, "a"), (150 * NS, "b")]


def test_a_flow_speeds_up_when_another_ends(env: Counting, log: list[Any]) -> None:
    ch = channel(env)
    # 5 B/ns each until a's 500 bytes are there at 100 ns; b's other 500 follow at 10 B/ns in 50 ns.
    env.process(mover(env, log, port(ch, "a"), 500))
    env.process(mover(env, log, port(ch, "b"), 1000))
    env.run()
    assert log == [(100 * NS, "a"), (150 * NS, "b")]


def test_a_flow_slows_down_when_another_starts(env: Counting, log: list[Any]) -> None:
    ch = channel(env)
    # a moves 400 by 40 ns, then 5 B/ns: its last 600 take 120 ns. b has 600 by then, and 400 at 10 B/ns.
    env.process(mover(env, log, port(ch, "a"), 1000))
    env.process(mover(env, log, port(ch, "b"), 1000, start=40 * NS))
    env.run()
    assert log == [(160 * NS, "a"), (200 * NS, "b")]


def test_flows_that_end_together_end_at_one_instant(env: Counting, log: list[Any]) -> None:
    ch = channel(env)
    env.process(mover(env, log, port(ch, "a"), 500))
    env.process(mover(env, log, port(ch, "b"), 500))
    env.run()
    assert log == [(100 * NS, "a"), (100 * NS, "b")]


def test_a_master_that_goes_on_in_its_callback_leaves_no_gap_in_the_sharing(env: Counting, log: list[Any]) -> None:
    ch = channel(env)
    a, b = port(ch, "a"), port(ch, "b")

    def again(first: Flow) -> None:
        log.append((env.now, "a once"))
        a.start(Parts(500), then=lambda _: log.append((env.now, "a twice")))

    a.start(Parts(500), then=again)
    flow = b.start(Parts(1000))
    env.run()
    assert log == [(100 * NS, "a once"), (200 * NS, "a twice")]
    assert [row[:3] for row in flow.history] == [(0, 0.0, 5e9), (200 * NS, 1000.0, 0.0)]


def test_masters_that_end_together_and_go_on_share_from_the_start(env: Counting) -> None:
    ch = channel(env)
    second: list[Transmission] = []
    for name in "ab":
        p = port(ch, name)
        p.start(Parts(500), then=lambda _, p=p: second.append(p.start(Parts(500))))
    env.run()
    rows = [(100 * NS, 0.0, 5e9, 1e10), (200 * NS, 500.0, 0.0, 1e10)]
    assert [list(f.history) for f in second] == [rows, rows]


def test_a_callback_gets_its_flow_at_the_end(env: Counting, log: list[Any]) -> None:
    flow = port(channel(env), "a").start(Parts(100), then=lambda f: log.append((env.now, f)))
    env.run()
    assert log == [(10 * NS, flow)]


def test_no_bytes_call_back_at_once(env: Counting, log: list[Any]) -> None:
    port(channel(env), "a").start(Parts(0), then=lambda _: log.append(env.now))
    assert log == [0]


def test_done_is_there_for_who_asks_after_the_end(env: Counting, log: list[Any]) -> None:
    flow = port(channel(env), "a").start(Parts(100))

    def late() -> Iterator[Any]:
        yield env.timeout(30 * NS)
        assert (yield flow.done) is flow
        log.append(env.now)

    env.process(late())
    env.run()
    assert log == [30 * NS]


# Limits


def test_a_limit_at_the_start_caps_the_rate(env: Counting) -> None:
    flow = port(channel(env), "a").start(Parts(500), limit=1e9)
    env.run()
    assert flow.history[-1][0] == 500 * NS


def limited(env: simpy.Environment, flow: Transmission, limits: Sequence[tuple[int, float | None]]) -> Iterator[Any]:
    for at, limit in limits:
        yield env.timeout(at - env.now)
        flow.set_limit(limit)


def test_a_limit_on_the_way_holds_from_then_on(env: Counting) -> None:
    flow = port(channel(env), "a").start(Parts(1000))
    env.process(limited(env, flow, [(50 * NS, 1e9)]))
    env.run()
    # 500 by 50 ns, then 1 B/ns.
    assert [row[:3] for row in flow.history] == [(0, 0.0, 1e10), (50 * NS, 500.0, 1e9), (550 * NS, 1000.0, 0.0)]


def test_a_lifted_limit_lets_the_flow_go_on(env: Counting) -> None:
    flow = port(channel(env), "a").start(Parts(1000), limit=1e9)
    env.process(limited(env, flow, [(100 * NS, None)]))
    env.run()
    assert flow.history[-1][0] == (100 + 90) * NS


def test_a_limit_of_nothing_stands_still_until_it_is_lifted(env: Counting) -> None:
    flow = port(channel(env), "a").start(Parts(1000))
    env.process(limited(env, flow, [(50 * NS, 0.0), (300 * NS, None)]))
    env.run()
    assert [row[:3] for row in flow.history] == [
        (0, 0.0, 1e10), (50 * NS, 500.0, 0.0), (300 * NS, 500.0, 1e10), (350 * NS, 1000.0, 0.0)
    ]  # fmt: skip


def test_what_a_limit_leaves_goes_to_the_others(env: Counting, log: list[Any]) -> None:
    ch = channel(env)
    flow = port(ch, "a").start(Parts(1000))
    env.process(limited(env, flow, [(20 * NS, 1e9)]))
    env.process(mover(env, log, port(ch, "b"), 1000))
    env.run()
    # b: 100 bytes by 20 ns at 5 B/ns, then 9 B/ns.
    assert log == [(120 * NS, "b")]


def test_a_negative_limit_is_an_error(env: Counting) -> None:
    flow = port(channel(env), "a").start(Parts(1000))
    with pytest.raises(ValueError, match=r"^a limit of -1 B/s$"):
        flow.set_limit(-1)


def test_a_limit_after_the_end_changes_nothing(env: Counting) -> None:
    flow = port(channel(env), "a").start(Parts(100))
    env.run()
    before = list(flow.history)
    flow.set_limit(1.0)
    env.run()
    assert list(flow.history) == before


def test_the_history_has_the_rate_alone_from_a_new_limit_on(env: Counting) -> None:
    ch = channel(env)
    flow = port(ch, "a").start(Parts(1000))
    port(ch, "b").start(Parts(1000))
    env.process(limited(env, flow, [(20 * NS, 5e9)]))  # it had 5 B/ns of the shared channel anyway
    env.run(until=30 * NS)
    assert flow.history[-1][2:] == (5e9, 5e9)


# History and served


def test_the_history_tells_rate_and_rate_alone_from_each_change_on(env: Counting, log: list[Any]) -> None:
    ch = channel(env)
    flow = port(ch, "a", 8 * GB).start(Parts(1000))
    env.process(mover(env, log, port(ch, "b"), 300, start=50 * NS))
    env.run()
    # 8 B/ns alone: 400 by 50 ns. Then 5 each: b's 300 in 60 ns, a at 700. Its last 300 take 37.5 ns.
    assert list(flow.history) == [
        (0, 0.0, 8e9, 8e9),
        (50 * NS, 400.0, 5e9, 8e9),
        (110 * NS, 700.0, 8e9, 8e9),
        (147_500, 1000.0, 0.0, 8e9),
    ]


def test_served_is_read_off_the_history_at_any_time(env: Counting, log: list[Any]) -> None:
    ch = channel(env)
    env.process(mover(env, log, port(ch, "b"), 500))
    flows: list[Transmission] = []

    def late() -> Iterator[Any]:
        yield env.timeout(20 * NS)
        flows.append(port(ch, "a").start(Parts(1000)))

    env.process(late())
    env.run()
    # b has 200 by 20 ns; 5 each until 80 ns; then 10: a ends at 150 ns.
    (flow,) = flows
    assert [flow.served(t * NS) for t in (0, 10, 20, 40, 80, 90, 150, 999)] == [0, 0, 0, 100, 300, 400, 1000, 1000]


def test_served_of_a_flow_under_way(env: Counting) -> None:
    flow = port(channel(env), "a").start(Parts(1000))
    env.run(until=30 * NS)
    assert flow.served(30 * NS) == 300


def test_the_channel_counts_finished_flows_and_those_under_way(env: Counting, log: list[Any]) -> None:
    ch = channel(env)
    env.process(mover(env, log, port(ch, "a"), 100))
    env.process(mover(env, log, port(ch, "b"), 1000))
    env.run(until=40 * NS)
    # 5 each until 20 ns, then b has 10 B/ns.
    assert ch.moved() == {"a": 100, "b": 300}


# What an observer sees, and what it costs


def test_an_observer_sees_rates_at_starts_ends_and_limits_only(env: Counting, log: list[Any]) -> None:
    watcher = Watcher()
    ch = channel(env, observer=watcher)
    flow = port(ch, "a").start(Parts(1000))
    env.process(mover(env, log, port(ch, "b"), 200, start=10 * NS))
    env.process(limited(env, flow, [(20 * NS, 2e9)]))
    env.run()
    # a: 100 by 10 ns, 150 by 20; b has 50 then and 150 left at 8 B/ns, to 38.75 ns. a has 187.5 then.
    assert watcher.log == [
        (0, {"a": 1e10}),
        (10 * NS, {"a": 5e9, "b": 5e9}),
        (20 * NS, {"a": 2e9, "b": 8e9}),
        (38_750, {"a": 2e9}),
        (38_750 + round(812.5 / 2 * NS), {}),
    ]


def test_a_flow_alone_costs_one_event(env: Counting) -> None:
    port(channel(env), "a").start(Parts(10**9))
    env.run()
    assert env.steps == 1  # the timer of its end


def test_two_flows_cost_events_by_their_changes_not_by_their_bytes() -> None:
    counts = []
    for size in (10**3, 10**9):
        env = Counting()
        ch = channel(env)
        port(ch, "a").start(Parts(size))
        port(ch, "b").start(Parts(2 * size))
        env.run()
        counts.append(env.steps)
    # a's timer, which b's start made stale, a's end, b's end.
    assert counts == [3, 3]


def test_an_observer_sees_the_whole_rate_of_a_master_with_two_flows(env: Counting) -> None:
    watcher = Watcher()
    p = port(channel(env, observer=watcher), "cpu", 3 * GB)
    p.start(Parts(1000))
    p.start(Parts(1000))
    assert sum(watcher.log[-1][1].values()) == sum(f.history[-1][2] for f in p.channel._flows)


# For any starts and sizes

FLOWS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 4), st.sampled_from("abc")),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(flows=FLOWS, policy=st.sampled_from(["proportional", "equal", "strict", "weighted", "regulated"]))
def test_whatever_starts_when_all_bytes_arrive_in_time(flows: list[tuple[int, int, int, str]], policy: str) -> None:
    env = simpy.Environment()
    rules: dict[str, Any] = {
        "strict": {"order": ["b"]}, "weighted": {"weights": {"b": 0.5}}, "regulated": {"limits": {"b": 2 * GB}}
    }  # fmt: skip
    ch = channel(env, policy=policy, **rules.get(policy, {}))
    ports = {name: port(ch, name, rate, window=1000 * rate) for name, rate in (("a", 4 * GB), ("b", 7 * GB), ("c", GB))}
    started: list[tuple[int, Transmission]] = []

    def begin(at: int, size: int, name: str, limit: float) -> Iterator[Any]:
        yield env.timeout(at)
        started.append((env.now, ports[name].start(Parts(size), limit=limit)))

    for at, size, limit, name in flows:
        env.process(begin(at, size, name, limit * 1e9))
    env.run()

    # Bytes served are bytes asked.
    assert all(f.ended for _, f in started)
    assert sum(ch.moved().values()) == sum(size for _, size, _, _ in flows)
    for at, flow in started:
        times = [row[0] for row in flow.history]
        assert times == sorted(times)  # time never runs back
        assert times[0] == at
        arrived = 0.0
        for (t0, by, rate, alone), (t1, then, _, _) in zip(flow.history, flow.history[1:], strict=False):
            assert by == pytest.approx(arrived, abs=0.01)
            assert rate <= alone
            arrived = by + rate * (t1 - t0) / 1e12
            assert then == pytest.approx(arrived, abs=0.01)  # an end rounds up by less than a picosecond
        assert flow.history[-1][1] == flow.bytes
    # The channel never gives more than it has.
    for instant in {row[0] for _, f in started for row in f.history}:
        rates = [next((r[2] for r in reversed(f.history) if r[0] <= instant), 0.0) for _, f in started]
        assert sum(rates) <= 10e9 * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(flows=FLOWS)
def test_a_busy_channel_is_used_up(flows: list[tuple[int, int, int, str]]) -> None:
    env = simpy.Environment()
    ch = channel(env)
    ends: list[Any] = []
    for at, size, _, name in flows:
        env.process(mover(env, ends, port(ch, name), size, at))
    env.run()
    # Every flow alone could fill the channel: it is a queue of bytes served at 10 B/ns, whatever the sharing.
    idle_at = 0.0
    for at, size, _, _ in sorted(flows):
        idle_at = max(idle_at, at) + size * 100
    assert max(t for t, _ in ends) == pytest.approx(idle_at, abs=len(flows) + 1)
