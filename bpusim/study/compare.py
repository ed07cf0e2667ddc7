"""Scenarios or policies side by side, over several seeds: what changes, and whether that is more than chance.

All variants of a seed have the same arrivals and lengths (common random numbers), so differences are taken seed by
seed: what is the same for both falls out of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpusim.errors import StudyError
from bpusim.metrics import Figures, figures
from bpusim.system import simulate

__all__ = ["Change", "Comparison", "compare", "t95"]

_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for 95 %, two-sided, by degrees of freedom from 1 on (Fisher and Yates, table III)."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of a variant against the first: means over the seeds, and the half width of the 95 % confidence interval
    of the difference (None of one seed). ``significant``: the interval leaves out zero; of one seed, whether there is
    any difference at all."""

    first: float | None
    value: float | None
    half: float | None

    @property
    def difference(self) -> float | None:
        """``value`` less ``first``; None where either was never measured."""
        return None if self.first is None or self.value is None else self.value - self.first

    @property
    def relative(self) -> float | None:
        """Of ``first``; None where that is zero."""
        return self.difference / self.first if self.first and self.difference is not None else None

    @property
    def significant(self) -> bool:
        """Whether the difference is more than chance."""
        return self.difference is not None and abs(self.difference) > (self.half or 0.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``runs``: figures of each variant, one a seed."""

    seeds: tuple[int, ...]
    runs: Mapping[str, Sequence[Figures]]

    @property
    def names(self) -> list[str]:
        """Figures that at least two variants have, in their order."""
        counts: dict[str, int] = {}
        for rows in self.runs.values():
            for name in rows[0]:
                counts[name] = counts.get(name, 0) + 1
        return [n for n, count in counts.items() if count > 1 or len(self.runs) == 1]

    def change(self, name: str, variant: str) -> Change:
        """Of a figure, against the first variant that has it."""
        base = next(rows for rows in self.runs.values() if name in rows[0])
        rows = self.runs[variant]
        pairs = [(a.get(name), b.get(name)) for a, b in zip(base, rows, strict=True)]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        if not known:
            return Change(_mean([a for a, _ in pairs]), _mean([b for _, b in pairs]), None)
        half = None
        if len(known) > 1:
            spread = statistics.stdev([b - a for a, b in known])
            half = t95(len(known) - 1) * spread / math.sqrt(len(known))
        return Change(_mean([a for a, _ in known]), _mean([b for _, b in known]), half)

    def rows(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """One a figure and variant, for CSV and JSON."""
        out = []
        for name in names:
            for variant in self.runs:
                c = self.change(name, variant)
                out.append(
                    {
                        "figure": name,
                        "variant": variant,
                        "mean": c.value,
                        "difference": c.difference,
                        "relative": c.relative,
                        "half_width_95": c.half,
                        "significant": c.significant,
                    }
                )
        return out


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def t95(freedom: int) -> float:
    """Student's t for a two-sided 95 % interval with so many degrees of freedom."""
    return _T95[freedom - 1] if freedom <= len(_T95) else 1.96 + 2.4 / freedom


def compare(
    scenarios: Sequence[str | Path], policies: Sequence[str] = (), *, seeds: int = 1, set: Sequence[str] = ()
) -> Comparison:
    """Run every scenario (under every policy, if there are any) with ``seeds`` seeds each.

    Raises :class:`StudyError` for fewer than two variants.
    """
    variants: dict[str, tuple[str | Path, list[str]]] = {}
    stems = [Path(s).stem for s in scenarios]
    for scenario, stem in zip(scenarios, stems, strict=True):
        name = stem if stems.count(stem) == 1 else str(scenario)
        for policy in policies or (None,):
            label = name if policy is None else policy if len(scenarios) == 1 else f"{name}, {policy}"
            if label in variants:
                raise StudyError(f"'{label}' is there twice", do="name each scenario and policy once")
            variants[label] = scenario, [*set, *([f"policy={policy}"] if policy is not None else [])]
    if len(variants) < 2:
        raise StudyError("there is one variant only", do="name another scenario, or two policies by --policy")
    numbers = tuple(range(seeds))
    runs = {
        label: [figures(simulate(scenario, set=[*changes, *_seed(k, seeds)])) for k in numbers]
        for label, (scenario, changes) in variants.items()
    }
    return Comparison(numbers, runs)


def _seed(number: int, seeds: int) -> list[str]:
    """The scenario's own seed if there is one run only."""
    return [f"engine.seed={number}"] if seeds > 1 else []
