"""The line before a core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from bpusim.errors import SimulationError
from bpusim.runtime import Call, CoreQueue, CoreView, Fifo

NS = 1000


class Last:
    """Picks the call that came last, and remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[Sequence[Call], CoreView]] = []

    def pick(self, ready: Sequence[Call], core: CoreView) -> Call:
        self.seen.append((list(ready), core))
        return ready[-1]


class Stranger:
    def pick(self, ready: Sequence[Call], core: CoreView) -> Call:  # noqa: ARG002 (the protocol's signature)
        return Call("x", "frame", 0, None, 0, 99)


def submit(
    b: Any, queue: CoreQueue, log: list[Any], name: str, ns: int, start: int = 0, size: int = 0
) -> Iterator[Any]:
    """Logs (when done, stream, when begun), in ns."""
    (call,) = b.trace(b.op("a", ns, read={"kv": (size,)})).bind("frame").calls
    yield b.env.timeout(start * NS)
    done = b.env.event()
    queue.submit(call, name, "frame", done.succeed)
    result = yield done
    log.append((b.env.now // NS, name, result.start // NS))


def test_a_call_runs_at_once_on_a_free_core(bench: Callable[..., Any]) -> None:
    b, log = bench(), []
    b.env.process(submit(b, b.queues[0], log, "a", 100, start=5))
    b.env.run()
    assert log == [(105, "a", 5)]


def test_calls_wait_for_a_busy_core_in_order(bench: Callable[..., Any]) -> None:
    b, log = bench(), []
    for name, ns, start in [("a", 100, 0), ("b", 20, 10), ("c", 30, 11)]:
        b.env.process(submit(b, b.queues[0], log, name, ns, start))
    b.env.run()
    assert log == [(100, "a", 0), (120, "b", 100), (150, "c", 120)]


def test_cores_do_not_wait_for_each_other(bench: Callable[..., Any]) -> None:
    b, log = bench(), []
    for core in (0, 1):
        b.env.process(submit(b, b.queues[core], log, f"{core}", 100))
    b.env.run()
    assert log == [(100, "0", 0), (100, "1", 0)]


def test_the_policy_picks_among_those_that_wait(bench: Callable[..., Any]) -> None:
    b, log, policy = bench(), [], Last()
    queue = CoreQueue(b.env, b.cores[0], policy)
    for name, ns, start in [("a", 100, 0), ("b", 20, 10), ("c", 30, 11)]:
        b.env.process(submit(b, queue, log, name, ns, start))
    b.env.run()
    assert log == [(100, "a", 0), (130, "c", 100), (150, "b", 130)]


def test_the_policy_sees_who_waits_since_when_and_for_how_long_they_will_run(bench: Callable[..., Any]) -> None:
    b, policy = bench(), Last()
    queue = CoreQueue(b.env, b.cores[0], policy)
    for name, ns, start in [("a", 94, 0), ("b", 20, 10), ("c", 30, 11)]:
        b.env.process(submit(b, queue, [], name, ns, start, size=50))
    b.env.run()
    ((ready, core),) = policy.seen  # one call alone needs no policy
    assert core == CoreView("bpu0", 100 * NS)
    assert [(c.stream, c.phase, c.submitted_ps, c.seq) for c in ready] == [
        ("b", "frame", 10 * NS, 2),
        ("c", "frame", 11 * NS, 3),
    ]
    # A nanosecond of latency, 50 B at 10 B/ns, and the compute.
    assert [c.estimate_ps for c in ready] == [26 * NS, 36 * NS]


def test_a_policy_that_picks_what_is_not_there_is_an_error(bench: Callable[..., Any]) -> None:
    b = bench()
    queue = CoreQueue(b.env, b.cores[0], Stranger())
    for name in "abc":
        b.env.process(submit(b, queue, [], name, 10))
    with pytest.raises(SimulationError) as caught:
        b.env.run()
    assert str(caught.value) == "error: policy Stranger picked a call that is not ready; return one of ready"


def test_first_come_first_served_takes_the_head() -> None:
    ready = [Call(n, "frame", p, None, 0, s) for n, p, s in (("a", 0, 1), ("b", 9, 2))]
    assert Fifo().pick(ready, CoreView("bpu0", 0)) is ready[0]
