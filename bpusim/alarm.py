"""The cheapest event there is: a callback after a delay, for components that are no processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy

from bpusim.units import Ps

__all__ = ["Later", "Routine", "alarm"]


class _Alarm:
    """What SimPy's loop needs of an event that nobody waits for and that cannot fail."""

    __slots__ = ("callbacks",)
    _ok = True

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self.callbacks: list[Callable[[Any], None]] | None = [callback]


def alarm(env: simpy.Environment, delay: Ps, callback: Callable[[Any], None]) -> object:
    """Call ``callback(alarm)`` in ``delay``; returns the alarm, to tell one from another."""
    event = _Alarm(callback)
    env.schedule(event, delay=delay)  # type: ignore[arg-type]  # all that the loop asks of an event
    return event


class Later(simpy.Event):
    """An event that may be told in advance when it will succeed: a timeout that is started after it is waited for."""

    def succeed_in(self, delay: Ps, value: Any) -> None:
        """Succeed with ``value`` in ``delay``."""
        self._ok = True
        self._value = value
        self.env.schedule(self, delay=delay)

    def happen(self, value: Any) -> None:
        """Succeed with ``value`` at once, within the event that is being processed."""
        callbacks, self.callbacks = self.callbacks, None  # type: ignore[assignment]  # as SimPy's loop does it
        self._ok = True
        self._value = value
        for tell in callbacks:
            tell(self)


class Routine:
    """Alarms of those who only look, again and again: they do not keep a simulation alive in which nothing else is to
    come. All of one simulation share one."""

    def __init__(self, env: simpy.Environment) -> None:
        self.env = env
        self._pending = 0

    def alarm(self, delay: Ps, callback: Callable[[], None]) -> None:
        """Call ``callback`` in ``delay``, if anything but routine is to come then."""
        self._pending += 1
        alarm(self.env, delay, lambda _: self._over(callback))

    def _over(self, callback: Callable[[], None]) -> None:
        self._pending -= 1
        if len(self.env._queue) > self._pending:
            callback()
