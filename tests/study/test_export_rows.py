"""Rows as CSV, JSON and Parquet files."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from study_rows import rows_of

from bpusim.errors import StudyError
from bpusim.study.export import rows_parquet, write_rows

POINTS = [
    {"n": 1, "rate": "17 GB/s", "m": 1},
    {"n": 2, "rate": "34 GB/s", "m": ["a"]},
    {"n": 3, "rate": "8 GB/s", "m": "x"},
]


def rows() -> list[dict[str, Any]]:
    return rows_of(POINTS, lambda p: {"error": "broke"} if p["n"] == 3 else {"y": p["n"] * 0.5, "k": p["n"], "z": None})


def test_parquet_has_the_columns_of_the_csv_with_types() -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    table = pq.read_table(io.BytesIO(rows_parquet(rows())))
    assert {f.name: str(f.type) for f in table.schema} == {
        "n": "int64", "rate": "string", "m": "string", "status": "string", "y": "double", "k": "int64", "z": "null",
        "error": "string",
    }  # fmt: skip
    assert table.to_pylist()[1] == {
        "n": 2, "rate": "34 GB/s", "m": '["a"]', "status": "ok", "y": 1.0, "k": 2.0, "z": None, "error": None,
    }  # fmt: skip
    assert table.to_pylist()[2]["error"] == "broke"


def test_whole_numbers_and_others_in_a_column_are_numbers() -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    data = rows_parquet(rows_of([{"a": 1}, {"a": 2.5}], lambda p: {"y": p["a"]}))
    assert pq.read_table(io.BytesIO(data)).to_pydict()["a"] == [1.0, 2.5]


def test_seeds_are_a_mean_with_its_interval() -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    (row,) = pq.read_table(io.BytesIO(rows_parquet(rows_of([{"a": 1}], lambda _: {"y": [1.0, 3.0]})))).to_pylist()
    assert row["y"] == 2
    assert row["y ±"] == pytest.approx(12.706)


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(StudyError, match="pyarrow is not installed; install it: pip install 'bpusim\\[parquet\\]'"):
        rows_parquet(rows())


def test_csv_and_json_hold_failed_rows_with_their_errors(tmp_path: Path) -> None:
    assert write_rows(rows(), tmp_path / "r.csv") == 3
    found = list(csv.DictReader((tmp_path / "r.csv").open(encoding="utf-8")))
    assert [(r["n"], r["status"], r["y"], r["error"]) for r in found] == [
        ("1", "ok", "0.5", ""), ("2", "ok", "1.0", ""), ("3", "failed", "", "broke"),
    ]  # fmt: skip
    write_rows(rows(), tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8")) == rows()


@pytest.mark.parametrize("name", ["r.xlsx", "r"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StudyError, match=r"rows cannot be|has no ending"):
        write_rows(rows(), tmp_path / name)


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "r.csv").mkdir()
    with pytest.raises(StudyError, match="cannot write rows"):
        write_rows(rows(), tmp_path / "r.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["r.csv"]
