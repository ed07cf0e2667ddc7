"""Ops under the machine's roof: operations a byte against operations a second that were achieved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bpusim.errors import BpusimError
from bpusim.report.charts.style import INK, MUTED, PAPER, Size, legend_above, named, sheet, shown
from bpusim.report.ops_view import OpPoint, op_points, phase_points
from bpusim.report.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_roofline"]


_MOST, _DOTS = 9, 160
"""Phases and ops that are drawn: those that take the most of the time."""


def draw_roofline(view: View, size: Size) -> Figure:
    """A dot an op of a stream's phase, as large as its part of all ops' time; a diamond a phase as a whole."""
    rows, machine = view.needed("ops"), view.needed("machine")
    points = op_points(rows, machine["core_alone_bytes_per_s"])
    if not points:
        raise BpusimError("no roofline to draw: no op had any MACs", do="run a scenario with a model that computes")
    whole = sorted(phase_points(rows), key=lambda p: -p.share)[:_MOST]
    labels = [p.label for p in whole]
    points = sorted((p for p in points if p.label in labels), key=lambda p: -p.share)[:_DOTS]
    figure, (ax,) = sheet(size, [4.0 if not size.narrow else 4.4])
    _roofs(ax, machine, view.summary["dram"]["peak_bytes_per_s"], [*points, *whole])
    colours = named(sorted(labels))
    for label, (colour, _) in colours.items():
        look: dict[str, Any] = {"color": colour, "edgecolor": PAPER, "linewidth": 0.6}
        mine = [p for p in points if p.label == label]
        at = [p.intensity for p in mine], [p.achieved for p in mine]
        ax.scatter(*at, [16 + 700 * p.share for p in mine], alpha=0.75, zorder=3, **look)
        phase = next(p for p in whole if p.label == label)
        ax.scatter([phase.intensity], [phase.achieved], [75], marker="D", zorder=4, label=label.lstrip("_"), **look)
    _names(ax, points, size)
    ax.set_xlabel("operations a byte")
    ax.set_ylabel("operations a second")
    ax.set_title(
        "Dots: ops, by time; diamonds: phases as a whole" if not size.narrow else "Dots: ops; diamonds: phases"
    )
    handles, names = ax.get_legend_handles_labels()
    legend_above(figure, handles, [*names[:2], *colours], size)
    return figure


def _roofs(ax: Axes, machine: Mapping[str, Any], channel: float, points: Sequence[OpPoint]) -> None:
    from matplotlib.ticker import EngFormatter

    peak, alone = machine["core_peak_ops_per_s"], machine["core_alone_bytes_per_s"]
    balance = peak / alone
    low = min(*(p.intensity for p in points), 1.0) / 1.8
    high = max(*(p.intensity for p in points), balance) * 3
    bottom = min(*(p.achieved for p in points), low * alone) / 1.6
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, peak * 2.2))
    x = np.array([low, balance, high])
    text = f"one core: {peak / 1e12:.3g} TOPS, {alone / 1e9:.1f} GB/s alone"
    ax.plot(x, np.minimum(x * alone, peak), color=INK, linewidth=1.3, zorder=2, label=text)
    ax.plot(
        [low, peak / channel], [low * channel, peak], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2,
        label=f"channel peak {channel / 1e9:.1f} GB/s",
    )  # fmt: skip
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.yaxis.set_major_formatter(EngFormatter(sep=" "))
    ax.tick_params(which="minor", length=0)


def _names(ax: Axes, points: Sequence[OpPoint], size: Size) -> None:
    """Of the ops that take most of the time, where names do not cover each other."""
    taken: list[tuple[float, float]] = []
    room, wide, most = (0.5, 2.2, 4) if size.narrow else (0.2, 0.9, 8)
    for p in sorted(points, key=lambda p: -p.share):
        at = float(np.log10(p.intensity)), float(np.log10(p.achieved))
        if len(taken) < most and all(abs(at[1] - y) > room or abs(at[0] - x) > wide for x, y in taken):
            taken.append(at)
            ax.annotate(
                shown(p.op, 22 if size.narrow else 40),
                (p.intensity, p.achieved),
                xytext=(9, -10),
                textcoords="offset points",
                size=7.5,
                zorder=5,
            )
