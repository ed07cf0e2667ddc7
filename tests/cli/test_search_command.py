"""``bpusim search``: what it prints, and what it leaves."""

from __future__ import annotations

import csv
import io
import json

import pytest
from desks import Desk

pytest.importorskip("optuna", reason="the extra 'search' is not installed")
VARY = ("--vary", "machine.cores.dma.port=6 GB/s,10 GB/s,14 GB/s", "--vary", "streams.alice.output=2,3")
AIM = ("--minimize", "machine.cores.dma.port / 1e9", "--subject-to", "streams.alice.tpot_mean_ms <= 45")


def test_the_best_point_comes_first(desk: Desk) -> None:
    done = desk.bpusim("search", "s.yaml", *VARY, *AIM, "-o", "r.jsonl")
    assert done.exit_code == 0, done.output
    head, names, first = done.stdout.splitlines()[:3]
    assert head == "s: 6 of 6 points tried: 6 ok"
    assert "machine.cores.dma.port / 1e9 (less is better)" in names
    assert "dma.port 10 GB/s" in first
    assert first.rstrip().endswith("best")
    assert "note: all 6 points of the space were tried" in done.stdout
    again = desk.bpusim("search", "s.yaml", *VARY, *AIM, "-o", "r.jsonl")
    assert again.stdout.splitlines()[0] == "s: 6 of 6 points tried: 6 ok; 6 were there before"
    assert again.stdout.splitlines()[1:] == done.stdout.splitlines()[1:]


def test_csv_and_json_have_every_point(desk: Desk) -> None:
    table = list(csv.reader(io.StringIO(desk.bpusim("search", "s.yaml", *VARY, *AIM, "--format", "csv").stdout)))
    assert table[0] == [
        "try", "machine.cores.dma.port", "streams.alice.output", "machine.cores.dma.port / 1e9",
        "room: streams.alice.tpot_mean_ms <= 45", "met", "best",
    ]  # fmt: skip
    assert len(table) == 7
    data = json.loads(desk.bpusim("search", "s.yaml", *VARY, *AIM, "--format", "json").stdout)
    assert [str(t["number"]) for t in data["tried"]] == [row[0] for row in table[1:]]
    assert [t["best"] for t in data["tried"]] == [row[-1] == "1" for row in table[1:]]


def test_none_that_meets_all_is_said_and_is_the_exit_code(desk: Desk) -> None:
    done = desk.bpusim("search", "s.yaml", *VARY, "--minimize", "events", "--subject-to", "streams.*.tpot_mean_ms < 1")
    assert done.exit_code == 1
    assert "none meets every condition; the nearest misses streams.*.tpot_mean_ms < 1 by" in done.stdout


def test_markdown(desk: Desk) -> None:
    text = desk.bpusim("search", "s.yaml", *VARY, *AIM, "--format", "markdown").stdout
    assert text.startswith("## s: 6 of 6 points tried: 6 ok\n")
    assert "| best |" in text.replace("  ", " ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (AIM, "name a study file, or what to --vary"),
        (VARY, "the study does not say what to search for"),
        ((*VARY, "--minimize", "cost"), "there is no cost"),
        ((*VARY, "--minimize", "streams.alice.tokns"), "streams.alice.tokns"),
        ((*VARY, *AIM, "-o", "none/r.jsonl"), "cannot write results"),
    ],
)
def test_what_is_wrong_is_told(desk: Desk, arguments: tuple[str, ...], said: str) -> None:
    done = desk.bpusim("search", "s.yaml", *arguments)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Traceback" not in done.output
