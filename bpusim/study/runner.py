"""Runs the points of a study that have no row yet, in small batches, and takes the rows in as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, field
from time import monotonic

from bpusim.study.points import Point
from bpusim.study.pools import Pool
from bpusim.study.recompile import Recompiler
from bpusim.study.run_point import Job, Row, run_jobs
from bpusim.study.spec import Study

__all__ = ["jobs_of", "run_points"]

_AHEAD = 2
"""Batches that wait for each worker."""
_SECONDS = 0.5
"""A batch should take about so long: less, and handing it over costs more than it is worth."""
_MOST = 64
_TRIES = 2
"""A point that took its worker down with it so many times is not tried again."""


def jobs_of(study: Study, points: Sequence[Point], kept: str) -> list[Job]:
    """``kept``: the folder for traces that are compiled anew."""
    recompiler = Recompiler(kept, tuple(str(s.absolute()) for s in study.sources))
    scenario = str(study.scenario.absolute())
    return [
        Job(
            p.key,
            scenario,
            p.values,
            study.overrides(p.values),
            study.measures,
            study.seeds,
            study.infeasible,
            recompiler,
        )
        for p in points
    ]


@dataclass(slots=True)
class _Run:
    """Batches on their way. ``size``: points of the next one."""

    pool: Pool
    jobs: list[Job]
    executor: Executor
    size: int = 1
    under_way: dict[Future[list[Row]], tuple[list[Job], float]] = field(default_factory=dict)
    alone: list[Job] = field(default_factory=list)
    """Points of a batch whose worker died: one by one, to find which it was."""
    tries: dict[str, int] = field(default_factory=dict)

    def fill(self) -> None:
        """Give each worker enough to do."""
        while len(self.under_way) < self.pool.workers * _AHEAD and (self.jobs or self.alone):
            if self.alone:
                batch = [self.alone.pop()]
                if self.under_way:  # one at a time: whoever breaks the pool then is known
                    self.alone += batch
                    return
            else:
                batch, self.jobs = self.jobs[: self.size], self.jobs[self.size :]
            self.under_way[self.executor.submit(run_jobs, batch)] = batch, monotonic()
            if self.alone or (len(batch) == 1 and batch[0].key in self.tries):
                return

    def broke(self) -> list[Row]:
        """The executor is no more: all that was under way is done again."""
        lost = [job for batch, _ in self.under_way.values() for job in batch]
        self.under_way.clear()
        self.executor.shutdown(wait=False, cancel_futures=True)
        self.executor = self.pool.make()
        return self.again(lost)

    def again(self, lost: list[Job]) -> list[Row]:
        """Points whose worker died are done again, one by one; rows of those that were by themselves too often."""
        rows: list[Row] = []
        for job in lost:
            self.tries[job.key] = self.tries.get(job.key, 0) + (len(lost) == 1)
            if self.tries[job.key] >= _TRIES:
                what = "its worker died, and so did the next"
                rows.append({"key": job.key, "point": dict(job.point), "status": "failed", "error": what})
            else:
                self.alone.append(job)
        return rows


def run_points(jobs: Sequence[Job], pool: Pool, take: Callable[[list[Row]], None]) -> None:
    """Run ``jobs`` in ``pool``; ``take`` is given their rows, batch by batch, in whatever order they come."""
    run = _Run(pool, list(jobs), pool.make())
    try:
        run.fill()
        while run.under_way:
            ended, _ = wait(run.under_way, return_when=FIRST_COMPLETED)
            try:
                for future in ended:
                    rows = _rows(run, future)
                    if rows:
                        take(rows)
            except BrokenExecutor:
                rows = run.broke()
                if rows:
                    take(rows)
            run.fill()
    finally:
        run.executor.shutdown(wait=False, cancel_futures=True)


def _rows(run: _Run, future: Future[list[Row]]) -> list[Row]:
    """Those of a batch that has ended."""
    try:
        rows = future.result()
    except run.pool.died:
        return run.again(run.under_way.pop(future)[0])
    batch, since = run.under_way.pop(future)
    _adapt(run, len(batch), monotonic() - since)
    return rows


def _adapt(run: _Run, points: int, seconds: float) -> None:
    """Larger batches while they are over sooner than is worth it."""
    if points == run.size:
        wanted = run.size * 2 if seconds < _SECONDS else max(run.size // 2, 1) if seconds > 8 * _SECONDS else run.size
        run.size = min(wanted, _MOST, max(len(run.jobs) // (2 * run.pool.workers), 1))
