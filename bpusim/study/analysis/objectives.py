"""What points are judged by: figures, parameters and the cost, each a number a point."""

from __future__ import annotations

import contextlib
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from bpusim.errors import StudyError
from bpusim.metrics.slo import more_is_better
from bpusim.study.analysis.data import Data
from bpusim.study.export import spread
from bpusim.study.rules import Each, Rule

__all__ = ["Judge", "Lookup", "expressions"]

Lookup = Callable[[str, Mapping[str, Any]], Any]
"""A value of the scenario by its path, at a point; raises :class:`StudyError` for one that it does not have."""
_NEAR = 3
"""Names that are told for one that nobody has."""


def nearest(word: str, known: Sequence[str], more: Sequence[str] = ()) -> str:
    """``did you mean 'x' or 'y'?``, for names of both that are much like it or have it; else the nearest ``known``."""
    every = [*known, *more]
    has = [n for n in every if word in n]
    close = list(dict.fromkeys([*difflib.get_close_matches(word, every, _NEAR, 0.6), *has]))[:_NEAR]
    if close:
        return f"did you mean {' or '.join(repr(n) for n in close)}?"
    return f"the nearest names: {', '.join(difflib.get_close_matches(word, known, _NEAR, 0.0))}"


@dataclass(frozen=True, slots=True)
class Judge:
    """Works expressions out at points. ``lookup``: for what is neither a parameter nor a figure; None if no scenario is
    at hand. ``keys``: paths that it has, for errors."""

    data: Data
    lookup: Lookup | None = None
    keys: Callable[[], Sequence[str]] = tuple
    _figures: dict[tuple[str, str], dict[str, list[str]]] = field(default_factory=dict)

    def known(self, rule: Rule, row: int, seed: int | None = None) -> dict[str, Any] | None:
        """Values of the paths of ``rule``; None if one was not measured here. ``seed``: of one run, not the mean."""
        point, measures = self.data.rows[row]["point"], self.data.rows[row].get("measures", {})
        out: dict[str, Any] = {}
        for path, names in self.figures(rule).items():
            if path in point:
                out[path] = point[path]
            elif names:
                values = [_value(measures[n], seed) for n in names if n in measures]
                if not values or None in values:
                    return None
                out[path] = Each(values) if "*" in path else values[0]
            else:
                out[path] = self._looked_up(rule, path, point)
        return out

    def check(self, rules: Iterable[Rule]) -> None:
        """Raises :class:`StudyError` for a path that is no figure, no parameter and no key of the scenario."""
        for rule in rules:
            for path, names in self.figures(rule).items():
                if not names and path not in self.data.rows[0]["point"]:
                    self._looked_up(rule, path, self.data.rows[0]["point"])

    def _looked_up(self, rule: Rule, path: str, point: Mapping[str, Any]) -> Any:
        if self.lookup is not None:
            with contextlib.suppress(StudyError):
                return self.lookup(path, point)
        what = f"{rule.key}: no row has '{path}', as a parameter or a figure"
        do = nearest(path, [*self.data.means, *self.data.rows[0]["point"]], self.keys())
        if self.lookup is not None:
            raise StudyError(f"{what}, and the scenario has no such key", do=do)
        raise StudyError(what, do=f"{do} or add --study STUDY.yaml to look it up in the scenario")

    def figures(self, rule: Rule) -> dict[str, list[str]]:
        """Figures that each of its paths names; none for a parameter. Raises :class:`StudyError` for ``*`` of none."""
        key = (rule.key, rule.text)
        if key not in self._figures:  # for all points, once
            every = list(self.data.means)
            found = {}
            for path in rule.paths():
                found[path] = [n for n in every if (fnmatchcase(n, path) if "*" in path else n == path)]
                if "*" in path and not found[path]:
                    what = f"{rule.key}: no row has the figure '{path}'"
                    raise StudyError(what, do=nearest(path, every))
            self._figures[key] = found
        return self._figures[key]

    def number(self, rule: Rule, row: int, *, more: bool = False) -> float | None:
        """What an expression comes to; of several figures the worst. None where something was not measured."""
        known = self.known(rule, row)
        if known is None:
            return None
        value = rule.value(known)
        if isinstance(value, Each):
            value = min(value) if more else max(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise StudyError(
                f"{rule.key}: '{rule.text}' is {value!r}, not a number", do="write an expression of numbers"
            )
        return float(value)


def _value(values: Sequence[float | None], seed: int | None) -> float | None:
    if seed is None:
        return spread(values)[0]
    return values[seed] if seed < len(values) else None


def expressions(text: str, cost: str = "") -> list[tuple[Rule, bool]]:
    """(expression, whether more of it is better) of each of a list with commas: ``max: x`` and ``min: x`` say it,
    else the name of a figure does, and less of anything else is better. ``cost`` stands for that expression."""
    out = []
    for part in re.split(r",(?![^(\[{]*[)\]}])", text):
        found = re.fullmatch(r"\s*(?:(min|max)\s*:)?\s*(.+?)\s*", part)
        if found is None:
            raise StudyError(f"pareto: '{text}' has an empty part", do="write FIGURE,FIGURE")
        way, body = found[1], found[2]
        if body == "cost" and not cost:
            raise StudyError("pareto: there is no cost", do="add --cost EXPRESSION")
        rule = Rule.of(cost if body == "cost" else body, "cost" if body == "cost" else "pareto")
        single = rule.paths() == {body}
        out.append((rule, way == "max" if way else single and more_is_better(body)))
    return out
