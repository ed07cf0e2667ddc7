"""The loop of heat: power to temperature, temperature to fan, clocks and the end of the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, log
from typing import Any

import numpy as np
import pytest
import simpy

from bpusim.hardware.heat import (
    ClockSpec,
    CoolingSpec,
    CorePowerSpec,
    DramPowerSpec,
    FanLevelSpec,
    FanSpec,
    HostPowerSpec,
    LinkSpec,
    NodeSpec,
    PointSpec,
    PowerSpec,
    TripSpec,
    ZoneSpec,
)
from bpusim.hardware.presets import machine_preset
from bpusim.thermal import ClockControl, ClockDomain, Heat, Meter, points_of
from bpusim.thermal.heat import nodes_of
from bpusim.thermal.power import leakage

GB = 10**9
MS = 10**9
S = 10**12
ALL: list[Any] = ["cores", "host", "dram", "board"]
LUMP: dict[str, Any] = {
    "nodes": {"die": NodeSpec(capacity=10.0, takes=ALL)},
    "links": [LinkSpec(between=("die", "ambient"), resistance=5.0)],
}
"""One lump: 50 K at 10 W, in a time constant of 50 s."""
CHAIN: dict[str, Any] = {
    "nodes": {
        "cores": NodeSpec(capacity=0.1, takes=["cores"]),
        "die": NodeSpec(capacity=2.0, takes=["host", "dram"]),
        "board": NodeSpec(capacity=40.0, takes=["board"]),
    },
    "links": [
        LinkSpec(between=("cores", "die"), resistance=0.5),
        LinkSpec(between=("die", "ambient"), resistance=4.0),
        LinkSpec(between=("board", "ambient"), resistance=10.0),
    ],
}
FAN = FanSpec(
    link=("ambient", "die"),
    levels=[FanLevelSpec(resistance=2.0, power=0.5), FanLevelSpec(resistance=1.0, power=2.0)],
)
"""The lump at 10 W: 75 degC without, 45 at its first level, 35 at its second."""


@dataclass
class Lasting:
    """A call that computes and moves nothing: its core is busy, no more."""

    bytes: int = 0
    cycles: int = 0
    mac_cycles: int = 0


@dataclass
class Board:
    """Two cores without work, but for ``busy`` ones that draw 2 W each: 10 W in all when none leaks."""

    cooling: CoolingSpec
    leaks: float = 0.0
    busy: tuple[str, ...] = ()
    transition: int = 0
    board: float = 9.0
    env: simpy.Environment = field(default_factory=simpy.Environment)

    def __post_init__(self) -> None:
        power = PowerSpec(
            board=self.board,
            cores=CorePowerSpec(busy=2.0, mac=0.0, vector=0.0, move=0.0, leakage=self.leaks, doubles=40.0),
            dram=DramPowerSpec(background=0.4, per_byte=0.0, activate=0.0),
            host=HostPowerSpec(idle=0.6, active=0.0),
        )
        points = [PointSpec(clock=GB * f // 10, voltage=0.1 * f) for f in (10, 8, 6, 5)]
        spec = ClockSpec(points=points, transition=self.transition)
        self.clocks = {n: ClockDomain(n, GB, points_of(spec, GB)) for n in ("bpu0", "bpu1", "host", "dram")}
        self.controls = {n: ClockControl(self.env, c, spec) for n, c in self.clocks.items()}
        self.meter = Meter(power, machine_preset("bpu80").cores, self.clocks, 8000)
        for core in self.busy:
            self.meter.call_started(core, 0, Lasting())
        self.heat = Heat(self.env, self.cooling, self.meter, self.controls)

    def run(self, until: int) -> Heat:
        """The heat brought up to then."""
        self.env.run(until=until)
        self.heat.look()
        return self.heat


def lump(**keys: Any) -> CoolingSpec:
    return CoolingSpec(**LUMP, **keys)


def chain(**keys: Any) -> CoolingSpec:
    return CoolingSpec(**CHAIN, **keys)


def zone(*trips: TripSpec, sensor: str = "die", governor: Any = "user_space", **keys: Any) -> dict[str, ZoneSpec]:
    return {"soc": ZoneSpec(sensor=sensor, trips=list(trips), governor=governor, **keys)}


def active(temp: float, hyst: float = 0.0) -> TripSpec:
    return TripSpec(temp=temp, type="active", hyst=hyst, devices=["fan"])


def passive(temp: float, hyst: float = 0.0, *devices: str) -> TripSpec:
    return TripSpec(temp=temp, type="passive", hyst=hyst, devices=list(devices) or ["cores"])


HOT = TripSpec(temp=50.0, type="hot")
HOTTER = TripSpec(temp=55.0, type="hot")
CRITICAL = TripSpec(temp=60.0, type="critical")


def degc(heat: Heat) -> dict[str, float]:
    return dict(zip(heat.names, heat.temperatures.tolist(), strict=True))


def noted(heat: Heat) -> list[tuple[int, str]]:
    """Events by their time in ms."""
    return [(e.at // MS, e.what) for e in heat.events]


def at_10_watts(seconds: float) -> float:
    """Of the lump, from 25 degC."""
    return 25 + 50 * (1 - exp(-seconds / 50))


def test_a_name_of_its_own_stands_for_one_node_at_each_core() -> None:
    assert nodes_of(chain(), ["bpu0", "bpu1"]) == {"cores": ["bpu0", "bpu1"], "die": ["die"], "board": ["board"]}


def test_one_lump_warms_by_the_exponential() -> None:
    board = Board(lump())
    for seconds in (1, 20, 50, 400):
        assert degc(board.run(seconds * S)) == {"die": pytest.approx(at_10_watts(seconds), abs=1e-9)}


def test_in_the_steady_state_each_resistance_carries_the_power_behind_it() -> None:
    """The die takes 1 W over 4 K/W, and 2 W of bpu0 come to it over 0.5 K/W; the board's 9 W go over 10 K/W."""
    expected = {"bpu0": 25 + 12 + 1, "bpu1": 25 + 12, "die": 25 + 12, "board": 25 + 90}
    assert degc(Board(chain(sample=1000 * S), busy=("bpu0",)).run(10_000 * S)) == pytest.approx(expected, abs=1e-6)


def test_leakage_and_temperature_settle_where_each_follows_from_the_other() -> None:
    t = degc(Board(chain(sample=5 * S), leaks=0.5).run(2000 * S))
    each = leakage(0.5, 40.0, t["bpu0"])
    assert each > 0.58  # it is warm
    assert t["die"] == pytest.approx(25 + 4 * (1 + 2 * each), abs=1e-6)
    assert t["bpu0"] == t["bpu1"] == pytest.approx(t["die"] + 0.5 * each, abs=1e-6)


def test_nodes_start_at_ambient_or_where_they_are_told() -> None:
    heat = Board(chain(ambient=30.0, start={"cores": 60.0, "board": 20.0})).heat
    assert degc(heat) == {"bpu0": 60.0, "bpu1": 60.0, "die": 30.0, "board": 20.0}
    assert heat.peak.tolist() == heat.temperatures.tolist()


def test_a_node_cools_from_where_it_starts() -> None:
    assert degc(Board(lump(start={"die": 100.0})).run(20 * S))["die"] == pytest.approx(75 + 25 * exp(-20 / 50))


def test_the_peak_is_the_highest_at_any_look() -> None:
    board = Board(chain(start={"cores": 60.0}, sample=10 * S))
    heat = board.run(5 * S)
    assert dict(zip(heat.names, heat.peak.tolist(), strict=True)) == {**degc(heat), "bpu0": 60.0, "bpu1": 60.0}


def test_the_energy_is_what_the_rows_say_and_all_of_it() -> None:
    """A clock that changes, a fan that comes and goes, leakage that grows, a last row that comes early."""
    zones = zone(passive(30.0), sensor="cores", governor="step_wise") | {
        "fan": ZoneSpec(sensor="die", trips=[active(31.0, 1.0)], governor="bang_bang")
    }
    board = Board(chain(zones=zones, fan=FAN), leaks=0.5, busy=("bpu0",), transition=50 * 10**6)
    board.run(200_300 * MS)
    heat = board.heat
    heat.sample()
    at = [0, *(row.at for row in heat.rows)]
    for part, joules in heat.energy.items():
        told = sum(row.watts[part] * (b - a) / S for row, (a, b) in zip(heat.rows, pairwise(at), strict=True))
        assert told == pytest.approx(joules, rel=1e-9)
    assert at[-2:] == [200 * S, 200_300 * MS]
    assert min(heat.energy[part] for part in ("bpu0", "leakage", "fan")) > 1
    assert {row.clocks["bpu0"] for row in heat.rows} >= {GB, GB // 2}
    assert {row.fan for row in heat.rows} == {0, 2}


def test_each_component_pays_its_own() -> None:
    heat = Board(lump(), busy=("bpu1",)).run(10 * S)
    expected = {"bpu0": 0, "bpu1": 20, "dram": 4, "host": 6, "leakage": 0, "board": 90, "fan": 0}
    assert heat.energy == pytest.approx(expected, rel=1e-12)


def test_a_row_tells_temperatures_mean_watts_clocks_and_the_fan() -> None:
    board = Board(lump(zones=zone(active(25.3), governor="bang_bang", polling=500 * MS), fan=FAN), busy=("bpu0",))
    (row,) = board.run(S + 1).rows
    assert (row.at, row.clocks, row.fan) == (S, dict.fromkeys(("bpu0", "bpu1", "host", "dram"), GB), 2)
    expected = {"bpu0": 2.0, "bpu1": 0.0, "dram": 0.4, "host": 0.6, "leakage": 0.0, "board": 9.0, "fan": 1.0}
    assert row.watts == pytest.approx(expected, rel=1e-12)  # the fan's 2 W for half of the time
    half = 25 + 60 * (1 - exp(-0.5 / 50))
    assert row.temperatures == {"die": pytest.approx(37 + (half - 37) * exp(-0.5 / 10), abs=1e-9)}


def test_rows_come_as_often_as_told() -> None:
    board = Board(lump(sample=300 * MS))
    assert [row.at // MS for row in board.run(S).rows] == [300, 600, 900]


def test_a_row_of_no_time_is_left_out() -> None:
    board = Board(lump())
    board.heat.sample()
    board.run(S + 1)
    board.heat.sample()
    board.heat.sample()
    assert [row.at for row in board.heat.rows] == [S, S + 1]


@pytest.mark.parametrize("polling", [500 * MS, 35 * MS, 30 * S])
def test_temperatures_do_not_depend_on_how_often_somebody_looks(polling: int) -> None:
    """Nobody acts on them; leakage has steps of its own."""

    def rows(polling: int) -> Any:
        board = Board(chain(zones=zone(HOT, polling=polling), sample=2 * S), leaks=0.5, busy=("bpu1",))
        return [list(row.temperatures.values()) for row in board.run(60 * S + 1).rows]

    assert np.abs(np.array(rows(polling)) - np.array(rows(S))).max() < 1e-6


def _leaking(leaks: float, start: float, *, seconds: float = 60, until: float = 1e9) -> tuple[float, float, float]:
    """(s, degC, J leaked) of the lump at 10 W and two cores whose leakage doubles every 40 K: Runge-Kutta, steps of
    a millisecond."""
    t, joules, h = start, 0.0, 1e-3

    def slope(t: float) -> float:
        return (10 + 2 * leakage(leaks, 40.0, t) - (t - 25) / 5) / 10

    for k in range(round(seconds / h)):
        if t > until:
            return k * h, t, joules
        a = slope(t)
        b = slope(t + a * h / 2)
        c = slope(t + b * h / 2)
        joules += 2 * leakage(leaks, 40.0, t + a * h / 2) * h
        t += (a + 2 * b + 2 * c + slope(t + c * h)) * h / 6
    return seconds, t, joules


@pytest.mark.parametrize("sample", [10 * MS, S, 30 * S])
def test_leakage_follows_the_temperature_however_seldom_rows_are_written(sample: int) -> None:
    """Twice 0.5 W at 25 degC, and twice that 40 K above."""
    heat = Board(lump(sample=sample, start={"die": 65.0}), leaks=0.5).run(30 * S)
    _, t, joules = _leaking(0.5, 65.0, seconds=30)
    assert degc(heat)["die"] == pytest.approx(t, abs=0.01)
    assert heat.energy["leakage"] == pytest.approx(joules, rel=1e-3)


def test_runaway_ends_where_it_is_found() -> None:
    """Leakage doubles by the second near the end: nothing is booked beyond."""
    board = Board(lump(sample=30 * S, start={"die": 200.0}), leaks=2.0)
    heat = board.heat
    board.env.timeout(60 * S)
    board.env.run(until=heat.shutdown)
    assert 500 < heat.peak[0] < 510
    seconds, _, joules = _leaking(2.0, 200.0, until=500.0)
    assert board.env.now / S == pytest.approx(seconds, rel=0.02)  # leakage lags by up to 2 K, 3.5 %
    assert heat.energy["leakage"] == pytest.approx(joules, rel=0.02)


def test_a_lower_voltage_leaks_less_at_once() -> None:
    """Half the voltage, half the leakage of one core of two."""
    board = Board(lump(start={"die": 65.0}), leaks=0.5)
    before = board.run(10 * S).meter.standby(board.heat._leaks_at)
    board.clocks["bpu0"].set_hz(GB // 2)
    energy = board.heat.energy["leakage"]
    after = board.run(10 * S + MS).energy["leakage"] - energy
    assert after == pytest.approx((before["bpu0"] / 2 + before["bpu1"]) * 1e-3, rel=1e-3)  # a little colder


def test_a_change_of_clock_is_preceded_by_a_look() -> None:
    """Busy power goes with the clock and the square of the voltage from the change on, not from the look before."""
    board = Board(lump(), busy=("bpu0",))
    board.env.run(until=3 * S)
    board.clocks["bpu0"].set_hz(GB // 2)
    assert board.run(4 * S).energy["bpu0"] == pytest.approx(2 * 3 + 2 * 0.5**3 * 1, rel=1e-12)


def test_a_fan_changes_its_link_and_draws_power_that_heats_nothing() -> None:
    """From 75 degC to 35 at its second level: a time constant of 10 s."""
    board = Board(lump(start={"die": 75.0}, fan=FAN))
    board.heat.devices["fan"].request("user", 2)
    assert degc(board.run(10 * S))["die"] == pytest.approx(35 + 40 / exp(1), abs=1e-9)
    assert degc(board.run(500 * S))["die"] == pytest.approx(35, abs=1e-9)
    assert board.heat.energy["fan"] == pytest.approx(2 * 500, rel=1e-12)


def test_a_fan_changes_its_link_from_then_on() -> None:
    """35 degC are left for 45 in a time constant of 20 s, then for 75 in 50 s."""
    board = Board(lump(start={"die": 35.0}, fan=FAN))
    fan = board.heat.devices["fan"]
    fan.request("user", 1)
    board.env.run(until=10 * S)
    fan.request("user", 0)
    slow = 45 - 10 * exp(-10 / 20)
    assert degc(board.run(30 * S))["die"] == pytest.approx(75 - (75 - slow) * exp(-20 / 50), abs=1e-9)
    assert board.heat.energy["fan"] == pytest.approx(0.5 * 10, rel=1e-12)


def test_a_machine_without_a_fan_has_none() -> None:
    assert "fan" not in Board(lump()).heat.devices


@pytest.mark.parametrize("hyst", [0.0, 5.0])
def test_a_bang_bang_fan_switches_no_faster_than_it_is_looked_at(hyst: float) -> None:
    board = Board(lump(zones=zone(active(50.0, hyst), governor="bang_bang", polling=3 * S), fan=FAN, sample=60 * S))
    at = [ms for ms, what in noted(board.run(600 * S)) if what.startswith("fan")]
    assert len(at) > 20
    assert all(ms % 3000 == 0 for ms in at)
    assert min(b - a for a, b in pairwise(at)) >= 3000


def test_a_bang_bang_fan_swings_between_its_trip_and_the_hysteresis_below_it() -> None:
    """On at the first look above 50 degC, off at the first below 45: what it goes past is a look's worth at most."""
    board = Board(lump(zones=zone(active(50.0, 5.0), governor="bang_bang", polling=100 * MS), fan=FAN, sample=100 * MS))
    heat = board.run(200 * S)
    on = round(50 * log(2) * 10 + 0.5) * 100  # ms: 25 K of 50 are gone
    off = round(on / 100 + 10 * log((at_10_watts(on / 1000) - 35) / 10) * 10 + 0.5) * 100
    assert [(ms, what[-6:]) for ms, what in noted(heat) if what.startswith("fan")][:2] == [
        (on, "0 -> 2"),
        (off, "2 -> 0"),
    ]
    settled = [row.temperatures["die"] for row in heat.rows if row.at > 40 * S]
    assert 44.8 < min(settled) < 45
    assert 50 <= max(settled) < 50.1


def test_events_tell_of_trips_and_devices_in_order() -> None:
    """50 degC are reached after 34.7 s, 45.06 left behind 4 s later."""
    board = Board(lump(zones=zone(active(50.0, 5.0), governor="bang_bang"), fan=FAN))
    assert noted(board.run(45 * S))[:4] == [
        (35_000, "soc: active trip at 50 degC crossed"),
        (35_000, "fan: cooling state 0 -> 2"),
        (40_000, "soc: active trip at 50 degC left"),
        (40_000, "fan: cooling state 2 -> 0"),
    ]


def test_events_name_each_core_and_no_group_of_them() -> None:
    board = Board(lump(zones=zone(passive(30.0), governor="step_wise", passive_polling=S)))
    assert noted(board.run(7 * S)) == [
        (6000, "soc: passive trip at 30 degC crossed"),
        (6000, "bpu0: cooling state 0 -> 1"),
        (6000, "bpu1: cooling state 0 -> 1"),
    ]


def test_while_a_passive_trip_is_crossed_looks_come_faster() -> None:
    """At 5.3 s it is warm enough: a step a look, at 250 ms from the first one."""
    board = Board(lump(zones=zone(passive(30.0, 0.0, "host"), governor="step_wise", passive_polling=250 * MS)))
    steps = [ms for ms, what in noted(board.run(20 * S)) if what.startswith("host")]
    assert steps == [6000, 6250, 6500]


def test_a_trip_that_slows_down_changes_the_clock() -> None:
    board = Board(lump(zones=zone(passive(30.0, 0.0, "bpu1"), governor="step_wise")))
    board.run(6 * S + 1)
    assert {n: c.hz for n, c in board.clocks.items()} == {"bpu0": GB, "bpu1": GB * 8 // 10, "host": GB, "dram": GB}


def test_user_space_only_tells() -> None:
    board = Board(lump(zones=zone(active(50.0), HOTTER, governor="user_space"), fan=FAN))
    assert noted(board.run(50 * S)) == [
        (35_000, "soc: active trip at 50 degC crossed"),
        (46_000, "soc: hot trip at 55 degC crossed"),
    ]


def test_a_sensor_at_all_cores_reads_the_hottest() -> None:
    """bpu1 is 1 K above the die, bpu0 as warm as it."""
    zones = zone(TripSpec(temp=37.9, type="hot"), sensor="cores")
    board = Board(chain(zones=zones), busy=("bpu1",))
    t = degc(board.run(400 * S))
    assert t["bpu0"] == pytest.approx(37, abs=1e-6)
    assert [what for _, what in noted(board.heat)] == ["soc: hot trip at 37.9 degC crossed"]


def test_of_each_trip_the_time_above_it_its_crossings_and_the_first_are_known() -> None:
    """On at 35 s and off at 40, then on again: as the events say."""
    board = Board(lump(zones=zone(active(50.0, 5.0), HOTTER, governor="bang_bang"), fan=FAN))
    heat = board.run(60 * S)
    (soc,) = heat.zones
    crossed, left = ([ms for ms, what in noted(heat) if what.endswith(end)] for end in ("crossed", "left"))
    assert (crossed[0], left[0]) == (35_000, 40_000)
    spans = zip(crossed, [*left, 60_000], strict=False)
    assert soc.time_above(0, 60 * S) // MS == sum(b - a for a, b in spans)
    assert (soc.crossings, soc.first) == ([len(crossed), 0], [35 * S, None])
    assert soc.time_above(1, 60 * S) == 0


def test_time_above_a_trip_counts_from_the_look_that_found_it_to_now() -> None:
    heat = Board(lump(zones=zone(HOT))).run(40_500 * MS)
    assert heat.zones[0].time_above(0, 40_500 * MS) == 5_500 * MS


def test_a_critical_trip_ends_the_run_with_a_text() -> None:
    """60 degC after 60.2 s: 60.2 at the look at 61 s."""
    board = Board(lump(zones=zone(CRITICAL)))
    board.env.timeout(100 * S)  # something is to come
    assert board.env.run(until=board.heat.shutdown) == "soc: die reached 60.2 degC, critical is 60 degC"
    assert board.env.now == 61 * S
    assert noted(board.heat) == [(61_000, "soc: critical trip at 60 degC crossed")]


def test_no_zone_is_looked_at_after_the_end() -> None:
    zones = zone(CRITICAL) | {"other": ZoneSpec(sensor="die", trips=[CRITICAL, TripSpec(temp=61.0, type="hot")])}
    board = Board(lump(zones=zones))
    board.run(80 * S)
    assert noted(board.heat) == [(61_000, "soc: critical trip at 60 degC crossed")]


def test_below_a_critical_trip_the_run_goes_on() -> None:
    assert not Board(lump(zones=zone(CRITICAL))).run(60 * S).shutdown.triggered


def test_a_power_allocator_keeps_to_its_trip() -> None:
    """Two cores at 2 W each would come to 25 + 4 x 5 + 0.5 x 2 = 46 degC; its points are 2, 1.02, 0.43 and 0.25 W."""
    zones = zone(
        passive(30.0), passive(40.0), sensor="cores", governor="power_allocator", sustainable=2.6, k_po=2.0, k_pu=1.0
    )
    heat = Board(chain(zones=zones), busy=("bpu0", "bpu1")).run(400 * S)
    late = [row.temperatures["bpu0"] for row in heat.rows if row.at > 200 * S]
    assert 37 < np.mean(late) < 40
    assert max(late) < 41


def test_a_look_more_changes_nothing() -> None:
    """Whoever looks: temperatures and energies are those of the same run without it."""
    plain, looked_at = (Board(chain(), leaks=0.5, busy=("bpu0",)) for _ in range(2))
    for ms in (1, 777, 1000, 1001, 2500, 2999):
        looked_at.run(ms * MS)
    assert looked_at.run(5 * S).temperatures == pytest.approx(plain.run(5 * S).temperatures, abs=1e-9)
    assert looked_at.heat.energy == pytest.approx(plain.heat.energy, rel=1e-12)


def test_a_power_allocator_knows_what_cores_would_draw_at_each_point_whatever_they_run_at() -> None:
    """4 W together, 2.05 at 0.8 of clock and voltage: of 2.2 W they take that, look by look."""
    gains: dict[str, Any] = dict.fromkeys(("k_po", "k_pu", "k_i"), 0.0)
    zones = zone(passive(20.0), governor="power_allocator", sustainable=2.2, **gains)
    heat = Board(lump(zones=zones), busy=("bpu0", "bpu1")).run(10 * S)
    assert [row.clocks["bpu0"] // 10**6 for row in heat.rows[2:]] == [800] * len(heat.rows[2:])
    assert len(heat.rows) > 8
