"""Charts of a study's points: the Pareto front, and machines against their limits."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bpusim.errors import BpusimError
from bpusim.metrics.definitions import definition
from bpusim.metrics.studied import Candidate, Front, Smallest
from bpusim.report.charts.style import INK, MUTED, PAPER, WIDE, sheet, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_pareto", "draw_smallest"]

_BEST, _MET, _MISSED = "#228833", "#4477aa", "#ee6677"
_LISTED = 12
"""Points of the front that are named."""
_Place = tuple[tuple[float, ...], list[str]]
"""Objectives, and the points that have them."""
_BARS = 16
_WIDTH = 110
"""Letters of a line below a chart."""


def draw_pareto(front: Front | None) -> Figure:
    """The first objective against each of the others; points of the front are numbered, and named below."""
    assert front is not None
    groups: dict[tuple[float, ...], list[str]] = {}
    for p in front.points:
        if p.best:
            groups.setdefault(p.values, []).append(p.point)
    listed = _spread(list(groups.items()))
    columns = min(len(front.objectives) - 1, 3)
    rows = -(-(len(front.objectives) - 1) // columns)
    figure, axes = sheet(
        WIDE,
        [3.4 if columns < 3 else 2.8] * rows + [0.28 + 0.17 * (len(listed) + (len(groups) > len(listed)))],
        columns=columns,
    )
    panels, below = axes[: rows * columns], axes[rows * columns :]
    for k, ax in enumerate(panels):
        if k + 1 < len(front.objectives):
            _plane(ax, front, k + 1, [values for values, _ in listed])
        else:
            ax.set_visible(False)
    lines = [f"{n:\u2007>{len(str(len(listed)))}}  {_names(points)}" for n, (_, points) in enumerate(listed, 1)]
    if len(groups) > len(listed):
        lines.append(f"{len(listed)} of {len(groups)} places on the front, from end to end")
    for ax in below:
        ax.set_axis_off()
    _lines(below[0], lines)
    return figure


def _spread(found: Sequence[_Place]) -> list[_Place]:
    """All of the front, or as many as there is room for from its one end to the other."""
    if len(found) <= _LISTED:
        return list(found)
    return [found[round(k * (len(found) - 1) / (_LISTED - 1))] for k in range(_LISTED)]


def _lines(ax: Axes, lines: Sequence[str]) -> None:
    """Text below a chart, which does not change its width."""
    text = ax.text(0, 1, "\n".join(lines), va="top", fontsize=8, color=INK, transform=ax.transAxes)
    text.set_in_layout(False)


def _names(points: Sequence[str]) -> str:
    more = f", and {len(points) - 1} more alike" if len(points) > 1 else ""
    return shown(points[0], _WIDTH) + more


def _plane(ax: Axes, front: Front, k: int, listed: Sequence[tuple[float, ...]]) -> None:
    (scale_x, label_x), (scale_y, label_y) = (_axis(front.objectives[n].text) for n in (0, k))
    for best, colour, size in ((False, MUTED, 16), (True, _BEST, 34)):
        chosen = [p.values for p in front.points if p.best == best]
        ax.scatter([v[0] / scale_x for v in chosen], [v[k] / scale_y for v in chosen], s=size, color=colour,
                   edgecolor=PAPER, linewidth=0.6, zorder=3)  # fmt: skip
    if len(front.objectives) == 2:
        edge = sorted({p.values for p in front.points if p.best})
        ax.plot([v[0] / scale_x for v in edge], [v[k] / scale_y for v in edge], color=_BEST, linewidth=1, zorder=2)
    right, up = (front.objectives[n].more for n in (0, k))
    for n, values in enumerate(listed, 1):  # on the better side, where no point is, and the line does not go
        ax.annotate(str(n), (values[0] / scale_x, values[k] / scale_y), (4 if right else -4, 4 if up else -4),
                    textcoords="offset points", ha="left" if right else "right", va="bottom" if up else "top",
                    fontsize=8, color=INK)  # fmt: skip
    ways = ["more" if front.objectives[n].more else "less" for n in (0, k)]
    ax.set_xlabel(f"{label_x} ({ways[0]} is better)")
    ax.set_ylabel(f"{label_y} ({ways[1]} is better)")
    ax.margins(0.08)


def _axis(text: str) -> tuple[float, str]:
    """(how many of the summary's unit the axis has, its label) of an objective: a figure, or an expression."""
    found = definition(text.rpartition(".")[2])
    unit = found.unit if found is not None else ""
    scale = 1e9 if unit in ("B", "B/s") else 1.0
    unit = f", {'G' if scale > 1 else ''}{unit}" if unit else ""
    return scale, f"{shown(text, 44)}{unit}"


def draw_smallest(found: Smallest | None) -> Figure:
    """Room to the nearest limit against the cost; without a cost, of each point."""
    assert found is not None
    rooms = [(c, min((r for r in c.room.values() if r is not None), default=None)) for c in found.candidates]
    known = [(c, 100 * r) for c, r in rooms if r is not None and (c.cost is not None or not found.cost)]
    if not known:
        raise BpusimError("no limits to draw: none is a comparison of numbers", do="write FIGURE <= NUMBER")
    lines = [f"limit: {text} (met by {n} of {len(found.candidates)})" for text, n in found.conditions.items()]
    lines += [f"smallest: {c.point}" for c in found.candidates if c.smallest][:5]
    lines += [f"cost: {found.cost}"] if found.cost else []
    lines += [] if found.met else ["no point meets all limits"]
    if len(known) < len(rooms):
        lines.append(f"{len(rooms) - len(known)} points are not drawn: not measured, or no comparison")
    lines = [part for t in lines for part in textwrap.wrap(t, _WIDTH, subsequent_indent="    ")]
    tall = 3.3 if found.cost else 0.6 + 0.27 * min(len(known), _BARS)
    figure, (ax, below) = sheet(WIDE, [tall, 0.2 + 0.17 * len(lines)])
    (_costs if found.cost else _bars)(ax, known)
    below.set_axis_off()
    _lines(below, lines)
    return figure


def _colour(c: Candidate) -> str:
    return _BEST if c.smallest else _MET if c.met else _MISSED


def _costs(ax: Axes, known: Sequence[tuple[Candidate, float]]) -> None:
    kinds: dict[str, Any] = {"smallest": _BEST, "meets all": _MET, "misses": _MISSED}
    ax.axhline(0, color=INK, linewidth=0.9)
    for name, colour in kinds.items():
        chosen = [(c.cost or 0.0, room) for c, room in known if _colour(c) == colour]
        if not chosen:
            continue
        ax.scatter([c for c, _ in chosen], [r for _, r in chosen], s=60 if colour == _BEST else 26, color=colour,
                   marker={"smallest": "*", "meets all": "o", "misses": "x"}[name], label=name, zorder=3)  # fmt: skip
    ax.set_xlabel("cost (less is smaller)")
    ax.set_ylabel("room to the nearest limit, %")
    ax.legend(loc="best")


def _bars(ax: Axes, known: Sequence[tuple[Candidate, float]]) -> None:
    few = known[:_BARS]
    ax.barh(range(len(few)), [room for _, room in few], color=[_colour(c) for c, _ in few], height=0.62)
    ax.axvline(0, color=INK, linewidth=0.9)
    ax.set_yticks(range(len(few)), [shown(c.point, 70) for c, _ in few], fontsize=7)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    more = f" ({len(few)} of {len(known)} points)" if len(known) > len(few) else ""
    ax.set_xlabel(f"room to the nearest limit, %{more}")
