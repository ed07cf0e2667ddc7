"""Where the power goes: activity of known cost, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import simpy
from flows import Parts
from hypothesis import given
from hypothesis import strategies as st

from bpusim.dram import FlowChannel, Ideal
from bpusim.hardware.heat import ClockSpec, CorePowerSpec, DramPowerSpec, HostPowerSpec, PointSpec, PowerSpec
from bpusim.hardware.presets import machine_preset
from bpusim.metrics import Recorder
from bpusim.thermal import ClockDomain, Meter, points_of
from bpusim.thermal.power import leakage

GB = 10**9
PJ = 1e-12
US = 10**6
ROW = 8000
"""Bytes of a row: at 8 nJ each, 1 pJ/B."""
SPEC = PowerSpec(
    board=3.0,
    cores=CorePowerSpec(busy=1.5, mac=1 * PJ, vector=2 * PJ, move=20 * PJ, leakage=0.1, doubles=40.0),
    dram=DramPowerSpec(background=0.2, per_byte=60 * PJ, activate=8000 * PJ),
    host=HostPowerSpec(idle=0.25, active=0.5),
)
CORE = machine_preset("bpu80").cores
ARRAY, LANES = 128 * 128, 64
OF_DRAM = 61 * PJ
"""Each byte: 60 pJ, and a row's 8 nJ over its 8000 bytes."""


@dataclass
class Work:
    """What a call does."""

    bytes: int = 0
    cycles: int = 0
    mac_cycles: int = 0


class Moving:
    """A transfer: bytes at (when, B/s), as far as ``now``; the last row is its end."""

    def __init__(self, *rows: tuple[int, float]) -> None:
        self.rows = [(at, 0.0, float(rate), 0.0) for at, rate in rows]
        self.now = self.rows[-1][0]

    @property
    def history(self) -> list[tuple[int, float, float, float]]:
        return [r for r in self.rows if r[0] <= self.now]

    @property
    def ended(self) -> bool:
        return self.now >= self.rows[-1][0]


def clocks() -> dict[str, ClockDomain]:
    """All at 1 GHz; at half of that they have 0.8 of the voltage."""
    spec = ClockSpec(points=[PointSpec(clock=GB, voltage=1.0), PointSpec(clock=GB // 2, voltage=0.8)])
    return {name: ClockDomain(name, GB, points_of(spec, GB)) for name in ("bpu0", "bpu1", "host", "dram")}


def meter(of: Mapping[str, ClockDomain] | None = None, **keys: Any) -> Meter:
    return Meter(SPEC, CORE, of or clocks(), ROW, **keys)


def start(m: Meter, master: str, *flows: Any) -> None:
    for flow in flows:
        m.flow_started(master, flow)


def call(m: Meter, core: str, begin: int, end: int, work: Work, *flows: Any) -> None:
    """A call with its transfers."""
    m.call_started(core, begin, work)
    start(m, core, *flows)
    m.call_ended(core, end)


def watts_at(m: Meter, now: int, *times: float) -> list[dict[str, float]]:
    """W by component at these times in microseconds, from the pulses of one look at ``now``."""
    p, _ = m.take(now)
    rows = list(zip(p.node, p.begin, p.end, p.watts, strict=True))
    return [
        {part: sum(w for n, a, b, w in rows if n == k and a <= t * 1e-6 < b) for k, part in enumerate(m.parts)}
        for t in times
    ]


def test_the_parts_are_the_cores_the_dram_and_the_host() -> None:
    assert meter().parts == ("bpu0", "bpu1", "dram", "host")


def test_a_call_costs_its_cycles_its_bytes_and_its_time() -> None:
    m = meter()
    call(m, "bpu0", 0, 3 * US, Work(2000, 300, 200), Moving((0, GB), (2 * US, 0)))
    core = 200 * ARRAY * PJ + 100 * LANES * 2 * PJ + 2000 * 20 * PJ + 1.5 * 3e-6
    expected = {"bpu0": core, "bpu1": 0.0, "dram": 2000 * OF_DRAM, "host": 0.0}
    assert m.take(5 * US)[1] == pytest.approx(expected, rel=1e-12)


def test_what_it_computes_and_moves_is_drawn_as_its_bytes_arrive() -> None:
    """2000 B in 1 us, none for 1 us, 1000 B in 1 us; the call takes another."""
    m, work = meter(), Work(3000, 300, 200)
    call(m, "bpu1", 0, 4 * US, work, Moving((0, 2 * GB), (US, 0), (2 * US, GB), (3 * US, 0)))
    fast, none, slow, over, after = watts_at(m, 5 * US, 0.5, 1.5, 2.5, 3.5, 4.5)
    per_byte = (200 * ARRAY * PJ + 100 * LANES * 2 * PJ) / 3000 + 20 * PJ
    assert fast["bpu1"] == pytest.approx(1.5 + 2 * GB * per_byte, rel=1e-12)
    assert none["bpu1"] == over["bpu1"] == 1.5
    assert slow["bpu1"] == pytest.approx(1.5 + GB * per_byte, rel=1e-12)
    assert after == dict.fromkeys(m.parts, 0.0)
    assert [w["dram"] for w in (fast, none, slow)] == pytest.approx([2 * GB * OF_DRAM, 0.0, GB * OF_DRAM], rel=1e-12)


def test_a_call_without_bytes_draws_evenly() -> None:
    """1000 cycles at 1 GHz are 1 us."""
    m = meter()
    call(m, "bpu0", US, 2 * US, Work(0, 1000, 600))
    before, during, after = watts_at(m, 3 * US, 0.5, 1.5, 2.5)
    computes = (600 * ARRAY + 400 * LANES * 2) * PJ / 1e-6
    assert [w["bpu0"] for w in (before, during, after)] == pytest.approx([0.0, 1.5 + computes, 0.0], rel=1e-12)


def test_a_call_without_bytes_or_cycles_is_busy_all_the_same() -> None:
    m = meter()
    call(m, "bpu0", 0, 2 * US, Work())
    assert m.take(2 * US)[1]["bpu0"] == pytest.approx(1.5 * 2e-6, rel=1e-12)


def test_the_bytes_of_a_call_cost_as_before_after_the_next_has_begun() -> None:
    """A transfer belongs to the call that started it."""
    m, flow = meter(), Moving((0, GB), (4 * US, 0))
    call(m, "bpu0", 0, 2 * US, Work(4000, 100, 100), flow)
    m.call_started("bpu0", 2 * US, Work(1000, 0, 0))
    assert m.take(4 * US)[1]["bpu0"] == pytest.approx(100 * ARRAY * PJ + 4000 * 20 * PJ + 1.5 * 4e-6, rel=1e-12)


def test_a_core_is_busy_while_its_call_is_under_way() -> None:
    m = meter()
    m.call_started("bpu0", 0, Work())
    assert [m.take(at * US)[1]["bpu0"] for at in (1, 3)] == pytest.approx([1.5e-6, 3e-6], rel=1e-12)
    m.call_ended("bpu0", 4 * US)
    assert [m.take(at * US)[1]["bpu0"] for at in (5, 6)] == pytest.approx([1.5e-6, 0.0], rel=1e-12)


def test_other_masters_cost_the_dram_only() -> None:
    m = meter()
    start(m, "cpu", Moving((0, GB), (US, 0)))
    assert m.take(US)[1] == pytest.approx({"bpu0": 0.0, "bpu1": 0.0, "dram": 1000 * OF_DRAM, "host": 0.0}, rel=1e-12)


def test_a_transfer_that_has_not_begun_costs_nothing_yet() -> None:
    m, late, other = meter(), Moving((2 * US, GB), (3 * US, 0)), Moving((0, GB), (US, 0))
    late.now = 0
    start(m, "cpu", late, other)
    assert m.take(US)[1]["dram"] == pytest.approx(1000 * OF_DRAM, rel=1e-12)
    late.now = 3 * US
    assert m.take(3 * US)[1]["dram"] == pytest.approx(1000 * OF_DRAM, rel=1e-12)


def test_bytes_of_background_masters_are_spread_between_two_looks() -> None:
    moved = iter([1000, 1000, 4000])
    m = meter(others=lambda: next(moved))
    (first,) = watts_at(m, US, 0.5)
    (none,) = watts_at(m, 2 * US, 0.5)
    (last,) = watts_at(m, 4 * US, 1.0)
    got = [w["dram"] for w in (first, none, last)]
    assert got == pytest.approx([1000 * OF_DRAM / 1e-6, 0.0, 3000 * OF_DRAM / 2e-6], rel=1e-12)


def test_background_masters_come_on_top_of_transfers() -> None:
    m = meter(others=lambda: 500)
    call(m, "bpu0", 0, US, Work(1000, 0, 0), Moving((0, GB), (US, 0)))
    assert m.take(US)[1]["dram"] == pytest.approx(1500 * OF_DRAM, rel=1e-12)


def test_cpu_cores_draw_from_when_they_are_taken_until_they_are_given_back() -> None:
    """One from 1 to 4 us, one from 2 to 3, one from 5 on; the second look goes on with that one."""
    spans: list[tuple[Sequence[int], Sequence[int]]] = [
        ([US, 2 * US, 5 * US], [3 * US, 4 * US]),
        ([], [8 * US]),
    ]
    m = meter(host=lambda: spans.pop(0))
    got = [w["host"] for w in watts_at(m, 6 * US, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5)]
    assert got == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0, 0.5], abs=1e-12)
    assert m.take(9 * US)[1]["host"] == pytest.approx(0.5 * 2e-6, rel=1e-12)


def test_slow_cpu_cores_draw_what_is_theirs() -> None:
    """A fast core from 0 to 2 us at 0.5 W, a slow one from 1 to 5 us at 0.2 W; then the slow one alone goes on."""
    looks = [([US], []), ([], [5 * US])]
    fast = [([0], [2 * US]), ([], [])]
    m = meter(host=lambda: fast.pop(0), slow=(lambda: looks.pop(0), 0.2))
    assert m.take(3 * US)[1]["host"] == pytest.approx((0.5 * 2 + 0.2 * 2) * 1e-6, rel=1e-12)
    assert m.take(9 * US)[1]["host"] == pytest.approx(0.2 * 2 * 1e-6, rel=1e-12)


def test_at_half_the_clock_a_call_costs_by_the_square_of_the_voltage() -> None:
    """Busy power halves with the clock besides; what is computed and moved takes its time, not its energy."""
    of = clocks()
    m = meter(of)
    of["bpu0"].set_hz(GB // 2)
    call(m, "bpu0", 0, 2 * US, Work(1000, 300, 200), Moving((0, GB // 2), (2 * US, 0)))
    core = 200 * ARRAY * PJ + 100 * LANES * 2 * PJ + 1000 * 20 * PJ + 1.5 * 0.5 * 2e-6
    spent = m.take(2 * US)[1]
    assert spent["bpu0"] == pytest.approx(core * 0.64, rel=1e-12)
    assert spent["dram"] == pytest.approx(1000 * OF_DRAM, rel=1e-12)


def test_at_half_the_clock_a_call_without_bytes_draws_half_as_much_for_twice_the_time() -> None:
    of = clocks()
    m = meter(of)
    of["bpu0"].set_hz(GB // 2)
    call(m, "bpu0", 0, 2 * US, Work(0, 1000, 600))
    computes = (600 * ARRAY + 400 * LANES * 2) * PJ
    assert m.take(2 * US)[1]["bpu0"] == pytest.approx((computes + 1.5 * 0.5 * 2e-6) * 0.64, rel=1e-12)


def test_a_change_of_clock_within_a_call_counts_from_then_on() -> None:
    of = clocks()
    m = meter(of)
    m.call_started("bpu0", 0, Work(1500, 150, 150))
    flow = Moving((0, GB), (US, GB // 2), (2 * US, 0))
    start(m, "bpu0", flow)
    of["bpu0"].before_change = lambda: spent.append(m.take(US)[1]["bpu0"])
    spent: list[float] = []
    flow.now = US
    of["bpu0"].set_hz(GB // 2)
    flow.now = 2 * US
    m.call_ended("bpu0", 2 * US)
    spent.append(m.take(2 * US)[1]["bpu0"])
    per_byte = 150 * ARRAY * PJ / 1500 + 20 * PJ
    assert spent == pytest.approx([1000 * per_byte + 1.5e-6, (500 * per_byte + 0.75e-6) * 0.64], rel=1e-12)


def test_cpu_cores_follow_clock_and_voltage() -> None:
    of = clocks()
    m = meter(of, host=lambda: ([0], []))
    of["host"].set_hz(GB // 2)
    assert m.take(US)[1]["host"] == pytest.approx(0.5 * 0.5 * 0.64 * 1e-6, rel=1e-12)


CALLS = [
    ("bpu0", 0, 40, Work(30_000, 3000, 2000), Moving((0, GB), (10 * US, GB / 3), (40 * US, 0))),
    ("bpu1", 5, 70, Work(50_000, 1, 1), Moving((6 * US, GB), (30 * US, 0), (44 * US, GB), (70 * US, 0))),
    ("bpu0", 41, 50, Work(0, 9000, 0), None),
    ("bpu0", 50, 90, Work(17_000, 2000, 100), Moving((55 * US, 0.5 * GB), (89 * US, 0))),
]
TAKEN, GIVEN = [1, 2, 30, 77], [20, 31, 78]


def energies(looks: Sequence[int]) -> dict[str, float]:
    """Of all :data:`CALLS`, traffic of the CPU and of background masters, when looked at ``looks`` too."""
    cpu, looked = Moving((3 * US, GB), (60 * US, 0)), -1
    now = 0

    def spans() -> tuple[list[int], list[int]]:
        return tuple([t * US for t in times if looked < t * US <= now] for times in (TAKEN, GIVEN))  # type: ignore[return-value]

    m = meter(others=lambda: now // 100 * 3, host=spans)
    at: list[tuple[int, int, Any]] = [(t, 2, None) for t in (*looks, 100 * US)]
    for name, begin, end, work, flow in CALLS:
        at += [(begin * US, 1, (name, work, flow)), (end * US, 0, name)]
    total = dict.fromkeys(m.parts, 0.0)
    start(m, "cpu", cpu)
    for now, kind, what in sorted(at, key=lambda row: row[:2]):
        if kind == 0:
            m.call_ended(what, now)
        elif kind == 1:
            m.call_started(what[0], now, what[1])
            if what[2] is not None:
                m.flow_started(what[0], what[2])
        else:
            for flow in (cpu, *(c[4] for c in CALLS)):
                if flow is not None:
                    flow.now = now
            for part, joules in m.take(now)[1].items():
                total[part] += joules
            looked = now
    return total


def test_the_energy_of_several_calls_is_the_sum_of_theirs() -> None:
    """bpu0 moves 20,000 and 17,000 B in 89 us of calls, bpu1 50,000 in 65, the CPU 57,000, others 3 for each 100 ps."""
    got = energies([])
    of0 = 20_000 * ((2000 * ARRAY + 1000 * LANES * 2) / 30_000 + 20) + 9000 * LANES * 2
    of0 += 17_000 * ((100 * ARRAY + 1900 * LANES * 2) / 17_000 + 20)
    of1 = 50_000 * (ARRAY / 50_000 + 20)
    assert got["bpu0"] == pytest.approx(of0 * PJ + 1.5 * 89e-6, rel=1e-12)
    assert got["bpu1"] == pytest.approx(of1 * PJ + 1.5 * 65e-6, rel=1e-12)
    assert got["dram"] == pytest.approx((20_000 + 50_000 + 17_000 + 57_000 + 3_000_000) * OF_DRAM, rel=1e-12)
    assert got["host"] == pytest.approx(0.5 * (19 + 29 + 48 + 23) * 1e-6, rel=1e-12)


@given(st.lists(st.integers(1, 99).map(lambda at: at * US) | st.integers(1, 100 * US - 1), max_size=30, unique=True))
def test_the_energy_does_not_depend_on_who_looks_when(looks: list[int]) -> None:
    assert energies(looks) == pytest.approx(energies([]), rel=1e-12)


@given(st.lists(st.integers(1, 400_000), max_size=10, unique=True).map(sorted))
def test_the_transfers_of_a_channel_are_paid_once_whoever_looks(looks: list[int]) -> None:
    """At 10 B/ns: 1000 B alone, then as many together with the CPU's, all done after 300 ns."""
    env = simpy.Environment()
    channel = FlowChannel(env, Ideal(10 * GB), Recorder())
    m = meter()
    m.call_started("bpu0", 0, Work(2000, 0, 0))
    m.flow_started("bpu0", channel.port("bpu0", 10**6, 0, 10 * GB).start(Parts(2000)))
    spent = []

    def other() -> Any:
        yield env.timeout(100_000)
        m.flow_started("cpu", channel.port("cpu", 10**6, 0, 10 * GB).start(Parts(1000)))

    env.process(other())
    for at in (*looks, 500_000):
        env.run(until=at)
        spent.append(m.take(at)[1])
    assert sum(s["dram"] for s in spent) == pytest.approx(3000 * OF_DRAM, rel=1e-9)
    assert sum(s["bpu0"] for s in spent) == pytest.approx(2000 * 20 * PJ + 1.5 * 500e-9, rel=1e-9)


@pytest.mark.parametrize(("degc", "watts"), [(25.0, 0.1), (65.0, 0.2), (105.0, 0.4), (-15.0, 0.05)])
def test_leakage_doubles_every_so_many_kelvin(degc: float, watts: float) -> None:
    assert leakage(0.1, 40.0, degc) == pytest.approx(watts, rel=1e-12)


def test_leakage_goes_with_the_voltage() -> None:
    assert leakage(0.1, 40.0, 65.0, 0.75) == pytest.approx(0.15, rel=1e-12)


def test_standby_is_what_all_draw_when_nothing_happens() -> None:
    """Each core leaks at its own temperature and voltage; the clock itself does not matter."""
    of = clocks()
    of["bpu1"].set_hz(GB // 2)
    expected = {"bpu0": 0.2, "bpu1": 0.4 * 0.8, "dram": 0.2, "host": 0.25, "board": 3.0}
    assert meter(of).standby({"bpu0": 65.0, "bpu1": 105.0}) == pytest.approx(expected, rel=1e-12)


def test_without_activity_nothing_is_drawn_on_top_of_standby() -> None:
    pulses, spent = meter().take(US)
    assert spent == dict.fromkeys(("bpu0", "bpu1", "dram", "host"), 0.0)
    assert not pulses.watts.any()
