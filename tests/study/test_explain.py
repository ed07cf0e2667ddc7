"""Where the time of a scenario goes, what bounds it, and what single changes make of it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import bpusim
from bpusim.metrics import RequestRow
from bpusim.metrics.explained import Bound, Explained
from bpusim.metrics.explanation import Explanation
from bpusim.scenario import ChatSpec, load_scenario
from bpusim.study import explain as module
from bpusim.study.bounds import Usage
from bpusim.study.explain import explain, streams_of
from bpusim.system.roof import roof_of
from bpusim.trace import Op, load_trace, save_trace
from bpusim.trace.roofline import Position, op_rows, totals
from bpusim.units import PS_PER_S

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios"
SHIPPED = sorted(str(p.relative_to(SCENARIOS).with_suffix("")) for p in SCENARIOS.rglob("*.yaml"))
MS = 10**9
Bare = Callable[..., dict[str, Explained]]


@pytest.fixture(scope="module")
def bare() -> Bare:
    """``bare(name, *sets)``: streams of a scenario with their bounds; each runs once, long ones for 20 s."""
    known: dict[tuple[str, ...], dict[str, Explained]] = {}

    def make(name: str, *sets: str) -> dict[str, Explained]:
        if (name, *sets) not in known:
            short = ["run.until=20 s"] if "thermal" in name and "fast" not in name else []
            found = explain(SCENARIOS / f"{name}.yaml", [*short, *sets], what_if=False)
            known[name, *sets] = {s.name: s for s in found.streams}
        return known[name, *sets]

    return make


def bound(streams: dict[str, Explained], stream: str, interval: str) -> Bound:
    return streams[stream].bounds[interval]


# --- breakdown and bounds


@pytest.mark.parametrize("name", SHIPPED)
def test_causes_sum_to_the_mean_and_what_lies_between_to_what_was_measured(bare: Bare, name: str) -> None:
    for s in bare(name).values():
        assert s.intervals
        for i in s.intervals:
            assert sum(i.causes.values()) == i.mean
            assert i.causes["other"] == 0
        for b in s.bounds.values():
            assert b.measured >= b.ideal > 0
            if b.causes:
                assert b.ideal + sum(b.between.values()) == b.measured


@pytest.mark.parametrize("name", ["single_3b", "single_1_5b", "seven_b"])
def test_decode_is_bound_by_dram_and_prefill_by_compute(bare: Bare, name: str) -> None:
    streams = bare(name)
    assert bound(streams, "alice", "each token").by == "dram"
    assert bound(streams, "alice", "first token").by == "compute"


def test_a_chunk_of_256_tokens_does_not_take_longer_than_its_weights_in_int8(bare: Bare) -> None:
    """As many operations as with int4 weights, and nearly twice the bytes: prefill goes over to DRAM."""
    int4, int8 = (bound(bare(n), "alice", "first token") for n in ("single_3b", "int8_3b"))
    assert int8.compute == pytest.approx(int4.compute, rel=0.01)
    assert int4.transfer < int4.compute < int8.transfer
    assert int8.by == "dram"


def test_the_best_of_a_token_is_its_bytes_over_what_a_core_reads_alone(bare: Bare) -> None:
    """Decode steps of 32 + 32 tokens find 32 to 62 entries in the cache: 47 on average."""
    found = bound(bare("single_3b"), "alice", "each token")
    trace = load_trace(ROOT / "traces" / "qwen2.5-3b-int4.trace")
    roof = roof_of(load_scenario(SCENARIOS / "single_3b.yaml").machine)
    whole = totals(op_rows(trace, Position.of(trace, "decode", 47), roof))
    assert found.bytes == whole["bytes"]
    assert found.ideal == found.transfer == round(whole["bytes"] * PS_PER_S / roof.bytes_per_s)
    assert found.useful == 2 * whole["macs"]
    assert found.distance == pytest.approx(1.085, abs=0.005)


def test_padding_is_counted_by_the_array_and_not_by_the_user(bare: Bare) -> None:
    """32 of 256 rows are tokens; attention has rows of its own."""
    found = bound(bare("single_3b"), "alice", "first token")
    assert found.issued / found.useful == pytest.approx(8, rel=0.05)


def test_the_balance_is_that_of_the_type_the_array_works_with(bare: Bare) -> None:
    """16-bit activations at a quarter of 40 TOPS over 17.1 GB/s; the detector has 8-bit ones."""
    streams = bare("hetero")
    assert bound(streams, "talk", "each token").balance == pytest.approx(10e12 / 17.1e9, rel=1e-4)
    assert bound(streams, "camera", "a frame").balance == pytest.approx(40e12 / 17.1e9, rel=1e-4)


def test_two_readers_have_half_the_channel_each(bare: Bare) -> None:
    found = bound(bare("dual_replica"), "alice", "each token")
    assert found.readers == 2
    assert 10e9 < found.shared_bytes_per_s < 12.8e9
    assert found.ideal < found.ideal_shared < found.measured


def test_a_reader_alone_has_what_its_port_takes(bare: Bare) -> None:
    """The parts of a pipeline split take turns, as long as one sequence is all there is."""
    for name in ("single_3b", "pipeline_split", "cpu_fallback"):
        found = bound(bare(name), "alice", "each token")
        assert (found.readers, found.shared_bytes_per_s) == (1, found.bytes_per_s)


def test_cores_of_a_tensor_split_read_together(bare: Bare) -> None:
    one, two = (bound(bare(n), "alice", "each token") for n in ("single_1_5b", "tensor_split"))
    assert one.bytes_per_s < two.bytes_per_s < 2 * one.bytes_per_s
    assert two.compute == pytest.approx(one.compute / 2, rel=0.01)


def test_open_loop_masters_take_theirs_first(bare: Bare) -> None:
    sets = "machine.masters={display: {rate: 12 GB/s, written: 0, on: 1 ms, period: 2 ms}}"
    free, beside = (bound(bare("dual_replica", *s), "alice", "each token") for s in ((), (sets,)))
    assert free.shared_bytes_per_s - beside.shared_bytes_per_s == pytest.approx(6e9 / 2)


def test_a_batch_is_looked_at_with_its_sequences(bare: Bare) -> None:
    alone, both = (bound(bare(n), "alice", "each token") for n in ("single_1_5b", "batch"))
    assert both.useful == pytest.approx(2 * alone.useful, rel=0.01)
    assert both.bytes == pytest.approx(alone.bytes, rel=0.01)


def test_ops_on_the_cpu_are_no_work_of_the_core(bare: Bare) -> None:
    with_ops, without = (bound(bare(n), "alice", "each token") for n in ("cpu_fallback", "single_3b"))
    assert with_ops.ideal == pytest.approx(without.ideal, rel=0.01)
    assert with_ops.between["fallback"] > 20 * MS


def test_weights_that_stay_on_the_core_are_not_read_again(bare: Bare) -> None:
    kept = "machine.cores.weights_sram=64 MiB"
    streamed, resident = (bound(bare("single_1_5b", *s), "alice", "each token") for s in ((), (kept,)))
    assert 60 * 2**20 < streamed.bytes - resident.bytes <= 64 * 2**20


def test_stages_of_a_pipeline_have_bounds_of_their_own(bare: Bare) -> None:
    streams = bare("multimodal_loop")
    assert set(streams["loop"].bounds) == {"hear", "see"}
    assert bound(streams, "loop", "see").measured > bound(streams, "loop", "see").ideal
    assert streams["loop.say"].stage
    assert bound(streams, "loop.say", "first token").by == "compute"


def test_what_runs_on_the_cpu_alone_has_no_bound_of_a_core(bare: Bare, tmp_path: Path) -> None:
    trace = load_trace(ROOT / "traces" / "wake_word.trace")
    op = Op("all", "Gemm", "cpu", cycles=(1000,), read={"io:x": (64,)}, tensors=1)
    frame = replace(trace.phases["frame"], items=(op,))
    save_trace(replace(trace, phases={"frame": frame}), tmp_path / "cpu.trace")
    sets = (f"models.chat.trace={tmp_path / 'cpu.trace'}", "streams={cam: {frames: chat, rate: 10 Hz, count: 2}}")
    changed = bare("single_3b", *sets, "streams.alice={frames: chat, rate: 10 Hz, count: 1}")
    assert changed["cam"].intervals[0].causes["fallback"] > 0
    assert not changed["cam"].bounds


def row(index: int, prompt: int, tokens: int) -> RequestRow:
    return RequestRow("s", index, prompt, tokens, 0, 1, 2)


def test_usage_of_requests_by_hand() -> None:
    """Prompts of 4 and 10; answers of 3 tokens (steps at 4 and 5 entries) and of 2 (a step at 10)."""
    spec = ChatSpec(chat="m", prompt=4, output=3)
    found = Usage.of([row(0, 4, 3), row(1, 10, 2)], spec, 100, 8)
    assert found == Usage(7.0, 2.5, 19 / 3, ((4, 0, 1), (10, 0, 1)))


def test_usage_of_a_kept_conversation_goes_on_from_what_is_in_the_cache() -> None:
    """Answers of 3 leave prompt + 2 entries; the third request would exceed a context of 20 and starts anew."""
    spec = ChatSpec(chat="m", prompt=4, output=3, history="kept")
    found = Usage.of([row(0, 4, 3), row(1, 5, 3), row(2, 8, 3)], spec, 20, 0)
    assert found is not None
    assert found.prompts == ((4, 0, 1), (5, 6, 1), (8, 0, 1))


def test_usage_without_a_finished_request_is_what_the_scenario_asks_for() -> None:
    assert Usage.of([], ChatSpec(chat="m", prompt=4, output=4), 100, 8) == Usage(4, 4, 5, ((4, 0, 1),))


# --- BH-57: the share of the first token


@pytest.mark.parametrize(("prompt", "output"), [(32, 130), (1024, 1024)])
def test_the_share_of_the_first_token(bare: Bare, prompt: int, output: int) -> None:
    """BH-57: to a user a first token in 1 % of the time looks wrong. Decode is a pass over all bytes for each token."""
    sets = (f"streams.alice.prompt={prompt}", f"streams.alice.output={output}", "streams.alice.requests=1")
    s = bare("single_3b", *sets)["alice"]
    first = s.first
    assert first is not None
    assert first.tpot is not None
    assert (first.prompt, first.output, first.chunk) == (prompt, output, 256)
    assert first.ttft + (output - 1) * first.tpot == pytest.approx(first.e2e, abs=output)
    assert first.ttft / first.e2e < 0.02
    assert first.prefill / first.ttft > 0.9
    assert first.ttft / prompt < first.tpot / 10
    assert s.bounds["each token"].by == "dram"


# --- what helps


SHORT = ["streams.alice.requests=1", "streams.alice.output=8"]


@pytest.fixture(scope="module")
def fallback() -> Explanation:
    return explain(SCENARIOS / "cpu_fallback.yaml", SHORT)


def test_no_fallback_helps_a_model_with_cpu_ops_most(fallback: Explanation) -> None:
    assert fallback.tried is not None
    best = fallback.tried[0]
    assert best.change.name == "no CPU fallback of chat"
    as_it_is = bpusim.simulate(SCENARIOS / "single_3b.yaml", set=SHORT)
    assert best.means["alice", "each token"] == round(as_it_is.chats["alice"].tpot_mean_ms * MS)


def test_changes_come_best_first_and_worse_ones_last(fallback: Explanation) -> None:
    assert fallback.tried is not None
    ratios = [t.ratio for t in fallback.tried]
    assert ratios == sorted(ratios)
    assert ratios[0] < 1 <= ratios[-1]


def test_what_is_printed_can_be_repeated(fallback: Explanation) -> None:
    assert fallback.tried is not None
    for t in fallback.tried[:3]:
        again = bpusim.simulate(SCENARIOS / "cpu_fallback.yaml", set=[*SHORT, *t.change.sets])
        assert t.means == {("alice", i.name): i.mean for i in streams_of(again)[0].intervals}
        assert t.tokens_per_s == again.decode_tokens_per_s
    asked = [word for s in SHORT for word in ("--set", s)]
    assert shlex.split(fallback.command) == ["bpusim", "run", str(SCENARIOS / "cpu_fallback.yaml"), *asked]


def test_a_request_is_as_long_as_the_scenarios(fallback: Explanation) -> None:
    """A first token and 7 more, old and new."""
    assert fallback.tried is not None
    for t in fallback.tried:
        new, old = (m["alice", "first token"] + 7 * m["alice", "each token"] for m in (t.means, t.base))
        assert t.ratio == pytest.approx(new / old)


ONE = ["streams.alice.requests=1"]


def test_faster_dram_helps_two_cores_and_not_one() -> None:
    def ratio(name: str, *sets: str) -> float | None:
        tried = explain(SCENARIOS / f"{name}.yaml", [*ONE, *sets]).tried
        assert tried is not None
        return next(t.ratio for t in tried if t.change.name == "DRAM 10 % faster")

    assert ratio("dual_replica", "streams.bob.requests=1") == pytest.approx(0.92, abs=0.01)
    assert ratio("single_1_5b") == pytest.approx(1, abs=1e-6)


def test_where_no_request_is_finished_it_is_as_long_as_asked_for() -> None:
    tried = explain(SCENARIOS / "single_1_5b.yaml", ["streams.alice.output=300", "run.until=2 s"]).tried
    assert tried
    for t in tried:
        new, old = (m["alice", "first token"] + 299 * m["alice", "each token"] for m in (t.means, t.base))
        assert t.ratio == pytest.approx(new / old)


def test_what_the_loader_refuses_is_said_in_its_row() -> None:
    """3.3 GB of int8 weights in 2.5 GB."""
    tried = explain(SCENARIOS / "single_3b.yaml", [*ONE, "machine.dram.usable=2.5 GB"]).tried
    assert tried is not None
    refused = [t for t in tried if t.refused]
    assert [t.change.name for t in refused] == ["int8 weights for chat"]
    assert refused[0] is tried[-1]
    assert "2.5 GB" in refused[0].refused


def test_long_runs_are_cut_and_compared_with_the_same_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVENTS", 400)
    path = SCENARIOS / "hetero_one_core.yaml"
    found = explain(path, ["run.until=4 s"])
    assert found.tried
    assert found.base is not None
    (cut,) = found.common
    short = bpusim.simulate(path, set=["run.until=4 s", cut])
    assert short.elapsed < 4 * PS_PER_S
    assert found.base.means == {(s.name, i.name): i.mean for s in streams_of(short) for i in s.intervals}
    assert all(t.base == found.base.means for t in found.tried)
    whole = bpusim.simulate(path, set=["run.until=4 s"])
    assert found.streams[0].intervals == streams_of(whole)[0].intervals
    assert any("what-ifs run the first" in n for n in found.notes)


def test_the_fan_has_all_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heat takes longer than a cut run lasts."""
    monkeypatch.setattr(module, "_EVENTS", 400)
    path = SCENARIOS / "thermal_fast_dram.yaml"
    found = explain(path)
    assert found.tried is not None
    fan = next(t for t in found.tried if t.change.name == "a fan")
    cool = bpusim.simulate(path, set=fan.change.sets)
    assert cool.heat is not None
    assert cool.heat.throttled["bpu0"] == 0
    assert fan.means["alice", "each token"] == round(cool.chats["alice"].tpot_mean_ms * MS)
    assert fan.means["alice", "each token"] < fan.base["alice", "each token"]


def test_a_run_in_which_nothing_ends_has_nothing_to_compare() -> None:
    found = explain(SCENARIOS / "single_3b.yaml", ["run.until=100 ms"])
    assert found.tried is None
    assert not found.streams[0].intervals
    assert any("lengthen it" in n for n in found.notes)


def test_what_ifs_of_a_bank_run_are_on_the_flow_model() -> None:
    sets = [
        "engine.dram=bank", "streams.alice.prompt=1", "streams.alice.output=2", "streams.alice.requests=1",
        "models.chat.trace=" + str(ROOT / "traces" / "qwen2.5-0.5b-int4.trace"),
    ]  # fmt: skip
    found = explain(SCENARIOS / "single_3b.yaml", sets)
    assert "engine.dram=flow" in found.common
    assert found.tried
    assert not any(t.refused for t in found.tried)


def test_who_waits_is_told_of_each_run() -> None:
    heard: list[tuple[int, int, str]] = []
    explain(SCENARIOS / "single_1_5b.yaml", tell=lambda done, of, what: heard.append((done, of, what)))
    assert heard[0] == (0, 1, "as it is")
    assert heard[-1][0] == heard[-1][1]
    assert [done for done, _, _ in heard] == sorted(done for done, _, _ in heard)
