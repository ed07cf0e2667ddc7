"""That decode steps are taken ahead changes no result: to the last bit, but for the number of events."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpusim.dram import PlainChannel
from bpusim.metrics import Result
from bpusim.scenario import load_scenario
from bpusim.system import System
from bpusim.system.cruise import Cruise

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "traces"
BOARD = {"preset": "bpu80", "dram": {"capacity": "64 GB", "usable": "60 GB"}}

Scene = dict[str, Any]


def ran(file: Path, *, ahead: bool) -> tuple[Result, int, int]:
    """(result but for the number of events, when it ended, how many events were taken ahead)."""
    system = System.build(load_scenario(file), records=True)
    taken, cruise = 0, system.env.cruise
    if cruise is not None:
        take = cruise.run

        def counted() -> int:
            nonlocal taken
            events = take()
            taken += events
            return events

        cruise.run = counted  # type: ignore[method-assign]
        system.env.cruise = cruise if ahead else None
    result = system.run()
    return replace(result, events=0), system.env.now, taken


def taken(file: Path, scene: Scene) -> int:
    """Events that were taken ahead, all else being the same without."""
    file.write_text(json.dumps(scene))  # JSON is YAML
    *ahead, some = ran(file, ahead=True)
    *without, none = ran(file, ahead=False)
    assert none == 0
    assert ahead == without
    assert repr(ahead) == repr(without)  # floats to the last bit, and 0.0 is not -0.0
    return some


def board(**parts: Any) -> Scene:
    return {**BOARD, **parts}


def model(core: int, size: str = "0.5b", **more: Any) -> Scene:
    return {"trace": str(TRACES / f"qwen2.5-{size}-int4.trace"), "cores": f"bpu{core}", **more}


def user(of: str, output: int = 40, **more: Any) -> Scene:
    return {"chat": of, "prompt": 16, "output": output, **more}


def pair(left: Scene | None = None, right: Scene | None = None, **more: Any) -> Scene:
    """Two replicas with a user each."""
    return {
        "machine": board(),
        "models": {"left": model(0), "right": model(1)},
        "streams": {"alice": user("left", **left or {}), "bob": user("right", **right or {})},
        **more,
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scene.yaml"


# --- by hand


def test_two_users_in_step(file: Path) -> None:
    assert taken(file, pair()) > 300


def test_two_users_out_of_step_whose_answers_end_one_after_the_other(file: Path) -> None:
    assert taken(file, pair({"output": 70}, {"start": "137 ms"})) > 300


def test_one_user_alone_whose_next_call_is_still_being_prepared(file: Path) -> None:
    """The only event in the first flow of a step is its begin."""
    one = pair(engine={"merge": "exact"})
    del one["streams"]["bob"]
    assert taken(file, one) > 200


@pytest.mark.parametrize("until", ["0.5 s", "777.777 ms"])
def test_a_run_that_ends_in_the_middle_of_a_step(file: Path, until: str) -> None:
    assert taken(file, pair({"requests": "forever"}, {"output": 300}, run={"until": until})) > 100


def test_somebody_comes_and_goes_meanwhile(file: Path) -> None:
    scene = pair({"output": 90}, {"output": 80})
    scene["models"]["eye"] = {"trace": str(TRACES / "resnet50-992.trace"), "cores": "bpu1"}
    scene["streams"]["camera"] = {"frames": "eye", "rate": "1 Hz", "count": 3, "after": {"cpu": "7 ms"}}
    assert taken(file, scene) > 300


def test_requests_that_arrive(file: Path) -> None:
    arriving = {"arrivals": {"poisson": "1 Hz"}, "requests": 3, "output": 60}
    assert taken(file, pair(arriving, {"think": "300 ms", "requests": 3, "slo": {"tpot": "20 ms"}})) > 300


def test_a_core_that_falls_asleep_between_two_steps(file: Path) -> None:
    asleep = board(clocks={"cores": {"sleep": {"after": "0.1 ms", "wake": "0.3 ms"}}})
    assert taken(file, pair(machine=asleep)) > 300


def test_a_runtime_that_waits_for_each_call(file: Path) -> None:
    assert taken(file, pair(host={"submit": "sync"})) > 300


def test_a_context_of_which_a_static_graph_reads_all(file: Path) -> None:
    """Every step is at the same position."""
    lines = Path(model(0)["trace"]).read_text().splitlines()
    header = json.loads(lines[0])
    header["kv"] = "capacity"
    trace = file.parent / "static.trace"
    trace.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n")
    scene = pair()
    scene["models"] = {"left": {**model(0), "trace": str(trace)}, "right": {**model(1), "trace": str(trace)}}
    assert taken(file, scene) > 300


def test_a_flight_that_is_never_marked_again_has_an_end(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three users whose steps take most of their time on the host are hardly ever on their cores together."""
    ends: list[int] = []
    fly, advance = Cruise._fly, PlainChannel.advance

    def flown(*arguments: Any) -> Any:
        ends.append(0)
        return fly(*arguments)

    def counted(channel: PlainChannel) -> None:
        ends[-1] += 1
        advance(channel)

    monkeypatch.setattr(Cruise, "_fly", flown)
    monkeypatch.setattr(PlainChannel, "advance", counted)
    slow = board(cores={"count": 3}, host={"cores": 6, "per_token": "2 s"})
    scene = pair({"output": 800}, {"output": 831}, machine=slow)
    scene["models"]["right"] = model(1, "1.5b")
    scene["models"]["third"] = model(2, "3b")
    scene["streams"]["carol"] = user("third", 862)
    assert taken(file, scene) > 300
    assert 10 < max(ends) < 1280


# --- where others would notice


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": board(host={"cores": 3})},  # two users may ask for four
        {"host": {"logging": "per_op"}},
        {"host": {"memory_pool": "off"}},
        {"engine": {"merge": "off"}},
        {"models": {"left": model(0), "right": model(1, batch=2)}},
        {"models": {"left": model(0), "right": {**model(0), "cores": ["bpu0", "bpu1"], "split": "even"}}},
        {"models": {"left": model(0), "right": model(0)}},  # in turns
    ],
    ids=["few-cpu-cores", "log", "no-pool", "unmerged", "batch", "split", "one-core"],
)
def test_nothing_is_taken_ahead_while_somebody_else_is_there(file: Path, changes: Scene) -> None:
    """Of both users, who are there all the time: without the change 396 events are."""
    assert taken(file, pair(**changes)) == 0


# --- at random


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Replicas on one to three cores, users with answers and pauses of all kinds, and perhaps a camera."""
    cores = draw(st.integers(1, 3))
    scene: Scene = {"machine": board(cores={"count": max(cores, 2)}), "models": {}, "streams": {}}
    if draw(st.booleans()):
        scene["machine"]["host"] = {"cores": draw(st.integers(2, 8))}
    for k in range(cores):
        more: Scene = draw(st.sampled_from([{}, {}, {"max_call": "2 ms"}, {"priority": 254}]))
        scene["models"][f"m{k}"] = model(k, draw(st.sampled_from(["0.5b", "0.5b", "1.5b"])), **more)
        for n in range(draw(st.sampled_from([1] * 6 + [2]))):
            ways: list[Scene] = [
                {}, {"requests": 2, "think": "50 ms"}, {"start": "100.5 ms"}, {"requests": 2, "history": "kept"},
                {"arrivals": {"poisson": "2 Hz"}, "requests": 2}, {"pace": "30 Hz"}, {"slo": {"tpot": "40 ms"}},
            ]  # fmt: skip
            output = draw(st.sampled_from([3, 12, 40, 41, 90, 150]))
            scene["streams"][f"u{k}{n}"] = user(f"m{k}", output, **draw(st.sampled_from(ways)))
    if draw(st.integers(0, 3)) == 0:
        scene["models"]["eye"] = {"trace": str(TRACES / "resnet50-992.trace"), "cores": f"bpu{max(cores, 2) - 1}"}
        scene["streams"]["camera"] = {"frames": "eye", "rate": draw(st.sampled_from(["0.7 Hz", "2 Hz"])), "count": 3}
    if draw(st.integers(0, 2)) == 0:
        scene["run"] = {"until": draw(st.sampled_from(["0.3 s", "1 s", "1.77 s"]))}
    if draw(st.integers(0, 4)) == 0:
        scene["host"] = {"submit": "sync"}
    return scene


def test_whatever_happens(file: Path) -> None:
    ahead: list[int] = []

    @settings(max_examples=50, deadline=None, derandomize=True)
    @given(scene=scenes())
    def same(scene: Scene) -> None:
        ahead.append(taken(file, scene))

    same()
    assert sum(some > 0 for some in ahead) >= 15, f"hardly any scene has steps to take ahead: {ahead}"
