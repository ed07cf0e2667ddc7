"""The points of a study: drawn, checked against its rules and against the scenario, before anything runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bpusim.errors import ScenarioError, StudyError, did_you_mean
from bpusim.scenario import Scenario, load_scenario
from bpusim.study.axes import Axis
from bpusim.study.keys import Keys
from bpusim.study.rules import Rule
from bpusim.study.spec import SampleSpec, Study
from bpusim.study.value_checks import TRIED, check_values

__all__ = ["Point", "Points", "Space", "base_of", "drawn", "looked_up", "parameter", "points_of", "values_of"]

_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Point:
    """One point: values by path, and the key of its row: a hash of all that its result depends on."""

    values: Mapping[str, Any]
    key: str


@dataclass(frozen=True, slots=True)
class Points:
    """Those of a study, and how many its rules left out."""

    points: tuple[Point, ...]
    left_out: int
    files: tuple[str, ...] = ()
    """Which points need where they run."""
    must: tuple[str, ...] = ()
    """Figures that each must have."""


class Space:
    """Where the points of a study lie. ``rows``: some of its points, which values are held against. Raises
    :class:`StudyError` or :class:`ScenarioError` for what the scenario does not take."""

    def __init__(self, study: Study, rows: Sequence[Mapping[str, Any]]) -> None:
        self.study = study
        self.base = base_of(study, rows)
        check_values(study, rows)
        self._keys = Keys(study, self.base)
        files = {str(path.absolute()) for path in (*self.base.files, *self.base.traces.values())}
        self.files = tuple(sorted(files))
        """Which points need where they run."""
        self.must = (*study.measures, *(p for p in study.needed if "*" not in p and not self._given(p)))
        """Figures that each point must have."""

    def _given(self, path: str) -> bool:
        """Whether it is a parameter, and no figure."""
        try:
            return path in self.study.changes or looked_up(self.base, path, "") is not None
        except StudyError:
            return any(path == p or path.startswith(f"{p}.") for axis in self.study.axes for p in axis.paths)

    def point(self, values: Mapping[str, Any]) -> Point:
        """That of these values."""
        return Point(values, self._keys.of(values))

    def meets(self, values: Mapping[str, Any]) -> bool:
        """Whether they meet every condition under ``where``."""
        return _meets(self.study, self.base, values)


def points_of(study: Study) -> Points:
    """All points. Raises :class:`StudyError` or :class:`ScenarioError` for what the scenario does not take."""
    rows = drawn(study.axes, study.sample)
    space = Space(study, rows)
    kept = [v for v in rows if space.meets(v)]
    if not kept:
        place = next((study.places[r.text] for r in study.rules if r.text in study.places), None)
        raise StudyError("no point meets every condition under where", place=place, do="loosen one of them")
    unique = {json.dumps(v, sort_keys=True): v for v in kept}
    points = tuple(space.point(v) for v in unique.values())
    return Points(points, len(rows) - len(kept), space.files, space.must)


def drawn(axes: tuple[Axis, ...], sample: SampleSpec) -> list[dict[str, Any]]:
    """Values by path of every point of a grid, or of those that are drawn."""
    return [values_of(axes, row) for row in _rows(axes, sample)]


def base_of(study: Study, rows: Sequence[Mapping[str, Any]] | None = None) -> Scenario:
    """The scenario before anything is varied; if it is none by itself, that of the first point that is one."""
    try:
        return load_scenario(study.scenario, study.overrides({}))
    except ScenarioError as wrong:
        for values in (rows if rows is not None else drawn(study.axes, study.sample))[:TRIED]:
            try:
                return load_scenario(study.scenario, study.overrides(values))
            except ScenarioError:
                continue
        raise ScenarioError([study.placed(p) for p in wrong.problems]) from None


def _rows(axes: tuple[Axis, ...], sample: SampleSpec) -> Iterator[tuple[tuple[Any, ...], ...]]:
    if sample.method == "grid":
        count = 1
        for axis in axes:
            if axis.span is not None:
                what = f"{axis.paths[0]}: a range without steps has no end of values"
                raise StudyError(what, do="add step or points to it, or draw points, or use bpusim search")
            count *= len(axis.rows)
        if count > _MOST:
            raise StudyError(
                f"a grid of {count} points", do="vary less, or draw some: sample: {method: lhs, points: 1000}"
            )
        yield from itertools.product(*(axis.rows for axis in axes))
        return
    assert sample.points is not None
    for parts in _draw(len(axes), sample):
        yield tuple(axis.at(part) for axis, part in zip(axes, parts, strict=True))


def _draw(dimensions: int, sample: SampleSpec) -> list[list[float]]:
    """``points`` rows of numbers from 0 to below 1."""
    assert sample.points is not None
    if sample.method == "random":
        import numpy as np

        return np.random.default_rng(sample.seed).random((sample.points, dimensions)).tolist()  # type: ignore[no-any-return]
    from scipy.stats import qmc

    if sample.method == "lhs":
        return qmc.LatinHypercube(dimensions, rng=sample.seed).random(sample.points).tolist()  # type: ignore[no-any-return]
    sobol = qmc.Sobol(dimensions, rng=sample.seed)
    powers = (sample.points - 1).bit_length()  # a whole power of two is balanced; the first of them are taken
    return sobol.random_base2(powers)[: sample.points].tolist()  # type: ignore[no-any-return]


def values_of(axes: tuple[Axis, ...], row: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """By path, of a row of each axis."""
    return {path: v for axis, cells in zip(axes, row, strict=True) for path, v in zip(axis.paths, cells, strict=True)}


def _meets(study: Study, base: Scenario, values: Mapping[str, Any]) -> bool:
    for rule in study.rules:
        try:
            if not _holds(study, base, rule, values):
                return False
        except StudyError as e:
            raise StudyError([replace(p, place=p.place or study.places.get(rule.text)) for p in e.problems]) from None
    return True


def _holds(study: Study, base: Scenario, rule: Rule, values: Mapping[str, Any]) -> bool:
    return rule.holds({path: parameter(study, base, values, path, f"where: '{rule.text}'") for path in rule.paths()})


def parameter(study: Study, base: Scenario, values: Mapping[str, Any], path: str, text: str) -> Any:
    """What a path is at a point of these ``values``: one of them, or of the scenario as they make it. ``text``: what
    asks, for the error. Raises :class:`StudyError`."""
    if path in values:
        return values[path]
    if any(path.startswith(f"{varied}.") for varied in values):  # of a machine that is another one here
        base = load_scenario(study.scenario, study.overrides(values))
    return looked_up(base, path, text)


def looked_up(base: Scenario, path: str, text: str) -> Any:
    """A value of a scenario's file by its path; ``text``: what asks, for the error. Raises :class:`StudyError`."""
    at: Any = base.document.data
    rest = path.split(".")
    while rest:
        known = at if isinstance(at, Mapping) else {}
        taken = next((n for n in range(len(rest), 0, -1) if ".".join(rest[:n]) in known), 0)
        if not taken:
            do = did_you_mean(rest[0], sorted(map(str, known)))
            raise StudyError(f"{text}: the scenario has no '{path}'", do=do)
        at = known[".".join(rest[:taken])]
        rest = rest[taken:]
    return at
