"""``bpusim study show``, ``plot`` and ``export``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from study_rows import grid, rows_of, written

from bpusim.cli import main

ROOT = Path(__file__).resolve().parents[2]


def figures(p: dict[str, Any]) -> dict[str, Any]:
    if p["machine.n"] == 3:
        return {"error": "no core bpu2", "status": "infeasible"}
    rate = {"17 GB/s": 1, "34 GB/s": 2}[p["machine.rate"]]
    return {
        "streams.al.tpot_mean_ms": 60 / p["machine.n"] / rate,
        "heat.mean_power_w": 5 + p["machine.n"] * rate,
        "seen": 1,
    }


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    points = grid({"machine.n": [1, 2, 3], "machine.rate": ["17 GB/s", "34 GB/s"]})
    return written(rows_of(points, figures), tmp_path / "rows.jsonl")


def study(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["study", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.stdout, done.stderr


def test_show_says_what_failed_and_what_is_constant(rows: Path) -> None:
    code, out, _ = study("show", rows)
    assert code == 0
    assert out.startswith("rows: 6 rows: 4 ok, 2 infeasible; grid\n2 without a result: no core bpu2\n")
    assert "note: seen is 1 at every point" in out


def test_show_prints_effects_pairs_and_sensitivity(rows: Path) -> None:
    """60, 30, 30, 15: of the variance, 267.2, that between 45 and 22.5 is 126.6."""
    _, out, _ = study("show", rows, "--figure", "streams.*")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "streams.al.tpot_mean_ms 45 22.5 100.0%" in lines
    assert "1 60 30" in lines
    assert "2 30 15" in lines
    assert "machine.rate 0.474 0.526 -1.000 (-1.000..-1.000)" in lines


def test_show_prints_the_front_and_the_smallest(rows: Path) -> None:
    _, out, _ = study(
        "show", rows, "--pareto", "streams.*.tpot_mean_ms,heat.mean_power_w", "--slo", "streams.*.tpot_mean_ms <= 40",
        "--cost", "machine.n * 3 + machine.rate / 17e9",
    )  # fmt: skip
    assert "Pareto front: 4 of 4 points" in out
    assert "Limits: 3 of 4 points meet all" in out
    assert "cost: machine.n * 3 + machine.rate / 17e9" in out
    (line,) = [line for line in out.splitlines() if line.endswith("smallest")]
    assert " ".join(line.split()) == "machine.n 1, machine.rate 34 GB/s 5 +25.0% 1/1 smallest"


def test_show_says_what_the_nearest_misses(rows: Path) -> None:
    _, out, _ = study("show", rows, "--slo", "streams.al.tpot_mean_ms <= 10", "--part", "smallest")
    assert "None meets all; the nearest first" in out
    assert "nearest: machine.n 2, machine.rate 34 GB/s; it misses streams.al.tpot_mean_ms <= 10 by 50.0%" in out


def test_show_as_json_has_everything(rows: Path) -> None:
    _, out, _ = study("show", rows, "--format", "json", "--slo", "seen == 1")
    found = json.loads(out)
    assert found["schema"] == 1
    assert found["counts"] == {"ok": 4, "infeasible": 2}
    assert len(found["effects"]) == 4
    assert found["smallest"]["conditions"] == {"seen == 1": 4}


def test_show_as_json_of_a_part(rows: Path) -> None:
    found = json.loads(study("show", rows, "--format", "json", "--part", "pairs")[1])
    assert "maps" in found
    assert "effects" not in found


@pytest.mark.parametrize(
    ("part", "columns", "count"),
    [
        ("effects", ["figure", "parameter", "value", "mean", "half_width_95", "points"], 8),
        ("pairs", ["figure", "row", "row_value", "column", "column_value", "mean", "points"], 8),
        ("pareto", ["point", "streams.*.tpot_mean_ms", "heat.mean_power_w", "front"], 4),
        ("smallest", ["point", "cost", "met", "smallest", "room: seen <= 2", "seeds_met", "seeds"], 4),
    ],
)
def test_show_as_csv(rows: Path, part: str, columns: list[str], count: int) -> None:
    more = ["--pareto", "streams.*.tpot_mean_ms,heat.mean_power_w", "--slo", "seen <= 2"]
    code, out, _ = study("show", rows, "--format", "csv", "--part", part, *more)
    assert code == 0
    table = csv.DictReader(io.StringIO(out))
    assert table.fieldnames == columns
    assert len(list(table)) == count


def test_show_as_markdown(rows: Path) -> None:
    _, out, _ = study("show", rows, "--format", "markdown", "--part", "effects")
    assert out.startswith("## rows: 6 rows")
    assert "| streams.al.tpot_mean_ms | 45 | 22.5 | 100.0% |" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "csv"], "csv is one table: add --part"),
        (["--part", "pareto"], "add --pareto FIGURE,FIGURE"),
        (["--part", "smallest"], "add --slo CONDITION"),
        (["--pair", "machine.n"], "write two parameters, A,B"),
        (["--pair", "machine.n,x"], "the rows have no parameter 'x'"),
        (["--figure", "nothing"], "no row has the figure 'nothing'"),
        (["--study", "none.yaml"], "none.yaml"),
        (["--slo", "seen <"], "slo: 'seen <' cannot be read"),
    ],
)
def test_show_refuses(rows: Path, words: list[str], message: str) -> None:
    code, _, err = study("show", rows, *words)
    assert code == 2
    assert message in err


def test_show_of_an_empty_and_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert "there are no rows" in study("show", tmp_path / "empty")[2]
    (tmp_path / "text").write_text("hello\n")
    assert "this line is no row of results" in study("show", tmp_path / "text")[2]
    assert "cannot read results" in study("show", tmp_path / "none")[2]


def test_plot_draws_all_there_is_into_a_folder(rows: Path, tmp_path: Path) -> None:
    more = ["--pareto", "streams.*.tpot_mean_ms,heat.mean_power_w", "--slo", "seen <= 2"]
    code, out, _ = study("plot", rows, "-o", tmp_path / "charts", *more)
    names = ["effects", "pairs", "sensitivity", "pareto", "smallest"]
    assert code == 0
    assert out.split() == [str(tmp_path / "charts" / f"{n}.svg") for n in names]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "x.svg"], "one file is one chart: add --kind"),
        (["-o", "x.gif", "--kind", "effects"], "a chart cannot be a '.gif' file"),
        (["-o", "none/x.svg", "--kind", "effects"], "the folder does not exist"),
        (["-o", "x.svg", "--kind", "pareto"], "add --pareto"),
        (["-o", "x.svg", "--kind", "effects", "--figure", "seen"], "no effects to draw: no figure differs"),
        (["-o", "x.svg", "--kind", "smallest", "--slo", "seen == 1"], "none is a comparison of numbers"),
    ],
)
def test_plot_refuses(
    rows: Path, words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = study("plot", rows, *words)
    assert code == 2
    assert message in err
    assert not list(tmp_path.glob("x.*"))


def test_export_writes_what_its_ending_says(rows: Path, tmp_path: Path) -> None:
    code, out, _ = study("export", rows, "-o", tmp_path / "r.csv")
    assert (code, out) == (0, f"{tmp_path / 'r.csv'}: 6 rows\n")
    assert study("export", rows, "-o", tmp_path / "none" / "r.csv")[0] == 2
    one = written(rows_of([{"a": 1}], lambda _: {"y": 1}), tmp_path / "one.jsonl")
    assert study("export", one, "-o", tmp_path / "r.csv")[1] == f"{tmp_path / 'r.csv'}: 1 row\n"


def test_errors_are_told_by_their_first_line(tmp_path: Path) -> None:
    points = rows_of(
        grid({"n": [1, 2, 3]}), lambda p: {"y": 1} if p["n"] == 3 else {"error": f"memory is full\n  model {p['n']} GB"}
    )
    out = study("show", written(points, tmp_path / "r.jsonl"))[1]
    assert "\n2 without a result: memory is full\nnote" in out


def test_a_folder_that_cannot_be_made(rows: Path) -> None:
    code, _, err = study("plot", rows, "-o", rows / "charts")
    assert (code, err) == (2, f"{rows / 'charts'}: error: cannot make the folder: Not a directory\n")


STUDY = f"""\
about: Two ports.
scenario: {ROOT / "scenarios" / "single_1_5b.yaml"}
set: {{streams.alice: {{chat: chat, prompt: 8, output: 2}}}}
vary: {{machine.cores.dma.port: [17.1 GB/s, 8 GB/s]}}
slo: ['streams.*.ttft_mean_ms <= 1000']
cost: machine.cores.dma.port / 1e9 + streams.alice.prompt
"""


def test_the_study_names_its_rows_its_limits_and_its_cost(tmp_path: Path) -> None:
    """Rows of another study in the same file are left out, and said to be."""
    file, out = tmp_path / "ports.yaml", tmp_path / "r.jsonl"
    file.write_text(STUDY)
    swept = CliRunner().invoke(main, ["sweep", str(file), "--jobs", "1", "-o", str(out)])
    assert swept.exit_code == 0, swept.stderr
    with out.open("a") as more:
        more.write(json.dumps(rows_of([{"other": 1}], lambda _: {"y": 1})[0]) + "\n")
    code, _, err = study("show", out)
    assert code == 2
    assert "say which: --study" in err
    code, text, err = study("show", out, "--study", file, "--cost", "machine.cores.dma.port / 1e9")
    assert code == 0, err
    assert "note: 1 rows of other studies, scenarios or versions are left out" in text
    (line,) = [line for line in text.splitlines() if line.endswith("smallest")]
    assert line.split()[:4] == ["dma.port", "8", "GB/s", "8"]
    code, _, err = study("show", out, "--study", file, "--cost", "streams.alice.prmpt")
    assert code == 2
    assert "and the scenario has no such key; did you mean 'streams.alice.prompt'" in err
