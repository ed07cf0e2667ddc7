"""The smallest machine that meets its limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bpusim.errors import StudyError
from bpusim.metrics.studied import Candidate, Smallest
from bpusim.study.analysis.objectives import Judge
from bpusim.study.analysis.pareto import best
from bpusim.study.rules import Rule

__all__ = ["smallest"]


def smallest(judge: Judge, limits: Sequence[Rule], cost: Rule | None) -> Smallest:
    """By ``cost``; without one, each point that meets ``limits`` and of which no other is as small in every parameter
    that is a number, and smaller in one, with all else the same.

    A condition is judged by means over seeds. One whose figure was not measured is not met.
    """
    conditions = [part for rule in limits for part in rule.conditions()]
    judge.check([*conditions, *([cost] if cost is not None else [])])
    judged = [_judged(judge, conditions, cost, row) for row in range(len(judge.data.rows))]
    met = [row for row, c in enumerate(judged) if c.met]
    if cost is not None:
        costs = {row: c.cost for row in met if (c := judged[row]).cost is not None}
        least = min((v for v in costs.values() if v is not None), default=None)
        small = {row for row, v in costs.items() if v == least}
    else:
        small = _least(judge, met)
    flagged = [_flag(c, row in small) for row, c in enumerate(judged)]
    flagged.sort(key=_order)
    counts = {
        c.text: sum(_holds(judge, c, row) for row in range(len(judge.data.rows))) for c in conditions
    }  # fmt: skip
    return Smallest(
        counts, cost.text if cost is not None else "", tuple(flagged), tuple(_notes(judge, conditions, cost))
    )


def _judged(judge: Judge, conditions: Sequence[Rule], cost: Rule | None, row: int) -> Candidate:
    runs = max((len(v) for v in judge.data.rows[row].get("measures", {}).values()), default=1)
    met = all(_holds(judge, c, row) for c in conditions)
    good = sum(all(_holds(judge, c, row, seed) for c in conditions) for seed in range(runs)) if runs > 1 else int(met)
    room = {}
    for c in conditions:
        known = judge.known(c, row)
        room[c.text] = c.room(known) if known is not None else None
    return Candidate(
        judge.data.point(row),
        judge.data.rows[row]["point"],
        judge.number(cost, row) if cost is not None else None,
        met,
        False,
        room,
        (good, runs),
    )


def _holds(judge: Judge, condition: Rule, row: int, seed: int | None = None) -> bool:
    known = judge.known(condition, row, seed)
    return known is not None and condition.holds(known)


def _least(judge: Judge, met: Sequence[int]) -> set[int]:
    """Those that no other is as small as in every number, with the same text."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for row in met:
        alike = tuple(int(f.level[row]) for f in judge.data.factors if f.at is None)
        groups.setdefault(alike, []).append(row)
    small: set[int] = set()
    for rows in groups.values():
        flags = best([[float(f.at[row]) for f in judge.data.factors if f.at is not None] for row in rows])
        small |= {row for row, flag in zip(rows, flags, strict=True) if flag}
    return small


def _flag(c: Candidate, small: bool) -> Candidate:
    return Candidate(c.point, c.values, c.cost, c.met, small, c.room, c.seeds)


def _order(c: Candidate) -> tuple[bool, bool, float, float, str]:
    """Those that meet all by cost; the others by what they miss most by."""
    short = max((-r if r is not None else math.inf for r in c.room.values()), default=0.0)
    cost = c.cost if c.cost is not None else math.inf
    return (not c.smallest, not c.met, cost if c.met else short, cost, c.point)


def _notes(judge: Judge, conditions: Sequence[Rule], cost: Rule | None) -> list[str]:
    rows = range(len(judge.data.rows))
    notes = []
    for c in conditions:
        missing = sum(judge.known(c, row) is None for row in rows)
        if missing:
            notes.append(f"{c.text}: not measured at {missing} points, which counts as not met")
    if cost is not None:
        missing = sum(judge.number(cost, row) is None for row in rows)
        if missing == len(rows):
            raise StudyError(f"cost: '{cost.text}': no point has all of its figures", do="measure them")
        if missing:
            notes.append(f"{missing} points have no cost: a figure in it was not measured")
    return notes
