"""Find the repeated layers in a row of ops."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Run", "find_repeats"]

Run = tuple[int, int, int]
"""(start, period, count): ``count`` equal passes of ``period`` ops from ``start`` on."""
_FEW = 8


def find_repeats(signatures: Sequence[Hashable]) -> list[Run]:
    """Runs of two or more equal passes that do not overlap, greedily: the longest stretch from each start.

    Ops outside all runs are not listed.
    """
    codes: dict[Hashable, int] = {}
    row = np.array([codes.setdefault(s, len(codes)) for s in signatures], dtype=np.int64)
    n = len(row)
    runs: list[Run] = []
    at = 0
    while at < n:
        best: Run | None = None
        for period in _periods(row[at:]):
            differs = np.flatnonzero(row[at : n - period] != row[at + period :])
            same = int(differs[0]) if len(differs) else n - period - at
            count = same // period + 1
            if count >= 2 and (best is None or count * period > best[1] * best[2]):
                best = (at, period, count)
            if best is not None and best[1] * best[2] >= n - at:
                break
        if best is None:
            at += 1
        else:
            runs.append(best)
            at = best[0] + best[1] * best[2]
    return runs


def _periods(row: NDArray[np.int64]) -> list[int]:
    """Periods with which ``row`` may start with two equal passes.

    NOTE: for speed. Most periods whose first op fits fail within a few more, which is looked at for all at once.
    """
    periods = np.flatnonzero(row[1 : len(row) // 2 + 1] == row[0]) + 1
    for j in range(1, _FEW):
        if not len(periods):
            break
        inside = periods > j  # the j-th op is still one of the first pass
        periods = periods[~inside | (row[np.minimum(periods + j, len(row) - 1)] == row[min(j, len(row) - 1)])]
    return [int(p) for p in periods]
