"""Main effects of parameters, and figures over two of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bpusim.metrics.studied import Effect, HeatMap, Level
from bpusim.study.analysis.data import Data, Factor
from bpusim.study.export import spread

__all__ = ["effect", "heat_map"]


def effect(data: Data, figure: str, factor: Factor) -> Effect:
    """Mean of a figure at each value of a parameter, over all values of the others."""
    seeds, has = data.seeds(figure), data.has(figure)
    levels = []
    for k, name in enumerate(factor.band_labels):
        rows = has & (factor.band == k)
        if rows.any():
            mean, half = _mean(data.means[figure], seeds, rows)
            levels.append(Level(name, factor.band_at[k], mean, half, int(rows.sum())))
    means = [level.mean for level in levels]
    least, most = min(means), max(means)
    relative = (most - least) / least if least > 0 else None
    return Effect(figure, factor.name, tuple(levels), most - least, relative)


def _mean(
    means: NDArray[np.float64], seeds: NDArray[np.float64] | None, rows: NDArray[np.bool_]
) -> tuple[float, float | None]:
    """Over seeds: what the same seed gave at all these points is one number."""
    half = spread(seeds[rows].mean(axis=0).tolist())[1] if seeds is not None else None
    return float(means[rows].mean()), half


def heat_map(data: Data, figure: str, down: Factor, across: Factor) -> HeatMap:
    """Means over all values of the others."""
    has, means = data.has(figure), data.means[figure]
    cells, counts = [], []
    for r in range(len(down.band_labels)):
        picks = [has & (down.band == r) & (across.band == c) for c in range(len(across.band_labels))]
        cells.append(tuple(float(means[p].mean()) if p.any() else None for p in picks))
        counts.append(tuple(int(p.sum()) for p in picks))
    return HeatMap(
        figure, down.name, across.name, down.band_labels, across.band_labels, tuple(cells), tuple(counts)
    )  # fmt: skip
