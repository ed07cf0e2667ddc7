"""Differences of two traces, by op and in total."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bpusim.trace import Op, Repeat, Tensor, Trace
from bpusim.trace.diff import difference
from bpusim.trace.roofline import Roof

ROOF = Roof(10**9, 100, 1e10, 10**6, 10**9, 4e9, {"exp": 50, "mac": 2}, 5 * 10**6, 50.0)


def changed(trace: Trace, name: str, **fields: Any) -> Trace:
    """The trace with fields of op ``name`` replaced in its decode phase."""
    items: list[Op | Repeat] = []
    for item in trace.phase("decode").items:
        if isinstance(item, Repeat):
            items.append(replace(item, body=tuple(replace(o, **fields) if o.id == name else o for o in item.body)))
        else:
            items.append(replace(item, **fields) if item.id == name else item)
    phases = {**trace.phases, "decode": replace(trace.phase("decode"), items=tuple(items))}
    return Trace(trace.header, trace.tensors, phases)


def rows(a: Trace, b: Trace, **options: Any) -> dict[tuple[str, str], tuple[Any, Any]]:
    return {(r["what"], r["figure"]): (r["before"], r["after"]) for r in difference(a, b, ROOF, **options)}


@pytest.mark.parametrize("kv", [0, 40])
def test_a_trace_does_not_differ_from_itself(kv: int, small: Trace) -> None:
    assert difference(small, small, ROOF, kv=kv) == []


def test_a_change_of_an_op_in_a_repeat_shows_by_pass_and_in_total(small: Trace) -> None:
    # 50 + 2 cycles of each pass become 60 + 2; three passes: 30 more, at 1 ns each.
    d = rows(small, changed(small, "project", cycles=(60, 2)), phase="decode")
    assert d.pop(("decode: project", "cycles")) == (52, 62)
    before, after = d.pop(("decode: total", "cycles"))
    assert after - before == 30
    assert [k for k in d if k != ("decode: total", "time_us")] == []


def test_ops_that_come_and_go_are_told(small: Trace) -> None:
    d = rows(small, changed(small, "head", id="tail"), phase="decode")
    assert d == {("decode: head", "op"): ("mac, 1 times", None), ("decode: tail", "op"): (None, "mac, 1 times")}


def test_costs_that_differ_only_elsewhere_are_told(small: Trace) -> None:
    other = changed(small, "attend", macs=(0, 0, 5))
    assert rows(small, other, phase="decode") == {("decode: attend", "costs elsewhere"): ("as here", "differ")}
    assert rows(small, other, phase="decode", kv=2)["decode: attend", "macs"] == (0, 10)


def test_header_and_tensors_are_compared(small: Trace) -> None:
    header = replace(small.header, quant={"plan": "int8"}, context=99, command="x")
    other = Trace(header, (*small.tensors, Tensor("z", 7)), small.phases)
    assert rows(small, other) == {
        ("header", "context"): (64, 99),
        ("header", "quant.plan"): (None, "int8"),
        ("tensors", "number"): (4, 5),
        ("tensors", "resident_bytes"): (1000, 1007),
    }


def test_a_phase_that_only_one_has_is_told(small: Trace) -> None:
    other = Trace(small.header, small.tensors, {"decode": small.phase("decode")})
    assert rows(small, other) == {("prefill", "phase"): ("there", None)}


def test_a_phase_that_starts_a_sequence_only_is_told(small: Trace) -> None:
    first = replace(small.phase("prefill"), empty_cache=True)
    other = Trace(small.header, small.tensors, {**small.phases, "prefill": first})
    assert rows(small, other) == {("prefill", "empty cache"): (None, True)}
