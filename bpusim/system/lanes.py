"""The decode steps of one answer, taken one behind the other without processes: see :mod:`bpusim.system.cruise`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from bpusim.cores import CallResult, Opening, Plan
from bpusim.dram import FlowChannel, PlainChannel
from bpusim.dram.plain import PlainFlow
from bpusim.metrics import Ledger
from bpusim.ports import Flow
from bpusim.trace import CallProgram
from bpusim.units import Ps

if TYPE_CHECKING:
    from bpusim.cores.ladder import Ladder
    from bpusim.dram.transmission import FlowPort, Transmission
    from bpusim.runtime import Answer, CoreQueue, Executor, Leg

__all__ = ["CORES", "Fleet", "Lane", "Mark", "Start"]

CORES = 2
"""CPU cores that a step takes at once at most."""
_CLOSE = 3
"""Steps before its last one from which on a lane is marked each time."""
_LEFT = 8
"""Steps that an answer must have left: fewer are not worth it."""
_FEW, _MANY = 4, 64
"""Steps whose costs are worked out together: at first, since a flight may be short, and at most."""


class Start(NamedTuple):
    """Where a lane begins: an answer, the one call of its steps, where that is, and when the next one is prepared."""

    answer: Answer
    leg: Leg
    queue: CoreQueue
    opening: Opening
    flow: Transmission
    cpu: FlowPort
    ladder: Ladder
    ahead: Ps | None


class _Step(NamedTuple):
    """A step that is over: how long its token took (``gap``), and what of that its way to the core and its sampling."""

    call: CallProgram
    result: CallResult
    gap: Ps
    entering: Ps
    sampling: Ps


class Mark(NamedTuple):
    """Where a lane was when it was in the first flow of a step."""

    call: CallProgram
    plan: Plan
    start: Ps
    wakeup: Ps
    steps: int
    begin: Ps
    entering: Ps
    ahead: Ps | None


class Fleet:
    """What lanes have in common: their channel, what comes next, and whether they can go on."""

    def __init__(self, channel: FlowChannel, now: Ps) -> None:
        self.channel = PlainChannel(channel, now)
        self.queue: list[tuple[Ps, int, Callable[[Ps], None]]] = []
        self._number = count().__next__
        self.opening = 0
        """How many are in the first flow of a step."""
        self.closing = False
        """Whether one is about to come to its end."""
        self.stuck = False
        """Whether one cannot go on like this."""

    def over(self) -> None:
        """Nothing is to come: what would, knows the lanes, and they know it."""
        self.queue.clear()
        self.channel.clear()

    def at(self, when: Ps, then: Callable[[Ps], None]) -> None:
        """Call ``then(when)`` at that time."""
        heappush(self.queue, (when, self._number(), then))


class Lane:
    """The steps of one answer. What happens for certain behind what has happened is no event of its own."""

    def __init__(self, fleet: Fleet, executor: Executor, start: Start) -> None:
        answer, leg, queue, opening, flow, cpu, ladder, ahead = start
        host, spec = executor.host, executor.host.spec
        self.answer, self._leg, self._queue, self._core = answer, leg, queue, queue.core
        self._fleet, self._channel, self._ladder = fleet, fleet.channel, ladder
        self._steps: list[_Step] = []
        self._first = answer.done
        self._last = answer.steps - 2
        """The last step but one: only behind those before it all is alike."""
        prepared = leg.preparation + leg.each
        asynchronous = executor.options.async_submit and prepared > 0
        self._prepare = host.span(spec.doorbell) if asynchronous else host.span(spec.doorbell + prepared)
        self._aside = host.span(prepared) if asynchronous else None
        self._calls: list[CallProgram] = []
        self._together = _FEW // 2
        self._io = opening.call.written("io")
        self._leaving = host.span(spec.interrupt + host.cache_ps(self._io))
        duration, self._traffic = answer.sampling
        self._sampling = host.span(duration)
        self._latency, self._rate = self._core.port.latency, self._core.port.rate_alone
        self._begin, self._ahead, self._entering = answer.begin, ahead, 0
        self._call, self._plan = opening.call, opening.plan
        self._sizes = self._plan.sizes(self._call.at)
        self._start, self._wakeup = opening.start, opening.wakeup
        self._ended = self._sampled = self._computed = self._before = 0
        self._at, self._contended = 0, False
        self._ends: list[list[Ps]] = []
        self.flow = fleet.channel.take_over(flow, self._arrived)
        self._on_host = PlainFlow(cpu, self._moved)
        fleet.opening += 1

    @staticmethod
    def takes(start: Start, executor: Executor) -> bool:
        """Whether there are steps to come, each a call without CPU ops, with work for the host between two of them."""
        answer, call = start.answer, start.opening.call
        if answer.done + _LEFT >= answer.steps or not answer.model.trace.table(start.leg.phase).whole:
            return False
        if not all(start.opening.plan.sizes(call.at)):
            return False
        leaving = executor.host.spec.interrupt + executor.host.cache_ps(call.written("io"))
        duration, traffic = answer.sampling
        return leaving > 0 and duration > 0 and traffic.bytes > 0 and not answer.ledger.cold

    @property
    def mark(self) -> Mark:
        """Where it is, in the first flow of a step."""
        at = self._call, self._plan, self._start, self._wakeup
        return Mark(*at, len(self._steps), self._begin, self._entering, self._ahead)

    @property
    def first_end(self) -> Ps:
        """When its first call was over."""
        return self._steps[0].result.end if self._steps else 0

    def _submit(self, now: Ps) -> None:
        """A token is out: the doorbell for the next one, as soon as its call is prepared, and the core is at it."""
        step, kv = self._first + len(self._steps), self.answer.kv
        if not self._calls:
            self._together = min(2 * self._together, _MANY)
            steps = range(kv + step, kv + min(step + self._together, self._last))
            self._calls = self.answer.model.trace.calls(self._leg.phase, steps)[::-1]
        if step + _CLOSE >= self._last:
            self._fleet.closing = True
        call, plan = self._calls.pop(), self._plan
        if not plan.holds(call.position[0]):
            found = self._core.plan(call)
            if found is None:
                self._fleet.stuck = True
                return
            plan = self._plan = found
        self._call, self._sizes = call, plan.sizes(call.at)
        if not all(self._sizes) or call.written("io") != self._io:
            self._fleet.stuck = True
            return
        ahead = self._ahead
        self._start = start = (ahead if ahead is not None and ahead > now else now) + self._prepare
        self._entering = start - now
        self._ahead = start + self._aside if self._aside is not None else None
        self._wakeup = self._core.wakes(start - self._ended)
        self._at, self._before, self._contended = 0, 0, False
        self._ends.clear()
        self._fleet.at(start + self._latency + self._wakeup, self._open)

    def _open(self, now: Ps) -> None:
        self._fleet.opening += 1
        self._fetch(now)

    def _fetch(self, _: Ps) -> None:
        self._channel.start(self.flow, self._sizes[self._at], self._call.mix)

    def _arrived(self, now: Ps) -> None:
        k, flow, before, runs = self._at, self.flow, self._before, self._plan.runs
        if not k:
            self._fleet.opening -= 1
        if flow.slowed:
            self._contended = True
        history, size = flow.history, flow.bytes
        ends = [q.at(history, size, before) for q in runs[k].queries]
        self._ends.append(ends)
        self._before = before = ends[-1]
        self._at = k = k + 1
        if k == len(runs):
            self._ended = ended = max(now, before)
            self._fleet.at(ended + self._leaving, self._sample)
            return
        waits = runs[k].waits
        ready = self._ends[waits[0]][waits[1]] if waits is not None else now
        if ready > now:
            self._fleet.at(ready, self._fetch)
        else:
            self._fetch(now)

    def _sample(self, now: Ps) -> None:
        self._sampled, self._computed = now, now + self._sampling
        self._channel.start(self._on_host, self._traffic.bytes, self._traffic.mix)

    def _moved(self, now: Ps) -> None:
        """The logits are read; it takes both that and the work."""
        if now < self._computed:
            self._fleet.at(self._computed, self._out)
        else:
            self._out(now)

    def _out(self, now: Ps) -> None:
        """A token is out."""
        call, begin, steps = self._call, self._begin, self._steps
        alone = self._plan.alone(self._sizes, self._rate)
        result = self._ladder.at_best(
            call, self._start, self._ended, self._wakeup, alone, alone, contended=self._contended
        )
        steps.append(_Step(call, result, now - begin, self._entering, now - self._sampled))
        self._begin = now
        if self._first + len(steps) < self._last:
            self._submit(now)
        else:
            self._fleet.stuck = True

    def land(self, mark: Mark, flow: Flow) -> None:
        """Put the stream, the core and its line where they are at ``mark``, in this flow."""
        answer, core, leg = self.answer, self._core, self._leg
        core.opening = Opening(mark.call, mark.plan, mark.start, mark.wakeup, flow)
        steps, cpu = self._steps[: mark.steps], self._on_host.port.name
        del self.flow, self._on_host  # they know the lane: garbage that only a search would find
        if not steps:
            return
        observer, label = core.observer, f"{answer.session.stream}/{leg.phase}"
        starts = [s.result.start for s in steps[1:]] + [mark.start]
        occupied = sum(s.result.end - s.result.start for s in steps)
        counters = core.counted([s.call for s in steps])
        observer.calls_passed(core.name, label, mark.start, len(steps), occupied, counters)
        on_host = {key: n * len(steps) for key, n in self._traffic.moved.items()}
        observer.moved(cpu, on_host, mark.begin)
        idle = sum(starts) - sum(s.result.end for s in steps)
        waited = sum(s.result.dram + s.result.scratchpad + s.result.contention for s in steps)
        self._queue.waits.passed(mark.start, host=idle, dram=waited)
        deadline = mark.begin + answer.tpot if answer.tpot is not None else None
        self._queue.goes_on(mark.call, mark.start, deadline, len(steps))
        answer.record.went_far([s.gap for s in steps], self._charged(steps))
        answer.record.open[answer.index] = (leg.phase, mark.begin)
        answer.ledger.clear()
        answer.ledger.add(leg.enters, mark.entering)
        answer.begin, answer.done = mark.begin, self._first + len(steps)
        session = answer.session
        session.submitted, session.ahead, session.prepared = mark.start, mark.ahead, 1

    def _charged(self, steps: Sequence[_Step]) -> Ledger:
        """Causes of all the steps; the first had begun."""
        ledger = Ledger()
        ledger.take(self.answer.ledger)
        ledger.add(self._leg.enters, sum(s.entering for s in steps[1:]))
        ledger.add_call([sum(column) for column in zip(*(s.result.causes for s in steps), strict=True)])
        ledger.add(self._leg.leaves, self._leaving * len(steps))
        ledger.add("host", sum(s.sampling for s in steps))
        ledger.close(sum(s.gap for s in steps))
        return ledger
