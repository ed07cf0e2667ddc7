"""Sweeps: one run a point of the grid, chosen figures, paths into the summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpusim import simulate
from bpusim.errors import ScenarioError, StudyError
from bpusim.study import pick, sweep

TRACES = Path(__file__).resolve().parents[2] / "traces"
SUMMARY = {"total": {"tokens_per_s": 3.5}, "events": 7}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(
        f"machine: bpu80\nmodels: {{chat: {{trace: '{TRACES / 'qwen2.5-0.5b-int4.trace'}', cores: bpu0}}}}\n"
        "streams: {alice: {chat: chat, prompt: 8, output: 2}}\n"
    )
    return path


def test_the_grid_is_full_and_in_order(scenario: Path) -> None:
    """The last path varies fastest."""
    vary = {"streams.alice.prompt": [8, 16], "streams.alice.output": [2, 3]}
    rows = list(sweep(scenario, vary, ["streams.alice.tokens"]))
    points = [(r["streams.alice.prompt"], r["streams.alice.output"], r["streams.alice.tokens"]) for r in rows]
    assert points == [(8, 2, 2), (8, 3, 3), (16, 2, 2), (16, 3, 3)]


def test_a_point_is_a_run_with_these_overrides(scenario: Path) -> None:
    (row,) = sweep(scenario, {"machine.cores.clock": ["600 MHz"]}, ["streams.alice.ttft_mean_ms"])
    alone = simulate(scenario, set=["machine.cores.clock=600 MHz"]).to_dict()
    assert row["streams.alice.ttft_mean_ms"] == alone["streams"]["alice"]["ttft_mean_ms"]


def test_a_row_holds_the_point_and_then_the_figures(scenario: Path) -> None:
    (row,) = sweep(scenario, {"streams.alice.output": [2]}, ["events", "simulated_s"])
    assert list(row) == ["streams.alice.output", "events", "simulated_s"]


def test_points_run_only_when_they_are_asked_for(scenario: Path) -> None:
    """A wrong second value does not keep the first row back."""
    rows = sweep(scenario, {"streams.alice.output": [2, "many"]}, ["streams.alice.tokens"])
    assert next(rows)["streams.alice.tokens"] == 2
    with pytest.raises(ScenarioError, match="many"):
        next(rows)


def test_nothing_to_vary_is_one_run(scenario: Path) -> None:
    assert len(list(sweep(scenario, {}, ["events"]))) == 1


def test_an_unknown_path_is_an_error(scenario: Path) -> None:
    with pytest.raises(ScenarioError, match="did you mean 'output'"):
        list(sweep(scenario, {"streams.alice.outptu": [2]}, ["events"]))


def test_pick_follows_the_path() -> None:
    assert pick(SUMMARY, "total.tokens_per_s") == 3.5


def test_pick_of_a_whole_section_gives_it() -> None:
    assert pick(SUMMARY, "total") == {"tokens_per_s": 3.5}


def test_pick_of_an_unknown_figure_suggests_the_nearest() -> None:
    with pytest.raises(StudyError) as caught:
        pick(SUMMARY, "total.token_per_s")
    assert str(caught.value) == (
        "error: the summary has no 'total.token_per_s': nothing called 'token_per_s'; did you mean 'tokens_per_s'?"
    )


def test_pick_below_a_figure_is_an_error() -> None:
    with pytest.raises(StudyError, match="nothing called 'more'"):
        pick(SUMMARY, "events.more")


def test_a_figure_of_a_stream_with_a_dot_in_its_name_can_be_picked() -> None:
    """Overrides reach ``models.qwen2.5`` by the key that is there; figures should too."""
    assert pick({"streams": {"qwen2.5": {"tokens": 4}}}, "streams.qwen2.5.tokens") == 4
