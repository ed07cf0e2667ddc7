"""Who gets how much when masters ask for more than the channel gives: one function per policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bpusim.errors import HardwareError, did_you_mean

__all__ = ["Share", "arbiter", "equal", "proportional", "strict"]

Share = Callable[[Sequence[float], Sequence[float], float], list[float]]
"""(demands in B/s, weights, capacity in B/s) -> rates in B/s: none above its demand, in all no more than capacity."""


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


def proportional(demands: Sequence[float], weights: Sequence[float], capacity: float) -> list[float]:
    """By outstanding window: what a first-come controller gives masters that each keep a window full (default)."""
    return fill(demands, weights, capacity)


def equal(demands: Sequence[float], weights: Sequence[float], capacity: float) -> list[float]:
    """The same to each master, whatever its window: round robin."""
    return fill(demands, [1.0] * len(weights), capacity)


def strict(demands: Sequence[float], weights: Sequence[float], capacity: float) -> list[float]:  # noqa: ARG001
    """First master first: it gets its demand, the next what is left. Masters come in the order given."""
    rates = []
    for d in demands:
        rates.append(min(d, capacity))
        capacity -= rates[-1]
    return rates


def arbiter(name: str) -> Share:
    """The policy called ``name``."""
    policies: dict[str, Share] = {"proportional": proportional, "equal": equal, "strict": strict}
    if name not in policies:
        raise HardwareError(f"unknown arbitration '{name}'", do=did_you_mean(name, list(policies)))
    return policies[name]
