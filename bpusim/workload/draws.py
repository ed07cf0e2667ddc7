"""Random draws of workloads: each stream has generators of its own, so that nothing that happens in a run, and no other
stream, changes what arrives (common random numbers)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from math import exp, log
from typing import NamedTuple

import numpy as np

from bpusim.units import PS_PER_S, Ps

__all__ = ["Ask", "Draw", "asks", "every", "fixed", "gamma", "generator", "listed", "lognormal", "poisson"]

Draw = Callable[[], int]
"""Gives the next one of a series of numbers."""


class Ask(NamedTuple):
    """A request: tokens of its prompt and of its answer, and how long after the one before it comes (a closed loop:
    after that one's last token; an open one: after its arrival)."""

    prompt: int
    output: int
    gap: Ps


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """The generator of whatever has these names, the same on every machine."""
    digest = hashlib.blake2b("\0".join(map(str, names)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *np.frombuffer(digest, dtype="<u4")])))


def fixed(value: int) -> Draw:
    """Always the same."""
    return lambda: value


def listed(values: Sequence[int]) -> Draw:
    """One after the other, from the start again at the end."""
    at = count()
    return lambda: values[next(at) % len(values)]


def lognormal(median: float, sigma: float, low: int, high: int, rng: np.random.Generator) -> Draw:
    """Whole numbers about exp(N(ln median, sigma)), those outside ``low`` to ``high`` at the bounds."""
    return lambda: min(max(round(exp(rng.normal(log(median), sigma))), low), high)


def every(interval: Ps) -> Draw:
    """A fixed interval, from the start on."""
    at = count()
    return lambda: interval if next(at) else 0


def poisson(rate: float, rng: np.random.Generator) -> Draw:
    """Intervals of a Poisson process of ``rate`` Hz."""
    return lambda: round(rng.exponential(PS_PER_S / rate))


def gamma(rate: float, cv: float, rng: np.random.Generator) -> Draw:
    """Intervals of mean 1/``rate`` with a gamma distribution: ``cv`` is their standard deviation over their mean, 1 for
    a Poisson process; more comes in bursts."""
    shape = 1 / cv**2
    return lambda: round(rng.gamma(shape, PS_PER_S / rate / shape))


@dataclass(frozen=True, slots=True)
class _Series:
    prompt: Draw
    output: Draw
    gap: Draw

    def __iter__(self) -> Iterator[Ask]:
        while True:
            yield Ask(self.prompt(), self.output(), self.gap())


def asks(prompt: Draw, output: Draw, gap: Draw, requests: int | None) -> Iterator[Ask]:
    """So many requests (None: endless); nothing comes before the first."""
    return islice(iter(_Series(prompt, output, gap)), requests)
