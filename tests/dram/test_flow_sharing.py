"""Who gets how much of the flow model's channel: by policy, by port, by flow; and what it means for latency.

One byte at 1e9 B/s takes 1000 ps; most channels here give 10 B/ns, that is 10 bytes in 1000 ps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import simpy
from flows import Parts

from bpusim.dram import FlowChannel, FlowPort, Ideal, Rules
from bpusim.dram.transmission import Transmission
from bpusim.metrics import Recorder

GB = 10**9
NS = 1000


@pytest.fixture
def env() -> simpy.Environment:
    return simpy.Environment()


@pytest.fixture
def log() -> list[Any]:
    return []


def channel(env: simpy.Environment, peak: int = 10 * GB, policy: Any = "equal", **rules: Any) -> FlowChannel:
    return FlowChannel(env, Ideal(peak), Recorder(), Rules(policy, **rules))


def port(ch: FlowChannel, name: str, rate: int = 10 * GB, window: int = 10**6) -> FlowPort:
    """A port whose window never limits it: 1 MB in 1 ns."""
    return ch.port(name, window, NS, rate)


def mover(env: simpy.Environment, log: list[Any], p: FlowPort, size: int, start: int = 0) -> Iterator[Any]:
    """Starts a flow at ``start`` and logs its end."""
    yield env.timeout(start)
    yield p.start(Parts(size)).done
    log.append((env.now, p.name))


def rates(*flows: Transmission) -> list[float]:
    return [f.history[-1][2] / GB for f in flows]


# By policy


def test_proportional_flows_share_by_their_windows(env: simpy.Environment, log: list[Any]) -> None:
    ch = channel(env, policy="proportional")
    # 2.5 and 7.5 B/ns: b's 750 are there at 100 ns, with a at 250; a's other 750 take 75 ns.
    env.process(mover(env, log, port(ch, "a", window=10**5), 1000))
    env.process(mover(env, log, port(ch, "b", window=3 * 10**5), 750))
    env.run()
    assert log == [(100 * NS, "b"), (175 * NS, "a")]


def test_the_strict_order_starves_who_comes_after(env: simpy.Environment, log: list[Any]) -> None:
    ch = channel(env, policy="strict", order=["first"])
    # last has 100 bytes when first takes it all for 50 ns, and gets its other 900 afterwards.
    env.process(mover(env, log, port(ch, "last"), 1000))
    env.process(mover(env, log, port(ch, "first"), 500, start=10 * NS))
    env.run()
    assert log == [(60 * NS, "first"), (150 * NS, "last")]


def test_masters_that_no_order_names_come_last_and_share_by_window(env: simpy.Environment, log: list[Any]) -> None:
    ch = channel(env, policy="strict", order=["named"])
    # named has it all for 10 ns; then 2.5 and 7.5 B/ns: b's 75 take 10 ns, a has 25 by then and 75 at 10 B/ns.
    for name, size, window in (("a", 100, 10**5), ("b", 75, 3 * 10**5), ("named", 100, 10**5)):
        env.process(mover(env, log, port(ch, name, window=window), size))
    env.run()
    assert log == [(10 * NS, "named"), (20 * NS, "b"), (27_500, "a")]


def test_proportional_flows_of_different_paths_wait_the_same_longer(env: simpy.Environment) -> None:
    ch = channel(env, policy="proportional")
    # 1200 B over 100 ns and 1600 B over 300 ns; 100 ns more and they are 6 and 4 B/ns, which is the channel.
    flows = [ch.port("a", 1200, 100 * NS, 20 * GB), ch.port("b", 1600, 300 * NS, 20 * GB)]
    assert rates(*[p.start(Parts(1000)) for p in flows]) == pytest.approx([6, 4], rel=1e-12)


def test_weighted_flows_share_by_the_weights_of_their_masters(env: simpy.Environment) -> None:
    ch = channel(env, policy="weighted", weights={"a": 3.0})
    flows = [port(ch, "a"), port(ch, "b", window=10**7)]
    assert rates(*[p.start(Parts(1000)) for p in flows]) == [7.5, 2.5]


def test_a_regulated_master_keeps_to_its_limit_alone_and_beside_others(env: simpy.Environment, log: list[Any]) -> None:
    ch = channel(env, policy="regulated", limits={"a": 4 * GB})
    a, b = port(ch, "a"), port(ch, "b")
    assert [a.rate_alone, a.rate_max, b.rate_alone] == [4e9, 4e9, 1e10]
    # 4 and 6 B/ns, though by window it would be 5 each; and 4 still when b has gone.
    env.process(mover(env, log, a, 600))
    env.process(mover(env, log, b, 600))
    env.run()
    assert log == [(100 * NS, "b"), (150 * NS, "a")]


# Several flows of one port


def test_a_port_never_exceeds_what_it_has_alone(env: simpy.Environment) -> None:
    p = channel(env, 15 * GB).port("a", 8192, 479 * NS, 20 * GB)
    assert p.rate_max == p.rate_alone


def test_equal_is_equal_among_ports_not_flows(env: simpy.Environment) -> None:
    ch = channel(env)
    cpu, bpu = port(ch, "cpu"), port(ch, "bpu0")
    flows = [p.start(Parts(1000)) for p in (cpu, bpu, cpu)]
    assert rates(*flows) == [2.5, 5, 2.5]


def test_a_port_shares_among_its_flows_by_what_they_ask(env: simpy.Environment) -> None:
    ch = channel(env)
    cpu, bpu = port(ch, "cpu", 8 * GB), port(ch, "bpu0")
    flows = [cpu.start(Parts(1000), limit=2e9), cpu.start(Parts(1000)), bpu.start(Parts(1000))]
    # cpu gets 5 of 10 for asking 2 and 8.
    assert rates(*flows) == [1, 4, 5]


def test_equal_gives_what_a_port_of_two_flows_leaves_to_the_other(env: simpy.Environment) -> None:
    ch = channel(env)
    cpu, bpu = port(ch, "cpu"), port(ch, "bpu0")
    flows = [cpu.start(Parts(1000), limit=1e9), cpu.start(Parts(1000), limit=2e9), bpu.start(Parts(1000))]
    assert rates(*flows) == [1, 2, 7]


def test_two_flows_of_a_port_do_not_exceed_its_width(env: simpy.Environment) -> None:
    cpu = port(channel(env), "cpu", 6 * GB)
    assert rates(cpu.start(Parts(1000)), cpu.start(Parts(1000)))[1] == 3


def test_two_flows_of_a_port_have_a_window_each(env: simpy.Environment) -> None:
    cpu = channel(env, 20 * GB).port("cpu", 300, 100 * NS, 24 * GB)  # 3 B/ns by its window
    assert rates(cpu.start(Parts(1000)), cpu.start(Parts(1000))) == [3, 3]


def test_a_port_of_two_flows_has_twice_the_window_in_flight(env: simpy.Environment) -> None:
    ch = channel(env, 12 * GB, policy="proportional")
    cpu, bpu = port(ch, "cpu", 12 * GB), port(ch, "bpu0", 12 * GB)
    flows = [cpu.start(Parts(1000)), cpu.start(Parts(1000)), bpu.start(Parts(1000))]
    assert rates(*flows) == [4, 4, 4]


def test_two_flows_of_a_regulated_port_keep_to_its_limit_together(env: simpy.Environment) -> None:
    cpu = port(channel(env, policy="regulated", limits={"cpu": 4 * GB}), "cpu")
    first = cpu.start(Parts(1000))
    assert rates(first, cpu.start(Parts(1000))) == [2, 2]


def test_a_flow_keeps_its_limit_beside_another_of_its_port(env: simpy.Environment) -> None:
    cpu = channel(env, 20 * GB).port("cpu", 300, 100 * NS, 24 * GB)
    assert rates(cpu.start(Parts(1000), limit=1e9), cpu.start(Parts(1000))) == [1, 3]


def test_strict_serves_all_flows_of_the_first_port_first(env: simpy.Environment) -> None:
    ch = channel(env, policy="strict", order=["cpu", "bpu0"])
    cpu, bpu = port(ch, "cpu", 6 * GB), port(ch, "bpu0")
    flows = [bpu.start(Parts(1000)), cpu.start(Parts(1000)), cpu.start(Parts(1000))]
    assert rates(*flows) == [4, 3, 3]


def test_strict_leaves_all_flows_of_the_last_port_the_rest(env: simpy.Environment, log: list[Any]) -> None:
    ch = channel(env, policy="strict", order=["bpu0", "cpu"])
    cpu, bpu = port(ch, "cpu"), port(ch, "bpu0", 8 * GB)
    for p, size in ((cpu, 100), (cpu, 100), (bpu, 400)):
        env.process(mover(env, log, p, size))
    env.run()
    # 1 B/ns each beside 8 for 50 ns; then 5 each for their other 50 bytes.
    assert log == [(50 * NS, "bpu0"), (60 * NS, "cpu"), (60 * NS, "cpu")]


def test_flows_of_a_port_that_ask_nothing_get_nothing(env: simpy.Environment) -> None:
    cpu = port(channel(env), "cpu")
    assert rates(*[cpu.start(Parts(1000), limit=0.0) for _ in range(2)]) == [0, 0]


# Latency


def test_lines_alone_take_the_path_and_lines_that_share_their_window_over_their_rate(env: simpy.Environment) -> None:
    ch = channel(env)
    a, b = (ch.port(name, 500, 50 * NS, 20 * GB) for name in "ab")
    a.start(Parts(500))
    b.start(Parts(1000))
    env.run()
    # 500 B in flight at 5 B/ns: 100 ns a line. b's other 500 bytes come at 10 B/ns: 50 ns a line.
    assert ch.latency() == {"a": pytest.approx(100 * NS), "b": pytest.approx(75 * NS)}
