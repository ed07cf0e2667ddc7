"""Timing sets: the spacings derived from them, their channels, their sources, and files that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpusim.dram import timing as module
from bpusim.dram.timing import channel, timing_names
from bpusim.errors import HardwareError, Place

LPDDR4 = channel("LPDDR4-4266x32")


# Spacings of LPDDR4-4266x32, as the three reference simulators derived them (facts/dram.md).


def test_read_to_write() -> None:
    # RL 36 + tDQSCK 4 + BL 8 + turnaround 2 - WL 18
    assert LPDDR4.timing.read_to_write == 36 + 4 + 8 + 2 - 18 == 32


def test_write_to_read() -> None:
    # WL 18 + tDQSS 1 + BL 8 + tWTR 22
    assert LPDDR4.timing.write_to_read(True) == 18 + 1 + 8 + 22 == 49


def test_write_to_read_does_not_tell_groups_apart_where_there_are_none() -> None:
    assert LPDDR4.timing.write_to_read(False) == LPDDR4.timing.write_to_read(True)


def test_write_to_read_is_longer_within_a_bank_group() -> None:
    # DDR4-3200: WL 16 + BL 4 + tWTR_S 4, tWTR_L 12
    ddr4 = channel("DDR4-3200x64").timing
    assert (ddr4.write_to_read(False), ddr4.write_to_read(True)) == (16 + 4 + 4, 16 + 4 + 12)


def test_read_to_precharge() -> None:
    # tRTP 17 and the read's second half
    assert LPDDR4.timing.read_to_precharge == 17 + 2 == 19


def test_write_to_precharge() -> None:
    # WL 18 + tDQSS 1 + BL 8 + tWR 39 + the write's second half
    assert LPDDR4.timing.write_to_precharge == 18 + 1 + 8 + 39 + 2 == 68


def test_what_follows_a_command_of_another_length() -> None:
    # DRAMSys 5.1, CheckerLPDDR4.cpp: ACT to PREPB tRAS + 2 tCK; PREPB, PREAB, REFAB, REFPB to ACT 2 tCK less than tRP
    # and tRFC say, since an activate ends four clocks after it begins and the others two.
    t = LPDDR4.timing
    assert t.activate_to_precharge == 90 + 2
    assert [t.precharge_to_activate(all_banks) for all_banks in (False, True)] == [39 - 2, 45 - 2]
    assert [t.refresh_to_activate(all_banks) for all_banks in (False, True)] == [300 - 2, 599 - 2]


@pytest.mark.parametrize("name", timing_names())
def test_the_second_half_is_the_difference_of_the_lengths(name: str) -> None:
    # LPDDR4 counts from last clocks; the sources of the other sets count from first ones (lpddr5.py: "all measured from
    # ACT-1").
    t = channel(f"{name}x64").timing
    long_less_short = t.command.activate - t.command.precharge
    assert t.command.column - t.command.precharge == t.extra.half
    assert t.extra.half == (long_less_short if t.family.startswith("LPDDR4") else 0)


def test_read_data_is_complete() -> None:
    # RL 36 + tDQSCK 4 + BL 8 from the last of the command's four clocks
    assert LPDDR4.timing.read_done == 36 + 4 + 8 + 3 == 51


def test_rank_switch() -> None:
    # A burst of 8 clocks and tRTRS 1
    assert channel("LPDDR4X-4266x64").timing.rank_switch == 8 + 1


# Channels.


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("LPDDR4-4266x32", 17.058e9),  # 64 B in 8 clocks of 469 ps (facts/dram.md)
        ("LPDDR4X-3200x64", 25.6e9),  # 128 B in 8 clocks of 625 ps
        ("LPDDR5-6400x16", 12.8e9),  # 32 B in 2 clocks of 1.25 ns
        ("DDR4-3200x64", 25.6e9),  # 64 B in 4 clocks of 625 ps
    ],
)
def test_peak(name: str, peak: float) -> None:
    assert channel(name).peak == pytest.approx(peak, rel=1e-4)


@pytest.mark.parametrize("name", timing_names())
def test_peak_is_the_rate_on_the_label(name: str) -> None:
    # Transfers per second times the bytes that 64 pins carry; the clock of 4266 is rounded to a picosecond.
    assert channel(f"{name}x64").peak == pytest.approx(int(name.rpartition("-")[2]) * 1e6 * 8, rel=1e-3)


@pytest.mark.parametrize(("width", "line"), [(16, 32), (32, 64), (64, 128)])
def test_line_is_a_burst_over_all_pins(width: int, line: int) -> None:
    # BL16: sixteen transfers of width / 8 bytes.
    assert channel(f"LPDDR4-4266x{width}").line == line


def test_an_open_row_has_64_lines_whatever_the_width() -> None:
    # 2 KiB a device / (16 transfers of 2 B); 4 KiB over the reference machine's two.
    assert [channel(f"LPDDR4-4266x{w}").row_lines for w in (16, 32, 64)] == [64, 64, 64]


def test_the_reference_machine_is_two_dies_in_lockstep() -> None:
    assert LPDDR4.devices == 2


def test_the_reference_boards_channel_holds_8_gb() -> None:
    # Four x16 devices of two ranks of 8 banks of 65536 rows of 2 KiB.
    assert channel("LPDDR4X-3200x64").capacity == 4 * 2 * 8 * 65536 * 2048 == 8 << 30


def test_idle_latency() -> None:
    # tRCD 39 and read data after 51 clocks of 469 ps.
    assert LPDDR4.latency == (39 + 51) * 469


# Sources: rows of lpddr_timings.csv (unit tCK), copied. "-" is a figure that the row does not have.

COLUMNS = "BL RL WL DQSCK RCD RPpb RPab RAS RC RRD_S RRD_L FAW CCD_S CCD_L WTR_S WTR_L RTP WR REFI RFCab RFCpb RTRS"
ROWS = {
    # tukl-msd/DRAMSys 6b0146713a, configs/memspec/JEDEC_512Mbx16_LPDDR4-4266.json
    "LPDDR4-4266": "8 36 18 4 39 39 45 90 129 22 22 86 8 8 22 22 17 39 8341 599 300 1",
    "LPDDR4X-4266": "8 36 18 4 39 39 45 90 129 22 22 86 8 8 22 22 17 39 8341 599 300 1",
    # tukl-msd/DRAMSys 6b0146713a, configs/memspec/JEDEC_512Mbx16_LPDDR4-3200.json
    "LPDDR4X-3200": "8 28 14 3 29 29 34 68 97 16 16 64 8 8 16 16 12 29 6246 448 224 1",
    # CMU-SAFARI/ramulator2 c5b1c3a478, python/ramulator/dram/lpddr5.py, LPDDR5_8Gb_x16/LPDDR5_6400
    "LPDDR5-6400": "2 17 9 - 15 15 17 34 49 4 4 16 2 4 5 10 8 28 3125 168 96 2",
    # CMU-SAFARI/ramulator2 c5b1c3a478, python/ramulator/dram/ddr4.py, DDR4_8Gb_x8/DDR4_3200AA
    "DDR4-3200": "4 22 16 - 22 22 22 52 74 4 8 34 4 8 4 12 12 24 12480 576 - 2",
}
# tCK in ps, pins of a device, banks, bank groups, rows, bytes of a row per device.
DEVICES = {
    "LPDDR4-4266": (469, 16, 8, 1, 65536, 2048),
    "LPDDR4X-4266": (469, 16, 8, 1, 65536, 2048),
    "LPDDR4X-3200": (625, 16, 8, 1, 65536, 2048),
    "LPDDR5-6400": (1250, 16, 16, 4, 32768, 2048),
    "DDR4-3200": (625, 8, 16, 4, 65536, 1024),
}


def test_every_set_has_a_source_here() -> None:
    assert sorted(ROWS) == sorted(DEVICES) == list(timing_names())


@pytest.mark.parametrize("name", timing_names())
def test_timing_is_its_sources(name: str) -> None:
    have = channel(f"{name}x64").timing.timing
    cited = {k: int(v) for k, v in zip(COLUMNS.split(), ROWS[name].split(), strict=True) if v != "-"}
    assert {k: getattr(have, k) for k in cited} == cited


@pytest.mark.parametrize("name", timing_names())
def test_geometry_is_its_sources(name: str) -> None:
    s = channel(f"{name}x64").timing
    d = s.device
    assert (s.clock, d.width, d.banks, d.groups, d.rows, d.row) == DEVICES[name]


@pytest.mark.parametrize("name", timing_names())
def test_a_file_names_its_source(name: str) -> None:
    first = Path(module.__file__).with_name("timings").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    assert any(who in first for who in ("DRAMSys", "Ramulator", "LPDDR4X has LPDDR4's timing"))


@pytest.mark.parametrize("name", timing_names())
def test_the_file_is_named_after_its_family_and_rate(name: str) -> None:
    s = channel(f"{name}x64").timing
    assert name == f"{s.family}-{s.transfers // 10**6}"


@pytest.mark.parametrize("name", timing_names())
def test_a_sets_own_mapping_covers_its_channel(name: str) -> None:
    c = channel(f"{name}x64")
    assert c.line << sum(c.mapping().bits.values()) == c.capacity


# Names.


def test_an_unknown_family_names_the_nearest() -> None:
    with pytest.raises(HardwareError) as caught:
        channel("LPDDR4X-3300x64")
    assert str(caught.value) == "error: unknown DRAM channel 'LPDDR4X-3300x64'; did you mean 'LPDDR4X-3200'?"


def test_a_name_without_a_width_says_how_it_is_written() -> None:
    with pytest.raises(HardwareError) as caught:
        channel("LPDDR4X-3200")
    assert str(caught.value).startswith(
        "error: unknown DRAM channel 'LPDDR4X-3200'; write it with its width in bits, such as "
    )


def test_an_unknown_channel_is_reported_where_it_is_named() -> None:
    with pytest.raises(HardwareError) as caught:
        channel("nothing", Place("board.yaml", 3, 9))
    assert str(caught.value).startswith("board.yaml:3:9: error: unknown DRAM channel 'nothing'")


@pytest.mark.parametrize("width", [8, 24, 40, 48, 96])
def test_a_width_that_no_power_of_two_of_devices_makes(width: int) -> None:
    with pytest.raises(HardwareError) as caught:
        channel(f"LPDDR4X-3200x{width}")
    assert str(caught.value) == (
        f"error: 'LPDDR4X-3200x{width}': its devices are 16 bit wide; "
        "write x16 times a power of two, such as LPDDR4X-3200x64"
    )


@pytest.mark.parametrize("name", ["../timings/DDR4-3200x64", "x64", "", "DDR4-3200x0", "DDR4-3200x064", "DDR4-3200x-8"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(HardwareError, match="unknown DRAM channel"):
        channel(name)


# Files that are wrong.


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """LPDDR4-4266.yaml alone in a folder of its own, where a test may change it."""
    source = Path(module.__file__).with_name("timings") / "LPDDR4-4266.yaml"
    copy = tmp_path / source.name
    copy.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(module, "TIMINGS", tmp_path)
    monkeypatch.setattr("bpusim.dram.names.TIMINGS", tmp_path)
    return copy


def edit(file: Path, old: str, new: str) -> str:
    """Change the file; what reading it then says."""
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(HardwareError) as caught:
        channel("LPDDR4-4266x32")
    return str(caught.value)


def test_the_copy_is_read(changed: Path) -> None:
    changed.write_text(changed.read_text(encoding="utf-8").replace("RAS: 90", "RAS: 91"), encoding="utf-8")
    assert channel("LPDDR4-4266x32").timing.timing.RAS == 91


def test_a_misspelt_timing_is_an_error_at_its_place(changed: Path) -> None:
    # Both halves of it: the key nobody knows, and the one that is missing (REFI alone is "issue #62" of DRAMsim3).
    said = edit(changed, "REFI: 8341", "tREFI: 8341")
    line = next(n for n, text in enumerate(changed.read_text().splitlines(), 1) if "tREFI" in text)
    assert f"{changed}:{line}:" in said
    assert "timing.tREFI: Unexpected keyword argument" in said
    assert "timing.REFI: Field required" in said


@pytest.mark.parametrize("key", ["family", "clock", "device", "timing", "command", "extra", "mapping"])
def test_every_part_is_required(changed: Path, key: str) -> None:
    assert f"{key}: Field required" in edit(changed, f"\n{key}:", f"\nno_{key}:")


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("ranks: 1", "ranks: 0", "device.ranks"),
        ("RAS: 90", "RAS: -90", "timing.RAS"),
        ("RAS: 90", "RAS: 42 ns", "timing.RAS"),
        ("RAS: 90", "RAS: 90.5", "timing.RAS"),
        ("RAS: 90", "RAS: true", "timing.RAS"),
        ("REFI: 8341", "REFI: 0", "timing.REFI"),
        ("clock: 469 ps", "clock: 469", "clock"),
        ("row: 2 KiB", "row: 2048", "device.row"),
        ("activate: 4", "activate: 0", "command.activate"),
    ],
)
def test_a_value_that_is_no_such_quantity(changed: Path, old: str, new: str, where: str) -> None:
    assert where in edit(changed, old, new)


def test_all_problems_of_a_file_are_told_at_once(changed: Path) -> None:
    said = edit(changed, "RAS: 90, RC: 129", "RASS: 90, RCC: 129")
    assert said.count("error:") == 4
