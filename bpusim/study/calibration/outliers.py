"""Observations that contradict the others: they are told and left out, never fitted to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bpusim.study.calibration.fit import Fit, Observation

__all__ = ["FACTOR", "Outlier", "apart", "impossible", "of_repeats"]

FACTOR = 2.0
"""A figure so many times off its repeats, or off what fits the others, is a mistake or another experiment (BH-36)."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """An observation and why it does not count."""

    observation: Observation
    why: str

    def __str__(self) -> str:
        o = self.observation
        what = f"TTFT {o.measured:g} ms" if o.kind == "ttft" else f"decode {o.measured:g} tok/s"
        return f"row {o.recipe.row.id} ({o.recipe.row.model}), {what}: {self.why}"


def of_repeats(observations: Sequence[Observation]) -> list[Outlier]:
    """Those more than a factor off the median of rows that measure the same."""
    groups: dict[tuple[object, ...], list[Observation]] = {}
    for o in observations:
        groups.setdefault((o.kind, o.recipe.row.repeat_of), []).append(o)
    found = []
    for group in groups.values():
        middle = statistics.median_low(o.measured for o in group)
        for o in group:
            ratio = o.measured / middle
            if max(ratio, 1 / ratio) > FACTOR and len(group) > 2:
                found.append(Outlier(o, f"{_times(ratio)} the median of its {len(group)} repeats"))
            elif max(ratio, 1 / ratio) > FACTOR:
                ids = ", ".join(p.recipe.row.id for p in group)
                found.extend(Outlier(p, f"rows {ids} measure the same, {_times(ratio)} apart") for p in group)
    return found


def impossible(observations: Sequence[Observation]) -> list[Outlier]:
    """Decode rates above what the bus could move."""
    found = []
    for o in observations:
        peak = o.recipe.row.peak_bytes_per_s
        if o.kind == "decode" and peak is not None and o.measured * o.recipe.step_bytes > peak:
            part = o.measured * o.recipe.step_bytes / peak
            found.append(Outlier(o, f"{_times(part)} the peak of its memory: it cannot have read its weights so fast"))
    return found


def apart(found: Fit, observations: Sequence[Observation]) -> list[Outlier]:
    """Those more than a factor off a fit."""
    out = []
    for residual, o in zip(found.residuals, observations, strict=True):
        if abs(residual * o.noise) > math.log(FACTOR):
            out.append(Outlier(o, f"{_times(math.exp(residual * o.noise))} as long as what fits the others"))
    return out


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times"
