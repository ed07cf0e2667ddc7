"""Tables of studies on a terminal: no wider than it, with nothing left out."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from study_rows import grid, rows_of, written

from bpusim.report.study import PARTS, write_studied
from bpusim.study.analysis import Asked, analyse


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    points = grid({"machine.dram.preset": [f"LPDDR4X-{n}00x64" for n in range(32, 42)], "machine.[x]": [1, 2]})
    return written(
        rows_of(points, lambda p: {"t_ms": int(p["machine.dram.preset"][8:12]) * p["machine.[x]"]}), tmp_path / "r"
    )


@pytest.mark.parametrize("part", PARTS)
def test_no_line_is_wider_than_the_terminal(rows: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    found = analyse(rows, asked=Asked(slo=("t_ms <= 5000",), cost="t_ms", pareto="t_ms,value['machine.[x]']"))
    out = Terminal()
    write_studied(found, [part], "table", out)
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    tables = [line for line in text.splitlines() if not line.startswith(("note", "first", "cost", "r:"))]
    assert max(map(len, tables)) <= 70
    if part in ("effects", "pairs"):
        assert all(f"LPDDR4X-{n}00x64" in text for n in range(32, 42))


def test_names_with_brackets_are_printed_as_they_are(rows: Path) -> None:
    out = io.StringIO()
    write_studied(analyse(rows), ["effects"], "table", out)
    assert "Main effects of machine.[x] (means over all others)" in out.getvalue()
