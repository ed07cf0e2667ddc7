"""What is worked out of a call before it runs, for whoever runs the same one: another core, the next point of a study.

It depends on the call, the clock, the core's sizes and the port's rate, and on nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from bpusim.cores.recall import Recall
from bpusim.cores.tiles import Alone, CallTimes
from bpusim.trace import CallLayout, CallPart, CallProgram

if TYPE_CHECKING:
    from bpusim.cores.plan import Timing

__all__ = ["alone_of", "times_of"]

_KEPT = 32
"""Calls that are kept, some 200 KB each where a prefill chunk is one call."""
_Speed = tuple[int, int, int, int]
"""Clock in Hz, scratchpad in bytes, ps of an op's and of a layer's overhead."""


def times_of(call: CallProgram, timing: Timing) -> CallTimes:
    """Item times of a call, with nothing recalled yet. Raises as :meth:`CallTimes.of` does."""
    if isinstance(call, CallPart):
        return CallTimes.of(call.items, *_speed(timing))
    return replace(_times(call.layout, call.at, _speed(timing)), recall=Recall())


def alone_of(call: CallProgram, timing: Timing, times: CallTimes, rate: float) -> Alone:
    """The call with the channel to itself. ``times``: of the call; ``rate``: B/s."""
    return Alone(times, rate) if isinstance(call, CallPart) else _alone(call.layout, call.at, _speed(timing), rate)


def _speed(timing: Timing) -> _Speed:
    return timing.hz, timing.scratchpad, timing.op_overhead, timing.layer_sync


# NOTE: for speed. A layout is itself and no other, and is kept with its trace.
@lru_cache(maxsize=_KEPT)
def _times(layout: CallLayout, at: tuple[int, ...], speed: _Speed) -> CallTimes:
    bound = layout.coefs @ np.array(at)
    return CallTimes.of(layout.items(bound, layout.tiling(bound)), *speed)


@lru_cache(maxsize=_KEPT)
def _alone(layout: CallLayout, at: tuple[int, ...], speed: _Speed, rate: float) -> Alone:
    return Alone(_times(layout, at, speed), rate)
