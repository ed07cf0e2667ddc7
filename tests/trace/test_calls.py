"""Calls and CPU ops with what repeats folded: nothing is lost by folding."""

from __future__ import annotations

import pytest

from bpusim.ports import BUFFER_KINDS
from bpusim.trace import CallProgram, Header, Op, Phase, Repeat, Trace
from bpusim.trace.calls import stops


def op(name: str, unit: str = "mac") -> Op:
    side = {"spill:x": (3,)} if unit == "cpu" else {"w:x": (10,)}
    return Op(name, "T", unit, macs=(2,), issued=(2,), read=side, write={"spill:y": (4,)}, tensors=2 * (unit == "cpu"))  # type: ignore[arg-type]


def shape(*items: Op | Repeat) -> list[tuple[int, list[str]]]:
    trace = Trace(Header("m", {}), (), {"frame": Phase("frame", 0, ("1",), items)})
    return [(g.count, [s.name for s in g.stops]) for g in stops(trace.bind("frame"))]


def test_a_call_is_named_by_its_ends() -> None:
    assert shape(op("a"), op("b"), op("c")) == [(1, ["a .. c"])]
    assert shape(op("a")) == [(1, ["a"])]


def test_passes_of_a_repeat_are_folded() -> None:
    body = (op("a"), op("x", "cpu"), op("b"))
    # in a | x | [b a | x] x 3 | b out: the calls between two CPU ops are alike, the first and the last are not.
    assert shape(op("in"), Repeat(4, "", body), op("out")) == [
        (1, ["in .. a"]),
        (3, ["x", "b .. a"]),
        (1, ["x", "b .. out"]),
    ]


def test_the_longest_cover_wins_and_the_shortest_pattern_of_equals() -> None:
    assert shape(Repeat(6, "", (op("x", "cpu"),))) == [(6, ["x"])]
    twice = (op("x", "cpu"), op("x", "cpu"), op("a"))
    assert shape(Repeat(3, "", twice)) == [(3, ["x", "x", "a"])]


def test_ops_of_one_name_that_differ_are_not_folded() -> None:
    assert [n for n, _ in shape(op("x", "cpu"), op("a"), op("x", "cpu"), op("a"))] == [1]


@pytest.mark.parametrize("name", ["qwen2.5-3b-int4-fallback.trace", "resnet50-992.trace"])
def test_folding_loses_nothing(name: str, committed: dict[str, Trace]) -> None:
    trace = committed[name]
    for phase in trace.phases:
        program = trace.bind(phase, tokens=max(trace.phase(phase).tokens, 1))
        groups = stops(program)
        every = [s for g in groups for _ in range(g.count) for s in g.stops]
        assert len(every) == len(program.segments)
        assert sum(s.macs for s in every) == program.macs
        moved = sum(s.bytes if isinstance(s, CallProgram) else sum(s.moved.values()) for s in program.segments)
        assert sum(s.read + s.written for s in every) == moved
        assert sum(s.of(k) for s in every for k in BUFFER_KINDS) == moved
