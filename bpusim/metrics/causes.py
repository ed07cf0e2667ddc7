"""Where time goes: every interval of a token or frame has one cause, and the causes sum to the latency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add

from bpusim.units import Ps

__all__ = ["CAUSES", "Ledger", "apportion", "shares_ms"]

CAUSES = (
    "compute",
    "dram",
    "scratchpad",
    "contention",
    "throttling",
    "wakeup",
    "dispatch",
    "host",
    "fallback",
    "handover",
    "sync",
    "loading",
    "queueing",
    "batching",
    "camera",
    "pacing",
    "other",
)
"""What each means: :data:`bpusim.metrics.definitions.CAUSE_MEANINGS`."""


_AT = {cause: k for k, cause in enumerate(CAUSES)}


class Ledger:
    """Time by cause, in picoseconds, of one thing that takes time. ``path``: also in which order."""

    __slots__ = ("_spent", "cold", "path")

    def __init__(self, *, path: bool = False) -> None:
        self._spent: list[Ps] = [0] * len(CAUSES)
        self.path: list[tuple[str, Ps]] | None = [] if path else None
        """(cause, or ``call`` for all of a call on a core; duration), one behind the other."""
        self.cold = False
        """Whether it waited for weights that had never been loaded before."""

    @property
    def spent(self) -> dict[str, Ps]:
        """Time of every cause, none left out."""
        return dict(zip(CAUSES, self._spent, strict=True))

    @property
    def total(self) -> Ps:
        """All of it."""
        return sum(self._spent)

    def add(self, cause: str, duration: Ps) -> None:
        """Charge ``duration`` to ``cause``; a negative one is a defect of the caller."""
        if duration < 0:
            raise ValueError(f"{duration} ps of {cause}")
        self._spent[_AT[cause]] += duration
        if self.path is not None and duration:
            self.path.append((cause, duration))

    def add_call(self, charges: Sequence[Ps]) -> None:
        """Charge the first causes, those of a call on a core, in their order."""
        if min(charges) < 0:
            raise ValueError(f"{min(charges)} ps of {CAUSES[charges.index(min(charges))]}")
        self._spent[: len(charges)] = map(add, self._spent, charges)
        if self.path is not None:
            self.path.append(("call", sum(charges)))

    def clear(self) -> None:
        """Nothing has been spent."""
        self._spent = [0] * len(CAUSES)

    def close(self, total: Ps) -> None:
        """What no cause has claimed of ``total`` becomes ``other``."""
        self.add("other", total - sum(self._spent))

    def take(self, other: Ledger) -> None:
        """Add all of another ledger."""
        self._spent = list(map(add, self._spent, other._spent))
        if self.path is not None:
            self.path.extend(other.path if other.path is not None else [(c, n) for c, n in other.spent.items() if n])
        self.cold = self.cold or other.cold


def apportion(parts: Mapping[str, int], step: int) -> dict[str, int]:
    """How many ``step`` each part comes to, such that they sum to what the whole comes to, rounded.

    Each is rounded down and the steps that are left go to the largest remainders. Parts may be negative.
    """
    down = {name: n // step for name, n in parts.items()}
    left = (2 * sum(parts.values()) + step) // (2 * step) - sum(down.values())
    for name in sorted(parts, key=lambda n: -(parts[n] % step))[:left]:
        down[name] += 1
    return down


def shares_ms(totals: Mapping[str, Ps], count: int) -> tuple[float, dict[str, float]]:
    """(mean, mean by cause) in ms over ``count``, to the picosecond: the printed shares sum to the printed mean."""
    if count <= 0:
        return 0.0, dict.fromkeys(totals, 0.0)
    shares = apportion(totals, count)
    return sum(shares.values()) / 1e9, {c: t / 1e9 for c, t in shares.items()}
