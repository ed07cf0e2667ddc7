"""The rest of a call as one event, while its core has the channel to itself and it has all come before.

Alone on the channel a flow arrives in the time of its bytes. Where the states behind it are known too
(:mod:`bpusim.cores.recall`), so is the end of the call, and nothing happens in between that anybody sees. If somebody
wants the channel, or to know what has been moved, or the core itself is disturbed, the call goes on as if every flow
had been started: those that are over have moved, and the one under way began when it would have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpusim.alarm import alarm
from bpusim.ports import LonePort
from bpusim.units import Ps

if TYPE_CHECKING:
    from bpusim.cores.bpu import BpuCore
    from bpusim.cores.run import TiledRun

__all__ = ["Passing"]


class Passing:
    """A call on its way to its end: a :class:`bpusim.ports.Passage`."""

    __slots__ = ("_core", "_port", "_run", "_timer")

    def __init__(self, core: BpuCore, port: LonePort, run: TiledRun, left: Ps) -> None:
        self._core, self._port, self._run = core, port, run
        port.hold(self)
        self._timer: object = alarm(core.env, left, self._over)

    def _over(self, timer: object) -> None:
        if timer is self._timer:
            self._port.vacate(self._run.passed(None))
            self._core.passed(self._run, over=True)

    def interrupted(self, now: Ps) -> None:
        """Somebody else wants the channel, or to know what has been moved."""
        self._timer = None
        self._port.vacate(self._run.passed(now))
        self._core.passed(self._run, self._run.carry_on(now), over=False)
