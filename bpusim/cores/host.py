"""The CPU cluster: some cores, a queue when all are busy, and a DRAM port for what its work moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import simpy

from bpusim.alarm import alarm
from bpusim.hardware import HostSpec
from bpusim.ports import BufferKind, Observer, Port, Transfer
from bpusim.trace import CpuWork
from bpusim.units import PS_PER_S, Ps

__all__ = ["HostCluster", "HostTraffic"]


@dataclass(frozen=True, slots=True)
class HostTraffic:
    """Bytes that host work moves, by (buffer kind, is a write): a :class:`bpusim.ports.TransferList`."""

    buffer: str
    moved: Mapping[tuple[BufferKind, bool], int]

    @property
    def bytes(self) -> int:
        """All together."""
        return sum(self.moved.values())

    @property
    def mix(self) -> float:
        """Part of them that is written."""
        total = self.bytes
        return round(sum(n for (_, write), n in self.moved.items() if write) / total, 2) if total else 0.0

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
        self._line: deque[simpy.Event] = deque()
        self._aside: list[Ps] = []
        self._watched = False

    def work(self, duration: Ps, traffic: HostTraffic | None = None) -> Generator[simpy.Event, Any, Ps]:
        """Occupy one core for ``duration``, or until ``traffic`` has moved if that takes longer (a roofline).

        Returns the time spent in line for a core.
        """
        if duration <= 0 and (traffic is None or not traffic.bytes):
            return 0
        queued: Ps = 0
        if not self.take():
            turn = simpy.Event(self.env)
            self._line.append(turn)
            self._watch()
            begin = self.env.now
            yield turn
            queued = self.env.now - begin  # type: ignore[assignment]  # integer by construction
        flow = self.port.start(traffic) if traffic is not None and traffic.bytes else None
        if duration > 0:
            yield self.env.timeout(duration)
        if flow is not None and traffic is not None:
            if not flow.ended:
                yield flow.done
            self.observer.moved(self.port.name, traffic.moved, self.env.now)  # type: ignore[arg-type]  # integer time
        self.give()
        return queued

    def aside(self, duration: Ps) -> Ps | simpy.Event:
        """Work that nobody waits for yet, on a core of its own: when it will be done, or, if it has to wait in line, an
        event. While nobody else wants the core it costs no event."""
        if not self.take():
            return self.env.process(self.work(duration))
        end: Ps = self.env.now + duration  # type: ignore[assignment]  # integer by construction
        heappush(self._aside, end)
        return end

    def take(self) -> bool:
        """Occupy a core, if one is free; ``give`` it back."""
        while self._aside and self._aside[0] <= self.env.now:
            heappop(self._aside)
            self._free += 1
        if not self._free:
            return False
        self._free -= 1
        return True

    def give(self) -> None:
        """A core is free again."""
        if self._line:
            self._line.popleft().succeed()
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
        if self._aside and self._aside[0] <= self.env.now:
            heappop(self._aside)
            self.give()
        self._watch()

    def fallback_ps(self, work: CpuWork) -> Ps:
        """CPU time of a fallback op: entry into the kernel and cycles per element by class."""
        cycles = sum(n * self.spec.cost(c) for c, n in work.elements.items())
        return self.spec.fallback_op + cycles * PS_PER_S // self.spec.clock

    def cache_ps(self, n_bytes: int) -> Ps:
        """Cache maintenance on ``n_bytes`` shared with an accelerator."""
        return round(n_bytes * self.spec.cache_per_byte)
