"""The fluid channel at other clocks than its own: what flows under way get, and who is told.

The channel gives 10 B/ns at its full clock, unless it has the table of a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
import simpy
from flows import Parts, Watcher
from hypothesis import given, settings
from hypothesis import strategies as st

from bpusim.alarm import alarm
from bpusim.dram import FlowChannel, FlowPort, FlowTable, Ideal, Rules, flow_table
from bpusim.dram.behaviour import Behaviour
from bpusim.dram.transmission import Transmission
from bpusim.hardware import MasterSpec
from bpusim.metrics import Recorder
from bpusim.ports import Flow

GB = 10**9
NS = 1000
US = 1000 * NS
TABLE = flow_table("LPDDR4X-3200x64")
Change = tuple[int, float]
"""(when in ps, part of the full clock)."""


def master(**keys: Any) -> MasterSpec:
    return MasterSpec(**{"rate": "4 GB/s", "written": 0.0, **keys})


def channel(
    *changes: Change, behaviour: Behaviour | None = None, observer: Any = None, policy: Any = "equal", **masters: Any
) -> FlowChannel:
    """A channel whose clock will change so; background masters by name."""
    env = simpy.Environment()
    ch = FlowChannel(env, behaviour or Ideal(10 * GB), observer or Recorder(), Rules(policy), list(masters.items()))
    for when, part in changes:
        alarm(env, when, lambda _, part=part: ch.set_clock(part))  # type: ignore[misc]
    return ch


def port(ch: FlowChannel, name: str = "a", rate: int = 10 * GB, window: int = 10**6, path: int = NS) -> FlowPort:
    """A port that nothing but its rate limits."""
    return ch.port(name, window, path, rate)


def end(flow: Transmission) -> int:
    flow.port.channel.env.run()
    return flow.history[-1][0]


# Bytes and time


def test_a_flow_under_way_gets_half_the_rate_from_when_the_clock_halves() -> None:
    # 400 by 40 ns; the other 600 at 5 B/ns.
    flow = port(channel((40 * NS, 0.5))).start(Parts(1000))
    assert end(flow) == 160 * NS
    assert flow.history == [(0, 0.0, 1e10, 1e10), (40 * NS, 400.0, 5e9, 5e9), (160 * NS, 1000.0, 0.0, 5e9)]
    assert not flow.slowed


def test_a_flow_ends_at_the_nearest_picosecond() -> None:
    # 600 B at 7 B/ns: 85 714.3 ps.
    assert end(port(channel((40 * NS, 0.7))).start(Parts(1000))) == 125_714


def test_a_flow_gets_its_rate_again_when_the_clock_is_back() -> None:
    # 400, then 300 in 60 ns, then 300 in 30.
    flow = port(channel((40 * NS, 0.5), (100 * NS, 1.0))).start(Parts(1000))
    assert end(flow) == 130 * NS
    assert [row[:3] for row in flow.history] == [
        (0, 0.0, 1e10), (40 * NS, 400.0, 5e9), (100 * NS, 700.0, 1e10), (130 * NS, 1000.0, 0.0)
    ]  # fmt: skip


def test_parts_are_of_the_clock_the_channel_was_made_for_and_not_of_the_last() -> None:
    # 100, then 100 at 5 B/ns, then 100 at 5 B/ns, then 700 at 2.
    changes = ((10 * NS, 0.5), (30 * NS, 0.5), (50 * NS, 0.2))
    assert end(port(channel(*changes)).start(Parts(1000))) == 400 * NS


def test_a_flow_that_starts_at_a_slow_clock_has_it_from_the_start() -> None:
    ch = channel((0, 0.5))
    ch.env.run(until=7 * NS)
    assert end(port(ch).start(Parts(1000))) == 207 * NS


def test_a_change_in_the_instant_of_the_end_comes_too_late() -> None:
    assert end(port(channel((100 * NS, 0.5))).start(Parts(1000))) == 100 * NS


def test_a_port_slower_than_the_channel_does_not_know_its_clock() -> None:
    flow = port(channel((40 * NS, 0.5)), rate=4 * GB).start(Parts(1000))
    assert end(flow) == 250 * NS


def test_flows_share_what_the_clock_leaves() -> None:
    # 5 B/ns each until 40 ns, then 2.5: 300 B in 120 ns; what is left of b at 5 B/ns, 500 B in 100 ns.
    ch = channel((40 * NS, 0.5))
    a, b = port(ch, "a").start(Parts(500)), port(ch, "b").start(Parts(1000))
    assert (end(a), end(b)) == (160 * NS, 260 * NS)


def test_a_flow_that_had_enough_may_not_have_enough_at_half_the_clock() -> None:
    # 4 and 6 B/ns, then 2.5 each: a has 100 of 160 left at 15 ns, 40 ns more; b has 90 and 100 then, 110 at 5 B/ns.
    ch = channel((15 * NS, 0.5))
    a, b = port(ch, "a", 4 * GB).start(Parts(160)), port(ch, "b", 6 * GB).start(Parts(300))
    assert (end(a), end(b)) == (55 * NS, 77 * NS)
    assert a.slowed
    assert b.slowed


def test_a_limit_of_a_flow_holds_at_any_clock() -> None:
    flow = port(channel((40 * NS, 0.5), (100 * NS, 0.05))).start(Parts(500), limit=2e9)
    # 200 by 100 ns, then 0.5 B/ns.
    assert end(flow) == 700 * NS


def test_a_flow_slower_than_its_pace_is_told_when_the_clock_lets_it_rise() -> None:
    ch = channel((100 * NS, 0.2), (200 * NS, 0.1), (300 * NS, 0.2), (500 * NS, 1.0))
    told: list[int] = []
    flow = port(ch).start(Parts(1800), pace=3e9, rising=lambda: told.append(int(ch.env.now)))
    # 300, then 200 at 2 B/ns, 100 at 1, 400 at 2, then 800 at 3.
    assert end(flow) == pytest.approx(500 * NS + 266_667)
    assert told == [300 * NS, 500 * NS]


@pytest.mark.parametrize("flows", [1, 2])
def test_flows_go_on_at_the_present_clock_when_one_ends(flows: int) -> None:
    ch = channel((40 * NS, 0.5))
    a, b = port(ch, "a"), port(ch, "b").start(Parts(10**4))

    def again(_: Flow) -> None:
        if flows == 2:
            a.start(Parts(500))

    a.start(Parts(500), then=again)
    # 200 each by 40 ns, 2.5 B/ns each until a has all of its bytes.
    assert end(b) == 40 * NS + (500 * flows - 200) * 400 + (10**4 - 500 * flows) * 200


# Who is told


def test_a_port_tells_its_new_rate_while_transfers_have_still_the_old() -> None:
    ch = channel((40 * NS, 0.5), (60 * NS, 1.0))
    p, log = port(ch), list[tuple[Any, ...]]()
    flow = p.start(Parts(1000))
    p.on_change(lambda: log.append((ch.env.now, p.rate_alone, p.rate_max, flow.history[-1][2])))
    ch.env.run()
    assert log == [(40 * NS, 5e9, 5e9, 1e10), (60 * NS, 1e10, 1e10, 5e9)]


def test_every_port_is_told_whether_it_moves_anything_or_not() -> None:
    ch = channel((40 * NS, 0.5))
    log: list[str] = []
    for name in "abc":
        port(ch, name).on_change(lambda name=name: log.append(name))  # type: ignore[misc]
    ch.env.run()
    assert log == ["a", "b", "c"]


def test_an_observer_sees_the_rates_of_the_new_clock() -> None:
    watcher = Watcher()
    ch = channel((40 * NS, 0.5), observer=watcher)
    end(port(ch).start(Parts(1000)))
    assert watcher.log == [(0, {"a": 1e10}), (40 * NS, {"a": 5e9}), (160 * NS, {})]


def test_bytes_so_far_go_by_the_clock() -> None:
    ch = channel((40 * NS, 0.5))
    flow = port(ch).start(Parts(1000))
    ch.env.run(until=100 * NS)
    assert ch.moved() == {"a": 700}
    assert [flow.served(t * NS) for t in (20, 40, 60, 100)] == [200, 400, 500, 700]


# Masters of the machine file


def test_an_open_loop_master_moves_what_the_clock_allows_and_loses_the_rest() -> None:
    # 4 B/ns; 2 B/ns for 200 ns, of which 400 B are too much for its buffer of 100.
    ch = channel((100 * NS, 0.2), (300 * NS, 1.0), cam=master(buffer="100 B"))
    ch.env.run(until=100 * NS)
    assert ch.moved() == {"cam": 400}
    ch.env.run(until=250 * NS)
    assert ch.moved() == {"cam": 400 + 300}
    ch.env.run(until=400 * NS)
    assert (ch.moved(), ch.dropped()) == ({"cam": 400 + 400 + 400}, {"cam": 300})


def test_bursts_are_accounted_at_the_clock_they_had() -> None:
    # 4 B/ns in the first half of each microsecond: the second is slowed to 2 B/ns from 1250 ns on, and what its buffer
    # holds of it (500 B) follows in 250 ns.
    cam = master(on="500 ns", period="1 us", buffer="10 kB")
    ch = channel((1250 * NS, 0.2), cam=cam)
    moved = []
    for ns in (1000, 1250, 1500, 1700, 1800, 2000):
        ch.env.run(until=ns * NS)
        moved.append(ch.moved()["cam"])
    assert moved == [2000, 3000, 3500, 3900, 4000, 4000]
    assert ch.dropped() == {"cam": 0}


def test_bursts_that_nobody_looked_at_are_accounted_at_the_clock_they_had() -> None:
    # 2000 in each of two microseconds at 4 B/ns, though the clock that allows 2 has come when somebody looks; half of
    # it in the third, and what its buffer holds.
    ch = channel((1900 * NS, 0.2), cam=master(on="500 ns", period="1 us", buffer="1 B"))
    ch.env.run(until=3000 * NS)
    assert ch.moved() == {"cam": 2000 + 2000 + 1001}


def test_a_master_with_a_window_shares_what_the_clock_leaves() -> None:
    # Half of 10 B/ns each, then half of 5.
    ch = channel((100 * NS, 0.5), codec=master(rate="10 GB/s", window="1 MB"))
    flow = port(ch).start(Parts(1000))
    ch.env.run(until=200 * NS)
    assert ch.moved() == {"codec": 500 + 250, "a": 500 + 250}
    assert end(flow) == 300 * NS
    assert ch.moved() == {"codec": 1000, "a": 1000}


RATES = st.sampled_from([1.0, 0.7, 0.5, 0.3])
CHANGES = st.lists(st.tuples(st.integers(0, 2 * US), RATES), max_size=5)


def integral(rate: int, changes: Sequence[Change], until: int) -> Fraction:
    """Bytes by ``until`` of a master that asks for ``rate`` B/s of 10 B/ns."""
    steps = [(0, 1.0), *sorted(changes, key=lambda c: c[0]), (until, 1.0)]
    ends = [(t, min(rate, round(10 * GB * part)), then) for (t, part), (then, _) in pairwise(steps)]
    return sum((Fraction(max(min(then, until) - t, 0) * r, 10**12) for t, r, then in ends), Fraction(0))


@settings(max_examples=60, deadline=None)
@given(changes=CHANGES, rate=st.sampled_from([2 * GB, 6 * GB, 9 * GB]), looks=st.lists(st.integers(1, 2 * US)))
def test_bytes_of_a_master_are_its_rates_over_time(changes: list[Change], rate: int, looks: list[int]) -> None:
    ch = channel(*changes, cam=MasterSpec(rate=rate, written=0.0, buffer=1))
    for at in sorted({*looks, 2 * US}):
        ch.env.run(until=at)
        assert ch.moved()["cam"] == pytest.approx(float(integral(rate, changes, at)), abs=1.01)


@settings(max_examples=60, deadline=None)
@given(changes=CHANGES, size=st.integers(1, 20_000), rate=st.sampled_from([2 * GB, 6 * GB, 10 * GB]))
def test_bytes_of_a_flow_are_its_rates_over_time(changes: list[Change], size: int, rate: int) -> None:
    flow = port(channel(*changes), rate=rate).start(Parts(size))
    at = end(flow)
    assert float(integral(rate, changes, at)) == pytest.approx(size, abs=0.011 * (2 + len(changes)))
    for start, by_then, _, _ in flow.history:
        assert by_then == pytest.approx(min(float(integral(rate, changes, start)), size), abs=0.02)


# The table of a device


def test_a_reader_that_saturates_the_channel_gets_half_at_half_the_clock() -> None:
    ch = channel(behaviour=TABLE)
    p = port(ch, rate=100 * GB, window=1 << 16, path=0)
    full = p.rate_alone
    assert full > 0.9 * TABLE.peak
    ch.set_clock(0.5)
    assert p.rate_alone == pytest.approx(full / 2, rel=0.01)


def test_a_reader_that_waits_for_each_line_is_hardly_slower_at_half_the_clock() -> None:
    # Rows take as many nanoseconds as ever; only its burst takes twice as long.
    ch = channel(behaviour=TABLE)
    p = port(ch, rate=100 * GB, window=TABLE.line, path=100 * NS)
    full, latency = p.rate_alone, p.latency
    ch.set_clock(0.5)
    burst = round(TABLE.busy * TABLE.clock)
    assert p.latency == pytest.approx(latency + burst, abs=1)
    assert p.rate_alone == pytest.approx(full * latency / (latency + burst), rel=0.01)
    assert p.rate_alone > 0.9 * full


def given_by(ch: FlowChannel) -> list[Any]:
    """All that a channel's ports and two readers beside each other get."""
    out: list[Any] = []
    for p in ch._ports:
        out += [p.rate_alone, p.rate_max, p.latency, p.latency_alone]
    flows = [p.start(Parts(10**6, written)) for p, written in zip(ch._ports, (0, 10**5, 0), strict=True)]
    return [*out, *[f.rate for f in flows], *[f.latency for f in flows]]


@pytest.mark.parametrize("behaviour", [TABLE, Ideal(10 * GB)])
@pytest.mark.parametrize("changes", [(0.5, 1.0), (0.7, 0.3, 1.0), (1.0,)])
def test_a_channel_is_what_it_was_when_its_clock_is_back(
    behaviour: FlowTable | Ideal, changes: Sequence[float]
) -> None:
    def made() -> FlowChannel:
        ch = channel(behaviour=behaviour)
        for k, name in enumerate("abc"):
            port(ch, name, (4, 9, 20)[k] * GB, (4096, 16384, 65536)[k], 100 * NS)
        return ch

    changed = made()
    for part in changes:
        changed.set_clock(part)
    assert given_by(changed) == given_by(made())


def test_readers_together_get_half_at_half_the_clock() -> None:
    ch = channel(behaviour=TABLE, policy="proportional")
    flows = [port(ch, name, 100 * GB, 1 << 16, 0).start(Parts(10**9)) for name in "ab"]
    full = [f.rate for f in flows]
    ch.set_clock(0.5)
    assert [f.rate for f in flows] == pytest.approx([r / 2 for r in full], rel=0.01)
    ch.set_clock(1.0)
    assert [f.rate for f in flows] == full


@pytest.mark.parametrize("part", [0.9, 0.5, 0.25])
@pytest.mark.parametrize("window", [64, 1024, 4096, 1 << 14, 1 << 18])
def test_a_reader_loses_no_more_than_the_clock_and_gains_nothing(part: float, window: int) -> None:
    slow = TABLE.at_clock(part)
    for path in (0, 50 * NS, 400 * NS):
        for limit in (5 * GB, 17 * GB, 100 * GB):
            for others in ((0.0, 0.0), (3e9 * part, 4096.0)):
                full, found = (t.alone(window, path, limit, others) for t in (TABLE, slow))
                at_most = TABLE.alone(window, path, limit, (others[0] / part, others[1]))
                assert part * min(full, at_most) * 0.999 <= found <= max(full, at_most) * 1.001


# How busy it is, for a governor


def test_a_channel_is_busy_by_what_it_gives_of_what_it_could() -> None:
    # 5 of 10 B/ns for 40 ns, then 5 of 5 for 160: half of 40, all of 160.
    ch = channel((40 * NS, 0.5))
    ch.governed = True
    port(ch, rate=5 * GB).start(Parts(1000))
    ch.env.run(until=1000 * NS)
    assert ch.busy() == pytest.approx(180e-9)


def test_readers_that_ask_for_too_much_keep_it_busy_all_the_time() -> None:
    ch = channel(behaviour=TABLE)  # it gives less than its pins could
    ch.governed = True
    for name in "ab":
        port(ch, name, rate=20 * GB, window=16384, path=100 * NS).start(Parts(100_000))
    ch.env.run(until=2 * US)
    assert ch.busy() == pytest.approx(2e-6)
