"""Values that a study gives to parameters: lists, and ranges of numbers or quantities."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from bpusim.errors import StudyError
from bpusim.units import DIMENSIONS

__all__ = ["Axis", "Range", "Value", "axis_of", "range_of"]

Value = Any
"""Plain data as a scenario file has it: text (``17 GB/s``), a number, a mapping ..."""
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*?)?\s*")
_DIGITS = 6
"""Of a value within a range."""
_MOST = 100_000
"""Values of a range."""


@dataclass(frozen=True, slots=True)
class Range:
    """From ``low`` to ``high`` in ``unit``, both included; ``whole``: integers only; ``log``: evenly in ratios."""

    low: Decimal
    high: Decimal
    unit: str
    whole: bool
    log: bool
    step: Decimal | None = None
    points: int | None = None

    def values(self) -> list[Value] | None:
        """All of them; None if there is no step between them."""
        if self.step is not None:
            count = int((self.high - self.low) / self.step) + 1
            return [self._value(self.low + k * self.step) for k in range(count)]
        if self.points is not None:
            return list(dict.fromkeys(self.at(k / max(self.points - 1, 1)) for k in range(self.points)))
        return None

    def at(self, part: float) -> Value:
        """The value so far on the way from ``low`` (0) to ``high`` (1)."""
        low, high = float(self.low), float(self.high)
        if self.whole and self.points is None:  # each integer as likely as any other
            return min(int(low + part * (high - low + 1)), int(high))
        exact = low * (high / low) ** part if self.log else low + part * (high - low)
        if self.whole:
            return round(exact)
        if part in (0.0, 1.0):
            return self._value(self.high if part else self.low)
        return self._value(Decimal(f"{exact:.{_DIGITS}g}"))

    def _value(self, number: Decimal) -> Value:
        if self.whole:
            return int(number)
        text = f"{number:f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return f"{text} {self.unit}" if self.unit else float(text)


@dataclass(frozen=True, slots=True)
class Axis:
    """Parameters that change together: ``paths``, and rows of one value each. ``span`` is set for a single parameter
    that takes any value of a range, which only a drawn sample can give it."""

    paths: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    span: Range | None = None

    def at(self, part: float) -> tuple[Value, ...]:
        """The row so far along it, from 0 to below 1."""
        if self.span is not None:
            return (self.span.at(part),)
        return self.rows[min(int(part * len(self.rows)), len(self.rows) - 1)]


def axis_of(path: str, given: object) -> Axis:
    """``given``: a list of values, or a mapping ``{from, to, step | points, scale}``. Raises :class:`StudyError`."""
    if isinstance(given, dict) and {"from", "to"} & given.keys():
        span = range_of(path, given)
        values = span.values()
        return Axis((path,), tuple((v,) for v in values), None) if values is not None else Axis((path,), (), span)
    if not isinstance(given, list):
        raise StudyError(f"{path}: not a list of values", do="write [value, value], or {from: 1, to: 4}")
    if not given:
        raise StudyError(f"{path}: an empty list", do="give it a value, or leave the parameter out")
    return Axis((path,), tuple((v,) for v in given))


def range_of(path: str, given: dict[str, object]) -> Range:
    """A range as a study file has it. Raises :class:`StudyError` for one that is empty, or of two units."""
    known = ("from", "to", "step", "points", "scale")
    for key in given:
        if key not in known:
            raise StudyError(f"{path}: a range has no '{key}'", do=f"write some of {', '.join(known)}")
    for key in ("from", "to"):
        if key not in given:
            raise StudyError(f"{path}: the range has no '{key}'", do="write {from: 1, to: 4}")
    (low, unit, low_whole), (high, other, high_whole) = (_number(path, given[key]) for key in ("from", "to"))
    low, high, unit = _in_one(path, given, (low, unit), (high, other))
    if high < low:
        raise StudyError(
            f"{path}: an empty range, from {given['from']} to {given['to']}", do="write the lower end first"
        )
    log = _log(path, given, low)
    step: Decimal | None = None
    points: int | None = None
    whole = low_whole and high_whole and not unit
    if "step" in given and "points" in given:
        raise StudyError(f"{path}: both a step and a number of points", do="write one of them")
    if "step" in given:
        step, unit_of_step, step_whole = _number(path, given["step"])
        if step <= 0 or log:
            what = "in steps, and even in ratios" if log else f"from {given['from']} in steps of {given['step']}"
            raise StudyError(f"{path}: {what}", do="write a step above zero, or points with scale: log")
        before = unit
        step, low, unit = _in_one(path, given, (step, unit_of_step), (low, unit))
        _, high, _ = _in_one(path, given, (step, unit), (high, before))
        whole = whole and step_whole
    elif "points" in given:
        wanted = given["points"]
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= _MOST:
            raise StudyError(f"{path}: {wanted} points", do=f"write a whole number from 1 to {_MOST}")
        points = wanted
        if points == 1 and low != high:
            raise StudyError(f"{path}: one point of a range with two ends", do="write a list, or 2 points")
        if whole and not log and points > 1 and (high - low) % (points - 1):
            what = f"{path}: {points} whole numbers from {low} to {high} are not evenly spaced"
            raise StudyError(what, do="write a step, a list, or another number of points")
    elif whole and not log:
        step = Decimal(1)
    if step is not None and (high - low) / step > _MOST:
        raise StudyError(f"{path}: more than {_MOST} values", do="write a larger step")
    return Range(low, high, unit, whole, log, step, points)


def _in_one(
    path: str, given: dict[str, object], a: tuple[Decimal, str], b: tuple[Decimal, str]
) -> tuple[Decimal, Decimal, str]:
    """Two numbers in the smaller of their units. Raises :class:`StudyError` for units of different dimensions."""
    if a[1] == b[1]:
        return a[0], b[0], a[1]
    for d in DIMENSIONS.values():
        if a[1] in d.units and b[1] in d.units:
            (one, unit), (two, other) = a, b
            if d.units[unit] <= d.units[other]:
                return one, two * d.units[other] / d.units[unit], unit
            return one * d.units[unit] / d.units[other], two, other
    text = ", ".join(f"{key}: {given[key]}" for key in ("from", "to", "step") if key in given)
    raise StudyError(f"{path}: {text}", do="write both ends, and the step, in units of one kind")


def _log(path: str, given: dict[str, object], low: Decimal) -> bool:
    scale = given.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise StudyError(f"{path}: scale {scale}", do="write linear or log")
    if scale == "log" and low <= 0:
        raise StudyError(f"{path}: even in ratios, from {given['from']}", do="begin above zero, or write scale: linear")
    return scale == "log"


def _number(path: str, given: object) -> tuple[Decimal, str, bool]:
    """(number, unit, whether it is an integer without one)."""
    match = _NUMBER.fullmatch(str(given)) if isinstance(given, str | int | float) else None
    if match is None or isinstance(given, bool):
        raise StudyError(f"{path}: {given!r} is no end of a range", do="write a number, or one with its unit: 1.2 GHz")
    try:
        number = Decimal(match[1])
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or not math.isfinite(float(number)):
        raise StudyError(f"{path}: {given} is out of range", do="write a smaller number")
    return number, match[2] or "", isinstance(given, int) or (match[2] is None and "." not in match[1])


def zipped(columns: Sequence[Axis]) -> Axis:
    """Parameters that advance together. Raises :class:`StudyError` where one has more values than another."""
    lengths = {len(c.rows) for c in columns}
    if any(c.span is not None for c in columns) or len(lengths) != 1:
        counts = ", ".join(f"{c.paths[0]}: {len(c.rows) or 'any'}" for c in columns)
        raise StudyError(
            f"zip: values that go together, of different numbers ({counts})", do="give each as many values"
        )
    rows = tuple(tuple(v for c in row for v in c) for row in zip(*(c.rows for c in columns), strict=True))
    return Axis(tuple(p for c in columns for p in c.paths), rows)
