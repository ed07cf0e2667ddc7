"""Ops spread over several cores: shares, barriers, and what is exchanged at them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.hardware.toolchain import load_toolchain
from bpusim.trace import CallProgram, Header, Op, Phase, Repeat, TeamCall, TensorSplit, Trace, load_trace
from bpusim.trace.tensor_split import EXCHANGE, grouped

TRACES = Path(__file__).resolve().parent.parent.parent / "traces"
DEFAULT = frozenset(load_toolchain("1.0").unsplit)


def trace_of(*items: Op | Repeat, basis: tuple[str, ...] = ("1", "kv")) -> Trace:
    return Trace(Header("m", {}), (), {"frame": Phase("frame", 0, basis, items)})


def team(trace: Trace, n: int = 2, unsplit: Sequence[str] = (), kv: int = 0, piece: int = 1000) -> TeamCall:
    (call,) = TensorSplit(trace, n, set(unsplit), piece).bind("frame", kv=kv).calls
    assert isinstance(call, TeamCall)
    return call


def parts(call: TeamCall) -> list[CallProgram]:
    return [p for group in call.groups for p in group if p is not None]


def exchanged(part: CallProgram) -> tuple[int, int]:
    """Bytes of the exchange that a part (reads, writes)."""
    read, written = (
        sum(n for j in range(len(part.ops)) for b, n in part.buffers(j, write) if b == EXCHANGE)
        for write in (False, True)
    )
    return read, written


def linear(name: str = "MatMul", **keys: Any) -> Op:
    return Op(name, "MatMul", "mac", read={"w:x": (8,)}, **keys)


def vector(type_: str = "Mul", **keys: Any) -> Op:
    return Op(type_, type_, "vector", **keys)


COEFS = st.lists(st.integers(0, 10**6), min_size=1, max_size=2).map(tuple)
OPS = st.builds(
    lambda unit, kind, c, m, r, w, k: Op(
        "a", kind, unit, cycles=c, mac_cycles=m, macs=m, issued=c,
        read={"w:x": r, "kv": k, "spill:in": c}, write={"kv": k, "spill:out": w},
    ),
    st.sampled_from(["mac", "vector"]), st.sampled_from(["Conv", "MatMul", "Mul", "Softmax"]),
    COEFS, COEFS, COEFS, COEFS, COEFS,
)  # fmt: skip


@given(st.lists(OPS, min_size=1, max_size=6), st.integers(2, 5), st.integers(0, 1000))
def test_shares_sum_to_the_whole(ops: list[Op], n: int, kv: int) -> None:
    """Cycles, MACs, weights, cache and writes to the last one; an array's input is read by all, an element once."""
    trace = trace_of(*ops)
    whole = trace.bind("frame", kv=kv).calls[0]
    call = team(trace, n, ["Softmax"], kv)
    mine = parts(call)
    for field in ("cycles", "mac_cycles", "macs", "issued"):
        assert sum(getattr(p, field) for p in mine) == getattr(whole, field)
    for kind in ("weights", "kv"):
        for write in (False, True):
            assert sum(p.moved().get((kind, write), 0) for p in mine) == whole.moved().get((kind, write), 0)
    assert sum(p.written("spill") for p in mine) == whole.written("spill")
    in_full = [op.unit == "mac" and op.type != "Softmax" for op in ops]
    inputs = [sum(c * v for c, v in zip(op.read["spill:in"], (1, kv), strict=False)) for op in ops]
    read = sum(size * (n if every else 1) for size, every in zip(inputs, in_full, strict=True))
    assert sum(p.moved().get(("spill", False), 0) for p in mine) == read


@given(st.integers(1, 10**6), st.integers(2, 8))
def test_no_two_shares_differ_by_more_than_one(c: int, n: int) -> None:
    shares = [p.cycles for p in team(trace_of(vector(cycles=(c,))), n).groups[0] if p is not None]
    assert len(shares) == n
    assert max(shares) - min(shares) <= 1


@given(st.integers(1, 10**5), st.integers(1, 10**5), st.integers(1, 40), st.integers(2, 5), st.integers(0, 10**5))
def test_tiles_are_no_longer_than_they_were_or_a_piece(
    weights: int, inputs: int, tiles: int, n: int, scratch: int
) -> None:
    """What fitted the scratchpad does so in shares, with an input that all read and with what is exchanged."""
    op = Op("a", "Conv", "mac", read={"w:x": (weights,), "spill:in": (inputs,)}, tiles=(tiles,), scratch=(scratch,))
    trace = trace_of(op, op)
    longest = int(trace.bind("frame").calls[0].items.bytes.max())
    for part in parts(team(trace, n, piece=1000)):
        items = part.items
        assert int(items.bytes[~items.is_write].max()) <= max(longest, 1000) + 1


def test_what_is_not_split_runs_on_the_first_core() -> None:
    ops = vector("Softmax", cycles=(9,)), Op("c", "Copy", "dma", read={"w:t": (5,)}), vector("Mul", cycles=(6,))
    call = team(trace_of(*ops), 2, ["Softmax"])
    assert [[p.cycles if p else None for p in g] for g in call.groups] == [[9, None], [3, 3]]


# Barriers


@pytest.mark.parametrize(
    ("ops", "groups"),
    [
        pytest.param([vector(), vector()], [2], id="element by element"),
        pytest.param([vector(), vector("Softmax"), vector()], [1, 1, 1], id="around what is not split"),
        pytest.param([Op("c", "Conv", "mac")] * 3, [1, 1, 1], id="each convolution reads all channels"),
        pytest.param([Op("c", "Conv+BatchNormalization+Relu", "mac")] * 3, [1, 1, 1], id="whatever is fused into it"),
        pytest.param([Op("c", "Conv", "mac"), vector(), Op("c", "Conv", "mac")], [2, 1], id="an activation does not"),
        pytest.param([Op("c", "Conv", "mac"), linear()], [1, 1], id="nor does a linear layer read some channels"),
        pytest.param([linear(), vector(), linear(), vector()], [3, 1], id="columns, then rows, then an all-reduce"),
        pytest.param([linear()] * 3 + [vector(), linear(), vector()], [5, 1], id="q, k, v read the same"),
        pytest.param([linear(), vector(read={"w:b": (1,)}), linear(), vector()], [4], id="a bias between q and k"),
        pytest.param([linear(), Op("a", "Attention", "mac"), linear()], [3], id="attention goes by heads"),
        pytest.param([vector(), vector("LayerNormalization"), vector()], [1, 1, 1], id="a split norm needs the whole"),
        pytest.param([vector(), vector("BatchNormalization"), vector()], [3], id="that of a batch does not"),
    ],
)
def test_barriers_stand_where_the_whole_is_needed(ops: list[Op], groups: list[int]) -> None:
    assert [g.stop - g.start for g in grouped(ops, {"Softmax"})] == groups


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_layer_of_a_language_model_has_four_barriers(phase: str) -> None:
    """Two where the halves of a layer begin, behind a norm on one core, and two all-reduces before the next norm."""
    trace = load_trace(TRACES / "qwen2.5-1.5b-int4.trace")
    (call,) = TensorSplit(trace, 2, DEFAULT, 1 << 20).bind(phase).calls
    assert isinstance(call, TeamCall)
    assert len(call.groups) - 1 == 28 * 4 + 1
    layer = [{op.type for p in group if p is not None for op in p.ops} for group in call.groups[1:5]]
    assert "GroupQueryAttention" in layer[0]
    assert layer[1] == layer[3] == {"SkipSimplifiedLayerNormalization"}
    assert "Sigmoid" in layer[2]


def test_with_nothing_left_on_one_core_there_are_the_two_all_reduces_and_the_norms() -> None:
    trace = load_trace(TRACES / "qwen2.5-1.5b-int4.trace")
    (call,) = TensorSplit(trace, 2, set(), 1 << 20).bind("decode").calls
    assert isinstance(call, TeamCall)
    assert (
        len(call.groups) - 1 == 28 * 4 + 3
    )  # behind the copy of rope rows and, both split now, the table of tokens; the first norm


def test_layers_that_are_alike_are_laid_out_once() -> None:
    """Or a step of decoding would cost as much as all its layers."""
    trace = load_trace(TRACES / "qwen2.5-1.5b-int4.trace")
    (call,) = TensorSplit(trace, 2, DEFAULT, 1 << 20).bind("decode").calls
    assert isinstance(call, TeamCall)
    assert len({id(p) for p in parts(call)}) < 20
    assert len(parts(call)) == 57 * 2 + 57


def test_a_cpu_op_needs_no_barrier_of_its_own() -> None:
    """The host waits for the call before it, and its tensors are in DRAM already."""
    ops = vector(scratch=(8,)), Op("x", "Sigmoid", "cpu"), vector(scratch=(8,))
    program = TensorSplit(trace_of(*ops), 2, set(), 1000).bind("frame")
    assert [len(c.groups) for c in program.calls if isinstance(c, TeamCall)] == [1, 1]
    assert [exchanged(p) for c in program.calls if isinstance(c, TeamCall) for p in parts(c)] == [(0, 0)] * 4


# Exchange


def test_between_two_splits_each_core_writes_its_share_and_reads_the_others() -> None:
    conv = Op("c", "Conv", "mac", scratch=(100,))
    first, second = team(trace_of(conv, conv), 3).groups
    assert [exchanged(p) for p in first if p] == [(0, 33), (0, 33), (0, 34)]
    assert [exchanged(p) for p in second if p] == [(67, 0), (67, 0), (66, 0)]


def test_before_an_op_on_one_core_the_others_hand_over_and_behind_it_all_read_it() -> None:
    ops = vector(scratch=(100,)), vector("Softmax", scratch=(60,)), vector(scratch=(80,))
    call = team(trace_of(*ops), 2, ["Softmax"])
    assert [[exchanged(p) if p else None for p in g] for g in call.groups] == [
        [(0, 0), (0, 30)],  # the first core keeps its half
        [(30, 60), None],
        [(0, 0), (60, 0)],
    ]


def test_what_is_in_dram_already_is_not_exchanged() -> None:
    one = Op("c", "Conv", "mac", write={"spill:x": (40,)}, scratch=())
    other = Op("d", "Conv", "mac", read={"spill:x": (40,)}, scratch=(7,))
    call = team(trace_of(one, other))
    assert [exchanged(p) for p in parts(call)] == [(0, 0)] * 4
    assert call.moved_by_all == 40 + 2 * 40
