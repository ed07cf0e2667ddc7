"""Behaviour of streams and dispatch that users of real boards report (shared/cases, BH rows): ratios, signs, laws."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from small_board import CHAT, DETECTOR, SCENARIOS, alone, cam, chat, frames, run

from bpusim import simulate
from bpusim.errors import BpusimError


def test_jobs_in_rotation_give_one_stream_no_gain() -> None:
    """BH-12: a chain of dependent jobs over two cores is no faster than on one."""
    one = chat(simulate(SCENARIOS / "single_3b.yaml"), "alice").tpot_mean_ms
    two = chat(simulate(SCENARIOS / "pipeline_split.yaml"), "alice").tpot_mean_ms
    assert one is not None
    assert two is not None
    assert two > one


@cache
def _clients(n: int) -> float:
    """Frames a second of one model that any of three cores may run, asked by so many clients at once."""
    result = cam(
        f"rate: 1000 Hz, queue: 8, threads: {n}", "run: {until: 3 s}",
        set={"models.d.cores": "any", "machine.cores.count": 3, "machine.dram.preset": "LPDDR5-6400x64"},
    )  # fmt: skip
    return frames(result).fps


def test_clients_scale_to_the_number_of_cores_and_level_off() -> None:
    """BH-11: near linear to three (2.4 there: the third meets the others in the memory), then flat within 10 %."""
    rates = {n: _clients(n) for n in range(1, 7)}
    assert rates[2] / rates[1] > 1.8
    assert rates[3] / rates[1] > 2.2
    for n in (4, 5, 6):
        assert rates[n] == pytest.approx(rates[3], rel=0.10)


def test_any_core_gives_one_client_nothing() -> None:
    """BH-09: a core mask is no parallelism: the latency of a frame is what it was, whichever core is free."""
    one, any_ = (cam("rate: 10 Hz, count: 20", set={"models.d.cores": c}) for c in ("bpu1", "any"))
    assert frames(any_).latency_mean_ms == frames(one).latency_mean_ms
    assert "idle-core" not in [w.code for w in any_.warnings]


def test_a_trace_pinned_to_a_core_stays_there_whatever_core_would_do(tmp_path: Path) -> None:
    """R22."""
    pinned = tmp_path / "pinned.trace"
    text = DETECTOR.read_text().replace('"cores":"any"', '"cores":[1]', 1)
    pinned.write_text(text)
    result = cam("rate: 10 Hz, count: 5", set={"models.d.cores": "any", "models.d.trace": str(pinned)})
    assert result.cores["bpu0"].calls == 0
    assert result.cores["bpu1"].calls == 5


def test_a_long_prompt_lets_others_in_between_its_chunks() -> None:
    """A prompt of 1024 tokens is four calls of a chunk each: a decode step beside it waits for one, not for four."""
    users = {
        "a": "chat: m, prompt: 8, output: 60",
        "long": "chat: m, prompt: 1024, output: 1, start: 500 ms",
    }
    result = run(users)
    prompt = chat(result, "long").ttft_mean_ms
    worst = chat(result).itl_p99_ms
    assert prompt is not None
    assert worst is not None
    assert chat(result).itl_p50_ms is not None
    assert worst < prompt / 2


def test_a_model_compiled_for_one_core_leaves_the_other_idle_and_says_so() -> None:
    """BH-13."""
    result = run({"a": "chat: m, prompt: 8, output: 2"}, models="")
    assert result.cores["bpu1"].occupied_fraction == 0
    assert "unused-model" in [w.code for w in result.warnings]


@pytest.mark.parametrize(("overlap", "bound"), [("on", "the slowest stage"), ("off", "their sum")])
def test_a_camera_pipeline_is_bound_by_its_slowest_stage_or_by_the_sum(overlap: str, bound: str) -> None:
    """BH-26, BH-37: the model is a small part of it; the core is idle most of the time."""
    result = cam(f"rate: 100 Hz, after: {{cpu: 150 ms}}, overlap: {overlap}", "run: {until: 20 s}")
    pace = 1000 / frames(result).fps
    # Four CPU cores take frames behind the model; each waits for the next one's call, which one thread submits.
    expected = (150 + alone()) / 4 if overlap == "on" else 150 + alone()
    assert pace == pytest.approx(expected, rel=0.02), bound
    if overlap == "off":
        assert result.cores["bpu1"].occupied_fraction < 0.12


def test_a_second_client_on_one_core_adds_little() -> None:
    """BH-27: throughput rises by what the core waited for the host, latency doubles."""
    one, two = (cam(f"rate: 200 Hz, threads: {n}", "run: {until: 5 s}") for n in (1, 2))
    gain = frames(two).fps / frames(one).fps
    assert 1.0 < gain < 1.1
    assert two.cores["bpu1"].occupied_fraction > 0.99
    first, second = frames(one).breakdown_ms, frames(two).breakdown_ms
    assert second["queueing"] - first["queueing"] == pytest.approx(alone(), rel=0.15)


def test_a_core_that_is_not_there_is_an_error_with_those_that_are() -> None:
    """BH-27."""
    with pytest.raises(BpusimError, match="bpu2"):
        run({"a": "chat: m, prompt: 8, output: 2"}, set={"models.m.cores": "bpu2"})


def test_each_context_has_a_copy_of_the_weights() -> None:
    """BH-40: entries of models are copies, and three of them fit or are refused with the table."""
    copies = "".join(f"  m{k}: {{trace: '{CHAT}', cores: bpu0}}\n" for k in (1, 2))
    one = run({"a": "chat: m, prompt: 8, output: 2"})
    three = run({"a": "chat: m, prompt: 8, output: 2"}, models=copies)
    weights = 323_400_000
    assert three.resident_bytes - one.resident_bytes > 2 * weights
    with pytest.raises(BpusimError, match="are usable"):
        run({"a": "chat: m, prompt: 8, output: 2"}, models=copies, set={"machine.dram.usable": "1 GB"})


def test_rates_of_streams_add_up_in_utilisation() -> None:
    """BH-44: 20 and 10 runs a second of one net occupy the core for their sum."""
    two = run({"f": "frames: d, rate: 20 Hz", "g": "frames: d, rate: 10 Hz, start: 25 ms"}, "run: {until: 10 s}")
    each = cam("rate: 2 Hz", "run: {until: 10 s}").cores["bpu1"].occupied_fraction / 2
    assert two.cores["bpu1"].occupied_fraction == pytest.approx(30 * each, rel=0.01)


def test_a_design_rate_is_not_what_full_speed_says() -> None:
    """BH-47: at 20 Hz the latency is that of a frame alone and the memory is idle most of the time."""
    design, full = (cam(f"rate: {hz} Hz, queue: 2", "run: {until: 5 s}") for hz in (20, 200))
    assert frames(design).latency_p99_ms == pytest.approx(alone(), rel=0.01)
    assert (frames(full).latency_p99_ms or 0) > 1.4 * alone()
    ratio = full.dram.to_dict()["achieved_bytes_per_s"] / design.dram.to_dict()["achieved_bytes_per_s"]
    assert ratio == pytest.approx(frames(full).fps / frames(design).fps, rel=0.02)


def test_a_line_without_room_for_drops_grows_until_it_stands_still() -> None:
    """BH-48: 100 frames a second come and some 56 are served: the line grows by the difference, latency with it."""
    result = cam("rate: 100 Hz, queue: 100000", "run: {until: 10 s}")
    stats = frames(result)
    served = 1000 / (alone() - 0.2)
    assert stats.fps == pytest.approx(served, rel=0.05)
    assert stats.line_most == pytest.approx((100 - stats.fps) * 10, rel=0.02)
    assert stats.latency_p99_ms == pytest.approx(1000 * stats.line_most / 100, rel=0.05)


def test_drop_policies_under_overload() -> None:
    """BH-48: the newest frame is dropped or the oldest: as many go through, those that do are older with newest."""
    newest, oldest = (
        frames(cam(f"rate: 100 Hz, queue: 4, drop: {d}", "run: {until: 5 s}")) for d in ("newest", "oldest")
    )
    assert newest.fps == pytest.approx(oldest.fps, rel=0.01)
    assert (newest.latency_mean_ms or 0) > (oldest.latency_mean_ms or 0) + 10
    assert [w.code for w in cam("rate: 100 Hz", "run: {until: 5 s}").warnings].count("frames-dropped") == 1


def test_a_slower_pace_frees_the_memory_in_proportion() -> None:
    """BH-50: half the tokens a second take half the bandwidth in the mean; each step takes what it took."""
    free, paced = (
        run({"a": f"chat: m, prompt: 8, output: 200{pace}"}, "run: {until: 5 s}") for pace in ("", ", pace: 15 Hz")
    )
    rates = [r.dram.to_dict()["achieved_bytes_per_s"] / chat(r).decode_tokens_per_s for r in (free, paced)]
    assert rates[1] == pytest.approx(rates[0], rel=0.02)
    assert chat(paced).decode_tokens_per_s == pytest.approx(15, rel=0.01)
    assert chat(paced).breakdown_ms["dram"] == pytest.approx(chat(free).breakdown_ms["dram"], rel=0.01)


def test_a_long_call_holds_up_every_token_behind_it() -> None:
    """BH-52: one prompt every half second on the same core: the median gap is a step, the p99 a step and a prefill."""
    users = {
        "a": "chat: m, prompt: 8, output: 400, requests: forever",
        "embed": "chat: m, prompt: 256, output: 1, arrivals: {every: 500 ms}, requests: forever",
    }
    result = run(users, "run: {until: 20 s}", set={"models.m.sequences": 2})
    step = chat(run({"a": "chat: m, prompt: 8, output: 60"})).itl_p50_ms
    assert step is not None
    assert chat(result).itl_p50_ms == pytest.approx(step, rel=0.03)
    assert (chat(result).itl_p99_ms or 0) > step + 30


def test_a_pinned_trace_that_may_run_anywhere_is_warned_about(tmp_path: Path) -> None:
    text = CHAT.read_text(encoding="utf-8").replace('"cores":"any"', '"cores":[0]', 1)
    (tmp_path / "pinned.trace").write_text(text, encoding="utf-8")
    result = run(
        {"a": "chat: p, prompt: 8, output: 2"}, models=f"  p: {{trace: '{tmp_path}/pinned.trace', cores: any}}\n"
    )
    (warning,) = [w.text for w in result.warnings if w.code == "pinned-trace"]
    assert "compile it with --cores any" in warning
