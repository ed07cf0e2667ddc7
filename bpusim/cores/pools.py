"""CPU cores by how fast they are, and how a piece of host work is laid on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from bpusim.units import Ps

__all__ = ["WHOLE", "Affinity", "CorePool", "Laid", "cut"]

Affinity = Literal["any", "fast", "slow"]
"""Cores that work may take: ``any`` is a fast one if one is free, else a slow one."""


class Laid(NamedTuple):
    """How work is laid on CPU cores: in so many ``parts`` at a time, on cores of this ``affinity`` (None: the
    runtime's)."""

    parts: int = 1
    affinity: Affinity | None = None


WHOLE = Laid()
"""In one piece."""


@dataclass(slots=True, eq=False)
class CorePool:
    """Cores that are alike. ``speed``: of a fast core's, 1 at most."""

    cores: int
    speed: Fraction = Fraction(1)
    free: int = field(init=False)
    _fast: bool = field(init=False)
    taken: list[Ps] = field(default_factory=list)
    """When cores were taken since somebody looked, if anybody does."""
    given: list[Ps] = field(default_factory=list)
    """When they were given back."""

    def __post_init__(self) -> None:
        self.free = self.cores
        self._fast = self.speed == 1

    def span(self, duration: Ps) -> Ps:
        """What takes a fast core ``duration`` takes one of these so long, rounded up."""
        return duration if self._fast else -(-duration * self.speed.denominator // self.speed.numerator)

    def look(self) -> tuple[list[Ps], list[Ps]]:
        """(when cores were taken, when they were given back) since the last look, in any order."""
        taken, given = self.taken, self.given
        self.taken, self.given = [], []
        return taken, given


def cut(total: int, parts: int) -> list[int]:
    """``total`` in ``parts`` as equal as integers allow."""
    return [total * (k + 1) // parts - total * k // parts for k in range(parts)]
