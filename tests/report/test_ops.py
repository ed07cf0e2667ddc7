"""``ops.csv``: what each op cost, and that it adds up."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from pathlib import Path

import pytest

from bpusim.hardware.presets import machine_preset
from bpusim.metrics import Detail, Keep, Result
from bpusim.ports import CALL_CAUSES
from bpusim.report.ops import OP_CAUSES, OpRow, by_type, op_rows, ops_csv
from bpusim.scenario import load_scenario
from bpusim.system import simulate

SCENARIOS = Path(__file__).parents[2] / "scenarios"
LITTLE = ("streams.alice.requests=1", "streams.alice.output=3")


@pytest.fixture(scope="module")
def fallback() -> Result:
    """One request to a model with a CPU op a layer."""
    return simulate(load_scenario(SCENARIOS / "cpu_fallback.yaml", LITTLE), detail=Keep(slices=0))


def detail_of(result: Result) -> Detail:
    assert result.detail is not None
    return result.detail


def total(rows: list[OpRow], phase: str, cause: str) -> int:
    return sum(r.causes[OP_CAUSES.index(cause)] for r in rows if r.phase == phase)


def test_causes_of_ops_sum_to_those_of_the_tokens(fallback: Result) -> None:
    detail, rows = detail_of(fallback), op_rows(detail_of(fallback))
    steps = {kind: [s for s in detail.steps if s.kind == kind] for kind in ("first token", "token")}
    for kind, phase in (("first token", "prefill"), ("token", "decode")):
        for k, cause in enumerate(CALL_CAUSES):
            if cause != "dispatch":  # most of that is the host's
                assert total(rows, phase, cause) == sum(s.spent[k] for s in steps[kind])


def test_ops_on_the_cpu_have_rows_of_their_own(fallback: Result) -> None:
    cpu = [r for r in op_rows(detail_of(fallback)) if r.core == "cpu"]
    assert {(r.phase, r.type, r.unit) for r in cpu} == {("prefill", "Sigmoid", "cpu"), ("decode", "Sigmoid", "cpu")}
    assert sum(r.executions for r in cpu if r.phase == "decode") == 2 * 36  # two steps of 36 layers
    for r in cpu:
        assert r.time == r.causes[OP_CAUSES.index("fallback")] > 0
        assert r.bytes > 0


def test_macs_and_bytes_are_those_of_the_channel_and_the_cores(fallback: Result) -> None:
    rows = op_rows(detail_of(fallback))
    assert sum(r.bytes for r in rows if r.core == "bpu0") == fallback.dram.channel_bytes["bpu0"]
    peak = machine_preset("bpu80").cores.peak_macs_per_s
    assert sum(r.macs for r in rows) / (fallback.elapsed / 1e12) / peak == pytest.approx(
        fallback.cores["bpu0"].mac_utilization
    )


def test_repeated_layers_are_one_row_each_op() -> None:
    result = simulate(load_scenario(SCENARIOS / "single_1_5b.yaml", LITTLE), detail=Keep(slices=0))
    rows = [r for r in op_rows(detail_of(result)) if r.phase == "decode"]
    assert len({(r.core, r.op) for r in rows}) == len(rows)
    (down,) = [r for r in rows if r.op.startswith("down_proj") and r.executions > 2]
    assert down.executions % 2 == 0  # two decode steps


def test_times_in_the_file_are_exact_and_sum() -> None:
    result = simulate(load_scenario(SCENARIOS / "single_1_5b.yaml", LITTLE), detail=Keep(slices=0))
    rows = op_rows(detail_of(result))
    table = list(csv.DictReader(io.StringIO(ops_csv(rows))))
    assert len(table) == len(rows)
    for line, row in zip(table, rows, strict=True):
        assert Decimal(line["time_ms"]) == sum(Decimal(line[f"{c}_ms"]) for c in OP_CAUSES)
        assert Decimal(line["time_ms"]) * 10**9 == row.time
    calls = sum(c.end - c.start for c in detail_of(result).calls)
    assert sum(Decimal(line["time_ms"]) for line in table) * 10**9 == calls


def test_types_are_summed_within_a_phase_the_largest_first() -> None:
    def row(op: str, type_: str, compute: int, core: str = "bpu0", phase: str = "decode") -> OpRow:
        return OpRow("alice", phase, core, op, type_, "mac", 1, (compute, *[0] * 7), compute, 10, 20, (1, *[0] * 7))

    rows = [row("a", "MatMul", 5), row("b", "Add", 20), row("c", "MatMul", 6, "bpu1"), row("d", "Add", 1, phase="x")]
    summed = by_type(rows)
    assert [(r.phase, r.type, r.core, r.executions, r.time, r.macs, r.bytes) for r in summed] == [
        ("decode", "Add", "bpu0", 1, 20, 10, 1),
        ("decode", "MatMul", "several", 2, 11, 20, 2),
        ("x", "Add", "bpu0", 1, 1, 10, 1),
    ]
