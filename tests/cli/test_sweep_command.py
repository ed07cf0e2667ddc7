"""``bpusim sweep``: what it prints, what it refuses, what it leaves."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from desks import Desk

from bpusim.cli.progress import points_text

STUDY = """\
scenario: s.yaml
vary:
  streams.alice.output: {from: 1, to: 3}
  models.chat.cores: [bpu0, bpu2]
measure: [streams.alice.tokens]
skip: infeasible
"""


def table(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_a_scenario_is_run_at_every_point_of_its_ranges(desk: Desk) -> None:
    done = desk.bpusim(
        "sweep", "s.yaml", "--vary", "streams.alice.output=2:3", "--vary", "machine.cores.clock=600 MHz,1.2207 GHz",
        "--measure", "streams.alice.tokens",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = table(done.stdout)
    assert rows[0] == ["streams.alice.output", "machine.cores.clock", "status", "streams.alice.tokens"]
    assert [(r[0], r[1], r[3]) for r in rows[1:]] == [
        ("2", "600 MHz", "2"), ("2", "1.2207 GHz", "2"), ("3", "600 MHz", "3"), ("3", "1.2207 GHz", "3"),
    ]  # fmt: skip
    assert done.stderr == "s: 4 points: 4 ok\n"


def test_a_study_leaves_rows_and_goes_on_by_the_same_command(desk: Desk) -> None:
    desk.write("study.yaml", STUDY)
    done = desk.bpusim("sweep", "study.yaml", "-o", "r.jsonl")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "study: 6 points: 3 ok, 3 infeasible; rows in r.jsonl\n"
    before = (desk.folder / "r.jsonl").read_bytes()
    again = desk.bpusim("sweep", "study.yaml", "-o", "r.jsonl")
    assert again.stderr == "study: 6 points: 3 ok, 3 infeasible; 6 were there before; rows in r.jsonl\n"
    assert (desk.folder / "r.jsonl").read_bytes() == before


def test_failed_points_are_rows_and_the_exit_code_says_so(desk: Desk) -> None:
    done = desk.bpusim("sweep", "s.yaml", "--vary", "machine.dram.usable=5 GB,100 MB", "--measure", "events")
    assert done.exit_code == 1
    rows = table(done.stdout)
    assert rows[0] == ["machine.dram.usable", "status", "events", "error"]
    assert [r[1] for r in rows[1:]] == ["ok", "failed"]
    assert "are usable" in rows[2][3]
    assert "s: 2 points: 1 ok, 1 failed\nfailed: " in done.stderr
    assert "error:" not in rows[2][3]


def test_json_is_the_rows(desk: Desk) -> None:
    desk.write("study.yaml", STUDY)
    done = desk.bpusim("sweep", "study.yaml", "--format", "json", "-o", "r.jsonl")
    rows = json.loads(done.stdout)
    there = [json.loads(line) for line in (desk.folder / "r.jsonl").read_text().splitlines()]
    assert sorted(r["key"] for r in rows) == sorted(r["key"] for r in there)
    assert [r["point"]["streams.alice.output"] for r in rows] == [1, 1, 2, 2, 3, 3]


def test_a_dry_run_prints_the_points_and_runs_nothing(desk: Desk) -> None:
    desk.write("study.yaml", STUDY)
    done = desk.bpusim("sweep", "study.yaml", "-o", "r.jsonl", "--dry-run", "--where", "streams.alice.output != 2")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "streams.alice.output=1, models.chat.cores=bpu0",
        "streams.alice.output=1, models.chat.cores=bpu2",
        "streams.alice.output=3, models.chat.cores=bpu0",
        "streams.alice.output=3, models.chat.cores=bpu2",
    ]
    assert done.stderr == "4 points, and 2 that a condition leaves out\n"
    assert not (desk.folder / "r.jsonl").exists()


def test_options_go_over_the_study(desk: Desk) -> None:
    desk.write("study.yaml", STUDY)
    done = desk.bpusim(
        "sweep", "study.yaml", "--set", "streams.alice.prompt=7", "--measure", "nothing.*",
        "--measure", "events", "--seeds", "2", "--sample", "lhs", "--points", "3",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert {"events", "events ±"} <= set(table(done.stdout)[0])
    assert "no point has a figure nothing.*" in done.stderr
    assert "3 points" in done.stderr


def test_a_list_in_a_value_is_one_value(desk: Desk) -> None:
    done = desk.bpusim(
        "sweep",
        "s.yaml",
        "--vary",
        "models.chat.cores=[bpu1, bpu0],[bpu0, bpu1]",
        "--set",
        "models.chat.split=even",
        "--dry-run",
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == ["models.chat.cores=['bpu1', 'bpu0']", "models.chat.cores=['bpu0', 'bpu1']"]


def test_quantities_have_ranges(desk: Desk) -> None:
    done = desk.bpusim("sweep", "s.yaml", "--vary", "machine.cores.clock=1 GHz:1.2 GHz:0.1 GHz", "--dry-run")
    assert done.stdout.splitlines() == [f"machine.cores.clock={c} GHz" for c in ("1", "1.1", "1.2")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--vary", "output"), "varies nothing"),
        (("--vary", "=2"), "varies nothing"),
        (("--vary", "streams.alice.output="), "varies nothing"),
        (("--vary", "streams.alice.outptu=2"), "did you mean 'output'?"),
        (("--vary", "streams.alice.output=3:1"), "an empty range, from 3 to 1"),
        (("--vary", "machine.cores.clock=1 GHz:2 GB/s:1 GHz"), "in units of one kind"),
        (("--vary", "machine.cores.clock=1 GB/s"), "--vary machine.cores.clock: error: machine.cores.clock=1 GB/s"),
        (("--vary", "streams.alice.output=2", "--where", "streams.alice.output > 2"), "no point meets every condition"),
        (("--vary", "streams.alice.output=2", "--vary", "streams.alice.output=3"), "varied twice"),
        (
            ("--vary", "streams.alice.output=2", "--measure", "streams.alice.tokns"),
            "did you mean 'streams.alice.tokens",
        ),
        (("--vary", "streams.alice.output=2", "--set", "streams.alice.prompt"), "sets nothing"),
        (("--vary", "streams.alice.output=2", "--jobs", "1", "--scheduler", "tcp://x"), "give one of them"),
        ((), "name a study file, or what to --vary"),
        (("--vary", "streams.alice.output=2", "-o", "none/r.jsonl"), "cannot write results: No such file"),
        (("--vary", "streams.alice.output=2", "-o", "."), "cannot write results: Is a directory"),
        (("--vary", "streams.alice.output=2", "-o", "s.yaml"), "s.yaml:1: error: this line is no row of results"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_runs(desk: Desk, arguments: tuple[str, ...], said: str) -> None:
    done = desk.bpusim("sweep", "s.yaml", *arguments)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.output


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_an_output_that_cannot_be_written_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """As the system says it: root may write anywhere, and a test cannot mount a read-only disk."""
    opened = os.open

    def refused(path: Any, flags: int, *more: Any, **options: Any) -> int:
        if str(path).endswith("r.jsonl"):
            raise OSError(number, os.strerror(number))
        return opened(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refused)
    done = desk.bpusim("sweep", "s.yaml", "--vary", "streams.alice.output=2", "-o", "r.jsonl")
    assert done.exit_code == 2
    assert done.stderr == f"r.jsonl: error: cannot write results: {os.strerror(number)}; name another file\n"


def test_a_study_is_no_scenario_and_the_other_way_round(desk: Desk) -> None:
    desk.write("study.yaml", STUDY)
    done = desk.bpusim("run", "study.yaml")
    assert done.exit_code == 2
    assert re.search(r"study\.yaml.*this is a study; .*bpusim sweep", done.stderr)
    assert desk.bpusim("sweep", "study.yaml", "--vary", "streams.alice.prompt=1").exit_code == 2


def test_the_schema_of_study_files_is_printed(desk: Desk) -> None:
    done = desk.bpusim("schema", "--study")
    assert done.exit_code == 0
    assert {"scenario", "vary", "zip", "where", "measure"} <= set(json.loads(done.stdout)["properties"])


@pytest.mark.parametrize(
    ("done", "there", "seconds", "said"),
    [
        (0, 0, 1.0, "0 of 1000 points"),
        (250, 0, 10.0, "250 of 1000 points, 25 a second, 30 s to go"),
        (600, 500, 50.0, "600 of 1000 points, 2 a second, 3 min 20 s to go"),
        (500, 500, 50.0, "500 of 1000 points"),
    ],
)
def test_how_far_a_sweep_is_counts_what_it_did_itself(done: int, there: int, seconds: float, said: str) -> None:
    assert points_text(done, there, 1000, seconds) == said


def test_rows_without_a_terminal_say_nothing_of_the_progress_of_short_sweeps(desk: Desk, tmp_path: Path) -> None:
    done = desk.bpusim("sweep", "s.yaml", "--vary", "streams.alice.output=1", "-o", str(tmp_path / "r.jsonl"))
    assert done.stderr.count("\n") == 1
