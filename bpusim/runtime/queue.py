"""The line before a core: ready calls, the policy that picks, and what interrupts a call between two pieces."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import simpy

from bpusim.cores import BpuCore, CallResult
from bpusim.errors import SimulationError
from bpusim.runtime.calls import ORDINARY, Call, CoreView, Policy, Terms, Told
from bpusim.runtime.waits import CoreWaits
from bpusim.trace import CallProgram
from bpusim.units import Ps

__all__ = ["CoreQueue", "Event", "Place"]


class Event(NamedTuple):
    """What happened to a call (``stream/phase``) on a core: submit, begin, interrupt, resume or end."""

    at: Ps
    core: str
    call: str
    what: str


@dataclass(slots=True)
class _Entry:
    """A call that waits or runs: ``program`` is what is left of it, ``result`` how it went so far. ``begun``: it is no
    longer new to the core."""

    program: CallProgram | None
    stream: str
    phase: str
    terms: Terms
    deadline: Ps | None
    submitted: Ps
    seq: int
    then: Callable[[CallResult], None]
    result: CallResult | None = None
    begun: bool = False
    seen: tuple[CallProgram | None, bool, Call] | None = None
    """How a policy saw it last, while it waited: of this program, begun or not."""

    @property
    def bytes(self) -> int:
        """What it has yet to move; of one on the core: when it began."""
        return self.program.bytes if self.program is not None else 0


@dataclass(slots=True, eq=False)
class Place(_Entry):
    """Of a call for several cores in the line of one of them. At a barrier it has no ``program`` and keeps the core."""

    behind: list[CallProgram] = field(default_factory=list)
    """What the core has to do in it later."""

    @property
    def bytes(self) -> int:
        """What its core has yet to move."""
        ahead = [self.program] if self.program is not None else []
        return sum([p.bytes for p in (*ahead, *self.behind)], 0)


class CoreQueue:
    """Serves one core: a call runs as soon as the core is free and the policy picks it, and may be interrupted at the
    end of a piece if its terms have ``max_call``."""

    def __init__(
        self, env: simpy.Environment, core: BpuCore, policy: Policy, journal: list[Event] | None = None
    ) -> None:
        self.env = env
        self.waits = CoreWaits(env)
        self._journal = journal
        self.core = core
        self.policy = policy
        self._steady = bool(getattr(policy, "steady", False))
        self._told = policy if isinstance(policy, Told) else None
        self._waiting: list[_Entry] = []
        self._running: _Entry | None = None
        self._kept: Place | None = None
        """Who has the core and does nothing, at a barrier; nobody runs then."""
        self._rest: CallProgram | None = None
        """What is left of the one that runs, when it is being interrupted."""
        self._next: _Entry | None = None
        """Who goes instead."""
        self._watching = False
        self._since: Ps = 0
        """Since when the one that runs has run, as far as the policy knows."""
        self._seq = 0

    def submit(
        self,
        program: CallProgram,
        stream: str,
        phase: str,
        then: Callable[[CallResult], None],
        terms: Terms = ORDINARY,
        deadline: Ps | None = None,
    ) -> None:
        """Line up a call; ``then`` is told its :class:`bpusim.cores.CallResult` when it is over."""
        entry = _Entry(program, stream, phase, terms, deadline, self._now(), self._number(), then)
        self._come(entry)

    def join(
        self, parts: Sequence[CallProgram | None], stream: str, phase: str, terms: Terms, deadline: Ps | None
    ) -> Place:
        """Line up a call of which this core does ``parts``, each when told to ``go_on``. It has the core from when it
        is picked until ``give_back``, unless it may be interrupted at barriers (``max_call``)."""
        behind = [p for p in parts if p is not None]
        place = Place(None, stream, phase, terms, deadline, self._now(), self._number(), _nobody, behind=behind)
        self._come(place)
        return place

    def go_on(self, place: Place, part: CallProgram, then: Callable[[CallResult], None]) -> None:
        """The next part, as soon as it has the core; ``then`` is told the result of it."""
        place.program, place.then, place.result = part, then, None
        place.behind.pop(0)
        if self._kept is place:
            self._kept = None
            self._tell(place)
            self._start(place, part)

    def give_back(self, place: Place) -> None:
        """The call is over; it may not have had the core at all."""
        if self._kept is place:
            self._kept = None
            self._tell(place)
        else:
            self._waiting.remove(place)
            self._next = None if self._next is place else self._next
        self._write(place, "end")
        if self._waiting and not self.core.busy and self._kept is None:
            self._serve()

    def _now(self) -> Ps:
        return self.env.now  # type: ignore[return-value]  # integer by construction

    def _number(self) -> int:
        self._seq += 1
        return self._seq

    def _come(self, entry: _Entry) -> None:
        if self._journal is not None:
            self._write(entry, "submit")
        if self.core.busy or self._waiting or self._kept is not None:
            self._waiting.append(entry)
            if self._kept is not None:
                self._offer(self._kept)
            elif not self.core.busy:
                self._serve()
            elif self._rest is not None:
                self._next = None if self._steady else self._next  # it may be this one that goes instead
            else:
                self._watch(arrived=True)
        else:
            self._run(entry)

    def sole(self) -> tuple[str, str, Ps] | None:
        """(stream, phase, when submitted) of the call on the core if it is whole, nobody waits, and nobody is told."""
        entry = self._running
        if entry is None or self._waiting or entry.result is not None or isinstance(entry, Place):
            return None
        if self._told is not None or self._journal is not None:
            return None
        return entry.stream, entry.phase, entry.submitted

    def goes_on(self, program: CallProgram, submitted: Ps, deadline: Ps | None, calls: int) -> None:
        """So many calls later, all of one stream: ``program`` is on the core, nobody else having come."""
        entry = self._running
        assert entry is not None
        self._seq += calls
        entry.program, entry.submitted, entry.deadline, entry.seq = program, submitted, deadline, self._seq
        self._since = submitted

    @property
    def load(self) -> int:
        """Calls in line, and the one on the core."""
        return len(self._waiting) + (self._running is not None) + (self._kept is not None)

    @property
    def backlog(self) -> int:
        """Bytes that the calls in line have yet to move, and the one on the core when it began."""
        here = {id(e): e for e in (*self._waiting, self._running, self._kept) if e is not None}
        return sum(e.bytes for e in here.values())

    def _write(self, entry: _Entry, what: str) -> None:
        if self._journal is not None:
            now: Ps = self.env.now  # type: ignore[assignment]
            self._journal.append(Event(now, self.core.name, f"{entry.stream}/{entry.phase}", what))

    def _tell(self, entry: _Entry) -> None:
        """The policy hears how long ``entry`` has run since it was told last."""
        if self._told is not None:
            now: Ps = self.env.now  # type: ignore[assignment]
            try:
                self._told.ran(self._view(entry), self._core(), now - self._since)
            except Exception as error:
                raise self._failed("ran", error) from error
            self._since = now

    def _failed(self, method: str, error: Exception) -> SimulationError:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}, line {last.lineno}"
        what = f"policy {type(self.policy).__name__}: {method} failed at {where}: {type(error).__name__}: {error}"
        return SimulationError(what, do="mend it")

    def _view(self, entry: _Entry, rest: CallProgram | None = None) -> Call:
        """``rest``: what is left of it, if it is the one that is running."""
        left = entry.program if rest is None else rest
        return Call(
            entry.stream, entry.phase, entry.terms.priority, entry.deadline, entry.submitted, entry.seq,
            entry.terms.weight, rest is not None or entry.begun, partial(self._estimate, entry, left),
        )  # fmt: skip

    def _estimate(self, entry: _Entry, left: CallProgram | None) -> Ps:
        """What ``left`` takes, and what is behind it."""
        behind = entry.behind if isinstance(entry, Place) else ()
        return sum(self.core.estimate(p) for p in (left, *behind) if p is not None)

    def _core(self) -> CoreView:
        return CoreView(self.core.name, self.env.now)  # type: ignore[arg-type]

    def _waits(self, entry: _Entry) -> Call:
        """The view of one that waits: it stays the same until it has run, and lines may be long."""
        seen = entry.seen
        if seen is None or seen[0] is not entry.program or seen[1] is not entry.begun:
            seen = entry.seen = entry.program, entry.begun, self._view(entry)
        return seen[2]

    def _pick(self, running: _Entry | None = None) -> _Entry:
        """One of those that wait, or the one that has the core if it is given."""
        entries = sorted(self._waiting if running is None else [*self._waiting, running], key=_seq)
        calls = [self._waits(e) if e is not running else self._view(e, self._rest_of(e)) for e in entries]
        try:
            picked = self.policy.pick(calls, self._core())
        except Exception as error:
            raise self._failed("pick", error) from error
        for call, entry in zip(calls, entries, strict=True):
            if call is picked:
                return entry
        raise SimulationError(
            f"policy {type(self.policy).__name__} picked a call that is not ready", do="return one of ready"
        )

    def _rest_of(self, running: _Entry) -> CallProgram | None:
        return self.core.rest() if running is not self._kept else None

    def _watch(self, *, arrived: bool = False) -> None:
        """Look again at the end of the piece under way, if there is any reason to. ``arrived``: a call just has."""
        running = self._running
        if running is None or self._watching or running.terms.max_call is None or self._next is not None:
            return
        if arrived and self._steady and self._pick(running) is running:
            return
        self._watching = self.core.at_boundary(running.terms.max_call, self._boundary)

    def _boundary(self) -> None:
        """A piece is over and others wait."""
        self._watching = False
        running = self._running
        assert running is not None
        self._tell(running)
        picked = self._pick(running)
        if picked is not running:
            self._next = picked
            self._rest = self.core.rest()
            self.core.leave()
        elif not self._steady:
            self._watch()

    def _offer(self, kept: Place) -> None:
        """A call that may be interrupted is at a barrier and others wait: one of them may have the core."""
        if kept.terms.max_call is None:
            return
        picked = self._pick(kept)
        if picked is not kept:
            self._kept = None
            self._tell(kept)
            self._write(kept, "interrupt")
            self._waiting.append(kept)
            self._waiting.remove(picked)
            self._run(picked)

    def _serve(self) -> None:
        picked = self._next or (self._waiting[0] if len(self._waiting) == 1 else self._pick())
        self._next = None
        self._waiting.remove(picked)
        self._run(picked)

    def _run(self, entry: _Entry) -> None:
        self._since = self._now()
        if self._journal is not None:
            self._write(entry, "resume" if entry.begun else "begin")
        entry.begun, entry.seen = True, None  # the view knows the entry: without this, a cycle for each call
        if entry.program is not None:
            self._start(entry, entry.program)
        else:
            assert isinstance(entry, Place)
            self._kept = entry

    def _start(self, entry: _Entry, program: CallProgram) -> None:
        self._running = entry
        self.waits.change(running=1)
        self._since = self._now()
        self.core.run(program, f"{entry.stream}/{entry.phase}", self._ended, entry.terms.max_call)
        if self._waiting:
            self._watch(arrived=True)

    def _ended(self, result: CallResult) -> None:
        entry, rest = self._running, self._rest
        assert entry is not None
        self._running, self._rest, self._watching = None, None, False
        self.waits.ran(result)
        if self._journal is not None and (rest is not None or not isinstance(entry, Place)):
            self._write(entry, "interrupt" if rest is not None else "end")
        if rest is None:  # else it was told at the boundary
            self._tell(entry)
        if entry.result is not None:
            result = entry.result.followed_by(result)
        if rest is not None:
            entry.result, entry.program = result, rest
            self._waiting.append(entry)
        elif isinstance(entry, Place):
            entry.program, self._kept = None, entry
            entry.then(result)
            if self._waiting and self._kept is entry:
                self._offer(entry)
        else:
            entry.then(result)
        if self._waiting and not self.core.busy and self._kept is None:
            self._serve()


_seq = attrgetter("seq")


def _nobody(result: CallResult) -> None:
    """A call at its start has nobody to tell."""
    raise SimulationError(f"a call that had not begun ended: {result}")
