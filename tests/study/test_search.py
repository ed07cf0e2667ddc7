"""Searches: the optimum of a space that is known, the same whoever runs it, and after being stopped."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bpusim.errors import StudyError
from bpusim.metrics.studied import Searched
from bpusim.study import Study, local_pool, read_rows, run_study
from bpusim.study.search import search

pytest.importorskip("optuna", reason="the extra 'search' is not installed")
SPACE = """\
vary:
  machine.cores.clock: [400 MHz, 600 MHz, 800 MHz, 1 GHz, 1.2207 GHz]
  machine.cores.dma.port: [6 GB/s, 8 GB/s, 10 GB/s, 12 GB/s, 14 GB/s, 17.1 GB/s]
  machine.dram.preset: [LPDDR4X-3200x32, LPDDR4X-3200x64]
slo: [streams.alice.tpot_mean_ms <= 45]
cost: "machine.cores.clock / 1e8 + machine.cores.dma.port / 1e9
  + {'LPDDR4X-3200x32': 1, 'LPDDR4X-3200x64': 4}[machine.dram.preset]"
measure: [streams.alice.tpot_mean_ms, streams.alice.ttft_mean_ms]
"""
Write = Callable[[str], Study]


def cost(point: dict[str, Any]) -> float:
    """The expression in the study, by hand."""
    hertz = {"400 MHz": 4, "600 MHz": 6, "800 MHz": 8, "1 GHz": 10, "1.2207 GHz": 12.207}
    memory = {"LPDDR4X-3200x32": 1, "LPDDR4X-3200x64": 4}
    port = float(point["machine.cores.dma.port"].removesuffix(" GB/s"))
    return hertz[point["machine.cores.clock"]] + port + memory[point["machine.dram.preset"]]


def results(found: Searched) -> list[tuple[int, str, tuple[float | None, ...], bool, bool]]:
    return [(t.number, t.point, t.objectives, t.met, t.best) for t in found.tried]


def test_it_finds_the_optimum_of_a_space_that_was_swept_by_a_part_of_the_runs(study: Write, tmp_path: Path) -> None:
    every = run_study(study(SPACE), tmp_path / "all.jsonl", local_pool(2)).rows
    meets = [r for r in every if r["measures"]["streams.alice.tpot_mean_ms"][0] <= 45]
    least = min(cost(r["point"]) for r in meets)
    wanted = [r["point"] for r in meets if cost(r["point"]) == least]
    assert len(every) == 60
    assert 0 < len(meets) < 60
    shutil.copy(tmp_path / "all.jsonl", tmp_path / "r.jsonl")  # nothing has to run again: the keys are a sweep's
    for seed in range(5):
        text = f"{SPACE}search: {{minimize: [cost], trials: 36, seed: {seed}}}\n"
        found = search(study(text), tmp_path / "r.jsonl")
        assert found.there == len(found.tried) == 36
        assert [dict(t.values) for t in found.best] == wanted
        assert [t.objectives[0] for t in found.best] == [pytest.approx(least)]
    assert (tmp_path / "r.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()


def test_a_search_of_all_points_is_a_sweep(study: Write, tmp_path: Path) -> None:
    text = "vary: {streams.alice.output: [1, 2, 3, 4], streams.alice.prompt: [8, 16]}\nsearch: {maximize: [total.tokens_per_s], trials: 100}\n"  # noqa: E501
    found = search(study(text), tmp_path / "r.jsonl", local_pool(1))
    assert len(found.tried) == found.space == 8
    assert found.notes == ("all 8 points of the space were tried",)
    speeds = [t.objectives[0] for t in found.tried]
    assert None not in speeds
    assert found.best[0].objectives[0] == max(s for s in speeds if s is not None)


def test_several_objectives_have_a_front(study: Write, tmp_path: Path) -> None:
    text = f"{SPACE}search: {{minimize: [streams.*.tpot_mean_ms, machine.cores.dma.port], trials: 30}}\n"
    found = search(study(text), tmp_path / "r.jsonl")
    good = [t.objectives for t in found.tried if t.met]
    front = {t.objectives for t in found.best}
    for point in good:
        beaten = any(
            other != point and all(o <= p for o, p in zip(other, point, strict=True)) for other in good
        )  # fmt: skip
        assert (point in front) is not beaten
    assert len(front) > 1


@pytest.mark.parametrize("workers", [1, 3])
def test_what_it_finds_does_not_depend_on_workers(study: Write, tmp_path: Path, workers: int) -> None:
    found = study(f"{SPACE}search: {{minimize: [cost], trials: 20}}\n")
    one = search(found, tmp_path / "a.jsonl", local_pool(2))
    two = search(found, tmp_path / f"b{workers}.jsonl", local_pool(workers))
    assert results(one) == results(two)


def test_a_search_that_was_stopped_goes_on_and_ends_the_same(study: Write, tmp_path: Path) -> None:
    found = study(f"{SPACE}search: {{minimize: [cost], trials: 24, batch: 6}}\n")
    whole = search(found, tmp_path / "a.jsonl")
    looks = []

    def stop() -> bool:
        looks.append(0)
        return len(looks) > 20

    part = search(found, tmp_path / "b.jsonl", stop=stop)
    assert len(part.tried) < 24
    there = sum(1 for _ in read_rows(tmp_path / "b.jsonl"))
    ended = search(found, tmp_path / "b.jsonl")
    assert ended.there == there < 24
    assert results(ended) == results(whole)
    assert sorted((tmp_path / "a.jsonl").read_text().splitlines()) == sorted(
        (tmp_path / "b.jsonl").read_text().splitlines()
    )  # fmt: skip


def test_conditions_on_parameters_hold_for_every_point(study: Write, tmp_path: Path) -> None:
    text = f"{SPACE}where: [\"machine.cores.dma.port <= '10 GB/s'\"]\nsearch: {{minimize: [cost], trials: 60}}\n"
    found = search(study(text), tmp_path / "r.jsonl")
    assert len(found.tried) == 30
    assert {t.values["machine.cores.dma.port"] for t in found.tried} == {"6 GB/s", "8 GB/s", "10 GB/s"}
    assert found.notes == ("no point is left that meets where and was not tried, after 30",)


def test_points_that_fail_are_learnt_from_and_told(study: Write, tmp_path: Path) -> None:
    text = (
        "vary: {machine.dram.usable: [100 MB, 200 MB, 1 GB, 2 GB], streams.alice.output: [1, 2]}\n"
        "search: {minimize: [streams.alice.ttft_mean_ms], trials: 8}\n"
    )
    found = search(study(text), tmp_path / "r.jsonl")
    assert found.counts == {"ok": 4, "failed": 4}
    assert len(found.tried) == 4
    assert sum(found.errors.values()) == 4
    assert "are usable" in next(iter(found.errors))


def test_a_space_without_end(study: Write, tmp_path: Path) -> None:
    text = (
        "vary:\n  machine.cores.dma.port: {from: 4 GB/s, to: 17 GB/s}\n"
        "  machine.cores.clock: {from: 500 MHz, to: 1.2 GHz}\n"
        "search: {minimize: [machine.cores.dma.port], subject_to: [streams.alice.tpot_mean_ms <= 60], trials: 40}\n"
    )
    found = search(study(text), tmp_path / "r.jsonl")
    assert found.space is None
    (best,) = found.best
    assert best.room["streams.alice.tpot_mean_ms <= 60"] is not None
    # the narrowest port that does: no run of a narrower one meets it, and it is within a twentieth of the limit
    assert 0 <= float(best.room["streams.alice.tpot_mean_ms <= 60"] or 0.0) < 0.05


def test_nothing_meets_every_condition(study: Write, tmp_path: Path) -> None:
    text = "vary: {streams.alice.output: [2, 3]}\nsearch: {minimize: [events], subject_to: [streams.alice.tpot_mean_ms < 1]}\n"  # noqa: E501
    found = search(study(text), tmp_path / "r.jsonl")
    assert found.best == ()
    assert not any(t.met for t in found.tried)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the study does not say what to search for"),
        ("search: {trials: 5}\n", "there is nothing to search for"),
        ("search: {minimize: [cost]}\n", "there is no cost"),
        ("search: {minimize: ['a <']}\n", "cannot be read"),
        (
            "search: {minimise: [x]}\n",
            "study.yaml:3:10: error: unknown key 'search.minimise'; did you mean 'minimize'?",
        ),
        ("search: {minimize: [x], trials: 0}\n", "trials"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(study: Write, text: str, said: str) -> None:
    with pytest.raises(StudyError) as caught:
        search(study(f"vary: {{streams.alice.output: [2, 3]}}\n{text}"))
    assert said in str(caught.value)


def test_an_objective_that_no_point_has(study: Write, tmp_path: Path) -> None:
    text = "vary: {streams.alice.output: [2, 3]}\nsearch: {minimize: [streams.alice.tokns]}\n"
    with pytest.raises(StudyError, match=r"streams\.alice\.tokns"):
        search(study(text), tmp_path / "r.jsonl")


def test_without_optuna_it_says_what_to_install(study: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(StudyError, match=r"pip install 'bpusim\[search\]'"):
        search(study(f"{SPACE}search: {{minimize: [cost]}}\n"))


def test_rows_of_a_search_are_read_as_those_of_a_sweep(study: Write, tmp_path: Path) -> None:
    from bpusim.study.analysis import Asked, analyse

    found = search(study(f"{SPACE}search: {{minimize: [cost], trials: 20}}\n"), tmp_path / "r.jsonl")
    shown = analyse(tmp_path / "r.jsonl", None, Asked(slo=("streams.alice.tpot_mean_ms <= 45",)))
    assert shown.smallest is not None
    assert sum(c.met for c in shown.smallest.candidates) == sum(t.met for t in found.tried)
    assert json.loads(json.dumps(found.to_dict()))["tried"][0]["best"] is True
