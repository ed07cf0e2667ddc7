"""The CPU cluster: work takes a core, waits in line when none is free, and moves its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import simpy

from bpusim.cores import HostCluster, HostTraffic
from bpusim.dram import FlowChannel, Ideal, Rules
from bpusim.hardware import HostSpec
from bpusim.hardware.presets import machine_preset
from bpusim.metrics import Recorder
from bpusim.ports import Transfer
from bpusim.trace import CpuWork

NS = 1000
RATE = 10**10  # B/s: 100 B in 10 ns
SPEC = HostSpec(
    cores=2,
    clock="1 GHz",
    dma=machine_preset("bpu80").host.dma,
    fallback_op="500 ns",
    fallback_cycles={"add": 4, "mul": 4, "exp": 50, "div": 20, "reduce": 4, "convert": 12, "mac": 2},
    cache_per_byte="0.5 ps/B",
    **dict.fromkeys(  # costs that are the executor's to charge
        [
            "per_request", "tokenize_per_token", "per_token", "sample_per_entry", "per_frame", "dispatch",
            "dispatch_per_layer", "doorbell", "interrupt", "allocate_per_tensor", "log_per_op",
        ],
        "0 s",
    ),
)  # fmt: skip


@pytest.fixture
def env() -> simpy.Environment:
    return simpy.Environment()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def host(env: simpy.Environment, recorder: Recorder) -> HostCluster:
    channel = FlowChannel(env, Ideal(RATE), recorder, Rules("equal"))
    return HostCluster(env, SPEC, channel.port("cpu", 10**6, NS, RATE), recorder)


def worker(host: HostCluster, log: list[Any], name: str, duration: int, size: int = 0, start: int = 0) -> Iterator[Any]:
    """Logs (when done, name, time in line); at one clock it costs no time."""
    yield host.env.timeout(start)
    done = host.work(duration, HostTraffic("io:x", {("io", False): size}) if size else None)
    queued, lost = (0, 0) if done is None else (yield done)
    assert lost == 0
    log.append((host.env.now, name, queued))


@pytest.mark.parametrize("n", [1, 2])
def test_work_on_a_free_core_takes_its_time(host: HostCluster, n: int) -> None:
    log: list[Any] = []
    for i in range(n):
        host.env.process(worker(host, log, f"{i}", 10))
    host.env.run()
    assert log == [(10, f"{i}", 0) for i in range(n)]


def test_work_waits_in_line_when_all_cores_are_busy(host: HostCluster) -> None:
    log: list[Any] = []
    for name, duration, start in [("a", 10, 0), ("b", 30, 0), ("c", 5, 2), ("d", 5, 3)]:
        host.env.process(worker(host, log, name, duration, start=start))
    host.env.run()
    # c has waited from 2 until a is done, d from 3 until c is.
    assert log == [(10, "a", 0), (15, "c", 8), (20, "d", 12), (30, "b", 0)]


def test_a_core_is_free_again_for_who_comes_later(host: HostCluster) -> None:
    log: list[Any] = []
    for name, start in [("a", 0), ("b", 0), ("c", 0), ("d", 50), ("e", 50)]:
        host.env.process(worker(host, log, name, 10, start=start))
    host.env.run()
    assert log == [(10, "a", 0), (10, "b", 0), (20, "c", 10), (60, "d", 0), (60, "e", 0)]


def test_no_work_takes_no_core(host: HostCluster) -> None:
    log: list[Any] = []
    for name, duration in [("a", 10), ("b", 10), ("nothing", 0)]:
        host.env.process(worker(host, log, name, duration))
    host.env.run()
    assert log[0] == (0, "nothing", 0)


def test_work_whose_bytes_move_meanwhile_takes_its_time(host: HostCluster) -> None:
    log: list[Any] = []
    host.env.process(worker(host, log, "a", 50 * NS, size=100))
    host.env.run()
    assert log == [(50 * NS, "a", 0)]


def test_work_whose_bytes_take_longer_waits_for_them(host: HostCluster) -> None:
    log: list[Any] = []
    host.env.process(worker(host, log, "a", 50 * NS, size=1000))
    host.env.run()
    assert log == [(100 * NS, "a", 0)]


def test_work_may_be_bytes_alone(host: HostCluster) -> None:
    log: list[Any] = []
    host.env.process(worker(host, log, "a", 0, size=100))
    host.env.run()
    assert log == [(10 * NS, "a", 0)]


def test_bytes_begin_to_move_when_a_core_is_free(host: HostCluster) -> None:
    log: list[Any] = []
    for name, size in [("a", 0), ("b", 0), ("c", 1000)]:
        host.env.process(worker(host, log, name, 10 * NS, size=size))
    host.env.run()
    assert log[-1] == (110 * NS, "c", 10 * NS)


def test_two_works_share_the_channel(host: HostCluster) -> None:
    log: list[Any] = []
    for name in "ab":
        host.env.process(worker(host, log, name, 1, size=500))
    host.env.run()
    assert [t for t, _, _ in log] == [100 * NS, 100 * NS]


def test_moved_bytes_are_told_to_the_observer(host: HostCluster, recorder: Recorder) -> None:
    host.work(5, HostTraffic("spill:x", {("spill", False): 100, ("spill", True): 30}))
    host.env.run()
    assert recorder.moved_bytes == {"cpu": {("spill", False): 100, ("spill", True): 30}}


# Work set aside


def test_work_set_aside_says_when_it_will_be_done_and_costs_no_event(host: HostCluster) -> None:
    assert host.aside(10) == 10
    host.env.run()
    assert host.env.now == 0


def test_work_set_aside_occupies_its_core(host: HostCluster) -> None:
    log: list[Any] = []
    assert [host.aside(10), host.aside(30)] == [10, 30]
    for name, start in [("a", 2), ("b", 3), ("c", 40)]:
        host.env.process(worker(host, log, name, 5, start=start))
    host.env.run()
    # The first in line takes the core that is free at 10, the second the same one at 15; at 40 both are free.
    assert log == [(15, "a", 8), (20, "b", 12), (45, "c", 0)]


def test_those_in_line_go_before_newcomers_when_work_set_aside_is_done(host: HostCluster) -> None:
    log: list[Any] = []
    assert [host.aside(100), host.aside(100)] == [100, 100]
    for name, start in [("a", 100), ("b", 10), ("c", 11), ("d", 120)]:
        host.env.process(worker(host, log, name, 50, start=start))
    host.env.run()
    # Both cores are free at 100: for b and c, who asked first; a and d are next.
    assert log == [(150, "b", 90), (150, "c", 89), (200, "a", 50), (200, "d", 30)]


def test_work_set_aside_waits_in_line_too(host: HostCluster) -> None:
    log: list[Any] = []
    for name in "ab":
        host.env.process(worker(host, log, name, 10))
    host.env.run(until=1)
    event = host.aside(5)
    assert isinstance(event, simpy.Event)
    host.env.run()
    assert (host.env.now, event.value) == (15, (9, 0))


def test_there_is_nothing_to_wait_for_in_no_work_set_aside(host: HostCluster) -> None:
    assert host.aside(0) is None


# Traffic


def test_traffic_is_a_transfer_of_each_kind_each_way() -> None:
    traffic = HostTraffic("spill:x", {("spill", False): 100, ("kv", False): 7, ("spill", True): 30})
    assert list(traffic) == [
        Transfer("spill:x", 0, 100, "spill", False),
        Transfer("spill:x", 0, 7, "kv", False),
        Transfer("spill:x", 0, 30, "spill", True),
    ]
    assert traffic.bytes == 137


def test_traffic_of_nothing_has_no_transfer() -> None:
    traffic = HostTraffic("io:x", {})
    assert (traffic.bytes, list(traffic)) == (0, [])


# Costs


def test_a_fallback_op_costs_its_entry_and_its_elements(host: HostCluster) -> None:
    work = CpuWork("x", "Sigmoid", {"exp": 10, "add": 3, "mac": 7}, {}, 0)
    assert host.fallback_ps(work) == 500 * NS + (10 * 50 + 3 * 4 + 7 * 2) * NS


def test_measured_cycles_of_a_fallback_op_come_beside_its_elements(host: HostCluster) -> None:
    work = CpuWork("x", "Measured", {"exp": 10}, {}, 0, cycles=400)
    assert host.fallback_ps(work) == 500 * NS + (400 + 10 * 50) * NS


def test_cache_maintenance_goes_by_bytes(host: HostCluster) -> None:
    assert host.cache_ps(1001) == round(500.5)
