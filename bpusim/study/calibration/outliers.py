"""Observations that contradict the others: they are told and left out, never fitted to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bpusim.errors import StudyError
from bpusim.study.calibration.fit import Fit, Observation

__all__ = ["FACTOR", "Outlier", "apart", "check_units", "impossible", "of_repeats"]

_ABOUT = 3.0
"""Within so many times of 1000 a factor is taken for that of a unit."""
FACTOR = 2.0
"""A figure so many times off its repeats, or off what fits the others, is a mistake or another experiment (BH-36)."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """An observation and why it does not count."""

    observation: Observation
    why: str
    slow: float | None = None
    """How many times as slow as expected, below 1 if it is faster; None where repeats contradict each other."""

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
                slow = ratio if o.kind == "ttft" else 1 / ratio
                found.append(Outlier(o, f"{_slower(o, slow)} as the median of its {len(group)} repeats"))
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
            found.append(
                Outlier(o, f"{_times(part)} the peak of its memory: it cannot have read its weights so fast", 1 / part)
            )
    return found


def apart(found: Fit, observations: Sequence[Observation]) -> list[Outlier]:
    """Those more than a factor off a fit."""
    out = []
    for residual, o in zip(found.residuals, observations, strict=True):
        if abs(residual * o.noise) > math.log(FACTOR):
            slow = math.exp(residual * o.noise)
            out.append(Outlier(o, f"{_slower(o, slow)} as what fits the others", slow))
    return out


def check_units(observations: Sequence[Observation], flagged: Sequence[Outlier]) -> None:
    """Refuse figures of one kind of which most are off in one direction: that is their unit, not outliers.

    Raises :class:`StudyError`.
    """
    for kind, name in (("ttft", "ttft_ms"), ("decode", "decode_tps")):
        of_kind = [o for o in observations if o.kind == kind]
        for slow in (True, False):
            off = [f for f in flagged if f.observation.kind == kind and f.slow is not None and (f.slow > 1) is slow]
            if len(off) < 2 or 2 * len(off) <= len(of_kind):
                continue
            middle = statistics.median(f.slow or 1.0 for f in off)
            if not slow:
                middle = 1 / middle
            way = {"ttft": ("long", "short"), "decode": ("slow", "fast")}[kind][not slow]
            times = round(middle) if middle >= 10 else round(middle, 1)
            what = f"{name}: {len(off)} of {len(of_kind)} figures are too {way}, by about {times} times"
            unit = "milliseconds" if kind == "ttft" else "tokens a second"
            do = f"are they {unit}?"
            if 1000 / _ABOUT < middle < 1000 * _ABOUT and kind == "ttft":
                do += f" 1000 times is what {'microseconds' if slow else 'seconds'} would give"
            raise StudyError(what, do=f"{do}; --keep-outliers fits to them as they are")


def _slower(o: Observation, slow: float) -> str:
    """A first token is long or short, a rate slow or fast."""
    words = ("long", "short") if o.kind == "ttft" else ("slow", "fast")
    return f"{_times(max(slow, 1 / slow))} as {words[slow < 1]}"


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times"
