"""Heat on a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bpusim.report.page.tables import Table, column, number, percent

__all__ = ["heat_part"]


_TRIP = ("temp_degc", "first_s", "crossings", "above_s")


def heat_part(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What became of it, in a sentence, tables and a list of events."""
    heat = summary["heat"]
    power, mean = heat["mean_power_by_component_w"], heat["mean_power_w"]
    slowed = [f"{name} for {s:.1f} s" for name, s in heat["throttled_s"].items() if s]
    text = f"{mean:.2f} W on average, air at {heat['ambient_degc']:g} degC. "
    text += f"Slowed down by heat: {', '.join(slowed)}." if slowed else "No clock was slowed down by heat."
    if slowed and heat["tokens_lost"] >= 0.5:
        text += f" That cost about {heat['tokens_lost']:.0f} tokens."
    if heat["shutdown"]:
        text += f" The run ended early: {heat['shutdown']}."
    return {"text": text, "tables": _tables(heat, power, mean), "events": _events(heat)}


def _tables(heat: Mapping[str, Any], power: Mapping[str, float], mean: float) -> list[Table]:
    pace = heat["pace_ms"]
    return [
        Table(
            "temperatures",
            "Temperatures, degC",
            [column("", "node"), column("peak_degc", number=True), column("end_degc", number=True)],
            [[n, number(peak, 1), number(heat["end_degc"][n], 1)] for n, peak in heat["peak_degc"].items()],
        ),
        Table(
            "power",
            "Mean power",
            [
                column("", "component"),
                column("mean_power_by_component_w", "W", number=True),
                column("", "of all", number=True),
            ],
            [[n, number(w, 2), percent(w / mean)] for n, w in power.items() if w],
        ),
        Table(
            "trips",
            "Trips",
            [column("", "zone"), column("", "type"), *(column(k, number=True) for k in _TRIP)],
            [
                [t["zone"], t["type"], *(number(t[k], None if k == "crossings" else 1) for k in _TRIP)]
                for t in heat["trips"]
            ],
        ),
        Table(
            "pace",
            "A decode token or frame took",
            [column("", "stream"), *(column(k, unit="ms", number=True) for k in ("initial", "sustained"))],
            [[n, number(p["initial"], 2), number(p["sustained"], 2)] for n, p in pace.items()],
        ),
    ]


def _events(heat: Mapping[str, Any]) -> list[str]:
    """The first and the last, where they are many; all are in summary.json."""
    shown = [f"{e['at_s']:.2f} s: {e['what']}" for e in heat["events"]]
    return (
        shown if len(shown) <= 200 else [*shown[:100], f"... {len(shown) - 200} more, in summary.json", *shown[-100:]]
    )
