"""The rules of a BPU runtime: normal calls by priority, two classes above them that go first at the end of a piece."""

from __future__ import annotations

from collections.abc import Sequence

from bpusim.runtime.calls import Call, CoreView

__all__ = ["HIGH", "URGENT", "Priority"]

HIGH, URGENT = 254, 255


class Priority:
    """Up to 253 the highest goes first, and none interrupts another. 254 goes before a normal call that is under way,
    at the end of its piece, and 255 before both. What was interrupted goes on before others of its class begin."""

    steady = True

    def pick(self, ready: Sequence[Call], core: CoreView) -> Call:  # noqa: ARG002 (the protocol's signature)
        """The highest class, then what has been interrupted, then the highest priority, then the first to come."""
        return min(ready, key=lambda c: (-max(c.priority, HIGH - 1), not c.started, -c.priority, c.seq))
