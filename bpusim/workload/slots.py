"""Admission by memory: a model's KV cache has room for so many sequences at a time."""

from __future__ import annotations

from collections import deque

import simpy

from bpusim.errors import SimulationError

__all__ = ["Slots"]

_MOST = 100_000
"""Requests in a line without a limit: more than that will never be served, and would only fill memory."""


class Slots:
    """``count`` sequences of ``model`` at a time; who comes later waits in line."""

    def __init__(self, env: simpy.Environment, model: str, count: int) -> None:
        self.env = env
        self.model = model
        self.count = count
        self.free = count
        self._line: deque[simpy.Event] = deque()

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    def take(self) -> simpy.Event | None:
        """None if there is room at once, else an event that succeeds when there is."""
        if self.free:
            self.free -= 1
            return None
        if len(self._line) == _MOST:
            raise SimulationError(
                f"{_MOST} requests wait for model '{self.model}' at {self.env.now / 1e12:.3f} s: they come faster than "
                "they are served",
                do="lower their rate, or limit the line by the stream's waiting: 8",
            )
        turn = simpy.Event(self.env)
        self._line.append(turn)
        return turn

    def give(self) -> None:
        """A sequence is over."""
        if self._line:
            self._line.popleft().succeed()
        else:
            self.free += 1
