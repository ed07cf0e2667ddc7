"""Charts of what a study shows: main effects, heat maps of pairs, sensitivity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bpusim.errors import BpusimError
from bpusim.metrics.definitions import definition
from bpusim.metrics.studied import Effect, HeatMap, Level, Sensitivity, Studied
from bpusim.report.charts import write_drawn
from bpusim.report.charts.study_points import draw_pareto, draw_smallest
from bpusim.report.charts.style import INK, MUTED, PAPER, WIDE, legend_above, named, sheet, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["study_kinds", "unit_of", "write_study_chart"]

_FIGURES = 4
"""Figures of a chart; more would be too small to read."""
_COLUMNS = 4
_CELLS = 120
"""Cells of a heat map with numbers in them."""
_LETTER = 0.062
"""Inches of a letter below an axis."""
_RATIO = 20
"""From where on values are shown by their logarithms."""
_FIRST, _TOTAL = "#4477aa", "#66ccee"


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
    """A figure's label: the part of its name that matters, and its unit."""
    unit, _ = unit_of(figure)
    return f"{shown(figure, 30)}\n{unit}" if unit else shown(figure, 30)


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
    room = int((WIDE.width - 1) / len(parameters) / _LETTER)
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
    others = "Means over all other parameters" if len(s.parameters) > 1 else ""
    _foot(figure, "; ".join(t for t in (others, more, dropped) if t))
    return figure


def _effect(ax: Axes, e: Effect, colour: str, room: int) -> None:
    _, scale = unit_of(e.figure)
    places = _places(ax, e.levels, room)
    means = [level.mean / scale for level in e.levels]
    halves = [(level.half or 0.0) / scale for level in e.levels]
    style = "o-" if all(level.at is not None for level in e.levels) else "o:"
    ax.errorbar(places, means, halves if any(halves) else None, fmt=style, color=colour, markersize=4.5, capsize=2.5)
    ax.margins(x=0.12, y=0.12)


def _places(ax: Axes, levels: Sequence[Level], room: int) -> list[float]:
    """Where values stand: numbers to scale, text side by side; labels slant where ``room`` letters are too few."""
    spots = [level.at for level in levels if level.at is not None]
    numeric = len(spots) == len(levels) and len(spots) > 1 and not any(" to " in level.label for level in levels)
    places = spots if numeric else [float(k) for k in range(len(levels))]
    if numeric and min(spots) > 0 and max(spots) / min(spots) > _RATIO:
        ax.set_xscale("log")
        ax.minorticks_off()
    labels = [_broken(level.label, max(room // len(levels), 6)) for level in levels]
    long = sum(max(map(len, t.split("\n"))) + 1 for t in labels) > room
    labels = [level.label for level in levels] if long else labels
    ax.set_xticks(places, labels, rotation=20 if long else 0, ha="right" if long else "center", fontsize=7)
    return places


def _broken(label: str, width: int = 18) -> str:
    """A long label in several lines."""
    lines = [""]
    for word in label.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def draw_pairs(s: Studied) -> Figure:
    """A heat map a figure, of the pair that matters most to it; or of all its pairs if it is the only figure."""
    figures, more = _chosen([m.figure for m in s.maps])
    firsts = {m.figure: m for m in reversed(s.maps)}
    maps = [firsts[name] for name in figures] if len(figures) > 1 else list(s.maps)
    columns = min(len(maps), 2)
    rows = -(-len(maps) // columns)
    height = 1.0 + 0.3 * max(len(m.row_labels) for m in maps)
    figure, axes = sheet(WIDE, [max(height, 2.0)] * rows, columns=columns)
    for ax, m in zip(axes, maps, strict=False):
        _map(ax, m)
    for ax in axes[len(maps) :]:
        ax.set_visible(False)
    others = "Means over all other parameters" if len(s.parameters) > 2 else ""
    _foot(figure, "; ".join(t for t in (others, more) if t))
    return figure


def _map(ax: Axes, m: HeatMap) -> None:
    import numpy as np

    unit, scale = unit_of(m.figure)
    cells = np.array([[np.nan if v is None else v / scale for v in row] for row in m.means])
    ax.grid(visible=False)
    image = ax.imshow(cells, cmap="YlGnBu", aspect="auto")
    ax.set_title(f"{shown(m.figure, 44)}{f', {unit}' if unit else ''}")
    ax.set_xlabel(shown(m.columns, 44))
    ax.set_ylabel(shown(m.rows, 30))
    ax.set_xticks(range(len(m.column_labels)), [_broken(n) for n in m.column_labels], fontsize=7)
    ax.set_yticks(range(len(m.row_labels)), [_broken(n, 24) for n in m.row_labels], fontsize=7)
    if cells.size > _CELLS:
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
    from matplotlib.patches import Patch

    kinds = [("alone (first order)", _FIRST)]
    kinds += [("with interactions (total)", _TOTAL)] if any(x.total is not None for x in s.sensitivity) else []
    legend_above(figure, [Patch(color=c) for _, c in kinds], [n for n, _ in kinds], WIDE)
    _foot(figure, more)
    return figure


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
            ax.text(0.02, k, "not defined", va="center", fontsize=7, color=MUTED, transform=ax.get_yaxis_transform())
            continue
        if x.least is not None and x.most is not None:
            ax.plot([x.least, x.most], [k, k], color=_TOTAL, linewidth=4, solid_capstyle="butt")
        ax.errorbar([x.elasticity], [k], xerr=None if x.error is None else [1.96 * x.error], fmt="o", color=_FIRST,
                    markersize=5, capsize=2.5)  # fmt: skip
    ax.set_yticks(range(len(rows)), [""] * len(rows))
    low, high = ax.get_xlim()
    ax.set_xlim(min(low, -0.1), max(high, 0.1))


_DRAW: Mapping[str, Callable[[Studied], Figure]] = {
    "effects": draw_effects,
    "pairs": draw_pairs,
    "sensitivity": draw_sensitivity,
    "pareto": lambda s: draw_pareto(s.front),
    "smallest": lambda s: draw_smallest(s.smallest),
}
