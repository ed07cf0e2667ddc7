"""What became of the heat: temperatures, energies, time above trips, and what slow clocks cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bpusim.ports import HeatSample
from bpusim.units import PS_PER_S, Ps

__all__ = ["HeatStats", "TripStats"]


@dataclass(frozen=True, slots=True)
class TripStats:
    """A trip of a zone: how long it was crossed, and how often."""

    zone: str
    type: str
    temp_degc: float
    above: Ps
    crossings: int
    first: Ps | None
    """When it was crossed first; None if never."""


@dataclass(frozen=True, slots=True)
class HeatStats:
    """The heat of a run. Energies are in J by component; ``tokens_lost``: an estimate of
    how many more tokens there would have been if no clock had been slow, each token's throttling taken back.
    ``time_constants_s``: of the heat path at the end, the slowest first. ``shutdown``: why the run ended early, if it
    did."""

    ambient_degc: float
    peak_degc: Mapping[str, float]
    """The highest temperature of each node at any look: a zone's poll, a sample, a change of a clock."""
    end_degc: Mapping[str, float]
    energy_j: Mapping[str, float]
    elapsed: Ps
    tokens: int
    frames: int
    tokens_lost: float
    throttled: Mapping[str, Ps]
    trips: Sequence[TripStats]
    samples: Sequence[HeatSample] = field(repr=False)
    events: Sequence[tuple[Ps, str]] = field(repr=False)
    time_constants_s: Sequence[float] = ()
    shutdown: str = ""

    @property
    def energy(self) -> float:
        """J of the whole board."""
        return sum(self.energy_j.values())

    @property
    def mean_w(self) -> float:
        """W of the whole board over the run."""
        return self.energy * PS_PER_S / self.elapsed if self.elapsed else 0.0

    @property
    def peak_w(self) -> float:
        """The highest mean of a sample in W."""
        return max((sum(s.watts.values()) for s in self.samples), default=0.0)

    def pace(self) -> dict[str, tuple[float, float]]:
        """(initial, sustained) mean time in ps by stream, of decode tokens or frames that ended in the first and in the
        last tenth of the samples; without streams that had none there, and empty for fewer than twenty samples."""
        n = len(self.samples) // 10
        if n < 2:
            return {}
        found: dict[str, tuple[float, float]] = {}
        for name in self.samples[0].done:
            ends = [self.samples[k].done[name] for k in (0, n, -1 - n, -1)]
            counts = [b[0] - a[0] for a, b in pairwise(ends)]
            times = [b[1] - a[1] for a, b in pairwise(ends)]
            if counts[0] and counts[2]:
                found[name] = times[0] / counts[0], times[2] / counts[2]
        return found

    @property
    def token_j(self) -> float | None:
        """J of the whole board, whatever else it did, for each token; None if there are none."""
        return self.energy / self.tokens if self.tokens else None

    @property
    def frame_j(self) -> float | None:
        """The same for each frame."""
        return self.energy / self.frames if self.frames else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        seconds = self.elapsed / PS_PER_S
        return {
            "ambient_degc": self.ambient_degc,
            "peak_degc": dict(self.peak_degc),
            "end_degc": dict(self.end_degc),
            "time_constants_s": list(self.time_constants_s),
            "mean_power_w": self.mean_w,
            "peak_power_w": self.peak_w,
            "energy_j": self.energy,
            "energy_per_token_j": self.token_j,
            "energy_per_frame_j": self.frame_j,
            "mean_power_by_component_w": {n: j / seconds if seconds else 0.0 for n, j in self.energy_j.items()},
            "throttled_s": {n: t / PS_PER_S for n, t in self.throttled.items()},
            "tokens_lost": self.tokens_lost,
            "pace_ms": {n: {"initial": a / 1e9, "sustained": b / 1e9} for n, (a, b) in self.pace().items()},
            "trips": [
                {
                    "zone": t.zone,
                    "type": t.type,
                    "temp_degc": t.temp_degc,
                    "above_s": t.above / PS_PER_S,
                    "crossings": t.crossings,
                    "first_s": t.first / PS_PER_S if t.first is not None else None,
                }
                for t in self.trips
            ],
            "events": [{"at_s": at / PS_PER_S, "what": what} for at, what in self.events],
            "shutdown": self.shutdown or None,
        }
