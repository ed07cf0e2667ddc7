"""Heat and power of the reference board, row by row (R13 to R15), on the shipped scenarios.

Expected values are the published field report's, as ``docs/VALIDATION.md`` quotes them; 5 % on powers. Each scenario
runs once: half an hour and more of simulated time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import bpusim
from bpusim.metrics import ChatStats, HeatStats, Result
from bpusim.units import PS_PER_S

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
FULL_LOAD = {"run.until": "40 min"}
ONE_CORE = {
    "machine.cooling": "passive_heatsink",
    "streams.alice.output": 512,
    "streams.alice.requests": "forever",
    "run.until": "60 min",
}

Ran = Callable[..., Result]
pytestmark = pytest.mark.validation


@pytest.fixture(scope="module")
def ran() -> Ran:
    """``ran(name, changes)``: the result of a shipped scenario, which runs once."""
    results: dict[str, Result] = {}

    def run(name: str, changes: Mapping[str, Any] = FULL_LOAD) -> Result:
        if name not in results:
            results[name] = bpusim.simulate(SCENARIOS / f"{name}.yaml", set=changes)
        return results[name]

    return run


def _heat(result: Result) -> HeatStats:
    assert result.heat is not None
    return result.heat


def _watts(heat: HeatStats, first: int, last: int) -> float:
    """Mean power of the board over samples, a second each."""
    return sum(sum(s.watts.values()) for s in heat.samples[first:last]) / (last - first)


def _hottest(heat: HeatStats, second: int) -> float:
    sample = heat.samples[second - 1].temperatures
    return max(sample["bpu0"], sample["bpu1"])


def _crossed(heat: HeatStats) -> int:
    """Second in which the passive trip is crossed first."""
    first = next(t for t in heat.trips if t.type == "passive").first
    assert first is not None
    return first // PS_PER_S


def test_one_core_that_decodes_draws_6_5_watts_at_least(ran: Ran) -> None:
    """R13; cold as well, when leakage is least."""
    heat = _heat(ran("single_3b", ONE_CORE))
    assert _watts(heat, 0, 60) >= 6.5 * 0.95
    assert _watts(heat, 3500, 3600) >= 6.5


def test_both_cores_at_full_load_draw_8_5_watts_at_most(ran: Ran) -> None:
    """R13, hot: in the last minutes before anything is slowed down."""
    heat = _heat(ran("thermal_passive"))
    end = _crossed(heat) - 1
    assert 8.5 * 0.95 <= _watts(heat, end - 120, end) <= 8.5


def test_the_meter_never_shows_more_than_9_watts(ran: Ran) -> None:
    """R13: a meter shows the mean of a second."""
    assert _heat(ran("thermal_passive")).peak_w <= 9.0


def test_the_passive_heatsink_keeps_the_core_between_62_and_75_degrees(ran: Ran) -> None:
    """R14, over 6.5 to 8.5 W."""
    one, both = _heat(ran("single_3b", ONE_CORE)), _heat(ran("thermal_passive"))
    assert 62 <= _hottest(one, 3600) <= 75
    assert 62 <= _hottest(both, 1500) <= 75
    assert max(both.peak_degc.values()) <= 75


def test_full_load_crosses_the_trip_above_70_degrees_after_about_half_an_hour(ran: Ran) -> None:
    """R14."""
    heat = _heat(ran("thermal_passive"))
    assert 20 * 60 <= _crossed(heat) <= 40 * 60
    assert _hottest(heat, _crossed(heat)) > 70


def test_a_small_fan_keeps_it_below_60_degrees(ran: Ran) -> None:
    """R15, with less than a watt for the fan. What is still to come is less than the last five minutes brought."""
    heat = _heat(ran("thermal_fan", {"run.until": "20 min"}))
    earlier, last = (heat.samples[minute * 60 - 1].temperatures for minute in (15, 20))
    rise = max(last[node] - earlier[node] for node in ("heatsink", "board"))  # the nodes that are slow
    assert 0 < rise < 1
    assert max(heat.peak_degc.values()) + rise < 60
    assert heat.samples[-1].watts["fan"] < 1.0


def test_slower_cores_alone_cost_hardly_a_token(ran: Ran) -> None:
    """R14's visible drop is not the core clock's: decode waits for the memory."""
    before, after = _heat(ran("thermal_passive")).pace()["alice"]
    assert after < before / 0.99
    assert _heat(ran("thermal_passive")).throttled["bpu0"] > 0


def test_slower_memory_makes_the_drop_visible(ran: Ran) -> None:
    """R14: with the memory and CPU clocks among the cooling devices."""
    before, after = _heat(ran("thermal_passive_dram")).pace()["alice"]
    assert after > before / 0.95


def test_tokens_lost_are_those_that_a_run_without_throttling_brings(ran: Ran) -> None:
    """They come from each token's own throttling; here is the other run."""
    slow, free = ran("thermal_passive_dram"), ran("thermal_passive")

    def tokens(result: Result) -> int:
        return sum(s.tokens for s in result.streams.values() if isinstance(s, ChatStats))

    missing = tokens(free) + _heat(free).tokens_lost - tokens(slow)
    assert _heat(slow).tokens_lost == pytest.approx(missing, rel=0.03)
