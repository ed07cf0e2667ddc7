"""Which streams of two scenarios are compared, and what is said of the difference."""

from __future__ import annotations

from pathlib import Path

from bpusim.metrics import CAUSES
from bpusim.metrics.explained import Explained, Interval
from bpusim.metrics.versus import Difference
from bpusim.study.against import against, versus

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def interval(name: str, **causes: int) -> Interval:
    every = {c: causes.get(c, 0) for c in CAUSES}
    return Interval(name, sum(every.values()), every)


def chat(name: str, *intervals: Interval) -> Explained:
    return Explained(name, "chat", intervals or (interval("each token", dram=10),))


def frames(name: str) -> Explained:
    return Explained(name, "frames", (interval("a frame", compute=5),))


def matches(ours: list[Explained], theirs: list[Explained]) -> list[tuple[str, str, str]]:
    return [(p.stream, p.other, p.how) for p in versus(("a", "b"), ours, theirs).pairs]


def test_streams_are_matched_by_name_before_order() -> None:
    found = matches([chat("x"), chat("y")], [chat("y"), chat("z")])
    assert found == [("x", "z", "by kind and order, chat"), ("y", "y", "by name")]


def test_a_name_of_another_kind_is_no_match() -> None:
    assert matches([chat("x")], [frames("x"), chat("q")]) == [("x", "q", "by kind and order, chat")]


def test_one_stream_may_stand_for_several() -> None:
    found = matches([chat("alice"), chat("bob")], [chat("alice")])
    assert found[1] == ("bob", "alice", "with the first of its kind, chat")


def test_what_has_no_partner_is_named() -> None:
    found = versus(("a", "b"), [chat("x"), frames("cam")], [chat("x"), chat("y")])
    assert found.alone == ["a: cam", "b: y"]


def test_a_cold_interval_is_compared_with_a_warm_one_if_there_is_no_other() -> None:
    cold, warm = interval("cold first token", loading=9, compute=2), interval("first token", compute=3)
    (pair,) = versus(("a", "b"), [chat("x", cold)], [chat("x", warm)]).pairs
    assert [(d.name, d.other, d.total) for d in pair.differences] == [("cold first token", "first token", 8)]
    (pair,) = versus(("a", "b"), [chat("x", warm)], [chat("x", cold)]).pairs
    assert [(d.name, d.other, d.total) for d in pair.differences] == [("first token", "cold first token", -8)]
    (pair,) = versus(("a", "b"), [chat("x", warm)], [chat("x", warm, interval("each token", dram=1))]).pairs
    assert pair.alone == ["each token"]


def test_differences_are_signed_and_ranked_by_size() -> None:
    d = Difference.of(interval("t", dram=5, host=30, compute=7), interval("t", dram=25, host=2, compute=7))
    assert d.ranked() == [("host", 28), ("dram", -20)]
    assert d.total == 8


def test_a_scenario_against_itself_with_overrides() -> None:
    path, short = SCENARIOS / "single_1_5b.yaml", ["streams.alice.requests=1", "streams.alice.output=4"]
    same = against(path, path, ["streams.alice.requests=1"])
    assert (same.scenario, same.other) == ("single_1_5b (changed)", "single_1_5b")
    assert [d.total for p in same.pairs for d in p.differences] == [0, 0]
    faster = against(path, path, [*short, "machine.cores.dma.port=20 GB/s"])
    assert [d.ranked()[0][0] for p in faster.pairs for d in p.differences][1] == "dram"
