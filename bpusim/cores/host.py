"""The CPU cluster: some cores, a queue when all are busy, and a DRAM port for what its work moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import simpy

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
    def written(self) -> int:
        """Those that are written."""
        return sum(n for (_, write), n in self.moved.items() if write)

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

    def work(self, duration: Ps, traffic: HostTraffic | None = None) -> Generator[simpy.Event, Any, Ps]:
        """Occupy one core for ``duration``, or until ``traffic`` has moved if that takes longer (a roofline).

        Returns the time spent in line for a core.
        """
        if duration <= 0 and (traffic is None or not traffic.bytes):
            return 0
        queued: Ps = 0
        if self._free:
            self._free -= 1
        else:
            turn = simpy.Event(self.env)
            self._line.append(turn)
            begin = self.env.now
            yield turn
            queued = self.env.now - begin  # type: ignore[assignment]  # integer by construction
        flow = self.port.start(traffic) if traffic is not None and traffic.bytes else None
        if duration > 0:
            yield self.env.timeout(duration)
        if flow is not None and traffic is not None:
            if not flow.done.processed:
                yield flow.done
            self.observer.moved(self.port.name, traffic.moved, self.env.now)  # type: ignore[arg-type]  # integer time
        if self._line:
            self._line.popleft().succeed()
        else:
            self._free += 1
        return queued

    def fallback_ps(self, work: CpuWork) -> Ps:
        """CPU time of a fallback op: entry into the kernel and cycles per element by class."""
        cycles = sum(n * self.spec.cost(c) for c, n in work.elements.items())
        return self.spec.fallback_op + cycles * PS_PER_S // self.spec.clock

    def cache_ps(self, n_bytes: int) -> Ps:
        """Cache maintenance on ``n_bytes`` shared with an accelerator."""
        return round(n_bytes * self.spec.cache_per_byte)
