"""Cores that work on one call together: they begin it each in its own line, and wait for each other at its barriers.

A core that has begun such a call stays with it while it waits at a barrier, as it would on a board without preemption;
with ``max_call`` another call may go first there, as between two pieces. Calls for several cores that have one in
common take turns: none is in any line before all its cores are out of the one before it. So of two such calls never
one holds what the other waits for, and nothing can hang whatever the policies of the cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import add

import simpy

from bpusim.alarm import alarm
from bpusim.cores import CallResult
from bpusim.runtime.calls import ORDINARY, Terms
from bpusim.runtime.queue import CoreQueue, Place
from bpusim.trace import CallProgram, TeamCall
from bpusim.units import Ps

__all__ = ["Team", "TeamQueue", "Turns"]

_CAUSES = 7
"""Of a call on a core."""


@dataclass(frozen=True, slots=True)
class Team:
    """Cores that run a model together; ``sync`` is what each barrier costs."""

    cores: tuple[int, ...]
    sync: Ps


class TeamWaits:
    """:class:`bpusim.runtime.CoreWaits` of several cores at once."""

    __slots__ = ("_queues",)

    def __init__(self, queues: Sequence[CoreQueue]) -> None:
        self._queues = queues

    def change(self, *, running: int = 0, host: int = 0, elsewhere: int = 0) -> None:
        """So many more on each of them."""
        for queue in self._queues:
            queue.waits.change(running=running, host=host, elsewhere=elsewhere)


class Turns:
    """Calls for several cores, each of which begins when no earlier one has a core of its."""

    def __init__(self) -> None:
        self._waiting: list[_TeamRun] = []
        self._under_way: list[_TeamRun] = []
        self._seq = 0

    def come(self, run: _TeamRun) -> None:
        """Begin it, or have it wait for its turn: the highest priority first, then the first to come."""
        self._seq += 1
        run.rank = (-run.terms.priority, self._seq)
        self._waiting.append(run)
        self._waiting.sort(key=lambda r: r.rank)
        self._serve()

    def over(self, run: _TeamRun) -> None:
        """Its cores are free for others."""
        self._under_way.remove(run)
        self._serve()

    def _serve(self) -> None:
        taken = {q for run in self._under_way for q in run.queues}
        for run in list(self._waiting):
            free = taken.isdisjoint(run.queues)
            taken.update(run.queues)  # nobody overtakes one that waits for them
            if free:
                self._waiting.remove(run)
                self._under_way.append(run)
                run.begin()


class TeamQueue:
    """The line before a team of cores: takes a :class:`bpusim.trace.TeamCall` as a :class:`CoreQueue` takes a call."""

    def __init__(self, env: simpy.Environment, queues: Sequence[CoreQueue], sync: Ps, turns: Turns) -> None:
        self.env, self.queues, self.sync, self.turns = env, tuple(queues), sync, turns
        self.waits = TeamWaits(self.queues)

    @property
    def load(self) -> int:
        """Of the core with the longest line."""
        return max(q.load for q in self.queues)

    def submit(
        self,
        program: CallProgram,
        stream: str,
        phase: str,
        then: Callable[[CallResult], None],
        terms: Terms = ORDINARY,
        deadline: Ps | None = None,
    ) -> None:
        """Line up a call on all cores; ``then`` is told its result when all are done with it: where time went on the
        core that was first at each barrier, and ``sync`` from then on."""
        assert isinstance(program, TeamCall)
        self.waits.change(elsewhere=1)
        self.turns.come(_TeamRun(self.env, self, program, stream, phase, then, terms, deadline, self.queues))


@dataclass(slots=True, eq=False)
class _TeamRun:
    """A call for several cores: which group they are in, and how it went so far."""

    env: simpy.Environment
    line: TeamQueue
    call: TeamCall
    stream: str
    phase: str
    then: Callable[[CallResult], None]
    terms: Terms
    deadline: Ps | None
    queues: tuple[CoreQueue, ...]
    rank: tuple[int, int] = (0, 0)
    start: Ps = 0
    _places: list[Place] = field(default_factory=list)
    _at: int = 0
    _since: Ps = 0
    _left: int = 0
    _first: CallResult | None = None
    _causes: tuple[Ps, ...] = (0,) * _CAUSES
    _queued: Ps = 0
    _sync: Ps = 0

    def __post_init__(self) -> None:
        self.start = self._now()

    def _now(self) -> Ps:
        return self.env.now  # type: ignore[return-value]  # integer by construction

    def begin(self) -> None:
        """It is its turn: into the line of each core."""
        self._queued = self._now() - self.start
        for k, queue in enumerate(self.queues):
            parts = [group[k] for group in self.call.groups]
            self._places.append(queue.join(parts, self.stream, self.phase, self.terms, self.deadline))
        self._go()

    def _go(self, _: object = None) -> None:
        """The next group: each core that has a part in it."""
        self._since, self._first = self._now(), None
        group = self.call.groups[self._at]
        self._left = sum(part is not None for part in group)
        for queue, place, part in zip(self.queues, self._places, group, strict=True):
            if part is not None:
                queue.waits.change(elsewhere=-1)
                queue.go_on(place, part, partial(self._done, queue))

    def _done(self, queue: CoreQueue, result: CallResult) -> None:
        """A core is at the barrier."""
        queue.waits.change(elsewhere=1)
        self._first = first = self._first or result
        self._left -= 1
        if self._left:
            return
        self._causes = tuple(map(add, self._causes, first.causes))
        self._queued += first.start - self._since + first.suspended
        self._sync += self._now() - first.end
        self._at += 1
        if self._at == len(self.call.groups):
            self._end()
        elif self.line.sync:
            self._sync += self.line.sync
            alarm(self.env, self.line.sync, self._go)
        else:
            self._go()

    def _end(self) -> None:
        self.line.waits.change(elsewhere=-1)
        for queue, place in zip(self.queues, self._places, strict=True):
            queue.give_back(place)
        self.then(CallResult._make((self.start, self._now(), *self._causes, self._queued, self._sync)))
        self.line.turns.over(self)
