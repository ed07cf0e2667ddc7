"""The flow model's table: its closed forms by hand, what it refuses, and that it still is what the bank model says.

The made-up channel below has a clock of 1 ns and lines of 64 B, one in 8 clocks at best: a peak of 8 B/ns. A refresh
closes it for 100 of 1000 clocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.dram import FlowTable, calibrate, flow_table, table
from bpusim.dram.bank.model import Master
from bpusim.dram.table import _between, digest, table_path
from bpusim.dram.timing import Channel, channel, timing_names
from bpusim.errors import HardwareError, Place

NS = 1000
GB = 10**9

SMALL = FlowTable(
    name="smallx32",
    mapping="co",
    clock=NS,
    line=64,
    channels=1,
    peak=8 * GB,
    capacity_bytes=1 << 30,
    queue=32,
    latency=((1.0, 16.0), (40.0, 70.0)),  # 2 clocks more for each line more
    beside=((0.0, 0.5), (0.0, 40.0)),
    light=55.5,
    blocked=100.0,
    interval=1000.0,
    busy=8.0,
    streams=(1.0, 3.0),
    writes=(0.0, 0.5, 1.0),
    efficiency=((0.9, 0.7, 0.8), (0.8, 0.6, 0.6)),
    posted=((0.0, 0.5), (0.9, 0.45)),
    errors={},
)
PAIR = replace(SMALL, channels=2, peak=16 * GB)


# A reader alone


def test_a_refresh_that_fits_into_the_gap_costs_little() -> None:
    # 1 line in 168 + 40 clocks, and then 200 of them idle: 100^2 / 400 = 25 of 1000 are lost.
    assert SMALL.alone(64, 168 * NS) == pytest.approx(64 / 208 * 0.975 * GB)


def test_a_refresh_longer_than_the_gap_costs_all_but_half_of_it() -> None:
    # 1 line in 24 + 40 clocks, 56 of them idle: 100 - 28 = 72 of 1000 are lost.
    assert SMALL.alone(64, 24 * NS) == pytest.approx(0.928 * GB)


def test_both_forms_meet_where_the_gap_is_a_refresh() -> None:
    # 68 + 40 - 8 = 100 clocks: 100^2 / 200 = 100 - 100 / 2.
    at, before, after = (SMALL.alone(64, 68 * NS + d) for d in (0, -1, 1))
    assert at == pytest.approx(64 / 108 * 0.95 * GB)
    assert before > at > after
    assert before - after < 1e-4 * at


def test_a_reader_that_fills_the_channel_loses_the_whole_refresh() -> None:
    # 16 lines in flight would come every 80 / 16 = 5 clocks, but the channel gives one in 8.
    assert SMALL.alone(16 * 64, 10 * NS) == pytest.approx(8 * 0.9 * GB)


def test_a_port_wider_than_the_channel_changes_nothing() -> None:
    assert SMALL.alone(16 * 64, 10 * NS, 16e9) == SMALL.alone(16 * 64, 10 * NS)


def test_a_narrow_port_with_a_window_to_spare_hides_the_refresh() -> None:
    # A line in 20 clocks needs 80 / 20 = 4 in flight; the other 12 are 240 clocks ahead, more than a refresh.
    assert SMALL.alone(16 * 64, 10 * NS, 3.2e9) == 3.2e9


def test_a_narrow_port_with_little_to_spare_catches_up_as_far_as_that_goes() -> None:
    # 6 lines: 50 + 50 clocks, so 5 in flight keep the port busy and 1 is spare, 20 clocks: 80 of 1000 are lost.
    assert SMALL.alone(6 * 64, 50 * NS, 3.2e9) == pytest.approx(3.2e9 * 0.92)


def test_a_port_almost_as_fast_as_the_channel_has_no_time_to_catch_up() -> None:
    # The channel moves 8 GB/s for 900 of 1000 clocks, whatever a port of 7.9 GB/s has to spare.
    assert SMALL.alone(64 * 64, 10 * NS, 7.9e9) == pytest.approx(8 * 0.9 * GB)
    assert SMALL.alone(64 * 64, 10 * NS, 7.1e9) == 7.1e9


def test_less_than_a_line_in_flight_is_a_line() -> None:
    assert SMALL.alone(7, 24 * NS) == SMALL.alone(64, 24 * NS)


def test_a_part_of_a_line_more_counts() -> None:
    # 1.5 lines, 41 + 23 clocks: 64 - 12 = 52 idle, so 100 - 26 = 74 are lost.
    assert SMALL.alone(96, 23 * NS) == pytest.approx(1.5 * 0.926 * GB)


# Beside others


def test_what_others_take_lengthens_the_latency() -> None:
    # Half the peak: 40 clocks more. 48 + 40 + 40 = 128, 120 of them idle: 100^2 / 240 are lost.
    expected = 0.5 * (1 - 1 / 24) * GB
    assert SMALL.alone(64, 48 * NS, others=(4e9, 1e6)) == pytest.approx(expected)


def test_half_as_much_of_others_is_between() -> None:
    # A quarter of the peak: 20 clocks more, made up for by a path of 20 less.
    assert SMALL.alone(64, 68 * NS, others=(2e9, 1e6)) == pytest.approx(0.5 * (1 - 1 / 24) * GB)


def test_more_of_others_than_was_measured_is_the_most_that_was() -> None:
    assert SMALL.alone(64, 48 * NS, others=(7e9, 1e6)) == SMALL.alone(64, 48 * NS, others=(4e9, 1e6))


def test_no_more_can_be_ahead_than_others_have_in_flight() -> None:
    # 3 lines of 8 clocks instead of 40: a path of 16 more comes to the same.
    assert SMALL.alone(64, 64 * NS, others=(4e9, 192)) == pytest.approx(0.5 * (1 - 1 / 24) * GB)


def test_others_that_take_nothing_do_not_count() -> None:
    assert SMALL.alone(64, 24 * NS, others=(0.0, 1e6)) == SMALL.alone(64, 24 * NS)


# Two channels


def test_two_channels_have_half_the_lines_in_flight_each() -> None:
    assert PAIR.alone(2 * 64, 24 * NS) == pytest.approx(2 * SMALL.alone(64, 24 * NS))
    assert PAIR.idle_latency(12 * 64) == SMALL.idle_latency(6 * 64)


def test_a_port_into_two_channels_is_shared_by_them() -> None:
    # As for one: 6 lines at each, 3.2 B/ns through each.
    assert PAIR.alone(12 * 64, 50 * NS, 6.4e9) == pytest.approx(2 * 3.2e9 * 0.92)


def test_two_channels_hold_twice_as_much() -> None:
    assert (SMALL.burst_bytes, PAIR.burst_bytes) == (32 * 64, 2 * 32 * 64)


# Latency


@pytest.mark.parametrize(("lines", "clocks"), [(1, 40), (6, 50), (16, 70), (100, 70)])
def test_idle_latency_goes_by_lines_in_flight(lines: int, clocks: int) -> None:
    assert SMALL.idle_latency(lines * 64) == clocks * NS


def test_light_latency_is_in_picoseconds() -> None:
    assert SMALL.light_latency == 55_500


# Capacity


@pytest.mark.parametrize(
    ("streams", "written", "part", "fraction"),
    [
        (1, 0.0, 1.0, 0.9),
        (3, 1.0, 1.0, 0.6),
        (2, 0.0, 1.0, 0.85),  # between 1 and 3 streams
        (1, 0.25, 1.0, 0.8),  # between 0.9 and 0.7
        (2, 0.75, 1.0, 0.675),  # between 0.75 and 0.6
        (9, 0.5, 1.0, 0.6),  # as 3
        (1, 0.5, 0.0, 0.9),  # never mixed
        (3, 0.5, 0.5, 0.7),  # half of 0.8 and half of 0.6
    ],
)
def test_capacity_is_read_between_the_cells(streams: int, written: float, part: float, fraction: float) -> None:
    assert SMALL.capacity(streams, written, part) == pytest.approx(fraction * 8 * GB)


def test_writes_of_open_loop_masters_cost_the_channel() -> None:
    # A quarter of the peak: half of the way from 0.9 to 0.45, so 3/4 of what it was.
    assert SMALL.capacity(1, posted=2 * GB) == pytest.approx(0.9 * 0.75 * 8 * GB)


@pytest.mark.parametrize(
    ("x", "y"), [(-1.0, 10.0), (1.0, 10.0), (1.5, 15.0), (2.0, 20.0), (3.0, 40.0), (4.0, 60.0), (99.0, 60.0)]
)
def test_between_points_is_linear_and_constant_beyond(x: float, y: float) -> None:
    assert _between((1.0, 2.0, 4.0), (10.0, 20.0, 60.0), x) == y


# For any reader

READERS = {
    "window": st.integers(64, 1 << 20),
    "path": st.integers(0, 1_000_000),  # the form of a short gap holds for paths shorter than two refresh intervals
    "limit": st.floats(1e6, 1e12),
    "taken": st.floats(0, 2e11),
    "ahead": st.floats(0, 1e6),
}
TABLES = [SMALL, PAIR, *(flow_table(f"{stem}x64") for stem in timing_names())]


@pytest.mark.parametrize("t", TABLES, ids=lambda t: f"{t.name}*{t.channels}")
@given(**READERS)
def test_nobody_reads_more_than_there_is_and_others_never_help(
    t: FlowTable, window: int, path: int, limit: float, taken: float, ahead: float
) -> None:
    alone = t.alone(window, path, limit)
    assert 0 < alone <= min(limit, t.peak)
    assert alone <= max(window, t.line * t.channels) * 1e12 / (path + min(t.latency[1]) * t.clock) * (1 + 1e-9)
    assert t.alone(window, path, limit, (taken, ahead)) <= alone * (1 + 1e-9)
    assert t.alone(window, path + 10_000, limit) <= alone * (1 + 1e-9)
    assert t.alone(window, path, limit * 1.01) >= alone * (1 - 1e-9)


# What there is


DATA: dict[str, Any] = {
    "clock_ps": 625, "width": 16, "burst": 8, "line": 32, "capacity": 1 << 30, "queue": 32, "interval": 6246,
    "streams": [1, 2], "writes": [0.0, 1.0],
    "mappings": {
        name: {
            "latency": {"1": 40.0, "8": 48.0}, "beside": {"0.0": 0.0, "0.5": 30.0}, "light": 90.0, "busy": busy,
            "blocked": 500.0, "efficiency": [[0.9, 0.8], [0.7, 0.6]], "posted": {"0.0": 0.9},
            "errors": {"streams": [0.5, 1.5]},
        }
        for name, busy in (("first", 8.0), ("second", 9.0))
    },
}  # fmt: skip


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of tables in place of the shipped one."""
    table._read.cache_clear()
    monkeypatch.setattr(table, "_FOLDER", tmp_path)
    yield tmp_path
    table._read.cache_clear()


def refusal(name: str, *args: Any, **keys: Any) -> str:
    with pytest.raises(HardwareError) as caught:
        flow_table(name, *args, **keys)
    return str(caught.value)


def test_a_table_is_scaled_to_the_width_of_its_channel() -> None:
    # Four devices of 16 bits: lines of 128 B, one in 8 x 625 ps; two such channels.
    found = flow_table("LPDDR4X-3200x64", 2, data=DATA)
    assert (found.line, found.channels, found.peak, found.capacity_bytes) == (128, 2, 51_200_000_000, 8 << 30)
    assert (found.latency, found.beside) == (((1.0, 8.0), (40.0, 48.0)), ((0.0, 0.5), (0.0, 30.0)))
    assert found.errors == {"streams": (0.5, 1.5)}


def test_the_first_mapping_is_the_channels_own() -> None:
    assert [flow_table("LPDDR4X-3200x64", 1, m, data=DATA).busy for m in (None, "first", "second")] == [8.0, 8.0, 9.0]


def test_an_unknown_mapping_lists_those_it_has() -> None:
    assert refusal("LPDDR4X-3200x64", 1, "third", data=DATA) == (
        "error: the flow model has no table of LPDDR4X-3200 with the address mapping 'third'; "
        "known: first, second; or run it with engine.dram: bank"
    )


def test_an_unknown_channel_suggests_the_nearest() -> None:
    message = refusal("LPDDR4X-3201x64", place=Place("a.yaml", 3, 7))
    assert message == "a.yaml:3:7: error: unknown DRAM channel 'LPDDR4X-3201x64'; did you mean 'LPDDR4X-3200'?"


@pytest.mark.parametrize("name", ["LPDDR4X-3200", "LPDDR4X-3200x", "LPDDR4X-3200x064", "LPDDR4X-3200x-64"])
def test_a_channel_without_its_width_is_told_how_to_write_it(name: str) -> None:
    message = refusal(name)
    assert message.startswith(f"error: unknown DRAM channel '{name}'; write it with its width in bits, such as ")
    assert message.endswith("such as LPDDR4X-3200x64")


@pytest.mark.parametrize("width", [8, 24, 48])
def test_a_width_that_no_devices_make_up_is_refused(width: int) -> None:
    assert refusal(f"LPDDR4X-3200x{width}", data=DATA) == (
        f"error: 'LPDDR4X-3200x{width}': its devices are 16 bit wide; "
        "write x16 times a power of two, such as LPDDR4X-3200x64"
    )


def test_a_missing_table_says_how_to_make_it(tables: Path) -> None:
    message = "error: no table of LPDDR4X-3200 for the flow model; run: bpusim dram calibrate LPDDR4X-3200"
    assert refusal("LPDDR4X-3200x64") == message


def test_a_table_of_other_timing_data_is_refused(tables: Path) -> None:
    table_path("LPDDR4X-3200").write_text(json.dumps({**DATA, "timing": "0123456789abcdef"}))
    assert refusal("LPDDR4X-3200x64") == (
        "error: the flow model's table of LPDDR4X-3200 was made from other timing data; "
        "run: bpusim dram calibrate LPDDR4X-3200"
    )


def test_a_table_of_the_present_timing_data_is_read(tables: Path) -> None:
    calibrate.write_table("LPDDR4X-3200", {**DATA, "timing": digest("LPDDR4X-3200")})
    assert flow_table("LPDDR4X-3200x64") == flow_table("LPDDR4X-3200x64", data=DATA)


# The shipped tables


@pytest.mark.parametrize("stem", timing_names())
def test_every_timing_set_has_a_table_made_from_it(stem: str) -> None:
    data = json.loads(table_path(stem).read_text(encoding="utf-8"))
    assert data["timing"] == digest(stem)
    assert next(iter(data["mappings"])) == channel(f"{stem}x64").timing.mapping


def test_no_table_is_of_a_timing_set_that_is_gone() -> None:
    assert sorted(p.stem for p in table_path("any").parent.glob("*.json")) == list(timing_names())


@pytest.mark.parametrize("stem", timing_names())
def test_a_table_and_its_timing_set_agree_on_the_channel(stem: str) -> None:
    found, ch = flow_table(f"{stem}x64"), channel(f"{stem}x64")
    assert (found.line, found.peak, found.capacity_bytes) == (ch.line, ch.peak, ch.capacity)
    assert (found.clock, found.interval) == (ch.timing.clock, ch.timing.timing.REFI)


def devices_of_one(stem: str) -> Channel:
    """The channel that tables are measured on: one device wide."""
    return channel(f"{stem}x{channel(f'{stem}x64').timing.device.width}")


def streams_of_a_cell(streams: int, written: int) -> list[Master]:
    """The traffic of a cell of ``efficiency``, as ``calibrate._grid`` makes it."""
    return [Master(count=calibrate._LINES // streams, write=written, seed=7 + k) for k in range(streams)]


@pytest.mark.validation
@pytest.mark.parametrize("stem", timing_names())
def test_the_bank_model_still_says_what_the_table_says(stem: str) -> None:
    ch = devices_of_one(stem)
    found = flow_table(ch.name)
    busy, refreshed = (
        (r := calibrate._run(ch, [Master(count=96_000, out=256)], None, c).masters[0]).last / r.served
        for c in (replace(calibrate._FIRST_COME, refresh="off"), calibrate._FIRST_COME)
    )
    assert busy == pytest.approx(found.busy, rel=0.005)
    assert found.interval * (1 - busy / refreshed) == pytest.approx(found.blocked, rel=0.005)
    for streams, written in ((1, 0), (2, 25)):
        cell = found.efficiency[found.streams.index(streams)][found.writes.index(written / 100)]
        measured = calibrate._efficiency(ch, None, streams_of_a_cell(streams, written))
        assert measured == pytest.approx(cell, rel=0.005)
