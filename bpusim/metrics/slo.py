"""Limits on what a run says: which of them it breaks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from bpusim.errors import did_you_mean
from bpusim.units import parse_quantity

__all__ = ["Limited", "broken", "fail", "more_is_better"]

_AT_LEAST = ("_per_s", "fps", "_fraction", "tokens", "requests", "good", "frames", "runs", "fairness")
"""Ends of the names of figures of which more is better: their limits are lower ones."""


def more_is_better(figure: str) -> bool:
    """Whether more of a figure is better, by the end of its name; less of all others is."""
    return figure.endswith(_AT_LEAST)


def broken(figures: Mapping[str, Any], limits: Mapping[str, object]) -> list[str]:
    """What breaks ``limits``, a line each. A time is named without its unit and limited by text with one
    (``ttft_p99="500 ms"``); what is better the less there is from above, and
    what is better the more there is (rates, fractions, tokens, requests, good ones, frames, runs) from below.

    Raises :class:`TypeError` for a figure that is not there, or a limit that is none.
    """
    if not limits:
        raise TypeError("no limit is given; write such as ttft_p99='500 ms'")
    known = {k.removesuffix("_ms"): k for k, v in figures.items() if not isinstance(v, dict | str)}
    out: list[str] = []
    for name, limit in limits.items():
        key = known.get(name) or (name if name in figures and name in known.values() else None)
        if key is None:
            raise TypeError(f"there is no figure '{name}'; {did_you_mean(name, sorted(known))}")
        value, unit = figures[key], " ms" if key.endswith("_ms") else ""
        bound = _number(name, limit, time=bool(unit))
        if value is None:
            out.append(f"{name}: nothing was measured, where {limit} is the limit")
        elif more_is_better(key):
            if value < bound:
                out.append(f"{name}: {value:.6g}, at least {bound:g} is asked for")
        elif value > bound:
            out.append(f"{name}: {value:.6g}{unit}, at most {bound:g}{unit} is asked for")
    return out


def _number(name: str, limit: object, *, time: bool) -> float:
    if time:
        if not isinstance(limit, str):
            raise TypeError(f"{name}={limit!r} has no unit; write {name}='{limit} ms'")
        return parse_quantity(limit, "time") / 1e9
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise TypeError(f"{name}={limit!r} is not a number")
    if not math.isfinite(limit):
        raise TypeError(f"{name}={limit!r} limits nothing; write a number")
    return limit


def fail(figures: Mapping[str, Any], limits: Mapping[str, object]) -> None:
    """Raises :class:`AssertionError` with all that breaks ``limits``."""
    wrong = broken(figures, limits)
    if wrong:
        raise AssertionError("; ".join(wrong))


class Limited(ABC):
    """Something with figures that may be limited."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Its figures by name."""

    def assert_slo(self, **limits: object) -> None:
        """Raises :class:`AssertionError` with all that is broken: ``assert_slo(latency_p99="30 ms", dropped=0)``.

        Times and what should not be are limited from above; rates, fractions, and what is served from below.
        """
        fail(self.to_dict(), limits)
