"""Elasticities, d ln y / d ln x: by how many percent a figure changes when a parameter grows by one percent.

On a full grid: slopes between neighbouring values, the least and the most of them, and the slope from the first value
to the last, which is their mean weighted by ln of the step; all as means over the other parameters for each step, or
all of them for the least and the most. In all other designs: a regression of ln y on ln x of all parameters that are
numbers at once, with an indicator for every value of the others, and its standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bpusim.study.analysis.data import Factor

__all__ = ["Slope", "on_grid", "regressed"]

_Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Slope:
    """``error``: standard error of a regression; ``least``, ``most``: of single steps of a grid."""

    value: float
    error: float | None = None
    least: float | None = None
    most: float | None = None


def on_grid(factors: Sequence[Factor], k: int, values: _Numbers) -> Slope | None:
    """Of factor ``k`` on a full grid; None if it, or the figure, is not a number above zero throughout."""
    at = factors[k].at
    if at is None or not factors[k].varied or (at <= 0).any() or (values <= 0).any():
        return None
    shape = [len(f.labels) for f in factors]
    grid, spots = np.empty(shape), np.empty(shape[k])
    grid[tuple(f.level for f in factors)] = np.log(values)
    spots[factors[k].level] = np.log(at)
    steps = np.diff(np.moveaxis(grid, k, -1), axis=-1) / np.diff(spots)
    means = steps.reshape(-1, shape[k] - 1).mean(axis=0)
    value = float(means @ np.diff(spots) / (spots[-1] - spots[0]))
    return Slope(value, least=float(steps.min()), most=float(steps.max()))


def regressed(factors: Sequence[Factor], values: _Numbers, rows: NDArray[np.bool_]) -> list[Slope | None]:
    """One a factor; None of those that are no numbers above zero, and of all where there are too few rows."""
    none: list[Slope | None] = [None] * len(factors)
    y = values[rows]
    if not len(y) or (y <= 0).any():
        return none
    columns, where = [np.ones(len(y))], {}
    for k, f in enumerate(factors):
        if f.at is not None and (f.at[rows] > 0).all():
            where[k] = len(columns)
            x = np.log(f.at[rows])
            columns.append(x - x.mean())
        else:
            columns += [(f.level[rows] == n).astype(float) for n in np.unique(f.level[rows])[1:]]
    design = np.column_stack(columns)
    freedom = len(y) - design.shape[1]
    if freedom < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return none
    beta, *_ = np.linalg.lstsq(design, np.log(y), rcond=None)
    left = np.log(y) - design @ beta
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * float(left @ left) / freedom)
    for k, column in where.items():
        none[k] = Slope(float(beta[column]), error=float(errors[column]))
    return none
