"""Heat as a user reads it: lines and tables for a terminal, and thermal.csv."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bpusim import simulate
from bpusim.metrics import HeatStats, TripStats
from bpusim.ports import HeatSample
from bpusim.report.heat import heat_lines, heat_tables, thermal_csv

S = 10**12
MS = 10**9
SHORT = "Too short to tell the sustained pace: fewer than twenty samples, or nothing ended in a tenth"


def samples(*spans: tuple[int, int]) -> tuple[HeatSample, ...]:
    """A sample a second; in each second so many tokens, so many ms each."""
    count, spent, rows = 0, 0, []
    for k, (tokens, each) in enumerate(spans):
        count, spent = count + tokens, spent + tokens * each * MS
        rows.append(
            HeatSample((k + 1) * S, {"die": 40.0}, {"bpu0": 3.0}, {"bpu0": 10**9}, 0, {"alice": (count, spent)})
        )
    return tuple(rows)


def heat(**changes: Any) -> HeatStats:
    """Twenty seconds in which a token of 80 ms became one of 100."""
    plain: dict[str, Any] = {
        "ambient_degc": 25.0,
        "peak_degc": {"die": 70.26},
        "end_degc": {"die": 60.0},
        "energy_j": {"bpu0": 60.0, "board": 40.0, "fan": 0.0},
        "elapsed": 20 * S,
        "tokens": 50,
        "frames": 0,
        "tokens_lost": 0.0,
        "throttled": {"bpu0": 0, "dram": 0},
        "trips": (),
        "samples": samples(*[(12, 80)] * 10, *[(10, 100)] * 10),
        "events": (),
    }
    return HeatStats(**(plain | changes))


def lines(**changes: Any) -> list[str]:
    return heat_lines(heat(**changes))


def printed(stats: HeatStats) -> str:
    out = io.StringIO()
    console = Console(file=out, width=100)
    for table in heat_tables(stats):
        console.print(table)
    return out.getvalue()


def test_the_pace_is_that_of_tokens_which_ended_in_the_first_and_the_last_tenth() -> None:
    """Not of how many happened to end there: a tenth holds 20 to 24."""
    assert heat().pace() == {"alice": (80 * MS, 100 * MS)}
    assert "A decode token or frame took, in the first and the last tenth: alice 80.00 then 100.00 ms" in lines()
    assert heat().to_dict()["pace_ms"] == {"alice": {"initial": 80.0, "sustained": 100.0}}


@pytest.mark.parametrize("spans", [[(12, 80)] * 19, [(12, 80)] * 18 + [(0, 0)] * 4], ids=["short", "ended"])
def test_a_run_without_a_sustained_pace_says_so(spans: list[tuple[int, int]]) -> None:
    assert SHORT in lines(samples=samples(*spans))


def test_energy_is_given_for_each_token_and_frame() -> None:
    assert lines()[0] == "Energy 100 J, 2 J a token; the highest mean of a sample is 3.00 W"
    assert lines(tokens=0, frames=400)[0].startswith("Energy 100 J, 0.25 J a frame; the")
    both = "Energy 100 J, 2 J a token, 0.25 J a frame (each charged with all that the board did); the"
    assert lines(frames=400)[0].startswith(both)


SLOW = {"throttled": {"bpu0": 3 * S, "dram": 0}}
LOST = "Tokens lost to clocks below the machine's (%s), an estimate: %s"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"tokens_lost": 2e-5}, []),
        (SLOW, ["Slowed down by heat: bpu0 3.0 s", LOST % ("heat and governors", "none")]),
        (
            SLOW | {"tokens_lost": 7.4},
            ["Slowed down by heat: bpu0 3.0 s", LOST % ("heat and governors", "about 7 more than the 50")],
        ),
        ({"tokens_lost": 7.4}, [LOST % ("governors", "about 7 more than the 50")]),
        (SLOW | {"tokens": 0, "frames": 9}, ["Slowed down by heat: bpu0 3.0 s"]),
    ],
)
def test_tokens_lost_are_told_where_there_are_some(changes: dict[str, Any], expected: list[str]) -> None:
    assert [line for line in lines(**changes) if "lost" in line or "Slowed" in line] == expected


def test_of_many_events_the_first_and_the_last_are_shown() -> None:
    events = [(k * S, f"event {k}") for k in range(9)]
    shown = lines(events=events)[-7:]
    assert shown == [
        "0.00 s: event 0",
        "1.00 s: event 1",
        "2.00 s: event 2",
        "... 3 more, in summary.json",
        "6.00 s: event 6",
        "7.00 s: event 7",
        "8.00 s: event 8",
    ]
    assert [line for line in lines(events=events[:6]) if "event" in line] == [f"{k}.00 s: event {k}" for k in range(6)]


def test_tables_tell_where_power_goes_and_when_trips_were_crossed() -> None:
    trips = (
        TripStats("soc", "passive", 70.0, 3 * S, 2, 5 * S),
        TripStats("soc", "critical", 105.0, 0, 0, None),
    )
    text = printed(heat(trips=trips))
    rows = [line.split() for line in text.splitlines()]
    assert ["bpu0", "3.00", "60.0%"] in rows
    assert ["board", "in", "all", "5.00"] in rows
    assert "fan" not in text  # it drew nothing
    assert ["die", "70.3", "60.0"] in rows
    assert ["soc", "passive", "70", "5.0", "2", "3.0"] in rows
    assert ["soc", "critical", "105", "never", "0", "0.0"] in rows


def test_thermal_csv_has_a_row_a_sample() -> None:
    scenario = Path(__file__).resolve().parents[2] / "scenarios" / "thermal_fast.yaml"
    result = simulate(scenario, set={"run.until": "200 ms"})
    assert result.heat is not None
    rows = list(csv.DictReader(io.StringIO(thermal_csv(result))))
    assert [float(r["time_s"]) for r in rows] == [0.05, 0.1, 0.15, 0.2]
    for row, sample in zip(rows, result.heat.samples, strict=True):
        watts = {k: float(v) for k, v in row.items() if k.endswith("_w")}
        assert watts.pop("total_w") == pytest.approx(sum(watts.values()), abs=1e-8)
        assert float(row["die_degc"]) == pytest.approx(sample.temperatures["die"], abs=1e-8)
        assert {n: int(row[f"{n}_hz"]) for n in sample.clocks} == dict(sample.clocks)
        assert int(row["alice_done"]) == sample.done["alice"][0]
