"""Charts of what a study shows: main effects, heat maps of pairs, sensitivity."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpusim.errors import BpusimError
from bpusim.metrics.definitions import definition
from bpusim.metrics.studied import Effect, HeatMap, Level, Sensitivity, Studied
from bpusim.report.charts import write_drawn
from bpusim.report.charts.study_points import draw_pareto, draw_smallest
from bpusim.report.charts.style import INK, MUTED, PAPER, WIDE, legend_above, named, sheet, shown
from bpusim.report.charts.ticks import LETTER, label_places, label_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["study_kinds", "unit_of", "write_study_chart"]

_FIGURES = 4
"""Figures of a chart; more would be too small to read."""
_COLUMNS = 4
_CELLS, _ROWS, _ACROSS = 120, 20, 12
"""Cells, rows and columns of a heat map with numbers in them."""
_MANY = 20
"""Values whose points are drawn small."""
_RATIO = 20
"""From where on values are shown by their logarithms."""
_FIRST, _TOTAL = "#4477aa", "#66ccee"
_SLOPE, _STEPS = "#aa3377", "#e3bcd2"
_UNIT_END = re.compile(r"_(?:(?:tokens|bytes|ops)_per_s|per_s|bytes|degc|ms|ns|s|w|j)$")
"""The unit at the end of a figure's name."""


def study_kinds(s: Studied) -> list[str]:
    """What there is to draw of it."""
    there = {"effects": s.effects, "pairs": s.maps, "sensitivity": s.sensitivity, "pareto": s.front,
             "smallest": s.smallest}  # fmt: skip
    return [kind for kind, found in there.items() if found]


def write_study_chart(s: Studied, kind: str, out: Path) -> None:
    """Draw one of them into a file, whose ending says what it is to be; raises :class:`BpusimError`."""
    if kind not in study_kinds(s):
        raise BpusimError(f"no {kind} to draw: {_WHY[kind]}", do="vary more, or name other figures by --figure")
    write_drawn(lambda: _DRAW[kind](s), out)


_WHY: Mapping[str, str] = {
    "effects": "no figure differs between points",
    "pairs": "fewer than two parameters have several values, or no figure differs",
    "sensitivity": "no figure differs between points",
    "pareto": "no objectives were named",
    "smallest": "no limits were named",
}


def unit_of(figure: str) -> tuple[str, float]:
    """(unit, how many of the summary's it is) in which a figure is shown: ``achieved_bytes_per_s`` in GB/s, 1e9."""
    found = definition(figure.rpartition(".")[2])
    unit = found.unit if found is not None else ""
    return ("G" + unit, 1e9) if unit in ("B", "B/s") else (unit, 1.0)


def _axis(figure: str) -> str:
    """A figure's label: what it is and its unit, which ends its name as well: ``total decode (tok/s)``."""
    unit, _ = unit_of(figure)
    of, _, last = figure.rpartition(".")
    words = " ".join([*of.split("."), *_UNIT_END.sub("", last).split("_")] if unit else [figure]).strip()
    return f"{shown(words, 30)} ({unit})" if unit else shown(figure, 30)


def _chosen(names: Sequence[str]) -> tuple[list[str], str]:
    """Those that are drawn, and a line on the others."""
    every = list(dict.fromkeys(names))
    more = f"{_FIGURES} of {len(every)} figures; --figure names others" if len(every) > _FIGURES else ""
    return every[:_FIGURES], more


def _foot(figure: Figure, text: str) -> None:
    if text:
        figure.supxlabel(text, fontsize=8, color=MUTED, x=0.01, ha="left")


def draw_effects(s: Studied) -> Figure:
    """A row a figure, a column a parameter; the axis of a row is the same throughout, so that effects compare."""
    figures, more = _chosen([e.figure for e in s.effects])
    parameters = list(dict.fromkeys(e.parameter for e in s.effects))
    dropped = f"{_COLUMNS} of {len(parameters)} parameters" if len(parameters) > _COLUMNS else ""
    parameters = parameters[:_COLUMNS]
    found = {(e.figure, e.parameter): e for e in s.effects}
    figure, axes = sheet(WIDE, [2.1] * (len(figures) - 1) + [2.4], ratios=[1] * len(figures), columns=len(parameters))
    colours = named(parameters)
    room = int((WIDE.width - 1) / len(parameters) / LETTER)
    for r, name in enumerate(figures):
        row = axes[r * len(parameters) : (r + 1) * len(parameters)]
        for ax, parameter in zip(row, parameters, strict=True):
            _effect(ax, found[name, parameter], colours[parameter][0], room)
            ax.tick_params(labelbottom=r == len(figures) - 1)
            ax.sharey(row[0])
            if r == 0:
                ax.set_title(shown(parameter, 44))
            if ax is not row[0]:
                ax.tick_params(labelleft=False)
        row[0].set_ylabel(_axis(name), fontsize=7.5)
    rows = axes[:: len(parameters)]
    cut = [ax for ax in rows if not ax.get_ylim()[0] <= 0 <= ax.get_ylim()[1]]
    for ax in cut if len(cut) < len(rows) else ():
        ax.set_ylabel(f"{ax.get_ylabel()} *")
    zero = f"{'y axes do' if len(cut) == len(rows) else '* this y axis does'} not begin at zero" if cut else ""
    others = "Means over all other parameters" if len(s.parameters) > 1 else ""
    _foot(figure, "; ".join(t for t in (others, zero, more, dropped) if t))
    return figure


def _effect(ax: Axes, e: Effect, colour: str, room: int) -> None:
    _, scale = unit_of(e.figure)
    places = _places(ax, e.levels, room)
    means = [level.mean / scale for level in e.levels]
    halves = [(level.half or 0.0) / scale for level in e.levels]
    style = "o-" if all(level.at is not None for level in e.levels) else "o:"
    ax.errorbar(places, means, halves if any(halves) else None, fmt=style, color=colour,
                markersize=4.5 if len(places) <= _MANY else 2.5, capsize=2.5)  # fmt: skip
    ax.margins(x=0.12, y=0.12)


def _places(ax: Axes, levels: Sequence[Level], room: int) -> list[float]:
    """Where values stand: numbers to scale, text side by side; ``room``: letters along the axis."""
    spots = [level.at for level in levels if level.at is not None]
    numeric = len(spots) == len(levels) and len(spots) > 1 and not any(" to " in level.label for level in levels)
    places = spots if numeric else [float(k) for k in range(len(levels))]
    if numeric and min(spots) > 0 and max(spots) / min(spots) > _RATIO:
        ax.set_xscale("log")
        ax.minorticks_off()
    label_places(ax, places, [level.label for level in levels], room)
    return places


def draw_pairs(s: Studied) -> Figure:
    """A heat map a figure, of the pair that matters most to it; or of all its pairs if it is the only figure."""
    figures, more = _chosen([m.figure for m in s.maps])
    firsts = {m.figure: m for m in reversed(s.maps)}
    maps = [firsts[name] for name in figures] if len(figures) > 1 else list(s.maps)
    columns = min(len(maps), 2)
    rows = -(-len(maps) // columns)
    inside = max(0.3 * min(max(len(m.row_labels) for m in maps), _ROWS), 1.0)
    figure, axes = sheet(WIDE, [1.0 + inside] * rows, columns=columns)
    for ax, m in zip(axes, maps, strict=False):
        _map(ax, m, int((WIDE.width / columns - 1.6) / LETTER), inside)
    for ax in axes[len(maps) :]:
        ax.set_visible(False)
    others = "Means over all other parameters" if len(s.parameters) > 2 else ""
    _foot(figure, "; ".join(t for t in (others, more) if t))
    return figure


def _map(ax: Axes, m: HeatMap, room: int, inside: float) -> None:
    """``room``: letters along it; ``inside``: inches of its height."""
    import numpy as np

    unit, scale = unit_of(m.figure)
    cells = np.array([[np.nan if v is None else v / scale for v in row] for row in m.means])
    ax.grid(visible=False)
    image = ax.imshow(cells, cmap="YlGnBu", aspect="auto")
    ax.set_title(f"{shown(m.figure, 44)}{f', {unit}' if unit else ''}")
    ax.set_xlabel(shown(m.columns, 44))
    ax.set_ylabel(shown(m.rows, 30))
    label_places(ax, [float(c) for c in range(len(m.column_labels))], m.column_labels, room)
    label_rows(ax, m.row_labels, inside)
    if cells.size > _CELLS or cells.shape[0] > _ROWS or cells.shape[1] > _ACROSS:
        ax.figure.colorbar(image, ax=ax)
        return
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for (r, c), v in np.ndenumerate(cells):
        text, dark = ("-", False) if np.isnan(v) else (f"{v:.4g}", v > middle)
        ax.text(c, r, text, ha="center", va="center", fontsize=8, color=PAPER if dark else INK)


def draw_sensitivity(s: Studied) -> Figure:
    """A row a figure: parts of the variance, and elasticities."""
    figures, more = _chosen([x.figure for x in s.sensitivity])
    parameters = list(dict.fromkeys(x.parameter for x in s.sensitivity))
    height = 0.75 + 0.36 * len(parameters)
    figure, axes = sheet(WIDE, [height + 0.3, *[height] * (len(figures) - 1)], columns=2)
    for r, name in enumerate(figures):
        rows = [x for x in s.sensitivity if x.figure == name]
        left, right = axes[2 * r], axes[2 * r + 1]
        _shares(left, rows)
        _slopes(right, rows)
        left.set_title(shown(name, 44))
        right.set_title("")
        for ax in (left, right):
            ax.set_ylim(len(rows) - 0.4, -0.6)
            ax.grid(visible=False, axis="y")
        if r == len(figures) - 1:
            left.set_xlabel("part of the variance (Sobol' index)")
            right.set_xlabel("elasticity: % of the figure a % of the parameter")
    _legend(figure, [x for x in s.sensitivity if x.figure in figures])
    _foot(figure, more)
    return figure


def _legend(figure: Figure, drawn: Sequence[Sensitivity]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds: list[tuple[str, Any]] = [("alone (first order)", Patch(color=_FIRST))]
    if any(x.total is not None for x in drawn):
        kinds.append(("with interactions (total)", Patch(color=_TOTAL)))
    if any(x.elasticity is not None for x in drawn):
        how = "by regression, ± 95 %" if any(x.error is not None for x in drawn) else "first value to last"
        kinds.append((f"elasticity, {how}", Line2D([], [], color=_SLOPE, marker="o", markersize=5, linestyle="")))
    if any(x.least is not None for x in drawn):
        kinds.append(("least to most of a single step", Patch(color=_STEPS)))
    legend_above(figure, [handle for _, handle in kinds], [name for name, _ in kinds], WIDE)


def _shares(ax: Axes, rows: Sequence[Sensitivity]) -> None:
    for k, x in enumerate(rows):
        if x.total is not None:
            ax.barh(k + 0.18, x.total, height=0.3, color=_TOTAL)
        if x.first is not None:
            ax.barh(k - 0.14 * (x.total is not None), x.first, height=0.3, color=_FIRST, xerr=x.first_half or None)
        else:
            ax.text(0.01, k, "not defined", va="center", fontsize=7, color=MUTED)
    ax.set_yticks(range(len(rows)), [shown(x.parameter, 36) for x in rows])
    ax.set_xlim(0, 1)


def _slopes(ax: Axes, rows: Sequence[Sensitivity]) -> None:
    ax.axvline(0, color=MUTED, linewidth=0.8)
    for k, x in enumerate(rows):
        if x.elasticity is None:
            continue
        if x.least is not None and x.most is not None:
            ax.plot([x.least, x.most], [k, k], color=_STEPS, linewidth=6, solid_capstyle="butt")
        ax.errorbar([x.elasticity], [k], xerr=None if x.error is None else [1.96 * x.error], fmt="o", color=_SLOPE,
                    markersize=5, capsize=2.5)  # fmt: skip
    ax.set_yticks(range(len(rows)), [""] * len(rows))
    low, high = ax.get_xlim()
    low, high = min(low, -0.1), max(high, 0.1)
    ax.set_xlim(low, high)
    away = 4 if high >= -low else -4  # from the line at zero, to the side with more room
    for k in (k for k, x in enumerate(rows) if x.elasticity is None):
        ax.annotate("not defined", (0, k), (away, 0), textcoords="offset points", va="center",
                    ha="left" if away > 0 else "right", fontsize=7, color=MUTED,
                    bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 0.5})  # fmt: skip


_DRAW: Mapping[str, Callable[[Studied], Figure]] = {
    "effects": draw_effects,
    "pairs": draw_pairs,
    "sensitivity": draw_sensitivity,
    "pareto": lambda s: draw_pareto(s.front),
    "smallest": lambda s: draw_smallest(s.smallest),
}
