"""What a core waits for, worked out from round numbers: a frame is 40 + 100 + 15 ns of dispatch, op and interrupt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bpusim.metrics import Ledger
from bpusim.runtime import Session

Make = Callable[..., Any]
NS = 1000


def waits(b: Any, core: int = 0) -> dict[str, int]:
    """ns by reason."""
    w = b.queues[core].waits
    w.change()
    found = {"dram": w.dram, "host": w.host, "elsewhere": w.elsewhere, "nothing": w.nothing}
    return {why: t // NS for why, t in found.items() if t}


def go(b: Any, model: Any, frames: int = 1, start: int = 0, name: str = "s") -> None:
    """A request that is so many frames, one after the other."""

    def user() -> Any:
        yield b.env.timeout(start * NS)
        session = Session(name)
        b.executor.begin(model)
        for _ in range(frames):
            yield from b.executor.step(session, model, "frame", 0, 1, Ledger())
        b.executor.end(model)

    b.env.process(user())


def test_between_the_calls_of_a_request_a_core_waits_for_the_host(bench: Make) -> None:
    b = bench(async_submit=False)
    go(b, b.model(b.trace(b.op("a"))), frames=3, start=1000)
    b.env.run(until=5000 * NS)
    assert waits(b) == {"host": 3 * 55, "nothing": 5000 - 3 * 155}
    assert waits(b, 1) == {"nothing": 5000}


def test_of_a_split_each_core_waits_for_the_other(bench: Make) -> None:
    """40 + 100 + 15 on each; while one has the request the other waits for it, its own dispatch and interrupt are the
    host's."""
    b = bench(async_submit=False)
    one, two = b.trace(b.op("a", 100)), b.trace(b.op("b", 300))
    go(b, b.model(one, (0, one), (1, two)), frames=2)
    b.env.run(until=2000 * NS)
    whole = 2 * (155 + 355)
    # A core's share of the host: its dispatch, and the interrupt of the other core's call before it.
    assert waits(b, 0) == {"host": 2 * 55, "elsewhere": whole - 2 * 155, "nothing": 2000 - whole}
    assert waits(b, 1) == {"host": 2 * 55, "elsewhere": whole - 2 * 355, "nothing": 2000 - whole}


def test_a_core_that_runs_waits_for_nobody_whatever_others_do(bench: Make) -> None:
    """Two requests: while one is on the core the other's host work costs nothing."""
    b = bench(async_submit=False)
    model = b.model(b.trace(b.op("a", 1000)))
    go(b, model, frames=2)
    go(b, model, frames=2, start=500, name="t")
    b.env.run()
    occupied = b.recorder.cores["bpu0"].occupied // NS
    assert occupied == 4000
    assert sum(waits(b).values()) == b.env.now // NS - occupied
    assert waits(b) == {"host": 40 + 15}


def test_in_a_call_a_core_waits_for_data(bench: Make) -> None:
    """1000 B at 10 B/ns, a nanosecond of latency, and 20 ns of compute at the end."""
    b = bench(async_submit=False)
    go(b, b.model(b.trace(b.op("a", 20, read={"kv": (1000,)}))))
    b.env.run()
    assert waits(b)["dram"] == 101
