"""Governors of thermal zones, after those of the Linux kernel: what they ask of cooling devices at each look.

Temperatures are compared in whole thousandths of a degree, as the kernel's are; a trip that was crossed stays crossed
until the temperature is its hysteresis below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bpusim.hardware.heat import TripSpec, ZoneSpec
from bpusim.thermal.devices import CoolingDevice
from bpusim.units import PS_PER_S, Ps

__all__ = ["BangBang", "Governor", "PowerAllocator", "PowerOf", "StepWise", "Trip", "UserSpace", "governor_of"]


@dataclass(slots=True)
class Trip:
    """A trip of a zone, and whether it is crossed."""

    spec: TripSpec
    crossed: bool = False

    def look(self, milli: int) -> bool:
        """Whether it is crossed at a temperature in thousandths of a degree."""
        limit = self.spec.temp - (self.spec.hyst if self.crossed else 0.0)
        self.crossed = milli >= round(limit * 1000)
        return self.crossed


@dataclass(frozen=True, slots=True)
class PowerOf:
    """What power_allocator knows of a device: watts since it last asked, and what they would be in each state."""

    now: Callable[[], float]
    at_state: Callable[[int], float]


class Governor(Protocol):
    """Acts on cooling devices at every look at a zone."""

    def look(self, milli: int, interval: Ps) -> None:
        """At a temperature in thousandths of a degree, ``interval`` after the last look; trips are up to date."""
        ...


class UserSpace:
    """Leaves everything to the user: trips only tell."""

    def look(self, milli: int, interval: Ps) -> None:
        """Do nothing."""


class StepWise:
    """One step more at each look while a trip is crossed and it gets hotter, one less while it is not and it cools."""

    def __init__(self, trips: Sequence[Trip], devices: Mapping[str, CoolingDevice]) -> None:
        self._bound = [(t, devices[name]) for t in trips for name in t.spec.devices]
        self._states = [0] * len(self._bound)
        self._last: int | None = None

    def look(self, milli: int, interval: Ps) -> None:  # noqa: ARG002 (it counts looks)
        """Step."""
        last = milli if self._last is None else self._last
        self._last = milli
        first = last == milli
        for k, (trip, device) in enumerate(self._bound):
            if trip.crossed:
                # A trip that is found crossed at the first look counts as rising.
                if milli > last or (first and not self._states[k]):
                    self._states[k] = min(self._states[k] + 1, device.max_state)
            elif milli < last:
                self._states[k] = max(self._states[k] - 1, 0)
            device.request((self, k), self._states[k])


class BangBang:
    """All or nothing: on when the trip is crossed, off when it is left."""

    def __init__(self, trips: Sequence[Trip], devices: Mapping[str, CoolingDevice]) -> None:
        self._bound = [(t, devices[name]) for t in trips for name in t.spec.devices]

    def look(self, milli: int, interval: Ps) -> None:  # noqa: ARG002
        """Switch."""
        for k, (trip, device) in enumerate(self._bound):
            device.request((self, k), device.max_state if trip.crossed else 0)


class PowerAllocator:
    """A controller of power: what its devices may draw follows the distance to the last passive trip (a PID), and is
    dealt out by what they ask for. With two passive trips it acts above the first only (switch-on), else always."""

    def __init__(
        self, spec: ZoneSpec, trips: Sequence[Trip], devices: Mapping[str, CoolingDevice], powers: Mapping[str, PowerOf]
    ) -> None:
        passive = [t for t in trips if t.spec.type == "passive"]
        self._on = passive[0] if len(passive) > 1 else None
        self._desired = passive[-1].spec.temp
        names = list(dict.fromkeys(n for t in passive for n in t.spec.devices))
        self._devices = [(devices[n], powers[n]) for n in names]
        sustainable = spec.sustainable or 0.0
        reach = self._desired - (passive[0].spec.temp if self._on is not None else 0.0)
        self._sustainable = sustainable
        self._k_po = spec.k_po if spec.k_po is not None else sustainable / reach
        self._k_pu = spec.k_pu if spec.k_pu is not None else 2 * sustainable / reach
        self._k_i = spec.k_i if spec.k_i is not None else self._k_pu / 10
        self._k_d, self._cutoff = spec.k_d or 0.0, spec.cutoff or 0.0
        self._sum, self._last = 0.0, 0.0

    def look(self, milli: int, interval: Ps) -> None:
        """Deal out."""
        if self._on is not None and not self._on.crossed:
            self._sum = self._last = 0.0
            for device, _ in self._devices:
                device.request(self, 0)
            return
        asked = [power.now() for _, power in self._devices]
        most = [power.at_state(0) for _, power in self._devices]
        budget = self._budget(self._desired - milli / 1000, interval, sum(most))
        total = sum(asked)
        granted = [budget * a / total if total else budget / len(asked) for a in asked]
        # What one cannot use goes to the others, by how much more they could.
        spare = sum(max(g - m, 0.0) for g, m in zip(granted, most, strict=True))
        granted = [min(g, m) for g, m in zip(granted, most, strict=True)]
        short = [m - g for g, m in zip(granted, most, strict=True)]
        if spare and sum(short):
            granted = [g + min(spare * s / sum(short), s) for g, s in zip(granted, short, strict=True)]
        for (device, power), watts in zip(self._devices, granted, strict=True):
            fits = (s for s in range(device.max_state + 1) if power.at_state(s) <= watts + 1e-9)
            device.request(self, next(fits, device.max_state))

    def _budget(self, error: float, interval: Ps, most: float) -> float:
        """W for all of them, ``most`` at most; ``error``: kelvin below the desired temperature."""
        proportional = (self._k_po if error < 0 else self._k_pu) * error
        integral = self._k_i * self._sum
        if error < self._cutoff:
            grown = integral + self._k_i * error
            if abs(grown) < most:
                integral = grown
                self._sum += error
        derivative = self._k_d * (error - self._last) / (interval / PS_PER_S) if interval else 0.0
        self._last = error
        return min(max(self._sustainable + proportional + integral + derivative, 0.0), most)


def governor_of(
    spec: ZoneSpec, trips: Sequence[Trip], devices: Mapping[str, CoolingDevice], powers: Mapping[str, PowerOf]
) -> Governor:
    """The governor that a zone asks for."""
    if spec.governor == "power_allocator":
        return PowerAllocator(spec, trips, devices, powers)
    if spec.governor == "bang_bang":
        return BangBang(trips, devices)
    return StepWise(trips, devices) if spec.governor == "step_wise" else UserSpace()
