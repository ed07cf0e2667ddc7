"""A phase at a position: the order of DMA items, the shares of tiles, calls cut at CPU ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpusim.trace import CallProgram, CpuWork, Header, Op, Phase, Program, Repeat, Trace

NAMES = sorted(p.name for p in (Path(__file__).parents[2] / "traces").glob("*.trace"))


def bind(items: Sequence[Op | Repeat], basis: tuple[str, ...] = ("1",), kv: int = 0) -> Program:
    """A frame of hand-made ops."""
    return Trace(Header("m", {}), (), {"frame": Phase("frame", 0, basis, tuple(items))}).bind("frame", kv=kv)


def only_call(items: Sequence[Op | Repeat], basis: tuple[str, ...] = ("1",), kv: int = 0) -> CallProgram:
    (call,) = bind(items, basis, kv).calls
    return call


def op(name: str, read: str = "", write: str = "", cycles: int = 10, tiles: int = 1, size: int = 100) -> Op:
    """An op that reads and writes these buffers, ``size`` bytes each."""
    return Op(
        name,
        "A",
        "mac",
        cycles=(cycles,),
        tiles=(tiles,),
        read=dict.fromkeys(read.split(), (size,)),
        write=dict.fromkeys(write.split(), (size,)),
    )


def order(call: CallProgram) -> str:
    """DMA items in order: ``a`` for a tile of op a, ``a!`` for its write."""
    return " ".join(
        call.ops[j].id + ("!" if write else "")
        for j, write in zip(call.items.op.tolist(), call.items.is_write.tolist(), strict=True)
    )


# DMA order


def test_reads_go_in_program_order_by_tiles() -> None:
    assert order(only_call([op("a", "w:a", tiles=2), op("b", "w:b"), op("c", "w:c", tiles=3)])) == "a a b c c c"


def test_a_write_goes_behind_the_reads_of_the_next_op() -> None:
    assert order(only_call([op("a", "w:a", "io:a"), op("b", "w:b", tiles=2), op("c", "w:c")])) == "a b b a! c"


def test_a_write_waits_for_the_next_op_that_reads_anything() -> None:
    assert order(only_call([op("a", "w:a", "io:a"), op("b"), op("c", "w:c"), op("d", "w:d")])) == "a b c a! d"


def test_a_write_goes_before_any_read_of_what_it_wrote() -> None:
    assert order(only_call([op("a", "w:a", "spill:x"), op("b", "spill:x"), op("c", "w:c")])) == "a a! b c"


def test_all_writes_before_a_read_of_one_of_them_keep_their_order() -> None:
    ops = [op("a", "w:a", "io:a"), op("b", "", "spill:x"), op("c", "spill:x")]
    assert order(only_call(ops)) == "a b a! b! c"


def test_two_writes_behind_one_read_keep_their_order() -> None:
    ops = [op("a", "w:a", "io:a"), op("b", "", "io:b"), op("c", "w:c")]
    assert order(only_call(ops)) == "a b c a! b!"


def test_the_last_write_ends_the_call() -> None:
    assert order(only_call([op("a", "w:a"), op("b", "w:b", "io:b")])) == "a b b!"


def test_an_op_does_not_wait_for_its_own_write() -> None:
    assert order(only_call([op("a", "kv", "kv"), op("b", "w:b")])) == "a b a!"


def test_a_write_of_no_bytes_here_is_no_item() -> None:
    ops = [Op("a", "A", "mac", write={"kv": (0, 1)}), op("b", "w:b")]
    assert order(only_call(ops, ("1", "kv"), kv=0)) == "a b"
    assert order(only_call(ops, ("1", "kv"), kv=1)) == "a b a!"


def test_a_write_waits_for_the_last_tile_of_its_op() -> None:
    call = only_call([op("a", "w:a", "io:a", tiles=3), op("b", "w:b"), op("c", "w:c", "io:c")])
    assert order(call) == "a a a b a! c c!"
    assert call.items.producer.tolist() == [-1, -1, -1, -1, 2, -1, 5]


def test_an_op_that_reads_nothing_is_one_item_of_no_bytes() -> None:
    call = only_call([op("a", "", cycles=7, tiles=4), op("b", "w:b")])
    assert call.items.bytes.tolist() == [0, 100]
    assert call.items.cycles.tolist() == [7, 10]


def test_the_first_tile_of_each_op_is_marked() -> None:
    call = only_call([op("a", "w:a", "io:a", tiles=2), op("b"), op("c", "w:c", tiles=2)])
    assert order(call) == "a a b c c a!"
    assert call.items.first.tolist() == [True, False, True, True, False, False]


def test_the_last_tile_of_each_pass_over_a_layer_is_marked() -> None:
    layer = Repeat(2, "layers", (op("a", "w:a"), op("b", "w:b", tiles=2)))
    call = only_call([op("in", "w:in"), layer, op("out", "w:out")])
    assert order(call) == "in a b b a b b out"
    assert call.items.layer_end.tolist() == [False, False, False, True, False, False, True, False]


def test_items_of_a_layer_repeat_with_it() -> None:
    layer = Repeat(3, "layers", (op("a", "w:a", "kv"),))
    assert order(only_call([layer])) == "a a a! a a! a!"


# Shares


def test_bytes_and_cycles_are_shared_over_the_tiles() -> None:
    call = only_call([op("a", "w:a", tiles=3, cycles=10, size=100)])
    assert call.items.bytes.tolist() == [33, 33, 34]
    assert call.items.cycles.tolist() == [3, 3, 4]


@given(
    ops=st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 40)), min_size=1
    )
)
@settings(max_examples=100, deadline=None)
def test_tiles_share_bytes_and_cycles_exactly(ops: list[tuple[int, int, int, int]]) -> None:
    call = only_call(
        [
            Op(f"{j}", "A", "mac", cycles=(c,), tiles=(t,), read={"w:a": (r,), "kv": (r // 3,)}, write={"io:o": (w,)})
            for j, (r, w, c, t) in enumerate(ops)
        ]
    )
    for j, (r, w, c, t) in enumerate(ops):
        mine = call.items.op == j
        reads, writes = mine & ~call.items.is_write, mine & call.items.is_write
        assert call.items.bytes[reads].sum() == r + r // 3
        assert call.items.bytes[writes].sum() == w
        assert call.items.cycles[mine].sum() == c
        assert reads.sum() == (max(t, 1) if r else 1)
        assert call.items.bytes[reads].max() - call.items.bytes[reads].min() <= 1


# Transfers


def moved_by_buffer(call: CallProgram, start: int, stop: int) -> Counter[tuple[str, bool]]:
    out: Counter[tuple[str, bool]] = Counter()
    for t in call.transfers(start, stop):
        out[t.buffer, t.write] += t.bytes
    return out


@pytest.mark.parametrize("name", NAMES)
def test_transfers_sum_to_the_reads_and_writes_of_the_ops(committed: dict[str, Trace], name: str) -> None:
    trace = committed[name]
    for phase in trace.phases:
        for call in trace.bind(phase, kv=300).calls[:4]:
            expected: Counter[tuple[str, bool]] = Counter()
            for j in range(len(call.ops)):
                for write in (False, True):
                    expected.update({(b, write): n for b, n in call.buffers(j, write) if n})
            assert moved_by_buffer(call, 0, len(call.items.bytes)) == expected


def test_transfers_name_their_stretch_of_the_buffer() -> None:
    call = only_call([op("a", "w:a", "io:o", tiles=3)])
    assert [(t.buffer, t.offset, t.bytes, t.kind, t.write) for t in call.transfers(1, 4)] == [
        ("w:a", 33, 33, "weights", False),
        ("w:a", 66, 34, "weights", False),
        ("io:o", 0, 100, "io", True),
    ]


def test_transfers_of_one_buffer_join_without_a_gap() -> None:
    call = only_call([op("a", "w:a kv", tiles=7, size=1000)])
    for buffer in ("w:a", "kv"):
        at = 0
        for t in call.transfers(0, 7):
            if t.buffer == buffer:
                assert t.offset == at
                at += t.bytes
        assert at == 1000


def test_the_bytes_of_a_run_of_items_are_their_sum() -> None:
    call = only_call([op("a", "w:a", "io:o", tiles=3)])
    assert [call.transfers(i, j).bytes for i, j in [(0, 0), (0, 1), (1, 3), (2, 4), (0, 4)]] == [0, 33, 67, 134, 200]


def test_the_transfers_of_one_item_sum_to_its_bytes() -> None:
    call = only_call([op("a", "w:a w:b", tiles=2, size=1)])  # two buffers of one byte in two tiles
    assert [sum(t.bytes for t in call.transfers(i, i + 1)) for i in range(2)] == call.items.bytes.tolist()


def test_bytes_moved_are_given_by_kind_without_empty_kinds() -> None:
    call = only_call([op("a", "w:a w:b kv", "kv io:o"), op("b", "", "spill:x")])
    assert call.moved() == {
        ("weights", False): 200,
        ("kv", False): 100,
        ("kv", True): 100,
        ("spill", True): 100,
        ("io", True): 100,
    }


# Calls


def cpu(name: str, **keys: object) -> Op:
    return Op(name, "Sigmoid", "cpu", **keys)  # type: ignore[arg-type]


def shape(program: Program) -> str:
    """Segments in order: ops of a call in brackets, CPU ops by name."""
    return " ".join(
        s.op_id if isinstance(s, CpuWork) else "[" + " ".join(o.id for o in s.ops) + "]" for s in program.segments
    )


def test_a_model_without_cpu_ops_is_one_call() -> None:
    assert shape(bind([op("a"), op("b")])) == "[a b]"


def test_calls_are_cut_at_cpu_ops() -> None:
    assert shape(bind([op("a"), cpu("x"), op("b"), op("c"), cpu("y"), op("d")])) == "[a] x [b c] y [d]"


def test_there_is_no_empty_call_around_or_between_cpu_ops() -> None:
    assert shape(bind([cpu("x"), op("a"), cpu("y"), cpu("z")])) == "x [a] y z"


def test_a_cpu_op_in_a_layer_cuts_every_pass() -> None:
    assert shape(bind([op("in"), Repeat(2, "layers", (op("a"), cpu("x")))])) == "[in a] x [a] x"


def test_a_write_does_not_cross_a_cpu_op() -> None:
    first, last = bind([op("a", "w:a", "spill:x"), cpu("x"), op("b", "w:b")]).calls
    assert (order(first), order(last)) == ("a a!", "b")


def test_cpu_work_has_its_elements_and_bytes_here() -> None:
    x = cpu("x", vec={"exp": (2, 3)}, issued=(5,), read={"spill:a": (0, 4)}, write={"spill:b": (6,)}, tensors=2)
    (work,) = bind([x], ("1", "kv"), kv=10).segments
    assert work == CpuWork("x", "Sigmoid", {"exp": 32, "mac": 5}, {("spill", False): 40, ("spill", True): 6}, tensors=2)


def test_cpu_work_has_its_measured_cycles_here() -> None:
    (work,) = bind([cpu("x", cycles=(7, 3), vec={"exp": (1,)})], ("1", "kv"), kv=10).segments
    assert work == CpuWork("x", "Sigmoid", {"exp": 1}, {}, tensors=0, cycles=7 + 3 * 10)


def test_cpu_work_tells_its_bytes_by_kind() -> None:
    x = cpu("x", read={"w:a": (100,), "kv": (0, 2), "spill:a": (0,), "io:a": (3,), "io:b": (4,)}, write={"kv": (5,)})
    (work,) = bind([x], ("1", "kv"), kv=10).segments
    assert work.moved == {  # type: ignore[union-attr]
        ("weights", False): 100,
        ("kv", False): 20,
        ("io", False): 7,
        ("kv", True): 5,
    }


def test_macs_of_a_cpu_op_count_in_the_phase() -> None:
    assert bind([Op("a", "A", "mac", macs=(100,)), cpu("x", macs=(7,), issued=(7,))]).macs == 107


def test_cpu_traffic_is_not_a_calls_traffic() -> None:
    assert bind([op("a", "w:a"), cpu("x", read={"spill:x": (5,)})]).traffic() == {("weights", False): 100}


@pytest.mark.parametrize("name", NAMES)
def test_every_op_of_a_committed_trace_is_in_one_segment(committed: dict[str, Trace], name: str) -> None:
    trace = committed[name]
    for phase in trace.phases.values():
        unrolled = sum(len(i.body) * i.count if isinstance(i, Repeat) else 1 for i in phase.items)
        segments = trace.bind(phase.name).segments
        assert sum(1 if isinstance(s, CpuWork) else len(s.ops) for s in segments) == unrolled
