"""What charts over time share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bpusim.report.charts.style import PAPER, Size, named, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["OTHERS", "largest", "legend", "merged", "stacked", "starts_of"]

OTHERS = "all others"
_MOST = 9
"""Rows of a chart; the least of more are drawn as one."""
_BINS = {False: 128, True: 64}
"""At most, by whether the chart is narrow: finer ones would show how they fall on tokens, and not how much there is."""


def starts_of(n: int, most: int) -> np.ndarray[Any, Any]:
    """Where blocks of ``n`` points begin, no more than ``most`` of them and equally long."""
    return np.arange(0, n, max(-(-n // most), 1))


def largest(*tables: Mapping[str, Sequence[float]]) -> list[str]:
    """The names of no more rows than can be told apart, those with the most, in their order; then ``OTHERS`` if there
    are more."""
    sums: dict[str, float] = {}
    for rows in tables:
        for name, row in rows.items():
            sums[name] = sums.get(name, 0.0) + sum(row)
    kept = set(sorted(sums, key=lambda n: -sums[n])[:_MOST]) if len(sums) > _MOST + 1 else set(sums)
    return [n for n in sums if n in kept] + [OTHERS] * (len(kept) < len(sums))


def merged(rows: Mapping[str, Sequence[float]], names: Sequence[str]) -> dict[str, Sequence[float]]:
    """Those rows of these names, and the sum of the others."""
    out = {name: row for name, row in rows.items() if name in names}
    rest = [row for name, row in rows.items() if name not in names]
    return out | {OTHERS: np.sum(np.array(rest), axis=0).tolist()} if rest else out


def stacked(
    ax: Axes,
    edges: Sequence[float],
    rows: Mapping[str, Sequence[float]],
    size: Size,
    scale: float = 1,
    colours: Mapping[str, tuple[str, str]] | None = None,
) -> float:
    """Means over bins as steps, one row on the other; how wide the bins are."""
    spans = np.diff(np.array(edges, dtype=float))
    starts = starts_of(len(spans), _BINS[size.narrow])
    widths = np.add.reduceat(spans, starts)
    x = np.append(np.array(edges)[starts], edges[-1])
    base = np.zeros(len(starts))
    for name in rows:
        colour, pattern = (colours or named(list(rows)))[name]
        amounts = np.add.reduceat(np.array(rows[name], dtype=float) * spans, starts)
        top = base + np.divide(amounts, widths, out=np.zeros(len(starts)), where=widths > 0) * scale
        ax.stairs(
            top,
            x,
            baseline=base,
            fill=True,
            color=colour,
            hatch=pattern,
            edgecolor=PAPER if pattern else None,
            linewidth=0,
            label=shown(name),
        )
        base = top
    return float(widths[0])


def legend(ax: Axes, size: Size, title: str = "", **more: Any) -> None:
    """Beside a wide panel, above a narrow one."""
    if size.narrow:
        handles, labels = ax.get_legend_handles_labels()
        columns = 2 if max(map(len, labels), default=0) > 14 else 3
        ax.legend(
            handles,
            labels,
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            ncols=columns,
            borderaxespad=0.2,
            handlelength=1.2,
            columnspacing=1.0,
            **more,
        )
        ax.set_title(title, pad=-(-len(labels) // columns) * 13 + 6)
    else:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), borderaxespad=0.2, handlelength=1.3, **more)
        ax.set_title(title)
