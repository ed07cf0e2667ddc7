"""The Pareto front: points that no other point beats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bpusim.errors import StudyError
from bpusim.metrics.studied import Front, FrontPoint, Objective
from bpusim.study.analysis.objectives import Judge
from bpusim.study.rules import Rule

__all__ = ["best", "front"]


def best(points: Sequence[Sequence[float]]) -> list[bool]:
    """Which of them no other is as small as in all numbers and smaller in one; points that are equal stay together.

    In the order of their numbers only an earlier point can beat a later one, so one pass against the front is exact.
    """
    table = np.array(points, dtype=float)
    out = [False] * len(points)
    kept, n = np.empty_like(table), 0
    for k in np.lexsort(table.T[::-1]).tolist() if len(table) else ():
        p = table[k]
        if not ((kept[:n] <= p).all(axis=1) & (kept[:n] < p).any(axis=1)).any():
            out[k] = True
            kept[n] = p
            n += 1
    return out


def front(judge: Judge, wanted: Sequence[tuple[Rule, bool]]) -> Front:
    """Over all points that have all objectives. Raises :class:`StudyError` for fewer than two of them."""
    judge.check(rule for rule, _ in wanted)
    if len(wanted) < 2:
        raise StudyError("pareto: one objective has no front", do="write two or more: FIGURE,FIGURE")
    table: dict[int, tuple[float, ...]] = {}
    for row in range(len(judge.data.rows)):
        values = [judge.number(rule, row, more=more) for rule, more in wanted]
        if None not in values:
            table[row] = tuple(v for v in values if v is not None)
    notes = []
    missing = len(judge.data.rows) - len(table)
    if missing:
        notes.append(f"{missing} points lack one of the figures, and are left out")
    if not table:
        raise StudyError("pareto: no point has all of these figures", do="measure them in one study")
    for k, (rule, _) in enumerate(wanted):
        if len({v[k] for v in table.values()}) == 1:
            notes.append(f"{rule.text} is the same at every point, and tells none apart")
    signs = [-1.0 if more else 1.0 for _, more in wanted]
    flags = best([[s * v for s, v in zip(signs, values, strict=True)] for values in table.values()])
    points = [
        FrontPoint(judge.data.point(row), values, flag)
        for (row, values), flag in zip(table.items(), flags, strict=True)
    ]
    points.sort(key=lambda p: (not p.best, [s * v for s, v in zip(signs, p.values, strict=True)], p.point))
    notes += [f"cost: {rule.text}" for rule, _ in wanted if rule.key == "cost"]
    objectives = tuple(Objective("cost" if rule.key == "cost" else rule.text, more) for rule, more in wanted)
    return Front(objectives, tuple(points), tuple(notes))
