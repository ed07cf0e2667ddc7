"""What a channel gives, however that is known: the flow model asks, a table fitted to the bank model answers."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

from bpusim.units import PS_PER_S, Ps

__all__ = ["Behaviour", "Ideal"]


class Behaviour(Protocol):
    """What a channel gives, however that is known; :class:`bpusim.dram.table.FlowTable` is one."""

    @property
    def peak(self) -> int:
        """B/s on the pins."""
        ...

    @property
    def burst_bytes(self) -> int:
        """Bytes that an open-loop master has in flight at most."""
        ...

    def capacity(self, streams: int, written: float = 0.0, part: float = 1.0, posted: float = 0.0) -> float:
        """B/s that so many streams get together.

        ``written`` of the lines are writes for ``part`` of the time; ``posted`` B/s are writes of open-loop masters.
        """
        ...

    def idle_latency(self, window: int) -> Ps:
        """From a request to its data on an idle channel, with ``window`` bytes in flight."""
        ...

    def alone(self, window: int, path: Ps, limit: float, others: tuple[float, float]) -> float:
        """B/s of one reader while ``others`` take B/s and have bytes in flight."""
        ...

    def at_clock(self, part: float) -> Behaviour:
        """The same channel at ``part`` of its clock."""
        ...


@dataclass(frozen=True, slots=True)
class Ideal:
    """A channel without rows, refresh or turnarounds: a :class:`Behaviour` for comparison, and for tests by hand."""

    peak: int
    burst_bytes: int = 0

    def capacity(self, *_: float) -> float:
        """The peak, whatever the traffic."""
        return float(self.peak)

    def idle_latency(self, window: int) -> Ps:  # noqa: ARG002
        """None: a port's own path is all there is."""
        return 0

    def alone(self, window: int, path: Ps, limit: float, others: tuple[float, float]) -> float:  # noqa: ARG002
        """``min(limit, window / path, peak)``, whatever the others do."""
        return min(float(limit), window * PS_PER_S / path if path else inf, float(self.peak))

    def at_clock(self, part: float) -> Ideal:
        """``part`` of the peak."""
        return Ideal(round(self.peak * part), self.burst_bytes)
