"""Decode steps for several sequences of a model at a time: one pass over the weights serves all of them.

Batching is continuous. A step begins as soon as every sequence of the one before has come back with its next token, or
has left; whoever came meanwhile joins, as far as there is room, in the order of coming.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import simpy

from bpusim.alarm import Later
from bpusim.metrics import Ledger
from bpusim.units import Ps

__all__ = ["Batch"]

RunStep = Callable[[tuple[int, ...], float, Ps | None, bool, Ledger], Generator[simpy.Event, Any, None]]
"""A step for sequences with these cache entries: (``kvs``, their weight, deadline, whether any comes back, ledger)."""


@dataclass(slots=True)
class _Seat:
    """A sequence that waits for a step, or is in one."""

    kv: int
    weight: float
    deadline: Ps | None
    stays: bool
    since: Ps
    ledger: Ledger
    over: Later


class Batch:
    """The decode steps of one model, for ``most`` sequences at a time. ``name``: in whose name they run."""

    def __init__(self, env: simpy.Environment, name: str, most: int, run_step: RunStep) -> None:
        self.env = env
        self.name = name
        self.most = most
        self.steps = 0
        self.sequences = 0
        """Sum over steps of the sequences in them."""
        self._run_step = run_step
        self._back: list[_Seat] = []
        self._new: deque[_Seat] = deque()
        self._out = 0
        """Sequences of the last step that are to come back."""
        self._running = False
        self._since: Ps | None = None
        self._busy: Ps = 0

    def step(
        self, kv: int, weight: float, deadline: Ps | None, ledger: Ledger, *, inside: bool, stays: bool
    ) -> Generator[simpy.Event, Any, None]:
        """One token of a sequence with ``kv`` cache entries; the wait for the step to begin is ``batching``.

        ``inside``: it was in the step before, which is waiting for it. ``stays``: it will come back, or ``leave``.
        """
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        seat = _Seat(kv, weight, deadline, stays, now, ledger, Later(self.env))
        if inside:
            self._out -= 1
            self._back.append(seat)
        else:
            self._new.append(seat)
        self._go()
        yield seat.over

    def leave(self) -> None:
        """A sequence that was to come back does not, or not yet."""
        self._out -= 1
        self._go()

    def busy(self) -> Ps:
        """Time so far in which sequences were in steps, or on their way from one to the next."""
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        return self._busy + (now - self._since if self._since is not None else 0)

    def _go(self) -> None:
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        if self._running or self._out:
            return
        seats, self._back = self._back, []
        while self._new and len(seats) < self.most:
            seats.append(self._new.popleft())
        if seats:
            if self._since is None:
                self._since = now
            self._running = True
            self.env.process(self._serve(seats))
        elif self._since is not None:
            self._busy += now - self._since
            self._since = None

    def _serve(self, seats: list[_Seat]) -> Generator[simpy.Event, Any, None]:
        shared = Ledger(path=seats[0].ledger.path is not None)
        for seat in seats:
            waited: Ps = self.env.now - seat.since  # type: ignore[assignment]  # integer by construction
            if waited:
                seat.ledger.add("batching", waited)
        self.steps += 1
        self.sequences += len(seats)
        due = min((s.deadline for s in seats if s.deadline is not None), default=None)
        weight, comes_back = sum(s.weight for s in seats), any(s.stays for s in seats)
        yield from self._run_step(tuple([s.kv for s in seats]), weight, due, comes_back, shared)
        self._running = False
        self._out = sum(s.stays for s in seats)
        for seat in seats:
            seat.ledger.take(shared)
            seat.over.happen(None)
        self._go()
