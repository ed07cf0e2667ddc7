"""Shares of a core by weight."""

from __future__ import annotations

from collections.abc import Sequence

from bpusim.runtime.calls import Call, CoreView
from bpusim.units import Ps

__all__ = ["WeightedFair"]


class WeightedFair:
    """The stream that has had least of the core for its weight goes first (start-time fair queueing).

    A stream that was away is not owed for it: it comes back at the virtual time of what ran last, so none waits for
    longer than it takes the others to catch up by a call each.
    """

    def __init__(self) -> None:
        self._had: dict[str, float] = {}
        """Virtual time of each stream: ps on the core by weight."""
        self._now = 0.0
        """That of what ran last, when it began."""

    def _tag(self, stream: str) -> float:
        return max(self._had.get(stream, 0.0), self._now)

    def pick(self, ready: Sequence[Call], core: CoreView) -> Call:  # noqa: ARG002 (the protocol's signature)
        """The first call of the stream that is furthest behind."""
        return min(ready, key=lambda c: (self._tag(c.stream), c.seq))

    def ran(self, call: Call, core: CoreView, duration_ps: Ps) -> None:  # noqa: ARG002
        """It has had so much more."""
        self._now = self._tag(call.stream)
        self._had[call.stream] = self._now + duration_ps / call.weight
