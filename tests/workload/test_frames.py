"""A camera, worked out from round numbers.

Frames come every 1000 ns. One costs the host 60 ns, dispatch and interrupt 55, and the model's only op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bpusim.metrics import FrameRecord
from bpusim.workload import FrameStream

Make = Callable[..., Any]
NS = 1000
FIXED = 60 + 55


def camera(b: Any, ns: int = 100, **changes: Any) -> FrameStream:
    keys: dict[str, Any] = {
        "rate": 1e6, "count": 3, "queue": 1, "drop": "oldest", "before": {}, "after": {}, "start": 0
    } | changes  # fmt: skip
    return FrameStream("cam", b.model(b.trace(b.op("a", ns))), record=FrameRecord(), **keys)


def run(b: Any, stream: FrameStream, until: int | None = None) -> FrameRecord:
    process = b.env.process(stream.run(b.executor))
    b.env.run(until=process if until is None else until * NS)
    return stream.record


def latencies(record: FrameRecord) -> list[int]:
    return [t // NS for t in record.latencies.known()]


def spent(record: FrameRecord) -> dict[str, int]:
    return {c: v // NS for c, v in record.ledger.spent.items() if v}


@pytest.fixture
def b(bench: Make) -> Any:
    """Synchronous submission: every dispatch takes its 40 ns."""
    return bench(async_submit=False)


def test_a_frame_takes_the_host_and_the_model(b: Any) -> None:
    record = run(b, camera(b))
    assert latencies(record) == [FIXED + 100] * 3
    assert spent(record) == {"host": 3 * 60, "dispatch": 3 * 55, "compute": 300}


def test_frames_come_at_the_rate_of_the_camera(b: Any) -> None:
    run(b, camera(b, count=5))
    assert b.env.now == (4 * 1000 + FIXED + 100) * NS


def test_nothing_is_dispatched_for_a_frame_that_has_not_come(bench: Make) -> None:
    b = bench()
    assert latencies(run(b, camera(b))) == [FIXED + 100] * 3


def test_the_rate_does_not_drift(b: Any) -> None:
    # 300 kHz is no whole number of picoseconds, but frame 3000 is due at 10 ms.
    record = run(b, camera(b, rate=3e5, count=3001))
    assert b.env.now == 10 * 10**9 + (FIXED + 100) * NS
    assert record.captured == 3001


def test_the_camera_starts_when_told(b: Any) -> None:
    run(b, camera(b, start=77 * NS, count=1))
    assert b.env.now == (77 + FIXED + 100) * NS


def test_a_slow_model_drops_the_frame_that_waits_longest(b: Any) -> None:
    # 2500 ns a frame. 0 is served to 2500; 1 waits from 1000 and is dropped for 2 at 2000; 2 is served to 5000,
    # 3 waits from 3000 and is dropped for 4; 4 is served to 7500.
    record = run(b, camera(b, 2500 - FIXED, count=5))
    assert latencies(record) == [2500, 5000 - 2000, 7500 - 4000]
    assert (record.captured, record.dropped) == (5, 2)


def test_a_slow_model_may_drop_the_newest_instead(b: Any) -> None:
    # 1 waits from 1000 to 2500 and 2 is dropped; 3 waits from 3000 to 5000 and 4 is dropped.
    record = run(b, camera(b, 2500 - FIXED, count=5, drop="newest"))
    assert latencies(record) == [2500, 5000 - 1000, 7500 - 3000]
    assert (record.captured, record.dropped) == (5, 2)


def test_a_longer_queue_drops_less_and_waits_longer(b: Any) -> None:
    # 1 and 2 wait; 1 is served from 2500; 3 takes its place; 4 drops 2; 3 is served from 5000, 4 from 7500.
    record = run(b, camera(b, 2500 - FIXED, count=5, queue=2))
    assert latencies(record) == [2500, 5000 - 1000, 7500 - 3000, 10000 - 4000]
    assert record.dropped == 1


def test_time_in_the_queue_is_queueing(b: Any) -> None:
    record = run(b, camera(b, 2500 - FIXED, count=5))
    assert spent(record)["queueing"] == (2500 - 2000) + (5000 - 4000)


def test_dropped_frames_leave_no_time_behind(b: Any) -> None:
    record = run(b, camera(b, 2500 - FIXED, count=5))
    assert sum(record.ledger.spent.values()) == record.latencies.total
    assert spent(record)["host"] == 3 * 60


def test_every_captured_frame_comes_through_or_is_dropped(b: Any) -> None:
    record = run(b, camera(b, 3300, count=50, queue=3, before={"cpu": 700 * NS}, after={"camera": 50 * NS}))
    assert record.captured == 50
    assert len(record.latencies) + record.dropped == 50
    assert record.dropped > 0


def test_camera_stages_add_to_the_latency_and_not_to_the_machine(b: Any) -> None:
    # 5000 ns, five frames long: they overlap from frame to frame.
    record = run(b, camera(b, before={"camera": 5000 * NS}))
    assert latencies(record) == [5000 + FIXED + 100] * 3
    assert spent(record)["camera"] == 3 * 5000


def test_cpu_stages_occupy_a_core(b: Any) -> None:
    record = run(b, camera(b, before={"cpu": 300 * NS}))
    assert latencies(record) == [300 + FIXED + 100] * 3
    assert spent(record)["host"] == 3 * (300 + 60)


def test_cpu_stages_wait_for_a_core(bench: Make) -> None:
    b = bench(cpus=1, async_submit=False)
    b.host.work(50 * NS)
    record = run(b, camera(b, before={"cpu": 300 * NS}, count=1))
    assert latencies(record) == [50 + 300 + FIXED + 100]
    assert spent(record)["queueing"] == 50


def test_stages_behind_the_model_overlap_the_next_frame(b: Any) -> None:
    # 900 ns a frame in the model, 950 behind it: no frame waits, though one takes longer than a period.
    record = run(b, camera(b, 900 - FIXED, after={"cpu": 950 * NS}))
    assert latencies(record) == [900 + 950] * 3
    assert record.dropped == 0


def test_the_stream_ends_when_the_last_frame_is_through(b: Any) -> None:
    run(b, camera(b, count=1, after={"camera": 4000 * NS}))
    assert b.env.now == (FIXED + 100 + 4000) * NS


def test_a_camera_without_a_count_goes_on(b: Any) -> None:
    record = run(b, camera(b, count=None), until=10_500)
    assert (record.captured, len(record.latencies)) == (11, 11)


def test_no_interval_of_a_frame_is_without_cause(b: Any) -> None:
    record = run(b, camera(b, 2500, count=20, queue=2, before={"camera": 70 * NS, "cpu": 30 * NS}, after={"cpu": NS}))
    assert record.ledger.spent["other"] == 0
    assert sum(record.ledger.spent.values()) == record.latencies.total


# Lines, threads, deadlines


def test_a_blocked_camera_loses_what_it_cannot_take(b: Any) -> None:
    """A frame takes 2215 ns and one comes each 1000: one is in the model, one in line, one waits to get there."""
    record = run(b, camera(b, ns=2100, count=12, drop="block"))
    assert record.dropped == 0
    assert record.captured + record.lost == 12
    assert record.lost > 3
    assert len(record.latencies) == record.captured
    assert record.line.most == 1


def test_jitter_moves_frames_and_loses_none(b: Any) -> None:
    """400 ns early or late: arrivals are out of their turn, none is dropped."""
    late = iter([0, 400 * NS, -400 * NS, 400 * NS])
    record = run(b, camera(b, count=4, jitter=lambda: next(late)))
    assert len(record.latencies) == 4
    assert b.env.now == (3400 + FIXED + 100) * NS


def test_two_threads_hide_the_hosts_gaps_and_no_more(bench: Make) -> None:
    """BH-27: a second thread on one core adds what the core waits for the host, and nothing beyond."""
    times = {}
    for threads in (1, 2, 3):
        b = bench(async_submit=False, cpus=4)
        run(b, camera(b, ns=400, rate=1e9, count=300, queue=300, threads=threads))
        times[threads] = b.env.now / 300 / NS
    assert times[1] == pytest.approx(FIXED + 400, rel=0.01)  # one after the other
    assert times[2] == pytest.approx(400, rel=0.01)  # the core never waits
    assert times[3] == pytest.approx(times[2], rel=0.01)


def test_without_overlap_a_thread_does_what_is_behind_the_model_itself(b: Any) -> None:
    """BH-37: the sum of the stages where they are not pipelined, the longest where they are."""
    for overlap, each in [(True, 700), (False, 700 + FIXED + 100)]:
        at = b.env.now // NS
        stream = camera(b, rate=1e9, count=50, queue=50, after={"cpu": 700 * NS}, overlap=overlap)
        stream.start = b.env.now
        run(b, stream)
        pace = (b.env.now // NS - at) / 50
        assert pace == pytest.approx(each, rel=0.05) if not overlap else pace < each


def test_late_frames_are_counted(b: Any) -> None:
    """A frame takes 215 ns; the second of two at once waits for the first."""
    record = camera(b, rate=1e9, count=2)
    record.record.deadline = 300 * NS
    assert run(b, record).late == 1
