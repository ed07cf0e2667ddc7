"""Admission by memory: a model's KV cache has room for so many sequences at a time."""

from __future__ import annotations

from collections import Counter, deque

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
        self._line: deque[tuple[str, simpy.Event]] = deque()
        self._held: Counter[str] = Counter()
        """Places by who holds them."""

    def waiting(self, who: str) -> int:
        """How many of ``who`` stand in line."""
        return sum(name == who for name, _ in self._line)

    def take(self, who: str) -> simpy.Event | None:
        """None if there is room for ``who`` at once, else an event that succeeds when there is."""
        if self.free:
            self.free -= 1
            self._held[who] += 1
            return None
        if len(self._line) == _MOST:
            raise SimulationError(
                f"{_MOST} requests wait for model '{self.model}' at {self.env.now / 1e12:.3f} s: they come faster than "
                "they are served",
                do="lower their rate, or limit the line by the stream's waiting: 8",
            )
        turn = simpy.Event(self.env)
        self._line.append((who, turn))
        return turn

    def give(self, who: str) -> None:
        """A sequence of ``who`` is over."""
        self._held[who] -= 1
        if self._line:
            next_, turn = self._line.popleft()
            self._held[next_] += 1
            turn.succeed()
        else:
            self.free += 1

    def standing(self) -> str:
        """Who waits for whom, for the message of a deadlock; empty if nobody does."""
        if not self._line:
            return ""
        waiting = ", ".join(dict.fromkeys(who for who, _ in self._line))
        holding = ", ".join(who for who, n in self._held.items() if n)
        return f"{waiting} waits for room in the cache of model '{self.model}', which {holding} holds"
