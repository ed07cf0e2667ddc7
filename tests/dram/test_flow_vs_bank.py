"""The flow model against the bank model: the same flows, and short runs of the shipped scenarios, within 3 %.

A failure lists every figure with what flow expected, what bank measured, and the deviation of flow from bank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import simpy

from bpusim.dram import FlowChannel, Rules, flow_table
from bpusim.dram.bank.channel import BankChannel
from bpusim.dram.timing import channel
from bpusim.hardware import MasterSpec
from bpusim.metrics import ChatStats, FrameStats, Recorder, Result
from bpusim.ports import BufferKind, Transfer
from bpusim.system import simulate

ROOT = Path(__file__).resolve().parents[2]
NAME = "LPDDR4X-3200x64"
GB = 10**9
MS = 10**9
Port = tuple[int, int, int]
CORE: Port = (16384, 400_000, 17_100_000_000)
CPU: Port = (2560, 117_700, 24 * GB)
NARROW: Port = (8192, 100_000, 24 * GB)
WIDE: Port = (32768, 100_000, 24 * GB)
"""(window, path, limit) of ports; the first two are the board's."""

pytestmark = pytest.mark.validation


def agree(flow: Mapping[str, float], bank: Mapping[str, float], percent: float = 3) -> None:
    """All figures of both, within so many percent of bank."""
    assert flow.keys() == bank.keys()
    off = {name: 100 * (flow[name] / bank[name] - 1) for name in bank}
    assert all(abs(x) <= percent for x in off.values()), "\n" + "\n".join(
        f"{name}: flow expected {flow[name]:.4g}, bank measured {bank[name]:.4g}, deviation {x:+.2f} %"
        for name, x in off.items()
    )


# Channels.


@dataclass(frozen=True)
class Weights:
    bytes: int
    write: bool

    @property
    def mix(self) -> float:
        return float(self.write)

    def __iter__(self) -> Iterator[Transfer]:
        yield Transfer("w", 0, self.bytes, "weights", self.write)


@dataclass(frozen=True)
class Mix:
    """Ports that read (or those of ``writers`` that write) all the time, and a camera."""

    ports: tuple[Port, ...]
    rules: Rules = Rules()  # noqa: RUF009  # frozen
    camera: MasterSpec | None = None
    writers: str = ""
    within: float = 3
    """Percent; 10 where reads and writes are mixed."""

    def rates(self, fidelity: str, until: int = MS) -> dict[str, float]:
        """GB/s of each master."""
        env, table = simpy.Environment(initial_time=0), flow_table(NAME)
        kinds: tuple[BufferKind, ...] = ("weights", "kv", "spill", "io")
        names = "abc"[: len(self.ports)]
        cameras = [("camera", self.camera)] if self.camera else []
        if fidelity == "flow":
            ch: Any = FlowChannel(env, table, Recorder(), self.rules, cameras)
        else:
            regions = {n: dict.fromkeys(kinds, (i << 30, 1 << 29)) for i, n in enumerate(names)}
            background = [(n, spec, 3 << 30) for n, spec in cameras]
            ch = BankChannel(env, channel(NAME), table, Recorder(), regions, self.rules, background=background)
        ports = [ch.port(n, *p) for n, p in zip(names, self.ports, strict=True)]
        for p in ports:
            p.start(Weights(1 << 28, p.name in self.writers))
        env.run(until=until)
        return {name: moved / until * 1e3 for name, moved in ch.moved().items()}


def camera(rate: int, written: float, **more: Any) -> MasterSpec:
    return MasterSpec(rate=rate * GB, written=written, **more)


BOTH = (CORE, CORE)


@pytest.mark.parametrize(
    "mix",
    [
        pytest.param(Mix((CORE,)), id="a core alone"),
        pytest.param(Mix((CPU,)), id="a CPU core alone"),
        pytest.param(Mix(BOTH), id="proportional, two cores"),
        pytest.param(Mix((NARROW, WIDE)), id="proportional, windows 1:4"),
        pytest.param(Mix((CORE, CPU)), id="proportional, core and CPU"),
        pytest.param(Mix((*BOTH, CPU)), id="proportional, two cores and CPU"),
        pytest.param(Mix(BOTH, Rules("equal")), id="equal, two cores"),
        pytest.param(Mix((NARROW, WIDE), Rules("equal")), id="equal, windows 1:4"),
        pytest.param(Mix(BOTH, Rules("weighted", weights={"a": 2})), id="weighted 2:1, two cores"),
        pytest.param(Mix((NARROW, WIDE), Rules("weighted", weights={"a": 3})), id="weighted 3:1, windows 1:4"),
        # What the first leaves: 1.6 % of the channel is 7 % of it.
        pytest.param(Mix(BOTH, Rules("strict", order=("a", "b")), within=7), id="strict, two cores"),
        pytest.param(Mix(BOTH, Rules("regulated", limits={"b": 6 * GB})), id="regulated, one core"),
        pytest.param(Mix(BOTH, Rules("regulated", limits={"a": 5 * GB, "b": 10 * GB})), id="regulated, both"),
        pytest.param(Mix((CORE,), camera=camera(4, 1.0)), id="a core and a writing camera"),
        pytest.param(Mix((CORE,), camera=camera(12, 1.0), within=10), id="a core and half a channel of writes"),
        pytest.param(Mix(BOTH, camera=camera(2, 1.0)), id="two cores and a writing camera"),
        pytest.param(Mix(BOTH, camera=camera(4, 0.0)), id="two cores and a reading camera"),
        pytest.param(Mix((CORE,), camera=camera(8, 0.0)), id="a core and a fast reading camera"),
        pytest.param(Mix(BOTH, camera=camera(4, 0.0, on=MS // 20, period=MS // 10)), id="bursts"),
        pytest.param(
            Mix(BOTH, camera=camera(10, 0.0, window=8192, latency=100_000)), id="a reading master with a window"
        ),
        pytest.param(
            Mix(BOTH, camera=camera(10, 0.3, window=8192, latency=100_000), within=10), id="one that writes too"
        ),
        pytest.param(Mix(BOTH, writers="b", within=10), id="a core reads, one writes"),
        pytest.param(Mix(BOTH, camera=camera(4, 1.0), within=10), id="two cores and more writes"),
    ],
)
def test_the_same_flows_get_the_same(mix: Mix) -> None:
    agree(mix.rates("flow"), mix.rates("bank"), mix.within)


# Scenarios.


def figures(result: Result) -> dict[str, float]:
    """Latencies in ms, and the parts of the bytes of masters that move more than one part in a hundred."""
    out: dict[str, float] = {}
    for name, stream in result.streams.items():
        if isinstance(stream, ChatStats):
            assert stream.tpot_mean_ms is not None
            assert stream.ttft_mean_ms is not None
            out[f"{name} TPOT, ms"] = stream.tpot_mean_ms
            out[f"{name} TTFT, ms"] = stream.ttft_mean_ms
        elif isinstance(stream, FrameStats):
            assert stream.latency_mean_ms is not None
            out[f"{name} frame latency, ms"] = stream.latency_mean_ms
    total = sum(result.dram.channel_bytes.values())
    parts = {name: 100 * n / total for name, n in result.dram.channel_bytes.items()}
    return out | {f"{name} share of the bytes, %": part for name, part in parts.items() if part > 1}


def both(scenario: str, **changes: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Figures of a scenario by either fidelity, for prompts of 8 tokens; ``x__y`` stands for ``streams.x.y``."""
    sets = {f"streams.{k.replace('__', '.')}" if "__" in k else k.replace("_", "."): v for k, v in changes.items()}
    runs = [
        simulate(ROOT / "scenarios" / f"{scenario}.yaml", set={**sets, "engine.dram": dram})
        for dram in ("flow", "bank")
    ]
    return figures(runs[0]), figures(runs[1])


def test_one_user_on_one_core() -> None:
    """Two decode steps of the 3B model."""
    agree(*both("single_3b", alice__requests=1, alice__prompt=8, alice__output=3))


def test_two_users_on_two_cores() -> None:
    """In phase. The 0.5B model, whose two decode steps are a third of the 1.5B's work for the bank model."""
    small = str(ROOT / "traces" / "qwen2.5-0.5b-int4.trace")
    each = {
        f"{who}__{key}": n for who in ("alice", "bob") for key, n in (("requests", 1), ("prompt", 8), ("output", 3))
    }
    agree(*both("dual_replica", models_left_trace=small, models_right_trace=small, **each))


def test_a_user_beside_a_camera() -> None:
    """The detector spills beside the chat's reads."""
    agree(*both("hetero", talk__requests=1, talk__prompt=8, talk__output=3))


def test_one_user_first() -> None:
    """Alice's two decode steps, one of bob's beside them, and a part of the next prompts, until 275 ms."""
    short = {"alice__prompt": 8, "bob__prompt": 8, "alice__output": 3, "bob__output": 2}
    agree(*both("dual_replica_priority", run_until="275 ms", **short))
