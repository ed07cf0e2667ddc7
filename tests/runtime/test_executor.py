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


def test_async_submit_waits_for_a_preparation_that_is_not_done(bench: Make) -> None:
    b = bench()
    (_, first), (end, second) = b.steps(b.model(b.trace(b.op("a", 12))), 2)
    # Preparing takes 30 ns from the doorbell on: the call 12 of them, its interrupt 15, and 3 are left to wait for.
    assert first == {"dispatch": 55, "compute": 12}
    assert second == {"dispatch": 3 + 10 + 15, "compute": 12}
    assert end == 67 + 40


def test_preparing_takes_a_cpu_core(bench: Make) -> None:
    b = bench(cpus=1)
    (_, first), (_, second) = b.steps(b.model(b.trace(b.op("a", 12))), 2)
    # The interrupt comes after 12 of the 30 ns that the only core prepares for.
    assert first == {"dispatch": 55, "compute": 12, "queueing": 18}
    assert second == {"dispatch": 10 + 15, "compute": 12}


@pytest.mark.parametrize(("cpus", "queued"), [(1, 20), (2, 0)])
def test_host_work_of_others_queues_behind_a_preparation(bench: Make, cpus: int, queued: int) -> None:
    b, ledger = bench(cpus=cpus), Ledger()
    b.env.process(b.executor.step(Session("s"), b.model(b.trace(b.op("a", 100))), "frame", 0, 1, Ledger(), more=True))

    def other() -> Any:
        yield b.env.timeout(50_000)  # the call is submitted at 40 ns, the next is ready at 70
        yield from b.executor.on_host(10_000, "host", ledger)

    b.env.run(until=b.env.process(other()))
    assert (ledger.spent["queueing"], ledger.spent["host"]) == (queued * 1000, 10_000)


def test_a_step_that_nothing_follows_prepares_nothing(bench: Make) -> None:
    b, session = bench(), Session("s")
    model = b.model(b.trace(b.op("a", 100)))
    assert b.steps(model, 1, session) == [(155, {"dispatch": 55, "compute": 100})]
    assert session.ahead is None
    assert b.steps(model, 1, session) == [(310, {"dispatch": 55, "compute": 100})]


def test_a_step_that_another_follows_leaves_it_prepared(bench: Make) -> None:
    b, session = bench(), Session("s")
    model, ledger = b.model(b.trace(b.op("a", 100))), Ledger()
    b.env.run(until=b.env.process(b.executor.step(session, model, "frame", 0, 1, ledger, more=True)))
    assert session.ahead is not None
    assert isinstance(session.ahead, int)  # from the doorbell at 40 ns on
    assert session.ahead == 70_000 <= b.env.now
    assert b.steps(model, 1, session) == [(280, {"dispatch": 10 + 15, "compute": 100})]
    assert session.ahead is None


def test_sync_submit_prepares_nothing_ahead(bench: Make) -> None:
    b, session = bench(async_submit=False), Session("s")
    model = b.model(b.trace(b.op("a", 100), b.op("x", unit="cpu"), b.op("b", 100)))
    b.env.run(until=b.env.process(b.executor.step(session, model, "frame", 0, 1, Ledger(), more=True)))
    assert session.ahead is None


def test_the_calls_of_a_step_are_prepared_without_another_step(bench: Make) -> None:
    b = bench(host_changes={"fallback_op": "1 ns", "interrupt": "1 ns"})
    # The second call's preparation, 30 ns: the first call takes 10, its interrupt 1, the CPU op 1, and 18 are left.
    spent = step(b, b.op("a", 10), b.op("x", unit="cpu"), b.op("b", 10))[1]
    assert spent == {"dispatch": 40 + 1, "compute": 20, "fallback": 1 + 1 + 18 + 10}


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


def test_the_second_part_of_a_split_is_not_prepared_ahead(bench: Make) -> None:
    b = bench()
    trace = b.trace(Repeat(2, "layers", (b.op("a", 100),), carry=(50,), carry_tensors=1))
    first, last = trace.split(2)
    (_, one), (_, two) = b.steps(b.model(trace, (0, first), (1, last)), 2)
    # The hand-over is whole either way; what the last part's call overlaps is the next step's first.
    assert one == {"dispatch": 40 + 15, "compute": 200, "dram": 6 + 6, "handover": 15 + 5 + 40}
    assert two == one | {"dispatch": 10 + 15}


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


@pytest.mark.parametrize(
    ("cpus", "first", "second"),
    [
        # One CPU: both prepare (30 ns) before either rings the doorbell (10), so the first is 30 late, and the second
        # is 30 in line to prepare, 10 to ring, and 90 for the core.
        (1, (155, {"dispatch": 55, "compute": 100}), (255, {"queueing": 100})),
        (2, (155, {"dispatch": 55, "compute": 100}), (255, {"queueing": 100})),
    ],
)
def test_a_busy_core_and_a_busy_cpu_are_queueing(
    bench: Make, cpus: int, first: tuple[int, dict[str, int]], second: tuple[int, dict[str, int]]
) -> None:
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
    own = {"dispatch": 55, "compute": 100}
    assert log == [(first[0], "first", first[1]), (second[0], "second", own | second[1])]


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
        for k in range(2):
            begin, ledger = b.env.now, Ledger()
            yield from b.executor.step(session, model, "frame", 0, 1, ledger, more=k == 0)
            assert sum(ledger.spent.values()) == b.env.now - begin
            assert ledger.spent["other"] == ledger.spent["camera"] == 0
            done.append(b.env.now)

    for n in range(users):
        b.env.process(user(f"{n}"))
    b.env.run()
    assert len(done) == 2 * users
    # Every byte that left the channel was told to the observer.
    assert b.channel.moved() == {m: sum(t.values()) for m, t in b.recorder.moved_bytes.items() if t}


@pytest.mark.parametrize(("balance", "goes_to"), [("load", "bpu0"), ("bandwidth", "bpu1")])
def test_the_shortest_line_is_by_calls_or_by_bytes(bench: Make, balance: str, goes_to: str) -> None:
    b = bench()
    (large,) = b.trace(b.op("a", 1000, read={"kv": (5000,)})).bind("frame").calls
    (small,) = b.trace(b.op("a", 1000, read={"kv": (100,)})).bind("frame").calls
    b.queues[0].submit(large, "x", "frame", lambda _: None)
    for _ in range(2):
        b.queues[1].submit(small, "y", "frame", lambda _: None)
    model = b.model(b.trace(b.op("mine", 10)))
    model.anywhere, model.balance = (0, 1), balance
    b.steps(model, session=Session("mine"))
    assert [core for core in ("bpu0", "bpu1") if b.recorder.cores[core].calls == (2 if core == "bpu0" else 3)] == [
        goes_to
    ]
