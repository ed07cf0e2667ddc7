"""Ops under the roof of a machine: hand-worked times, positions that make no sense, and sums."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bpusim.errors import TraceError
from bpusim.trace import Header, Op, Phase, Repeat, Trace
from bpusim.trace.roofline import OpRow, Position, Roof, op_rows, totals

# 1 GHz (a cycle is 1 ns), 100 MACs a cycle, 10 B a ns, 1 us an op; the CPU 1 GHz, 4 B a ns, 5 us an op, 50 ps a byte.
ROOF = Roof(10**9, 100, 1e10, 10**6, 10**9, 4e9, {"exp": 50, "mac": 2}, 5 * 10**6, 50.0)


def row(op: Op, kv: int = 0) -> OpRow:
    trace = Trace(Header("m", {}), (), {"decode": Phase("decode", 1, ("1", "kv"), (op,))})
    return op_rows(trace, Position.of(trace, "decode", kv), ROOF)[0]


def test_the_balance_is_two_operations_a_mac_over_the_bandwidth() -> None:
    assert ROOF.balance == 2 * 100 / 10


@pytest.mark.parametrize(
    ("cycles", "moved", "compute_us", "dram_us", "bound"),
    [
        (9000, 50_000, 10, 5, "compute"),  # 9 us behind 1 us to start
        (9000, 200_000, 10, 20, "dram"),
        (9000, 100_000, 10, 10, "dram"),  # as long: no more compute would help less bandwidth
        (500, 1_000, 1.5, 0.1, "overhead"),  # the start is most of it
    ],
)
def test_an_op_takes_the_longer_of_compute_and_bytes(
    cycles: int, moved: int, compute_us: float, dram_us: float, bound: str
) -> None:
    r = row(Op("a", "A", "mac", macs=(10**6,), cycles=(cycles,), read={"w:a": (moved - 400,)}, write={"kv": (400,)}))
    assert (r.compute_ps, r.dram_ps, r.bound) == (compute_us * 10**6, dram_us * 10**6, bound)
    assert r.time_ps == max(r.compute_ps, r.dram_ps)
    assert r.moved == {"weights": moved - 400, "kv": 400}
    assert r.intensity == 2e6 / moved


def test_an_op_on_the_cpu_has_its_elements_its_measured_cycles_and_the_cpu_s_bandwidth() -> None:
    op = Op("a", "A", "cpu", issued=(30,), cycles=(1000,), vec={"exp": (10,)}, read={"spill:a": (0, 8)})
    r = row(op, kv=1000)
    assert r.cycles == 1000 + 10 * 50 + 30 * 2
    assert r.compute_ps == 5 * 10**6 + 1560 * 1000 + 8000 * 50
    assert (r.dram_ps, r.bound) == (2 * 10**6, "cpu")


def test_an_op_that_moves_nothing_has_no_intensity() -> None:
    assert row(Op("a", "A", "vector", cycles=(1,))).intensity is None


def test_repeats_are_one_row_with_their_count_and_shares_sum_to_one(small: Trace) -> None:
    rows = op_rows(small, Position.of(small, "decode", 10), ROOF)
    assert [(r.op, r.count) for r in rows] == [("embed", 1), ("project", 3), ("attend", 3), ("head", 1)]
    assert sum(r.share for r in rows) == pytest.approx(1)
    whole = sum(r.time_ps * r.count for r in rows)
    assert [r.share for r in rows] == [r.time_ps * r.count / whole for r in rows]


@pytest.mark.parametrize("name", ["qwen2.5-3b-int4-fallback.trace", "resnet50-992.trace", "qwen2.5-7b-int4.trace"])
def test_totals_are_those_of_the_bound_program(name: str, committed: dict[str, Trace]) -> None:
    trace = committed[name]
    classes = dict.fromkeys(("add", "mul", "exp", "div", "reduce", "convert", "mac"), 1)
    roof = replace(ROOF, cpu_cycles=classes)
    for phase in trace.phases:
        at = Position.of(trace, phase, 100 if trace.header.context else 0)
        whole = totals(op_rows(trace, at, roof))
        program = trace.bind(phase, kv=at.kvs, tokens=at.tokens)
        assert whole["macs"] == program.macs
        assert whole["cycles"] == sum(c.cycles for c in program.calls)
        on_cpu = sum(sum(s.moved.values()) for s in program.segments if not hasattr(s, "layout"))
        assert whole["bytes"] == sum(c.bytes for c in program.calls) + on_cpu


def test_several_sequences_read_the_weights_once(committed: dict[str, Trace]) -> None:
    trace = committed["qwen2.5-0.5b-int4.trace"]
    one, four = (totals(op_rows(trace, Position.of(trace, "decode", 64, batch=n), ROOF)) for n in (1, 4))
    assert four["macs"] == 4 * one["macs"]
    assert four["kv_bytes"] == 4 * one["kv_bytes"]
    assert one["weights_bytes"] <= four["weights_bytes"] < 1.01 * one["weights_bytes"]  # rows of the embedding


@pytest.mark.parametrize(
    ("phase", "options", "message"),
    [
        ("frame", {"kv": 5}, "phase 'frame' has no cache: nothing depends on kv; leave kv out"),
        ("frame", {"tokens": 5}, "phase 'frame' has no tokens; leave tokens out"),
        ("frame", {"batch": 2}, "the costs are of one sequence"),
        ("decode", {}, "has no phase 'decode'; it has: frame"),
    ],
)
def test_a_position_that_means_nothing_is_refused(phase: str, options: dict[str, int], message: str) -> None:
    trace = Trace(Header("m", {}), (), {"frame": Phase("frame", 0, ("1",), (Op("a", "A", "dma"),))})
    with pytest.raises(TraceError, match=message):
        Position.of(trace, phase, **options)


def test_a_position_says_where_it_is(small: Trace) -> None:
    assert str(Position.of(small, "decode", 7)) == "decode at kv 7, 1 token"
    assert str(Position.of(small, "prefill")) == "prefill at kv 0, 4 tokens"


def test_an_unknown_class_of_work_is_told() -> None:
    with pytest.raises(TraceError, match="op 'a': unknown class of work 'expo'; did you mean 'exp'"):
        row(Op("a", "A", "cpu", vec={"expo": (1,)}))


def test_a_repeat_of_repeats_counts_each_pass(small: Trace) -> None:
    body = (Op("x", "X", "mac", macs=(5,), cycles=(10,)),)
    trace = Trace(
        Header("m", {}), (), {"frame": Phase("frame", 0, ("1",), (Repeat(7, "a", body), Repeat(2, "b", body)))}
    )
    assert totals(op_rows(trace, Position.of(trace, "frame"), ROOF))["macs"] == 45
