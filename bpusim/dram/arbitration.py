"""Who gets how much when masters ask for more than the channel gives: one function per policy.

These are the flow model's rules. The bank model does the same request by request: proportional is first come first
served, equal and weighted are fair queueing, strict is priority, regulated is a pace per master.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bpusim.units import PS_PER_S, Ps

__all__ = [
    "PROPORTIONAL",
    "Arbitration",
    "Ask",
    "Rules",
    "equal",
    "fill",
    "meeting",
    "proportional",
    "settle",
    "strict",
    "weighted",
]

Arbitration = Literal["proportional", "equal", "strict", "weighted", "regulated"]


@dataclass(frozen=True, slots=True)
class Ask:
    """What a master would take: B/s with the channel to itself, bytes in flight, its idle latency, its weight.

    ``rank``: place under strict priority, 0 first.
    """

    rate: float
    window: float
    latency: Ps
    weight: float = 1.0
    rank: int = 0


_ROUNDING = 1e-12
"""What is less than this part of the capacity is a rounding error, and nothing to give on."""

Share = Callable[[Sequence[Ask], float], list[float]]
"""(asks, capacity in B/s) -> rates in B/s: none above its ask, in all no more than capacity."""


def fill(demands: Sequence[float], weights: Sequence[float], capacity: float) -> list[float]:
    """``r_i = min(d_i, lambda w_i)`` with the lambda that uses the capacity up (or every demand, if they fit)."""
    if sum(demands) <= capacity:
        return list(demands)
    rates = [0.0] * len(demands)
    left, open_ = capacity, list(range(len(demands)))
    while open_:
        lam = left / sum(weights[i] for i in open_)
        full = [i for i in open_ if demands[i] <= lam * weights[i]]
        if not full:
            for i in open_:
                rates[i] = lam * weights[i]
            break
        for i in full:
            rates[i] = demands[i]
            left -= demands[i]
        open_ = [i for i in open_ if i not in full]
    return rates


def proportional(asks: Sequence[Ask], capacity: float) -> list[float]:
    """``r_i = min(d_i, W_i / (L_i + q))``: each keeps its window full while all wait the same ``q`` longer.

    What a first-come controller gives (default); with equal idle latencies it is by window. ``q`` is where the rates
    use the capacity up.
    """
    demands = [a.rate for a in asks]
    if sum(demands) <= capacity:
        return demands
    if capacity <= 0:
        return [0.0] * len(asks)
    if len({a.latency for a in asks}) == 1:
        return fill(demands, [a.window for a in asks], capacity)

    def rates(q: float) -> list[float]:
        return [min(a.rate, a.window * PS_PER_S / (a.latency + q)) for a in asks]

    low, high = 0.0, sum(a.window for a in asks) * PS_PER_S / capacity
    for _ in range(100):
        q = (low + high) / 2
        if q in (low, high):
            break
        low, high = (q, high) if sum(rates(q)) > capacity else (low, q)
    return rates(high)


def settle(
    alone: Sequence[Callable[[tuple[float, float]], float]], windows: Sequence[float], taken: tuple[float, float]
) -> list[float]:
    """What masters ask for when what each gets depends on what the others take: B/s, and bytes in flight.

    ``taken`` goes to others still. A few rounds: it moves by a percent in the second.
    """
    rates = [f(taken) for f in alone]
    for _ in range(4 if len(rates) > 1 else 0):
        rate, window = sum(rates) + taken[0], sum(windows) + taken[1]
        rates = [f((rate - r, window - w)) for f, r, w in zip(alone, rates, windows, strict=True)]
    return rates


def meeting(streams: Sequence[tuple[float, float, bool]]) -> tuple[float, float]:
    """(part of the lines written while reads and writes meet, part of the time they do), of (B/s, written, mixes).

    A stream reads or writes for long stretches, unless it ``mixes`` line by line. Two streams meet while one reads and
    the other writes; each pair counts by its bytes.
    """
    both = written = apart = 0.0
    for i, (r, w, mixes) in enumerate(streams):
        others = [*streams[:i], *streams[i + 1 :]] or [(0.0, 0.0, False)]
        for q, v, also in others:
            if (mixes and 0 < w < 1) or (also and 0 < v < 1):
                both += r + q
                written += r * w + q * v
            else:
                differ = w * (1 - v) + v * (1 - w) if q else 0.0
                both += differ * (r + q)
                written += (w * (1 - v) * r + v * (1 - w) * q) if q else 0.0
                apart += (1 - differ) * (r + q)
    return (written / both, both / (both + apart)) if both else (0.0, 0.0)


def equal(asks: Sequence[Ask], capacity: float) -> list[float]:
    """The same to each master, whatever its window: fair queueing."""
    return fill([a.rate for a in asks], [1.0] * len(asks), capacity)


def weighted(asks: Sequence[Ask], capacity: float) -> list[float]:
    """By the weights that the machine gives its masters: fair queueing."""
    return fill([a.rate for a in asks], [a.weight for a in asks], capacity)


def strict(asks: Sequence[Ask], capacity: float) -> list[float]:
    """First rank first: it gets what it asks for, the next what is left; those of one rank share by window."""
    out = [0.0] * len(asks)
    for rank in sorted({a.rank for a in asks}):
        same = [i for i, a in enumerate(asks) if a.rank == rank]
        for i, rate in zip(same, proportional([asks[i] for i in same], capacity), strict=True):
            out[i] = rate
        left = capacity - sum(out[i] for i in same)
        capacity = left if left > _ROUNDING * capacity else 0.0
    return out


_SHARES: Mapping[Arbitration, Share] = {
    "proportional": proportional,
    "equal": equal,
    "strict": strict,
    "weighted": weighted,
    "regulated": proportional,  # the limits are in what each asks for
}


@dataclass(frozen=True, slots=True)
class Rules:
    """A policy with what the machine file says to it, by name of master."""

    policy: Arbitration = "proportional"
    order: Sequence[str] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def share(self) -> Share:
        """The policy's function."""
        return _SHARES[self.policy]

    def rank(self, master: str) -> int:
        """Place under strict priority; those not named come last, together."""
        return self.order.index(master) if master in self.order else len(self.order)

    def weight(self, master: str) -> float:
        """Weight under fair queueing; 1 for those not named."""
        return self.weights.get(master, 1.0) if self.policy == "weighted" else 1.0

    def limit(self, master: str, port: float) -> float:
        """B/s of a master's port, or less if it is regulated."""
        return min(port, self.limits.get(master, port))


PROPORTIONAL = Rules()
"""Where a machine file says nothing."""
