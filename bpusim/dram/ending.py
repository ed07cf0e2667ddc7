"""What transfers of either fidelity have in common: they end, and somebody wants to know."""

from __future__ import annotations

from collections.abc import Callable

import simpy

from bpusim.ports import Flow

__all__ = ["Ending"]


class Ending:
    """The end of a flow: a callback for cores, an event for processes, made only for those who ask."""

    __slots__ = ("_done", "_env", "ended", "then")

    def __init__(self, env: simpy.Environment, then: Callable[[Flow], None] | None) -> None:
        self.ended = False
        self._env = env
        self.then = then
        """Called at the end."""
        self._done: simpy.Event | None = None

    @property
    def done(self) -> simpy.Event:
        """Succeeds when the last byte has arrived."""
        if self._done is None:
            self._done = simpy.Event(self._env)
            if self.ended:
                self._done.succeed(self)
        return self._done

    def end(self) -> None:
        """Tell those who wait."""
        self.ended = True
        if self._done is not None:
            self._done.succeed(self)
        if self.then is not None:
            self.then(self)  # type: ignore[arg-type]  # whoever inherits is a whole flow
