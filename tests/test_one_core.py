"""A detector beside an LLM on one core: what priority and call bound do, each alone and both.

There is no preemption in hardware. A frame that finds the core in a call waits for the end of it, or, with both a
priority above it and a bound, for the end of a piece. All waits follow from the calls' own lengths.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bpusim import simulate
from bpusim.metrics import ChatStats, FrameStats
from bpusim.runtime import Event
from bpusim.scenario import load_scenario
from bpusim.system import System

SCENARIO = Path(__file__).resolve().parent.parent / "scenarios" / "hetero_one_core.yaml"
BOUND = 2.0
"""ms."""


@cache
def run(priority: int, bound: str | None, **keys: Any) -> tuple[ChatStats, FrameStats, list[Event]]:
    changes = {
        "models.detector.priority": priority,
        "models.chat.max_call": bound,
        "models.detector.max_call": bound,
    } | {k.replace("__", "."): v for k, v in keys.items()}
    system = System.build(load_scenario(SCENARIO, changes), journal=True)
    result = system.run()
    talk, camera = result.streams["talk"], result.streams["camera"]
    assert isinstance(talk, ChatStats)
    assert isinstance(camera, FrameStats)
    return talk, camera, list(result.journal or ())


def alone() -> float:
    """p99 of the detector without the chat."""
    p99 = run(0, None, streams__talk__start="1 h")[1].latency_p99_ms
    assert p99 is not None
    return p99


def longest(journal: list[Event], phase: str) -> float:
    """ms of the longest call of the chat, from its start to its end."""
    began, out = {}, 0.0
    for e in journal:
        if e.call == f"talk/{phase}":
            if e.what == "begin":
                began[e.core] = e.at
            elif e.what == "end":
                out = max(out, (e.at - began[e.core]) / 1e9)
    return out


def p99(priority: int, bound: str | None) -> float:
    value = run(priority, bound)[1].latency_p99_ms
    assert value is not None
    return value


@pytest.mark.parametrize(("priority", "bound"), [(0, None), (0, "2 ms"), (254, None)])
def test_one_of_them_alone_leaves_the_detector_waiting_for_a_call(priority: int, bound: str | None) -> None:
    """p99 is about a decode call (and what of a prefill's it meets) above what it takes alone, whichever is missing."""
    decode, prefill = (longest(run(0, None)[2], phase) for phase in ("decode", "prefill"))
    assert decode > 20 * BOUND
    assert alone() + 0.9 * decode < p99(priority, bound) < alone() + prefill + 1


def test_priority_alone_changes_nothing_where_one_call_waits_at_a_time() -> None:
    """Each stream has one call at a time: whoever waits is next anyway."""
    assert p99(254, None) == p99(0, None) == p99(0, "2 ms")


def test_with_both_it_waits_for_a_piece() -> None:
    """And for the tile that is longer than the bound, if there is one."""
    assert alone() < p99(254, "2 ms") < alone() + BOUND + 0.2


def test_an_idle_detector_costs_the_chat_nothing() -> None:
    """The bound itself costs nothing, and nobody interrupts."""
    idle = {"streams__camera__start": "1 h"}
    bound, free = run(254, "2 ms", **idle)[0], run(0, None, **idle)[0]
    assert bound.tpot_mean_ms == free.tpot_mean_ms
    assert bound.tokens == free.tokens


def test_interruptions_cost_the_chat_what_the_detector_takes_and_what_is_fetched_again() -> None:
    """3 frames a second of 17 ms are 5 % of the core; what is fetched again is at most a scratchpad each."""
    free, both = run(0, None)[0], run(254, "2 ms")[0]
    assert free.tokens > both.tokens > 0.97 * free.tokens


def test_simulate_takes_the_scenario_as_it_is() -> None:
    assert simulate(SCENARIO, set={"run.until": "1 s"}).streams["camera"].to_dict()["frames"] == 3
