"""The table of heat and power in VALIDATION.md: rows R13 to R15, from whole runs of the shipped scenarios."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bpusim.metrics import HeatStats
from bpusim.system import simulate
from bpusim.units import PS_PER_S

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
ALONE = ["machine.cooling=passive_heatsink", "streams.alice.output=512", "streams.alice.requests=forever"]


@cache
def heat(name: str, *overrides: str) -> HeatStats:
    """The heat of a shipped scenario."""
    found = simulate(SCENARIOS / f"{name}.yaml", set=list(overrides)).heat
    assert found is not None
    return found


def watts(h: HeatStats, first: int, last: int) -> float:
    """Mean of samples, a second each."""
    return sum(sum(s.watts.values()) for s in h.samples[first:last]) / (last - first)


def core(h: HeatStats, second: int) -> float:
    """The hotter core at a second."""
    t = h.samples[second - 1].temperatures
    return max(t["bpu0"], t["bpu1"])


def verdict(inside: bool) -> str:
    return "inside" if inside else "**outside**"


def table() -> list[list[str]]:
    """Rows: what, command, published, simulated, verdict, simplest model."""
    one, both = heat("single_3b", *ALONE, "run.until=60 min"), heat("thermal_passive")
    fan, memory, hot = heat("thermal_fan"), heat("thermal_passive_dram"), heat("thermal_hot_day")
    hot_memory = heat("thermal_hot_day_dram")
    first = both.trips[0].first
    assert first is not None
    trip = first // PS_PER_S
    low, high = watts(one, -120, -1), watts(both, trip - 121, trip - 1)
    return [
        ["R13: one core decodes", "single_3b on `passive_heatsink`, an hour", ">= 6.5 W, 5 %",
         f"{low:.2f} W warm, {watts(one, 0, 60):.2f} W cold", verdict(watts(one, 0, 60) >= 6.175), "-"],
        ["R13: both at full load", "thermal_passive", "<= 8.5 W, 5 %", f"{high:.2f} W before the trip", verdict(high <= 8.925), "-"],
        ["R13: a meter's highest", "thermal_passive", "never above 9 W",
         f"{both.peak_w:.2f} W over a second; {heat('thermal_fast').peak_w:.1f} W over 50 ms (both prefill)",
         verdict(both.peak_w <= 9), "-"],
        ["R14: core, one decodes", "single_3b on `passive_heatsink`, an hour", "62 degC at 6.5 W",
         f"{core(one, 3600):.1f} degC", verdict(62 <= core(one, 3600) <= 75), f"25 + 5.8 K/W x {low:.2f} W = {25 + 5.8 * low:.1f}"],
        ["R14: core, full load", "thermal_passive", "62 to 75 degC",
         f"{core(both, trip):.1f} degC at the trip, {both.peak_degc['bpu0']:.1f} at most", verdict(both.peak_degc["bpu0"] <= 75),
         f"25 + 5.8 K/W x {high:.2f} W = {25 + 5.8 * high:.1f} in the end"],
        ["R14: the trip", "thermal_passive", "after half an hour, within 40 min", f"crossed at {trip / 60:.1f} min",
         verdict(20 <= trip / 60 <= 40), "590 s x ln(49.3 / 2.3) = 30.1 min"],
        ["R14: the visible drop", "thermal_passive, core clock alone", "visible",
         f"decode {pace(both)} in a stream; {both.tokens_lost:.0f} of {both.tokens} tokens lost", "not by the core clock", "-"],
        ["", "thermal_passive_dram: memory and CPU clocks too", "visible",
         f"decode {pace(memory)}; {memory.tokens_lost:.0f} of {memory.tokens} tokens lost", verdict(memory.tokens_lost > 100), "-"],
        ["R15: a small fan", "thermal_fan", "< 60 degC, fan < 1 W", f"{fan.peak_degc['bpu0']:.1f} degC at most, fan {fan.samples[-1].watts['fan']:.1f} W",
         verdict(max(fan.peak_degc.values()) < 60), "-"],
        ["air of 40 degC", "thermal_hot_day", "-",
         f"crossed at {crossed(hot)}, {hot.throttled['bpu0'] / PS_PER_S / 60:.1f} min slow, decode {pace(hot)}", "-", "-"],
        ["", "thermal_hot_day_dram", "-",
         f"crossed at {crossed(hot_memory)}, {hot_memory.throttled['dram'] / PS_PER_S / 60:.1f} min slow, decode {pace(hot_memory)}", "-", "-"],
    ]  # fmt: skip


def crossed(h: HeatStats) -> str:
    first = h.trips[0].first
    return "-" if first is None else f"{first / PS_PER_S / 60:.1f} min"


def pace(h: HeatStats) -> str:
    """Of one stream at first and at last."""
    initial, sustained = h.pace()["alice"]
    return f"{PS_PER_S / initial:.2f} then {PS_PER_S / sustained:.2f} tok/s"
