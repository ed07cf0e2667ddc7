"""Why a core stands still: between calls for the host, another core, or nobody asks; in calls for the memory."""

from __future__ import annotations

import simpy

from bpusim.cores import CallResult
from bpusim.units import Ps

__all__ = ["CoreWaits"]


class CoreWaits:
    """Time of one core by what it did or waited for. It is told of calls on it, and of requests whose next call is its
    (``host``: the host has them) or another core's (``elsewhere``)."""

    __slots__ = ("_elsewhere", "_env", "_host", "_running", "_since", "dram", "elsewhere", "host", "nothing")

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._since: Ps = 0
        self._running = self._host = self._elsewhere = 0
        self.host: Ps = 0
        """Idle, while the host had a request whose next call was the core's."""
        self.elsewhere: Ps = 0
        """Idle, while another core had a request that would come to this one."""
        self.nothing: Ps = 0
        """Idle, with no request at all."""
        self.dram: Ps = 0
        """In calls, waiting for data: an unloaded channel, room in the scratchpad, other masters."""

    def change(self, *, running: int = 0, host: int = 0, elsewhere: int = 0) -> None:
        """So many more calls on the core, requests with the host, requests with other cores."""
        now: Ps = self._env.now  # type: ignore[assignment]  # integer by construction
        if now > self._since:
            self._account(now - self._since)
            self._since = now
        self._running += running
        self._host += host
        self._elsewhere += elsewhere

    def _account(self, duration: Ps) -> None:
        if self._running:
            return
        if self._host:
            self.host += duration
        elif self._elsewhere:
            self.elsewhere += duration
        else:
            self.nothing += duration

    def passed(self, now: Ps, *, host: Ps, dram: Ps) -> None:
        """Up to ``now``, when a call began, it waited so long for the host, and in calls for data."""
        self.host += host
        self.dram += dram
        self._since = now

    def ran(self, result: CallResult) -> None:
        """A call, or a part of one, is over."""
        self.dram += result.dram + result.scratchpad + result.contention
        self.change(running=-1)
