"""Sobol' indices: which part of the variance of a figure a parameter explains.

First order, ``Var(E[y | x]) / Var(y)``: alone. Total, ``1 - Var(E[y | all but x]) / Var(y)``: with all that it
interacts with (Sobol' 2001; Homma and Saltelli 1996).

A full grid gives both exactly, each value as likely as any other. A drawn sample gives the first order: rows are cut
into ranges of the parameter, with a straight line within each, and what is left over, per degree of freedom, is what
the parameter does not explain. Its confidence interval is from a jackknife over groups of rows. Nothing here gives the
total order of a drawn sample; that needs a design of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bpusim.study.analysis.data import Factor
from bpusim.study.compare import t95

__all__ = ["exact", "first_order", "of_levels"]

_Numbers = NDArray[np.float64]
_LEAST = 20
"""Rows of a sample, below which nothing is said."""
_GROUPS = 20
_POWER = 0.4
"""Ranges grow as the rows to this power, so that rows in each grow too."""
_FLAT = 1e-12
"""Relative spread, below which a figure is constant: rows are rounded to nine digits."""


def flat(values: _Numbers) -> bool:
    """Whether a figure is the same everywhere."""
    return bool(np.ptp(values) <= _FLAT * max(float(np.abs(values).max()), 1e-300))


def exact(factors: Sequence[Factor], values: _Numbers) -> list[tuple[float, float]]:
    """(first, total) of each factor of a full grid with these values, a row each. The figure must not be constant."""
    grid = np.empty([len(f.labels) for f in factors])
    grid[tuple(f.level for f in factors)] = values
    whole = float(grid.var())
    axes = range(len(factors))
    out = []
    for k in axes:
        alone = grid.mean(axis=tuple(a for a in axes if a != k)).var()
        others = grid.mean(axis=k).var()
        out.append((float(alone) / whole, max(1.0 - float(others) / whole, 0.0)))
    return out


def of_levels(level: NDArray[np.intp], values: _Numbers) -> float:
    """Part of the variance of exactly these rows that lies between values of the parameter."""
    means = {k: float(values[level == k].mean()) for k in set(level.tolist())}
    return float(np.var([means[k] for k in level.tolist()]) / values.var())


def first_order(factor: Factor, values: _Numbers, rows: NDArray[np.bool_]) -> tuple[float, float] | None:
    """(first-order index, half width of its 95 % confidence interval) from drawn rows; None where there are too few."""
    x, y, level = factor.at[rows] if factor.at is not None else None, values[rows], factor.level[rows]
    n = len(y)
    if n < _LEAST:
        return None
    most = max(round(n**_POWER), 2)
    lines = x is not None and len(np.unique(x)) > most
    if lines:
        assert x is not None
        edges = np.quantile(x, np.linspace(0, 1, most + 1))
        level = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, most - 1).astype(np.intp)
    whole = _explained(level, x if lines else None, y)
    group = np.random.default_rng(0).permutation(n) % _GROUPS
    parts = [_explained(level[m], x[m] if lines and x is not None else None, y[m])
             for m in (group != g for g in range(_GROUPS))]  # fmt: skip
    if whole is None or None in parts:
        return None
    spread = float(np.sqrt((_GROUPS - 1) * np.var([p for p in parts if p is not None])))
    return max(whole, 0.0), t95(_GROUPS - 1) * spread


def _explained(level: NDArray[np.intp], x: _Numbers | None, y: _Numbers) -> float | None:
    """1 less the variance that is left over within levels, both per degree of freedom; by chance below zero."""
    left, freedom = 0.0, len(y)
    for k in set(level.tolist()):
        here = y[level == k] - y[level == k].mean()
        left += float(here @ here)
        freedom -= 1
        if x is not None:
            at = x[level == k] - x[level == k].mean()
            square = float(at @ at)
            if square > 0:
                left -= float(at @ here) ** 2 / square
                freedom -= 1
    whole = float(y.var(ddof=1))
    if freedom < 1 or not math.isfinite(whole) or whole <= 0:
        return None
    return 1.0 - max(left, 0.0) / freedom / whole
