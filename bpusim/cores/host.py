"""The CPU cluster: some cores, a queue when all are busy, and a DRAM port for what its work moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush

import simpy

from bpusim.alarm import Later, alarm
from bpusim.hardware import HostSpec
from bpusim.ports import BufferKind, Clock, Observer, Port, Transfer
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
    """``cores`` equal CPU cores. Work takes one core; it waits in line when none is free.

    Durations are at the clock the cluster was made for; a slower ``clock`` stretches them, what is under way included.
    """

    def __init__(
        self, env: simpy.Environment, spec: HostSpec, port: Port, observer: Observer, clock: Clock | None = None
    ) -> None:
        self.env = env
        self.spec = spec
        self.port = port
        self.observer = observer
        self._kept = observer.wants_activity
        """Whether somebody looks at when cores are taken and given back."""
        self._taken: list[Ps] = []
        self._given: list[Ps] = []
        self._awake: Ps = 0
        self._woken: Ps = 0
        """When the first of those cores that work began."""
        self._free = spec.cores
        self._line: deque[_Job] = deque()
        self._aside: list[Ps] = []
        self._watched = False
        self._clock = clock
        self._full = clock.hz if clock is not None else 0
        self._timers: dict[_Timer, None] | None = None

    def governed(self) -> None:
        """Its clock may change from now on: what is under way is kept track of."""
        assert self._clock is not None
        self._timers = {}
        self._clock.on_change(self._retime)

    def _retime(self, hz: int) -> None:
        for timer in list(self._timers or ()):
            timer.retime(self.env.now, hz)  # type: ignore[arg-type]  # integer by construction

    def after(self, duration: Ps, then: Callable[[object], None]) -> None:
        """Call ``then`` when a core has worked for ``duration``."""
        if self._timers is None or self._clock is None:
            alarm(self.env, duration, then)
        else:
            _Timer(self, duration, self._clock.hz, then)

    def work(self, duration: Ps, traffic: HostTraffic | None = None) -> Later | None:
        """Occupy one core for ``duration``, or until ``traffic`` has moved if that takes longer (a roofline).

        The event's value is (time spent in line for a core, time that a slow clock has cost). None if there is nothing
        to do.
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
        """Work that nobody waits for yet, on a core of its own: when it will be done, or, if it has to wait in line or
        its clock may change, an event. While nobody else wants the core it costs no event."""
        if duration <= 0 or self._timers is not None or not self.take():
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
        if self._timers is not None and self._free == self.spec.cores:
            self._woken = self.env.now  # type: ignore[assignment]  # integer by construction
        self._free -= 1
        if self._kept:
            self._taken.append(self.env.now)  # type: ignore[arg-type]  # integer by construction
        return True

    def _return(self) -> None:
        """Cores of work set aside that is done: to those in line first."""
        now = self.env.now
        while self._aside and self._aside[0] <= now:
            self.give(heappop(self._aside))

    def give(self, at: Ps | None = None) -> None:
        """A core is free again, or was so at an earlier time."""
        if self._line:
            self._line.popleft().begin()
            return
        self._free += 1
        if self._timers is not None and self._free == self.spec.cores:
            self._awake += self.env.now - self._woken  # type: ignore[assignment]  # integer by construction
        if self._kept:
            self._given.append(self.env.now if at is None else at)  # type: ignore[arg-type]

    def look(self) -> tuple[list[Ps], list[Ps]]:
        """(when cores were taken, when they were given back) since the last look, in any order; for a meter."""
        if self._aside:
            self._return()
        taken, given = self._taken, self._given
        self._taken, self._given = [], []
        return taken, given

    def awake(self) -> float:
        """Seconds so far in which any core worked, once the clock is ``governed``."""
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        return (self._awake + (now - self._woken if self._free < self.spec.cores else 0)) / PS_PER_S

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
        """CPU time of a fallback op: entry into the kernel, cycles per element by class, measured cycles."""
        cycles = work.cycles + sum(n * self.spec.cost(c) for c, n in work.elements.items())
        return self.spec.fallback_op + cycles * PS_PER_S // self.spec.clock

    def cache_ps(self, n_bytes: int) -> Ps:
        """Cache maintenance on ``n_bytes`` shared with an accelerator."""
        return round(n_bytes * self.spec.cache_per_byte)


def _scaled(duration: Ps, by: int, over: int) -> Ps:
    """``duration * by / over`` to the nearest picosecond."""
    return (2 * duration * by + over) // (2 * over)


class _Timer:
    """Work under way whose end moves with the clock."""

    __slots__ = ("_alarm", "_end", "_host", "_hz", "_then")

    def __init__(self, host: HostCluster, duration: Ps, hz: int, then: Callable[[object], None]) -> None:
        self._host, self._hz, self._then = host, hz, then
        assert host._timers is not None
        host._timers[self] = None
        self._set(_scaled(duration, host._full, hz))

    def _set(self, left: Ps) -> None:
        env = self._host.env
        self._end: Ps = env.now + left  # type: ignore[assignment]  # integer by construction
        self._alarm = alarm(env, left, self._over)

    def retime(self, now: Ps, hz: int) -> None:
        """What is left takes as many cycles as before."""
        left = self._end - now
        if left > 0:
            self._set(_scaled(left, self._hz, hz))
        self._hz = hz

    def _over(self, timer: object) -> None:
        if timer is self._alarm:  # else the clock has changed since
            assert self._host._timers is not None
            del self._host._timers[self]
            self._then(self)


class _Job:
    """Work of a core, from when it asks for one."""

    __slots__ = ("_left", "_moved_at", "_worked", "asked", "begun", "done", "duration", "host", "traffic")

    def __init__(self, host: HostCluster, duration: Ps, traffic: HostTraffic | None) -> None:
        self.host, self.duration, self.traffic = host, duration, traffic
        self.done = Later(host.env)
        self.asked = self.begun = host.env.now
        self._left = 2
        self._worked: Ps = 0
        self._moved_at: Ps = 0

    def begin(self) -> None:
        """It has a core."""
        host, traffic = self.host, self.traffic
        self.begun = host.env.now
        if traffic is None:
            self._left = 1
            host.after(self.duration, self._compute_over)
            return
        host.port.start(traffic, then=self._moved)
        if self.duration > 0:
            host.after(self.duration, self._compute_over)
        else:
            self._compute_over(None)

    def _compute_over(self, _: object) -> None:
        self._worked = self.host.env.now  # type: ignore[assignment]  # integer by construction
        self._part_over()

    def _moved(self, _: object) -> None:
        """Its bytes have moved."""
        host, traffic = self.host, self.traffic
        assert traffic is not None
        self._moved_at = host.env.now  # type: ignore[assignment]  # integer by construction
        host.observer.moved(host.port.name, traffic.moved, self._moved_at)
        self._part_over()

    def _part_over(self) -> None:
        """It takes both: the work, and its bytes."""
        self._left -= 1
        if self._left:
            return
        self.host.give()
        # At the clock it was made for it would have been over when its bytes had moved, and its duration gone by.
        lost = self._worked - max(self.begun + self.duration, self._moved_at)
        self.done.happen((self.begun - self.asked, max(lost, 0)))
