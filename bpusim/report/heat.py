"""Heat and power: tables for a terminal, and ``thermal.csv``."""

from __future__ import annotations

import csv
import io

from rich.table import Table

from bpusim.errors import BpusimError
from bpusim.metrics import HeatStats, Result
from bpusim.report.plain import plain_table
from bpusim.units import PS_PER_S

__all__ = ["heat_lines", "heat_tables", "thermal_csv"]

_EVENTS = 3
"""So many of the first and of the last are printed; all are in summary.json."""


def heat_tables(heat: HeatStats) -> list[Table]:
    """Where the power went, how hot it got, and what that did to the clocks."""
    power = plain_table("Power", "component", "mean W", "of all")
    for name, joules in heat.energy_j.items():
        if joules:
            watts = joules * PS_PER_S / heat.elapsed
            power.add_row(name, f"{watts:.2f}", f"{watts / heat.mean_w:.1%}")
    power.add_row("board in all", f"{heat.mean_w:.2f}", "", style="bold")
    nodes = plain_table(f"Temperatures, air {heat.ambient_degc:g} degC", "node", "highest seen", "at the end")
    for name, peak in heat.peak_degc.items():
        nodes.add_row(name, f"{peak:.1f}", f"{heat.end_degc[name]:.1f}")
    trips = plain_table("Trips", "zone", "type", "at degC", "first at s", "times", "crossed for s")
    for t in heat.trips:
        first = "never" if t.first is None else f"{t.first / PS_PER_S:.1f}"
        trips.add_row(t.zone, t.type, f"{t.temp_degc:g}", first, str(t.crossings), f"{t.above / PS_PER_S:.1f}")
    return [power, nodes, *([trips] if heat.trips else [])]


def heat_lines(heat: HeatStats) -> list[str]:
    """What the tables do not say: energy, throttling, events."""
    each = "".join(
        f", {joules:.3g} J a {what}"
        for what, joules in (("token", heat.token_j), ("frame", heat.frame_j))
        if joules is not None
    )
    if heat.tokens and heat.frames:
        each += " (each charged with all that the board did)"
    lines = [f"Energy {heat.energy:.4g} J{each}; the highest mean of a sample is {heat.peak_w:.2f} W"]
    if heat.time_constants_s:
        lines[0] += f"; the slowest time constant is {heat.time_constants_s[0]:.3g} s"
    slow = [f"{name} {t / PS_PER_S:.1f} s" for name, t in heat.throttled.items() if t]
    if slow:
        lines.append(f"Slowed down by heat: {', '.join(slow)}")
    if heat.tokens and (slow or heat.tokens_lost >= 0.5):
        lost = f"about {heat.tokens_lost:.0f} more than the {heat.tokens}" if heat.tokens_lost >= 0.5 else "none"
        whose = "heat and governors" if slow else "governors"
        lines.append(f"Tokens lost to clocks below the machine's ({whose}), an estimate: {lost}")
    pace = [f"{name} {first / 1e9:.2f} then {last / 1e9:.2f} ms" for name, (first, last) in heat.pace().items()]
    if pace:
        lines.append(f"A decode token or frame took, in the first and the last tenth: {', '.join(pace)}")
    else:
        lines.append("Too short to tell the sustained pace: fewer than twenty samples, or nothing ended in a tenth")
    cut = len(heat.events) - 2 * _EVENTS
    shown = [f"{at / PS_PER_S:.2f} s: {what}" for at, what in heat.events]
    return lines + (shown if cut <= 0 else [*shown[:_EVENTS], f"... {cut} more, in summary.json", *shown[-_EVENTS:]])


def thermal_csv(result: Result) -> str:
    """A row a sample: time, temperatures, mean power since the last row, clocks, fan level.

    Raises :class:`BpusimError` for a run without heat.
    """
    if result.heat is None:
        raise BpusimError("this run has no heat path", do="give the machine cooling: passive_heatsink")
    heat, out = result.heat, io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = {"degc": heat.peak_degc, "w": heat.energy_j, "hz": heat.throttled, "done": result.streams}
    named = {unit: [f"{n}_{unit}" for n in names] for unit, names in columns.items()}
    writer.writerow(["time_s", *named["degc"], *named["w"], "total_w", *named["hz"], "fan_level", *named["done"]])
    for s in heat.samples:
        temperatures, watts = ([round(v, 9) for v in table.values()] for table in (s.temperatures, s.watts))
        total = round(sum(s.watts.values()), 9)
        done = (n for n, _ in s.done.values())
        writer.writerow([s.at / PS_PER_S, *temperatures, *watts, total, *s.clocks.values(), s.fan, *done])
    return out.getvalue()
