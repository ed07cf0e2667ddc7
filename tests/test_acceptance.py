"""The acceptance table of the reference board, row by row, on the shipped scenarios.

Expected values and tolerances are the published field report's (rows R..), as ``docs/VALIDATION.md`` quotes them. The
message of a failed row says what was measured and how far off it is. Each scenario runs once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

import bpusim
from bpusim.metrics import ChatStats, FrameStats, PipelineStats, Result
from bpusim.scenario import ChatSpec, load_scenario

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
SHIPPED = sorted(str(p.relative_to(SCENARIOS).with_suffix("")) for p in SCENARIOS.rglob("*.yaml"))
SOAKS = [n for n in SHIPPED if n.startswith("thermal_") and "fast" not in n]
"""Half an hour of heat each: their rows are in test_heat_acceptance.py."""
LADDER = [
    "tuning/1_out_of_the_box",
    "tuning/2_logging_off",
    "tuning/3_memory_pool",
    "tuning/4_no_fallback",
    "tuning/5_async_submit",
]

Ran = Callable[[str], Result]


@pytest.fixture(scope="module")
def ran() -> Ran:
    """``ran(name)``: the result of a shipped scenario, which runs once; of half an hour of heat, the first minute."""
    results: dict[str, Result] = {}

    def run(name: str) -> Result:
        if name not in results:
            short = {"run.until": "60 s"} if name in SOAKS else {}
            results[name] = bpusim.simulate(SCENARIOS / f"{name}.yaml", set=short)
        return results[name]

    return run


def _chat(result: Result, name: str = "alice") -> ChatStats:
    stream = result.streams[name]
    assert isinstance(stream, ChatStats)
    return stream


def _tpot(result: Result, name: str = "alice") -> float:
    tpot = _chat(result, name).tpot_mean_ms
    assert tpot is not None
    return tpot


def _ttft(result: Result, name: str = "alice") -> float:
    ttft = _chat(result, name).ttft_mean_ms
    assert ttft is not None
    return ttft


def _near(row: str, measured: float, expected: float, tolerance: float) -> None:
    off = measured / expected - 1
    assert abs(off) <= tolerance, (
        f"{row}: measured {measured:.4g}, expected {expected:.4g} +- {tolerance:.0%}, deviation {off:+.1%}"
    )


def _between(row: str, measured: float, low: float, high: float) -> None:
    assert low <= measured <= high, f"{row}: measured {measured:.4g}, expected {low:.4g} to {high:.4g}"


# --- the rows


@pytest.mark.validation
def test_single_3b_decodes_a_token_in_115_ms(ran: Ran) -> None:
    """R06: 1.8 GB / 17.1 GB/s and 10 ms of host work."""
    _near("R06 decode, ms", _tpot(ran("single_3b")), 115, 0.05)


@pytest.mark.validation
def test_single_3b_gives_the_first_token_in_260_ms(ran: Ran) -> None:
    """R05: 32 real tokens in a static chunk of 256 with logits for every row."""
    _near("R05 first token, ms", _ttft(ran("single_3b")), 260, 0.10)


@pytest.mark.validation
def test_single_1_5b_decodes_a_token_in_62_5_ms(ran: Ran) -> None:
    """R07: 16 tok/s."""
    _near("R07 decode, ms", _tpot(ran("single_1_5b")), 62.5, 0.05)


@pytest.mark.validation
def test_dual_replica_in_phase_gives_23_tokens_a_second(ran: Ran) -> None:
    """R08, both starting together."""
    _near("R08 total in phase, tok/s", ran("dual_replica").decode_tokens_per_s, 23, 0.05)


@pytest.mark.validation
def test_dual_replica_half_a_step_apart_gives_23_tokens_a_second(ran: Ran) -> None:
    """R08, one starting half a step later."""
    _near("R08 total half a step apart, tok/s", ran("dual_replica_offset").decode_tokens_per_s, 23, 0.05)


@pytest.mark.validation
def test_the_offset_is_half_a_step(ran: Ran) -> None:
    """The scenario says a number; half of the measured step it must stay when the machine changes."""
    bob = load_scenario(SCENARIOS / "dual_replica_offset.yaml").streams["bob"]
    step = _tpot(ran("dual_replica_offset"))
    _near("R08 offset, ms", bob.start / 1e9, step / 2, 0.05)


@pytest.mark.validation
def test_priority_keeps_core_0_at_16_tokens_a_second(ran: Ran) -> None:
    """R09: strict DRAM priority."""
    _near("R09 core 0, tok/s", _chat(ran("dual_replica_priority")).decode_tokens_per_s, 16, 0.07)


@pytest.mark.validation
def test_priority_leaves_core_1_with_7_tokens_a_second(ran: Ran) -> None:
    """R09: what the channel has left."""
    _near("R09 core 1, tok/s", _chat(ran("dual_replica_priority"), "bob").decode_tokens_per_s, 7, 0.15)


@pytest.mark.validation
def test_a_cpu_op_in_every_layer_costs_145_ms_a_token(ran: Ran) -> None:
    """R16."""
    _near("R16 CPU fallback, ms", _tpot(ran("cpu_fallback")), 145, 0.05)


@pytest.mark.validation
@pytest.mark.parametrize(("step", "expected"), list(zip(LADDER[:4], [200, 182, 145, 115], strict=True)))
def test_the_tuning_ladder(ran: Ran, step: str, expected: float) -> None:
    """R16."""
    _near(f"R16 {step}, ms", _tpot(ran(step)), expected, 0.05)


@pytest.mark.validation
def test_the_last_step_of_the_ladder_stays_within_115_ms(ran: Ran) -> None:
    """R16: async submit."""
    _between("R16 async submit, ms", _tpot(ran(LADDER[4])), 0, 115 * 1.05)


@pytest.mark.validation
@pytest.mark.parametrize(("before", "after"), list(pairwise(LADDER)))
def test_every_step_of_the_ladder_helps(ran: Ran, before: str, after: str) -> None:
    assert _tpot(ran(after)) < _tpot(ran(before))


@pytest.mark.validation
def test_the_first_token_takes_more_than_a_second_before_tuning(ran: Ran) -> None:
    """R16."""
    _between("R16 first token at the start, ms", _ttft(ran(LADDER[0])), 1000, float("inf"))


@pytest.mark.validation
def test_a_pipeline_split_slows_one_stream_down(ran: Ran) -> None:
    """R17."""
    single, split = _tpot(ran("single_3b")), _tpot(ran("pipeline_split"))
    assert split > single, f"R17: split {split:.3f} ms, single {single:.3f} ms"


@pytest.mark.validation
def test_what_a_pipeline_split_adds_is_the_hand_over(ran: Ran) -> None:
    """R17: the cause 'handover' explains the difference; all other causes together hardly change."""
    single, split = ran("single_3b"), ran("pipeline_split")
    added = _tpot(split) - _tpot(single)
    _near("R17 hand-over against what the split adds, ms", _chat(split).breakdown_ms["handover"], added, 0.05)


@pytest.mark.validation
def test_the_activations_of_a_pipeline_split_are_not_its_cost(ran: Ran) -> None:
    """R17: a token hands over a few KB, twice across DRAM at 17.1 GB/s: under a tenth of the hand-over."""
    trace = bpusim.load_trace(SCENARIOS.parent / "traces" / "qwen2.5-3b-int4.trace")
    give = [op for op in trace.split(2)[0].phase("decode").ops() if op.type == "Handover"]
    carried = sum(sum(c) for op in give for c in op.write.values())
    assert 4096 <= carried <= 16_384  # 2048 values of 16 bits, and what else lives between two layers
    traffic_ms = 2 * carried / 17.1e9 * 1e3
    handover = _chat(ran("pipeline_split")).breakdown_ms["handover"]
    assert traffic_ms < handover / 10, f"R17: {traffic_ms:.4f} ms of traffic, {handover:.4f} ms of hand-over"


@pytest.mark.validation
def test_the_detector_occupies_core_1_for_35_percent(ran: Ran) -> None:
    """R18: occupied, not busy: the vendor's load counter."""
    _near("R18 load of core 1", ran("hetero").cores["bpu1"].occupied_fraction, 0.35, 0.10)


@pytest.mark.validation
def test_the_chat_beside_the_detector_gives_its_first_token_in_200_ms(ran: Ran) -> None:
    """R18."""
    _near("R18 first token, ms", _ttft(ran("hetero"), "talk"), 200, 0.30)


@pytest.mark.validation
def test_the_array_is_issued_15_to_20_percent_in_prefill(ran: Ran) -> None:
    """R12, padding counted."""
    _between("R12 mac_issued_fraction", _chat(ran("single_3b")).phases["prefill"].mac_issued_fraction, 0.15, 0.20)


@pytest.mark.validation
def test_the_array_is_busy_1_to_2_percent_in_decode(ran: Ran) -> None:
    """R11."""
    _between("R11 mac_busy_fraction", _chat(ran("single_3b")).phases["decode"].mac_busy_fraction, 0.01, 0.02)


@pytest.mark.validation
def test_a_decode_step_uses_a_thousandth_of_the_array(ran: Ran) -> None:
    """R11's arithmetic: 3.12 GMAC in 115 ms of 20 TMAC/s is 0.136 %."""
    use = _chat(ran("single_3b")).phases["decode"].mac_utilization
    _near("R11 mac_utilization", use, 3.12e9 / (0.115 * 20e12), 0.06)


# --- one machine, and books that balance


def _machine(name: str) -> dict[str, object]:
    """The machine of a scenario, without who goes first on its channel and what cools it."""
    machine = dataclasses.asdict(load_scenario(SCENARIOS / f"{name}.yaml").machine)
    del machine["dram"]["arbitration"], machine["dram"]["order"], machine["cooling"]
    return machine


@pytest.mark.parametrize("name", SHIPPED)
def test_all_rows_use_one_machine(name: str) -> None:
    assert _machine(name) == _machine("single_3b")


@pytest.mark.parametrize("name", [n for n in SHIPPED if n != "dual_replica_priority"])
def test_only_one_row_changes_who_goes_first(name: str) -> None:
    dram = load_scenario(SCENARIOS / f"{name}.yaml").machine.dram
    assert (dram.arbitration, dram.order or ()) == ("proportional", ())


def _ps(ms: float) -> int:
    return round(ms * 1e9)


def _explained(result: Result) -> Iterator[tuple[str, float | None, Mapping[str, float]]]:
    """(what, its mean in ms, its causes) of tokens after the first, first tokens, frames, and ends of pipelines."""
    for name, c in result.chats.items():
        yield f"{name}: each token", c.tpot_mean_ms, c.breakdown_ms
        yield f"{name}: first token", c.ttft_mean_ms, c.ttft_breakdown_ms
    for name, s in result.streams.items():
        if isinstance(s, FrameStats):
            yield name, s.latency_mean_ms, s.breakdown_ms
        elif isinstance(s, PipelineStats):
            yield from ((f"{name} to {stage}", e.mean_ms, e.breakdown_ms) for stage, e in s.ends.items())


@pytest.mark.parametrize("name", SHIPPED)
def test_the_causes_of_every_stream_sum_to_its_latency(ran: Ran, name: str) -> None:
    """To the picosecond, and no time is without a cause."""
    for label, mean, causes in _explained(ran(name)):
        assert mean is not None, label
        assert _ps(mean) == sum(_ps(ms) for ms in causes.values()), label
        assert causes["other"] == 0, label


@pytest.mark.validation
def test_from_the_wake_word_to_the_first_sound_is_less_than_a_second(ran: Ran) -> None:
    """R18 and R24: every run of the loop, with a camera's preview and a listening microphone beside it."""
    loop = ran("multimodal_loop").streams["loop"]
    assert isinstance(loop, PipelineStats)
    loop.assert_slo(speak_p99="1 s", speak_late=0, dropped=0)
    assert loop.runs >= 10


@pytest.mark.parametrize("name", SHIPPED)
def test_the_bytes_of_all_masters_sum_to_the_channels(ran: Ran, name: str) -> None:
    """Finished work by kind and what was under way at the end: nothing more, nothing less."""
    result = ran(name)
    dram = result.to_dict()["dram"]
    finished = sum(
        n for m in dram["by_master"].values() for k, n in m.items() if k.endswith(("_read_bytes", "_write_bytes"))
    )
    unfinished = [m["unfinished_bytes"] for m in dram["by_master"].values()]
    assert finished == dram["read_bytes"] + dram["write_bytes"]
    assert min(unfinished) >= 0
    assert finished + sum(unfinished) == sum(result.dram.channel_bytes.values())


ENDED_BY_TIME = [
    *(n for n in SHIPPED if n.startswith("thermal_")),
    "hetero",
    "hetero_one_core",
    "multimodal_loop",
    "dual_replica_priority",
]


@pytest.mark.parametrize("name", [n for n in SHIPPED if n not in ENDED_BY_TIME])
def test_a_run_that_ends_by_itself_leaves_nothing_under_way(ran: Ran, name: str) -> None:
    masters = ran(name).to_dict()["dram"]["by_master"]
    assert {m: table["unfinished_bytes"] for m, table in masters.items()} == dict.fromkeys(masters, 0)


def test_the_core_moves_exactly_what_the_trace_asks(ran: Ran) -> None:
    """Single 3B: two requests, each one prefill chunk and 31 decode steps at 32 to 62 cache entries."""
    trace = bpusim.load_trace(SCENARIOS.parent / "traces" / "qwen2.5-3b-int4.trace")
    alice = load_scenario(SCENARIOS / "single_3b.yaml").streams["alice"]
    assert isinstance(alice, ChatSpec)
    steps = [trace.bind("prefill", kv=0, tokens=alice.prompt)]
    steps += [trace.bind("decode", kv=alice.prompt + n) for n in range(alice.output - 1)]
    asked = int(alice.requests) * sum(sum(step.traffic().values()) for step in steps)
    assert ran("single_3b").dram.channel_bytes["bpu0"] == asked


@pytest.mark.parametrize("name", ["single_3b", "single_1_5b", "int8_3b"])
def test_one_core_alone_sees_no_contention(ran: Ran, name: str) -> None:
    assert _chat(ran(name)).breakdown_ms["contention"] == 0


def test_replicas_that_start_together_are_served_alike(ran: Ran) -> None:
    result = ran("dual_replica")
    assert _chat(result, "alice").breakdown_ms == _chat(result, "bob").breakdown_ms


def test_priority_leaves_core_0_as_fast_as_alone(ran: Ran) -> None:
    """R09's "single stream unchanged", which fair sharing cannot give."""
    _near("R09 core 0 against alone, ms", _tpot(ran("dual_replica_priority")), _tpot(ran("single_1_5b")), 0.01)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenario_fits_in_memory(ran: Ran, name: str) -> None:
    """R20, R02: 5.5 GB usable."""
    assert 0 < ran(name).resident_bytes <= ran(name).usable_bytes == 5_500_000_000


def test_every_shipped_scenario_says_for_itself_what_it_shows() -> None:
    """Not what its parent shows."""
    said = [load_scenario(SCENARIOS / f"{name}.yaml").about for name in SHIPPED]
    assert all(said)
    assert len(set(said)) == len(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_scenario_warns_of_idle_cores_at_most(ran: Ran, name: str) -> None:
    assert {w.code for w in ran(name).warnings} <= {"idle-core"}
