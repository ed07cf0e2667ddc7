"""What a dispatch policy sees, and what it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from bpusim.units import Ps

__all__ = ["ORDINARY", "Call", "CoreView", "Policy", "Terms", "Told"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is ready to run, or one under way that has come to the end of a piece.

    ``started``: it has run already and was interrupted, or is the one under way. ``seq`` counts the calls of a core in
    the order in which they were submitted.
    """

    stream: str
    phase: str
    priority: int
    deadline_ps: Ps | None
    submitted_ps: Ps
    seq: int
    weight: float = 1.0
    started: bool = False
    estimate: Callable[[], Ps] = field(default=lambda: 0, compare=False, repr=False)
    """Works out ``estimate_ps``: it takes a replay, and not every policy asks."""

    @property
    def estimate_ps(self) -> Ps:
        """What is left of it, with the channel to itself."""
        return self.estimate()


@dataclass(frozen=True, slots=True)
class CoreView:
    """A core as a policy sees it."""

    name: str
    now_ps: Ps


class Policy(Protocol):
    """Picks the next call of a core: when it is free and several wait, and when the call under way has come to the end
    of a piece (``max_call``) while others wait. It is among ``ready`` then, and goes on if it is picked.

    A class attribute ``steady = True`` says that of the same calls it would always pick the same one, whatever has run
    and whatever the time: it is asked when a call comes, and at the end of the piece only if it has picked another than
    the one under way.
    """

    def pick(self, ready: Sequence[Call], core: CoreView) -> Call:
        """One of ``ready``, which is never empty and in order of submission."""
        ...


@runtime_checkable
class Told(Protocol):
    """A policy that also wants to know what has run."""

    def ran(self, call: Call, core: CoreView, duration_ps: Ps) -> None:
        """``call`` ran for so long up to now, to its end or to that of a piece."""
        ...


class Terms(NamedTuple):
    """On what terms a stream's calls run: priority 0 to 255, weight, the longest piece (None: calls go to their
    end)."""

    priority: int = 0
    weight: float = 1.0
    max_call: Ps | None = None


ORDINARY = Terms()
"""What holds unless something else is said."""
