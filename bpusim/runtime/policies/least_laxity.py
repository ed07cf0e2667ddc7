"""Least laxity first."""

from __future__ import annotations

from collections.abc import Sequence

from bpusim.runtime.calls import Call, CoreView

__all__ = ["LeastLaxity"]


class LeastLaxity:
    """The call that can wait least: deadline less the time it still takes alone. Those without a deadline last."""

    def pick(self, ready: Sequence[Call], core: CoreView) -> Call:  # noqa: ARG002 (all would be less by the time)
        """The tightest."""
        return min(ready, key=lambda c: (c.deadline_ps is None, (c.deadline_ps or 0) - c.estimate_ps, c.seq))
