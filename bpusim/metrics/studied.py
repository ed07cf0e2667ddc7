"""What a study shows, as plain values: for tables, charts and programs alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Candidate", "Effect", "Front", "FrontPoint", "HeatMap", "Level", "Objective", "Searched",
           "Sensitivity", "Smallest", "Studied", "Tried"]  # fmt: skip

SCHEMA = 1
"""Of the JSON form; it changes when a key does."""


@dataclass(frozen=True, slots=True)
class Level:
    """A figure at one value of a parameter: mean over ``points`` and their seeds; ``half``: half width of its 95 %
    confidence interval over seeds, None of one seed. ``at``: the value in its base unit, None of text."""

    label: str
    at: float | None
    mean: float
    half: float | None
    points: int


@dataclass(frozen=True, slots=True)
class Effect:
    """The main effect of a parameter on a figure. ``change``: highest less lowest mean."""

    figure: str
    parameter: str
    levels: tuple[Level, ...]
    change: float
    relative: float | None
    """``change`` over the lowest mean; None if that is not above zero."""


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A figure over two parameters: ``means[row][column]`` over all others; None where there is no point."""

    figure: str
    rows: str
    columns: str
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    means: tuple[tuple[float | None, ...], ...]
    points: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How much a figure depends on a parameter; None where it is not defined.

    ``first``, ``total``: Sobol' indices; ``first_half``: half width of a 95 % confidence interval, None if exact.
    ``elasticity``: d ln figure / d ln parameter; ``error``: its standard error by regression; ``least`` and ``most``:
    between neighbouring values of a grid.
    """

    figure: str
    parameter: str
    first: float | None
    first_half: float | None
    total: float | None
    elasticity: float | None
    error: float | None
    least: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class Objective:
    """``text``: what it is; ``more``: whether more of it is better."""

    text: str
    more: bool


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """``best``: no other point is as good in all objectives and better in one."""

    point: str
    values: tuple[float, ...]
    best: bool


@dataclass(frozen=True, slots=True)
class Front:
    """All points that have every objective, the Pareto front among them; front first, by the first objective."""

    objectives: tuple[Objective, ...]
    points: tuple[FrontPoint, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point against the conditions. ``room``: by condition, to spare over its limit (0.1: 10 %; below zero: missed by
    so much; None: cannot be said). ``seeds``: in how many of its runs all conditions hold, of how many."""

    point: str
    values: Mapping[str, Any]
    cost: float | None
    met: bool
    smallest: bool
    room: Mapping[str, float | None]
    seeds: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Smallest:
    """Which machine is enough. ``conditions``: how many points meet each; ``cost``: its expression, empty for small in
    every numeric parameter; ``candidates``: the smallest that meet all, others that do, the rest, nearest first."""

    conditions: Mapping[str, int]
    cost: str
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...]

    @property
    def met(self) -> int:
        """How many meet all conditions."""
        return sum(c.met for c in self.candidates)


@dataclass(frozen=True, slots=True)
class Tried:
    """A point that a search tried, as the ``number``-th. ``objectives``: in their order, None where not measured;
    ``best``: meets all conditions, and no other that does is as good in all objectives and better in one."""

    number: int
    point: str
    values: Mapping[str, Any]
    objectives: tuple[float | None, ...]
    met: bool
    best: bool
    room: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search found. ``tried``: best first, then those that meet all conditions, then the nearest; ``counts``:
    rows by status; ``there``: so many rows were there before; ``space``: points there are, None if without end."""

    name: str
    objectives: tuple[Objective, ...]
    tried: tuple[Tried, ...]
    counts: Mapping[str, int]
    there: int
    space: int | None
    notes: tuple[str, ...]
    errors: Mapping[str, int] = field(default_factory=dict)

    @property
    def best(self) -> tuple[Tried, ...]:
        """The best point, or the Pareto front of several objectives; none if no point meets all conditions."""
        return tuple(t for t in self.tried if t.best)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"schema": SCHEMA, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Studied:
    """All of it. ``design``: ``grid``, ``grid with holes`` or ``drawn``; ``counts``: rows by status."""

    name: str
    about: str
    design: str
    counts: Mapping[str, int]
    parameters: Mapping[str, Sequence[str]]
    """Labels of values by parameter; parameters that only change together are one."""
    figures: tuple[str, ...]
    notes: tuple[str, ...]
    effects: tuple[Effect, ...] = ()
    maps: tuple[HeatMap, ...] = ()
    sensitivity: tuple[Sensitivity, ...] = ()
    front: Front | None = None
    smallest: Smallest | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    """Of rows without a result, and how often each was."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"schema": SCHEMA, **asdict(self)}
