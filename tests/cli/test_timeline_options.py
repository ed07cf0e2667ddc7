"""The timeline among the files of a run: its options, and what is refused."""

from __future__ import annotations

import sys

import pytest
from desks import Desk
from trace_events import read_json, read_perfetto

TIMELINES = {"trace.json.gz", "trace.pftrace"}


def timelines(desk: Desk) -> set[str]:
    return TIMELINES & {p.name for p in (desk.folder / "out").iterdir()}


def test_a_run_that_is_shown_whole_says_nothing(desk: Desk) -> None:
    done = desk.run("-o", "out")
    assert done.stderr == ""
    file = read_json((desk.folder / "out" / "trace.json.gz").read_bytes())
    assert sum(s.name == "token" for s in file.slices) == 3
    assert file.about["left_out"] == []


def test_perfettos_format(desk: Desk) -> None:
    desk.run("-o", "out", "--timeline-format", "perfetto")
    file = read_perfetto((desk.folder / "out" / "trace.pftrace").read_bytes())
    assert sum(s.name == "token" for s in file.slices) == 3


def test_a_folder_never_has_timelines_of_two_runs(desk: Desk) -> None:
    desk.run("-o", "out")
    assert timelines(desk) == {"trace.json.gz"}
    desk.run("-o", "out", "--timeline-format", "perfetto")
    assert timelines(desk) == {"trace.pftrace"}
    desk.run("-o", "out", "--no-timeline")
    assert timelines(desk) == set()


def test_a_window(desk: Desk) -> None:
    desk.run("-o", "out", "--timeline-window", "0s..1us")
    file = read_json((desk.folder / "out" / "trace.json.gz").read_bytes())
    assert {s.name for s in file.slices if s.process == "streams"} >= {"first token"}
    assert not any(s.name == "token" for s in file.slices)
    assert not any(s.process == "bpu0" for s in file.slices), "the first call begins later"


def test_what_is_left_out_is_one_line(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpusim.report.timeline._SLICES", 10)
    done = desk.run("-o", "out")
    assert done.stderr.startswith("timeline: ")
    assert " ops from " in done.stderr
    assert done.stderr.endswith(" (--timeline-window FROM..TO shows another part of the run)\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--timeline-window", "0s..1s"], "--timeline-window is for the timeline, which -o DIR writes: add it"),
        (["--timeline-format", "json"], "--timeline-format is for the timeline, which -o DIR writes: add it"),
        (["--no-timeline"], "--no-timeline is for the files of -o DIR: add it"),
        (
            ["-o", "out", "--no-timeline", "--timeline-format", "json"],
            "--timeline-format is for the timeline, and --no-timeline leaves it out",
        ),
        (["-o", "out", "--timeline-window", "1..2"], "'1..2' is no window of time: '1' has no unit"),
    ],
)
def test_options_that_would_do_nothing_are_refused(desk: Desk, options: list[str], message: str) -> None:
    done = desk.bpusim("run", "s.yaml", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (desk.folder / "out").exists()


def test_a_missing_package_is_said_before_the_run(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    done = desk.bpusim("run", "s.yaml", "-o", "out", "--timeline-format", "perfetto")
    assert done.exit_code == 2
    assert "pip install 'bpusim[perfetto]'" in done.stderr
    assert done.stdout == ""
    assert not (desk.folder / "out").exists()
