"""Each cause is the largest part of the difference between two scenarios: shipped ones, some with overrides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import bpusim
from bpusim.metrics import CAUSES, Result
from bpusim.metrics.versus import Difference
from bpusim.study.against import versus
from bpusim.study.explain import streams_of
from bpusim.trace import load_trace, save_trace

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
Side = tuple[str, tuple[str, ...]]
Ran = Callable[[Side], Result]


@dataclass(frozen=True)
class Case:
    """``one`` takes longer than ``other`` at an interval of a stream, mostly for ``cause``."""

    cause: str
    one: Side
    other: Side
    stream: str = "alice"
    interval: str = "each token"


def plain(name: str) -> Side:
    return name, ()


def changed(name: str, *sets: str) -> Side:
    return name, sets


SYNCING = "machine.cores.layer_sync=0.3 ms"
"""A pause at the end of each layer that is longer than what a scratchpad of 4 MiB can fetch ahead."""
CASES = [
    Case("compute", plain("single_3b"), plain("single_1_5b"), interval="first token"),
    Case("dram", plain("int8_3b"), plain("single_3b")),
    Case("scratchpad", changed("single_3b", SYNCING), changed("single_3b", SYNCING, "LARGER SCRATCHPAD")),
    Case("contention", plain("dual_replica"), plain("single_1_5b")),
    Case("throttling", plain("thermal_fast_dram"), plain("dual_replica")),
    Case(
        "wakeup",
        changed("hetero", "machine.clocks.cores.sleep={after: 5 ms, wake: 15 ms}"),
        plain("hetero"),
        "camera",
        "a frame",
    ),
    Case("dispatch", plain("tuning/4_no_fallback"), plain("tuning/5_async_submit")),
    Case("host", plain("tuning/1_out_of_the_box"), plain("tuning/2_logging_off")),
    Case("fallback", plain("cpu_fallback"), plain("single_3b")),
    Case("handover", plain("pipeline_split"), plain("single_3b")),
    Case("sync", changed("tensor_split", "models.chat.sync=200 us"), plain("tensor_split")),
    Case(
        "loading",
        changed("single_3b", "models.chat.load={rate: 1 GB/s}"),
        plain("single_3b"),
        interval="cold first token",
    ),
    Case("queueing", changed("dual_replica", "models.right.cores=bpu0"), plain("dual_replica"), "bob"),
    Case("batching", plain("batch"), plain("single_1_5b"), "bob"),
    Case("camera", changed("hetero", "streams.camera.before.camera=66 ms"), plain("hetero"), "camera", "a frame"),
    Case("pacing", changed("single_3b", "streams.alice.pace=5 Hz"), plain("single_3b")),
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """``ran(side)``: the result of a scenario with overrides, which runs once."""
    results: dict[Side, Result] = {}

    def run(side: Side) -> Result:
        if side not in results:
            name, sets = side
            if "LARGER SCRATCHPAD" in sets:
                trace = larger_scratchpad(tmp_path_factory.mktemp("trace"))
                sets = (*sets[:-1], "machine.cores.scratchpad=16 MiB", f"models.chat.trace={trace}")
            results[side] = bpusim.simulate(SCENARIOS / f"{name}.yaml", set=sets)
        return results[side]

    return run


def larger_scratchpad(folder: Path) -> Path:
    """The 3B's trace, tiles as they are, for a core with 16 MiB to fetch ahead into."""
    trace = load_trace(SCENARIOS.parent / "traces" / "qwen2.5-3b-int4.trace")
    target = {**trace.header.target, "scratchpad": f"{16 * 2**20} B"}
    save_trace(replace(trace, header=replace(trace.header, target=target)), folder / "3b.trace")
    return folder / "3b.trace"


def differences(ran: Ran, one: Side, other: Side, stream: str) -> Sequence[Difference]:
    found = versus(("one", "other"), streams_of(ran(one)), streams_of(ran(other)))
    return next(p.differences for p in found.pairs if p.stream == stream)


def test_every_cause_that_can_occur_has_a_case() -> None:
    """``other`` is what nobody claims: it is 0 everywhere."""
    assert [c.cause for c in CASES] == [c for c in CAUSES if c != "other"]


@pytest.mark.parametrize("case", CASES, ids=[c.cause for c in CASES])
def test_it_is_the_largest_part_of_the_difference(ran: Ran, case: Case) -> None:
    found = {d.name: d for d in differences(ran, case.one, case.other, case.stream)}[case.interval]
    cause, part = found.ranked()[0]
    assert cause == case.cause
    assert found.total > 0
    assert part > 0.5 * found.total


@pytest.mark.parametrize("case", CASES, ids=[c.cause for c in CASES])
def test_the_parts_sum_to_the_difference_to_the_picosecond(ran: Ran, case: Case) -> None:
    rows = differences(ran, case.one, case.other, case.stream)
    assert rows
    for d in rows:
        assert sum(d.causes.values()) == d.total == d.mean - d.other_mean
