"""Labels along an axis of values, no more than there is room for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bpusim.report.charts.style import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["LETTER", "label_places", "label_rows"]

LETTER = 0.062
"""Inches of a letter below an axis."""
_LINE = 0.15
"""Inches of a line of text."""
_SLANTED, _UPRIGHT = 5, 2.6
"""Letters from one label to the next, at least, if they slant or stand upright."""
_MOST = 24
"""Letters of an upright label."""
_NUMBER = re.compile(r"[-+]?\.?\d(?!.* / ).*")
"""A number, maybe with its unit; not several values."""


def label_places(ax: Axes, places: Sequence[float], labels: Sequence[str], room: int) -> None:
    """Below an axis of ``room`` letters: side by side, in several lines or at a slant. Of too many numbers some, as far
    apart as it takes, the first always; too much text stands upright, and if that does not do, some of it."""
    broken = [_broken(t, max(room // len(labels), 6)) for t in labels]
    if sum(max(map(len, t.split("\n"))) + 1 for t in broken) <= room:
        ax.set_xticks(places, broken, rotation=0, ha="center", fontsize=7)
        return
    if len(labels) * _SLANTED * (2 if _numeric(labels) else 1) <= room:
        ax.set_xticks(places, labels, rotation=20, ha="right", fontsize=7)
        return
    if _numeric(labels):
        kept, turned = _apart(ax, places, (max(map(len, labels)) + 2) / room), 0
    else:
        kept, turned, labels = _apart(ax, places, _UPRIGHT / room), 90, [shown(t, _MOST) for t in labels]
    ax.set_xticks([places[k] for k in kept], [labels[k] for k in kept], rotation=turned, fontsize=7)


def label_rows(ax: Axes, labels: Sequence[str], height: float) -> None:
    """Beside the rows of an axis that is so many inches high."""
    every = -(-len(labels) * _LINE // height) if labels else 1
    kept = range(0, len(labels), max(int(every), 1))
    ax.set_yticks(
        list(kept), [_broken(labels[k], 24) if every <= 1 else shown(labels[k], 24) for k in kept], fontsize=7
    )


def _numeric(labels: Sequence[str]) -> bool:
    return all(_NUMBER.fullmatch(t) for t in labels)


def _apart(ax: Axes, places: Sequence[float], least: float) -> list[int]:
    """Of these places, in order, those no nearer to the one before than this part of the axis."""
    at = ax.transScale.transform([(p, 1.0) for p in places])[:, 0]
    whole = max(at) - min(at)
    kept: list[int] = []
    for k in sorted(range(len(at)), key=lambda k: at[k]):
        if not kept or at[k] - at[kept[-1]] >= least * whole:
            kept.append(k)
    return kept


def _broken(label: str, width: int) -> str:
    """A long label in several lines."""
    lines = [""]
    for word in label.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)
