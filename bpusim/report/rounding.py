"""Times as they are printed: rounded to a step by their size, in ms."""

from __future__ import annotations

from bpusim.units import Ps

__all__ = ["in_ms", "ms_text", "rounded", "step_of"]


def step_of(mean: Ps) -> Ps:
    """What times are rounded to: 0.1 ms of 10 ms and more, finer below."""
    return 10**8 if mean >= 10**10 else 10**7 if mean >= 10**9 else 10**6


def in_ms(steps: int, step: Ps, sign: str = "") -> str:
    """A number of steps (a power of ten of them a ms) in ms; ``sign`` as in a format."""
    return f"{steps * step / 1e9:{sign}.{10 - len(str(step))}f}"


def rounded(t: Ps, step: Ps) -> int:
    """The nearest number of steps."""
    return (2 * t + step) // (2 * step)


def ms_text(t: Ps) -> str:
    """A time by itself."""
    step = step_of(t)
    return in_ms(rounded(t, step), step)
