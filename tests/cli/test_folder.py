"""The folder of a result: its files, replaced as a whole, nothing of others lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from desks import Desk

from bpusim.cli import main
from bpusim.errors import BpusimError

LEAST = ["manifest.json", "ops.csv", "requests.csv", "summary.json"]
BARE = ("--no-report", "--no-timeline")
WITH_HEAT = ("--set", "machine.cooling=passive_heatsink")


def files(desk: Desk) -> list[str]:
    return sorted(p.name for p in (desk.folder / "out").iterdir())


def test_a_folder_holds_a_report_and_what_it_is_made_from(desk: Desk) -> None:
    desk.run("-o", "out")
    assert files(desk) == sorted([*LEAST, "report.html", "series.json", "trace.json.gz"])


def test_without_a_report_there_is_no_series(desk: Desk) -> None:
    desk.run("-o", "out", *BARE)
    assert files(desk) == LEAST


def test_two_runs_are_never_mixed(desk: Desk) -> None:
    """The second has no heat, and no report: those of the first go."""
    desk.run("-o", "out", *WITH_HEAT)
    assert files(desk) == sorted([*LEAST, "report.html", "series.json", "thermal.csv", "trace.json.gz"])
    desk.run("-o", "out", *BARE)
    assert files(desk) == LEAST


def test_a_report_does_not_change_the_figures(desk: Desk) -> None:
    """What watches a run in detail leaves it as it is."""
    with_it = desk.run("-o", "out", "--format", "json").stdout
    assert desk.run("--format", "json").stdout == with_it


def test_a_plot_of_a_run_without_report_says_what_is_missing(desk: Desk) -> None:
    desk.run("-o", "out", "--no-report")
    done = desk.bpusim("plot", "out", "--kind", "latency", "-o", "x.svg")
    said = "error: this run kept no series; run it again without --no-report\n"
    assert (done.exit_code, done.stderr) == (2, said)
    assert desk.bpusim("plot", "out", "--kind", "breakdown", "-o", "x.svg").exit_code == 0


def test_no_report_without_a_folder_is_refused(desk: Desk) -> None:
    done = desk.bpusim("run", "s.yaml", "--no-report")
    assert done.exit_code == 2
    assert "--no-report is for the files of -o DIR: add it" in done.stderr


@pytest.mark.parametrize("form", ["table", "markdown", "json"])
def test_files_are_written_where_nobody_reads_what_is_printed(desk: Desk, form: str) -> None:
    """``bpusim run ... | head`` closes the pipe before all is printed."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        command = [sys.executable, "-m", "bpusim", "run", "s.yaml", "-o", "out", "--format", form, *BARE]
        done = subprocess.run(command, cwd=desk.folder, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writes)
    assert files(desk) == LEAST
    assert "Traceback" not in done.stderr


def test_the_folder_may_be_deep(desk: Desk) -> None:
    desk.run("-o", "a/b/out", "--no-report")
    assert (desk.folder / "a" / "b" / "out" / "summary.json").is_file()


def test_the_summary_in_the_folder_is_what_json_prints(desk: Desk) -> None:
    printed = desk.run("-o", "out", "--no-report", "--format", "json").stdout
    assert (desk.folder / "out" / "summary.json").read_text() == printed


def test_an_earlier_result_is_replaced(desk: Desk) -> None:
    desk.run("-o", "out", "--no-report")
    desk.run("-o", "out", "--no-report", "--set", "streams.alice.output=2")
    assert json.loads((desk.folder / "out" / "summary.json").read_text())["streams"]["alice"]["tokens"] == 2


def test_an_empty_folder_is_taken(desk: Desk) -> None:
    (desk.folder / "out").mkdir()
    desk.run("-o", "out", "--no-report")
    assert (desk.folder / "out" / "summary.json").is_file()


def test_a_folder_with_something_else_is_refused_and_kept(desk: Desk) -> None:
    (desk.folder / "mine").mkdir()
    precious = desk.write("mine/thesis.txt", "years of work")
    done = desk.bpusim("run", "s.yaml", "-o", "mine")
    assert (done.exit_code, done.stderr) == (
        2,
        "mine: error: the folder holds something other than a result: thesis.txt; name a new or empty folder\n",
    )
    assert precious.read_text() == "years of work"


def test_a_foreign_manifest_does_not_make_a_folder_ours(desk: Desk) -> None:
    """Web projects and extensions have a manifest.json too: such a folder must never be replaced."""
    (desk.folder / "mine").mkdir()
    desk.write("mine/manifest.json", '{"name": "my browser extension"}')
    precious = desk.write("mine/thesis.txt", "years of work")
    done = desk.bpusim("run", "s.yaml", "-o", "mine")
    assert precious.exists()
    assert done.exit_code == 2


def test_a_file_added_to_a_result_is_not_lost(desk: Desk) -> None:
    """Notes beside an earlier result are the user's."""
    desk.run("-o", "out", "--no-report")
    notes = desk.write("out/notes.txt", "what I saw")
    desk.bpusim("run", "s.yaml", "-o", "out", "--no-report")
    assert notes.exists()


def test_the_working_directory_as_folder_is_no_crash(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "here").mkdir()
    monkeypatch.chdir(desk.folder / "here")
    done = CliRunner().invoke(main, ["run", "../s.yaml", "-o", "."])
    assert not done.exception or isinstance(done.exception, SystemExit)


def test_a_file_in_place_of_the_folder_is_refused(desk: Desk) -> None:
    desk.write("taken", "")
    done = desk.bpusim("run", "s.yaml", "-o", "taken")
    assert (done.exit_code, done.stderr) == (
        2,
        "taken: error: this is a file, not a folder for results; name another folder\n",
    )


def test_a_refused_run_keeps_the_earlier_result(desk: Desk) -> None:
    desk.run("-o", "out", "--no-report")
    before = (desk.folder / "out" / "summary.json").read_bytes()
    desk.change("output: 4", "outptu: 4")
    assert desk.bpusim("run", "s.yaml", "-o", "out", "--no-report").exit_code == 2
    assert (desk.folder / "out" / "summary.json").read_bytes() == before


def test_what_came_out_is_printed_also_if_files_cannot_be_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise BpusimError("cannot write results: No space left on device")

    monkeypatch.setattr("bpusim.report.folder.write_folder", full)
    done = desk.bpusim("run", "s.yaml", "-o", "out", "--format", "json", *BARE)
    assert done.exit_code == 2
    assert done.stderr == "error: cannot write results: No space left on device\n"
    assert json.loads(done.stdout)["streams"]
