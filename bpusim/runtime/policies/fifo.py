"""First come, first served."""

from __future__ import annotations

from collections.abc import Sequence

from bpusim.runtime.calls import Call, CoreView

__all__ = ["Fifo"]


class Fifo:
    """The call submitted first; none is interrupted."""

    steady = True

    def pick(self, ready: Sequence[Call], core: CoreView) -> Call:  # noqa: ARG002 (the protocol's signature)
        """The head of the line."""
        return min(ready, key=lambda c: c.seq)
