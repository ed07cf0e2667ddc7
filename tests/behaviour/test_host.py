"""Behaviour of the CPU cores that users of real boards report (shared/cases, BH rows)."""

from __future__ import annotations

from typing import Any

import pytest
from small_board import SCENARIOS, cam, chat, frames, run

from bpusim import simulate
from bpusim.errors import BpusimError

SLOW = {"machine.host.cores": 2, "machine.host.slow": {"cores": 4, "speed": 0.4}}


def _cpu_stage(affinity: str, parts: int | str = "cores", **more: object) -> float:
    """ms that a frame spends in a CPU stage of 120 ms: at work, and in line for a core behind parts of its own."""
    text = f"rate: 1 Hz, count: 2, after: {{cpu: 120 ms}}, affinity: {affinity}, parts: {parts}"
    spent = frames(cam(text, set=SLOW | more)).breakdown_ms
    return spent["host"] + spent["queueing"] - 0.6


def test_work_over_fast_and_slow_cores_waits_for_the_slowest() -> None:
    """BH-49: a part on each core. On all of them it takes what a sixth takes a slow one; on the fast ones alone a half
    each; starting and joining 6 ms a part makes all cores slower than the slow ones, and these than the fast ones."""
    free = {a: _cpu_stage(a) for a in ("fast", "slow", "any")}
    assert free == pytest.approx({"fast": 60, "slow": 30 / 0.4, "any": 20 / 0.4})
    paid = {a: _cpu_stage(a, **{"machine.host.join_per_part": "6 ms"}) for a in ("fast", "slow", "any")}
    assert paid == pytest.approx({"fast": 72, "slow": 54 / 0.4, "any": 56 / 0.4})
    assert paid["fast"] < paid["slow"] < paid["any"]


def test_six_parts_on_two_fast_and_four_slow_cores() -> None:
    """BH-49: the same six parts are three rounds on the fast cores, two on the slow ones, one on all."""
    at = {"machine.host.slow": {"cores": 4, "speed": 0.25}}
    six = {a: _cpu_stage(a, 6, **at) for a in ("fast", "slow", "any")}
    assert six == pytest.approx({"fast": 3 * 20, "slow": 2 * 20 / 0.25, "any": 20 / 0.25})
    assert six["any"] > six["fast"]  # all cores are slower than the two fast ones


def test_stages_of_a_pipeline_and_ops_of_the_cpu_may_be_cut() -> None:
    """BH-49."""
    loop = "pipeline: {work: {host: 120 ms, parts: 6, affinity: slow}}, trigger: {every: 1 s}, count: 2"
    streams = run({"p": loop}, set=SLOW).to_dict()["streams"]
    assert streams["p"]["ends"]["work"]["mean_ms"] == pytest.approx(2 * 20 / 0.4)
    path = SCENARIOS / "cpu_fallback.yaml"
    one, four = (chat(simulate(path, set={"host.fallback_parts": n}), "alice") for n in (1, "cores"))
    assert four.breakdown_ms["fallback"] < 0.4 * one.breakdown_ms["fallback"]


def test_the_runtime_on_slow_cores_takes_longer_over_its_work() -> None:
    """BH-49: all host work of a token, interrupts included, by the speed of the cores."""
    users = {"a": "chat: m, prompt: 8, output: 20"}
    fast, slow = (chat(run(users, set=SLOW | {"host.affinity": a})).breakdown_ms for a in ("any", "slow"))
    assert slow["host"] == pytest.approx(fast["host"] / 0.4, rel=1e-6)
    assert slow["dispatch"] > fast["dispatch"]
    assert slow["dram"] == pytest.approx(fast["dram"], rel=0.01)
    alike = chat(run(users)).breakdown_ms
    assert fast == pytest.approx(alike)  # one thread at a time is always on a fast core


@pytest.mark.parametrize(
    ("streams", "changes", "message"),
    [
        ({"a": "chat: m, prompt: 8, output: 2"}, {"host.affinity": "slow"}, "all CPU cores of the machine are alike"),
        ({"cam": "frames: d, rate: 1 Hz"}, SLOW | {"machine.host.slow.speed": 1.5}, "1.5 is out of range"),
        ({"cam": "frames: d, rate: 1 Hz, affinity: fast"}, SLOW, "affinity means nothing without a cpu stage"),
        ({"cam": "frames: d, rate: 1 Hz, after: {cpu: 1 ms}, parts: 0"}, SLOW, "not a number of parts"),
        ({"p": "pipeline: {w: {frames: d, parts: 2}}, trigger: {every: 1 s}"}, SLOW, "parts means nothing to frames"),
        ({"cam": "frames: d, rate: 1 Hz"}, {"machine.power.host.slow": "1 W"}, "power.host.slow is of no core"),
    ],
)
def test_cores_and_parts_that_would_do_nothing_are_errors(
    streams: dict[str, str], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BpusimError, match=message):
        run(streams, "run: {until: 1 s}", set=changes)


def test_slow_cores_draw_by_their_speed_unless_told() -> None:
    """BH-49: as much work takes as much energy then; with a figure of their own it takes that."""
    text = "rate: 1 Hz, count: 5, after: {cpu: 200 ms}, affinity: "
    base = SLOW | {"machine.cooling": "passive_heatsink"}

    def work_j(affinity: str, **more: object) -> float:
        result = cam(text + affinity, set=base | more)
        assert result.heat is not None
        return result.heat.energy_j["host"] - 0.25 * result.elapsed / 1e12

    assert work_j("slow") == pytest.approx(work_j("fast"), rel=1e-3)
    own = work_j("slow", **{"machine.power.host.slow": "0.45 W"}) - work_j("slow")
    assert own == pytest.approx((0.45 - 0.18) * 5 * 0.2 / 0.4, rel=1e-3)


def test_a_split_over_more_cores_than_the_host_has_is_warned_about() -> None:
    """BH-14: the rule and both values."""
    path = SCENARIOS / "pipeline_split.yaml"
    few = {w.code: w.text for w in simulate(path, set={"machine.host.cores": 1}).warnings}
    assert "is split over 2 cores and the host has 1 CPU core:" in few["host-threads"]
    assert "machine.host.cores: 2" in few["host-threads"]
    assert "host-threads" not in [w.code for w in simulate(path).warnings]


def test_a_cut_of_cpu_ops_that_there_are_none_of_is_warned_about() -> None:
    result = cam("rate: 10 Hz, count: 2", set={"host.fallback_parts": 4})
    assert "parts-unused" in [w.code for w in result.warnings]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"machine.host.join_per_part": "1 us"}, "parts-unused"),
        ({"models.m.batch": 8}, "batch-unused"),
        ({"machine.host.cores": 1, "models.m.cores": ["bpu0", "bpu1"], "models.m.split": "tensor",
          "models.m.sync": "0 s"},
         "host-threads"),
    ],
)  # fmt: skip
def test_what_changes_nothing_is_warned_about(changes: dict[str, Any], code: str) -> None:
    result = run({"a": "chat: m, prompt: 8, output: 2"}, set=changes)
    assert code in [w.code for w in result.warnings]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models.m.cores": ["any"]}, "write cores: any, without a list"),
        ({"machine.host.cores": 10**9}, "1000000000 is out of range"),
        ({"models.m.cores": ["bpu0", "bpu1"], "models.m.split": "tensor", "models.m.sync": "1 us",
          "models.m.unsplit": ["GroupQueryAttention", "MatMulNBits", "Sigmoid", "Mul", "Add", "RotaryRows",
                               "GatherBlockQuantized", "SimplifiedLayerNormalization",
                               "SkipSimplifiedLayerNormalization"]}, "leaves nothing of model 'm' to split"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BpusimError, match=message) as caught:
        run({"a": "chat: m, prompt: 8, output: 2"}, set=changes)
    assert len(caught.value.problems) == 1
