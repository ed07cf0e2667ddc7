"""Times of which a run sees any number, in bounded memory: exact while they are few, in fine bins after that."""

from __future__ import annotations

from array import array

from bpusim.units import Ps

__all__ = ["Samples"]

_KEPT = 1 << 14
_BITS = 14


class Samples:
    """Durations in picoseconds. Number and sum are exact; percentiles are, up to 16,384 of them.

    What comes beyond that is counted in bins of fourteen significant bits: a percentile is then off by 0.006 % at most,
    and never below the least or above the most.
    """

    __slots__ = ("_bins", "_folded", "_kept", "_least", "_most", "_sum")

    def __init__(self) -> None:
        self._kept = array("q")
        self._bins: dict[int, int] = {}
        self._folded = 0
        self._sum = 0
        self._least, self._most = 1 << 62, 0

    def append(self, duration: Ps) -> None:
        """Count one more."""
        self._kept.append(duration)
        if len(self._kept) >= _KEPT:
            self._fold()

    def __len__(self) -> int:
        return self._folded + len(self._kept)

    @property
    def total(self) -> Ps:
        """The sum of all."""
        return self._sum + sum(self._kept)

    @property
    def exact(self) -> bool:
        """Whether each is still known."""
        return not self._folded

    def known(self) -> list[Ps]:
        """Each in the order they came, while all are known."""
        if not self.exact:
            raise ValueError(f"{len(self)} durations are kept in bins")
        return self._kept.tolist()

    def percentile_ms(self, q: float) -> float | None:
        """Percentile ``q`` in ms, linear between samples as numpy has it; None of nothing."""
        n = len(self)
        if not n:
            return None
        at = (n - 1) * q / 100
        low = int(at)
        if self.exact:
            ordered = sorted(self._kept)
            below, above = ordered[low], ordered[min(low + 1, n - 1)]
        else:
            self._fold()
            below, above = self._ranked(low), self._ranked(min(low + 1, n - 1))
            below, above = (min(max(v, self._least), self._most) for v in (below, above))
        return (below + (above - below) * (at - low)) / 1e9

    def _fold(self) -> None:
        if not self._kept:
            return
        self._least, self._most = min(self._least, *self._kept), max(self._most, *self._kept)
        bins = self._bins
        for v in self._kept:
            shift = max(v.bit_length() - _BITS, 0)
            middle = (v >> shift << shift) + (1 << shift >> 1)
            bins[middle] = bins.get(middle, 0) + 1
        self._folded += len(self._kept)
        self._sum += sum(self._kept)
        del self._kept[:]

    def _ranked(self, rank: int) -> Ps:
        """The middle of the bin of number ``rank`` in rising order."""
        seen = 0
        for value in sorted(self._bins):
            seen += self._bins[value]
            if seen > rank:
                return value
        raise IndexError(rank)
