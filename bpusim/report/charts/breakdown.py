"""Where the time goes: a bar a stream, cut by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpusim.errors import BpusimError
from bpusim.metrics import CAUSES
from bpusim.report.charts.style import CAUSE_COLOURS, PAPER, Size, hatch, legend_above, legend_height, sheet, shown
from bpusim.report.rows import breakdown_rows
from bpusim.report.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_breakdown"]

_BAR = 0.36
"""Inches from bar to bar."""
_MOST = 8
"""Bars of a panel."""


def draw_breakdown(view: View, size: Size) -> Figure:
    """A panel for each kind of step, in which its streams have one scale."""
    rows = breakdown_rows(view.summary)
    if not rows:
        raise BpusimError("nothing to break down: no token or frame came to its end", do="let it run longer")
    panels: dict[str, list[tuple[str, dict[str, float]]]] = {}
    for what in dict.fromkeys(row.what for row in rows):
        same = [row for row in rows if row.what == what]
        slowest = sorted(same, key=lambda row: -row.total)[:_MOST]
        title = f"{what}, the slowest {_MOST} of {len(same)}" if len(same) > _MOST else what
        panels[title] = [(row.stream, row.ms) for row in same if row in slowest]
    causes = [c for c in CAUSES if any(ms.get(c) for panel in panels.values() for _, ms in panel)]
    heights = [_BAR * len(bars) * (1.7 if size.narrow else 1) + 0.55 for bars in panels.values()]
    heights[0] += legend_height(causes, size)
    figure, axes = sheet(size, heights, ratios=[len(bars) + 0.2 for bars in panels.values()])
    for ax, (what, bars) in zip(axes, panels.items(), strict=True):
        _panel(ax, what, bars, causes, size)
    legend_above(figure, axes[0].get_legend_handles_labels()[0], causes, size)
    return figure


def _panel(ax: Axes, what: str, bars: list[tuple[str, dict[str, float]]], causes: list[str], size: Size) -> None:
    most = max(sum(ms.values()) for _, ms in bars)
    lefts = [0.0] * len(bars)
    least = most * (0.13 if size.narrow else 0.045)
    for cause in causes:
        widths = [ms.get(cause, 0.0) for _, ms in bars]
        ax.barh(
            range(len(bars)), widths, 0.62 if not size.narrow else 0.5, left=lefts, label=cause,
            color=CAUSE_COLOURS[cause], hatch=hatch(cause), edgecolor=PAPER, linewidth=0.6,
        )  # fmt: skip
        for y, (left, width) in enumerate(zip(lefts, widths, strict=True)):
            if width >= least:
                ax.text(left + width / 2, y, _ms(width), ha="center", va="center", size=8, color=_on(cause))
        lefts = [a + b for a, b in zip(lefts, widths, strict=True)]
    for y, total in enumerate(lefts):
        ax.text(total + most * 0.012, y, f"{_ms(total)} ms", va="center", weight="bold")
    ax.set_title(what)
    if size.narrow:  # names above the bars: beside them there is no room
        for y, (stream, _) in enumerate(bars):
            ax.text(0, y - 0.29, shown(stream), va="bottom", size=8)
        ax.set_yticks([])
        ax.set_ylim(len(bars) - 0.6, -0.75)
    else:
        ax.set_yticks(range(len(bars)), [shown(stream) for stream, _ in bars])
        ax.set_ylim(len(bars) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, most * (1.22 if size.narrow else 1.09))
    ax.set_xlabel("ms")
    ax.grid(axis="y", visible=False)


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _on(cause: str) -> str:
    """Black or white, whichever is easier to read on the cause's colour (relative luminance, WCAG 2)."""
    r, g, b = (int(CAUSE_COLOURS[cause][i : i + 2], 16) / 255 for i in (1, 3, 5))
    luminance = sum(
        w * (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4)
        for w, v in zip((0.2126, 0.7152, 0.0722), (r, g, b), strict=True)
    )
    return "#ffffff" if luminance < 0.179 else "#000000"
