"""The observer that counts."""

from __future__ import annotations

from bpusim.metrics import CoreCounters, Recorder
from bpusim.ports import CallCounters, Work
from bpusim.trace import Header, Op, Phase, Trace

TRACE = Trace(Header("m", {}), (), {"frame": Phase("frame", 0, ("1",), (Op("a", "A", "mac", cycles=(4,)),))})
WORK: Work = TRACE.bind("frame").calls[0]


def counters(**moved: int) -> CallCounters:
    return CallCounters(mac_busy_ps=5, macs=70, issued_macs=80, ops=3, moved=[0, moved.get("kv", 0), *[0] * 6])


def test_a_call_counts_for_its_core_and_its_label() -> None:
    recorder = Recorder()
    recorder.call_started("bpu0", "chat/decode", 100, WORK)
    recorder.call_ended("bpu0", "chat/decode", 140, counters())
    once = CoreCounters(calls=1, occupied=40, mac_busy=5, macs=70, issued=80)
    assert recorder.cores == {"bpu0": once}
    assert recorder.labels == {"chat/decode": once}


def test_calls_add_up_by_core_and_by_label() -> None:
    recorder = Recorder()
    for core, label, start, end in [
        ("bpu0", "a/decode", 0, 10),
        ("bpu1", "a/decode", 5, 25),
        ("bpu0", "b/frame", 10, 40),
    ]:
        recorder.call_started(core, label, start, WORK)
        recorder.call_ended(core, label, end, counters())
    assert {c: (n.calls, n.occupied) for c, n in recorder.cores.items()} == {"bpu0": (2, 40), "bpu1": (1, 20)}
    assert {c: (n.calls, n.occupied) for c, n in recorder.labels.items()} == {"a/decode": (2, 30), "b/frame": (1, 30)}


def test_bytes_add_up_by_master_kind_and_way() -> None:
    recorder = Recorder()
    recorder.moved("cpu", {("io", False): 3, ("io", True): 4}, 0)
    recorder.moved("cpu", {("io", False): 5}, 1)
    recorder.moved("bpu0", {("kv", False): 6}, 2)
    assert recorder.moved_bytes == {"cpu": {("io", False): 8, ("io", True): 4}, "bpu0": {("kv", False): 6}}


def test_bytes_of_a_call_count_for_its_core() -> None:
    recorder = Recorder()
    recorder.call_started("bpu0", "a/decode", 0, WORK)
    recorder.call_ended("bpu0", "a/decode", 1, counters(kv=9))
    assert recorder.moved_bytes == {"bpu0": {("kv", False): 9}}


def test_time_in_calls_includes_the_one_under_way() -> None:
    recorder = Recorder()
    recorder.call_started("bpu0", "a/decode", 0, WORK)
    recorder.call_ended("bpu0", "a/decode", 10, counters())
    assert recorder.occupied_until("bpu0", 15) == 10
    recorder.call_started("bpu0", "a/decode", 20, WORK)
    assert recorder.occupied_until("bpu0", 27) == 10 + 7


def test_a_core_that_never_ran_was_never_occupied() -> None:
    assert Recorder().occupied_until("bpu0", 100) == 0


def test_rates_are_not_asked_for() -> None:
    assert not Recorder().wants_rates
