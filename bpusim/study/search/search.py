"""Looks for the best points of a study's space: chooses a batch, runs it, learns, and so on."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bpusim.errors import StudyError
from bpusim.metrics.studied import Objective, Searched
from bpusim.study.analysis.objectives import expressions
from bpusim.study.points import Point, Space, drawn
from bpusim.study.pools import Pool, Workers, local_pool
from bpusim.study.rules import Rule
from bpusim.study.run_point import Row
from bpusim.study.runner import jobs_of, run_points
from bpusim.study.search.chooser import Chooser
from bpusim.study.search.judged import Aims, searched
from bpusim.study.spec import SampleSpec, SearchSpec, Study
from bpusim.study.store import Store, latest

__all__ = ["search"]

_AGAIN = 32
"""Choices in a row that were tried before or that a condition leaves out, until another point is taken by chance."""
_IN_VAIN = 1000
"""Choices in a row that lead to nothing, until no point is left."""


def search(
    study: Study,
    out: Path | None = None,
    pool: Pool | None = None,
    *,
    told: Callable[[int, int, int], None] = lambda _done, _there, _all: None,
    stop: Callable[[], bool] = lambda: False,
) -> Searched:
    """The best points of ``study`` by its ``search``.

    Rows go to ``out`` as those of a sweep do. A search that was stopped is gone through again from its begin with the
    rows that are there, so that it ends as one that was not stopped. What it finds depends on seed and batch, not on
    workers. ``told``, ``stop``: as of :func:`bpusim.study.run_study`. Raises :class:`BpusimError` for a study that is
    wrong, before anything runs.
    """
    spec = study.search
    if spec is None:
        raise StudyError("the study does not say what to search for", do="add search: {minimize: [FIGURE]}")
    aims = aims_of(study, spec)
    space = Space(study, drawn(study.axes, SampleSpec(method="lhs", points=64)))
    run = _Search(study, spec, aims, space, Chooser(study.axes, [more for _, more in aims.objectives], spec.seed))
    run.trials = min(spec.trials, run.chooser.size or spec.trials)
    with ExitStack() as stack:
        if out is not None:
            run.store = stack.enter_context(Store(out))
            run.known = latest(out)
        kept = f"{out.absolute()}.traces" if out is not None else stack.enter_context(tempfile.TemporaryDirectory())
        workers: Workers | None = None
        while len(run.tried) < run.trials and not stop():
            batch = run.choose()
            run.ended = not batch
            missing = [point for _, point in batch if point.key not in run.known]
            if missing and workers is None:
                workers = stack.enter_context(Workers(pool if pool is not None else local_pool()))
            if missing and workers is not None:
                jobs = jobs_of(study, missing, kept, space)
                run_points(jobs, len(missing), workers, lambda rows: run.take(rows, told), stop)
            if not run.learn(batch):
                break
            told(len(run.tried), len(run.tried) - run.new, run.trials)
    return _result(run)


def aims_of(study: Study, spec: SearchSpec) -> Aims:
    """Objectives and conditions of a search. Raises :class:`StudyError`."""
    found = []
    for texts, way in ((spec.minimize, "min"), (spec.maximize, "max")):
        for text in texts:
            if text.strip() == "cost" and not study.cost:
                raise StudyError("search: there is no cost", do="add cost: EXPRESSION to the study, or --cost")
            found += expressions(f"{way}: {text}", study.cost)
    if not found:
        raise StudyError("search: there is nothing to search for", do="add minimize: [FIGURE], or maximize")
    conditions = [part for t in (*study.slo, *spec.subject_to) for part in Rule.of(t, "search").conditions()]
    return Aims(tuple(found), tuple(conditions))


@dataclass(slots=True)
class _Search:
    study: Study
    spec: SearchSpec
    aims: Aims
    space: Space
    chooser: Chooser
    store: Store | None = None
    trials: int = 0
    ended: bool = False
    """Whether there was no point left to try."""
    known: dict[str, Row] = field(default_factory=dict)
    """Rows by key, of this search and of others."""
    tried: dict[str, Row] = field(default_factory=dict)
    """Rows of this search, in its order."""
    new: int = 0
    fresh: int = 0
    """Rows of the batch that is run."""

    def choose(self) -> list[tuple[int, Point]]:
        """Up to a batch of trials with points that were not tried; none if no more are to be found."""
        self.fresh = 0
        batch: list[tuple[int, Point]] = []
        room = min(self.spec.batch, self.trials - len(self.tried))
        in_vain = 0
        while len(batch) < room and in_vain < _IN_VAIN:
            if in_vain >= _AGAIN and not self.chooser.other(lambda v: self._fits(v, batch)) and self.chooser.counted:
                break
            number, values = self.chooser.ask()
            if self._fits(values, batch):
                batch.append((number, self.space.point(values)))
                in_vain = 0
            else:
                self.chooser.leave(number)
                in_vain += 1
        return batch

    def _fits(self, values: dict[str, Any], batch: Sequence[tuple[int, Point]]) -> bool:
        """Whether they meet the study's conditions, and were not tried yet."""
        if not self.space.meets(values):
            return False
        key = self.space.point(values).key
        return key not in self.tried and all(key != p.key for _, p in batch)

    def take(self, rows: Sequence[Row], told: Callable[[int, int, int], None]) -> None:
        """Rows that a worker made."""
        if self.store is not None:
            self.store.add(rows)
        self.known.update((row["key"], row) for row in rows)
        self.new += len(rows)
        self.fresh += len(rows)
        done = len(self.tried) + self.fresh
        told(done, done - self.new, self.trials)

    def learn(self, batch: Sequence[tuple[int, Point]]) -> bool:
        """Tell how good the points of a batch are, in its order; False if there is nothing left to try, or some have no
        row since it was stopped."""
        for number, point in batch:
            row = self.known.get(point.key)
            if row is None:
                return False
            self.tried[point.key] = row
            judged = self.aims.judge(row, self.study, self.space.base)
            if judged is None:
                self.chooser.failed(number, max(len(self.aims.conditions), 1))
            else:
                self.chooser.tell(number, *judged)
        return bool(batch)


def _result(run: _Search) -> Searched:
    rows = list(run.tried.values())
    notes = []
    if len(rows) == run.chooser.size:
        notes.append(f"all {len(rows)} points of the space were tried")
    elif run.ended:
        notes.append(f"no point is left that meets where and was not tried, after {len(rows)}")
    found: Any = searched(rows, run.aims, run.study, run.space.base) if any(r["status"] == "ok" for r in rows) else ()
    return Searched(
        name=run.study.name,
        objectives=tuple(Objective("cost" if r.key == "cost" else r.text, more) for r, more in run.aims.objectives),
        tried=found,
        counts=dict(Counter(row["status"] for row in rows)),
        there=len(rows) - run.new,
        space=run.chooser.size,
        notes=tuple(notes),
        errors=dict(Counter(row["error"] for row in rows if row["status"] != "ok").most_common()),
    )
