"""What the cores did: over the whole run, and its first calls one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpusim.errors import BpusimError
from bpusim.report.charts.over_time import OTHERS, largest, merged, stacked
from bpusim.report.charts.style import MUTED, PAPER, Size, legend_above, legend_height, named, sheet
from bpusim.report.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_timeline"]


def draw_timeline(view: View, size: Size) -> Figure:
    """A strip a core: the part of the time in which it has a call, by stream and phase; CPU cores; the close-up."""
    from matplotlib.patches import Patch

    occupancy, close = view.needed("occupancy"), view.needed("close_up")
    cores, edges = occupancy["cores"], occupancy["edges_s"]
    if not cores:
        raise BpusimError("no timeline to draw: no core had a call", do="let it run longer")
    labels = sorted(largest(*cores.values()), key=lambda label: (label == OTHERS, label))
    heights = [0.78] * (len(cores) + 1) + [0.34 * len(cores) + 0.75]
    heights[0] += legend_height(labels, size)
    figure, axes = sheet(size, heights, ratios=[0.5] * (len(cores) + 1) + [0.34 * len(cores)])
    colours = named(labels)
    for ax, (core, rows) in zip(axes, cores.items(), strict=False):
        stacked(ax, edges, merged(rows, labels), size, colours=colours)
        ax.set_ylim(0, 1)
        ax.set_yticks([0, 1], ["0", "1"])
        ax.set_ylabel(core, rotation=0, ha="right", va="center")
    cpu = axes[len(cores)]
    stacked(cpu, edges, {"cpu": occupancy["cpu_cores"]}, size, colours={"cpu": (MUTED, "")})
    cpu.set_ylim(bottom=0)
    cpu.set_ylabel("CPU\ncores", rotation=0, ha="right", va="center")
    for ax in axes[: len(cores) + 1]:
        ax.set_xlim(0, edges[-1])
        ax.grid(axis="x", visible=False)
        if ax is not cpu:
            ax.tick_params(axis="x", labelbottom=False)
    cpu.set_xlabel("s")
    axes[0].set_title("Part of the time in which a core has a call")
    _close_up(axes[-1], close, list(cores), colours)
    handles = [Patch(facecolor=c, hatch=h, edgecolor=PAPER, linewidth=0) for c, h in colours.values()]
    legend_above(figure, handles, labels, size)
    return figure


def _close_up(ax: Axes, close: dict[str, object], cores: list[str], colours: dict[str, tuple[str, str]]) -> None:
    calls = close["calls"]
    assert isinstance(calls, list)
    for label, (colour, pattern) in colours.items():
        for y, core in enumerate(cores):
            spans = [
                (a, b - a) for on, what, a, b in calls if on == core and (what if what in colours else OTHERS) == label
            ]
            if spans:
                ax.broken_barh(spans, (y - 0.36, 0.72), facecolor=colour, hatch=pattern, edgecolor=PAPER, linewidth=0.5)
    every = close["all"]
    ax.set_title(f"Close-up: the first {len(calls)} of {every} calls" if every != len(calls) else "Call by call")
    ax.set_yticks(range(len(cores)), cores)
    ax.set_ylim(len(cores) - 0.5, -0.5)
    ax.set_xlim(0, close["until_ms"])  # type: ignore[arg-type]
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("ms")
