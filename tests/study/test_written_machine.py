"""The machine file that a calibration writes, and the rows that ship."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from toy_boards import START, Fitted

from bpusim.cli.calibrate import compile_wish
from bpusim.study.calibration import Noise, calibrate, read_measurements
from bpusim.study.calibration.writing import Command, machine_text


def test_the_written_machine_gives_what_was_fitted(
    fitted: Fitted, tmp_path: Path, traces: Path, truth: list[tuple[float, float]]
) -> None:
    done = fitted("cores.layer_sync", "cores.clock", overrides=START)
    out = tmp_path / "mine.yaml"
    command = Command(tmp_path / "rows.csv", "bpu80", START)
    text = machine_text(done, command, out, "9.9")
    assert text == machine_text(done, command, out, "9.9")
    assert (
        "# Fitted by bpusim 9.9: bpusim calibrate rows.csv --machine bpu80 --fit cores.layer_sync,cores.clock --set"
        in text
    )
    assert done.measurements.digest in text
    assert "fitted; 95 %: " in text
    out.write_text(text)
    again = calibrate(read_measurements(tmp_path / "rows.csv"), str(out), [], compile_wish, traces=traces)
    assert again.machine.name == "mine"
    assert [r.fitted for r in again.rows] == [r.fitted for r in done.rows]
    assert [r.fitted.decode_tps for r in again.rows] == pytest.approx([t for _, t in truth], rel=5e-3)


def test_the_written_command_gives_the_file_again(tmp_path: Path) -> None:
    """With all that changes the result, and paths from the folder of the file."""
    out = tmp_path / "out" / "mine.yaml"
    command = Command(
        tmp_path / "data" / "my rows.csv",
        f"{tmp_path}/base.yml",
        ("machine.cores.count=1",),
        "B 1",
        Noise(0.05, 0.2),
        True,
    )
    assert command.words(["cores.clock"], out) == [
        "bpusim", "calibrate", "../data/my rows.csv", "--machine", "../base.yml", "--board", "B 1",
        "--fit", "cores.clock", "--set", "machine.cores.count=1",
        "--decode-noise", "0.05", "--ttft-noise", "0.2", "--keep-outliers", "-o", "mine.yaml",
    ]  # fmt: skip
    assert "--decode-noise" not in Command(tmp_path / "a.csv", "bpu80").words(["cores.clock"], out)


def test_rows_of_the_shipped_file_are_those_of_their_sources() -> None:
    path = Path(__file__).parents[2] / "studies" / "measured" / "boards_calibration.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 21
    with path.with_name("boards_held_back.csv").open(newline="") as file:
        rows += list(csv.DictReader(file))
    assert len({r["row_id"] for r in rows}) == 26
    assert all(r["source_repo"] and r["source_path"] for r in rows)
