"""What a run says, worked out from round numbers."""

from __future__ import annotations

import pytest

from bpusim.metrics import (
    ChatRecord,
    ChatStats,
    CoreCounters,
    CoreStats,
    DramStats,
    FrameRecord,
    FrameStats,
    Ledger,
    PhaseStats,
    RequestRow,
    Result,
    RunWarning,
    Samples,
    rate_per_s,
)

MS, S = 10**9, 10**12


def ledger(**causes: int) -> Ledger:
    out = Ledger()
    for cause, duration in causes.items():
        out.add(cause, duration)
    return out


def samples(*durations: int) -> Samples:
    out = Samples()
    for duration in durations:
        out.append(duration)
    return out


def chat_record() -> ChatRecord:
    """Two requests: first tokens after 100 and 300 ms, then gaps of 10, 20 and 60 ms."""
    rows = [
        RequestRow("chat", 0, 8, 3, 0, 100 * MS, 130 * MS),
        RequestRow("chat", 1, 8, 2, 200 * MS, 500 * MS, 560 * MS),
    ]
    return ChatRecord(
        rows=rows,
        requests=2,
        tokens=5,
        ttfts=samples(*(row.ttft for row in rows)),
        gaps=samples(10 * MS, 20 * MS, 60 * MS),
        decode=ledger(dram=60 * MS, host=30 * MS),
        first=ledger(compute=400 * MS),
    )


def chat_stats(elapsed: int = S) -> ChatStats:
    return ChatStats.of(chat_record(), elapsed, {})


# Rates


def test_a_rate_is_a_count_over_seconds() -> None:
    assert rate_per_s(30, 2 * S) == 15.0


def test_a_rate_over_no_time_is_zero() -> None:
    assert rate_per_s(30, 0) == 0.0


def test_time_to_first_token_begins_with_the_request() -> None:
    assert RequestRow("a", 0, 8, 3, 40, 100, 130).ttft == 60


# Chat


def test_mean_time_to_first_token_is_over_requests() -> None:
    assert chat_stats().ttft_mean_ms == 200.0


def test_the_99th_percentile_of_two_first_tokens_is_near_the_longer() -> None:
    assert chat_stats().ttft_p99_ms == pytest.approx(100 + 0.99 * 200)


def test_mean_time_per_output_token_is_over_later_tokens() -> None:
    assert chat_stats().tpot_mean_ms == 30.0


def test_decode_rate_is_one_over_mean_time_per_output_token() -> None:
    assert chat_stats().decode_tokens_per_s == pytest.approx(1000 / 30)


def test_token_rate_counts_all_tokens_over_wall_time() -> None:
    assert chat_stats(2 * S).tokens_per_s == 2.5


def test_inter_token_latency_is_each_gap() -> None:
    assert chat_stats().itl_p50_ms == 20.0
    assert chat_stats().itl_p99_ms == pytest.approx(20 + 0.98 * 40)  # rank 0.99 x 2 = 1.98, between 20 and 60


def test_the_breakdown_sums_to_the_mean() -> None:
    stats = chat_stats()
    assert {c: v for c, v in stats.breakdown_ms.items() if v} == {"dram": 20.0, "host": 10.0}
    assert {c: v for c, v in stats.ttft_breakdown_ms.items() if v} == {"compute": 200.0}


def test_a_stream_without_tokens_has_no_means() -> None:
    stats = ChatStats.of(ChatRecord(), S, {})
    assert (stats.ttft_mean_ms, stats.ttft_p99_ms, stats.tpot_mean_ms, stats.itl_p50_ms) == (None, None, None, None)
    assert (stats.decode_tokens_per_s, stats.tokens_per_s) == (0.0, 0.0)


def test_a_stream_of_single_tokens_has_no_time_per_output_token() -> None:
    record = ChatRecord(first=ledger(host=5 * MS), ttfts=samples(5 * MS), tokens=1)
    stats = ChatStats.of(record, S, {})
    assert (stats.ttft_mean_ms, stats.tpot_mean_ms) == (5.0, None)


# Frames


def test_frames_count_latency_and_rate_of_those_that_came_through() -> None:
    record = FrameRecord(
        captured=10, dropped=6, latencies=samples(20 * MS, 30 * MS, 70 * MS), ledger=ledger(camera=120 * MS)
    )
    stats = FrameStats.of(record, S // 2)
    assert (stats.captured, stats.frames, stats.dropped) == (10, 3, 6)
    assert (stats.latency_mean_ms, stats.latency_p50_ms, stats.fps) == (40.0, 30.0, 6.0)
    assert stats.breakdown_ms["camera"] == 40.0


def test_a_camera_without_frames_has_no_latency() -> None:
    stats = FrameStats.of(FrameRecord(captured=1), S)
    assert (stats.latency_mean_ms, stats.latency_p50_ms, stats.latency_p99_ms, stats.fps) == (None, None, None, 0.0)


# Cores


def test_a_phase_has_three_fractions_of_its_wall_time() -> None:
    # In 2 s of a peak of 1000 MACs/s: the array works for 1 s, on 800 MACs, 500 of them useful.
    counters = CoreCounters(calls=3, mac_busy=S, macs=500, issued=800)
    assert PhaseStats.of(counters, 2 * S, 1000) == PhaseStats(2.0, 0.5, 0.4, 0.25)


def test_a_phase_of_no_time_has_no_fractions() -> None:
    assert PhaseStats.of(CoreCounters(), 0, 1000) == PhaseStats(0.0, 0.0, 0.0, 0.0)


def test_a_core_has_four_fractions() -> None:
    counters = CoreCounters(calls=3, occupied=S, mac_busy=S // 2, macs=100, issued=300)
    stats = CoreStats.of(
        counters, occupied=3 * S // 2, elapsed=2 * S, peak_macs_per_s=1000, load_log=["x"], waits={"host": S}
    )
    assert stats == CoreStats(3, 0.75, 0.25, 0.15, 0.05, ["x"], {"host": 0.5})


# DRAM


def dram() -> DramStats:
    moved = {"cpu": {("io", False): 100}, "bpu0": {("weights", False): 600, ("kv", False): 50, ("kv", True): 30}}
    return DramStats("P", "flow", 2000, moved, {"bpu0": 900, "cpu": 100}, S)


def test_dram_totals_are_by_way() -> None:
    assert (dram().total(write=False), dram().total(write=True)) == (750, 30)


def test_dram_rate_counts_all_bytes_the_channel_gave() -> None:
    out = dram().to_dict()
    assert (out["achieved_bytes_per_s"], out["peak_fraction"]) == (1000.0, 0.5)


def test_bytes_of_a_master_sum_to_what_the_channel_gave_it() -> None:
    masters = dram().to_dict()["by_master"]
    assert masters["bpu0"] == {
        "kv_read_bytes": 50,
        "kv_write_bytes": 30,
        "weights_read_bytes": 600,
        "unfinished_bytes": 900 - 680,
    }
    assert {name: sum(table.values()) for name, table in masters.items()} == {"bpu0": 900, "cpu": 100}


# A whole run


def result() -> Result:
    frames = FrameStats.of(FrameRecord(), S)
    return Result(
        "s",
        2 * S,
        10,
        1,
        {"a": chat_stats(), "b": chat_stats(), "cam": frames},
        {},
        dram(),
        5,
        9,
        [RunWarning("w", "t")],
        [],
    )


def test_the_total_decode_rate_sums_over_chat_streams() -> None:
    assert result().decode_tokens_per_s == pytest.approx(2 * 1000 / 30)


def test_the_total_token_rate_is_all_tokens_over_wall_time() -> None:
    assert result().tokens_per_s == 10 / 2


def test_the_summary_has_units_in_its_keys() -> None:
    out = result().to_dict()
    assert out["schema"] == "bpusim-summary/1"
    assert out["simulated_s"] == 2.0
    assert out["memory"] == {"resident_bytes": 5, "usable_bytes": 9}
    assert out["warnings"] == [{"code": "w", "text": "t"}]
    assert list(out["streams"]) == ["a", "b", "cam"]
    assert out["streams"]["a"]["tpot_mean_ms"] == 30.0


def test_every_field_of_a_stream_is_in_the_summary() -> None:
    out = result().to_dict()["streams"]
    cold = {"cold_mean_ms", "cold_breakdown_ms"}  # with their number, from the field ``cold``
    assert set(out["a"]) == {"kind", *ChatStats.__slots__, *cold}
    assert set(out["cam"]) == {"kind", *FrameStats.__slots__, *cold}
