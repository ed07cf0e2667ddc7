"""Flows that a master consumes slower than it could fetch them: they ask for part of the time."""

from __future__ import annotations

from math import sqrt

import pytest
import simpy
from flows import Parts

from bpusim.dram import FlowChannel, FlowPort, Ideal
from bpusim.metrics import Recorder

GB = 10**9
SIZE = 10**6


@pytest.fixture
def env() -> simpy.Environment:
    return simpy.Environment()


def channel(env: simpy.Environment, rate: int) -> FlowChannel:
    return FlowChannel(env, Ideal(rate * GB), Recorder())


def port(ch: FlowChannel, name: str, rate: int = 6) -> FlowPort:
    return ch.port(name, 10**6, 0, rate * GB)


def rate(flow: object) -> float:
    return flow.history[-1][2] / GB  # type: ignore[attr-defined, no-any-return]


def test_alone_it_gets_its_pace(env: simpy.Environment) -> None:
    flow = port(channel(env, 10), "a").start(Parts(SIZE), pace=2 * GB)
    env.run()
    assert (env.now, flow.slowed) == (SIZE * 500, False)


def test_a_pace_above_what_the_port_can_do_is_none(env: simpy.Environment) -> None:
    flow = port(channel(env, 10), "a").start(Parts(SIZE), pace=8 * GB)
    assert rate(flow) == 6


def test_others_get_the_average_of_when_it_asks_and_when_not(env: simpy.Environment) -> None:
    """Together each gets 5 of 10; at a pace of 2 it asks 40 % of the time: the other gets 0.4 x 5 + 0.6 x 6."""
    ch = channel(env, 10)
    paced, plain = port(ch, "a").start(Parts(SIZE), pace=2 * GB), port(ch, "b").start(Parts(SIZE))
    assert rate(paced) == 2
    assert rate(plain) == pytest.approx(0.4 * 5 + 0.6 * 6)


def test_one_that_gets_less_than_its_pace_asks_all_the_time(env: simpy.Environment) -> None:
    ch = channel(env, 10)
    paced, plain = port(ch, "a").start(Parts(SIZE), pace=5.5 * GB), port(ch, "b").start(Parts(SIZE))
    assert (rate(paced), rate(plain)) == (5, 5)
    env.run()
    assert paced.slowed


def test_two_of_them_ask_each_by_itself(env: simpy.Environment) -> None:
    """Of 9, three that ask get 3 each, two 4.5, one 6. A part d of the time: d x (4.5 (1 - d) + 3 d) = 2."""
    ch = channel(env, 9)
    paced = [port(ch, name).start(Parts(SIZE), pace=2 * GB) for name in "ab"]
    plain = port(ch, "c").start(Parts(SIZE))
    part = (4.5 - sqrt(4.5**2 - 4 * 1.5 * 2)) / 3
    assert [rate(f) for f in paced] == [2, 2]
    expected = (1 - part) ** 2 * 6 + 2 * part * (1 - part) * 4.5 + part**2 * 3
    assert rate(plain) == pytest.approx(expected, rel=1e-6)


def test_all_get_no_more_than_the_channel_gives(env: simpy.Environment) -> None:
    ch = channel(env, 9)
    flows = [port(ch, name).start(Parts(SIZE), pace=pace * GB) for name, pace in [("a", 3.5), ("b", 1), ("c", 2.5)]]
    assert sum(map(rate, flows)) <= 9 * (1 + 1e-9)
    assert all(rate(f) <= p + 1e-9 for f, p in zip(flows, [3.5, 1, 2.5], strict=True))


def test_it_is_told_when_it_was_too_slow_and_gets_more(env: simpy.Environment) -> None:
    ch = channel(env, 10)
    told: list[int] = []
    port(ch, "a").start(Parts(SIZE), pace=5.5 * GB, rising=lambda: told.append(int(env.now)))
    port(ch, "b").start(Parts(SIZE // 10))
    env.run()
    assert told == [SIZE // 10 * 200]  # the other ends after 100,000 B at 5 B/ns


def test_nobody_is_told_of_one_that_kept_its_pace(env: simpy.Environment) -> None:
    ch = channel(env, 10)
    told: list[int] = []
    port(ch, "a").start(Parts(SIZE), pace=2 * GB, rising=lambda: told.append(int(env.now)))
    port(ch, "b").start(Parts(SIZE // 10))
    env.run()
    assert told == []


def test_cut_short_it_goes_on_without_a_pace(env: simpy.Environment) -> None:
    flow = port(channel(env, 10), "a").start(Parts(SIZE), pace=2 * GB)
    env.run(until=100_000)  # 200 B
    assert flow.cut([100, 5000, SIZE]) == 5000
    assert rate(flow) == 6
    env.run()
    assert flow.history[-1][0] == 100_000 + 800_000  # the other 4800 B at 6 B/ns
