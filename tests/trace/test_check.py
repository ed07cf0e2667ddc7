"""Checks of a trace: every committed one is good, and each law sees what breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bpusim.trace import Header, Op, Phase, Repeat, Tensor, Trace
from bpusim.trace.check import check_trace

TARGET = {"mac.rows": 8, "mac.cols": 8, "vector.cycles.exp": 8, "scratchpad": "1000 B", "activations": "500 B"}
GOOD = Op("a", "A", "mac", macs=(60,), issued=(64,), cycles=(10,), mac_cycles=(1,), read={"w:t": (100,)})
TENSORS = (Tensor("t", 100, role="linear"),)


def frame(*items: Op | Repeat, tensors: tuple[Tensor, ...] = TENSORS, source: str = "") -> Trace:
    header = Header("m", TARGET, source={"format": source} if source else {})
    return Trace(header, tensors, {"frame": Phase("frame", 0, ("1",), items)})


def test_all_committed_traces_are_good(committed: dict[str, Trace]) -> None:
    assert {name: check_trace(t).problems for name, t in committed.items()} == {name: [] for name in committed}


def test_a_check_says_what_it_looked_at() -> None:
    report = check_trace(frame(GOOD))
    assert report.problems == []
    assert report.checked["tensors that somebody reads"] == 1
    assert report.checked["weights read within what is stored"] == 1
    assert report.checked["bytes of calls by kind"] == 8


@pytest.mark.parametrize(
    ("op", "problem"),
    [
        (replace(GOOD, macs=(65,)), "65 useful MACs, 64 issued"),
        (replace(GOOD, mac_cycles=(11,)), "the array works 11 of 10 cycles"),
        (replace(GOOD, issued=(65,)), "65 MACs in 1 cycles of an array of 64"),
        (replace(GOOD, read={"w:t": (101,)}), "reads 101 of the 100 bytes of 't'"),
        (replace(GOOD, read={"w:t": (100,), "io:x": (1901,)}, tiles=(2,)), "2001 bytes in 2 tiles; the scratchpad has 1000"),  # noqa: E501
        (replace(GOOD, scratch=(501,)), "501 bytes on chip, which has 500"),
        (replace(GOOD, vec={"log": (1,)}), "unknown class of vector work 'log'"),
        (replace(GOOD, write={"w:t": (1,)}), "writes weight 't'"),
        (replace(GOOD, unit="cpu"), "the array works 1 cycles of an op on the CPU"),
    ],
)  # fmt: skip
def test_what_an_op_cannot_be_is_told(op: Op, problem: str) -> None:
    (told,) = check_trace(frame(op)).problems
    assert told == f"phase 'frame', op 'a': {problem}" if "writes" in problem else f"phase frame, op 'a': {problem}"


def test_tensors_that_hang_in_the_air_are_told() -> None:
    loose = (*TENSORS, Tensor("u", 5))
    assert check_trace(frame(GOOD, tensors=loose)).problems == ["no op reads tensor 'u'"]


def test_spilled_tensors_are_written_then_read() -> None:
    write, read = Op("w", "W", "dma", write={"spill:x": (5,)}), Op("r", "R", "dma", read={"spill:x": (5,)})
    assert check_trace(frame(GOOD, write, read)).problems == []
    assert check_trace(frame(GOOD, write)).problems == ["phase 'frame': nobody reads 'spill:x', which is written"]
    what = ["phase 'frame', op 'r': reads 'spill:x', which nobody wrote before it"]
    assert check_trace(frame(GOOD, read)).problems == what
    assert len(check_trace(frame(GOOD, read, write)).problems) == 1
    assert check_trace(frame(GOOD, read, source="profile")).problems == []  # rows do not say who wrote


def test_the_first_pass_of_a_repeat_reads_what_was_written_ahead_of_it() -> None:
    first = Op("f", "F", "dma", write={"spill:x": (5,)})
    body = Op("b", "B", "dma", read={"spill:x": (5,), "spill:x'": (5,)}, write={"spill:x": (5,)})
    assert check_trace(frame(GOOD, first, Repeat(2, "", (body,)))).problems == []
    other = replace(first, write={"spill:y": (5,)})
    assert check_trace(frame(GOOD, other, Repeat(2, "", (body,)))).problems == [
        "phase 'frame', op 'b': reads 'spill:x', which nobody wrote before it",
        "phase 'frame': nobody reads 'spill:y', which is written",
    ]


def test_costs_that_fit_at_first_are_checked_where_the_cache_is_full() -> None:
    grows = replace(GOOD, macs=(0, 1), issued=(64,))
    header = Header("m", TARGET, context=101)
    trace = Trace(header, TENSORS, {"step": Phase("step", 1, ("1", "kv"), (grows,))})
    assert check_trace(trace).problems == ["phase step at kv 100, 1 token, op 'a': 100 useful MACs, 64 issued"]


def test_a_position_that_cannot_be_counted_is_a_problem() -> None:
    huge = Op("a", "A", "dma", read={"io:x": (0, 2**52)})
    trace = Trace(Header("m", {}, context=10**6), (), {"step": Phase("step", 1, ("1", "kv"), (huge,))})
    assert "exceed what can be counted" in check_trace(trace).problems[0]


def test_a_phase_over_an_empty_cache_is_checked_there_only() -> None:
    grows = replace(GOOD, macs=(0, 1), issued=(64,))
    phases = {"step": Phase("step", 1, ("1", "kv"), (grows,), empty_cache=True)}
    assert check_trace(Trace(Header("m", TARGET, context=101), TENSORS, phases)).problems == []
