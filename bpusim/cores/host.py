"""The CPU cluster: some cores, a queue when all are busy, and a DRAM port for what its work moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from fractions import Fraction
from heapq import heappop, heappush

import simpy

from bpusim.alarm import Later, alarm
from bpusim.cores.pools import WHOLE, Affinity, CorePool, Laid, cut
from bpusim.cores.traffic import HostTraffic
from bpusim.hardware import HostSpec
from bpusim.ports import Clock, Observer, Port
from bpusim.trace import CpuWork
from bpusim.units import PS_PER_S, Ps

__all__ = ["HostCluster"]


class HostCluster:
    """CPU cores, and perhaps slow ones. Work takes one that its ``affinity`` allows, a fast one before a slow one; it
    waits in line when none is free.

    Durations are those of a fast core at the clock the cluster was made for. A slow core takes longer, and a slower
    ``clock`` stretches them, what is under way included.
    """

    def __init__(
        self,
        env: simpy.Environment,
        spec: HostSpec,
        port: Port,
        observer: Observer,
        clock: Clock | None = None,
        affinity: Affinity = "any",
    ) -> None:
        self.env = env
        self.spec = spec
        self.port = port
        self.observer = observer
        self._kept = False
        """Whether a meter looks at when cores are taken and given back."""
        self._told = observer.wants_host
        self._awake: Ps = 0
        self._woken: Ps = 0
        """When the first of those cores that work began."""
        self._working = 0
        self.fast = CorePool(spec.cores)
        self.slow = CorePool(spec.slow.cores, Fraction(str(spec.slow.speed))) if spec.slow is not None else CorePool(0)
        self._pools: dict[Affinity | None, tuple[CorePool, ...]] = {
            "any": (self.fast, self.slow) if self.slow.cores else (self.fast,),
            "fast": (self.fast,),
            "slow": (self.slow,),
        }
        self._pools[None] = self._pools[affinity]
        self._line: deque[_Job] = deque()
        self._aside: list[tuple[Ps, bool]] = []
        """Work that nobody waits for yet: when it ends, whether on a slow core."""
        self._watched = False
        self._clock = clock
        self._full = clock.hz if clock is not None else 0
        self._timers: dict[_Timer, None] | None = None

    def metered(self) -> None:
        """Somebody will ``look`` at when cores are taken and given back."""
        self._kept = True

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

    def cores(self, affinity: Affinity | None = None) -> int:
        """How many there are of those that work may take."""
        return sum(pool.cores for pool in self._pools[affinity])

    def work(self, duration: Ps, traffic: HostTraffic | None = None, laid: Laid = WHOLE) -> Later | None:
        """Occupy a core for ``duration``, or until ``traffic`` has moved if that takes longer (a roofline). In several
        parts: one core for each, which begin together and are dealt to cores as these are free; it is over with the
        slowest.

        The event's value is (time spent in line for a core, time that a slow clock has cost), of several parts those of
        the last one. None if there is nothing to do.
        """
        if traffic is not None and not traffic.bytes:
            traffic = None
        if duration <= 0 and traffic is None:
            return None
        if laid.parts == 1:
            return self._job(duration, traffic, laid.affinity).done
        return self._team(duration, traffic, laid)

    def _job(self, duration: Ps, traffic: HostTraffic | None, affinity: Affinity | None) -> _Job:
        job = _Job(self, duration, traffic, self._pools[affinity])
        pool = self.take(affinity)
        if pool is not None:
            job.begin(pool)
        else:
            self._line.append(job)
            self._watch()
        return job

    def _team(self, duration: Ps, traffic: HostTraffic | None, laid: Laid) -> Later:
        """Equal parts; each also pays for starting and joining all of them."""
        n, over = laid.parts, Later(self.env)
        loads = traffic.cut(n) if traffic is not None else [None] * n
        left = n

        def ended(part: simpy.Event) -> None:
            nonlocal left
            left -= 1
            if not left:
                over.happen(part.value)

        for share, load in zip(cut(duration, n), loads, strict=True):
            load = load if load is not None and load.bytes else None
            part = self._job(share + n * self.spec.join_per_part, load, laid.affinity).done
            assert part.callbacks is not None
            part.callbacks.append(ended)
        return over

    def aside(self, duration: Ps) -> Ps | simpy.Event | None:
        """Work that nobody waits for yet, on a core of its own: when it will be done, or, if it has to wait in line or
        its clock may change, an event. While nobody else wants the core it costs no event."""
        if duration <= 0 or self._timers is not None:
            return self.work(duration)
        pool = self.take()
        if pool is None:
            return self.work(duration)
        end: Ps = self.env.now + pool.span(duration)  # type: ignore[assignment]  # integer by construction
        heappush(self._aside, (end, pool is self.slow))
        return end

    def take(self, affinity: Affinity | None = None) -> CorePool | None:
        """Occupy a core, if one is free: whoever is in line may not use it. ``give`` it back to where it is from."""
        if self._aside:
            self._return()
        for pool in self._pools[affinity]:
            if pool.free:
                break
        else:
            return None
        if self._timers is not None and not self._working:
            self._woken = self.env.now  # type: ignore[assignment]  # integer by construction
        pool.free -= 1
        self._working += 1
        if self._kept:
            pool.taken.append(self.env.now)  # type: ignore[arg-type]  # integer by construction
        if self._told:
            self.observer.host_took(self.env.now)  # type: ignore[arg-type]  # integer by construction
        return pool

    def _return(self) -> None:
        """Cores of work set aside that is done: to those in line first."""
        now = self.env.now
        while self._aside and self._aside[0][0] <= now:
            end, slow = heappop(self._aside)
            self.give(self.slow if slow else self.fast, end)

    def give(self, pool: CorePool, at: Ps | None = None) -> None:
        """A core is free again, or was so at an earlier time: the first in line that may use it takes it."""
        for k, job in enumerate(self._line):
            if pool in job.pools:
                del self._line[k]
                job.begin(pool)
                return
        pool.free += 1
        self._working -= 1
        if self._timers is not None and not self._working:
            self._awake += self.env.now - self._woken  # type: ignore[assignment]  # integer by construction
        if self._kept:
            pool.given.append(self.env.now if at is None else at)  # type: ignore[arg-type]
        if self._told:
            self.observer.host_gave(self.env.now if at is None else at)  # type: ignore[arg-type]

    def aside_until(self, cores: int) -> list[Ps] | None:
        """When each work that is set aside ends, if there is no other and nobody watches, and so many cores are alike
        that work takes first; else None."""
        if self._aside:
            self._return()
        watched = self._kept or self._told or self._timers is not None
        if watched or self._line or self._working > len(self._aside) or self._pools[None][0].cores < cores:
            return None
        return [end for end, _ in self._aside]

    def set_aside(self, ends: Iterable[Ps]) -> None:
        """This work is set aside, and there is no other: later than when it was ``aside_until``."""
        for pool in (self.fast, self.slow):
            pool.free = pool.cores
        pool = self._pools[None][0]
        self._aside = sorted((end, pool is self.slow) for end in ends)
        self._working = len(self._aside)
        pool.free -= self._working

    def span(self, duration: Ps) -> Ps:
        """What ``duration`` is on a core that work takes first."""
        return self._pools[None][0].span(duration)

    def look(self, *, slow: bool = False) -> tuple[list[Ps], list[Ps]]:
        """(when fast cores, or ``slow`` ones, were taken, when they were given back) since the last look; for a
        meter."""
        if self._aside:
            self._return()
        return (self.slow if slow else self.fast).look()

    def awake(self) -> float:
        """Seconds so far in which any core worked, once the clock is ``governed``."""
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        return (self._awake + (now - self._woken if self._working else 0)) / PS_PER_S

    def _watch(self) -> None:
        """Somebody is in line: see to the next core that work set aside gives back."""
        if self._aside and self._line and not self._watched:
            self._watched = True
            wait: Ps = self._aside[0][0] - self.env.now  # type: ignore[assignment]  # integer by construction
            alarm(self.env, wait, self._back)

    def _back(self, _alarm: object) -> None:
        self._watched = False
        self._return()
        self._watch()

    def write(self, traffic: HostTraffic, limit: int) -> simpy.Event:
        """Move ``traffic`` at no more than ``limit`` B/s without a CPU core, as a device behind its port does."""
        done = simpy.Event(self.env)

        def over(_: object) -> None:
            self.observer.moved(self.port.name, traffic.moved, self.env.now)  # type: ignore[arg-type]
            done.succeed()

        self.port.start(traffic, limit=float(limit), then=over)
        return done

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

    __slots__ = (
        "_left", "_moved_at", "_worked", "asked", "begun", "done", "duration", "host", "pool", "pools", "traffic",
    )  # fmt: skip

    def __init__(
        self, host: HostCluster, duration: Ps, traffic: HostTraffic | None, pools: tuple[CorePool, ...]
    ) -> None:
        self.host, self.duration, self.traffic, self.pools = host, duration, traffic, pools
        self.pool = pools[0]
        self.done = Later(host.env)
        self.asked = self.begun = host.env.now
        self._left = 2
        self._worked: Ps = 0
        self._moved_at: Ps = 0

    def begin(self, pool: CorePool) -> None:
        """It has a core."""
        host, traffic = self.host, self.traffic
        self.pool, self.duration = pool, pool.span(self.duration)
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
        self.host.give(self.pool)
        # At the clock it was made for it would have been over when its bytes had moved, and its duration gone by.
        lost = self._worked - max(self.begun + self.duration, self._moved_at)
        self.done.happen((self.begun - self.asked, max(lost, 0)))
