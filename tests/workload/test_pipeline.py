"""Pipelines, worked out from round numbers: what begins when, and where the time of the critical path goes.

A frame costs the host 60 ns, 55 of dispatch and interrupt, and its op. A request costs the host 1000 ns and 10 a prompt
token, its steps 55 and an op of 100 each, a token 300 of sampling. Submission is synchronous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bpusim.errors import SimulationError
from bpusim.metrics import ChatRecord, PipelineRecord
from bpusim.workload import ChatStream, PipelineStage, PipelineStream, Slots, every, fixed, pipeline

Make = Callable[..., Any]
NS = 1000
FRAME = 60 + 55
FIRST = 1000 + 40 + 155 + 300
LATER = 155 + 300


@pytest.fixture
def b(bench: Make) -> Any:
    return bench(async_submit=False)


def frames(b: Any, name: str, after: Sequence[str] = (), ns: int = 100, core: int = 0) -> PipelineStage:
    trace = b.trace(b.op("a", ns))
    return PipelineStage(name, after, b.model(trace, (core, trace)))


def host(name: str, after: Sequence[str] = (), ns: int = 500) -> PipelineStage:
    return PipelineStage(name, after, host=ns * NS)


def wait(name: str, after: Sequence[str] = (), ns: int = 500) -> PipelineStage:
    return PipelineStage(name, after, wait=ns * NS)


def chat(b: Any, name: str, after: Sequence[str] = (), output: int = 3, slots: Slots | None = None) -> PipelineStage:
    trace = b.trace(b.op("a"), phases=("prefill", "decode"), tokens=4, chunk=4, vocab=20, context=64)
    model = b.model(trace, (1, trace))
    stream = ChatStream(f"loop.{name}", model, lambda _: iter(()), None, 0, slots or Slots(b.env, "m", 1), ChatRecord())
    return PipelineStage(name, after, None, stream, fixed(4), fixed(output))


def loop(
    stages: Sequence[PipelineStage], *ends: str, gap: int = 100_000, count: int = 1, **keys: Any
) -> PipelineStream:
    limits: dict[str, int | None] = dict.fromkeys(ends or (stages[-1].name,), None) | keys.pop("limits", {})
    record = PipelineRecord(limits=limits)
    return PipelineStream("loop", stages, every(gap * NS), count, 0, keys.pop("at_once", None), limits, record)


def run(b: Any, stream: PipelineStream) -> PipelineRecord:
    b.env.run(until=b.env.process(stream.run(b.executor)))
    return stream.record


def ends(record: PipelineRecord, stage: str) -> list[int]:
    return [t // NS for t in record.ends[stage].known()]


def spent(record: PipelineRecord, stage: str) -> dict[str, int]:
    causes = {c: v // NS for c, v in record.ledgers[stage].spent.items() if v}
    assert sum(record.ledgers[stage].spent.values()) == record.ends[stage].total
    return causes


def test_stages_follow_each_other(b: Any) -> None:
    record = run(b, loop([frames(b, "hear"), wait("shoot", ["hear"]), frames(b, "see", ["shoot"], ns=300)]))
    assert ends(record, "see") == [2 * FRAME + 100 + 500 + 300]
    assert spent(record, "see") == {"host": 120, "dispatch": 110, "compute": 400, "camera": 500}


def test_stages_that_wait_for_the_same_run_side_by_side(b: Any) -> None:
    """And one that waits for both begins with the later: the path leads through that one alone."""
    stages = [frames(b, "hear"), host("a", ["hear"], 200), wait("b", ["hear"], 700), host("c", ["a", "b"], 50)]
    record = run(b, loop(stages, "a", "b", "c"))
    begun = FRAME + 100
    assert [ends(record, s) for s in "abc"] == [[begun + 200], [begun + 700], [begun + 750]]
    assert spent(record, "c") == {"host": 60 + 50, "dispatch": 55, "compute": 100, "camera": 700}


def test_speech_begins_with_the_first_token(b: Any) -> None:
    record = run(
        b, loop([frames(b, "see"), chat(b, "say", ["see"]), host("talk", ["say.first_token"], 900)], "talk", "say")
    )
    begun = FRAME + 100
    assert ends(record, "talk") == [begun + FIRST + 900]
    assert ends(record, "say") == [begun + FIRST + 2 * LATER]
    assert spent(record, "talk")["compute"] == 200
    assert spent(record, "say")["compute"] == 400
    assert record.stages["say"].known() == [(FIRST + 2 * LATER) * NS]


def test_runs_overlap(b: Any) -> None:
    """A run takes 1500 ns and one begins every 1000: each is as long as if it were alone."""
    record = run(b, loop([wait("a", ns=1500)], gap=1000, count=4))
    assert ends(record, "a") == [1500] * 4
    assert record.present.most == 2


def test_triggers_beyond_at_once_are_dropped(b: Any) -> None:
    record = run(b, loop([wait("a", ns=1500)], gap=1000, count=6, at_once=1))
    assert (record.triggered, record.dropped, record.runs) == (6, 3, 3)


def test_runs_wait_for_room_in_the_cache(b: Any) -> None:
    """Two answers at once and room for one."""
    record = run(b, loop([chat(b, "say", output=1)], gap=1, count=2))
    assert ends(record, "say") == [FIRST, 2 * FIRST - 1]
    assert record.ledgers["say"].spent["queueing"] == (FIRST - 1) * NS


def test_late_runs_are_counted_by_their_end(b: Any) -> None:
    stages = [wait("a", ns=500), wait("b", ["a"], ns=600)]
    record = run(b, loop(stages, count=3, limits={"a": 500 * NS, "b": 1000 * NS}))
    assert record.late == {"a": 0, "b": 3}


def test_endless_overload_is_an_error(b: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_MOST", 50)
    with pytest.raises(
        SimulationError, match=r"50 runs of loop are under way at .* come faster than they end; trigger it"
    ):
        run(b, loop([host("a", ns=5000)], gap=100, count=1000))


def test_who_holds_the_cache_is_known_for_the_message_of_a_deadlock(b: Any) -> None:
    slots = Slots(b.env, "m", 1)
    assert slots.take("alice") is None
    assert slots.standing() == ""
    turn = slots.take("loop.say")
    assert slots.standing() == "loop.say waits for room in the cache of model 'm', which alice holds"
    slots.give("alice")
    assert turn is not None
    assert turn.triggered
    assert slots.standing() == ""
