"""One stream after the other."""

from __future__ import annotations

from collections.abc import Sequence

from bpusim.runtime.calls import Call, CoreView
from bpusim.units import Ps

__all__ = ["RoundRobin"]


class RoundRobin:
    """Streams take turns, call by call (or piece by piece), in the order in which they were first seen."""

    def __init__(self) -> None:
        self._order: list[str] = []
        self._last = -1

    def _place(self, stream: str) -> int:
        if stream not in self._order:
            self._order.append(stream)
        return self._order.index(stream)

    def pick(self, ready: Sequence[Call], core: CoreView) -> Call:  # noqa: ARG002 (the protocol's signature)
        """The first of the stream whose turn is next."""
        turns = {c.stream: self._place(c.stream) for c in ready}
        n = len(self._order)
        return min(ready, key=lambda c: ((turns[c.stream] - self._last - 1) % n, c.seq))

    def ran(self, call: Call, core: CoreView, duration_ps: Ps) -> None:  # noqa: ARG002
        """It was this stream's turn."""
        self._last = self._place(call.stream)
