"""Runs one step of a model: dispatch, calls, CPU ops, hand-overs, each interval charged to its cause."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import simpy

from bpusim.cores import CallResult, HostCluster, HostTraffic
from bpusim.metrics import Ledger
from bpusim.ports import BUFFER_KINDS
from bpusim.runtime.placement import PlacedModel
from bpusim.runtime.queue import CoreQueue
from bpusim.trace import CallProgram, CpuWork
from bpusim.units import Ps

__all__ = ["Executor", "RuntimeOptions", "Session"]

_KV = BUFFER_KINDS.index("kv")
_IO = BUFFER_KINDS.index("io")


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Settings of the host's runtime."""

    log_ops: bool = False
    memory_pool: bool = True
    async_submit: bool = True


@dataclass(slots=True)
class Session:
    """One stream's thread on the host. ``lead``: host time that was free while its last call ran."""

    stream: str
    lead: Ps = 0


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
        ledger.add("queueing", queued)
        ledger.add(cause, self.now() - begin - queued)

    def step(
        self, session: Session, model: PlacedModel, phase: str, kv: int, tokens: int, ledger: Ledger
    ) -> Generator[simpy.Event, Any, None]:
        """One pass over a phase of ``model``: a prefill chunk, a decode step, or a frame."""
        for part, (core, _) in enumerate(model.parts):
            program = model.bind(part, phase, kv, tokens)
            last_part = part == len(model.parts) - 1
            for k, segment in enumerate(program.segments):
                after_cpu = k > 0 and isinstance(program.segments[k - 1], CpuWork)
                before_cpu = k + 1 < len(program.segments) and isinstance(program.segments[k + 1], CpuWork)
                if isinstance(segment, CpuWork):
                    yield from self._fallback(segment, ledger)
                    continue
                enters = "fallback" if after_cpu else "handover" if part and not k else "dispatch"
                leaves = (
                    "fallback"
                    if before_cpu
                    else "handover"
                    if not last_part and k == len(program.segments) - 1
                    else "dispatch"
                )
                yield from self._call(session, self.queues[core], segment, phase, enters, leaves, ledger)

    def _call(
        self,
        session: Session,
        queue: CoreQueue,
        call: CallProgram,
        phase: str,
        enters: str,
        leaves: str,
        ledger: Ledger,
    ) -> Generator[simpy.Event, Any, None]:
        """Submit one call and wait for its interrupt."""
        spec = self.host.spec
        if not self.options.memory_pool:
            own = sum(b.startswith("io:") for op in call.ops for b in (*op.read, *op.write))
            yield from self.on_host(own * spec.allocate_per_tensor, "host", ledger)
        layers = int((call.writes[_KV] > 0).sum())
        prepare = max(spec.dispatch - spec.doorbell, 0) + layers * spec.dispatch_per_layer
        if self.options.async_submit and enters != "handover":
            prepare = max(prepare - session.lead, 0)
        yield from self.on_host(spec.doorbell + prepare, enters, ledger)
        submitted = self.now()
        result: CallResult = yield queue.submit(call, session.stream, phase)
        ledger.add("queueing", result.start - submitted)
        for cause in ("compute", "dispatch", "dram", "scratchpad", "contention"):
            ledger.add(cause, getattr(result, cause))
        session.lead = self.now() - submitted
        shared = int(call.writes[_IO].sum())
        yield from self.on_host(spec.interrupt + self.host.cache_ps(shared), leaves, ledger)
        if self.options.log_ops:
            yield from self.on_host(len(call.ops) * spec.log_per_op, "host", ledger)

    def _fallback(self, work: CpuWork, ledger: Ledger) -> Generator[simpy.Event, Any, None]:
        """An op on the CPU: allocation without a pool, cache maintenance, and the op with its DRAM traffic."""
        spec = self.host.spec
        if not self.options.memory_pool:
            yield from self.on_host(work.tensors * spec.allocate_per_tensor, "host", ledger)
        moved = work.read + work.write
        traffic = HostTraffic(f"spill:{work.op_id}", "spill", work.read, work.write)
        yield from self.on_host(self.host.cache_ps(moved) + self.host.fallback_ps(work), "fallback", ledger, traffic)
        if self.options.log_ops:
            yield from self.on_host(spec.log_per_op, "host", ledger)
