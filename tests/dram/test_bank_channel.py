"""The bank model behind a port, in a simulation: flows, limits, policies, background masters.

A line of the board's channel is 128 B; it peaks at 25.6 GB/s. ``CORE`` is the board's core: 128 lines in flight, 400 ns
away from the channel, 17.1 GB/s on its port.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import simpy

from bpusim.dram import Rules, flow_table
from bpusim.dram.bank.channel import BankChannel, BankFlow, BankPort
from bpusim.dram.timing import channel
from bpusim.errors import HardwareError
from bpusim.hardware import MasterSpec
from bpusim.metrics import Recorder
from bpusim.ports import BufferKind, Flow, Transfer
from bpusim.system import simulate

ROOT = Path(__file__).resolve().parents[2]
NAME = "LPDDR4X-3200x64"
LINE = 128
GB = 10**9
US = 1_000_000
MS = 1000 * US
ENDLESS = 1 << 28
PROPORTIONAL = Rules()
REGIONS: dict[BufferKind, tuple[int, int]] = {
    "weights": (0, 1 << 28),
    "kv": (1 << 28, 1 << 20),
    "spill": (1 << 29, 1 << 20),
    "io": (1 << 29, 1 << 20),
}
FREE = (8192, 100_000, 24 * GB)
WIDE = (32768, 100_000, 24 * GB)
CORE = (16384, 400_000, 17_100_000_000)
"""(window, path, limit) of ports."""


@dataclass(frozen=True)
class Weights:
    """``bytes`` of weights to read, or to write."""

    bytes: int
    write: bool = False

    @property
    def written(self) -> int:
        return self.bytes * self.write

    def __iter__(self) -> Iterator[Transfer]:
        yield Transfer("w", 0, self.bytes, "weights", self.write)


class Bench:
    """A channel with ports ``a``, ``b`` (each in a gigabyte of its own), or as many as ``ports`` has."""

    def __init__(
        self,
        *ports: tuple[int, int, int],
        rules: Rules = PROPORTIONAL,
        count: int = 1,
        cameras: Sequence[MasterSpec] = (),
        slots: int = 1,
    ) -> None:
        self.env = simpy.Environment(initial_time=0)
        names = "abc"[: len(ports)]
        regions = {n: {k: (b + i * (1 << 30), s) for k, (b, s) in REGIONS.items()} for i, n in enumerate(names)}
        self.bank = BankChannel(
            self.env, channel(NAME), flow_table(NAME, count), Recorder(), regions, rules,
            count=count, background=[(f"cam{i}", spec, (3 << 30) + (i << 26)) for i, spec in enumerate(cameras)],
        )  # fmt: skip
        self.ports = [self.bank.port(n, *p, slots=slots) for n, p in zip(names, ports, strict=True)]

    def rates(self, until: int = MS) -> list[float]:
        """GB/s of each port over ``until`` ps, all of them reading all the time."""
        for p in self.ports:
            p.start(Weights(ENDLESS))
        self.env.run(until=until)
        moved = self.bank.moved()
        return [moved[p.name] / until * 1e3 for p in self.ports]


def near(what: str, measured: float, expected: float, percent: float) -> None:
    off = 100 * (measured / expected - 1)
    assert abs(off) <= percent, f"{what}: expected {expected:.4g}, measured {measured:.4g}, deviation {off:+.2f} %"


def two_ports() -> tuple[simpy.Environment, BankChannel, BankPort, BankPort]:
    """Two ports whose window over their latency limits them: 8192 B over 438.4 ns and the channel."""
    bench = Bench(*[(8192, 438_400, 19_500_000_000)] * 2)
    return bench.env, bench.bank, *bench.ports


# Flows.


def test_one_core_reads_what_its_window_allows() -> None:
    """8192 B / (438.4 ns + a row hit of 26 ns, refresh and row misses: some 50 ns): 16 to 17.1 GB/s, as R03."""
    env, _, a, _ = two_ports()
    flow = a.start(Weights(64 << 20))
    env.run(until=flow.done)
    assert 16.0 <= (64 << 20) / (env.now / 1e12) / 1e9 <= 17.1


def test_two_cores_reach_what_the_protocol_gives() -> None:
    """Two sequential readers of this channel reach 22 to 23.5 GB/s (reference figures)."""
    env, _, a, b = two_ports()
    flows = [p.start(Weights(64 << 20)) for p in (a, b)]
    env.run(until=env.all_of([f.done for f in flows]))
    assert 22.0 <= 2 * (64 << 20) / (env.now / 1e12) / 1e9 <= 23.5


def test_all_bytes_arrive_and_are_counted() -> None:
    env, bank, a, b = two_ports()
    env.run(until=env.all_of([a.start(Weights(1 << 20)).done, b.start(Weights(3 << 20)).done]))
    assert bank.moved() == {"a": 1 << 20, "b": 3 << 20}


def test_bytes_of_flows_under_way_are_counted_in_lines() -> None:
    env, bank, a, _ = two_ports()
    flow = a.start(Weights(1 << 20))
    env.run(until=20 * US)
    moved = bank.moved()["a"]
    assert 0 < moved < 1 << 20
    assert moved % LINE == 0
    assert moved == flow.served(env.now)


def test_history_runs_on_and_ends_at_the_last_byte() -> None:
    env, _, a, _ = two_ports()
    flow = a.start(Weights(1 << 20))
    env.run(until=flow.done)
    times, served = zip(*[(t, s) for t, s, _, _ in flow.history], strict=True)
    assert list(times) == sorted(set(times))
    assert list(served) == sorted(served)
    assert (times[-1], served[-1]) == (env.now, float(1 << 20))


def test_a_flow_that_starts_later_slows_the_first_from_then_on() -> None:
    env, _, a, b = two_ports()
    flow = a.start(Weights(16 << 20))
    late = env.timeout(300 * US)
    late.callbacks.append(lambda _: b.start(Weights(64 << 20)))
    env.run(until=flow.done)
    early = flow.served(300 * US) / (300 * US)
    after = ((16 << 20) - flow.served(300 * US)) / (env.now - 300 * US)
    assert after < 0.8 * early


def test_flows_one_after_the_other_take_as_long_as_one() -> None:
    """A megabyte in four parts, each begun in the callback of the one before: some 440 ns of latency more for each."""
    bench = Bench(CORE)
    ends: list[int] = []

    def again(_: Flow) -> None:
        ends.append(int(bench.env.now))
        if len(ends) < 4:
            bench.ports[0].start(Weights(1 << 18), then=again)

    bench.ports[0].start(Weights(1 << 18), then=again)
    bench.env.run()
    whole = Bench(CORE)
    flow = whole.ports[0].start(Weights(1 << 20))
    whole.env.run(until=flow.done)
    assert whole.env.now < ends[-1] < whole.env.now + 4 * 440_000
    assert bench.bank.moved() == {"a": 1 << 20}


def test_a_flow_after_a_pause_takes_as_long_as_at_first() -> None:
    """The channel is refreshed, not used, meanwhile: a refresh more or less, and a clock of rounding."""
    t = channel(NAME).timing.timing
    refresh = (t.RFCab + t.RPab + t.RCD) * 625
    first, late = Bench(CORE), Bench(CORE)
    flow = first.ports[0].start(Weights(1 << 20))
    first.env.run(until=flow.done)
    late.env.run(until=MS + 7)
    flow = late.ports[0].start(Weights(1 << 20))
    late.env.run(until=flow.done)
    assert late.env.now - MS == pytest.approx(first.env.now, abs=refresh + 625)


def test_nothing_to_move_is_done_at_once() -> None:
    env, _, a, _ = two_ports()
    env.run(until=a.start(Weights(0)).done)
    assert env.now == 0


def test_more_transfers_than_places_are_refused() -> None:
    _, _, a, _ = two_ports()
    a.start(Weights(1 << 20))
    with pytest.raises(HardwareError, match="port 'a' has more transfers at a time than it has places"):
        a.start(Weights(1 << 20))


def test_a_port_cannot_come_after_the_first_transfer() -> None:
    _, bank, a, _ = two_ports()
    a.start(Weights(1 << 20))
    with pytest.raises(HardwareError, match="port 'c' comes after the first transfer"):
        bank.port("c", 8192, 0, 1_000_000_000)


def test_channels_side_by_side_move_that_many_times_as_much() -> None:
    """A window of 64 KiB over 100 ns is no limit to one channel nor to two."""
    port = (65536, 100_000, 100 * GB)
    (one,), (two,) = Bench(port).rates(), Bench(port, count=2).rates()
    near("two channels, GB/s", two, 2 * one, 1)


# Limits.


def rate(flow: BankFlow, env: simpy.Environment, duration: int) -> float:
    """GB/s of a flow from now on for ``duration`` ps."""
    before = flow.served(int(env.now))
    env.run(until=env.now + duration)
    return (flow.served(int(env.now)) - before) / duration * 1e3


def test_a_limit_slows_a_flow_down_and_none_lifts_it() -> None:
    """5 GB/s are a line every 25.6 ns; 128 lines on their way at the old rate are 0.8 % of the bytes of 400 us."""
    bench = Bench(CORE)
    flow = bench.ports[0].start(Weights(ENDLESS))
    near("before, GB/s", rate(flow, bench.env, 400 * US), 17.1, 1)
    flow.set_limit(5e9)
    near("limited, GB/s", rate(flow, bench.env, 400 * US), 5, 1)
    flow.set_limit(None)
    near("after, GB/s", rate(flow, bench.env, 400 * US), 17.1, 1)


def test_a_limit_from_the_start_holds_for_that_flow_alone() -> None:
    bench = Bench(CORE)
    flow = bench.ports[0].start(Weights(1 << 20), limit=2e9)
    bench.env.run(until=flow.done)
    near("limited, GB/s", (1 << 20) / bench.env.now * 1e3, 2, 1)
    near("the next, GB/s", rate(bench.ports[0].start(Weights(ENDLESS)), bench.env, 400 * US), 17.1, 1)


def test_a_limit_above_the_port_changes_nothing() -> None:
    bench = Bench(CORE)
    flow = bench.ports[0].start(Weights(ENDLESS), limit=1e12)
    near("GB/s", rate(flow, bench.env, 400 * US), 17.1, 1)


@pytest.mark.parametrize("limit", [0, -1.0])
def test_a_flow_cannot_be_stopped(limit: float) -> None:
    flow = Bench(CORE).ports[0].start(Weights(1 << 20))
    with pytest.raises(ValueError, match=f"a limit of {limit} B/s"):
        flow.set_limit(limit)


# Latency.


def test_latency_of_one_line_at_a_time() -> None:
    """100 ns of path, then 1 clock to be seen, RL 28 + tDQSCK 3 + BL 8 + 3 for a row hit: 126.9 ns; more for rows.

    A line in four opens a row (tRP 29 + tRCD 29 at most, part of them hidden), a refresh's 0.3 us meet one line in 28.
    """
    bench = Bench((LINE, 100_000, 24 * GB))
    bench.rates()
    hit = (1 + 28 + 3 + 8 + 3) * 0.625
    assert 100 + hit <= bench.bank.latency()["a"] / 1000 <= 100 + hit + 58 * 0.625 / 4 + 330 / 28


def test_a_window_of_a_core_alone_is_its_rate_times_its_latency() -> None:
    """Little's law at both ends: no port limit, 8192 B in flight, so rate x latency is 8192 B."""
    bench = Bench((8192, 438_400, 24 * GB))
    (got,) = bench.rates()
    near("bytes in flight", got * bench.bank.latency()["a"] / 1000, 8192, 1)


def test_a_window_beside_another_is_its_rate_times_its_latency() -> None:
    """The same when the channel is what limits: lines that wait for a place in the controller wait as well."""
    bench = Bench(FREE, WIDE)
    for got, latency, (window, _, _) in zip(bench.rates(), bench.bank.latency().values(), (FREE, WIDE), strict=True):
        near("bytes in flight", got * latency / 1000, window, 5)


def test_nobody_has_a_latency_before_the_first_transfer() -> None:
    assert Bench(CORE).bank.latency() == {}


# Policies, two ports that ask for more than the channel gives.


def test_proportional_shares_are_by_window() -> None:
    a, b = Bench(FREE, WIDE).rates()
    near("windows 1:4", b / a, 4, 3)


def test_equal_shares_whatever_the_window() -> None:
    a, b = Bench(FREE, WIDE, rules=Rules("equal")).rates()
    near("windows 1:4", b / a, 1, 3)


def test_equal_shares_leave_what_one_does_not_need() -> None:
    """One asks for 5 GB/s, less than half: it gets them, the other the rest."""
    a, b = Bench((8192, 100_000, 5 * GB), WIDE, rules=Rules("equal")).rates()
    near("the small, GB/s", a, 5, 1)
    near("both, GB/s", a + b, sum(Bench(FREE, WIDE).rates()), 3)


@pytest.mark.parametrize("windows", [(WIDE, WIDE), (FREE, WIDE), (WIDE, FREE)])
def test_weighted_shares(windows: tuple[tuple[int, int, int], ...]) -> None:
    a, b = Bench(*windows, rules=Rules("weighted", weights={"a": 3, "b": 1})).rates()
    near("weights 3:1", a / b, 3, 3)


def test_strict_leaves_the_first_as_fast_as_alone() -> None:
    (alone,) = Bench(CORE).rates()
    together = Bench(CORE, CORE).rates()
    first, second = Bench(CORE, CORE, rules=Rules("strict", order=("a", "b"))).rates()
    near("first, GB/s", first, alone, 3)
    near("both, GB/s", first + second, sum(together), 3)
    assert together[0] < 0.75 * alone


def test_strict_goes_by_the_order_and_not_by_the_port() -> None:
    a, b = Bench(CORE, CORE, rules=Rules("strict", order=("b", "a"))).rates()
    near("first, GB/s", b, 17.1, 3)
    assert a < 8


def test_regulated_caps_the_one_and_frees_the_other() -> None:
    a, b = Bench(CORE, CORE, rules=Rules("regulated", limits={"b": 4 * GB})).rates()
    near("regulated, GB/s", b, 4, 1)
    near("the other, GB/s", a, 17.1, 3)


def test_a_port_of_two_transfers_has_one_share() -> None:
    """Fair queueing is between ports: the CPU's two cores get together what the other gets."""
    bench = Bench(WIDE, WIDE, rules=Rules("equal"), slots=2)
    cpu, core = bench.ports
    for p in (cpu, cpu, core):
        p.start(Weights(ENDLESS))
    bench.env.run(until=MS)
    moved = bench.bank.moved()
    near("two transfers to one", moved["a"] / moved["b"], 1, 3)


def reads_beside_writes(rules: Rules) -> tuple[float, float]:
    """GB/s of a core that reads and of one that writes."""
    bench = Bench(CORE, CORE, rules=rules)
    bench.ports[0].start(Weights(ENDLESS))
    bench.ports[1].start(Weights(ENDLESS, write=True))
    bench.env.run(until=MS)
    moved = bench.bank.moved()
    return moved["a"] / MS * 1e3, moved["b"] / MS * 1e3


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(), 1),
        (Rules("equal"), 1),
        (Rules("weighted", weights={"a": 3}), 3),
        (Rules("weighted", weights={"b": 3}), 1 / 3),
    ],
)
def test_writes_keep_to_the_shares(rules: Rules, expected: float) -> None:
    a, b = reads_beside_writes(rules)
    near("reads to writes", a / b, expected, 3)


def test_writes_of_the_second_leave_the_first_as_fast_as_alone() -> None:
    first, _ = reads_beside_writes(Rules("strict", order=("a", "b")))
    near("first, GB/s", first, 17.1, 3)


# Background masters.


def test_a_camera_below_capacity_gets_its_rate_and_drops_nothing() -> None:
    camera = MasterSpec(rate=4 * GB, written=1.0)
    bench = Bench(CORE, CORE, cameras=[camera])
    bench.rates()
    assert bench.bank.moved()["cam0"] == pytest.approx(4 * GB * 1e-3, abs=camera.buffer)
    assert bench.bank.dropped() == {"cam0": 0}


def test_a_camera_takes_from_the_others() -> None:
    (alone,), (beside,) = Bench(WIDE).rates(), Bench(WIDE, cameras=[MasterSpec(rate=4 * GB, written=0.0)]).rates()
    assert beside < alone - 3.5


@pytest.mark.parametrize("written", [0.0, 1.0])
def test_a_camera_above_capacity_drops_what_its_buffer_cannot_hold(written: float) -> None:
    """A line every 7 clocks, where the channel takes 8: 228,572 in 1.6 million clocks.

    They are moved, dropped, in the buffer of 256 lines, or (64 reads at most) on their way.
    """
    camera = MasterSpec(rate=29_257_142_857, written=written)
    bench = Bench(CORE, cameras=[camera])
    bench.rates()
    moved, dropped = bench.bank.moved()["cam0"] // LINE, bench.bank.dropped()["cam0"] // LINE
    assert dropped > 228_572 / 8
    assert 0 <= 228_572 - moved - dropped <= 256 + (0 if written else 64)


@pytest.mark.parametrize("beside", [(), (CORE,)])
def test_a_bursty_camera_moves_its_rate_in_its_time(beside: Any) -> None:
    """8 GB/s for 100 of every 400 us: 6250 lines a burst, and the last of them may be still in the buffer."""
    bench = Bench(*beside, cameras=[MasterSpec(rate=8 * GB, written=1.0, on=100 * US, period=400 * US)])
    for n in (1, 2, 3):
        for p in bench.ports[: n == 1]:
            p.start(Weights(ENDLESS))
        bench.env.run(until=n * 400 * US)
        assert bench.bank.moved()["cam0"] / LINE == pytest.approx(6250 * n, abs=2 * n)
    assert bench.bank.dropped() == {"cam0": 0}


def test_a_camera_goes_on_while_no_flow_is_under_way() -> None:
    """Between two flows, and after the last: 4 GB/s are 4 kB a microsecond."""
    camera = MasterSpec(rate=4 * GB, written=1.0)
    bench = Bench(CORE, cameras=[camera])
    for at in (100 * US, MS, 2 * MS):
        bench.env.run(until=at)
        assert bench.bank.moved()["cam0"] == pytest.approx(4 * GB * at / 1e12, abs=4 * LINE)
        bench.env.run(until=bench.ports[0].start(Weights(1 << 18)).done)
        assert bench.bank.moved()["cam0"] == pytest.approx(4 * GB * bench.env.now / 1e12, abs=camera.buffer)
    assert bench.bank.moved()["a"] == 3 << 18


def test_two_cameras_are_told_apart() -> None:
    bench = Bench(CORE, cameras=[MasterSpec(rate=n * GB, written=0.0) for n in (1, 2)])
    bench.rates()
    moved = bench.bank.moved()
    near("first, GB/s", moved["cam0"] / MS * 1e3, 1, 1)
    near("second, GB/s", moved["cam1"] / MS * 1e3, 2, 1)


def test_a_master_with_a_window_shares_like_a_core() -> None:
    """It shares like a core: not in ``dropped``, and strict puts it behind the one that is named."""
    gpu = MasterSpec(rate=20 * GB, written=0.0, window=16384, latency=100_000)
    bench = Bench(CORE, rules=Rules("strict", order=("a",)), cameras=[gpu])
    (first,) = bench.rates()
    near("first, GB/s", first, 17.1, 3)
    assert bench.bank.dropped() == {}
    assert 4 < bench.bank.moved()["cam0"] / MS * 1e3 < 8


# Scenarios.


@pytest.fixture(scope="module")
def small() -> list[str]:
    return [
        "streams.alice.requests=1",
        "streams.alice.output=2",
        "streams.alice.prompt=1",
        "models.chat.trace=" + str(ROOT / "traces" / "qwen2.5-0.5b-int4.trace"),
    ]


def test_a_scenario_runs_at_bank_fidelity_within_reach_of_flow(small: list[str]) -> None:
    """A 0.5B decode step is bytes over bandwidth and host work at both."""
    flow = simulate(ROOT / "scenarios" / "single_3b.yaml", set=small)
    bank = simulate(ROOT / "scenarios" / "single_3b.yaml", set=[*small, "engine.dram=bank"])
    near("TPOT, ms", bank.streams["alice"].tpot_mean_ms, flow.streams["alice"].tpot_mean_ms, 3)
    assert bank.dram.moved == flow.dram.moved
    assert bank.dram.fidelity == "bank"


def test_a_mapping_that_only_the_bank_model_knows_runs(small: list[str]) -> None:
    """The flow model's tables are made for a few address mappings; the bank model takes any."""
    changes = [*small, "engine.dram=bank", "machine.dram.mapping=co ba ro ra", "streams.alice.output=1"]
    result = simulate(ROOT / "scenarios" / "single_3b.yaml", set=changes)
    assert (result.dram.preset, result.dram.peak_bytes_per_s) == (NAME, 25_600_000_000)
