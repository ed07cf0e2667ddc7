"""How latencies are distributed: which part of them is below how many ms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bpusim.errors import BpusimError
from bpusim.report.charts.style import MUTED, PAPER, Size, legend_above, legend_height, named, sheet
from bpusim.report.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_latency"]

_QUANTILES = ((0.5, "p50", "o"), (0.9, "p90", "s"), (0.99, "p99", "D"))
_TITLES = {"first token": "Time to first token (TTFT)", "token": "Between tokens (ITL)", "frame": "Frames"}
_END = "From trigger to the end of a stage"
_MOST = 6
"""Curves of a panel."""
_LEAST = 0.03
"""Part of a latency that a panel is wide, at least: a microsecond is not to look like much."""


def draw_latency(view: View, size: Size) -> Figure:
    """A panel for each kind of latency, a curve a stream; percentiles are the summary's."""
    found = view.needed("latencies")
    if not found:
        raise BpusimError("no latencies to draw: no token or frame came to its end", do="let it run longer")
    panels: dict[str, list[Mapping[str, Any]]] = {}
    for title in (*_TITLES.values(), _END):
        entries = [e for e in found if _TITLES.get(e["what"], _END) == title]
        slowest = sorted(entries, key=lambda e: -view.percentiles(e)["p99"])[:_MOST]  # type: ignore[operator]
        more = f", slowest {_MOST} of {len(entries)}" if len(entries) > _MOST else ""
        panels |= {title + more: [e for e in entries if e in slowest]} if entries else {}
    columns = 1 if size.narrow else min(len(panels), 3 if len(panels) != 4 else 2)
    rows = -(-len(panels) // columns)
    streams = sorted({_name(e) for entries in panels.values() for e in entries})
    legend = legend_height([*streams, *(name for _, name, _ in _QUANTILES)], size)
    figure, axes = sheet(size, [2.5 + legend] + [2.5] * (rows - 1), columns=columns)
    colours = named(streams)
    for ax, (title, entries) in zip(axes, panels.items(), strict=False):
        for k, entry in enumerate(entries):  # curves that lie on each other ever thinner, so that all are seen
            width = 1.6 + 1.1 * min(len(entries) - 1 - k, 4)
            _curve(ax, entry, view.percentiles(entry), colours[_name(entry)][0], width)
        ax.set_title(title)
        ax.set_ylim(0, 1.02)
        ax.set_xlabel("ms")
        low, high = min(e["ms"][0] for e in entries), max(e["ms"][-1] for e in entries)
        pad = max(0.04 * (high - low), (_LEAST * high - (high - low)) / 2)
        ax.set_xlim(low - pad, high + pad)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    for ax in axes[: len(panels) : columns]:
        ax.set_ylabel("part of all")
    _legend(figure, colours, size)
    return figure


def _name(entry: Mapping[str, Any]) -> str:
    end = entry["what"].removeprefix("to the end of ")
    return entry["stream"] if end == entry["what"] else f"{entry['stream']}: {end}"


def _curve(ax: Axes, entry: Mapping[str, Any], marks: Mapping[str, float | None], colour: str, width: float) -> None:
    x = np.array(entry["ms"])
    if entry["count"] == len(x):  # each of them: a step at a time
        ax.ecdf(x, color=colour, linewidth=width)
    else:
        ax.plot(x, np.linspace(0, 1, len(x)), color=colour, linewidth=width)
    for part, name, marker in _QUANTILES:
        at = marks.get(name)
        if at is not None:
            ax.plot([at], [part], marker, color=colour, markersize=5.5, markeredgecolor=PAPER, markeredgewidth=0.7)


def _legend(figure: Figure, colours: Mapping[str, tuple[str, str]], size: Size) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, linewidth=1.6) for colour, _ in colours.values()]
    handles += [Line2D([], [], linestyle="none", marker=m, color=MUTED, markersize=5) for _, _, m in _QUANTILES]
    legend_above(figure, handles, [*colours, *(name for _, name, _ in _QUANTILES)], size)
