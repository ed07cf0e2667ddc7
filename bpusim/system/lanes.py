"""The decode steps of one answer, taken one behind the other without processes: see :mod:`bpusim.system.cruise`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from bpusim.alarm import Clockwork
from bpusim.cores import CallResult, Opening, Planned
from bpusim.metrics import Ledger
from bpusim.ports import Flow
from bpusim.trace import CallProgram, ItemRange
from bpusim.units import Ps

if TYPE_CHECKING:
    from bpusim.runtime import Answer, CoreQueue, Executor, Leg

__all__ = ["CORES", "Fleet", "Lane", "Mark", "Start"]

CORES = 2
"""CPU cores that a step takes at once at most."""
_AHEAD = 64
"""Steps whose costs are worked out together."""


class Start(NamedTuple):
    """Where a lane begins: an answer, the one call of its steps, where that is, and when the next one is prepared."""

    answer: Answer
    leg: Leg
    queue: CoreQueue
    opening: Opening
    ahead: Ps | None


class _Step(NamedTuple):
    """A step that is over: when its token was out, since when it had waited for it (``gap``), what of that its way to
    the core took and its sampling, and what its call was like."""

    call: CallProgram
    result: CallResult
    gap: Ps
    entering: Ps
    sampling: Ps


class Mark(NamedTuple):
    """Where a lane was when it was in the first flow of a step."""

    opening: Opening
    steps: int
    begin: Ps
    entering: Ps
    ahead: Ps | None


class Fleet(Clockwork):
    """The time of all lanes, and what they have in common."""

    __slots__ = ("closing", "opening", "stuck")

    def __init__(self, now: Ps, lanes: int) -> None:
        super().__init__(now)
        self.opening = lanes
        """How many are in the first flow of a step."""
        self.closing = False
        """Whether one is about to come to its end."""
        self.stuck = False
        """Whether one can not go on like this."""


class Lane:
    """The steps of one answer, one behind the other."""

    def __init__(self, time: Fleet, executor: Executor, start: Start) -> None:
        answer, leg, queue, opening, ahead = start
        host, spec = executor.host, executor.host.spec
        self.time, self.answer, self.leg, self.queue, self.core = time, answer, leg, queue, queue.core
        self.host_port, self.port = host.port, self.core.port
        self.steps: list[_Step] = []
        self.first = answer.done
        self.last = answer.steps - 2
        """The last step but one: only behind those before it all is alike."""
        prepared = leg.preparation + leg.each
        asynchronous = executor.options.async_submit and prepared > 0
        self._prepare = host.span(spec.doorbell) if asynchronous else host.span(spec.doorbell + prepared)
        self._aside = host.span(prepared) if asynchronous else None
        self._trace = answer.model.trace
        self._calls: list[CallProgram] = []
        self._io = opening.call.written("io")
        self.leaving = host.span(spec.interrupt + host.cache_ps(self._io))
        duration, self._traffic = answer.sampling
        self._sampling = host.span(duration)
        self._begin, self._ahead = answer.begin, ahead
        self._entering = 0
        self._start, self._wakeup, self._ended = opening.start, opening.wakeup, 0
        self._sampled: Ps = 0
        self._left = 0
        self.run = Planned(self._fetch, self.port, opening.call, opening.plan)
        self.flow: Flow = opening.flow
        opening.flow.then = self._arrived

    @staticmethod
    def takes(start: Start, executor: Executor) -> bool:
        """Whether there are steps to come, each a call without CPU ops, with work for the host between two of them."""
        answer = start.answer
        if answer.done + 2 >= answer.steps or not answer.model.trace.table(start.leg.phase).whole:
            return False
        leaving = executor.host.spec.interrupt + executor.host.cache_ps(start.opening.call.written("io"))
        duration, traffic = answer.sampling
        return leaving > 0 and duration > 0 and traffic.bytes > 0 and not answer.ledger.cold

    @property
    def mark(self) -> Mark:
        """Where it is, in the first flow of a step."""
        opening = Opening(self.run.call, self.run.plan, self._start, self._wakeup, self.flow)
        return Mark(opening, len(self.steps), self._begin, self._entering, self._ahead)

    def _fetch(self, parts: ItemRange) -> None:
        self.flow = self.port.start(parts, then=self._arrived)

    def _bell(self, _: object) -> None:
        """The next call is prepared: ring the doorbell."""
        if self._prepare > 0:
            self.time.alarm(self._prepare, self._submit)
        else:
            self._submit(_)

    def _submit(self, _: object) -> None:
        now, core = self.time.now, self.core
        if not self._calls:
            step, kv = self.first + len(self.steps), self.answer.kv
            steps = range(kv + step, kv + min(step + _AHEAD, self.last + 1))
            self._calls = self._trace.calls(self.leg.phase, steps)[::-1]
            self.time.closing = self.time.closing or len(steps) < _AHEAD
        call, plan = self._calls.pop(), self.run.plan
        if not plan.holds(call.position[0]):
            found = core.plan(call)
            if found is None:
                self.time.stuck = True
                return
            plan = found
        self.run = run = Planned(self._fetch, self.port, call, plan)
        if not all(run.sizes) or call.written("io") != self._io:
            self.time.stuck = True
            return
        self._entering, self._start = now - self._begin, now
        self._wakeup = core.wakes(now - self._ended)
        self.time.alarm(core.port.latency + self._wakeup, self._go)
        self._ahead = now + self._aside if self._aside is not None else None

    def _go(self, _: object) -> None:
        if not self.run.begun:
            self.time.opening += 1
        self._next()

    def _arrived(self, flow: Flow) -> None:
        if not self.run.begun:
            self.time.opening -= 1
        self.run.arrived(flow)
        self._next()

    def _next(self) -> None:
        now = self.time.now
        wait = self.run.go(now)
        if wait is None:
            self._ended = now
            self.time.alarm(self.leaving, self._sample)
        elif wait:
            self.time.alarm(wait, self._go)

    def _sample(self, _: object) -> None:
        self._left, self._sampled = 2, self.time.now
        self.host_port.start(self._traffic, then=self._part)
        self.time.alarm(self._sampling, self._part)

    def _part(self, _: object) -> None:
        self._left -= 1
        if self._left:
            return
        now, begin = self.time.now, self._begin
        result = self.core.explain(self.run, self._start, self._ended, self._wakeup)
        self.steps.append(_Step(self.run.call, result, now - begin, self._entering, now - self._sampled))
        self._begin = now
        if self.first + len(self.steps) >= self.last:
            self.time.stuck = True
        elif self._ahead is not None and self._ahead > now:
            self.time.alarm(self._ahead - now, self._bell)
        else:
            self._bell(_)

    def land(self, mark: Mark) -> None:
        """Put the stream, the core and its line where they are at ``mark``."""
        answer, core, leg = self.answer, self.core, self.leg
        steps, opening = self.steps[: mark.steps], mark.opening
        core.opening = opening
        del self.run, self.flow, self.steps  # they know the lane: garbage that only a search would find
        if not steps:
            return
        observer, label = core.observer, f"{answer.session.stream}/{leg.phase}"
        starts = [s.result.start for s in steps[1:]] + [opening.start]
        occupied = sum(s.result.end - s.result.start for s in steps)
        counters = core.counted([s.call for s in steps])
        observer.calls_passed(core.name, label, opening.start, len(steps), occupied, counters)
        on_host = {key: n * len(steps) for key, n in self._traffic.moved.items()}
        observer.moved(self.host_port.name, on_host, mark.begin)
        idle = sum(starts) - sum(s.result.end for s in steps)
        waited = sum(s.result.dram + s.result.scratchpad + s.result.contention for s in steps)
        self.queue.waits.passed(opening.start, host=idle, dram=waited)
        deadline = mark.begin + answer.tpot if answer.tpot is not None else None
        self.queue.goes_on(opening.call, opening.start, deadline, len(steps))
        answer.record.went_far([s.gap for s in steps], self._charged(steps))
        answer.record.open[answer.index] = ("decode", mark.begin)
        answer.ledger.clear()
        answer.ledger.add(leg.enters, mark.entering)
        answer.begin, answer.done = mark.begin, self.first + len(steps)
        session = answer.session
        session.submitted, session.ahead, session.prepared = opening.start, mark.ahead, 1

    def _charged(self, steps: Sequence[_Step]) -> Ledger:
        """Causes of all the steps; the first had begun."""
        ledger = Ledger()
        ledger.take(self.answer.ledger)
        ledger.add(self.leg.enters, sum(s.entering for s in steps[1:]))
        ledger.add_call([sum(column) for column in zip(*(s.result.causes for s in steps), strict=True)])
        ledger.add(self.leg.leaves, self.leaving * len(steps))
        ledger.add("host", sum(s.sampling for s in steps))
        ledger.close(sum(s.gap for s in steps))
        return ledger
