"""The CPU cluster: some cores, a queue when all are busy, and a DRAM port for what its work moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

import simpy

from bpusim.alarm import Later, alarm
from bpusim.hardware import HostSpec
from bpusim.ports import BufferKind, Observer, Port, Transfer
from bpusim.trace import CpuWork
from bpusim.units import PS_PER_S, Ps

__all__ = ["HostCluster", "HostTraffic"]


class HostTraffic:
    """Bytes that host work moves, by (buffer kind, is a write): a :class:`bpusim.ports.TransferList`."""

    __slots__ = ("buffer", "bytes", "mix", "moved")

    def __init__(self, buffer: str, moved: Mapping[tuple[BufferKind, bool], int]) -> None:
        self.buffer = buffer
        self.moved = moved
        self.bytes = sum(moved.values())
        """All together."""
        written = sum(n for (_, write), n in moved.items() if write)
        self.mix = round(written / self.bytes, 2) if written else 0.0
        """Part of them that is written."""

    def __iter__(self) -> Iterator[Transfer]:
        for (kind, write), n in self.moved.items():
            yield Transfer(self.buffer, 0, n, kind, write)


class HostCluster:
    """``cores`` equal CPU cores. Work takes one core; it waits in line when none is free."""

    def __init__(self, env: simpy.Environment, spec: HostSpec, port: Port, observer: Observer) -> None:
        self.env = env
        self.spec = spec
        self.port = port
        self.observer = observer
        self._free = spec.cores
        self._line: deque[_Job] = deque()
        self._aside: list[Ps] = []
        self._watched = False

    def work(self, duration: Ps, traffic: HostTraffic | None = None) -> Later | None:
        """Occupy one core for ``duration``, or until ``traffic`` has moved if that takes longer (a roofline).

        The event's value is the time spent in line for a core. None if there is nothing to do.
        """
        if traffic is not None and not traffic.bytes:
            traffic = None
        if duration <= 0 and traffic is None:
            return None
        job = _Job(self, duration, traffic)
        if self.take():
            job.begin()
        else:
            self._line.append(job)
            self._watch()
        return job.done

    def aside(self, duration: Ps) -> Ps | simpy.Event | None:
        """Work that nobody waits for yet, on a core of its own: when it will be done, or, if it has to wait in line, an
        event. While nobody else wants the core it costs no event."""
        if duration <= 0 or not self.take():
            return self.work(duration)
        end: Ps = self.env.now + duration  # type: ignore[assignment]  # integer by construction
        heappush(self._aside, end)
        return end

    def take(self) -> bool:
        """Occupy a core, if one is free and nobody is in line; ``give`` it back."""
        if self._aside:
            self._return()
        if not self._free or self._line:
            return False
        self._free -= 1
        return True

    def _return(self) -> None:
        """Cores of work set aside that is done: to those in line first."""
        now = self.env.now
        while self._aside and self._aside[0] <= now:
            heappop(self._aside)
            self.give()

    def give(self) -> None:
        """A core is free again."""
        if self._line:
            self._line.popleft().begin()
        else:
            self._free += 1

    def _watch(self) -> None:
        """Somebody is in line: see to the next core that work set aside gives back."""
        if self._aside and self._line and not self._watched:
            self._watched = True
            wait: Ps = self._aside[0] - self.env.now  # type: ignore[assignment]  # integer by construction
            alarm(self.env, wait, self._back)

    def _back(self, _alarm: object) -> None:
        self._watched = False
        self._return()
        self._watch()

    def fallback_ps(self, work: CpuWork) -> Ps:
        """CPU time of a fallback op: entry into the kernel and cycles per element by class."""
        cycles = sum(n * self.spec.cost(c) for c, n in work.elements.items())
        return self.spec.fallback_op + cycles * PS_PER_S // self.spec.clock

    def cache_ps(self, n_bytes: int) -> Ps:
        """Cache maintenance on ``n_bytes`` shared with an accelerator."""
        return round(n_bytes * self.spec.cache_per_byte)


class _Job:
    """Work of a core, from when it asks for one."""

    __slots__ = ("_left", "asked", "done", "duration", "host", "queued", "traffic")

    def __init__(self, host: HostCluster, duration: Ps, traffic: HostTraffic | None) -> None:
        self.host, self.duration, self.traffic = host, duration, traffic
        self.done = Later(host.env)
        self.asked = host.env.now
        self.queued: Ps = 0
        self._left = 2

    def begin(self) -> None:
        """It has a core."""
        host, traffic = self.host, self.traffic
        self.queued = host.env.now - self.asked  # type: ignore[assignment]  # integer by construction
        if traffic is None:
            self.done.callbacks.append(self._over)
            self.done.succeed_in(self.duration, self.queued)
            return
        host.port.start(traffic, then=self._half)
        if self.duration > 0:
            alarm(host.env, self.duration, self._half)
        else:
            self._half(None)

    def _half(self, _: object) -> None:
        """Its time is over, or its bytes have moved: it takes both."""
        self._left -= 1
        if self._left == 0 and self.traffic is not None:
            host = self.host
            host.observer.moved(host.port.name, self.traffic.moved, host.env.now)  # type: ignore[arg-type]
            host.give()
            self.done.happen(self.queued)

    def _over(self, _: object) -> None:
        self.host.give()
