"""Runs one step of a model: dispatch, calls, CPU ops, hand-overs, each interval charged to its cause."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import simpy

from bpusim.alarm import Later
from bpusim.cores import CallResult, HostCluster, HostTraffic
from bpusim.metrics import Ledger
from bpusim.runtime.placement import PlacedModel
from bpusim.runtime.queue import CoreQueue
from bpusim.trace import CallProgram, CpuWork
from bpusim.units import Ps

__all__ = ["Executor", "RuntimeOptions", "Session"]


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Settings of the host's runtime."""

    log_ops: bool = False
    memory_pool: bool = True
    async_submit: bool = True


@dataclass(slots=True)
class Session:
    """One stream's thread on the host. ``ahead``: when its next call is prepared, on a CPU core of its own; an event if
    that core has to be waited for."""

    stream: str
    ahead: Ps | simpy.Event | None = None


class Executor:
    """The runtime's way of running a step on the machine."""

    def __init__(
        self, env: simpy.Environment, host: HostCluster, queues: Mapping[int, CoreQueue], options: RuntimeOptions
    ) -> None:
        self.env = env
        self.host = host
        self.queues = queues
        self.options = options

    def now(self) -> Ps:
        """Simulated time."""
        return self.env.now  # type: ignore[return-value]  # integer by construction

    def on_host(
        self, duration: Ps, cause: str, ledger: Ledger, traffic: HostTraffic | None = None
    ) -> Generator[simpy.Event, Any, None]:
        """Host work, charged to ``cause``; time in line for a CPU core is ``queueing``."""
        begin = self.now()
        queued = yield from self.host.work(duration, traffic)
        if queued:
            ledger.add("queueing", queued)
        ledger.add(cause, self.now() - begin - queued)

    def step(
        self,
        session: Session,
        model: PlacedModel,
        phase: str,
        kv: int,
        tokens: int,
        ledger: Ledger,
        *,
        more: bool = False,
    ) -> Generator[simpy.Event, Any, None]:
        """One pass over a phase of ``model``: a prefill chunk, a decode step, or a frame.

        ``more``: another step is sure to follow, so that an asynchronous runtime prepares its first call meanwhile.
        """
        programs = [model.bind(part, phase, kv, tokens) for part in range(len(model.parts))]
        first = self._preparation(programs[0].calls[0]) if more and programs[0].calls else 0
        for part, (core, _) in enumerate(model.parts):
            segments = programs[part].segments
            calls = [k for k, s in enumerate(segments) if isinstance(s, CallProgram)]
            for k, segment in enumerate(segments):
                if isinstance(segment, CpuWork):
                    yield from self._fallback(segment, ledger)
                    continue
                last = k == calls[-1]
                hands_over = last and part < len(model.parts) - 1
                after_cpu = k > 0 and isinstance(segments[k - 1], CpuWork)
                before_cpu = k + 1 < len(segments) and isinstance(segments[k + 1], CpuWork)
                enters = "fallback" if after_cpu else "handover" if part and k == calls[0] else "dispatch"
                leaves = "fallback" if before_cpu else "handover" if hands_over else "dispatch"
                upcoming = 0 if hands_over else first
                if not last:
                    follower = segments[calls[calls.index(k) + 1]]
                    upcoming = self._preparation(follower) if isinstance(follower, CallProgram) else 0
                yield from self._call(session, self.queues[core], segment, phase, enters, leaves, upcoming, ledger)

    def _preparation(self, call: CallProgram) -> Ps:
        """Host work before the doorbell of ``call``: descriptors, and the cache addresses of every layer."""
        spec = self.host.spec
        return max(spec.dispatch - spec.doorbell, 0) + call.layout.caches * spec.dispatch_per_layer

    def _call(
        self,
        session: Session,
        queue: CoreQueue,
        call: CallProgram,
        phase: str,
        enters: str,
        leaves: str,
        upcoming: Ps,
        ledger: Ledger,
    ) -> Generator[simpy.Event, Any, None]:
        """Submit one call and wait for its interrupt; prepare the ``upcoming`` one meanwhile, if submit is async."""
        spec = self.host.spec
        if not self.options.memory_pool:
            yield from self.on_host(call.layout.tensors * spec.allocate_per_tensor, "host", ledger)
        ahead, session.ahead = session.ahead, None
        prepare = self._preparation(call) if ahead is None else 0
        if ahead is not None:
            begin = self.now()
            if isinstance(ahead, simpy.Event):
                if not ahead.processed:
                    yield ahead
            elif ahead > begin:
                yield self.env.timeout(ahead - begin)
            ledger.add(enters, self.now() - begin)
        yield from self.on_host(prepare + spec.doorbell, enters, ledger)
        submitted = self.now()
        leaving = spec.interrupt + self.host.cache_ps(call.written("io"))
        over, held = Later(self.env), False

        def ended(result: CallResult) -> None:
            # The interrupt follows at once if a CPU core is free for it: one event for both.
            nonlocal held
            held = leaving > 0 and self.host.take()
            over.succeed_in(leaving if held else 0, result)

        queue.submit(call, session.stream, phase, ended)
        if self.options.async_submit and upcoming:
            session.ahead = self.host.aside(upcoming)
        result: CallResult = yield over
        ledger.add("queueing", result.start - submitted)
        for cause, duration in result.causes():
            ledger.add(cause, duration)
        if held:
            self.host.give()
            ledger.add(leaves, leaving)
        else:
            yield from self.on_host(leaving, leaves, ledger)
        if self.options.log_ops:
            yield from self.on_host(len(call.ops) * spec.log_per_op, "host", ledger)

    def _fallback(self, work: CpuWork, ledger: Ledger) -> Generator[simpy.Event, Any, None]:
        """An op on the CPU: allocation without a pool, cache maintenance, and the op with its DRAM traffic."""
        spec = self.host.spec
        if not self.options.memory_pool:
            yield from self.on_host(work.tensors * spec.allocate_per_tensor, "host", ledger)
        traffic = HostTraffic(f"spill:{work.op_id}", work.moved)
        yield from self.on_host(
            self.host.cache_ps(traffic.bytes) + self.host.fallback_ps(work), "fallback", ledger, traffic
        )
        if self.options.log_ops:
            yield from self.on_host(spec.log_per_op, "host", ledger)
