"""A master that the machine file names, as the flow model sees it: bursts, a buffer, and what it loses."""

from __future__ import annotations

from math import ceil

from bpusim.hardware import MasterSpec
from bpusim.units import PS_PER_S, Ps

__all__ = ["Background"]


class Background:
    """Traffic of its own, whoever else is there; bytes it has moved and lost so far."""

    __slots__ = ("backlog", "dropped", "moved", "name", "on", "open_loop", "period", "spec")

    def __init__(self, name: str, spec: MasterSpec) -> None:
        self.name = name
        self.spec = spec
        self.open_loop = spec.window is None
        self.on, self.period = spec.on or 0, spec.period or 0
        self.moved = self.dropped = self.backlog = 0.0

    def generates(self, at: Ps) -> bool:
        """Whether a burst is on."""
        return not self.period or at % self.period < self.on

    def asks(self, at: Ps) -> bool:
        """Whether it moves anything just now: a burst, or what its buffer still holds of one."""
        return self.backlog > 0 or self.generates(at)

    def edge(self, at: Ps, given: float) -> Ps | None:
        """When that changes next, if it goes on at ``given`` B/s."""
        if self.on == self.period:
            return None
        into = at % self.period
        edge = at - into + (self.on if into < self.on else self.period)
        if into >= self.on and self.backlog > 0 and given > 0:
            return min(edge, at + ceil(self.backlog * PS_PER_S / given))
        return edge

    def advance(self, at: Ps, given: float, duration: Ps) -> None:
        """Account ``duration`` from ``at`` on, in which it got ``given`` B/s. What does not fit is held, then lost."""
        got = given * duration / PS_PER_S
        if self.open_loop:
            if self.generates(at):
                self.backlog += (self.spec.rate - given) * duration / PS_PER_S
            else:
                got = min(got, self.backlog)
                self.backlog -= got
            self.dropped += max(self.backlog - self.spec.buffer, 0.0)
            self.backlog = min(max(self.backlog, 0.0), float(self.spec.buffer))
        self.moved += got
