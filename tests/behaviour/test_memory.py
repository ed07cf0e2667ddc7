"""Behaviour of memory that users of real boards report: heaps, loading, weights on chip (shared/cases, BH rows)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_board import CHAT, DETECTOR, SCENARIOS, alone, cam, chat, folder, frames, run

from bpusim import simulate
from bpusim.errors import BpusimError
from bpusim.scenario import load_scenario

CHAT_USE = {"a": "chat: m, prompt: 8, output: 2", "cam": "frames: d, rate: 10 Hz, count: 2"}


def test_a_model_that_no_heap_takes_is_an_error_with_gigabytes_free() -> None:
    """BH-39: names the block, the heap, the shortfall, and the place of the model."""
    heaps = {"machine.dram.heaps": {"npu0": "300 MB", "npu1": "300 MB"}}
    with pytest.raises(BpusimError) as caught:
        run(CHAT_USE, set=heaps)
    text = str(caught.value)
    assert "no heap takes m.weights of 323.4 MB: the largest free stretch is 300 MB in 'npu0', 23.4" in text
    assert "though 600 MB are free in all" in text
    assert "case.yaml:3:" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine.dram.heaps": {"x": "5 GB", "y": "1 GB"}}, "heaps of 6 GB exceed the usable 5.5 GB"),
        ({"models.m.heap": "x"}, "the memory has no heap 'x'; add machine.dram.heaps"),
        ({"machine.dram.heaps": {"npu0": "1 GB"}, "models.m.heap": "npu"}, "did you mean 'npu0'"),
        ({"machine.dram.heaps": {"a/b": "1 GB"}}, "cannot be a name"),
    ],
)
def test_heaps_that_cannot_be_are_errors(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BpusimError, match=message):
        run(CHAT_USE, set=changes)


def test_heaps_change_nothing_but_addresses() -> None:
    """BH-39: what fits runs as before, and the result has the map."""
    heaps = {"machine.dram.heaps": {"npu0": "400 MB", "npu1": "700 MB"}, "models.d.heap": "npu1"}
    plain, cut = run(CHAT_USE), run(CHAT_USE, set=heaps)
    assert cut.elapsed == plain.elapsed
    assert "heaps" not in plain.to_dict()["memory"]
    table = cut.to_dict()["memory"]["heaps"]
    assert list(table["npu0"]["blocks_bytes"]) == ["m.weights", "m.kv"]
    assert list(table["npu1"]["blocks_bytes"]) == ["m.workspace", "d.weights", "d.workspace"]
    assert sum(h["used_bytes"] for h in table.values()) == cut.resident_bytes == plain.resident_bytes


def test_addresses_follow_the_heaps_at_bank_fidelity() -> None:
    """BH-39: a model alone in the second heap lies behind the first one; its speed is that of memory anywhere."""
    from bpusim.system.build import System

    bank = {"engine.dram": "bank", "machine.dram.heaps": {"npu0": "800 MB", "npu1": "700 MB"}, "models.d.heap": "npu1"}
    path = Path(folder()) / "bank.yaml"
    known = f"  m: {{trace: '{CHAT}', cores: bpu0}}\n  d: {{trace: '{DETECTOR}', cores: bpu1}}\n"
    path.write_text(f"machine: bpu80\nmodels:\n{known}streams:\n  cam: {{frames: d, rate: 10 Hz, count: 1}}\n")
    system = System.build(load_scenario(path, bank))
    regions = system.channel._regions  # type: ignore[union-attr]
    second = -(-800_000_000 // 4096) * 4096
    assert regions["bpu0"]["weights"][0] == 0
    assert regions["bpu1"]["weights"][0] == second
    assert regions["cpu"]["weights"][0] == second + 700_000_000
    flow = simulate(path, set={k: v for k, v in bank.items() if k != "engine.dram"})
    assert frames(system.run()).latency_mean_ms == pytest.approx(frames(flow).latency_mean_ms, rel=0.05)


DETECTOR_BYTES = 23_561_152
SLOW_STORAGE = {"models.d.load": {"rate": "400 MB/s", "fixed": "70 ms"}}


def test_the_first_frame_waits_for_its_weights_and_is_counted_apart() -> None:
    """BH-32: of 100 frames the first takes the load and the session on top; means and percentiles leave it out."""
    warm = frames(cam("rate: 4 Hz, count: 100"))
    cold = frames(cam("rate: 4 Hz, count: 100", set=SLOW_STORAGE))
    loading = DETECTOR_BYTES / 400e3 + 70
    assert (warm.cold.count, cold.cold.count) == (0, 1)
    assert cold.frames == 100
    assert cold.cold.breakdown_ms["loading"] == pytest.approx(loading, abs=0.001)
    assert cold.cold.mean_ms == pytest.approx(loading + alone(), abs=0.001)
    assert sum(cold.cold.breakdown_ms.values()) == pytest.approx(cold.cold.mean_ms, abs=1e-9)
    assert cold.breakdown_ms["loading"] == 0
    for figure in ("latency_mean_ms", "latency_p50_ms", "latency_p99_ms"):
        assert getattr(cold, figure) == pytest.approx(getattr(warm, figure), abs=1e-6)


def test_loading_moves_the_weights_through_the_channel() -> None:
    """BH-32: they are written to memory once, at no more than the storage's rate."""
    result = cam("rate: 4 Hz, count: 3", set=SLOW_STORAGE)
    assert result.dram.moved["cpu"]["weights", True] == DETECTOR_BYTES
    assert "cpu" not in cam("rate: 4 Hz, count: 3").dram.moved


def test_what_is_loaded_in_time_is_not_cold() -> None:
    """BH-32: a load that begins with the run is over after 129 ms."""
    early = SLOW_STORAGE | {"models.d.load.when": "start"}
    for start, count in (("120 ms", 1), ("130 ms", 0)):
        assert frames(cam(f"rate: 4 Hz, count: 3, start: {start}", set=early)).cold.count == count


def test_models_are_loaded_one_after_the_other() -> None:
    """BH-32: one storage serves both; the second waits for the first one's bytes, not for its session."""
    load = "{rate: 400 MB/s, fixed: 70 ms, when: start}"
    result = run(
        {"f": "frames: d, rate: 2 Hz, count: 2", "g": "frames: e, rate: 2 Hz, count: 2"},
        models=f"  e: {{trace: '{DETECTOR}', cores: bpu1, load: {load}}}\n",
        set=SLOW_STORAGE | {"models.d.load.when": "start"},
    )
    bytes_ms, waits = DETECTOR_BYTES / 400e3, [frames(result, n).cold.breakdown_ms["loading"] for n in "fg"]
    assert waits == pytest.approx([bytes_ms + 70 - 0.6, 2 * bytes_ms + 70 - 0.6], abs=0.01)  # 0.6 ms is per_frame


def test_a_cold_chat_and_a_cold_pipeline_are_counted_apart() -> None:
    """BH-32: the first token of the first request; the first run of a pipeline, to each of its ends."""
    load = {"models.m.load": {"rate": "1 GB/s"}, "models.d.load": {"rate": "1 GB/s"}}
    users = {"a": "chat: m, prompt: 8, output: 3, requests: 3"}
    cold, warm = chat(run(users, set=load)), chat(run(users))
    assert (cold.cold.count, cold.requests, cold.tokens) == (1, 3, 9)
    assert cold.cold.breakdown_ms["loading"] == pytest.approx(323.433, abs=0.01)
    assert cold.ttft_mean_ms == pytest.approx(warm.ttft_mean_ms, rel=1e-3)
    assert cold.e2e_p99_ms == pytest.approx(warm.e2e_p99_ms, rel=1e-3)
    stages = "{see: {frames: d}, say: {chat: m, after: see, prompt: 8, output: 2}}"
    loop = f"pipeline: {stages}, trigger: {{every: 1 s}}, count: 3"
    end = run({"loop": loop}, set=load).to_dict()["streams"]["loop"]["ends"]["say"]
    assert end["cold"] == 1
    assert end["cold_breakdown_ms"]["loading"] == pytest.approx(323.433 + 23.561, abs=0.01)
    assert end["breakdown_ms"]["loading"] == 0


SRAM = "16 MiB"


@pytest.mark.parametrize("first", ["d", "e"])
def test_the_order_of_models_decides_who_streams(first: str) -> None:
    """BH-17: two models of 23.6 MB on a core that keeps 16 MiB of weights: the sums match, and so does the memory."""
    room, frames_each = 16 << 20, 5
    order = f"  e: {{trace: '{DETECTOR}', cores: bpu1}}\n"
    path = Path(folder()) / "sram.yaml"
    known = f"  d: {{trace: '{DETECTOR}', cores: bpu1}}\n"
    models = known + order if first == "d" else order + known
    streams = "".join(f"  {m}: {{frames: {m}, rate: 5 Hz, count: {frames_each}}}\n" for m in "de")
    path.write_text(
        f"machine: {{preset: bpu80, cores: {{weights_sram: {SRAM}}}}}\nmodels:\n{models}streams:\n{streams}"
    )
    result = simulate(path)
    table = {w.model: (w.resident, w.streamed) for w in result.weights}
    other = "e" if first == "d" else "d"
    assert table == {first: (room, DETECTOR_BYTES - room), other: (0, DETECTOR_BYTES)}
    # All of both comes once; later frames read what is streamed.
    read = 2 * DETECTOR_BYTES + (frames_each - 1) * sum(streamed for _, streamed in table.values())
    assert result.dram.moved["bpu1"]["weights", False] == read


def test_resident_weights_save_their_time_in_the_channel() -> None:
    """BH-24: a decode step that waits for its weights is faster by what stays on chip, over the port's rate."""
    users = {"a": "chat: m, prompt: 8, output: 40"}
    streamed, kept = (chat(run(users, set=s)) for s in ({}, {"machine.cores.weights_sram": "64 MiB"}))
    saved = (streamed.tpot_mean_ms or 0) - (kept.tpot_mean_ms or 0)
    assert saved == pytest.approx((64 << 20) / 17.1e6, rel=0.05)


def test_cores_that_run_a_model_together_keep_shares_of_its_weights() -> None:
    """BH-17: of a tensor split each core keeps its share, and a step reads that much less."""
    short = {"streams.alice.output": 3, "streams.alice.requests": 1}
    path = SCENARIOS / "tensor_split.yaml"
    plain, kept = (simulate(path, set=short | s) for s in ({}, {"machine.cores.weights_sram": "64 MiB"}))
    (row,) = kept.weights
    assert row.core == "bpu0, bpu1"
    assert row.resident == pytest.approx(2 * (64 << 20), abs=4096)
    read = [sum(r.dram.moved[c]["weights", False] for c in ("bpu0", "bpu1")) for r in (plain, kept)]
    assert read[0] - read[1] == pytest.approx(2 * row.resident, rel=1e-3)  # the prefill was the first step


TURNS = {
    "models.d.load": {"rate": "400 MB/s", "fixed": "70 ms", "place": "one"},
    "models.e.load": {"rate": "400 MB/s", "place": "one"},
}
OTHER = f"  e: {{trace: '{DETECTOR}', cores: bpu1}}\n"


def test_models_that_do_not_both_fit_are_loaded_again_and_again() -> None:
    """BH-32, reloaded weights: alternating frames wait for the bytes each time, for the session once."""
    streams = {"f": "frames: d, rate: 2 Hz, count: 4", "g": "frames: e, rate: 2 Hz, count: 4, start: 250 ms"}
    result = run(streams, models=OTHER, set=TURNS)
    loading = DETECTOR_BYTES / 400e3
    first, other = frames(result, "f"), frames(result, "g")
    assert (first.cold.count, other.cold.count) == (1, 1)
    assert first.cold.breakdown_ms["loading"] == pytest.approx(loading + 70, abs=0.001)
    for stats in (first, other):
        assert stats.breakdown_ms["loading"] == pytest.approx(loading, abs=0.001)
        assert stats.latency_mean_ms == pytest.approx(loading + alone(), abs=0.01)
    assert result.dram.moved["cpu"]["weights", True] == 8 * DETECTOR_BYTES


def test_a_model_that_is_asked_again_at_once_stays() -> None:
    """BH-32: only who has to come back is loaded; a step waits for those of the other that came before it."""
    streams = {"f": "frames: d, rate: 20 Hz, count: 6", "g": "frames: e, rate: 1 Hz, count: 1, start: 400 ms"}
    result = run(streams, models=OTHER, set=TURNS)
    assert result.dram.moved["cpu"]["weights", True] == 2 * DETECTOR_BYTES
    assert frames(result, "f").breakdown_ms["loading"] == 0


def test_a_place_in_turn_takes_the_memory_of_the_largest() -> None:
    streams = {"f": "frames: d, rate: 2 Hz, count: 1", "g": "frames: e, rate: 2 Hz, count: 1"}
    both, turns = (run(streams, models=OTHER, set=s) for s in ({}, TURNS))
    assert both.resident_bytes - turns.resident_bytes == DETECTOR_BYTES
    heaps = {"machine.dram.heaps": {"npu0": "30 MB", "npu1": "700 MB"}}
    table = run(streams, models=OTHER, set=TURNS | heaps | {"models.m.heap": "npu1"}).heaps
    assert sum(h.used for h in table.values()) == turns.resident_bytes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models.e.load.place": "two"}, "no other model takes turns in place 'one'"),
        ({"models.d.load.when": "start", "models.e.load.when": "start"}, "d and e are both loaded at the start"),
        ({"models.d.heap": "a", "machine.dram.heaps": {"a": "2 GB", "b": "2 GB"}}, "are in different heaps"),
    ],
)
def test_places_that_cannot_be_are_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BpusimError, match=message):
        run({"f": "frames: d, rate: 2 Hz, count: 1"}, models=OTHER, set=TURNS | changes)


def test_weights_that_stay_on_chip_are_read_once_by_steps_that_come_together() -> None:
    sram = {"machine.cores.weights_sram": "900 MB"}
    one, two = (
        run({"a": f"chat: m, prompt: 40, output: 2, users: {n}, requests: {2 // n}"}, set=sram).dram.moved["bpu0"]
        for n in (1, 2)
    )
    assert one["weights", False] == two["weights", False]


def test_a_cold_request_is_in_no_figure_of_first_tokens_and_its_later_tokens_count() -> None:
    cold = chat(run({"a": "chat: m, prompt: 40, output: 8"}, set={"models.m.load": {"rate": "400 MB/s"}}))
    warm = chat(run({"a": "chat: m, prompt: 40, output: 8"}))
    assert (cold.ttft_mean_ms, cold.ttft_p99_ms, cold.e2e_mean_ms) == (None, None, None)
    assert (cold.tpot_mean_ms, cold.itl_p99_ms) == (warm.tpot_mean_ms, warm.itl_p99_ms)
