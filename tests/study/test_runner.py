"""Points over executors that do what they like: every point has one row, whatever becomes of its workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.errors import StudyError
from bpusim.study import Pool, Row
from bpusim.study.pools import Workers
from bpusim.study.recompile import Recompiler
from bpusim.study.run_point import Job, UnknownFigureError
from bpusim.study.runner import run_points


def job(key: str) -> Job:
    return Job(key, "s.yaml", {"a": key}, {}, ("x",), (), 1, False, Recompiler("kept"))


def row(key: str) -> Row:
    return {"key": key, "point": {"a": key}, "status": "ok", "measures": {"x": [1]}}


class Fake(Executor):
    """Ends what it is given at once, as ``does`` says; once it is broken it takes nothing more."""

    def __init__(self, does: Callable[[list[Job]], list[Row]]) -> None:
        self.does = does
        self.broken: BrokenExecutor | None = None
        self.ended = False

    def submit(self, _fn: Any, /, *args: Any, **_more: Any) -> Future[Any]:
        if self.broken is not None:
            raise self.broken
        future: Future[Any] = Future()
        try:
            future.set_result(self.does(list(args[0])))
        except BrokenExecutor as e:
            self.broken = e
            future.set_exception(e)
        except BaseException as e:
            future.set_exception(e)
        return future


class Place:
    """A pool of fakes. ``batches``: keys of all that were begun."""

    def __init__(self, does: Callable[[list[str]], None] = lambda _keys: None, workers: int = 2) -> None:
        self.batches: list[list[str]] = []
        self.made: list[Fake] = []
        self.does = does
        self.pool = Pool(self._make, workers, "a fake", self._end, (MemoryError,))

    def _make(self) -> Fake:
        self.made.append(Fake(self._run))
        return self.made[-1]

    def _run(self, jobs: list[Job]) -> list[Row]:
        self.batches.append([j.key for j in jobs])
        self.does(self.batches[-1])
        return [row(j.key) for j in jobs]

    @staticmethod
    def _end(executor: Executor) -> None:
        assert isinstance(executor, Fake)
        executor.ended = True


def run(place: Place, keys: list[str], stop: Callable[[], bool] = lambda: False) -> list[Row]:
    rows: list[Row] = []
    with Workers(place.pool) as workers:
        run_points(map(job, keys), len(keys), workers, rows.extend, stop)
    return rows


KEYS = [f"k{k}" for k in range(300)]


def test_every_point_has_one_row() -> None:
    place = Place()
    assert Counter(r["key"] for r in run(place, KEYS)) == Counter(KEYS)
    assert place.made[-1].ended


def test_batches_grow_while_they_are_short_and_leave_work_for_every_worker() -> None:
    place = Place(workers=2)
    run(place, KEYS)
    sizes = [len(b) for b in place.batches]
    assert sizes[0] == 1
    assert max(sizes) <= 64
    assert max(sizes) >= 16
    assert len(sizes) < 60
    assert sizes[-1] <= 4


def test_a_worker_that_a_point_takes_down_is_replaced_and_the_point_named() -> None:
    def dies(keys: list[str]) -> None:
        if "k57" in keys:
            raise BrokenExecutor("a process died")

    place = Place(dies)
    rows = {r["key"]: r for r in run(place, KEYS)}
    assert Counter(rows.keys()) == Counter(KEYS)
    failed = {k: r for k, r in rows.items() if r["status"] != "ok"}
    assert failed == {
        "k57": {
            "key": "k57", "point": {"a": "k57"}, "status": "failed",
            "error": "its worker died, and so did the next",
        }
    }  # fmt: skip
    assert all(fake.ended for fake in place.made)


@given(st.sets(st.integers(0, 39), max_size=4), st.integers(1, 40), st.integers(1, 4))
def test_whoever_dies_every_point_has_one_row(deadly: set[int], points: int, workers: int) -> None:
    """Some points take the pool down, others only their worker."""
    wrong = {f"k{k}": BrokenExecutor if k % 2 else MemoryError for k in deadly}

    def dies(keys: list[str]) -> None:
        for key in keys:
            if key in wrong:
                raise wrong[key]

    keys = KEYS[:points]
    rows = run(Place(dies, workers), keys)
    assert Counter(r["key"] for r in rows) == Counter(keys)
    assert {r["key"] for r in rows if r["status"] == "failed"} == set(keys) & set(wrong)


def test_a_worker_that_dies_once_costs_no_point() -> None:
    died = []

    def dies(keys: list[str]) -> None:
        if "k57" in keys and not died:
            died.append(keys)
            raise BrokenExecutor

    rows = run(Place(dies), KEYS)
    assert Counter(r["key"] for r in rows) == Counter(KEYS)
    assert all(r["status"] == "ok" for r in rows)


def test_who_asks_to_stop_is_heard_and_the_executor_ends() -> None:
    place = Place()
    rows: list[Row] = []
    with Workers(place.pool) as workers:
        run_points(map(job, KEYS), len(KEYS), workers, rows.extend, lambda: len(rows) >= 20)
    assert 20 <= len(rows) < 300
    assert place.made[-1].ended


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ModuleNotFoundError("no bpusim there"),
            "points cannot be run on a fake: ModuleNotFoundError: no bpusim there",
        ),
        (CancelledError(), "a fake: the workers are gone, or who gives them their work"),
    ],
)
def test_workers_that_cannot_run_points_end_the_sweep_with_a_clear_error(error: BaseException, said: str) -> None:
    def fails(_keys: list[str]) -> None:
        raise error

    with pytest.raises(StudyError, match=said):
        run(Place(fails), KEYS)


def test_an_error_of_the_study_goes_through_as_it_is() -> None:
    def fails(_keys: list[str]) -> None:
        raise UnknownFigureError("the summary has no 'x'", do="y")

    place = Place(fails)
    with pytest.raises(UnknownFigureError, match="the summary has no 'x'; y"):
        run(place, KEYS)
    assert place.made[-1].ended


def test_workers_that_never_live_to_see_a_point_done_end_the_sweep() -> None:
    def dies(_keys: list[str]) -> None:
        raise BrokenExecutor

    place = Place(dies)
    with pytest.raises(StudyError, match="the workers die before any point is done, on a fake"):
        run(place, KEYS)
    assert all(fake.ended for fake in place.made)


def test_nothing_to_run_makes_no_row() -> None:
    assert run(Place(), []) == []
