"""The folder of a result: four files, replaced as a whole, nothing of others lost."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from desks import Desk

from bpusim.cli import main

FILES = ["manifest.json", "ops.csv", "requests.csv", "summary.json", "trace.json.gz"]


def test_a_folder_holds_what_a_run_leaves(desk: Desk) -> None:
    desk.run("-o", "out")
    assert sorted(p.name for p in (desk.folder / "out").iterdir()) == FILES


def test_the_folder_may_be_deep(desk: Desk) -> None:
    desk.run("-o", "a/b/out")
    assert (desk.folder / "a" / "b" / "out" / "summary.json").is_file()


def test_the_summary_in_the_folder_is_what_json_prints(desk: Desk) -> None:
    printed = desk.run("-o", "out", "--format", "json").stdout
    assert (desk.folder / "out" / "summary.json").read_text() == printed


def test_an_earlier_result_is_replaced(desk: Desk) -> None:
    desk.run("-o", "out")
    desk.run("-o", "out", "--set", "streams.alice.output=2")
    assert json.loads((desk.folder / "out" / "summary.json").read_text())["streams"]["alice"]["tokens"] == 2


def test_an_empty_folder_is_taken(desk: Desk) -> None:
    (desk.folder / "out").mkdir()
    desk.run("-o", "out")
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
    desk.run("-o", "out")
    notes = desk.write("out/notes.txt", "what I saw")
    desk.bpusim("run", "s.yaml", "-o", "out")
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
    desk.run("-o", "out")
    before = (desk.folder / "out" / "summary.json").read_bytes()
    desk.change("output: 4", "outptu: 4")
    assert desk.bpusim("run", "s.yaml", "-o", "out").exit_code == 2
    assert (desk.folder / "out" / "summary.json").read_bytes() == before
