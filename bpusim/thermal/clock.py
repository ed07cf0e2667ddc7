"""Clock domains: a frequency, and who wants to know when it changes."""

from __future__ import annotations

from collections.abc import Callable

from bpusim.units import PS_PER_S, Ps

__all__ = ["ClockDomain"]


class ClockDomain:
    """One clock. Nothing drives it yet but its maker: governors and operating points come with the heat path."""

    __slots__ = ("_hz", "_listeners", "name")

    def __init__(self, name: str, hz: int) -> None:
        self.name = name
        self._hz = hz
        self._listeners: list[Callable[[int], None]] = []

    @property
    def hz(self) -> int:
        """Present frequency."""
        return self._hz

    def set_hz(self, hz: int) -> None:
        """Run at ``hz`` from now on and tell the listeners."""
        if hz <= 0:
            raise ValueError(f"clock {self.name} cannot run at {hz} Hz")
        self._hz = hz
        for tell in self._listeners:
            tell(hz)

    def cycles_to_ps(self, cycles: int) -> Ps:
        """Duration of ``cycles`` now, to the nearest picosecond."""
        return (2 * cycles * PS_PER_S + self._hz) // (2 * self._hz)

    def on_change(self, callback: Callable[[int], None]) -> None:
        """Call ``callback(new_hz)`` at every change."""
        self._listeners.append(callback)
