"""A BPU core on a port whose rates are written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from bpusim.cores import BpuCore, CallResult, Merge
from bpusim.hardware import CoreSpec
from bpusim.hardware.presets import machine_preset
from bpusim.metrics import Recorder
from bpusim.ports import Flow, TransferList
from bpusim.thermal import ClockDomain
from bpusim.trace import CallProgram, Header, Op, Phase, Repeat, Trace

NS = 1000
RATE = 10**10  # B/s: 100 B in 10 ns
GHZ = 10**9  # a cycle is a nanosecond


@dataclass
class FakeFlow:
    """Arrives at one rate."""

    history: list[tuple[int, float, float, float]]
    done: simpy.Event
    slowed: bool
    throttled: float = 0.0
    ended: bool = False

    def set_limit(self, bytes_per_s: float | None) -> None:  # noqa: ARG002 (the protocol's signature)
        raise AssertionError("a core does not limit its flows")

    def served(self, at: int) -> float:  # noqa: ARG002 (the protocol's signature)
        raise AssertionError("a core does not ask for that")

    def cut(self, sizes: Sequence[int]) -> int:  # noqa: ARG002 (the protocol's signature)
        raise AssertionError("a core does not cut its flows at one clock")


@dataclass
class FakePort:
    """Gives the n-th flow the n-th of ``rates``, later ones the last; ``log`` has (when, bytes) of each."""

    env: simpy.Environment
    rates: Sequence[float] = (RATE,)
    latency: int = 0
    rate_alone: float = RATE
    name: str = "bpu0"
    log: list[tuple[int, int]] = field(default_factory=list)

    @property
    def rate_max(self) -> float:
        return max(self.rate_alone, *self.rates)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Its rates are what they are."""

    def start(
        self,
        parts: TransferList,
        *,
        limit: float | None = None,
        pace: float | None = None,
        rising: Callable[[], None] | None = None,
        then: Callable[[Flow], None] | None = None,
    ) -> FakeFlow:
        assert limit is pace is rising is None
        rate = self.rates[min(len(self.log), len(self.rates) - 1)]
        now, size = self.env.now, parts.bytes
        self.log.append((now, size))
        duration = round(size * 1e12 / rate)
        flow = FakeFlow(
            [(now, 0.0, rate, self.rate_alone), (now + duration, size, 0.0, self.rate_alone)],
            self.env.event(),
            slowed=rate < self.rate_alone,
        )

        def end(_: simpy.Event) -> None:
            flow.ended = True
            flow.done.succeed(flow)
            if then is not None:
                then(flow)

        timer = self.env.timeout(duration)
        timer.callbacks.append(end)
        return flow


def spec(**changes: str) -> CoreSpec:
    """A core at 1 GHz with room for everything and free ops."""
    board = machine_preset("bpu80").cores
    values = {
        "clock": "1 GHz", "scratchpad": "1 MB", "activations": "1 MB", "op_overhead": "0 s", "layer_sync": "0 s"
    }  # fmt: skip
    return CoreSpec(**(values | changes), mac=board.mac, vector=board.vector, dma=board.dma, toolchain="1.0")


def call_of(*ops: Op | Repeat) -> CallProgram:
    trace = Trace(Header("m", {}), (), {"frame": Phase("frame", 0, ("1",), ops)})
    (call,) = trace.bind("frame").calls
    return call


def op(name: str, read: int = 100, cycles: int = 4, tiles: int = 1, write: int = 0, **keys: Any) -> Op:
    return Op(
        name, "A", "mac", cycles=(cycles,), tiles=(tiles,), read={"kv": (read,)} if read else {},
        write={"io:o": (write,)} if write else {}, **keys,
    )  # fmt: skip


def core_on(
    env: simpy.Environment, port: Any, observer: Any = None, *, merge: Merge = "exact", **changes: str
) -> BpuCore:
    clock = ClockDomain("bpu0", GHZ)
    return BpuCore(env, "bpu0", spec(**changes), clock, port, observer or Recorder(), merge=merge)


def begin(core: BpuCore, call: CallProgram, label: str = "s/frame") -> simpy.Event:
    """Begin a call; the event succeeds with its result."""
    done = simpy.Event(core.env)

    def then(result: CallResult) -> None:
        done.succeed(result)

    core.run(call, label, then)
    return done


def run(env: simpy.Environment, core: BpuCore, call: CallProgram) -> CallResult:
    result = env.run(until=begin(core, call))
    assert isinstance(result, CallResult)
    return result
