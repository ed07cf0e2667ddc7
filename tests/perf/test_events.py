"""What a run costs, in events: ``Environment.step`` is counted, never timed, so that every machine agrees.

Decode and prefill are differences of two runs: set-up and what else both have cancel. Stale timers count. Steps of
decode that are taken ahead go round ``Environment.step``: what they are made of is counted without that.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from pathlib import Path
from typing import Any, Protocol

import pytest
import simpy

from bpusim.cores import plan
from bpusim.scenario import load_scenario
from bpusim.system import System
from bpusim.trace import CallProgram

ROOT = Path(__file__).resolve().parent.parent.parent
SHORT, LONG = 16, 80
TOKENS = 100
ROOMY = {"preset": "bpu80", "dram": {"capacity": "16 GB", "usable": "16 GB"}}
"""Two 7B replicas fit."""


class Steps(Protocol):
    """How many events a scenario takes; ``ahead``: but for those that need no event of the simulation."""

    def __call__(self, scenario: str | Path, changes: dict[str, Any], *, ahead: bool = False) -> int: ...


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """How many events a scenario takes, with these changes."""
    seen = 0
    step = simpy.Environment.step

    def counted(env: simpy.Environment) -> None:
        nonlocal seen
        seen += 1
        step(env)

    def run(scenario: str | Path, changes: dict[str, Any], *, ahead: bool = False) -> int:
        nonlocal seen
        system = built(scenario, changes)
        if not ahead:
            system.env.cruise = None
        seen = 0
        system.run()
        assert seen, "the run goes round Environment.step"
        return seen

    monkeypatch.setattr(simpy.Environment, "step", counted)
    return run


def built(scenario: str | Path, changes: dict[str, Any]) -> System:
    """A shipped scenario, or one in a file, with changes."""
    file = ROOT / "scenarios" / f"{scenario}.yaml" if isinstance(scenario, str) else scenario
    return System.build(load_scenario(file, changes))


def trace(size: str) -> str:
    return str(ROOT / "traces" / f"qwen2.5-{size}-int4.trace")


def dual(output: int, size: str = "3b", prompt: int = 32, offset: str = "0 ms") -> dict[str, Any]:
    """Changes to ``dual_replica``: two users who ask once."""
    users = {f"streams.{s}.{k}": v for s in ("alice", "bob") for k, v in (("output", output), ("prompt", prompt))}
    return {
        "machine": ROOMY,
        "models.left.trace": trace(size),
        "models.right.trace": trace(size),
        "streams.alice.requests": 1,
        "streams.bob.requests": 1,
        "streams.bob.start": offset,
        **users,
    }


def decode(steps: Steps, **how: Any) -> float:
    """Events of a token-step of both cores."""
    long, short = (steps("dual_replica", dual(n, **how)) for n in (LONG, SHORT))
    return (long - short) / (LONG - SHORT)


@pytest.mark.parametrize("offset", ["0 ms", "40 ms"])
def test_decode_of_two_streams_takes_two_dozen_events(steps: Steps, offset: str) -> None:
    """16 in step with each other, 18 out of step."""
    assert decode(steps, offset=offset) <= 24


@pytest.mark.parametrize("size", ["0.5b", "7b"])
def test_decode_does_not_depend_on_the_model(steps: Steps, size: str) -> None:
    assert decode(steps, size=size) == pytest.approx(decode(steps), rel=0.1)


def test_decode_does_not_grow_with_the_context(steps: Steps) -> None:
    assert decode(steps, prompt=3000) == decode(steps, prompt=100)


def test_a_long_answer_is_taken_ahead(steps: Steps) -> None:
    """But for a few steps at its begin and its end: some 700 events of 8,740."""
    ahead, all_of_them = (steps("dual_replica", dual(512), ahead=a) for a in (True, False))
    assert all_of_them > 8000
    assert ahead <= 800


def chunk(steps: Steps, merge: str) -> int:
    """Events of the second chunk of a prompt of 512 tokens, on a core alone."""
    one, two = (
        steps(
            "single_3b",
            {"streams.alice.prompt": n, "streams.alice.output": 1, "streams.alice.requests": 1, "engine.merge": merge},
        )
        for n in (256, 512)
    )
    return two - one


def test_merging_saves_most_events_of_a_prefill_chunk(steps: Steps) -> None:
    """365 instead of 3586."""
    merged, single = chunk(steps, "on"), chunk(steps, "off")
    assert merged <= 400
    assert merged * 9 <= single


def frame(steps: Steps, file: Path, merge: str) -> float:
    """Events of a camera frame with the machine to itself."""
    camera = {"frames": "detector", "rate": "4 Hz"}
    detector = {"trace": str(ROOT / "traces" / "resnet50-992.trace"), "cores": "bpu0"}
    scenario = {"machine": "bpu80", "models": {"detector": detector}, "streams": {"camera": camera}}
    file.write_text(json.dumps(scenario))  # JSON is YAML
    few, many = (steps(file, {"streams.camera.count": n, "engine.merge": merge}) for n in (2, 6))
    return (many - few) / 4


def test_merging_saves_most_events_of_a_camera_frame(steps: Steps, tmp_path: Path) -> None:
    """11 instead of 228, 41 at first: the network's tensors stay on chip, so that there is less to merge."""
    merged, single = (frame(steps, tmp_path / "camera.yaml", m) for m in ("on", "off"))
    assert merged <= 45
    assert merged * 5 <= single


def test_a_camera_frame_alone_is_one_event_of_its_core_once_it_has_come_before(steps: Steps, tmp_path: Path) -> None:
    """11, of which 9 are the camera's and the host's: the way of its first byte, and its end."""
    assert frame(steps, tmp_path / "camera.yaml", "on") <= 12


def plans(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> int:
    """How many plans of decode steps are worked out in a run of ``dual_replica``."""
    made = 0
    real = plan.plan_for

    def counted(call: CallProgram, timing: plan.Timing, *, wide: bool = True) -> plan.Plan | None:
        nonlocal made
        found = real(call, timing, wide=wide)
        made += found is not None
        return found

    monkeypatch.setattr(plan, "plan_for", counted)
    built("dual_replica", changes).run()
    return made


def test_cores_that_are_alike_share_their_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plans(monkeypatch, dual(SHORT)) == 1


def test_users_far_apart_do_not_take_each_others_plans_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions 100 and 3000 on one core: a plan each, not one a token."""
    apart = {**dual(SHORT), "streams.alice.prompt": 100, "streams.bob.prompt": 3000, "streams.bob.chat": "left"}
    assert plans(monkeypatch, apart) == 2


def held(output: int) -> tuple[int, int]:
    """(bytes, objects with references) that a run of so many tokens leaves behind."""
    system = built("dual_replica", dual(output))
    gc.collect()
    before = len(gc.get_objects())
    tracemalloc.start()
    try:
        result = system.run()
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    objects = len(gc.get_objects()) - before
    assert result.streams["alice"].tokens == output
    return size, objects


@pytest.fixture(scope="module")
def growth() -> tuple[int, int]:
    """Bytes and objects that a run ten times longer holds more."""
    held(10 * TOKENS)  # what a first run imports, and keeps for those behind it
    short, long = held(TOKENS), held(10 * TOKENS)
    return long[0] - short[0], long[1] - short[1]


def test_a_run_ten_times_longer_holds_no_more_objects(growth: tuple[int, int]) -> None:
    assert growth[1] <= 200


def test_a_run_ten_times_longer_holds_a_number_a_token(growth: tuple[int, int]) -> None:
    tokens = 2 * 9 * TOKENS
    assert growth[0] <= 16 * tokens + 16384
