"""Values of a study held against its scenario, before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bpusim.errors import Problem, ScenarioError, StudyError
from bpusim.scenario import load_scenario
from bpusim.study.spec import Study

__all__ = ["TRIED", "check_values"]

TRIED = 64
"""Points with a value, until it is no value for this scenario."""


def check_values(study: Study, rows: Sequence[Mapping[str, Any]]) -> None:
    """Each value by itself: a path that does not exist, or a value of another kind, is found before anything runs.
    What another value of some point mends is no mistake; nor is what only a machine lacks, if such points are to be
    rows of their own."""
    problems: list[Problem] = []
    every = tuple(path for axis in study.axes for path in axis.paths)
    for axis in study.axes:
        cells = axis.rows or (axis.at(0.0), axis.at(1.0 - 1e-12))
        for row in cells:
            changes = dict(zip(axis.paths, row, strict=True))
            mine = _problems(study, axis.paths, changes)
            if mine and axis.rows and len(study.axes) > 1:
                with_it = (v for v in rows if all(v[p] == c for p, c in changes.items()))
                mine = mine if all(_problems(study, every, v) for v in itertools.islice(with_it, TRIED)) else []
            problems += [study.placed(Problem(f"{_shown(changes)}: {p.what}", p.place, p.do)) for p in mine]
            if mine and len(cells) > 8:
                break  # they will all be the same
    if problems:
        raise StudyError(list(dict.fromkeys(problems)))


def _problems(study: Study, paths: tuple[str, ...], changes: Mapping[str, Any]) -> list[Problem]:
    """Those of a point that are with ``paths``."""
    try:
        load_scenario(study.scenario, study.overrides(changes))
    except ScenarioError as e:
        return [p for p in e.problems if _about(p, paths) and not (p.between and study.infeasible)]
    return []


def _shown(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{p}={v}" for p, v in changes.items())


def _about(problem: Problem, paths: tuple[str, ...]) -> bool:
    """Whether a problem is with the value that was set, and not with what stands elsewhere."""
    file = problem.place.file if problem.place is not None else ""
    return any(file == f"--set {path}" for path in paths)
