"""A machine of round numbers for tests of the runtime and of streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import simpy
from hypothesis import settings

from bpusim.cores import BpuCore, HostCluster
from bpusim.dram import FlowChannel, Ideal, Rules
from bpusim.hardware import CoreSpec, HostSpec
from bpusim.hardware.presets import machine_preset
from bpusim.metrics import Ledger, Recorder
from bpusim.runtime import CoreQueue, Event, Executor, Fifo, PlacedModel, RuntimeOptions, Session
from bpusim.thermal import ClockDomain
from bpusim.trace import Header, Op, Phase, Repeat, Trace

settings.register_profile("bpusim", settings(), deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("bpusim")

NS = 1000
HOST = {
    "clock": "1 GHz",
    "per_request": "1000 ns",
    "tokenize_per_token": "10 ns",
    "per_token": "200 ns",
    "sample_per_entry": "5 ns",
    "per_frame": "60 ns",
    "dispatch": "40 ns",
    "dispatch_per_layer": "30 ns",
    "doorbell": "10 ns",
    "interrupt": "15 ns",
    "cache_per_byte": "100 ps/B",
    "allocate_per_tensor": "250 ns",
    "log_per_op": "41 ns",
    "fallback_op": "50 ns",
}


@dataclass
class Bench:
    """Cores at 1 GHz and a host on a channel of 10 B/ns: every op below costs a whole number of nanoseconds."""

    cpus: int = 2
    log_ops: bool = False
    memory_pool: bool = True
    async_submit: bool = True
    host_changes: Mapping[str, str] = field(default_factory=dict)
    count: int = 2
    policy: Callable[[], Any] = Fifo

    def __post_init__(self) -> None:
        board = machine_preset("bpu80")
        self.env = simpy.Environment()
        self.recorder = Recorder()
        self.channel = FlowChannel(self.env, Ideal(10**10), self.recorder, Rules("equal"))
        core = CoreSpec(
            clock="1 GHz", scratchpad="1 MB", activations="1 MB", op_overhead="0 s", layer_sync="0 s", toolchain="1.0",
            mac=board.cores.mac, vector=board.cores.vector, dma=board.cores.dma,
        )  # fmt: skip
        host = HostSpec(
            cores=self.cpus,
            dma=board.host.dma,
            fallback_cycles={"add": 4, "mul": 4, "exp": 50, "div": 20, "reduce": 4, "convert": 12, "mac": 2},
            **{**HOST, **self.host_changes},
        )
        self.host = HostCluster(self.env, host, self._port("cpu"), self.recorder)
        self.cores = [
            BpuCore(self.env, n, core, ClockDomain(n, core.clock), self._port(n), self.recorder)
            for n in (f"bpu{i}" for i in range(self.count))
        ]
        self.journal: list[Event] = []
        self.queues = {i: CoreQueue(self.env, c, self.policy(), self.journal) for i, c in enumerate(self.cores)}
        options = RuntimeOptions(self.log_ops, self.memory_pool, self.async_submit)
        self.executor = Executor(self.env, self.host, self.queues, options)

    def _port(self, name: str) -> Any:
        return self.channel.port(name, 10**6, NS, 10**10)

    @staticmethod
    def op(name: str, ns: int = 100, unit: str = "mac", **keys: Any) -> Op:
        """An op that computes for so many nanoseconds and moves nothing unless told to."""
        return Op(name, "A", unit, cycles=(ns,) if unit != "cpu" else (), **keys)  # type: ignore[arg-type]

    @staticmethod
    def trace(*items: Op | Repeat, phases: Sequence[str] = ("frame",), tokens: int = 0, **header: Any) -> Trace:
        """A trace whose phases all have these items."""
        return Trace(Header("m", {}, **header), (), {p: Phase(p, tokens, ("1", "kv"), items) for p in phases})

    @staticmethod
    def model(trace: Trace, *parts: tuple[int, Trace], context: int = 1000) -> PlacedModel:
        """The trace on core 0, or its parts where they are told to be."""
        return PlacedModel("m", trace, parts or ((0, trace),), context)

    def steps(self, model: PlacedModel, n: int = 1, session: Session | None = None) -> list[tuple[int, dict[str, int]]]:
        """Frames one after another: (when each was done, its causes in ns); causes sum to the elapsed time.

        Each but the last is told that another follows.
        """
        session = session or Session("s")
        out: list[tuple[int, dict[str, int]]] = []

        def user() -> Any:
            for k in range(n):
                begin, ledger = self.executor.now(), Ledger()
                yield from self.executor.step(session, model, "frame", 0, 1, ledger, more=k + 1 < n)
                assert sum(ledger.spent.values()) == self.executor.now() - begin
                out.append((self.executor.now() // NS, {c: v // NS for c, v in ledger.spent.items() if v}))

        self.env.run(until=self.env.process(user()))
        return out


@pytest.fixture(scope="session")
def bench() -> Callable[..., Bench]:
    """Makes a :class:`Bench`."""
    return Bench
