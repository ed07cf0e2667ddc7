"""Scenarios and policies side by side."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from bpusim.cli import main
from bpusim.errors import StudyError
from bpusim.metrics import Figures
from bpusim.report.compare import print_comparison
from bpusim.study import Comparison, compare

SCENARIO = Path(__file__).resolve().parents[2] / "scenarios" / "hetero_one_core.yaml"
SHORT = ["run.until=4 s"]


def made(*variants: Sequence[float | None]) -> Comparison:
    """A figure by variant and seed."""
    runs: dict[str, list[Figures]] = {f"v{k}": [{"x": value} for value in v] for k, v in enumerate(variants)}
    return Comparison(tuple(range(len(variants[0]))), runs)


def test_the_interval_is_of_the_differences_seed_by_seed() -> None:
    """Both vary by tens, their difference by ones: 2, 3, 4 has a mean of 3, a deviation of 1, and 4.303 / sqrt(3)."""
    change = made([10, 50, 90], [12, 53, 94]).change("x", "v1")
    assert change.difference == pytest.approx(3)
    assert change.half == pytest.approx(4.303 / 3**0.5)
    assert change.relative == pytest.approx(3 / 50)
    assert change.significant


def test_a_difference_that_may_be_chance_is_not_significant() -> None:
    assert not made([10, 50, 90], [12, 47, 92]).change("x", "v1").significant


def test_of_one_seed_any_difference_is_one() -> None:
    assert made([10], [11]).change("x", "v1").significant
    assert not made([10], [10]).change("x", "v1").significant
    assert made([10], [11]).change("x", "v1").half is None


def test_what_was_not_measured_is_left_out_of_the_means() -> None:
    change = made([10, None, 30], [11, 5, 32]).change("x", "v1")
    assert (change.first, change.value) == (20, 21.5)
    nothing = made([None], [3]).change("x", "v1")
    assert (nothing.first, nothing.value, nothing.difference, nothing.significant) == (None, 3, None, False)


def test_a_figure_of_zero_has_no_relative_change() -> None:
    assert made([0], [2]).change("x", "v1").relative is None


def test_policies_of_one_scenario_are_compared_on_the_same_arrivals() -> None:
    found = compare([SCENARIO], ["priority", "fifo", "edf"], seeds=2, set=SHORT)
    assert list(found.runs) == ["priority", "fifo", "edf"]
    captured = {tuple(r["streams.camera.captured"] for r in rows) for rows in found.runs.values()}
    assert len(captured) == 1
    assert found.change("streams.camera.latency_mean_ms", "fifo").relative == pytest.approx(1, abs=0.9)
    assert found.change("streams.camera.latency_mean_ms", "priority").difference == 0


def test_scenarios_under_policies_are_named_by_both(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(f"extends: {SCENARIO}\nmodels: {{detector: {{priority: 0}}}}\n")
    found = compare([SCENARIO, other], ["fifo", "priority"], set=SHORT)
    assert list(found.runs) == [
        "hetero_one_core, fifo",
        "hetero_one_core, priority",
        "other, fifo",
        "other, priority",
    ]


def test_one_variant_alone_is_an_error() -> None:
    with pytest.raises(StudyError, match="there is one variant only; name another scenario, or two policies"):
        compare([SCENARIO])
    with pytest.raises(StudyError, match="'fifo' is there twice"):
        compare([SCENARIO], ["fifo", "fifo"])


def run(*arguments: str) -> str:
    result = CliRunner().invoke(
        main, ["compare", str(SCENARIO), "--policy", "priority", "--policy", "fifo", *arguments]
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_the_table_marks_what_is_more_than_chance() -> None:
    text = run("--seeds", "3", "--set", SHORT[0])
    (row,) = [line for line in text.splitlines() if line.startswith("streams.camera.latency_mean_ms")]
    assert "%" in row
    assert row.rstrip().endswith("*)")
    assert "…" not in text
    assert text.splitlines()[-1].startswith("means of 3 seeds; ±: 95 % confidence of the difference")


def test_figures_as_csv_and_json_are_the_same() -> None:
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv", "--set", SHORT[0]))))
    figures = json.loads(run("--format", "json", "--set", SHORT[0]))["figures"]
    assert [(r["figure"], r["variant"]) for r in rows] == [(f["figure"], f["variant"]) for f in figures]
    assert [float(r["mean"]) for r in rows if r["mean"]] == [f["mean"] for f in figures if f["mean"] is not None]
    everything = json.loads(run("--format", "json", "--all", "--set", SHORT[0]))["figures"]
    assert len(everything) > 2 * len(figures)


def test_figures_as_markdown_are_those_of_the_table() -> None:
    comparison = made([10.0], [11.0])
    out = io.StringIO()
    print_comparison(comparison.rows(["x"]), list(comparison.runs), 1, out, markdown=True)
    head, table, note = out.getvalue().split("\n\n")
    assert head == "**Against v0**"
    assert table.splitlines() == ["| figure | v0 | v1 |", "| --- | ---: | ---: |", "| x | 10 | 11 (+10.0%) |"]
    assert note.startswith("one run each")


def test_on_a_narrow_terminal_each_variant_has_a_table_of_its_own() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    comparison = made([10.0], [11.0], [12.0])
    rows = [r | {"figure": "a_figure_with_a_long_name_" * 2} for r in comparison.rows(["x"])]
    print_comparison(rows, list(comparison.runs), 1, out)
    assert out.getvalue().count("Against v0") == 2
