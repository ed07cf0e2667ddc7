"""How good the points of a search are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bpusim.metrics.studied import Tried
from bpusim.scenario import Scenario
from bpusim.study.analysis.data import gather
from bpusim.study.analysis.objectives import Judge
from bpusim.study.analysis.pareto import best
from bpusim.study.points import parameter
from bpusim.study.rules import Rule
from bpusim.study.run_point import Row
from bpusim.study.spec import Study

__all__ = ["Aims", "searched"]


@dataclass(frozen=True, slots=True)
class Aims:
    """What is looked for: objectives, each with whether more of it is better, and conditions."""

    objectives: tuple[tuple[Rule, bool], ...]
    conditions: tuple[Rule, ...]

    def judge(self, row: Row, study: Study, base: Scenario) -> tuple[list[float], list[float]] | None:
        """(objectives, by how much each condition is missed) of one row; None if it lacks one of the objectives."""
        if row["status"] != "ok":
            return None
        judge = judge_of([row], study, base)
        objectives = [judge.number(rule, 0, more=more) for rule, more in self.objectives]
        if any(value is None for value in objectives):
            return None
        missed = [_missed(judge, c) for c in self.conditions]
        return [v for v in objectives if v is not None], missed or [0.0]


def _missed(judge: Judge, condition: Rule) -> float:
    """Not above zero if it is met; else by how much over its limit, or 1 where that cannot be said."""
    known = judge.known(condition, 0)
    if known is None:
        return 1e6
    room = condition.room(known)
    if condition.holds(known):
        return min(-room, 0.0) if room is not None else 0.0
    return max(-room, 1e-9) if room is not None else 1.0


def judge_of(rows: Sequence[Row], study: Study, base: Scenario) -> Judge:
    """Works expressions out at ``rows``, of which one has a result at least."""
    return Judge(gather(rows, study.axes), lambda path, point: parameter(study, base, point, path, "search"))


def searched(rows: Sequence[Row], aims: Aims, study: Study, base: Scenario) -> tuple[Tried, ...]:
    """Rows with a result, best first."""
    judge = judge_of(rows, study, base)
    number = {row["key"]: k for k, row in enumerate(rows, 1)}
    signs = [-1.0 if more else 1.0 for _, more in aims.objectives]
    tried = []
    for k, row in enumerate(judge.data.rows):
        known = [(c, judge.known(c, k)) for c in aims.conditions]
        values = tuple(judge.number(rule, k, more=more) for rule, more in aims.objectives)
        met = None not in values and all(v is not None and c.holds(v) for c, v in known)
        room = {c.text: c.room(v) if v is not None else None for c, v in known}
        tried.append(Tried(number[row["key"]], judge.data.point(k), row["point"], values, met, False, room))
    good = [t for t in tried if t.met]
    flags = best([[s * v for s, v in zip(signs, t.objectives, strict=True) if v is not None] for t in good])
    chosen = {t.number for t, flag in zip(good, flags, strict=True) if flag}
    tried = [Tried(t.number, t.point, t.values, t.objectives, t.met, t.number in chosen, t.room) for t in tried]
    return tuple(sorted(tried, key=lambda t: _order(t, signs)))


def _order(t: Tried, signs: Sequence[float]) -> tuple[bool, bool, float, tuple[float, ...], int]:
    short = max((-r if r is not None else math.inf for r in t.room.values()), default=0.0)
    values = tuple(s * v if v is not None else math.inf for s, v in zip(signs, t.objectives, strict=True))
    return not t.best, not t.met, 0.0 if t.met else short, values, t.number
