"""A scenario against another, interval by interval and cause by cause: plain values, signed, sums exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bpusim.metrics.causes import CAUSES
from bpusim.metrics.explained import Interval
from bpusim.metrics.explanation import SCHEMA
from bpusim.units import Ps

__all__ = ["Difference", "Pair", "Versus"]


@dataclass(frozen=True, slots=True)
class Difference:
    """An interval of one scenario less that of the other, by cause; signed, and the sum is exact."""

    name: str
    other: str
    """Name of the interval it is compared with."""
    mean: Ps
    other_mean: Ps
    causes: Mapping[str, Ps]

    @classmethod
    def of(cls, one: Interval, other: Interval) -> Difference:
        """``one`` less ``other``."""
        return cls(one.name, other.name, one.mean, other.mean, {c: one.causes[c] - other.causes[c] for c in CAUSES})

    @property
    def total(self) -> Ps:
        """How much longer it takes; below zero if it is shorter."""
        return self.mean - self.other_mean

    def ranked(self) -> list[tuple[str, Ps]]:
        """Causes that differ, the largest difference first, either way."""
        rows = ((c, t) for c, t in self.causes.items() if t)
        return sorted(rows, key=lambda row: (-abs(row[1]), CAUSES.index(row[0])))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        causes = [
            {"cause": c, "ms": t / 1e9, "share": t / self.total if self.total else None} for c, t in self.ranked()
        ]
        return {
            "against": self.other,
            "mean_ms": self.mean / 1e9,
            "against_mean_ms": self.other_mean / 1e9,
            "difference_ms": self.total / 1e9,
            "causes": causes,
        }


@dataclass(frozen=True, slots=True)
class Pair:
    """A stream and the one of the other scenario that it is compared with; ``how`` that was found."""

    stream: str
    other: str
    how: str
    differences: Sequence[Difference]
    alone: Sequence[str] = ()
    """Intervals that only one of them has."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "stream": self.stream,
            "against": self.other,
            "matched": self.how,
            "intervals": {d.name: d.to_dict() for d in self.differences},
            "in_one_only": list(self.alone),
        }


@dataclass(frozen=True, slots=True)
class Versus:
    """A scenario against another: ``alone`` are streams that have no partner, as ``SCENARIO: STREAM``."""

    scenario: str
    other: str
    pairs: Sequence[Pair]
    alone: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": SCHEMA,
            "scenario": self.scenario,
            "against": self.other,
            "pairs": [p.to_dict() for p in self.pairs],
            "without_partner": list(self.alone),
        }
