"""Heat paths, clocks and power in a machine's file: what becomes of them, and each mistake at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpusim.errors import ScenarioError
from bpusim.hardware import MachineSpec, cooling_names
from bpusim.scenario import load_scenario
from bpusim.system import System

REST = """
models: {m: {trace: a.trace, cores: bpu0}}
streams: {s: {chat: m, prompt: 1, output: 1}}
"""
ONE = "nodes: {chip: {capacity: 1 J/K, takes: [cores, host, dram, board]}}"
OUT = "links: [{between: [chip, ambient], resistance: 5 K/W}]"
DRAM_FAST = Path(__file__).resolve().parents[2] / "scenarios" / "thermal_fast_dram.yaml"


def load(folder: Path, text: str) -> MachineSpec:
    (folder / "a.trace").write_text("")
    (folder / "a.yaml").write_text(f"machine:\n  preset: bpu80\n{text}\n{REST}", encoding="utf-8")
    return load_scenario(folder / "a.yaml").machine


def refusal(folder: Path, text: str) -> tuple[str, str]:
    """(the one problem, what stands in the file at its place)."""
    with pytest.raises(ScenarioError) as caught:
        load(folder, text)
    (problem,) = caught.value.problems
    place = problem.place
    assert place is not None
    assert place.file == str(folder / "a.yaml")
    line = (folder / "a.yaml").read_text(encoding="utf-8").splitlines()[place.line - 1]
    return f"{problem.what}; {problem.do}" if problem.do else problem.what, line[place.col - 1 :]


def zone(trips: str, more: str = "") -> str:
    return f"  cooling: {{{ONE}, {OUT}, zones: {{z: {{sensor: chip, trips: [{trips}]{more}}}}}}}"


# What a good file becomes


@pytest.mark.parametrize("name", cooling_names())
def test_every_preset_loads(tmp_path: Path, name: str) -> None:
    cooling = load(tmp_path, f"  cooling: {name}").cooling
    assert cooling is not None
    assert {s for node in cooling.nodes.values() for s in node.takes} == {"cores", "host", "dram", "board"}
    assert [t.type for z in cooling.zones.values() for t in z.trips][-1] == "critical"


def test_a_preset_may_be_changed_in_part(tmp_path: Path) -> None:
    cooling = load(
        tmp_path, "  cooling: {preset: passive_heatsink, ambient: -10 degC, nodes: {die: {capacity: 9 J/K}}}"
    ).cooling
    assert cooling is not None
    assert (cooling.ambient, cooling.nodes["die"].capacity) == (-10.0, 9.0)
    assert cooling.nodes["die"].takes == ["host", "dram"]


def test_a_child_may_name_another_preset_and_keep_the_changes(tmp_path: Path) -> None:
    load(tmp_path, "  cooling: {preset: passive_heatsink, ambient: 40 degC}")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\nmachine: {cooling: small_fan}\n", encoding="utf-8")
    cooling = load_scenario(tmp_path / "b.yaml").machine.cooling
    assert cooling is not None
    assert cooling.fan is not None
    assert cooling.ambient == 40.0


def test_without_a_preset_a_heat_path_is_all_the_files_own(tmp_path: Path) -> None:
    cooling = load(tmp_path, f"  cooling: {{preset: null, {ONE}, {OUT}}}").cooling
    assert cooling is not None
    assert list(cooling.nodes) == ["chip"]
    assert cooling.zones == {}


def test_a_core_may_be_a_cooling_device_by_itself(tmp_path: Path) -> None:
    cooling = load(tmp_path, zone("{temp: 70 degC, type: passive, devices: [bpu1]}")).cooling
    assert cooling is not None
    assert cooling.zones["z"].trips[0].devices == ["bpu1"]


def test_one_core_may_be_read_and_may_start_warmer_than_the_others() -> None:
    changes = {
        "machine.cooling.zones.soc.sensor": "bpu1",
        "machine.cooling.start": {"bpu1": "70 degC", "cores": "50 degC"},
        "run.until": "1 ms",
    }
    heat = System.build(load_scenario(DRAM_FAST, changes)).heat
    assert heat is not None
    assert dict(zip(heat.names, heat.temperatures.tolist(), strict=True)) == {
        "bpu0": 50.0, "bpu1": 70.0, "die": 25.0, "heatsink": 25.0, "board": 25.0,
    }  # fmt: skip
    assert [heat.names[k] for k in heat.zones[0].sensor] == ["bpu1"]


def test_a_trip_that_the_air_keeps_crossed_is_told_of() -> None:
    changes = {"machine.cooling.ambient": "70 degC", "run.until": "1 ms"}
    warnings = System.build(load_scenario(DRAM_FAST, changes)).warnings
    assert [w.text for w in warnings if w.code == "trip-below-air"] == [
        "zone soc: the trip at 72 degC is left only 2 K below, and the air is at 70 degC: once crossed, it stays so"
    ]


def test_a_fan_that_nothing_turns_on_is_told_of() -> None:
    fan = Path(__file__).resolve().parents[2] / "scenarios" / "thermal_fan.yaml"
    trips = [{"temp": "70 degC", "type": "passive", "devices": ["cores"]}]
    for changes, codes in [({}, []), ({"machine.cooling.zones.soc.trips": trips}, ["idle-fan"])]:
        assert [w.code for w in System.build(load_scenario(fan, changes)).warnings if "fan" in w.code] == codes


def test_one_entry_of_a_list_cannot_be_overridden() -> None:
    with pytest.raises(ScenarioError, match=r"a list is replaced as a whole; write all of it: path=\[a, b\]"):
        load_scenario(DRAM_FAST, {"machine.cooling.zones.soc.trips.0.temp": "60 degC"})


def test_a_clock_above_its_points_is_told_of() -> None:
    scenario = Path(__file__).resolve().parents[2] / "scenarios" / "single_1_5b.yaml"
    result = System.build(load_scenario(scenario, {"machine.cores.clock": "2 GHz", "streams.alice.output": 1})).run()
    assert [w.text for w in result.warnings if w.code == "voltage-extrapolated"] == [
        "cores run at 2 GHz, above their highest operating point: their voltage is extrapolated"
    ]


# What a bad file is told


DEALT = ", governor: power_allocator, sustainable: 4 W"
WARM = "{temp: 70 degC, hyst: 2 K, type: passive, devices: [cores]}"


CORES = "{cores: {points: [{clock: 1 GHz, voltage: 0.8 V}, {clock: 0 Hz, voltage: 0.6 V}]}}"
APART = "{nodes: {a: {capacity: 1 J/K, takes: [cores, host, dram, board]}, b: {capacity: 1 J/K}}"


@pytest.mark.parametrize(
    ("text", "here", "message"),
    [
        (zone(f"{WARM}, {{temp: 60 degC, type: hot}}"), "{sensor", "60 degC after 70; list them from the lowest up"),
        (zone(f"{WARM}, {{temp: 75 degC, hyst: 5 K, type: hot}}"), "{sensor", "5 K, reaches below the trip at 70"),
        (f"  cooling: {{{ONE}, {OUT.replace('5 K/W', '-5 K/W')}}}", "-5 K/W", "'-5 K/W' is negative"),
        (
            f"  cooling: {{{ONE}, {OUT.replace('5 K/W', '0 K/W')}}}",
            "0 K/W",
            "'0 K/W' is out of range; write more than 0",
        ),
        (f"  clocks: {CORES}", "0 Hz", "'0 Hz' is out of range; write more than 0"),
        ("  clocks: {dram: {points: [{clock: 800 MHz}, {clock: 1.6 GHz}]}}", "{points", "points are out of order"),
        (
            zone("{temp: 70 degC, type: passive, devices: [npu]}"),
            "npu",
            "the machine has no cooling device 'npu'; known: bpu0, bpu1, cores, dram, host",
        ),
        (
            zone("{temp: 70 degC, type: active, devices: [fan]}"),
            "fan",
            "the machine has no cooling device 'fan'; add a fan",
        ),
        (
            f"  clocks: {{host: null}}\n{zone('{temp: 70 degC, type: passive, devices: [host]}')}",
            "host",
            "'host' has no operating points to step down to; add machine.clocks.host with its points",
        ),
        (zone("{temp: 70 degC, type: passive}"), "{temp", "a trip of type passive needs devices"),
        (zone(WARM, ", governor: power_allocator"), "{sensor", "power_allocator needs sustainable"),
        (zone("{temp: 70 degC, type: active, devices: [cores]}"), "{temp", "a trip of type active switches a fan"),
        (zone("{temp: 70 degC, type: passive, devices: [cores, bpu1]}"), "{temp", "bpu1 is one of the cores already"),
        (zone("{temp: 70 degC, type: passive, devices: [host, host]}"), "{temp", "host is there twice; remove one"),
        (
            zone(f"{WARM.replace('[cores]', '[bpu0]')}, {WARM.replace('70', '80')}", DEALT),
            "{sensor",
            "bpu0 is one of the cores already",
        ),
        (zone(WARM, ", sustainable: 4 W"), "{sensor", "mean nothing to step_wise; remove them"),
        (
            zone(f"{WARM}, {WARM.replace('70', '80')}", ", governor: bang_bang"),
            "{sensor",
            "bang_bang switches at one trip",
        ),
        ("  cooling: passive", "passive", "unknown cooling preset 'passive'; did you mean 'passive_heatsink'?"),
        ("  cooling: 7", "7", "not the name of a preset or a mapping"),
        ("  cooling: {preset: bare_die, sample: 1 us}", "1 us", "'1 us' is out of range; write 1 ms or more"),
        ("  cooling: {preset: bare_die, start: {lid: 60 degC}}", "{preset", "start: no node is named 'lid'"),
        ("  cooling: {preset: bare_die, start: {bpu7: 60 degC}}", "60 degC", "the machine has no core 'bpu7'"),
        ("  cooling: {preset: bare_die, zones: {soc: {sensor: bpu2}}}", "bpu2", "the machine has no core 'bpu2'"),
        (
            zone(WARM).replace("sensor: chip", "sensor: bpu0"),
            "{nodes",
            "sensor: no node is named 'bpu0'; name one of chip",
        ),
        (zone(WARM, ", cutoff: 1 K"), "{sensor", "mean nothing to step_wise; remove them"),
        (
            "  cooling: {preset: bare_die, ambient: 1e9 degC}",
            "1e9",
            "'1e9 degC' is out of range; write at most 300 degC",
        ),
        ("  power: {cores: {doubles: 0.001 K}}", "0.001 K", "'0.001 K' is out of range; write 5 K or more"),
        ("  cooling: {preset: bare_die, ambient: -300 degC}", "-300", "'-300 degC' is below absolute zero"),
        (
            f"  cooling: {{nodes: {{c: {{capacity: 1 J/K, takes: [cores]}}}}, {OUT}}}",
            "{nodes",
            "host must heat one node",
        ),
        (f"  cooling: {APART}, {OUT.replace('chip', 'a')}}}", "{nodes", "no link leads from b to ambient"),
        (f"  cooling: {{{ONE}, {OUT[:-1]}, {OUT[8:]}}}", "{nodes", "chip and ambient are joined twice"),
        ("  power: null\n  cooling: passive_heatsink", "preset", "cooling needs power"),
    ],
)
def test_a_wrong_heat_path_is_one_problem_at_its_place(tmp_path: Path, text: str, here: str, message: str) -> None:
    what, place = refusal(tmp_path, text)
    assert message in what
    assert place.startswith(here)


def test_power_cannot_be_dealt_to_a_fan(tmp_path: Path) -> None:
    trips = "[{temp: 60 degC, type: passive, devices: [fan, cores]}]"
    more = f"zones: {{soc: {{governor: power_allocator, sustainable: 4 W, trips: {trips}}}}}"
    what, _ = refusal(tmp_path, f"  cooling: {{preset: small_fan, {more}}}")
    assert "power_allocator cannot deal power to a fan" in what


def test_the_memory_clock_cannot_change_at_bank_fidelity(tmp_path: Path) -> None:
    devices = zone("{temp: 70 degC, type: passive, devices: [dram]}")
    what, place = refusal(tmp_path, f"{devices}\nengine: {{dram: bank}}")
    assert what.endswith("cannot change at bank fidelity; use engine.dram: flow, or take dram out of the devices")
    assert place.startswith("dram")
    parked = "  clocks: {dram: {governor: powersave}}\nengine: {dram: bank}"
    assert refusal(tmp_path, parked)[1].startswith("powersave")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("  cooling: {preset: bare_die, ambien: 25 degC}", "did you mean 'ambient'?"),
        ("  cooling: {preset: bare_die, zones: {soc: {pooling: 1 s}}}", "did you mean 'polling'?"),
        ("  clocks: {cores: {governer: performance}}", "did you mean 'governor'?"),
        ("  power: {cores: {leak: 1 W}}", "did you mean 'leakage'?"),
    ],
)
def test_a_mistyped_key_gets_a_hint(tmp_path: Path, text: str, hint: str) -> None:
    what, _ = refusal(tmp_path, text)
    assert "unknown key" in what
    assert what.endswith(hint)


def test_nodes_that_differ_too_much_are_refused_with_a_place() -> None:
    scenario = Path(__file__).resolve().parents[2] / "scenarios" / "thermal_fast.yaml"
    with pytest.raises(ScenarioError, match=r"machine.cooling: a node .* warms up ten billion times as fast"):
        System.build(load_scenario(scenario, {"machine.cooling.nodes.die.capacity": "1e12 J/K"}))


def test_points_that_a_unit_cannot_go_down_to_are_an_error() -> None:
    """Transfers a second written for the command clock: none would be left, and the memory never slowed down."""
    points = {"machine.clocks.dram.points": [{"clock": f"{ghz} GHz"} for ghz in (3.2, 2.4, 1.6)]}
    with pytest.raises(ScenarioError, match=r"'dram' has no operating point below its clock of 1\.6 GHz") as caught:
        System.build(load_scenario(DRAM_FAST, points))
    assert caught.value.problems[0].place == load_scenario(DRAM_FAST).where(
        "machine", "cooling", "zones", "soc", "trips", 0, "devices", 2
    )


def test_a_fixed_clock_above_the_units_is_an_error() -> None:
    clock = {"machine.cores.clock": "900 MHz", "machine.clocks.cores": {"governor": "userspace", "fixed": "1 GHz"}}
    with pytest.raises(ScenarioError, match=r"fixed: the unit is made for 900 MHz; name a point at or below that"):
        System.build(load_scenario(DRAM_FAST, clock))


def test_points_above_the_memorys_command_clock_are_told_of() -> None:
    system = System.build(load_scenario(DRAM_FAST, {"machine.dram.preset": "LPDDR5-6400x64"}))
    assert "the memory's command clock is 800 MHz: its points above that are left out" in [
        w.text for w in system.warnings
    ]
