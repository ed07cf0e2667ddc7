"""What the flow model knows of a channel: a table fitted to the bank model, shipped as data with its provenance.

A table (``tables/*.json``) is in clocks and fractions of the peak, so it holds for any width and number of channels. It
is made by ``bpusim dram calibrate``; one that was made from other timing data is refused.

**A reader alone.** A master that keeps W lines in flight at latency L, with S clocks between lines at the port's or the
channel's own limit, gets ``min(W / L, 1 / S)`` but for refresh, which closes the channel for B clocks of every T.
Between two rounds of a window-bound reader the channel idles for a gap ``g = L - W S``; in it a refresh goes unnoticed.
On average a refresh costs ``B^2 / 2g`` clocks if it fits into the gap, and ``B - g / 2`` if it does not. A port-bound
reader catches up with what its spare window has sent meanwhile.

**Beside others.** Row conflicts and their turn on the bus lengthen L by what the others' share of the peak says
(``beside``). What readers ask for under that latency is met if the channel gives as much; what they get if not is a
matter of arbitration.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from bpusim.dram.names import TIMINGS, devices_of, stem_of
from bpusim.errors import HardwareError, Place, did_you_mean
from bpusim.units import PS_PER_S, Ps

__all__ = ["FlowTable", "digest", "flow_table", "table_path"]

_FOLDER = Path(__file__).with_name("tables")


@dataclass(frozen=True, slots=True)
class FlowTable:
    """A channel to the flow model. ``clock``: of commands, in ps; ``line`` is one burst of all its devices.

    ``queue``: reads the controller holds. ``latency``: clocks of a sequential reader's line on an idle channel, by
    lines in flight. ``beside``: clocks more of it, by the part of the peak that others take. ``light``: clocks of a
    lone random line on an idle channel, refresh included. ``blocked``, ``interval``: clocks a refresh closes the
    channel, and from one to the next. ``busy``: clocks from line to line at best. ``efficiency``: part of
    the peak by number of streams (rows) and part of the lines that are written, in no order; ``posted``: part of
    the peak that a reader and an open-loop writer reach, by the writer's part of the peak. ``errors``: deviation from
    the bank model in percent by class of traffic, mean and most.
    """

    name: str
    mapping: str
    clock: float
    line: int
    channels: int
    peak: int
    capacity_bytes: int
    queue: int
    latency: tuple[tuple[float, ...], tuple[float, ...]]
    beside: tuple[tuple[float, ...], tuple[float, ...]]
    light: float
    blocked: float
    interval: float
    busy: float
    streams: tuple[float, ...]
    writes: tuple[float, ...]
    efficiency: tuple[tuple[float, ...], ...]
    posted: tuple[tuple[float, ...], tuple[float, ...]]
    errors: Mapping[str, tuple[float, float]]

    def capacity(self, streams: int, written: float = 0.0, part: float = 1.0, posted: float = 0.0) -> float:
        """B/s that ``streams`` masters get together when they ask for more.

        For ``part`` (0 to 1) of the time reads and writes are mixed, ``written`` (0 to 1) of the lines being writes;
        for the rest all move the same way. ``posted`` B/s are writes of open-loop masters.
        """
        one_way, mixed = (
            _between(self.streams, [_between(self.writes, row, w) for row in self.efficiency], streams)
            for w in (0.0, written)
        )
        beside = _between(*self.posted, posted / self.peak) / self.posted[1][0]
        return self.peak * ((1 - part) * one_way + part * mixed) * beside

    @property
    def burst_bytes(self) -> int:
        """Bytes of an open-loop master that can be ahead of others: as much as the controller holds."""
        return self.queue * self.line * self.channels

    def idle_latency(self, window: int) -> Ps:
        """From a sequential reader's request to its data, with nobody else there; ``window`` bytes in flight."""
        return round(self._lines_latency(self._lines(window)) * self.clock)

    @property
    def light_latency(self) -> Ps:
        """From a lone random line's request to its data on an idle channel, refresh included."""
        return round(self.light * self.clock)

    def alone(self, window: int, path: Ps, limit: float = math.inf, others: tuple[float, float] = (0.0, 0.0)) -> float:
        """B/s of a sequential reader (see the module docstring).

        ``window`` bytes in flight over a ``path`` of its own, at most ``limit`` B/s. ``others``: B/s that go to other
        masters meanwhile, and the bytes they have in flight, which are all that can be ahead of it.
        """
        lines = self._lines(window)
        latency = path / self.clock + self._lines_latency(lines)
        if others[0] > 0:
            latency += min(_between(*self.beside, others[0] / self.peak), self._lines(others[1]) * self.busy)
        own = self.line * self.channels * PS_PER_S / (limit * self.clock)
        step = max(self.busy, own)
        gap = latency - lines * step
        if gap >= 0:
            lost = self.blocked - gap / 2 if self.blocked > gap else self.blocked**2 / (2 * gap)
        elif own > self.busy:
            lost = max(self.blocked - (lines - latency / step) * step, 0.0)
        else:
            lost = self.blocked
        per_clock = min(lines / latency, 1 / step) * (1 - lost / self.interval)
        per_clock = min(per_clock, (1 - self.blocked / self.interval) / self.busy)  # catching up takes the bus too
        return min(per_clock * self.line * self.channels * PS_PER_S / self.clock, limit)

    def at_clock(self, part: float) -> FlowTable:
        """The same channel at ``part`` of its clock: rows take as many nanoseconds as ever, bursts as many clocks, and
        so does waiting for others and for the bus to turn."""
        counts, clocks = self.latency
        burst = self.busy
        return replace(
            self,
            clock=self.clock / part,
            peak=round(self.peak * part),
            latency=(counts, tuple(burst + (c - burst) * part for c in clocks)),
            light=burst + (self.light - burst) * part,
            blocked=self.blocked * part,
            interval=self.interval * part,
        )

    def _lines(self, window: float) -> float:
        """Lines in flight at each channel."""
        return max(window / (self.line * self.channels), 1.0)

    def _lines_latency(self, lines: float) -> float:
        counts, clocks = self.latency
        return _between(counts, clocks, lines)


def _between(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Linear between the points, constant beyond them."""
    i = bisect_right(xs, x)
    if i == 0:
        return ys[0]
    if i == len(xs):
        return ys[-1]
    part = (x - xs[i - 1]) / (xs[i] - xs[i - 1])
    return ys[i - 1] + part * (ys[i] - ys[i - 1])


def table_path(stem: str) -> Path:
    """Where the table of a timing set lies."""
    return _FOLDER / f"{stem}.json"


def digest(stem: str) -> str:
    """What a table must be made from: a digest of the timing set's file."""
    return hashlib.sha256((TIMINGS / f"{stem}.yaml").read_bytes()).hexdigest()[:16]


@cache
def _read(stem: str) -> dict[str, Any]:
    path = table_path(stem)
    if not path.exists():
        raise HardwareError(f"no table of {stem} for the flow model", do=f"run: bpusim dram calibrate {stem}")
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if data["timing"] != digest(stem):
        raise HardwareError(
            f"the flow model's table of {stem} was made from other timing data", do=f"run: bpusim dram calibrate {stem}"
        )
    return data


def flow_table(
    name: str,
    channels: int = 1,
    mapping: str | None = None,
    place: Place | None = None,
    mapping_place: Place | None = None,
    data: Mapping[str, Any] | None = None,
) -> FlowTable:
    """The table of a channel such as ``LPDDR4X-3200x64``; :class:`HardwareError` says what there is.

    ``data`` takes the place of the shipped table.
    """
    stem, width = stem_of(name, place)
    data = data or _read(stem)
    devices = devices_of(name, stem, width, data["width"], place)
    fitted = data["mappings"]
    asked = next(iter(fitted)) if mapping is None else mapping
    if asked not in fitted:
        raise HardwareError(
            f"the flow model has no table of {stem} with the address mapping '{asked}'",
            place=mapping_place or place,
            do=f"{did_you_mean(asked, list(fitted))}; or run it with engine.dram: bank",
        )
    row = fitted[asked]
    line = data["line"] * devices
    return FlowTable(
        name=name,
        mapping=asked,
        clock=data["clock_ps"],
        line=line,
        channels=channels,
        peak=round(line * PS_PER_S / (data["burst"] * data["clock_ps"])) * channels,
        capacity_bytes=data["capacity"] * devices * channels,
        queue=data["queue"],
        latency=(tuple(map(float, row["latency"])), tuple(row["latency"].values())),
        beside=(tuple(map(float, row["beside"])), tuple(row["beside"].values())),
        light=row["light"],
        blocked=row["blocked"],
        interval=data["interval"],
        busy=row["busy"],
        streams=tuple(data["streams"]),
        writes=tuple(data["writes"]),
        efficiency=tuple(map(tuple, row["efficiency"])),
        posted=(tuple(map(float, row["posted"])), tuple(row["posted"].values())),
        errors={kind: (mean, most) for kind, (mean, most) in row["errors"].items()},
    )
