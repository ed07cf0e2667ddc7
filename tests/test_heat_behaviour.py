"""Behaviour of clocks and heat that users of real boards report (shared/cases, BH rows): what must follow from what."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from bpusim import simulate
from bpusim.errors import SimulationError
from bpusim.metrics import ChatStats, FrameStats, HeatStats, Result

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
SHORT = {"streams__alice__output": 4, "streams__alice__requests": 1}


def run(name: str, **changes: Any) -> Result:
    """A shipped scenario with changes; ``__`` stands for a dot."""
    return simulate(SCENARIOS / f"{name}.yaml", set={k.replace("__", "."): v for k, v in changes.items()})


def chat(result: Result, name: str = "alice") -> ChatStats:
    stream = result.streams[name]
    assert isinstance(stream, ChatStats)
    return stream


def tpot(result: Result) -> float:
    value = chat(result).tpot_mean_ms
    assert value is not None
    return value


def ttft(result: Result) -> float:
    value = chat(result).ttft_mean_ms
    assert value is not None
    return value


def frames(result: Result, name: str = "camera") -> FrameStats:
    stream = result.streams[name]
    assert isinstance(stream, FrameStats)
    return stream


def heat(result: Result) -> HeatStats:
    assert result.heat is not None
    return result.heat


def lump(resistance: float, capacity: float, trips: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A machine that is one lump, cooled by its core clock in steps."""
    zone = {"sensor": "chip", "trips": trips, "polling": "1 s", "passive_polling": "1 s", **more.pop("zone", {})}
    cooling = {
        "preset": None,
        "nodes": {"chip": {"capacity": f"{capacity} J/K", "takes": ["cores", "host", "dram", "board"]}},
        "links": [{"between": ["chip", "ambient"], "resistance": f"{resistance} K/W"}],
        "zones": {"chip": zone},
        **more,
    }
    return {"preset": "bpu80", "cooling": cooling}


def passive(temp: float, hyst: float = 1) -> dict[str, Any]:
    return {"temp": f"{temp} degC", "hyst": f"{hyst} K", "type": "passive", "devices": ["cores"]}


DETECTOR = {  # a detector that is always busy, alone on core 1
    "streams": {"talk": {"chat": "chat", "prompt": 1, "output": 1, "requests": "forever", "start": "1 h"}},
    "streams__camera__rate": "200 Hz",
    "streams__camera__before": {"camera": "0 ms"},
    "streams__camera__after": {"cpu": "0 ms"},
}


# --- clocks


def test_decode_goes_with_the_memory_clock_and_prefill_hardly() -> None:
    """BH-06: a memory clock that is parked at half of its points."""
    fast = run("single_1_5b", **SHORT)
    parked = {"machine__clocks__dram__governor": "userspace", "machine__clocks__dram__fixed": "800 MHz"}
    slow = run("single_1_5b", **SHORT, **parked)
    moving = [tpot(r) - chat(r).breakdown_ms["host"] - chat(r).breakdown_ms["dispatch"] for r in (fast, slow)]
    # Of 12.8 GB/s on the pins a lone reader gets 0.917, as it does of a channel of half the width.
    assert moving[1] / moving[0] == pytest.approx(17.1 / (12.8 * 0.917), rel=0.05)
    assert ttft(slow) / ttft(fast) < 1.15 < 1.35 < tpot(slow) / tpot(fast)
    shares = chat(slow).breakdown_ms
    assert shares["dram"] + shares["throttling"] > 0.8 * tpot(slow)  # and said so: it waits for the memory
    assert shares["throttling"] == pytest.approx(moving[1] - moving[0], rel=1e-3)  # which is slow
    assert chat(slow).phases["decode"].mac_busy_fraction < 0.02


def test_a_memory_governor_ramps_up_when_decode_begins() -> None:
    """BH-06: from the lowest clock to the highest in a look or two; then as fast as ever."""
    governor = {
        "governor": "simple_ondemand",
        "points": [{"clock": f"{mhz} MHz"} for mhz in (1600, 1200, 800, 400)],
        "polling": "50 ms",
        "up": 60,
        "down": 30,
    }
    work = {"streams__alice__output": 40, "streams__alice__requests": 1}
    ramping, fixed = run("single_1_5b", machine__clocks__dram=governor, **work), run("single_1_5b", **work)
    assert chat(ramping).itl_p50_ms == pytest.approx(chat(fixed).itl_p50_ms, rel=1e-3)
    assert ttft(ramping) > 1.05 * ttft(fixed)
    assert chat(ramping).ttft_breakdown_ms["throttling"] == pytest.approx(ttft(ramping) - ttft(fixed), rel=0.05)


def test_one_busy_thread_of_four_raises_the_cpu_clock() -> None:
    """The load of a cluster is that of its busiest core."""
    governor = {"machine__clocks__host__governor": "simple_ondemand", "machine__clocks__host__polling": "5 ms"}
    parked, ondemand, fixed = (
        run("single_1_5b", streams__alice__prompt=8, streams__alice__output=40, streams__alice__requests=1, **more)
        for more in ({"machine__clocks__host__governor": "powersave"}, governor, {})
    )
    lost = [tpot(r) - tpot(fixed) for r in (parked, ondemand)]
    assert 0 < lost[1] < 0.7 * lost[0]  # it needs a look or two to notice


def test_a_memory_that_gives_all_it_can_is_busy() -> None:
    """At its lowest clock it moves less than the pins could; the governor still sees it working all the time."""
    governor = {"machine__clocks__dram__governor": "simple_ondemand", "machine__cooling": "passive_heatsink"}
    result = run("dual_replica", **governor, machine__cooling__sample="50 ms", run__until="400 ms")
    clocks = [s.clocks["dram"] for s in heat(result).samples]
    assert clocks == [400 * 10**6] + [1600 * 10**6] * 7


def test_a_core_clock_four_times_as_fast_is_never_more_than_four_times_as_fast() -> None:
    """BH-28 (a trap): a frame gains at most the clock ratio, and the whole way of a frame what is not the core's."""

    def at(mhz: int) -> Result:
        clock = {"points": [{"clock": "1.2 GHz"}, {"clock": "300 MHz"}], "governor": "userspace", "fixed": f"{mhz} MHz"}
        machine = {"preset": "bpu80", "cores": {"clock": "1.2 GHz"}, "clocks": {"cores": clock}}
        camera = {"rate": "5 Hz", "count": 10, "before": {"camera": "0 ms"}}  # 25 ms of CPU behind each frame stay
        return run("hetero", machine=machine, streams={**DETECTOR["streams"], "camera": camera})

    slow, fast = frames(at(300)), frames(at(1200))
    compute = [f.breakdown_ms["compute"] + f.breakdown_ms["throttling"] for f in (slow, fast)]
    assert 3.5 < compute[0] / compute[1] <= 4
    assert slow.latency_mean_ms is not None
    assert fast.latency_mean_ms is not None
    rest = fast.latency_mean_ms - compute[1]
    assert slow.latency_mean_ms / fast.latency_mean_ms < (compute[0] + rest) / (compute[1] + rest) + 0.01


def test_a_core_that_has_fallen_asleep_delays_the_first_frame_only() -> None:
    """BH-31: 100 frames a second, ten seconds of nothing, 100 frames a second."""
    more = {**DETECTOR, "streams__camera__rate": "100 Hz", "streams__camera__count": 20}
    later = {"frames": "detector", "rate": "100 Hz", "count": 20, "start": "10.3 s"}
    more["streams"] = {**DETECTOR["streams"], "later": later}  # type: ignore[dict-item]
    steady = run("hetero", **more)
    sleepy = run("hetero", **more, machine__clocks__cores__sleep={"after": "300 ms", "wake": "15 ms"})
    assert frames(sleepy).breakdown_ms["wakeup"] == 0  # never idle for so long
    assert frames(sleepy).latency_p99_ms == frames(steady).latency_p99_ms
    woken = frames(sleepy, "later").breakdown_ms["wakeup"] * frames(sleepy, "later").frames
    assert woken == pytest.approx(15)  # once
    assert frames(steady, "later").breakdown_ms["wakeup"] == 0  # off unless asked for


def test_a_governor_changes_the_spread_and_not_the_best_case() -> None:
    """BH-42: an image now and then, with clocks that follow the load."""
    points = [{"clock": "1.2207 GHz", "voltage": "0.8 V"}, {"clock": "400 MHz", "voltage": "0.6 V"}]
    governor = {"points": points, "governor": "simple_ondemand", "polling": "200 ms", "up": 40, "down": 20}
    more = {**DETECTOR, "streams__camera__rate": "30 Hz", "streams__camera__count": 60}
    fixed, governed = (frames(run("hetero", **more, **c)) for c in ({}, {"machine__clocks__cores": governor}))
    assert governed.latency_p50_ms == pytest.approx(fixed.latency_p50_ms, rel=0.02)
    assert governed.latency_p99_ms is not None
    assert fixed.latency_p99_ms is not None
    assert governed.latency_p99_ms > 1.5 * fixed.latency_p99_ms


def test_history_adds_prefill_chunks() -> None:
    """BH-42: 0, 500 and 1000 tokens of history in front of 32; a chunk is 256."""
    times = [ttft(run("single_1_5b", streams__alice__prompt=32 + n, **SHORT)) for n in (0, 500, 1000)]
    chunks = [1, 3, 5]
    each = (times[1] - times[0]) / (chunks[1] - chunks[0])
    assert times[2] - times[1] == pytest.approx(2 * each, rel=0.15)  # a little more: attention over what is there


def test_slow_cores_slow_prefill_by_their_clock_and_decode_hardly() -> None:
    """Throttling of the core clock: prefill computes, decode waits for the memory."""

    def at(mhz: int) -> ChatStats:
        clock = {"machine__clocks__cores__governor": "userspace", "machine__clocks__cores__fixed": f"{mhz} MHz"}
        return chat(run("single_3b", **clock, **SHORT))

    slow, fast = at(600), chat(run("single_3b", **SHORT))
    assert slow.tpot_mean_ms is not None
    assert fast.tpot_mean_ms is not None
    assert slow.tpot_mean_ms < 1.01 * fast.tpot_mean_ms
    computes = [s.ttft_breakdown_ms["compute"] + s.ttft_breakdown_ms["throttling"] for s in (slow, fast)]
    assert computes[0] / computes[1] == pytest.approx(1220.7 / 600, rel=0.1)  # a part of it hid behind the memory
    assert computes[0] / computes[1] < 1220.7 / 600


# --- heat


def test_above_its_trip_the_clock_goes_down_a_step_at_each_look() -> None:
    """BH-34: trips at 95, 110 and 115 degC as published; the events say what happened."""
    trips = [passive(95, 2), {"temp": "110 degC", "type": "hot"}, {"temp": "115 degC", "type": "critical"}]
    machine = lump(12, 1.0, trips, start={"chip": "90 degC"}, sample="1 s")
    told = heat(run("thermal_passive", machine=machine, run__until="30 s"))
    steps = [(at, what) for at, what in told.events if what.startswith("bpu0")]
    assert [what for _, what in steps[:3]] == [f"bpu0: cooling state {k} -> {k + 1}" for k in range(3)]
    assert [b[0] - a[0] for a, b in itertools.pairwise(steps[:3])] == [10**12] * 2
    assert told.events[0][1] == "chip: passive trip at 95 degC crossed"
    assert not told.shutdown


def test_a_critical_temperature_ends_the_run_and_says_so() -> None:
    """BH-34: off at 115 degC."""
    trips = [passive(95, 2), {"temp": "110 degC", "type": "hot"}, {"temp": "115 degC", "type": "critical"}]
    result = run("thermal_passive", machine=lump(30, 1.0, trips, start={"chip": "90 degC"}), run__until="300 s")
    told = heat(result)
    assert "critical is 115" in told.shutdown
    assert told.elapsed < 300 * 10**12
    assert [t.crossings for t in told.trips] == [1, 1, 1]
    assert any(w.code == "thermal-shutdown" and told.shutdown in w.text for w in result.warnings)
    assert chat(result).tokens > 0  # what was done until then is there


@pytest.mark.parametrize(("ambient", "stairs"), [(25, True), (16, False)])
def test_frames_go_down_in_stairs_at_25_degrees_and_not_at_16(ambient: int, stairs: bool) -> None:
    """BH-35: the same load; ambient decides. What it does at first and what it sustains are told apart."""
    often = {"polling": "250 ms", "passive_polling": "250 ms"}
    machine = lump(6.7, 0.3, [passive(67.5)], ambient=f"{ambient} degC", sample="250 ms", zone=often)
    result = run("hetero", machine=machine, **DETECTOR, run__until="20 s")
    told = heat(result)
    clocks = [s.clocks["bpu1"] for s in told.samples]
    initial, sustained = told.pace()["camera"]
    if stairs:
        assert len(set(clocks)) >= 3
        assert sustained > 1.1 * initial
    else:
        assert set(clocks) == {clocks[0]}
        assert sustained == pytest.approx(initial, rel=0.02)


def test_a_trip_with_hysteresis_does_not_oscillate_faster_than_it_is_looked_at() -> None:
    told = heat(run("hetero", machine=lump(7.0, 0.3, [passive(65)], ambient="16 degC"), **DETECTOR, run__until="20 s"))
    changes = [at for at, what in told.events if what.startswith("bpu1")]
    assert len(changes) > 5
    assert min(b - a for a, b in itertools.pairwise(changes)) >= 10**12


def test_temperature_ranks_with_load_and_one_heat_path_covers_all() -> None:
    """BH-56: more streams, more heat; above ambient it goes with the power."""
    machine = lump(6.0, 0.1, [], sample="250 ms")
    told = []
    for hz in (10, 40, 80):
        rates = {**DETECTOR, "streams__camera__rate": f"{hz} Hz"}
        told.append(heat(run("hetero", machine=machine, **rates, run__until="6 s")))
    ends = [h.samples[-1].temperatures["chip"] for h in told]
    assert ends == sorted(ends)
    assert ends[2] > ends[0] + 3
    for h, end in zip(told, ends, strict=True):
        watts = sum(sum(s.watts.values()) for s in h.samples[-8:]) / 8
        assert (end - 25) / watts == pytest.approx(6.0, rel=0.02)


def test_looking_at_the_temperature_does_not_keep_a_starved_run_alive() -> None:
    """A deadlock is still found, with a governor that looks at the load as well."""
    masters = {"camera": {"rate": "28 GB/s", "written": 1}}
    governor = {"governor": "simple_ondemand"}
    machine = {"preset": "bpu80", "cooling": "passive_heatsink", "masters": masters, "clocks": {"cores": governor}}
    with pytest.raises(SimulationError, match="the DRAM channel is taken by camera"):
        run("single_1_5b", machine=machine, **SHORT)


def test_leakage_that_heats_faster_than_heat_leaves_ends_the_run() -> None:
    """Thermal runaway, with no trip in its way."""
    machine = lump(8.0, 0.5, [])
    machine["power"] = {"cores": {"leakage": "1 W", "doubles": "20 K"}}
    told = heat(run("thermal_passive", machine=machine, run__until="60 s"))
    assert told.shutdown.startswith("thermal runaway: chip is above 500 degC")
    assert told.elapsed < 60 * 10**12
    assert 500 < max(told.peak_degc.values()) < 510
    assert told.peak_w < 1000


def _lost(name: str, **changes: Any) -> tuple[float, int]:
    """(tokens lost as told, tokens that the same run brings more at full clocks)."""
    slow, free = (run(name, **changes, **g) for g in ({"machine__clocks__dram__governor": "powersave"}, {}))
    return heat(slow).tokens_lost, chat(free).tokens - chat(slow).tokens


def test_a_user_who_thinks_loses_fewer_tokens() -> None:
    told, missing = _lost(
        "single_1_5b", machine__cooling="passive_heatsink", streams__alice__requests="forever",
        streams__alice__think="4 s", run__until="20 min",
    )  # fmt: skip
    assert missing > 50
    assert told == pytest.approx(missing, rel=0.1)


def test_a_run_that_answers_all_requests_loses_none() -> None:
    assert _lost("single_1_5b", machine__cooling="passive_heatsink") == (0.0, 0)


def test_a_step_that_never_ends_is_told_of() -> None:
    """An open-loop master takes the channel while decode is under way: no latency shows it."""
    taken = {"rate": "30 GB/s", "written": 0, "on": "10 s", "period": "11 s"}
    result = run("single_1_5b", machine={"preset": "bpu80", "masters": {"camera": taken}}, run__until="20 s")
    (text,) = [w.text for w in result.warnings if w.code == "step-in-progress"]
    assert text.startswith("alice: a decode step in progress at the end had taken 9")
