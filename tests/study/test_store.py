"""Rows in a file: whole or not there, whoever dies when."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.errors import StudyError
from bpusim.study.store import Store, line_of, read_rows


def row(key: str) -> dict[str, Any]:
    return {"key": key, "point": {"a": 1}, "status": "ok", "measures": {"x": [1.5]}}


def test_rows_are_appended_and_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Store(path) as store:
        store.add([row("a")])
        store.add([row("b"), row("c")])
    with Store(path) as store:
        assert store.done == {"a", "b", "c"}
        store.add([row("d")])
    assert [r["key"] for r in read_rows(path)] == ["a", "b", "c", "d"]


def test_a_row_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Store(path) as store:
        store.add([row("a")])
        store.add([row("a"), row("b")])
    assert path.read_text() == line_of(row("a")) + line_of(row("b"))


@given(cut=st.integers(0, 200))
def test_a_line_that_was_cut_off_is_taken_away(tmp_path_factory: Any, cut: int) -> None:
    path = tmp_path_factory.mktemp("s") / "r.jsonl"
    whole = line_of(row("a")) + line_of(row("b"))
    path.write_text(whole[: min(cut, len(whole))])
    with Store(path) as store:
        lines = path.read_text()
        assert whole.startswith(lines)
        assert not lines or lines.endswith("\n")
        assert store.torn == min(cut, len(whole)) - len(lines)


def test_two_sweeps_do_not_write_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Store(path), pytest.raises(StudyError, match="another sweep writes to this file"):
        Store(path)
    with Store(path):
        pass


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.jsonl"
    with Store(path) as store:
        store.add([row("a")])
        real = os.write

        def half(fd: int, data: bytes) -> int:
            return real(fd, data[: len(data) // 2])

        monkeypatch.setattr(os, "write", half)
        with pytest.raises(StudyError, match=os.strerror(errno.ENOSPC)):
            store.add([row("b")])
        monkeypatch.setattr(os, "write", real)
        assert path.read_text() == line_of(row("a"))
        store.add([row("b")])
    assert [r["key"] for r in read_rows(path)] == ["a", "b"]


@pytest.mark.parametrize("text", ["nonsense\n", "[1]\n", '{"key": "a"}\n', "\n"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(line_of(row("a")) + text)
    with pytest.raises(StudyError, match="no row of results") as caught:
        list(read_rows(path))
    assert caught.value.problems[0].place is not None
    assert caught.value.problems[0].place.line == 2


def test_a_folder_is_no_file_of_rows(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="cannot write results"):
        Store(tmp_path)


def test_a_device_is_no_file_to_keep_rows_in() -> None:
    with pytest.raises(StudyError, match="this is no file that rows can be kept in"):
        Store(Path("/dev/full"))
