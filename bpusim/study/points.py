"""The points of a study: drawn, checked against its rules and against the scenario, before anything runs."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bpusim.errors import Problem, ScenarioError, StudyError, did_you_mean
from bpusim.scenario import Scenario, load_scenario
from bpusim.study.axes import Axis
from bpusim.study.run_point import versions
from bpusim.study.spec import SampleSpec, Study

__all__ = ["Point", "Points", "base_of", "looked_up", "points_of"]

_MOST = 1_000_000
_TRIED = 64
"""Points with a value, until it is no value for this scenario."""


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


def points_of(study: Study) -> Points:
    """All points. Raises :class:`StudyError` or :class:`ScenarioError` for what the scenario does not take."""
    rows = [_values(study.axes, row) for row in _rows(study.axes, study.sample)]
    base = base_of(study, rows)
    _check_values(study, rows)
    kept = [v for v in rows if _meets(study, base, v)]
    if not kept:
        raise StudyError("no point meets every condition under where", do="loosen one of them")
    stem = _stem(study, base)
    unique = {json.dumps(v, sort_keys=True): v for v in kept}
    points = tuple(Point(v, _key(stem, study, v)) for v in unique.values())
    files = {str(path.absolute()) for path in (*base.files, *base.traces.values())}
    return Points(points, len(rows) - len(kept), tuple(sorted(files)))


def base_of(study: Study, rows: Sequence[Mapping[str, Any]] | None = None) -> Scenario:
    """The scenario before anything is varied; if it is none by itself, that of the first point that is one."""
    try:
        return load_scenario(study.scenario, study.overrides({}))
    except ScenarioError:
        drawn = rows if rows is not None else [_values(study.axes, row) for row in _rows(study.axes, study.sample)]
        for values in drawn[:_TRIED]:
            try:
                return load_scenario(study.scenario, study.overrides(values))
            except ScenarioError:
                continue
        raise


def _rows(axes: tuple[Axis, ...], sample: SampleSpec) -> Iterator[tuple[tuple[Any, ...], ...]]:
    if sample.method == "grid":
        count = 1
        for axis in axes:
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


def _values(axes: tuple[Axis, ...], row: tuple[tuple[Any, ...], ...]) -> dict[str, Any]:
    return {path: v for axis, cells in zip(axes, row, strict=True) for path, v in zip(axis.paths, cells, strict=True)}


def _check_values(study: Study, rows: Sequence[Mapping[str, Any]]) -> None:
    """Each value by itself: a path that does not exist, or a value of another kind, is found before anything runs.
    What another value of some point mends is no mistake; nor is what only a machine lacks, if such points are to be
    rows of their own."""
    problems: list[Problem] = []
    for axis in study.axes:
        cells = axis.rows or (axis.at(0.0), axis.at(1.0 - 1e-12))
        for row in cells:
            changes = dict(zip(axis.paths, row, strict=True))
            mine = _problems(study, axis.paths, changes)
            if mine and axis.rows and len(study.axes) > 1:
                with_it = (v for v in rows if all(v[p] == c for p, c in changes.items()))
                mine = mine if all(_problems(study, axis.paths, v) for v in itertools.islice(with_it, _TRIED)) else []
            problems += [Problem(f"{_shown(changes)}: {p.what}", p.place, p.do) for p in mine]
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


def _meets(study: Study, base: Scenario, values: Mapping[str, Any]) -> bool:
    for rule in study.rules:
        known = {}
        for path in rule.paths():
            asks = f"where: '{rule.text}'"
            if path in values:
                known[path] = values[path]
            elif any(path.startswith(f"{varied}.") for varied in values):  # of a machine that is another one here
                known[path] = looked_up(load_scenario(study.scenario, study.overrides(values)), path, asks)
            else:
                known[path] = looked_up(base, path, asks)
        if not rule.holds(known):
            return False
    return True


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


# Keys


def _stem(study: Study, base: Scenario) -> list[Any]:
    """All that the results of every point depend on: configuration, files, versions, what is measured."""
    return [versions(), base.document.data, _files(base), sorted({*study.measures, *study.also}), study.seeds]


def _files(base: Scenario) -> dict[str, str]:
    """Hashes of the files that the scenario names."""
    found = {f"models.{name}.trace": _hash(path) for name, path in base.traces.items() if path.is_file()}
    for path, text in _texts(base.document.data, ()):
        if path[-1] != "trace" and ("." in text or "/" in text) and len(text) < 500:
            file = base.beside(text.partition(":")[0], *path)
            if file.is_file():
                found[".".join(map(str, path))] = _hash(file)
    return found


def _texts(node: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(node, str) and path:
        yield path, node
    elif isinstance(node, dict | list):
        for key, item in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _texts(item, (*path, key))


def _hash(path: Path) -> str:
    stat = path.stat()
    return _hash_of(path, stat.st_mtime_ns, stat.st_size)


@cache
def _hash_of(path: Path, _changed: int, _size: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _key(stem: list[Any], study: Study, values: Mapping[str, Any]) -> str:
    files = [_hash(file) for file in _paths(study.resolved(values)) if file.is_file()]
    text = json.dumps([stem, values, files], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _paths(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _paths(item)
