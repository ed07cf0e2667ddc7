"""Cooling devices and clock governors: who picks the operating point of a clock, and the level of the fan.

As in Linux, a cooling device has states from 0 (no cooling) to ``max_state``; of what several trips ask, it takes the
most. A clock runs at the slower of what its governor picks and what cooling allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import simpy

from bpusim.alarm import Routine, alarm
from bpusim.hardware.heat import ClockSpec
from bpusim.thermal.clock import ClockDomain
from bpusim.units import PS_PER_S, Ps

__all__ = ["ClockControl", "CoolingDevice", "Fan", "Group"]


class CoolingDevice(Protocol):
    """What governors of thermal zones act on."""

    @property
    def name(self) -> str:
        """As in the machine file."""
        ...

    @property
    def max_state(self) -> int:
        """Most cooling."""
        ...

    @property
    def state(self) -> int:
        """Present state."""
        ...

    def request(self, who: object, state: int) -> None:
        """``who`` asks for a state; the highest of all requests counts."""
        ...


class ClockControl:
    """Picks the operating point of one clock: its governor, and cooling above it. A :class:`CoolingDevice`.

    ``load``: how long the unit has been busy so far, in seconds of full occupation.
    """

    def __init__(
        self,
        env: simpy.Environment,
        clock: ClockDomain,
        spec: ClockSpec | None,
        load: Callable[[], float] = lambda: 0.0,
        routine: Routine | None = None,
    ) -> None:
        self.env = env
        self._routine = routine or Routine(env)
        self.clock = clock
        self.name = clock.name
        self.max_state = len(clock.points) - 1
        self.throttled: Ps = 0
        """Time at a slower point than the governor's, because of cooling, up to the last change."""
        self._spec = spec
        self._load, self._seen = load, 0.0
        self._requests: dict[object, int] = {}
        self._picked = self._first()
        self._point = self._picked
        """The point that was chosen last: the clock may be a transition behind."""
        self._slowed = False
        """Whether the clock runs at a point that cooling asked for."""
        self._since: Ps = 0
        self._coming: object = None
        if self._point:
            clock.set_hz(clock.points[self._point].hz)
        if spec is not None and spec.governor == "simple_ondemand":
            self._poll(spec)

    @property
    def state(self) -> int:
        """What cooling asks for: steps below the fastest point."""
        return max(self._requests.values(), default=0)

    def request(self, who: object, state: int) -> None:
        """``who`` asks for a state; the highest of all requests counts."""
        self._requests[who] = state
        self._settle()

    def throttled_by(self, now: Ps) -> Ps:
        """Time so far at a slower point than the governor's, because of cooling."""
        return self.throttled + (now - self._since if self._slowed else 0)

    def _note(self) -> None:
        """From now on it is cooling that slows the clock, or not."""
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        self.throttled = self.throttled_by(now)
        self._since = now
        self._slowed = self._point > self._picked

    def _first(self) -> int:
        spec, last = self._spec, self.max_state
        if spec is None or spec.governor == "performance":
            return 0
        if spec.governor == "userspace":
            return next((k for k, p in enumerate(self.clock.points) if p.hz <= (spec.fixed or 0)), last)
        return last  # powersave; simple_ondemand starts from idle

    def _settle(self) -> None:
        """Go to the point that is asked for now, a transition later."""
        wanted = max(self._picked, self.state)
        if wanted == self._point:
            if self.clock.hz == self.clock.points[wanted].hz:
                self._note()
            return
        self._point = wanted
        delay = self._spec.transition if self._spec is not None else 0
        if delay:
            self._coming = alarm(self.env, delay, self._arrived)
        else:
            self._apply()

    def _arrived(self, coming: object) -> None:
        if coming is self._coming:  # else another choice has overtaken it
            self._apply()

    def _apply(self) -> None:
        self._note()
        hz = self.clock.points[self._point].hz
        if hz != self.clock.hz:
            self.clock.set_hz(hz)

    def _poll(self, spec: ClockSpec) -> None:
        self._routine.alarm(spec.polling, lambda: self._look(spec))

    def _look(self, spec: ClockSpec) -> None:
        """devfreq's simple_ondemand: by the load since the last look."""
        total = self._load()
        busy, self._seen = (total - self._seen) / (spec.polling / PS_PER_S), total
        points, now = self.clock.points, self.clock
        if busy * 100 > spec.up:
            self._picked = 0
        elif busy * 100 <= spec.up - spec.down:
            needed = busy * now.hz * 100 / (spec.up - spec.down // 2)
            self._picked = max(k for k, p in enumerate(points) if p.hz >= needed or k == 0)
        self._settle()
        self._poll(spec)


class Group:
    """Several devices of one kind as one: all cores. A :class:`CoolingDevice`."""

    def __init__(self, name: str, members: Sequence[CoolingDevice]) -> None:
        self.name = name
        self.members = tuple(members)
        self.max_state = max(m.max_state for m in members)

    @property
    def state(self) -> int:
        """The highest of its members'."""
        return max(m.state for m in self.members)

    def request(self, who: object, state: int) -> None:
        """Ask all of them."""
        for m in self.members:
            m.request(who, min(state, m.max_state))


class Fan:
    """A fan: each state is a level. A :class:`CoolingDevice`; ``turn`` makes a level take effect."""

    def __init__(self, levels: int, turn: Callable[[int], None]) -> None:
        self.name = "fan"
        self.max_state = levels
        self._requests: dict[object, int] = {}
        self._turn = turn
        self._level = 0

    @property
    def state(self) -> int:
        """Present level."""
        return self._level

    def request(self, who: object, state: int) -> None:
        """``who`` asks for a level; the highest of all requests counts."""
        self._requests[who] = state
        level = max(self._requests.values())
        if level != self._level:
            self._level = level
            self._turn(level)
