"""That a call which has come before may go as it did then, and as one event, changes no result: to the picosecond."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest.mock import patch

import pytest
from flows import Parts
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import programs
from worlds import GHZ, KB, NS, RATE, US, Counting, Work, spec, trace_of

from bpusim.alarm import alarm
from bpusim.cores import BpuCore, Merge, recall
from bpusim.cores.run import TiledRun
from bpusim.dram import FlowChannel, FlowPort, Ideal
from bpusim.metrics import Recorder
from bpusim.ports import CallDetail
from bpusim.runtime import CoreQueue, Terms
from bpusim.runtime.policies.priority import Priority
from bpusim.thermal import ClockDomain
from bpusim.trace import CallProgram, Op, Trace

Way = Literal["anew", "recalled", "passing"]
"""All worked out anew; states recalled, each flow an event; and alone to the end as one event: the default."""


class Ops(Recorder):
    """Writes down when each op was computed."""

    __slots__ = ("ops",)

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[tuple[str, str, int, list[int]]] = []

    @property
    def wants_detail(self) -> bool:
        return True

    def call_detailed(self, detail: CallDetail) -> None:
        self.ops.append((detail.core, detail.label, detail.start, detail.compute[:, 1].tolist()))


@dataclass(frozen=True)
class Line:
    """A core that runs one and the same call so many times, a gap apart, in pieces of at most ``bound``."""

    trace: Trace
    count: int
    start: int = 0
    gap: int = 0
    factor: float = 1.3
    bound: int | None = None


@dataclass(frozen=True)
class Scene:
    """Lines on one channel, and what comes between: flows of the CPU, urgent calls, changes, and looks at the bytes."""

    lines: tuple[Line, ...]
    flows: tuple[tuple[int, int], ...] = ()
    urgent: tuple[tuple[int, int], ...] = ()
    clocks: tuple[tuple[int, int, int], ...] = ()
    limits: tuple[tuple[int, int, int], ...] = ()
    speeds: tuple[tuple[int, float], ...] = ()
    looks: tuple[int, ...] = ()


@dataclass
class Seen:
    """All that can be told apart."""

    results: list[Any] = field(default_factory=list)
    ops: list[Any] = field(default_factory=list)
    looks: list[Any] = field(default_factory=list)
    moved: dict[str, int] = field(default_factory=dict)
    latency: dict[str, float] = field(default_factory=dict)
    recorded: Any = None


def stage(scene: Scene, way: Way = "passing", merge: Merge = "on") -> tuple[Seen, int]:
    """(what came out, events that it took)."""
    with ExitStack() as stack:
        if way == "anew":
            never = property(lambda _: False, lambda _self, _value: None)
            stack.enter_context(patch.object(TiledRun, "_recalls", never))
        elif way == "recalled":
            stack.enter_context(patch.object(BpuCore, "passes", lambda *_: False))
        return staged(scene, merge)


def staged(scene: Scene, merge: Merge) -> tuple[Seen, int]:
    env, ops, seen = Counting(), Ops(), Seen()
    channel = FlowChannel(env, Ideal(RATE), ops)
    cpu = channel.port("cpu", 10**6, NS, RATE)
    ports: list[FlowPort] = []
    clocks: list[ClockDomain] = []
    queues: list[CoreQueue] = []

    def at(when: int, do: Any) -> None:
        alarm(env, when, lambda _: do())

    def drive(queue: CoreQueue, line: Line, call: CallProgram) -> None:
        left = line.count

        def over(result: Any) -> None:
            nonlocal left
            seen.results.append(("line", queue.core.name, tuple(result)))
            left -= 1
            if left:
                at(line.gap, submit)

        def submit() -> None:
            queue.submit(call, "line", "frame", over, Terms(0, 1.0, line.bound))

        at(line.start, submit)

    for k, line in enumerate(scene.lines):
        work = Work(line.trace, (1,))
        name, room = f"bpu{k}", max(1, int(work.largest_read * line.factor))
        ports.append(channel.port(name, work.window, work.path, work.limit))
        clocks.append(ClockDomain(name, GHZ))
        core = BpuCore(env, name, spec(room, 300 * NS, 0), clocks[k], ports[k], ops, merge=merge)
        queues.append(CoreQueue(env, core, Priority()))
        drive(queues[k], line, work.call(1))
    (quick,) = URGENT.bind("frame", kv=0).calls
    for when, size in scene.flows:
        at(when, lambda size=size: cpu.start(Parts(size)))

    def told(result: Any) -> None:
        seen.results.append(("urgent", tuple(result)))

    for when, k in scene.urgent:
        at(when, lambda k=k: queues[k].submit(quick, "urgent", "frame", told, Terms(200)))
    for when, k, hz in scene.clocks:
        at(when, lambda k=k, hz=hz: clocks[k].set_hz(hz))
    for when, k, rate in scene.limits:
        at(when, lambda k=k, rate=rate: ports[k].set_limit(rate))
    for when, part in scene.speeds:
        at(when, lambda part=part: channel.set_clock(part))
    for when in scene.looks:
        at(when, lambda: seen.looks.append((env.now, channel.moved(), channel.latency())))
    env.run()
    assert sum(r[0] == "line" for r in seen.results) == sum(line.count for line in scene.lines)
    seen.ops, seen.moved, seen.latency = ops.ops, channel.moved(), channel.latency()
    seen.recorded = ops.moved_bytes, ops.cores
    return seen, env.steps


def tiles(name: str, n: int, size: int, cycles: int) -> Op:
    return Op(name, "A", "mac", cycles=(n * cycles,), tiles=(n,), read={"kv": (n * size,)})


URGENT = trace_of(tiles("u", 1, 1, 0))
STALLS = trace_of(tiles("a", 12, 5 * KB, 900), tiles("b", 12, 5 * KB, 300), tiles("c", 24, 5 * KB, 700))
"""Waits for room again and again: it has no plan."""


@st.composite
def scenes(draw: Any) -> Scene:
    """Whatever comes between comes at odd picoseconds: what happens at the very same one has no order to keep."""
    lines = [
        Line(
            draw(st.one_of(st.just(STALLS), programs())), draw(st.integers(3, 8)),
            100 * draw(st.integers(0, 1000)), 100 * draw(st.integers(0, 2000)),
            draw(st.sampled_from([1.0, 1.3, 2.0, 4.0])), draw(st.sampled_from([None, 5 * US, 20 * US])),
        ) for _ in range(draw(st.integers(1, 2)))
    ]  # fmt: skip
    when, which = st.integers(0, 6000).map(lambda n: n * US // 10 + 37), st.integers(0, len(lines) - 1)

    def some(*parts: st.SearchStrategy[Any], most: int = 3) -> Any:
        return tuple(draw(st.lists(st.tuples(when, *parts) if parts else when, max_size=most)))

    return Scene(
        tuple(lines),
        some(st.integers(1, 200 * KB), most=6),
        some(which, most=4),
        some(which, st.sampled_from([GHZ // 2, GHZ * 7 // 10, GHZ]), most=2),
        some(which, st.sampled_from([RATE // 3, RATE // 2, RATE]), most=2),
        some(st.sampled_from([0.5, 0.9, 1.0]), most=2),
        some(),
    )


@settings(max_examples=80, deadline=None, derandomize=True)
@given(scenes(), st.sampled_from(["on", "exact"]))
def test_whatever_comes_between_a_call_goes_as_if_worked_out_anew(scene: Scene, merge: Merge) -> None:
    anew, steps = stage(scene, "anew", merge)
    recalled, same = stage(scene, "recalled", merge)
    passing, fewer = stage(scene, "passing", merge)
    assert recalled == anew
    assert same == steps
    assert passing == anew
    calls = sum(line.count for line in scene.lines) + 2 * len(scene.urgent)
    assert fewer <= steps + 2 * calls  # what is interrupted is armed anew, and the old alarm is stale: once a call


def test_from_its_third_time_on_a_call_alone_is_two_events() -> None:
    """Of the two, one is the way of its first byte; one more starts it."""
    few, many = (stage(Scene((Line(STALLS, n, gap=US),)))[1] for n in (4, 14))
    assert many - few == 10 * 3
    first, second = (stage(Scene((Line(STALLS, n, gap=US),)))[1] for n in (1, 2))
    assert second - first > 10 * 3


def test_every_kind_of_interference_is_exact_in_a_call_that_passes() -> None:
    alone, _ = stage(Scene((Line(STALLS, 4, gap=US),)))
    begin, end = alone.results[3][2][:2]
    for part in range(1, 20):
        when = begin + (end - begin) * part // 20 + 3
        line = Line(STALLS, 6, gap=US, bound=5 * US)
        for scene in (
            Scene((line,), flows=((when, 30 * KB),)),
            Scene((line,), urgent=((when, 0),)),
            Scene((line,), clocks=((when, 0, GHZ // 2),)),
            Scene((line,), limits=((when, 0, RATE // 2),)),
            Scene((line,), speeds=((when, 0.5),)),
            Scene((line,), looks=(when,)),
            Scene((line, Line(STALLS, 2, start=when))),
        ):
            assert stage(scene)[0] == stage(scene, "anew")[0]


def test_a_look_in_between_sees_the_bytes_that_have_moved() -> None:
    # The first byte comes after 1 ns, and 10 B each nanosecond.
    third = stage(Scene((Line(STALLS, 3, gap=US),)))[0].results[2][2]
    looked, _ = stage(Scene((Line(STALLS, 3, gap=US),), looks=(third[0] + 201 * NS,)))
    whole = looked.moved["bpu0"] // 3
    ((_, moved, _),) = looked.looks
    assert moved["bpu0"] - 2 * whole == 2 * KB


def test_what_is_known_of_a_call_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "_MOST", 500)
    most = 0
    learn = recall.Recall.learn

    def counted(self: recall.Recall, *args: Any) -> None:
        nonlocal most
        learn(self, *args)
        most = max(most, self._kept)

    monkeypatch.setattr(recall.Recall, "learn", counted)
    flows = tuple((n * 7 * US + n * 13, (n % 17 + 1) * KB) for n in range(100))
    scene = Scene((Line(STALLS, 20),), flows=flows)
    assert stage(scene)[0] == stage(scene, "anew")[0]
    assert 500 < most < 1000
