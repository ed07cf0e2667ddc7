"""All that a study shows, from its rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bpusim.errors import StudyError, did_you_mean
from bpusim.metrics.studied import HeatMap, Sensitivity, Studied
from bpusim.study.analysis.data import Data, Factor, figures_of, gather
from bpusim.study.analysis.effects import effect, heat_map
from bpusim.study.analysis.elasticity import Slope, on_grid, regressed
from bpusim.study.analysis.objectives import Judge, Lookup, expressions
from bpusim.study.analysis.pareto import front
from bpusim.study.analysis.smallest import smallest
from bpusim.study.analysis.variance import exact, first_order, flat, of_levels
from bpusim.study.points import base_of, parameter, points_of
from bpusim.study.rules import Rule
from bpusim.study.run_point import Row
from bpusim.study.spec import Study, load_study
from bpusim.study.store import latest

__all__ = ["Asked", "analyse"]

_PAIRS = 3
"""Pairs of parameters that are shown unless one is named: those that matter most."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted. ``figures``: patterns, all if empty; ``pair``: two parameters; ``slo``, ``cost``: instead of
    those of the study; ``pareto``: expressions with commas."""

    figures: tuple[str, ...] = ()
    pair: tuple[str, str] | None = None
    slo: tuple[str, ...] = ()
    cost: str = ""
    pareto: str = ""


def analyse(file: Path, study: Path | None = None, asked: Asked | None = None) -> Studied:
    """Read rows, and the study that they are of if it is named. Raises :class:`StudyError` for files that cannot be
    read, rows of several studies, and what is asked for and not there."""
    asked = asked if asked is not None else Asked()
    rows = list(latest(file).values())
    found = load_study(study) if study is not None else None
    notes: list[str] = []
    if found is not None:
        rows, notes = _of_study(rows, found, file)
    data = gather(rows, found.axes if found is not None else ())
    figures = figures_of(data, asked.figures)
    constant = [n for n in figures if data.has(n).any() and flat(data.means[n][data.has(n)])]
    never = [n for n in figures if not data.has(n).any()]
    notes += _notes(data, figures, constant, never)
    shown = [n for n in figures if n not in constant and n not in never]
    varied = [f for f in data.factors if f.varied]
    sensitivity = [s for n in shown for s in _sensitivity(data, n, varied)]
    judge = Judge(data, _lookup(found), lambda: _keys(found))
    slo = asked.slo or (found.slo if found is not None else ())
    cost = asked.cost or (found.cost if found is not None else "")
    by_cost = Rule.of(cost, "cost") if cost else None
    return Studied(
        name=found.name if found is not None else file.stem,
        about=found.about if found is not None else "",
        design=data.design,
        counts=data.counts,
        parameters={f.name: f.labels for f in data.factors},
        figures=tuple(shown),
        notes=tuple(notes),
        effects=tuple(effect(data, n, f) for n in shown for f in varied),
        maps=tuple(_maps(data, shown, varied, asked.pair, sensitivity)),
        sensitivity=tuple(sensitivity),
        front=front(judge, expressions(asked.pareto, cost)) if asked.pareto else None,
        smallest=smallest(judge, [Rule.of(t, "slo") for t in slo], by_cost) if slo else None,
        errors=data.errors,
    )


def _of_study(rows: Sequence[Row], study: Study, file: Path) -> tuple[list[Row], list[str]]:
    points = points_of(study).points
    keys = {p.key: None for p in points}
    known = {row["key"]: row for row in rows}
    mine = [known[key] for key in keys if key in known]
    if not mine:
        raise StudyError(
            f"none of the {len(known)} rows in {file} is of {study.name} as it is now",
            do="run it: bpusim sweep STUDY.yaml -o ROWS.jsonl, or leave --study out",
        )
    notes = []
    if len(known) > len(mine):
        notes.append(f"{len(known) - len(mine)} rows of other studies, scenarios or versions are left out")
    if len(points) > len(mine):
        notes.append(f"{len(points) - len(mine)} of {len(points)} points have no row yet")
    return mine, notes


def _lookup(study: Study | None) -> Lookup | None:
    if study is None:
        return None
    base = base_of(study)
    return lambda path, point: parameter(study, base, point, path, "slo, cost")


def _keys(study: Study | None) -> list[str]:
    """Paths of the study's scenario that have a value."""
    return [*study.changes, *_leaves(base_of(study).document.data)] if study is not None else []


def _leaves(at: Any, path: str = "") -> Iterator[str]:
    if not isinstance(at, Mapping):
        yield path
        return
    for key, value in at.items():
        yield from _leaves(value, f"{path}.{key}" if path else str(key))


def _notes(data: Data, figures: Sequence[str], constant: Sequence[str], never: Sequence[str]) -> list[str]:
    notes = []
    n = len(data.rows)
    if n == 1:
        notes.append("one point has a result: there is nothing to compare it with")
    still = [f.name for f in data.factors if not f.varied and n > 1]
    if still:
        notes.append(f"with one value only among the rows with a result: {', '.join(still)}")
    if data.design == "grid with holes":
        notes.append("the grid has holes: means over the others are not over the same values everywhere")
    if n > 1:
        notes += [f"{name} is {data.means[name][data.has(name)][0]:.6g} at every point" for name in constant]
    notes += [f"{name} was not measured at any point" for name in never]
    for name in figures:
        missing = n - int(data.has(name).sum())
        if missing and name not in never:
            notes.append(f"{name} is missing at {missing} of {n} points, and counts at the others")
    return notes


def _sensitivity(data: Data, figure: str, factors: Sequence[Factor]) -> list[Sensitivity]:
    rows = data.has(figure)
    values = data.means[figure] / np.abs(data.means[figure][rows]).max()  # nothing here depends on the scale
    whole = data.design == "grid" and bool(rows.all())
    firsts: list[tuple[float | None, float | None, float | None]] = []
    if whole:
        firsts = [(first, None, total) for first, total in exact(factors, values)]
        slopes = [on_grid(factors, k, values) for k in range(len(factors))]
    else:
        for f in factors:
            if data.design == "drawn":
                found = first_order(f, values, rows)
                firsts.append((*found, None) if found is not None else (None, None, None))
            else:
                firsts.append((of_levels(f.level[rows], values[rows]), None, None))
        slopes = regressed(factors, values, rows)
    none = Slope(0.0)
    out = []
    for f, (first, half, total), slope in zip(factors, firsts, slopes, strict=True):
        s = slope if slope is not None else none
        value = slope.value if slope is not None else None
        out.append(Sensitivity(figure, f.name, first, half, total, value, s.error, s.least, s.most))
    return out


def _maps(
    data: Data,
    figures: Sequence[str],
    factors: Sequence[Factor],
    pair: tuple[str, str] | None,
    sensitivity: Sequence[Sensitivity],
) -> list[HeatMap]:
    if pair is not None:
        down, across = (_named(data, name) for name in pair)
        if down is across:
            raise StudyError(f"pair: {pair[0]} and {pair[1]} are one parameter, or change together", do="name two")
        return [heat_map(data, n, down, across) for n in figures]
    out = []
    for name in figures:
        weight = {s.parameter: max(s.total or 0.0, s.first or 0.0) for s in sensitivity if s.figure == name}
        pairs = sorted(itertools.combinations(factors, 2), key=lambda p: -sum(weight[f.name] for f in p))
        out += [heat_map(data, name, a, b) for a, b in pairs[:_PAIRS]]
    return out


def _named(data: Data, name: str) -> Factor:
    for f in data.factors:
        if name == f.name or name in f.paths:
            return f
    raise StudyError(f"pair: the rows have no parameter '{name}'",
                     do=did_you_mean(name, [p for f in data.factors for p in f.paths]))  # fmt: skip
