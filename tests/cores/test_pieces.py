"""Calls that are interrupted between two pieces: random programs, merged and tile by tile."""

from __future__ import annotations

import itertools
from typing import Any

import simpy
from flows import Parts
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import programs
from worlds import GHZ, IDEAL, KB, NS, RATE, US, Watch, spec, trace_of

from bpusim.cores import BpuCore, Merge
from bpusim.dram import FlowChannel, Rules
from bpusim.runtime import CoreQueue, Event, Priority, Terms
from bpusim.thermal import ClockDomain
from bpusim.trace import CallProgram, Op, Trace, part_of

URGENT = trace_of(Op("u", "A", "mac", cycles=(2000,), read={"kv": (5 * KB,)}))


def call_of(trace: Trace) -> CallProgram:
    (call,) = trace.bind("frame", kv=255).calls
    return call


def run(
    trace: Trace, bound: int, urgent: list[int], flows: list[tuple[int, int]], room: int, merge: Merge
) -> tuple[list[Event], Any, Any]:
    """A call and urgent ones that interrupt it, with a CPU's transfers beside them."""
    env, watch, journal = simpy.Environment(), Watch(), list[Event]()
    channel = FlowChannel(env, IDEAL, watch, Rules("proportional"))
    port, cpu = channel.port("bpu0", 10**6, NS, RATE), channel.port("cpu", 10**6, NS, RATE)
    core = BpuCore(env, "bpu0", spec(room, 0, 0), ClockDomain("bpu0", GHZ), port, watch, merge=merge)
    queue, results = CoreQueue(env, core, Priority(), journal), list[Any]()
    queue.submit(call_of(trace), "long", "frame", results.append, Terms(max_call=bound))
    for k, at in enumerate(urgent):
        terms = Terms(254 + k % 2, max_call=bound)
        env.timeout(at).callbacks.append(
            lambda _, t=terms: queue.submit(call_of(URGENT), "urgent", "frame", results.append, t)
        )
    for at, size in flows:
        env.timeout(at).callbacks.append(lambda _, n=size: cpu.start(Parts(n)))
    env.run()
    assert len(results) == 1 + len(urgent)
    for r in results:
        assert sum(r.causes) + r.suspended == r.end - r.start
        assert min(*r.causes, r.suspended) >= 0
    return journal, channel.moved(), watch.moved_bytes


Urgent = st.lists(st.integers(0, 300 * US), min_size=1, max_size=5, unique=True)
Flows = st.lists(st.tuples(st.integers(0, 300 * US), st.integers(1, 200 * KB)), max_size=4)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(programs(), st.integers(1, 60), Urgent, Flows, st.sampled_from([60 * KB, 10**6, 10**9]))
def test_merging_changes_no_interruption(
    trace: Trace, bound: int, urgent: list[int], flows: list[tuple[int, int]], room: int
) -> None:
    """The same calls are interrupted, at the same instants; what was fetched ahead may differ by a tile's part."""
    room = max(room, int(call_of(trace).items.bytes.max(initial=1)))
    (off, _, _), (on, _, _) = (run(trace, bound * US, urgent, flows, room, merge) for merge in ("off", "exact"))
    assert [(e.call, e.what) for e in off] == [(e.call, e.what) for e in on]
    assert max(abs(a.at - b.at) for a, b in zip(off, on, strict=True)) <= 3 * NS


@settings(max_examples=100, deadline=None, derandomize=True)
@given(programs(), st.integers(1, 60), Urgent, Flows)
def test_all_that_is_moved_is_counted(
    trace: Trace, bound: int, urgent: list[int], flows: list[tuple[int, int]]
) -> None:
    """What is lost and fetched again too."""
    _, moved, recorded = run(trace, bound * US, urgent, flows, 10**9, "on")
    assert sum(recorded["bpu0"].values()) == moved["bpu0"] if moved["bpu0"] else "bpu0" not in recorded
    least = call_of(trace).bytes + len(urgent) * call_of(URGENT).bytes
    assert moved["bpu0"] >= least


@settings(max_examples=100, deadline=None, derandomize=True)
@given(programs(), st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
def test_parts_sum_to_the_whole(trace: Trace, cuts: list[int]) -> None:
    """Bytes by kind, cycles, MACs, ops and layers, wherever it is cut; a part of a part is one of the whole."""
    call = call_of(trace)
    n = len(call.items.bytes)
    ends = sorted({0, n, *(c % (n + 1) for c in cuts)})
    parts = [part_of(call, a, b) for a, b in itertools.pairwise(ends)]
    for field in ("bytes", "cycles", "mac_cycles", "macs", "issued"):
        assert sum(getattr(p, field) for p in parts) == getattr(call, field)
    assert [sum(column) for column in zip(*(p.moves for p in parts), strict=True)] == call.moves
    assert [o for p in parts for o in p.ops] == list(call.ops)
    assert [sum(column) for column in zip(*(p.overheads for p in parts), strict=True)] == list(call.overheads)
    assert [int(i) + p.start for p in parts for i in p.lasts] == call.lasts.tolist()
    for p in parts:
        assert p.bytes == int(p.items.bytes.sum())
        if p.stop - p.start > 1:
            again = part_of(part_of(call, p.start, n), 1, p.stop - p.start)
            assert (again.start, again.stop, again.whole) == (p.start + 1, p.stop, call)
