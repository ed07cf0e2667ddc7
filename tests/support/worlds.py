"""Small machines of several cores on one channel, played tile by tile or merged, every op watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import simpy
from flows import Parts

from bpusim.cores import BpuCore, Merge
from bpusim.dram import FlowChannel, FlowPort, Ideal, Rules
from bpusim.dram.behaviour import Behaviour
from bpusim.hardware import CoreSpec, MasterSpec
from bpusim.hardware.presets import machine_preset
from bpusim.metrics import CoreCounters, Recorder
from bpusim.ports import CallDetail
from bpusim.thermal import ClockDomain
from bpusim.trace import CallProgram, Header, Op, Phase, Repeat, Trace

NS = 1000
US = 1000 * NS
RATE = 10**10  # B/s: a byte in 100 ps
GHZ = 10**9  # a cycle is a nanosecond
KB = 1000
BASIS = ("1", "kv", "ceil(kv/256)")
IDEAL = Ideal(RATE)


class Counting(simpy.Environment):
    """Counts its events."""

    steps = 0

    def step(self) -> None:
        super().step()
        self.steps += 1


class Watch(Recorder):
    """Writes down what each op did, and the lowest rate that each master got."""

    __slots__ = ("details", "lowest")

    def __init__(self) -> None:
        super().__init__()
        self.details: list[CallDetail] = []
        self.lowest: dict[str, float] = {}

    @property
    def wants_detail(self) -> bool:
        return True

    def call_detailed(self, detail: CallDetail) -> None:
        self.details.append(detail)

    @property
    def wants_rates(self) -> bool:
        return True

    def rates_changed(self, at: int, rates: Mapping[str, float]) -> None:  # noqa: ARG002 (the protocol's signature)
        for name, rate in rates.items():
            if rate:
                self.lowest[name] = min(rate, self.lowest.get(name, rate))


def trace_of(*items: Op | Repeat) -> Trace:
    """A trace of one phase."""
    return Trace(Header("m", {}), (), {"frame": Phase("frame", 0, BASIS, items)})


@dataclass(frozen=True)
class Work:
    """What one core does: calls of a trace at these positions (of one sequence, or of several), back to back from
    ``start`` on."""

    trace: Trace
    kvs: tuple[int | tuple[int, ...], ...]
    start: int = 0
    room: int = 10**9
    op_overhead: int = 0
    layer_sync: int = 0
    window: int = 10**6
    path: int = NS
    hz: int = GHZ
    limit: int = RATE

    def call(self, kv: int | tuple[int, ...]) -> CallProgram:
        (call,) = self.trace.bind("frame", kv=kv).calls
        return call

    @property
    def largest(self) -> int:
        """Bytes of its largest tile or write."""
        return max(int(self.call(kv).items.bytes.max(initial=0)) for kv in self.kvs)

    @property
    def largest_read(self) -> int:
        return max(int((i.bytes * ~i.is_write).max(initial=0)) for i in (self.call(kv).items for kv in self.kvs))


@dataclass(frozen=True)
class World:
    """Cores on one channel, flows of the CPU as (start, bytes), changes as (when, core, new value); ``speeds``: changes
    of the channel's clock as (when, part of it)."""

    works: tuple[Work, ...]
    flows: tuple[tuple[int, int], ...] = ()
    clocks: tuple[tuple[int, int, int], ...] = ()
    limits: tuple[tuple[int, int, int], ...] = ()
    background: tuple[tuple[str, MasterSpec], ...] = ()
    policy: str = "proportional"
    speeds: tuple[tuple[int, float], ...] = ()
    behaviour: Behaviour = IDEAL


@dataclass
class Seen:
    """What came out of a world."""

    calls: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    ops: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    details: list[CallDetail] = field(default_factory=list)
    moved: dict[str, int] = field(default_factory=dict)
    recorded: dict[str, Any] = field(default_factory=dict)
    lowest: dict[str, float] = field(default_factory=dict)
    causes: dict[str, list[Any]] = field(default_factory=dict)
    cores: dict[str, CoreCounters] = field(default_factory=dict)
    steps: int = 0


@cache
def _board() -> Any:
    return machine_preset("bpu80").cores


@cache
def spec(room: int, op_overhead: int, layer_sync: int) -> CoreSpec:
    board = _board()
    return CoreSpec(
        clock="1 GHz", scratchpad=f"{room} B", activations="1 MB", op_overhead=f"{op_overhead} ps",
        layer_sync=f"{layer_sync} ps", mac=board.mac, vector=board.vector, dma=board.dma, toolchain="1.0",
    )  # fmt: skip


def play(world: World, merge: Merge) -> Seen:
    """Run a world to its end."""
    env, watch, seen = Counting(), Watch(), Seen()
    channel = FlowChannel(env, world.behaviour, watch, Rules(world.policy), world.background)  # type: ignore[arg-type]
    ports: list[FlowPort] = []
    clocks: list[ClockDomain] = []
    cpu = channel.port("cpu", 10**6, NS, RATE)

    def at(when: int, do: Any) -> None:
        env.timeout(when).callbacks.append(lambda _: do())

    def drive(name: str, core: BpuCore, work: Work) -> None:
        calls = [work.call(kv) for kv in work.kvs]
        log = seen.calls[name] = []
        why = seen.causes[name] = []

        def next_() -> None:
            if len(log) < len(calls):
                core.run(calls[len(log)], f"{len(log)}/frame", over)

        def over(result: Any) -> None:
            log.append((result.start, result.end))
            why.append(result)
            next_()

        at(work.start, next_)

    for k, work in enumerate(world.works):
        name = f"bpu{k}"
        ports.append(channel.port(name, work.window, work.path, work.limit))
        clocks.append(ClockDomain(name, work.hz))
        core = BpuCore(
            env, name, spec(work.room, work.op_overhead, work.layer_sync), clocks[k], ports[k], watch, merge=merge
        )
        drive(name, core, work)
    for when, size in world.flows:
        at(when, lambda size=size: cpu.start(Parts(size)))
    for when, k, hz in world.clocks:
        at(when, lambda k=k, hz=hz: clocks[k].set_hz(hz))
    for when, k, rate in world.limits:
        at(when, lambda k=k, rate=rate: ports[k].set_limit(rate))
    for when, part in world.speeds:
        at(when, lambda part=part: channel.set_clock(part))
    if world.background:
        env.run(until=1000 * US)
    else:
        env.run()
    for k, work in enumerate(world.works):
        assert len(seen.calls[f"bpu{k}"]) == len(work.kvs), f"bpu{k} stands still"
    seen.details = watch.details
    seen.ops = {(d.core, d.label): d.compute[:, 1].tolist() for d in watch.details}
    seen.moved, seen.recorded, seen.lowest, seen.steps = channel.moved(), watch.moved_bytes, watch.lowest, env.steps
    seen.cores = watch.cores
    return seen


def apart(one: Seen, two: Seen) -> int:
    """Largest difference in the end of any op or call."""
    assert one.ops.keys() == two.ops.keys()
    ops = [abs(a - b) for key in one.ops for a, b in zip(one.ops[key], two.ops[key], strict=True)]
    calls = [abs(a[1] - b[1]) for key in one.calls for a, b in zip(one.calls[key], two.calls[key], strict=True)]
    return max(ops + calls, default=0)
