"""Who uses the memory, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpusim.errors import BpusimError
from bpusim.report.charts.over_time import largest, legend, merged, stacked
from bpusim.report.charts.style import INK, MUTED, Size, sheet
from bpusim.report.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_bandwidth"]


def draw_bandwidth(view: View, size: Size) -> Figure:
    """Bytes by master, one on the other, below what the channel could give."""
    series = view.needed("bandwidth")
    masters, machine, edges = series["bytes_per_s"], view.needed("machine"), series["edges_s"]
    if not masters or edges[-1] <= 0:
        raise BpusimError("no bandwidth to draw: nothing used the memory", do="let it run longer")
    figure, (ax,) = sheet(size, [2.9 + 0.4 * size.narrow])
    width = stacked(ax, edges, merged(masters, largest(masters)), size, 1e-9)
    peak = view.summary["dram"]["peak_bytes_per_s"] / 1e9
    cores = machine["cores"]
    lines = [
        (peak, (0, (5, 3)), f"peak {peak:.1f} GB/s", INK),
        (machine["channel_capacity_bytes_per_s"] / 1e9, (0, (1, 1.5)), f"what {cores} cores reading at once get", INK),
        (machine["core_alone_bytes_per_s"] / 1e9, (0, (1, 1.5)), "what one core alone gets", MUTED),
    ]
    for rate, dashes, text, colour in lines[: 3 if cores > 1 else 1] + ([] if cores > 1 else lines[2:]):
        label = text if rate == peak else f"{text}: {rate:.1f} GB/s"
        ax.axhline(rate, color=colour, linewidth=1.1, linestyle=dashes, label=label)
    ax.set_xlim(0, edges[-1])
    ax.set_ylim(0, peak * 1.06)
    ax.set_xlabel("s")
    ax.set_ylabel("GB/s")
    legend(ax, size, f"Bandwidth by master, means over {width:.2g} s")
    return figure
