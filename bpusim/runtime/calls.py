"""What a dispatch policy sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bpusim.units import Ps

__all__ = ["Call", "CoreView", "Policy"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is ready to run; ``estimate_ps`` is its time with the channel to itself."""

    stream: str
    phase: str
    priority: int
    deadline_ps: Ps | None
    estimate_ps: Ps
    submitted_ps: Ps
    seq: int


@dataclass(frozen=True, slots=True)
class CoreView:
    """A core as a policy sees it."""

    name: str
    now_ps: Ps


class Policy(Protocol):
    """Picks the next call for a free core. There is no preemption: a call runs to its end."""

    def pick(self, ready: Sequence[Call], core: CoreView) -> Call:
        """One of ``ready``, which is never empty and in order of submission."""
        ...
