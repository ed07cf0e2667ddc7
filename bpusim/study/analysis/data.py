"""Rows of a study as tables of numbers: parameters with their values, figures with their means."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpusim.errors import StudyError, did_you_mean
from bpusim.study.axes import Axis
from bpusim.study.export import spread
from bpusim.study.rules import quantity_of
from bpusim.study.run_point import Row

__all__ = ["Data", "Factor", "gather", "label"]

_MOST_LEVELS = 8
"""A drawn parameter of more values is shown in ranges of them."""
_RANGES = 5
_HOLES = 0.5
"""Part of a grid that is there, at least, for points that are not drawn."""


@dataclass(frozen=True, slots=True)
class Factor:
    """A parameter, or several that only change together, told by as many of them as it takes. ``level``: of each row,
    its place among ``labels``; ``at``: its value in the base unit, None unless all are numbers. ``band``,
    ``band_labels``, ``band_at``: the same where values are shown in ranges."""

    name: str
    paths: tuple[str, ...]
    labels: tuple[str, ...]
    level: NDArray[np.intp]
    at: NDArray[np.float64] | None
    band: NDArray[np.intp]
    band_labels: tuple[str, ...]
    band_at: tuple[float | None, ...]

    @property
    def varied(self) -> bool:
        """Whether it has more than one value."""
        return len(self.labels) > 1


@dataclass(frozen=True, slots=True)
class Data:
    """Rows with a result, in ``rows``; ``means``: by figure, a number a row, NaN where there is none."""

    rows: tuple[Row, ...]
    factors: tuple[Factor, ...]
    means: Mapping[str, NDArray[np.float64]]
    counts: Mapping[str, int]
    errors: Mapping[str, int]
    design: str

    def seeds(self, figure: str) -> NDArray[np.float64] | None:
        """A row each, a column a seed; None if rows have different numbers of them, or values are missing."""
        values = [row.get("measures", {}).get(figure, []) for row in self.rows]
        if len({len(v) for v in values}) != 1 or any(x is None for v in values for x in v):
            return None
        return np.array(values, dtype=float)

    def has(self, figure: str) -> NDArray[np.bool_]:
        """Rows that have it."""
        return np.isfinite(self.means[figure])

    def point(self, row: int) -> str:
        """Its parameters in one line, those that are varied."""
        return ", ".join(f"{short(f.paths[0])} {f.labels[f.level[row]]}" for f in self.factors if f.varied)


def gather(rows: Iterable[Row], axes: Sequence[Axis] = ()) -> Data:
    """``axes``: those of the study, if it is known; else values are in natural order, and parameters each of which
    tells the other are taken as one. Raises :class:`StudyError` for rows of several studies, and if none has a result.
    """
    every = list(rows)
    if not every:
        raise StudyError("there are no rows", do="run the study first: bpusim sweep STUDY.yaml -o ROWS.jsonl")
    _check_shape(every)
    _check_one(every)
    counts = dict(Counter(row["status"] for row in every))
    errors = dict(Counter(str(row.get("error", "")) for row in every if row["status"] != "ok").most_common())
    good = sorted((row for row in every if row["status"] == "ok"), key=lambda r: _order(r["point"]))
    if not good:
        first = next(iter(errors), "").strip().partition("\n")[0]
        raise StudyError(f"none of the {len(every)} rows has a result: {first}", do="mend the study, and run it again")
    paths = list(every[0]["point"])
    found = [a.paths for a in axes] or _together(every, paths)
    levels = [len({_key(row, group) for row in every}) for group in found]
    drawn = math.prod(levels) * _HOLES > len(every)
    factors = tuple(_factor(good, group, _given(axes, group), drawn=drawn) for group in found)
    names = list(dict.fromkeys(name for row in good for name in row.get("measures", {})))
    means = {name: np.array([_mean(row.get("measures", {}).get(name, ())) for row in good]) for name in names}
    whole = math.prod(len(f.labels) for f in factors) == len(good)
    design = "grid" if whole else "drawn" if drawn else "grid with holes"
    return Data(tuple(good), factors, means, counts, errors, design)


def figures_of(data: Data, wanted: Sequence[str]) -> list[str]:
    """Names of figures that one of ``wanted`` matches, ``*`` for any part. Raises :class:`StudyError` for none."""
    out: list[str] = []
    for pattern in wanted:
        found = [name for name in data.means if fnmatchcase(name, pattern)]
        if not found:
            raise StudyError(f"no row has the figure '{pattern}'", do=did_you_mean(pattern, list(data.means)))
        out += found
    return list(dict.fromkeys(out or data.means))


def label(value: Any) -> str:
    """A value of a parameter in a few letters."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def short(name: str) -> str:
    """The last parts of a path, which tell parameters apart for who reads a line."""
    return ".".join(name.split(".")[-2:])


def _check_shape(rows: Sequence[Row]) -> None:
    """A sweep writes none other; a hand may have."""
    for row in rows:
        measures = row.get("measures", {})
        good = isinstance(row["point"], dict) and isinstance(measures, dict)
        if not good or not all(isinstance(v, list) and all(map(_measured, v)) for v in measures.values()):
            raise StudyError(f"the row with key {row['key']} is no row of a sweep", do="remove it")


def _measured(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value))


def _check_one(rows: Sequence[Row]) -> None:
    kinds = {tuple(sorted(row["point"])): None for row in rows}
    if len(kinds) > 1:
        names = " / ".join(", ".join(kind) or "nothing" for kind in kinds)
        raise StudyError(f"rows of {len(kinds)} studies: they vary {names}", do="say which: --study STUDY.yaml")
    points = Counter(json.dumps(row["point"], sort_keys=True) for row in rows)
    twice = [p for p, n in points.items() if n > 1]
    if twice:
        what = f"{len(twice)} points have several rows, such as {twice[0]}: of other scenarios or versions"
        raise StudyError(what, do="say which study: --study STUDY.yaml")


def _key(row: Row, group: Sequence[str]) -> str:
    return _key_of([row["point"][p] for p in group])


def _key_of(values: Sequence[Any]) -> str:
    return json.dumps(list(values), sort_keys=True)


def _number(value: Any) -> tuple[float, str] | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (float(value), "") if math.isfinite(value) else None
    return quantity_of(value)


def _natural(value: Any) -> tuple[Any, ...]:
    """Numbers first, by size; text as people order it: x2 before x10."""
    number = _number(value)
    if number is not None:
        return (0, number[0], ())
    parts = re.split(r"(\d+)", json.dumps(value, sort_keys=True) if not isinstance(value, str) else value)
    return (1, 0.0, tuple((int(p) if p.isdigit() else -1, p) for p in parts))


def _order(point: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return [_natural(v) for v in point.values()]


def _together(rows: Sequence[Row], paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Parameters that do not come in all combinations are one group, if that makes the rows a full grid and a group has
    less than half of its combinations; so a zip is known, and a grid with holes, or a drawn sample, stays as it is."""
    keys = {p: [_key(row, (p,)) for row in rows] for p in paths}

    def count(group: Sequence[str]) -> int:
        return len(set(zip(*(keys[p] for p in group), strict=True)))

    counts = {p: count([p]) for p in paths}
    groups: list[list[str]] = []
    for path in paths:
        meets = [g for g in groups if any(count([path, p]) < counts[path] * counts[p] for p in g)]
        groups = [g for g in groups if g not in meets] + [[p for g in meets for p in g] + [path]]
    groups.sort(key=lambda g: paths.index(g[0]))
    whole = math.prod(map(count, groups)) == len(rows)
    zips = all(len(g) == 1 or count(g) <= _HOLES * math.prod(counts[p] for p in g) for g in groups)
    alone: list[tuple[str, ...]] = [(p,) for p in paths]
    return [tuple(g) for g in groups] if whole and zips and len(groups) > 1 else alone


def _given(axes: Sequence[Axis], group: tuple[str, ...]) -> list[str]:
    """Keys of the values as the study has them."""
    return [_key_of(row) for a in axes if a.paths == group for row in a.rows]


def _factor(rows: Sequence[Row], group: tuple[str, ...], given: Sequence[str], *, drawn: bool) -> Factor:
    keys = [_key(row, group) for row in rows]
    values = {key: [row["point"][p] for p in group] for key, row in zip(keys, rows, strict=True)}
    ordered = sorted(values, key=lambda k: [_natural(v) for v in values[k]])
    if not all(_number(v) is not None for cells in values.values() for v in cells) or len(group) > 1:
        ordered.sort(key=lambda k: given.index(k) if k in given else len(given))
    place = {k: n for n, k in enumerate(ordered)}
    level = np.array([place[k] for k in keys], dtype=np.intp)
    shown = next(n for n in range(1, len(group) + 1) if len({_key_of(values[k][:n]) for k in ordered}) == len(ordered))
    labels = tuple(" / ".join(label(v) for v in values[k][:shown] if v is not None) or "none" for k in ordered)
    numbers = [_number(values[k][0]) for k in ordered] if shown == 1 else [None]
    known = [n for n in numbers if n is not None]
    at = None
    if len(known) == len(ordered) and len({unit for _, unit in known}) == 1:
        at = np.array([n for n, _ in known], dtype=float)[level]
    name = group[0] + (f" & {len(group) - 1} with it" if len(group) > 1 else "")
    if at is None or not drawn or len(ordered) <= _MOST_LEVELS:
        spots = (
            tuple(float(at[level == k][0]) for k in range(len(ordered))) if at is not None else (None,) * len(ordered)
        )
        return Factor(name, group, labels, level, at, level, labels, spots)
    cuts = np.linspace(0, len(ordered), _RANGES + 1).astype(int)
    band = np.searchsorted(cuts[1:], level, side="right").astype(np.intp)
    ranges = tuple(f"{labels[a]} to {labels[b - 1]}" for a, b in itertools.pairwise(cuts))
    spots = tuple(float(at[band == k].mean()) for k in range(_RANGES))
    return Factor(name, group, labels, level, at, band, ranges, spots)


def _mean(values: Sequence[float | None]) -> float:
    mean, _ = spread(values)
    return math.nan if mean is None else float(mean)
