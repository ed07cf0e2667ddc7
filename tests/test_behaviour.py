"""Behaviour that users of real boards report, as scenarios (shared/cases, BH rows): what must follow from what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bpusim import simulate
from bpusim.errors import SimulationError

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
GB = 10**9


def run(name: str, **changes: Any) -> dict[str, Any]:
    """The summary of a shipped scenario with changes; ``__`` stands for a dot."""
    return simulate(SCENARIOS / f"{name}.yaml", set={k.replace("__", "."): v for k, v in changes.items()}).to_dict()


SHORT = {"streams__alice__output": 4, "streams__alice__requests": 1}


def test_decode_goes_with_the_memory_and_prefill_does_not() -> None:
    """BH-06: a board whose DDR runs at half its clock decodes at half the rate, its NPU idle for most of the time."""
    whole, half = (run("single_1_5b", machine__dram__preset=f"LPDDR4X-3200x{width}", **SHORT) for width in (64, 32))
    fast, slow = whole["streams"]["alice"], half["streams"]["alice"]
    # The port takes 17.1 GB/s of the whole channel; the half one gives less than that.
    moving = [s["breakdown_ms"]["dram"] + s["breakdown_ms"]["compute"] for s in (fast, slow)]
    capacity = half["dram"]["peak_bytes_per_s"] * 0.917
    assert moving[1] / moving[0] == pytest.approx(17.1 * GB / capacity, rel=0.05)
    # A prefill chunk computes for 101 ms and streams its weights meanwhile; it moves less than decode does.
    slower = {k: slow[k] / fast[k] for k in ("ttft_mean_ms", "tpot_mean_ms")}
    assert slower["ttft_mean_ms"] < 1.15 < 1.35 < slower["tpot_mean_ms"]
    # DRAM-bound, and said so: waiting for it is most of a token, and the array hardly works.
    assert slow["breakdown_ms"]["dram"] > 0.8 * slow["tpot_mean_ms"]
    assert slow["phases"]["decode"]["mac_busy_fraction"] < 0.02


def camera(share: float, **more: Any) -> dict[str, Any]:
    """A camera that writes so much of the channel's peak, beside a chat user."""
    machine = {"preset": "bpu80", "masters": {"camera": {"rate": f"{round(share * 25600)} MB/s", "written": 1}}}
    return {"machine": machine, "streams__alice__prompt": 8, **SHORT, **more}


def test_a_camera_with_half_of_the_channel_slows_the_npu_down_and_loses_nothing() -> None:
    """BH-46: real-time DMA goes first."""
    alone, beside = run("single_1_5b", streams__alice__prompt=8, **SHORT), run("single_1_5b", **camera(0.5))
    moved = beside["dram"]["by_master"]["camera"]
    assert moved["dropped_bytes"] == 0
    assert moved["write_bytes"] == pytest.approx(12.8 * GB * beside["simulated_s"], rel=1e-6)
    assert moved["read_bytes"] == 0
    # The channel's totals count everybody: all that was written, the few bytes of the NPU's own beside the camera's.
    assert beside["dram"]["write_bytes"] == moved["write_bytes"] + sum(
        n for row in beside["dram"]["by_master"].values() for k, n in row.items() if k.endswith("_write_bytes")
    )
    # With reads and writes mixed the channel gives about 20 GB/s; what is left is 7, where the core alone takes 17.1.
    slower = beside["streams"]["alice"]["tpot_mean_ms"] / alone["streams"]["alice"]["tpot_mean_ms"]
    assert 1.6 < slower < 2.6
    assert beside["streams"]["alice"]["breakdown_ms"]["contention"] > 0.3 * beside["streams"]["alice"]["tpot_mean_ms"]


def test_a_camera_with_more_than_the_channel_starves_the_npu_and_overflows() -> None:
    """BH-46: with a time limit the run ends, says that nothing got through, and how much the camera lost."""
    result = run("single_1_5b", **camera(1.1, run__until="100 ms"))
    assert result["streams"]["alice"]["tokens"] == 0
    moved = result["dram"]["by_master"]["camera"]
    generated = 1.1 * 25.6 * GB * 0.1
    assert moved["write_bytes"] + moved["dropped_bytes"] == pytest.approx(generated, abs=32770)
    assert 0.05 < moved["dropped_bytes"] / generated < 0.25
    assert any(w["code"] == "dram-overload" and "camera" in w["text"] for w in result["warnings"])


def test_a_starved_run_without_a_time_limit_ends_with_the_reason() -> None:
    with pytest.raises(SimulationError, match="the DRAM channel is taken by camera"):
        run("single_1_5b", **camera(1.1))


@pytest.mark.validation
def test_the_bank_model_starves_the_npu_as_well() -> None:
    result = run("single_1_5b", **camera(1.1, run__until="8 ms", engine__dram="bank"))
    moved = result["dram"]["by_master"]["camera"]
    assert result["streams"]["alice"]["tokens"] == 0
    assert moved["write_bytes"] + moved["dropped_bytes"] == pytest.approx(1.1 * 25.6 * GB * 0.008, rel=0.001)
    assert moved["dropped_bytes"] > 0


def test_two_streams_of_a_pipeline_split_overlap() -> None:
    """While one is in the second half of the layers the other is in the first; what they get is the channel's."""
    keys = {"streams.alice.requests": 1, "streams.alice.output": 24}
    more = {f"streams.bob.{k}": v for k, v in {"chat": "chat", "prompt": 32, "output": 24, "requests": 1}.items()}
    one, two = (simulate(SCENARIOS / "pipeline_split.yaml", set=keys | extra) for extra in ({}, more))
    gain = two.decode_tokens_per_s / one.decode_tokens_per_s
    # One core at a time reads 17.1 GB/s, both 23: the steps' memory part gains that, and the host's work is hidden.
    assert 23 / 17.1 < gain < 2
    idle = [sum(c.waits["other_core"] for c in r.cores.values()) for r in (one, two)]
    assert idle[1] < idle[0] / 2
