"""Sweeps: one run a point, chosen figures, rows that are there already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bpusim import simulate
from bpusim.errors import StudyError
from bpusim.study import Study, local_pool, read_rows, run_study, sweep
from bpusim.study.run_point import picked

Write = Callable[[str], Study]


# In this process


def test_the_grid_is_full_and_in_order(scenario: Path) -> None:
    """The last path varies fastest."""
    vary = {"streams.alice.prompt": [8, 16], "streams.alice.output": [2, 3]}
    rows = list(sweep(scenario, vary, ["streams.alice.tokens"]))
    points = [(r["streams.alice.prompt"], r["streams.alice.output"], r["streams.alice.tokens"]) for r in rows]
    assert points == [(8, 2, 2), (8, 3, 3), (16, 2, 2), (16, 3, 3)]


def test_a_point_is_a_run_with_these_overrides(scenario: Path) -> None:
    (row,) = sweep(scenario, {"machine.cores.clock": ["600 MHz"]}, ["streams.alice.ttft_mean_ms"])
    alone = simulate(scenario, set=["machine.cores.clock=600 MHz"]).to_dict()
    assert row["streams.alice.ttft_mean_ms"] == float(f"{alone['streams']['alice']['ttft_mean_ms']:.9g}")


def test_a_row_holds_the_point_and_then_the_figures_as_they_are_asked_for(scenario: Path) -> None:
    (row,) = sweep(scenario, {"streams.alice.output": [2]}, ["simulated_s", "events"])
    assert list(row) == ["streams.alice.output", "simulated_s", "events"]


def test_every_number_of_the_summary_can_be_asked_for(scenario: Path) -> None:
    name = "streams.alice.breakdown_ms.dram"
    (row,) = sweep(scenario, {"streams.alice.output": [3]}, [name])
    assert row[name] == float(f"{simulate(scenario).to_dict()['streams']['alice']['breakdown_ms']['dram']:.9g}")


def test_a_star_stands_for_any_part_of_a_name(scenario: Path) -> None:
    (row,) = sweep(scenario, {"streams.alice.output": [2]}, ["streams.*.tokens", "cores.*.mac_utilization"])
    assert list(row)[1:] == [
        "streams.alice.tokens", "cores.bpu0.mac_utilization", "cores.bpu1.mac_utilization"
    ]  # fmt: skip


def test_nothing_to_vary_is_refused(scenario: Path) -> None:
    with pytest.raises(StudyError, match="nothing is varied"):
        list(sweep(scenario, {}, ["events"]))


def test_an_unknown_path_is_an_error(scenario: Path) -> None:
    with pytest.raises(StudyError, match="did you mean 'output'"):
        list(sweep(scenario, {"streams.alice.outptu": [2]}, ["events"]))


def test_an_unknown_figure_suggests_the_nearest(scenario: Path) -> None:
    with pytest.raises(StudyError) as caught:
        picked(simulate(scenario), ["streams.alice.tokns"])
    assert str(caught.value) == (
        "error: the summary has no 'streams.alice.tokns'; did you mean 'streams.alice.tokens'?"
    )


def test_a_figure_of_a_stream_with_a_dot_in_its_name_can_be_picked(scenario: Path) -> None:
    """Overrides reach ``models.qwen2.5`` by the key that is there; figures should too."""
    scenario.write_text(scenario.read_text().replace("alice", "al.ice"))
    assert picked(simulate(scenario), ["streams.al.ice.tokens"]) == {"streams.al.ice.tokens": 3}


# In workers, with rows in a file


def test_rows_are_in_the_order_of_points_and_in_the_file(study: Write, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    found = study("vary: {streams.alice.output: [1, 2, 3]}\nmeasure: [streams.alice.tokens]\n")
    outcome = run_study(found, out, local_pool(2))
    assert [(r["point"], r["measures"]) for r in outcome.rows] == [
        ({"streams.alice.output": n}, {"streams.alice.tokens": [n]}) for n in (1, 2, 3)
    ]
    assert outcome.counts == {"ok": 3}
    assert sorted(r["key"] for r in read_rows(out)) == sorted(r["key"] for r in outcome.rows)


def test_what_is_there_does_not_run_again(study: Write, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    text = "measure: [streams.alice.tokens]\nvary: {streams.alice.output: [1, 2, %s]}\n"
    run_study(study(text % 3), out, local_pool(1))
    before = out.read_text()
    outcome = run_study(study(text % 4), out, local_pool(1))
    assert outcome.there == 2
    assert [r["measures"]["streams.alice.tokens"] for r in outcome.rows] == [[1], [2], [4]]
    assert out.read_text().startswith(before)
    assert len(list(read_rows(out))) == 4


def test_a_point_that_fails_is_a_row_and_the_others_run(study: Write) -> None:
    """A prompt that the model's context cannot take shows only when the point is put together."""
    outcome = run_study(
        study("vary: {machine.cores.count: [2, 1], models.chat.cores: [bpu0, bpu1]}\nmeasure: [streams.alice.tokens]\n")
    )
    assert [r["status"] for r in outcome.rows] == ["ok", "ok", "ok", "failed"]
    assert "the machine has no core 'bpu1'" in outcome.rows[3]["error"]
    assert "measures" not in outcome.rows[3]


def test_a_point_that_no_machine_can_run_is_no_failure_if_the_study_says_so(study: Write) -> None:
    text = "vary: {machine.dram.usable: [5 GB, 100 MB]}\nmeasure: [streams.alice.tokens]\nskip: infeasible\n"
    outcome = run_study(study(text))
    assert outcome.counts == {"ok": 1, "infeasible": 1}
    assert "are usable" in outcome.rows[1]["error"]


def test_a_defect_of_a_point_is_its_own(study: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    from bpusim.study import run_point
    from bpusim.study.points import points_of
    from bpusim.study.runner import jobs_of

    def broken(_job: Any) -> Any:
        raise ZeroDivisionError("defect")

    monkeypatch.setattr(run_point, "_measured", broken)
    found = study("vary: {streams.alice.output: [1]}\n")
    (row,) = run_point.run_jobs(list(jobs_of(found, points_of(found).points, "kept", points_of(found))))
    assert (row["status"], row["error"]) == ("failed", "ZeroDivisionError: defect")


def test_failed_points_run_again_if_they_are_to(study: Write, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    found = study("vary: {machine.dram.usable: [5 GB, 100 MB]}\nmeasure: [streams.alice.tokens]\n")
    run_study(found, out)
    assert run_study(found, out).there == 2
    outcome = run_study(found, out, retry=True)
    assert outcome.there == 1
    assert outcome.counts == {"ok": 1, "failed": 1}
    assert len(list(read_rows(out))) == 3


def test_seeds_are_runs_of_their_own(study: Write) -> None:
    text = (
        "vary: {streams.alice.output: [2]}\nseeds: 3\nmeasure: [streams.alice.ttft_mean_ms]\n"
        "set: {streams.alice.prompt: {median: 64, sigma: 0.7, max: 200}}\n"
    )
    (row,) = run_study(study(text)).rows
    figures = row["measures"]["streams.alice.ttft_mean_ms"]
    wanted = [
        simulate(
            study(text).scenario, set=["streams.alice.prompt={median: 64, sigma: 0.7, max: 200}", f"engine.seed={seed}"]
        ).to_dict()["streams"]["alice"]["ttft_mean_ms"]
        for seed in range(3)
    ]  # fmt: skip
    assert figures == [float(f"{w:.9g}") for w in wanted]
    assert len(set(figures)) > 1


def test_an_unknown_figure_ends_the_sweep(study: Write) -> None:
    with pytest.raises(StudyError, match=r"did you mean 'streams\.alice\.tokens'"):
        run_study(study("vary: {streams.alice.output: [1, 2]}\nmeasure: [streams.alice.tokns]\n"))


def test_figures_that_no_point_has_are_told(study: Write) -> None:
    text = "vary: {streams.alice.output: [1, 2]}\nmeasure: [%s]\n"
    assert run_study(study(text % "'streams.*.tokens', 'heat.*'")).unmatched == ("heat.*",)
    with pytest.raises(StudyError, match=r"no point has any of the figures heat\.\*"):
        run_study(study(text % "'heat.*'"))


def test_a_worker_without_the_files_or_with_other_versions_says_so(study: Write, tmp_path: Path) -> None:
    from dataclasses import replace

    from bpusim.study.points import points_of
    from bpusim.study.run_point import run_jobs
    from bpusim.study.runner import jobs_of

    found = study("vary: {streams.alice.output: [1]}\n")
    drawn = points_of(found)
    assert str(tmp_path / "small.trace") in drawn.files
    (job,) = jobs_of(found, drawn.points, "kept", drawn)
    with pytest.raises(StudyError, match=r"has numpy .*, and the sweep 0\.9"):
        run_jobs([replace(job, versions={"numpy": "0.9"})])
    (tmp_path / "small.trace").unlink()
    with pytest.raises(StudyError, match=r"has no file .*small\.trace; run workers where the same folders are"):
        run_jobs([job])


@pytest.mark.parametrize("workers", [1, 4])
def test_results_do_not_depend_on_workers(study: Write, tmp_path: Path, workers: int) -> None:
    text = "vary: {streams.alice.output: {from: 1, to: 4}, machine.cores.clock: [1 GHz, 800 MHz]}\n"
    lines = []
    for count in (2, workers):
        out = tmp_path / f"{count}.jsonl"
        run_study(study(text), out, local_pool(count))
        lines.append(sorted(out.read_text().splitlines()))
    assert lines[0] == lines[1]
    assert len(lines[0]) == 8
