"""Earliest deadline first."""

from __future__ import annotations

from collections.abc import Sequence

from bpusim.runtime.calls import Call, CoreView

__all__ = ["EarliestDeadline"]


class EarliestDeadline:
    """The call whose deadline comes first; those without one last, in order of submission."""

    steady = True

    def pick(self, ready: Sequence[Call], core: CoreView) -> Call:  # noqa: ARG002 (the protocol's signature)
        """The most urgent."""
        return min(ready, key=lambda c: (c.deadline_ps is None, c.deadline_ps or 0, c.seq))
