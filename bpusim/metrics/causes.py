"""Where time goes: every interval of a token or frame has one cause, and the causes sum to the latency."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bpusim.units import Ps

__all__ = ["CAUSES", "Ledger", "shares_ms"]

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
    "queueing",
    "camera",
    "other",
)
"""``compute``: array and vector unit at full clock. ``dram``: waiting for an unloaded channel. ``scratchpad``: for room
in it. ``contention``: for other masters of the channel. ``throttling``: what clocks below those the machine was made
for cost, whoever chose them. ``wakeup``: of cores that had fallen asleep. ``dispatch``: submitting calls, interrupts,
op overhead. ``host``: tokenising, sampling, logging, allocation. ``fallback``: CPU ops and their crossings.
``handover``: from core to core in a pipeline split. ``queueing``: for a busy core or CPU. ``camera``: stages outside
the machine."""


_NONE = dict.fromkeys(CAUSES, 0)


class Ledger:
    """Time by cause, in picoseconds, of one thing that takes time."""

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent: dict[str, Ps] = {}

    @property
    def spent(self) -> dict[str, Ps]:
        """Time of every cause, none left out."""
        return {cause: self._spent.get(cause, 0) for cause in CAUSES}

    def add(self, cause: str, duration: Ps) -> None:
        """Charge ``duration`` to ``cause``; a negative one is a defect of the caller."""
        if duration < 0:
            raise ValueError(f"{duration} ps of {cause}")
        self._spent[cause] = self._spent.get(cause, _NONE[cause]) + duration

    def add_all(self, charges: Iterable[tuple[str, Ps]]) -> None:
        """Charge each (cause, duration)."""
        spent = self._spent
        for cause, duration in charges:
            if duration < 0:
                raise ValueError(f"{duration} ps of {cause}")
            spent[cause] = spent.get(cause, _NONE[cause]) + duration

    def close(self, total: Ps) -> None:
        """What no cause has claimed of ``total`` becomes ``other``."""
        self.add("other", total - sum(self._spent.values()))

    def take(self, other: Ledger) -> None:
        """Add all of another ledger."""
        mine = self._spent
        for cause, duration in other._spent.items():
            mine[cause] = mine.get(cause, 0) + duration


def shares_ms(totals: Mapping[str, Ps], count: int) -> tuple[float, dict[str, float]]:
    """(mean, mean by cause) in ms over ``count``, to the picosecond: the printed shares sum to the printed mean.

    Each share is rounded down and the picoseconds that are left go to the largest remainders.
    """
    if count <= 0:
        return 0.0, dict.fromkeys(totals, 0.0)
    mean = (2 * sum(totals.values()) + count) // (2 * count)
    floors = {c: t // count for c, t in totals.items()}
    left = mean - sum(floors.values())
    for cause in sorted(totals, key=lambda c: -(totals[c] % count)):
        if left <= 0:
            break
        floors[cause] += 1
        left -= 1
    if left < 0:  # the mean was rounded down below the floors' sum: cannot happen, floors sum to at most the mean
        raise ValueError("shares exceed their mean")
    return mean / 1e9, {c: f / 1e9 for c, f in floors.items()}
