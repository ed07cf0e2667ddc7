"""Printing into a pipe that nobody reads, and onto a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from study_rows import grid, rows_of, written

FULL = Path("/dev/full")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    points = rows_of(grid({"a": list(range(40)), "b": list(range(40))}), lambda p: {"y": p["a"] * p["b"] + 1})
    return written(points, tmp_path_factory.mktemp("rows") / "r.jsonl")


def printed(words: list[object], out: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "bpusim", *map(str, words)], stdout=out, stderr=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_a_closed_pipe_is_no_failure(rows: Path, form: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        assert printed(["study", "show", rows, "--part", "pairs", "--format", form], write) == (0, "")
    finally:
        os.close(write)


@pytest.mark.parametrize(
    "words",
    [*(["study", "show", "ROWS", "--part", "effects", "--format", f] for f in ("table", "json", "csv")), ["schema"]],
)
def test_a_full_disk_is_told_in_a_line(rows: Path, words: list[object]) -> None:
    with FULL.open("w") as out:
        code, err = printed([rows if w == "ROWS" else w for w in words], out.fileno())
    assert (code, err) == (2, "error: cannot write: No space left on device\n")
