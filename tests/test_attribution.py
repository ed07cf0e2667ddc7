"""Every picosecond of every step of every shipped scenario has a cause, whatever is asked of the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bpusim.metrics import CAUSES, Keep, Result
from bpusim.ports import CALL_CAUSES
from bpusim.scenario import load_scenario
from bpusim.system import simulate

SCENARIOS = Path(__file__).parent.parent / "scenarios"
LONG = {"hetero_one_core": "12 s", "multimodal_loop": "12 s", "thermal": "10 s"}
"""What goes on for so much longer than a test wants to: the first seconds of it."""


def names() -> list[str]:
    return sorted(str(p.relative_to(SCENARIOS).with_suffix("")) for p in SCENARIOS.rglob("*.yaml"))


def detailed(name: str, keep: Keep | None, *overrides: str) -> Result:
    cut = [f"run.until={until}" for part, until in LONG.items() if name.startswith(part)]
    return simulate(load_scenario(SCENARIOS / f"{name}.yaml", [*cut, *overrides]), detail=keep)


@pytest.mark.parametrize("name", names())
def test_causes_of_every_step_sum_to_its_time_and_nothing_is_left_over(name: str) -> None:
    result = detailed(name, Keep(ops=0, slices=0))
    assert result.detail is not None
    assert result.detail.steps
    for step in result.detail.steps:
        assert sum(step.spent) == step.end - step.start
        assert min(step.spent) >= 0
        assert step.spent[CAUSES.index("other")] == 0, step


ALICE, BOTH = ("streams.alice.requests=1",), ("streams.alice.requests=1", "streams.bob.requests=1")
FEW = {
    "batch": BOTH,
    "cpu_fallback": (*ALICE, "streams.alice.output=4"),
    "dual_replica": BOTH,
    "hetero": ("streams.talk.requests=1", "streams.talk.output=8", "streams.camera.count=6"),
    "pipeline_split": ALICE,
    "single_1_5b": ALICE,
    "thermal_fast_dram": ("run.until=4 s",),
}
"""A little of each."""


@pytest.mark.parametrize("name", FEW)
def test_asking_for_detail_changes_nothing(name: str) -> None:
    plain, told = (detailed(name, keep, *FEW[name]).to_dict() for keep in (None, Keep()))
    assert plain.pop("events") <= told.pop("events")  # what passes alone without an event is watched now
    assert plain == told


@pytest.mark.parametrize("name", FEW)
def test_shares_of_ops_sum_to_the_calls_of_all_steps(name: str) -> None:
    result = detailed(name, Keep(slices=0), *FEW[name])
    detail = result.detail
    assert detail is not None
    assert detail.ops_until is None
    by_core = dict.fromkeys(result.cores, 0)
    for (core, _, _), sums in detail.sums.items():
        by_core[core] += int(sums.causes.sum())
        assert (sums.causes >= 0).all()
    for core in result.cores:
        assert by_core[core] == sum(c.end - c.start for c in detail.calls if c.core == core)
    if name in ("single_1_5b", "cpu_fallback", "dual_replica"):  # each call is a step's alone
        ops = sum(s.causes.sum(axis=0) for s in detail.sums.values())
        steps = np.array([s.spent for s in detail.steps]).sum(axis=0)[: len(CALL_CAUSES)]
        outside = CALL_CAUSES.index("dispatch")  # most of it is the host's
        assert np.delete(ops, outside).tolist() == np.delete(steps, outside).tolist()
        assert ops[outside] <= steps[outside]


@pytest.mark.parametrize("name", FEW)
def test_bandwidth_over_time_is_every_byte_that_moved(name: str) -> None:
    result = detailed(name, Keep(ops=0, slices=0), *FEW[name])
    assert result.detail is not None
    for master, moved in result.dram.channel_bytes.items():
        if not moved:
            continue
        edges, rates = result.detail.bandwidth[master].per_second(result.elapsed)
        assert np.dot(rates, np.diff(edges)) == pytest.approx(moved, rel=1e-9, abs=2)


def test_background_masters_are_in_the_bandwidth_from_the_start() -> None:
    overrides = "machine.masters={display: {rate: 1 GB/s, written: 0}}", *ALICE
    result = detailed("single_1_5b", Keep(ops=0, slices=0), *overrides)
    assert result.detail is not None
    edges, rates = result.detail.bandwidth["display"].per_second(result.elapsed)
    assert np.dot(rates, np.diff(edges)) == pytest.approx(result.dram.channel_bytes["display"], rel=1e-9)
    assert rates[0] == pytest.approx(1e9)


def test_what_does_not_fit_is_counted() -> None:
    few = detailed("single_1_5b", Keep(slices=500), *ALICE).detail
    every = detailed("single_1_5b", Keep(slices=10**9), *ALICE).detail
    assert few is not None
    assert every is not None
    assert not every.left_out

    def ops(of: object) -> int:
        return sum(len(d.ops) for d in of.details)  # type: ignore[attr-defined]

    assert 500 <= ops(few) + len(few.transfers) < 500 + 1000  # the last call is kept whole
    assert few.left_out["ops"] + ops(few) == ops(every)


def test_a_window_has_the_ops_of_the_calls_in_it_alone() -> None:
    every = detailed("single_1_5b", Keep(), *ALICE).detail
    begin, end = 300 * 10**9, 400 * 10**9
    window = detailed("single_1_5b", Keep(begin, end, ops=0), *ALICE).detail
    assert every is not None
    assert window is not None
    assert [d.start for d in window.details] == [d.start for d in every.details if d.end >= begin and d.start < end]
    assert not window.sums


def test_sums_over_ops_end_where_they_may_cost_no_more() -> None:
    few = detailed("single_1_5b", Keep(slices=0, ops=2000), *ALICE).detail
    assert few is not None
    executed = sum(int(s.executions.sum()) for s in few.sums.values())
    assert 2000 <= executed < 3000
    assert few.ops_until is not None
    assert sum(s.calls for s in few.sums.values()) == sum(c.start < few.ops_until for c in few.calls)
