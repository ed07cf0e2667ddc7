"""Clock domains: a frequency and a voltage, and who wants to know when they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bpusim.hardware.heat import ClockSpec
from bpusim.units import PS_PER_S, Ps

__all__ = ["ClockDomain", "OperatingPoint", "points_of"]


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A frequency in Hz, as a part of the fastest, and the voltage as a part of the highest."""

    hz: int
    speed: float
    volts: float


def points_of(spec: ClockSpec | None, hz: int) -> tuple[OperatingPoint, ...]:
    """The points of a unit made for ``hz``: that, and those of ``spec`` below it.

    Where ``hz`` is no point itself, its voltage lies on the line between those beside it; parts are of the first point
    of ``spec``.
    """
    if spec is None:
        return (OperatingPoint(hz, 1.0, 1.0),)
    top = spec.points[0]
    curve = [(p.clock, p.voltage / top.voltage if p.voltage and top.voltage else 1.0) for p in spec.points]
    if hz != top.clock:
        curve = [(hz, _voltage(curve, hz)), *((f, v) for f, v in curve if f < hz)]
    return tuple(OperatingPoint(f, f / top.clock, v) for f, v in curve)


def _voltage(curve: Sequence[tuple[int, float]], hz: int) -> float:
    """On the line through the two points beside ``hz``; beyond the ends, the line through the last two."""
    if len(curve) == 1:
        return curve[0][1]
    k = next((k for k in range(1, len(curve)) if curve[k][0] <= hz), len(curve) - 1)
    (f1, v1), (f0, v0) = curve[k - 1], curve[k]
    line = v0 + (v1 - v0) * (hz - f0) / (f1 - f0)
    return line if hz > f0 else v0  # below the lowest point, its voltage is kept


class ClockDomain:
    """One clock: it runs at one of its ``points``, the first being the fastest. ``nominal`` is what it was made for."""

    __slots__ = ("_listeners", "_point", "before_change", "name", "nominal", "points")

    def __init__(self, name: str, hz: int, points: Sequence[OperatingPoint] = ()) -> None:
        self.name = name
        self.points = tuple(points) or (OperatingPoint(hz, 1.0, 1.0),)
        self.nominal = hz
        self.before_change: Callable[[], None] | None = None
        """Called ahead of the listeners, while the clock is still the old one."""
        self._point = self.points[0]
        self._listeners: list[Callable[[int], None]] = []

    @property
    def hz(self) -> int:
        """Present frequency."""
        return self._point.hz

    @property
    def speed(self) -> float:
        """Present frequency as a part of that of the fastest point."""
        return self._point.speed

    @property
    def volts(self) -> float:
        """Present voltage as a part of that of the fastest point."""
        return self._point.volts

    def set_hz(self, hz: int) -> None:
        """Run at ``hz`` from now on and tell the listeners."""
        if hz <= 0:
            raise ValueError(f"clock {self.name} cannot run at {hz} Hz")
        known = next((p for p in self.points if p.hz == hz), None)
        self._run_at(known or OperatingPoint(hz, hz / self.nominal, self._point.volts))

    def _run_at(self, point: OperatingPoint) -> None:
        if self.before_change is not None:
            self.before_change()
        self._point = point
        for tell in self._listeners:
            tell(point.hz)

    def cycles_to_ps(self, cycles: int) -> Ps:
        """Duration of ``cycles`` now, to the nearest picosecond."""
        hz = self._point.hz
        return (2 * cycles * PS_PER_S + hz) // (2 * hz)

    def on_change(self, callback: Callable[[int], None]) -> None:
        """Call ``callback(new_hz)`` at every change."""
        self._listeners.append(callback)
