"""Decode steps in a loop of their own, while nothing else happens.

Most of a run of chat models is decode: the same few events for each token, and in between nobody but the next token.
Where every transfer under way is the first flow of a decode step that has its core to itself, the next event that is
not theirs says how long nobody else will come. Until then the steps are taken by :class:`bpusim.system.lanes.Lane`,
which does what the stream, the runtime, the core's line, the core and the host would do for such a step, in the same
order and on the same channel, without their processes. Then all of them are put where they would be.

They can be put only where they were found: each in the first flow of a step, which is most of the time. So the loop
marks now and then how all was when it was like that, and goes back to there when somebody else is next. Results are the
same to the last bit, but for the number of events: what follows for certain is none here, and a flow's end needs no
alarm. ``pytest tests/system/test_cruise.py`` compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop
from typing import TYPE_CHECKING

import simpy

from bpusim.dram.plain import FOREVER
from bpusim.runtime import CoreQueue
from bpusim.system.lanes import CORES, Fleet, Lane, Mark, Start
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.dram import FlowChannel
    from bpusim.dram.plain import Picture
    from bpusim.runtime import Answer, Executor
    from bpusim.system.build import CountingEnvironment

__all__ = ["Cruise"]

_WORTH = 8
"""It pays to begin if nobody else comes for so many times what the first flow of a step takes alone."""
_PAYS = 32
"""A flight of fewer events has not paid."""
_EVENTS = 1024
"""So many events in a row: whoever watches the run wants to be asked."""
_MARKED = 64
"""Events between two marks."""
_LOST = 256
"""So many events without a mark: it may be long until lanes are in first flows together again."""
_PATIENCE = 63
"""Looks that are left out at most where one was in vain."""


class Cruise:
    """Takes decode steps ahead of the simulation, where nothing else happens."""

    def __init__(self, env: CountingEnvironment, channel: FlowChannel, executor: Executor) -> None:
        self._env = env
        self._channel = channel
        self._executor = executor
        self._not_before: Ps = 0
        """Until then it is not worth to try: somebody else comes too soon, or an answer is over."""
        self._pause = self._left = 0
        """Looks to leave out behind one that was in vain, twice as many each time; those that are left of them."""

    def ready(self) -> bool:
        """Whether it may be worth a look: nothing moves but the first flow of a step of each answer."""
        answers = self._executor.answers
        if not answers or len(self._channel.flows) != len(answers) or self._env.now < self._not_before:
            return False
        for answer in answers:
            if not self._executor.queues[answer.model.parts[0][0]].core.opens:
                return False
        if self._left:
            self._left -= 1
            return False
        return True

    def run(self) -> int:
        """Take steps until somebody else comes, if it is worth it: how many events that were."""
        events = self._taken()
        self._pause = self._left = min(2 * self._pause + 1, _PATIENCE) if events < _PAYS else 0
        return events

    def _taken(self) -> int:
        starts = self._starts()
        if starts is None:
            return 0
        env, channel = self._env, self._channel
        now: Ps = env.now
        others = [e for e in env._queue if not channel.alarmed(e[3])]
        until = min([int(e[0]) for e in others], default=FOREVER)
        reserve = _WORTH * max(round(f.bytes * PS_PER_S / f.alone) for f in channel.flows)
        if until - now < reserve:
            self._not_before = until
            return 0
        fleet = Fleet(channel, now)
        lanes = [Lane(fleet, self._executor, start) for start in starts]
        now, events, picture, marks = self._fly(fleet, lanes, until, until - reserve)
        env.leap(now, others)
        flows = fleet.channel.give_back(picture)
        self._executor.host.set_aside(m.ahead for m in marks if m.ahead is not None and m.ahead > now)
        # In the order in which their first calls ended: observers hear of them like that.
        for lane, mark in sorted(zip(lanes, marks, strict=True), key=_first_end):
            lane.land(mark, flows[lane.flow])
        fleet.over()
        self._not_before = fleet.channel.now  # up to there it would be the same again
        return events

    def _fly(self, fleet: Fleet, lanes: Sequence[Lane], until: Ps, late: Ps) -> tuple[Ps, int, Picture, list[Mark]]:
        """Where all was when it was last such that it can be put there: (when, events before, channel, lanes). From
        ``late`` on it is marked each time."""
        queue, channel, n = fleet.queue, fleet.channel, len(lanes)
        events, due = 0, _MARKED
        kept = channel.now, 0, channel.picture(), [lane.mark for lane in lanes]
        while True:
            if queue and queue[0][0] <= channel.first:
                if queue[0][0] >= until:
                    break
                channel.now, _, then = heappop(queue)
                then(channel.now)
            elif channel.first < until:
                channel.advance()
            else:
                break
            events += 1
            if fleet.opening == n:
                if events >= due or fleet.closing or channel.now > late:
                    kept = channel.now, events, channel.picture(), [lane.mark for lane in lanes]
                    due = events + _MARKED
                    if events >= _EVENTS:
                        break
            elif fleet.stuck or events >= due - _MARKED + _LOST:
                break
        return kept

    def _starts(self) -> list[Start] | None:
        """Where all answers are, if each is in the first flow of a step and nobody else does anything."""
        answers, host = self._executor.answers, self._executor.host
        aside = host.aside_until(CORES * len(answers)) if self._channel.plain else None
        if aside is None:
            return None
        starts: list[Start] = []
        for answer in answers:
            start = self._start(answer)
            if start is None:
                return None
            starts.append(start)
        return starts if {s.ahead for s in starts}.issuperset(aside) else None

    def _start(self, answer: Answer) -> Start | None:
        leg, ahead = self._executor.only_leg(answer.model, "decode"), answer.session.ahead
        if leg is None or not isinstance(leg.queue, CoreQueue) or isinstance(ahead, simpy.Event):
            return None
        opening, ladder, sole = leg.queue.core.opening, leg.queue.core.ladder, leg.queue.sole()
        if opening is None or ladder is None or sole != (answer.session.stream, leg.phase, opening.start):
            return None
        flow = next(f for f in self._channel.flows if f is opening.flow)
        cpu = next(p for p in self._channel.ports if p is self._executor.host.port)
        start = Start(answer, leg, leg.queue, opening, flow, cpu, ladder, ahead)
        return start if Lane.takes(start, self._executor) else None


def _first_end(landing: tuple[Lane, Mark]) -> Ps:
    return landing[0].first_end
