"""What a call did before: the same call in the same state does the same again, and need not be worked out anew.

What a call by tiles does next depends on its own items, on the items yet to be waited for, and on when the last one is
computed, all relative to now: its *state*. So a state that has been seen knows how long to wait, which items go next as
one flow and at what pace, and, for each way in which that flow may arrive, when its items were computed and which state
follows. Flows that arrive as they did before lead to states that are known; others are worked out and added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bpusim.ports import History
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.arrays import Ints
    from bpusim.cores.pace import Stretch
    from bpusim.trace import ItemRange

__all__ = ["Arrival", "Recall", "State", "Step", "arrival_of"]

_MOST = 65_536
"""Numbers that are kept of a call, some 1 MB with all around them: beyond that it begins anew."""
_EACH = 32
"""Numbers that a state or a step is as large as, besides those in it."""
_ROWS = 6
"""A flow whose rate changed more often will hardly come again like that."""

Arrival = tuple[object, ...]
"""How a flow arrived, relative to its begin: whether it was slowed, and the rows of its history."""


def arrival_of(history: History, *, slowed: bool) -> Arrival | None:
    """None if it is not worth to be kept."""
    if len(history) == 2:
        (begin, _, rate, _), (end, size, _, _) = history
        return slowed, end - begin, rate, size
    if len(history) > _ROWS:
        return None
    begin = history[0][0]
    return slowed, *((at - begin, moved, rate) for at, moved, rate, _ in history)


class Step(NamedTuple):
    """Items up to ``stop`` that went as one flow: when they were ``computed``, relative to its begin; how much later it
    ended; and the state behind them."""

    stop: int
    computed: Ints
    duration: Ps
    then: State


@dataclass(slots=True, eq=False)
class State:
    """Where a call may be, once it is known what comes next (``parts``). Items up to ``stop`` go as one flow; where
    that is a stretch that stalls, ``stretch`` says at what pace."""

    wait: Ps = -1
    """ps until what comes next may begin, or the call is over; -1: not known yet."""
    later: State | None = None
    """The state after the wait."""
    stop: int = 0
    parts: ItemRange | None = None
    stretch: Stretch | None = None
    steps: dict[Arrival, Step] = field(default_factory=dict)
    alone: Step | None = None
    """The step if the flow has the channel to itself."""
    left: Ps = -1
    """ps from here to the end of the call, alone on the channel; -1: not known yet."""
    tried: int = -1
    """What was known when it was looked for in vain."""


class Recall:
    """The known states of a call with the same times on one core."""

    __slots__ = ("_kept", "_learned", "_rate", "_states", "used")

    def __init__(self) -> None:
        self.used = False
        """Whether the call has come before: one that does not come again is not worth it."""
        self._states: dict[tuple[int, ...], State] = {}
        self._kept = 0
        self._learned = 0
        self._rate = 0.0

    def at(self, item: int, fence: int, front: Ints, computed: Ints, now: Ps, rate: float) -> State:
        """The state before ``item``. ``front``: the items before it that matter; ``computed``: when each of all is;
        ``fence``: the next item that no flow goes beyond, or -1; ``rate``: the highest of the port."""
        if rate != self._rate or self._kept > _MOST:
            self._states.clear()
            self._rate, self._kept = rate, 0
        # What is computed is nothing to wait for, however long ago that was.
        key = (item, fence, *np.maximum(computed[front] - now, 0).tolist())
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = State()
            self._kept += len(key) + _EACH
        return state

    def learn(self, state: State, arrival: Arrival, step: Step) -> None:
        """In ``state`` a flow arrived like that."""
        state.steps[arrival] = step
        self._learned += 1
        self._kept += len(step.computed) + _EACH

    def left(self, state: State, rate: float) -> Ps:
        """ps from ``state`` to the end of the call while its flows get ``rate``, alone on the channel; -1 if it has
        not gone that way yet."""
        if state.left < 0 and state.tried != self._learned:
            way: list[State] = []
            at: State | None = state
            while at is not None and at.left < 0:
                way.append(at)
                at = _alone(at, rate)
            if at is None:
                state.tried = self._learned
                return -1
            left = at.left
            for before in reversed(way):
                left += before.wait or (before.alone.duration if before.alone is not None else 0)
                before.left = left
        return state.left


def _alone(state: State, rate: float) -> State | None:
    """The state behind this one on a channel of its own; None if it is not known."""
    if state.wait or state.parts is None:
        return state.later
    size, pace = state.parts.bytes, state.stretch.pace if state.stretch is not None else rate
    rate = min(rate, pace)
    state.alone = state.steps.get((False, round(size * PS_PER_S / rate), rate, float(size)))
    return state.alone.then if state.alone is not None else None
