"""One step of a model: dispatch, calls, CPU ops and hand-overs, each interval charged to its cause.

The bench's host takes 40 ns to dispatch a call, of which 10 are the doorbell, and 15 ns for its interrupt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpusim.metrics import Ledger
from bpusim.runtime import Session
from bpusim.trace import Op, Repeat

Make = Callable[..., Any]


def step(b: Any, *items: Op | Repeat) -> tuple[int, dict[str, int]]:
    """(when one frame of these ops was done, its causes), in ns."""
    (out,) = b.steps(b.model(b.trace(*items)))
    return out


# Dispatch


def test_a_step_is_dispatched_computed_and_interrupts(bench: Make) -> None:
    b = bench()
    assert step(b, b.op("a", 100)) == (155, {"dispatch": 40 + 15, "compute": 100})


def test_async_submit_prepares_the_next_call_while_one_runs(bench: Make) -> None:
    b = bench()
    (_, first), (end, second) = b.steps(b.model(b.trace(b.op("a", 100))), 2)
    assert first == {"dispatch": 55, "compute": 100}
    assert second == {"dispatch": 10 + 15, "compute": 100}
    assert end == 155 + 125


def test_async_submit_saves_no_more_than_the_call_took(bench: Make) -> None:
    b = bench()
    _, (_, second) = b.steps(b.model(b.trace(b.op("a", 12))), 2)
    assert second == {"dispatch": 10 + (30 - 12) + 15, "compute": 12}


def test_sync_submit_prepares_each_call_after_the_last(bench: Make) -> None:
    b = bench(async_submit=False)
    assert b.steps(b.model(b.trace(b.op("a", 100))), 2) == [
        (155, {"dispatch": 55, "compute": 100}),
        (310, {"dispatch": 55, "compute": 100}),
    ]


def test_dispatch_shorter_than_the_doorbell_is_the_doorbell(bench: Make) -> None:
    b = bench(host_changes={"dispatch": "4 ns"})
    assert step(b, b.op("a", 100))[1] == {"dispatch": 10 + 15, "compute": 100}


def test_layers_that_write_the_cache_cost_dispatch_each(bench: Make) -> None:
    b = bench()
    # Each of the two ops writes 100 B; the second write ends the call: 1 ns of latency, 200 of compute, 10 to write.
    layers = Repeat(2, "layers", (b.op("a", 100, write={"kv": (100,)}),))
    assert step(b, layers)[1] == {"dispatch": 40 + 2 * 30 + 15, "compute": 200, "dram": 11}


def test_what_the_host_will_read_is_flushed_behind_the_call(bench: Make) -> None:
    b = bench()
    # 50 B at 100 ps a byte.
    assert step(b, b.op("a", 100, write={"io:o": (50,)}))[1] == {"dispatch": 40 + 15 + 5, "compute": 100, "dram": 6}


def test_a_session_keeps_what_its_last_call_left_it(bench: Make) -> None:
    b, session = bench(), Session("s")
    b.steps(b.model(b.trace(b.op("a", 100))), 1, session)
    assert session.lead == 100_000


# Fallback


def test_a_cpu_op_pays_the_crossings_into_and_out_of_it(bench: Make) -> None:
    b = bench()
    x = b.op("x", unit="cpu", vec={"exp": (2,)})
    # The first call's interrupt, 50 + 2 x 50 on the CPU, and the doorbell of the second call.
    assert step(b, b.op("a", 100), x, b.op("b", 100)) == (
        430,
        {"dispatch": 40 + 15, "compute": 200, "fallback": 15 + 150 + 10},
    )


def test_a_cpu_op_leaves_nothing_to_overlap_with_sync_submit(bench: Make) -> None:
    b = bench(async_submit=False)
    x = b.op("x", unit="cpu")
    assert step(b, b.op("a", 100), x, b.op("b", 100))[1]["fallback"] == 15 + 50 + 40


def test_a_cpu_op_flushes_what_it_reads_and_writes(bench: Make) -> None:
    b = bench()
    x = b.op("x", unit="cpu", read={"spill:i": (300,)}, write={"spill:o": (100,)})
    # 400 B at 100 ps a byte; the bytes move meanwhile, in 40 ns.
    assert step(b, x) == (90, {"fallback": 50 + 40})
    assert b.channel.moved() == {"cpu": 400}


def test_a_cpu_op_that_moves_more_than_it_computes_waits_for_its_bytes(bench: Make) -> None:
    b = bench(host_changes={"cache_per_byte": "0 s/B"})
    assert step(b, b.op("x", unit="cpu", read={"spill:i": (3000,)})) == (300, {"fallback": 300})


# Hand-over


def test_a_pipeline_split_hands_over_by_interrupt_and_dispatch(bench: Make) -> None:
    b = bench()
    trace = b.trace(Repeat(2, "layers", (b.op("a", 100),), carry=(50,), carry_tensors=1))
    first, last = trace.split(2)
    ((end, spent),) = b.steps(b.model(trace, (0, first), (1, last)))
    # Core 0: 1 + 100 + 5 to write 50 B; then interrupt and 5 ns of flushing; a whole dispatch; core 1: 1 + 5 + 100.
    assert spent == {"dispatch": 40 + 15, "compute": 200, "dram": 6 + 6, "handover": 15 + 5 + 40}
    assert end == 55 + 200 + 12 + 60


def test_each_part_runs_on_its_core(bench: Make) -> None:
    b = bench()
    trace = b.trace(Repeat(3, "layers", (b.op("a", 100),)))
    first, last = trace.split([1, 2])
    b.steps(b.model(trace, (1, first), (0, last)))
    assert {c: n.occupied for c, n in b.recorder.cores.items()} == {"bpu1": 100_000, "bpu0": 200_000}


# Logging and memory


def test_logging_costs_each_op(bench: Make) -> None:
    b = bench(log_ops=True)
    x = b.op("x", unit="cpu")
    spent = step(b, b.op("a"), b.op("b"), x, b.op("c"))[1]
    assert spent["host"] == 4 * 41


def test_without_a_pool_each_tensor_of_a_call_is_allocated(bench: Make) -> None:
    b = bench(memory_pool=False)
    # Buffers of the host's: i and o of the first op, o of the second; weights and cache are resident.
    ops = b.op("a", read={"io:i": (1,), "kv": (1,)}, write={"io:o": (1,)}), b.op("b", read={"io:o": (1,)})
    assert step(b, *ops)[1]["host"] == 3 * 250


def test_without_a_pool_each_tensor_that_crosses_is_allocated(bench: Make) -> None:
    b = bench(memory_pool=False)
    assert step(b, b.op("x", unit="cpu", tensors=3))[1] == {"host": 3 * 250, "fallback": 50}


def test_a_pool_allocates_nothing(bench: Make) -> None:
    b = bench()
    assert "host" not in step(b, b.op("a", read={"io:i": (1,)}), b.op("x", unit="cpu", tensors=3))[1]


# Queueing


@pytest.mark.parametrize("cpus", [1, 2])
def test_a_busy_core_and_a_busy_cpu_are_queueing(bench: Make, cpus: int) -> None:
    b = bench(cpus=cpus)
    model = b.model(b.trace(b.op("a", 100)))
    log: list[tuple[int, str, dict[str, int]]] = []

    def user(name: str) -> Any:
        ledger = Ledger()
        yield from b.executor.step(Session(name), model, "frame", 0, 1, ledger)
        log.append((b.env.now // 1000, name, {c: v // 1000 for c, v in ledger.spent.items() if v}))

    for name in ("first", "second"):
        b.env.process(user(name))
    b.env.run()
    # The second waits 100 ns for the core; with one CPU, 40 of them in line for that.
    assert log == [
        (155, "first", {"dispatch": 55, "compute": 100}),
        (255, "second", {"dispatch": 55, "compute": 100, "queueing": 100}),
    ]


def test_host_work_of_no_time_has_no_cause(bench: Make) -> None:
    b, ledger = bench(), Ledger()
    b.env.run(until=b.env.process(b.executor.on_host(0, "host", ledger)))
    assert (b.env.now, sum(ledger.spent.values())) == (0, 0)


# For any ops

SIZES = st.sampled_from([0, 30, 400])
OPS = st.lists(
    st.builds(
        lambda unit, ns, r, w, s: Op(
            "o", "A", unit, cycles=(ns,) if unit == "mac" else (), read={"io:i": (r,)}, tensors=2,
            write={"kv": (w,), "spill:s": (s,)},
        ),
        st.sampled_from(["mac", "mac", "mac", "cpu"]), st.integers(0, 200), SIZES, SIZES, SIZES,
    ),
    min_size=1,
    max_size=8,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    ops=OPS,
    count=st.integers(1, 3),
    users=st.integers(1, 3),
    cpus=st.integers(1, 2),
    options=st.tuples(*[st.booleans()] * 3),
)
def test_every_interval_of_every_step_has_one_cause(
    bench: Make, ops: list[Op], count: int, users: int, cpus: int, options: tuple[bool, bool, bool]
) -> None:
    b = bench(cpus, *options)
    trace = b.trace(Repeat(count + 1, "layers", tuple(ops), carry=(64,)))
    first, last = trace.split(2)
    model = b.model(trace, (0, first), (1, last))
    done: list[int] = []

    def user(name: str) -> Any:
        session = Session(name)
        for _ in range(2):
            begin, ledger = b.env.now, Ledger()
            yield from b.executor.step(session, model, "frame", 0, 1, ledger)
            assert sum(ledger.spent.values()) == b.env.now - begin
            assert ledger.spent["other"] == ledger.spent["camera"] == 0
            done.append(b.env.now)

    for n in range(users):
        b.env.process(user(f"{n}"))
    b.env.run()
    assert len(done) == 2 * users
    # Every byte that left the channel was told to the observer.
    assert b.channel.moved() == {m: sum(t.values()) for m, t in b.recorder.moved_bytes.items() if t}
