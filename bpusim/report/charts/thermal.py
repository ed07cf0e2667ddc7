"""Half an hour later: temperature, power and clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bpusim.errors import BpusimError
from bpusim.report.charts.over_time import legend, stacked, starts_of
from bpusim.report.charts.style import MUTED, Size, named, sheet, shown
from bpusim.report.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_thermal"]

_POINTS = {False: 400, True: 160}
_NEAR = 15
"""Trips so far above the highest temperature, in degC, would leave no room for it."""


def draw_thermal(view: View, size: Size) -> Figure:
    """Three panels over the same time."""
    table = view.thermal
    if table is None:
        raise BpusimError(
            "no heat to draw: this run has no heat path",
            do="give the machine cooling: passive_heatsink, and run it again",
        )
    times = table["time_s"]
    if not times:
        raise BpusimError("no heat to draw: the run ended before its first sample", do="let it run longer")
    nodes, watts, clocks = (_ending(table, unit) for unit in ("_degc", "_w", "_hz"))
    watts = {name: row for name, row in watts.items() if name != "total" and any(row)}
    figure, (hot, power, rate) = sheet(size, [2.1 + 0.35 * size.narrow] * 2 + [1.5 + 0.35 * size.narrow], sharex=True)
    colours = named(list(dict.fromkeys([*clocks, *nodes, *watts])))
    _lines(hot, times, nodes, size, colours)
    near = max(map(max, nodes.values())) + _NEAR
    for temp, kind in sorted({(t["temp_degc"], t["type"]) for t in view.summary["heat"]["trips"]}):
        if temp <= near:
            hot.axhline(temp, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), label=f"{kind} trip {temp:g}")
    hot.set_ylabel("degC")
    legend(hot, size, "Temperature")
    stacked(power, [0.0, *times], watts, size, colours=colours)
    power.set_ylabel("W")
    power.set_ylim(bottom=0)
    legend(power, size, "Power by component")
    _lines(rate, times, {n: [v / 1e9 for v in row] for n, row in clocks.items()}, size, colours)
    rate.set_ylabel("GHz")
    rate.set_ylim(bottom=0)
    legend(rate, size, "Clocks")
    rate.set_xlabel("s")
    rate.set_xlim(0, times[-1])
    return figure


def _ending(table: Mapping[str, list[float]], unit: str) -> dict[str, list[float]]:
    return {name.removesuffix(unit): row for name, row in table.items() if name.endswith(unit)}


def _lines(
    ax: Axes,
    times: Sequence[float],
    rows: Mapping[str, Sequence[float]],
    size: Size,
    colours: Mapping[str, tuple[str, str]],
) -> None:
    """Means of neighbours; lines ever thinner, so that those which lie on each other are all seen."""
    starts = starts_of(len(times), _POINTS[size.narrow])
    counts = np.diff(np.append(starts, len(times)))
    x = np.add.reduceat(np.array(times, dtype=float), starts) / counts
    for k, (name, row) in enumerate(rows.items()):
        y = np.add.reduceat(np.array(row, dtype=float), starts) / counts
        ax.plot(x, y, color=colours[name][0], linewidth=1.2 + 0.7 * (len(rows) - 1 - k), label=shown(name))
