"""Masters with traffic of their own on the flow model: what they move, what they lose, and what they leave.

The channel gives 10 B/ns; a master of 4 GB/s moves 4 bytes in a nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import simpy
from flows import Parts, Watcher
from hypothesis import given, settings
from hypothesis import strategies as st

from bpusim.dram import FlowChannel, FlowPort, Ideal, Rules
from bpusim.dram.transmission import Transmission
from bpusim.hardware import MasterSpec
from bpusim.metrics import Recorder

GB = 10**9
NS = 1000
MS = 10**9
POLICIES = ["proportional", "equal", "strict", "weighted", "regulated"]


@dataclass(frozen=True)
class Noting(Ideal):
    """Notes what it is asked."""

    capacities: Any = None
    others: Any = None

    def capacity(self, *asked: float) -> float:
        self.capacities.append(asked)
        return float(self.peak)

    def alone(self, window: int, path: int, limit: float, others: tuple[float, float]) -> float:
        self.others.append(others)
        return super().alone(window, path, limit, others)


@pytest.fixture
def env() -> simpy.Environment:
    return simpy.Environment()


def master(rate: str = "4 GB/s", **keys: Any) -> MasterSpec:
    return MasterSpec(**{"rate": rate, "written": 1.0, **keys})


def channel(
    env: simpy.Environment, policy: Any = "proportional", behaviour: Any = None, observer: Any = None, **masters: Any
) -> FlowChannel:
    """A channel of 10 B/ns with background masters by name; ``rules`` among them are those."""
    rules = masters.pop("rules", {})
    behaviour = behaviour or Ideal(10 * GB)
    return FlowChannel(env, behaviour, observer or Recorder(), Rules(policy, **rules), list(masters.items()))


def port(ch: FlowChannel, name: str = "core", rate: int = 10 * GB) -> FlowPort:
    """A port whose window never limits it: 1 MB in 1 ns."""
    return ch.port(name, 10**6, NS, rate)


def gpu(rate: str = "10 GB/s", **keys: Any) -> MasterSpec:
    """A closed-loop master with the window and the path of :func:`port`."""
    return master(rate, **{"window": "1 MB", "latency": "1 ns", **keys})


def rows(flow: Transmission) -> list[tuple[int, float, float]]:
    return [row[:3] for row in flow.history]


def drained(env: simpy.Environment, most: int = 1000) -> int:
    """Events until there are none left; more than ``most`` is a run that never ends."""
    for n in range(most):
        try:
            env.step()
        except simpy.core.EmptySchedule:
            return n
    raise AssertionError(f"still going after {most} events, at {env.now} ps")


# Open loop, all the time


@pytest.mark.parametrize("policy", POLICIES)
def test_an_open_loop_master_takes_its_rate_first_whatever_the_policy(env: simpy.Environment, policy: str) -> None:
    ch = channel(env, policy, cam=master(), rules={"order": ["core", "cam"]} if policy == "strict" else {})
    flow = port(ch).start(Parts(600))
    env.run()
    # 6 B/ns are left.
    assert rows(flow) == [(0, 0.0, 6e9), (100 * NS, 600.0, 0.0)]
    assert ch.moved() == {"core": 600, "cam": 400}
    assert ch.dropped() == {"cam": 0}


def test_what_it_leaves_is_shared(env: simpy.Environment) -> None:
    ch = channel(env, cam=master())
    flows = [port(ch, name).start(Parts(300)) for name in "ab"]
    env.run()
    assert [rows(f)[-1] for f in flows] == [(100 * NS, 300.0, 0.0)] * 2


def test_it_moves_its_rate_with_nobody_else_there(env: simpy.Environment) -> None:
    ch = channel(env, cam=master())
    env.run(until=250 * NS)
    assert ch.moved() == {"cam": 1000}


def test_two_that_fit_get_their_rates(env: simpy.Environment) -> None:
    ch = channel(env, cam=master(), out=master("3 GB/s"))
    flow = port(ch).start(Parts(300))
    env.run()
    assert rows(flow)[-1][0] == 100 * NS
    assert ch.moved() == {"core": 300, "cam": 400, "out": 300}


def test_an_observer_sees_what_it_takes(env: simpy.Environment) -> None:
    watcher = Watcher()
    ch = channel(env, observer=watcher, cam=master())
    port(ch).start(Parts(600))
    env.run()
    assert watcher.log == [(0, {"core": 6e9, "cam": 4e9}), (100 * NS, {"cam": 4e9})]


# Open loop, more than there is


def test_beyond_the_channel_it_holds_what_its_buffer_takes_and_drops_the_rest(env: simpy.Environment) -> None:
    ch = channel(env, cam=master("14 GB/s", buffer="1 kB"))
    # 4 B/ns too many: 1000 of them are held by 250 ns, what comes after is lost.
    env.run(until=250 * NS)
    assert (ch.moved(), ch.dropped()) == ({"cam": 2500}, {"cam": 0})
    env.run(until=1000 * NS)
    assert (ch.moved(), ch.dropped()) == ({"cam": 10_000}, {"cam": 3000})


def test_two_beyond_the_channel_get_the_same_part_of_what_they_want(env: simpy.Environment) -> None:
    ch = channel(env, a=master("15 GB/s", buffer="0 B"), b=master("5 GB/s", buffer="0 B"))
    env.run(until=1000 * NS)
    # Half of each.
    assert (ch.moved(), ch.dropped()) == ({"a": 7500, "b": 2500}, {"a": 7500, "b": 2500})


@pytest.mark.parametrize("rate", ["10 GB/s", "14 GB/s"])
def test_a_core_beside_one_that_takes_it_all_stands_still_and_the_run_ends(env: simpy.Environment, rate: str) -> None:
    ch = channel(env, cam=master(rate))
    flow = port(ch).start(Parts(600))
    assert drained(env) <= 2
    assert rows(flow) == [(0, 0.0, 0.0)]
    assert (env.now, ch.moved()["core"]) == (0, 0)


def test_bursts_beside_one_that_takes_it_all_do_not_keep_the_run_going(env: simpy.Environment) -> None:
    ch = channel(env, cam=master("10 GB/s"), out=master("1 GB/s", on="10 ns", period="30 ns"))
    flow = port(ch).start(Parts(600))
    drained(env)
    assert not flow.ended


def test_a_core_that_bursts_alone_hold_up_goes_on_after_them(env: simpy.Environment) -> None:
    ch = channel(env, out=master("10 GB/s", on="100 ns", period="150 ns"))
    flow = port(ch).start(Parts(600))
    drained(env)
    # 500 bytes from 100 to 150 ns, 100 more from 250 ns on.
    assert rows(flow) == [
        (0, 0.0, 0.0), (100 * NS, 0.0, 1e10), (150 * NS, 500.0, 0.0), (250 * NS, 500.0, 1e10), (260 * NS, 600.0, 0.0)
    ]  # fmt: skip


def test_two_that_fill_the_channel_together_let_go_when_one_pauses(env: simpy.Environment) -> None:
    ch = channel(env, cam=master("6 GB/s"), out=master("4 GB/s", on="100 ns", period="150 ns"))
    flow = port(ch).start(Parts(200))
    drained(env)
    assert rows(flow) == [(0, 0.0, 0.0), (100 * NS, 0.0, 4e9), (150 * NS, 200.0, 0.0)]


def test_a_core_held_at_nothing_does_not_keep_bursts_going(env: simpy.Environment) -> None:
    ch = channel(env, out=master(on="10 ns", period="30 ns"))
    flow = port(ch).start(Parts(600), limit=0.0)
    drained(env)
    flow.set_limit(None)
    drained(env)
    assert flow.ended


def test_a_core_gets_nothing_at_all_of_nothing(env: simpy.Environment) -> None:
    ch = channel(env, cam=master("19.4 GB/s"))
    flow = port(ch).start(Parts(600))
    assert rows(flow) == [(0, 0.0, 0.0)]


def test_a_run_that_cannot_go_on_ends_though_sums_are_rounded(env: simpy.Environment) -> None:
    ch = channel(env, cam=master("19.4 GB/s"), pad=gpu(on="10 ns", period="30 ns"))
    port(ch).start(Parts(600))
    drained(env)


# Open loop, in bursts


def test_rates_change_at_the_edges_of_a_burst(env: simpy.Environment) -> None:
    ch = channel(env, out=master(on="100 ns", period="300 ns"))
    flow = port(ch).start(Parts(2900))
    env.run()
    # 6 B/ns beside the burst, 10 after it.
    assert rows(flow) == [
        (0, 0.0, 6e9), (100 * NS, 600.0, 1e10), (300 * NS, 2600.0, 6e9), (350 * NS, 2900.0, 0.0)
    ]  # fmt: skip
    assert ch.moved() == {"core": 2900, "out": 600}


def test_a_flow_that_starts_between_bursts_finds_the_channel_free(env: simpy.Environment) -> None:
    ch = channel(env, out=master(on="100 ns", period="300 ns"))
    env.run(until=850 * NS)  # the third burst ended at 700 ns, the next begins at 900
    flow = port(ch).start(Parts(800))
    env.run()
    assert rows(flow) == [(850 * NS, 0.0, 1e10), (900 * NS, 500.0, 6e9), (950 * NS, 800.0, 0.0)]


@pytest.mark.parametrize(
    ("at", "moved"), [(50, 200), (100, 400), (200, 400), (300, 400), (350, 600), (700, 1200), (3000, 4000)]
)
def test_a_burst_moves_its_rate_for_as_long_as_it_lasts_with_nobody_there(
    env: simpy.Environment, at: int, moved: int
) -> None:
    ch = channel(env, out=master(on="100 ns", period="300 ns"))
    env.run(until=at * NS)
    assert ch.moved() == {"out": moved}


def test_idle_time_costs_no_events_and_loses_no_bytes(env: simpy.Environment) -> None:
    ch = channel(env, cam=master("1 GB/s", on="4 ms", period="33 ms"), out=master("2 GB/s", on="1 ms", period="10 ms"))
    env.run(until=1000 * MS)
    # cam: 30 periods and 10 ms: 31 x 4 ms. out: 100 x 1 ms.
    assert ch.moved() == {"cam": 124_000_000, "out": 200_000_000}
    assert drained(env) <= 1  # SimPy's own, of run(until)


def test_looking_on_the_way_changes_nothing(env: simpy.Environment) -> None:
    ch = channel(env, out=master(on="100 ns", period="300 ns"))
    flow = port(ch).start(Parts(2900))
    for t in (0, 30, 100, 101, 300, 349):
        env.run(until=t * NS + 1)
        ch.moved()
    env.run()
    assert rows(flow)[-1] == (350 * NS, 2900.0, 0.0)
    assert ch.moved() == {"core": 2900, "out": 600}


def test_a_burst_without_a_break_is_no_burst(env: simpy.Environment) -> None:
    ch = channel(env, cam=master(on="10 ns", period="10 ns"))
    flow = port(ch).start(Parts(600))
    assert drained(env) == 1
    assert rows(flow) == [(0, 0.0, 6e9), (100 * NS, 600.0, 0.0)]


def test_what_a_burst_could_not_move_goes_out_after_it(env: simpy.Environment) -> None:
    ch = channel(env, out=master("14 GB/s", on="100 ns", period="200 ns"))
    env.run(until=100 * NS)
    assert ch.moved() == {"out": 1000}
    env.run(until=200 * NS)
    assert (ch.moved(), ch.dropped()) == ({"out": 1400}, {"out": 0})


def test_what_a_burst_could_not_move_or_hold_is_lost(env: simpy.Environment) -> None:
    ch = channel(env, out=master("14 GB/s", on="100 ns", period="200 ns", buffer="300 B"))
    env.run(until=400 * NS)
    # 1400 come, 1000 go and 300 are held each time.
    assert (ch.moved(), ch.dropped()) == ({"out": 2600}, {"out": 200})


def test_what_a_buffer_held_takes_its_time_on_the_channel(env: simpy.Environment) -> None:
    ch = channel(env, out=master("20 GB/s", on="1 us", period="2 us", buffer="32 KiB"))
    port(ch).start(Parts(10**6))
    env.run(until=4000 * NS)
    assert sum(ch.moved().values()) <= 10 * 4000


# Closed loop


@pytest.mark.parametrize(
    ("policy", "rules", "left"),
    [
        ("proportional", {}, 5e9),
        ("equal", {}, 5e9),
        ("weighted", {"weights": {"gpu": 4.0}}, 2e9),
        ("strict", {"order": ["gpu", "core"]}, 0.0),
        ("strict", {"order": ["core"]}, 1e10),
        ("regulated", {"limits": {"gpu": 3 * GB}}, 7e9),
    ],
)
def test_a_master_with_a_window_shares_like_a_core(
    env: simpy.Environment, policy: str, rules: dict[str, Any], left: float
) -> None:
    watcher = Watcher()
    ch = channel(env, policy, observer=watcher, gpu=gpu(), rules=rules)
    port(ch).start(Parts(1000))
    assert watcher.log == [(0, {"core": left, "gpu": 1e10 - left})]


def test_it_has_no_more_than_its_window_moves(env: simpy.Environment) -> None:
    ch = channel(env, gpu=gpu(window="300 B", latency="100 ns"))
    env.run(until=100 * NS)
    assert ch.moved() == {"gpu": 300}


def test_it_asks_for_no_more_than_its_rate(env: simpy.Environment) -> None:
    ch = channel(env, gpu=gpu("2 GB/s"))
    flow = port(ch).start(Parts(800))
    env.run()
    assert rows(flow)[-1] == (100 * NS, 800.0, 0.0)
    assert ch.moved() == {"core": 800, "gpu": 200}


def test_it_waits_and_drops_nothing(env: simpy.Environment) -> None:
    ch = channel(env, gpu=gpu(), cam=master("10 GB/s", buffer="0 B"))
    env.run(until=100 * NS)
    assert (ch.moved(), ch.dropped()) == ({"gpu": 0, "cam": 1000}, {"cam": 0})


def test_its_bursts_begin_and_end_at_the_edges(env: simpy.Environment) -> None:
    ch = channel(env, gpu=gpu(on="100 ns", period="300 ns"))
    flow = port(ch).start(Parts(2750))
    env.run()
    # 5 B/ns for 100 ns, 10 for 200, then 5 for 50.
    assert rows(flow) == [
        (0, 0.0, 5e9), (100 * NS, 500.0, 1e10), (300 * NS, 2500.0, 5e9), (350 * NS, 2750.0, 0.0)
    ]  # fmt: skip
    assert ch.moved() == {"core": 2750, "gpu": 750}


def test_a_core_that_comes_last_goes_on_between_its_bursts(env: simpy.Environment) -> None:
    ch = channel(env, "strict", gpu=gpu(on="100 ns", period="150 ns"), rules={"order": ["gpu"]})
    flow = port(ch).start(Parts(500))
    drained(env)
    assert rows(flow) == [(0, 0.0, 0.0), (100 * NS, 0.0, 1e10), (150 * NS, 500.0, 0.0)]


def test_a_core_that_comes_last_beside_one_without_a_break_stands_still(env: simpy.Environment) -> None:
    ch = channel(env, "strict", gpu=gpu(), out=gpu(on="10 ns", period="30 ns"), rules={"order": ["gpu"]})
    flow = port(ch).start(Parts(500))
    drained(env)
    assert not flow.ended


def test_a_window_without_a_latency_does_not_limit_it(env: simpy.Environment) -> None:
    ch = channel(env, gpu=master("2 GB/s", window="300 B"))
    env.run(until=100 * NS)
    assert ch.moved() == {"gpu": 200}


# What the channel's behaviour is asked


def test_the_capacity_is_asked_for_the_traffic_there_is(env: simpy.Environment) -> None:
    asked: list[Any] = []
    ch = channel(env, behaviour=Noting(10 * GB, 4096, asked, []), cam=master(written=0.5))
    port(ch).start(Parts(1000, written=200))
    # The core writes for a fifth of the time, in which the camera reads; half of the camera's 4 B/ns is written.
    streams, written, part, posted = asked[-1]
    assert (streams, part, posted) == (2, pytest.approx(0.2), 2e9)
    assert written == pytest.approx(6 / 10, rel=0.05)  # the core gets 6 of 10, as near as four rounds come


def test_a_writer_is_no_stream_of_its_own_beside_others(env: simpy.Environment) -> None:
    asked: list[Any] = []
    ch = channel(env, behaviour=Noting(10 * GB, 4096, asked, []), cam=master("6 GB/s"), gpu=gpu("4 GB/s", written=0))
    env.run(until=NS)
    ch.moved()
    assert asked[-1] == (1, 0.0, 0.0, 6e9)


def test_a_core_is_told_what_masters_take_and_may_have_in_flight(env: simpy.Environment) -> None:
    others: list[Any] = []
    ch = channel(env, behaviour=Noting(10 * GB, 4096, [], others), cam=master(), out=master("1 GB/s"))
    port(ch).start(Parts(1000))
    assert others[-1] == (5e9, 2 * 4096.0)


# For any masters and flows

SPANS = st.sampled_from([{}, {"on": "30 ns", "period": "70 ns"}, {"on": "1 us", "period": "3 us"}])
OPEN = st.builds(
    lambda rate, buffer, span: master(f"{rate} GB/s", buffer=f"{buffer} B", **span),
    st.integers(1, 14), st.sampled_from([0, 100, 32768]), SPANS,
)  # fmt: skip
CLOSED = st.builds(
    lambda rate, window, span: gpu(f"{rate} GB/s", window=f"{window} B", latency="100 ns", **span),
    st.integers(1, 14), st.integers(64, 4096), SPANS,
)  # fmt: skip
BACKGROUND = st.lists(st.one_of(OPEN, CLOSED), min_size=1, max_size=4)
FLOWS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 20_000), st.integers(0, 2)), max_size=8)


def on_time(spec: MasterSpec, until: int) -> int:
    """Picoseconds before ``until`` in which it was on."""
    if spec.period is None or spec.on is None:
        return until
    whole, rest = divmod(until, spec.period)
    return whole * spec.on + min(rest, spec.on)


@settings(max_examples=60, deadline=None)
@given(
    background=BACKGROUND,
    flows=FLOWS,
    policy=st.sampled_from(POLICIES),
    looks=st.lists(st.integers(1, 2 * 10**7), min_size=1, max_size=6),
)
def test_whatever_comes_when_bytes_are_kept_and_rates_are_fair(
    background: list[MasterSpec], flows: list[tuple[int, int, int]], policy: str, looks: list[int]
) -> None:
    env, watcher = simpy.Environment(), Watcher()
    masters = {f"m{i}": spec for i, spec in enumerate(background)}
    rules = {"order": ["p1", "m0"], "weights": {"p0": 2.5, "m0": 0.5}, "limits": {"p2": 3 * GB, "m1": GB}}
    kept = {"strict": "order", "weighted": "weights", "regulated": "limits"}.get(policy)
    ch = channel(env, policy, observer=watcher, rules={kept: rules[kept]} if kept else {}, **masters)
    ports = [ch.port(f"p{i}", window, 100 * NS, 8 * GB) for i, window in enumerate((500, 1000, 4000))]
    started: list[Transmission] = []

    def begin(at: int, size: int, i: int) -> Iterator[Any]:
        yield env.timeout(at)
        started.append(ports[i].start(Parts(size)))

    for flow in flows:
        env.process(begin(*flow))
    before: dict[str, int] = {}
    for look in sorted(set(looks)):
        env.run(until=look)
        moved, dropped = ch.moved(), ch.dropped()
        assert all(moved[name] >= n for name, n in before.items())  # bytes that have moved stay moved
        before = moved
        for name, spec in masters.items():
            came = spec.rate * on_time(spec, look) / 1e12
            if spec.window is None:  # all that came has moved, is lost, or is held
                assert -1 <= came - moved[name] - dropped[name] <= spec.buffer + 3
            else:
                assert moved[name] <= came + 1
                assert name not in dropped
    for _, given_rates in watcher.log:
        assert sum(given_rates.values()) <= 10 * GB * (1 + 1e-9)
        assert all(r >= 0 for r in given_rates.values())
        assert all(r <= masters[n].rate for n, r in given_rates.items() if n in masters)
    for f in started:
        assert all(rate <= alone * (1 + 1e-9) for _, _, rate, alone in f.history)


@settings(max_examples=40, deadline=None)
@given(specs=st.lists(OPEN, min_size=1, max_size=3), until=st.integers(1, 10**8))
def test_open_loop_masters_that_fit_move_all_they_bring(specs: list[MasterSpec], until: int) -> None:
    env = simpy.Environment()
    ch = channel(env, behaviour=Ideal(50 * GB), **{f"m{i}": s for i, s in enumerate(specs)})
    env.run(until=until)
    moved = ch.moved()
    for i, spec in enumerate(specs):
        assert moved[f"m{i}"] == pytest.approx(spec.rate * on_time(spec, until) / 1e12, abs=1.01)
    assert not any(ch.dropped().values())
