"""Runs the points of a study that have no row yet, in small batches, and takes the rows in as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic

from bpusim.errors import BpusimError, StudyError
from bpusim.study.points import Point, Points, Space
from bpusim.study.pools import Workers
from bpusim.study.recompile import Recompiler
from bpusim.study.run_point import Job, Row, run_jobs, versions
from bpusim.study.spec import Study

__all__ = ["jobs_of", "run_points"]

_AHEAD = 2
"""Batches that wait for each worker."""
_SECONDS = 0.5
"""A batch should take about so long: less, and handing it over costs more than it is worth."""
_MOST = 64
_TRIES = 2
"""A point that took its worker down with it so many times is not tried again."""
_BREAKS = 10
"""Executors that break before any point is done, until it is no point's fault."""
_LOOK = 0.2
"""Seconds until who asks to stop is heard at the latest."""


def jobs_of(study: Study, points: Iterable[Point], kept: str, space: Space | Points) -> Iterator[Job]:
    """``kept``: the folder for traces that are compiled anew; ``space``: what they need."""
    recompiler = Recompiler(kept, tuple(str(s.absolute()) for s in study.sources))
    scenario = str(study.scenario.absolute())
    return (
        Job(
            p.key,
            scenario,
            p.values,
            study.overrides(p.values),
            space.must,
            study.also,
            study.seeds,
            study.infeasible,
            recompiler,
            space.files,
            versions(),
        )
        for p in points
    )


@dataclass(slots=True)
class _Run:
    """Batches on their way. ``size``: points of the next one."""

    workers: Workers
    fresh: Iterator[Job]
    left: int
    """Jobs that have not been given to a worker."""
    size: int = 1
    under_way: dict[Future[list[Row]], tuple[list[Job], float]] = field(default_factory=dict)
    back: list[Job] = field(default_factory=list)
    """A batch that no worker took."""
    alone: list[Job] = field(default_factory=list)
    """Points of a batch whose worker died: one by one, to find which it was."""
    tries: dict[str, int] = field(default_factory=dict)
    breaks: int = 0
    """Times that the executor broke."""
    came: bool = False
    """Whether a batch has ever come back."""

    def fill(self) -> None:
        """Give each worker enough to do."""
        while len(self.under_way) < self.workers.pool.workers * _AHEAD and (self.left or self.alone):
            if self.alone:
                batch = [self.alone.pop()]
                if self.under_way:  # one at a time: whoever breaks the pool then is known
                    self.alone += batch
                    return
            else:  # towards the end small ones again, so that no worker waits for the last
                size = max(min(self.size, self.left // (2 * self.workers.pool.workers)), 1)
                batch, self.back = self.back or list(islice(self.fresh, size)), []
                self.left -= len(batch)
            try:
                future = self.workers.executor.submit(run_jobs, batch)
            except BrokenExecutor:
                self.back = batch
                self.left += len(batch)
                raise
            self.under_way[future] = batch, monotonic()
            if self.alone or (len(batch) == 1 and batch[0].key in self.tries):
                return

    def broke(self) -> list[Row]:
        """The executor is no more: all that was under way is done again. Raises :class:`StudyError` if no worker has
        lived to see a point done."""
        self.breaks += 1
        if self.breaks == _BREAKS and not self.came:
            what = f"the workers die before any point is done, on {self.workers.pool.where}"
            raise StudyError(what, do="run one point by bpusim run, and look at what it needs")
        lost = [job for batch, _ in self.under_way.values() for job in batch]
        self.under_way.clear()
        self.workers.renew()
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


def run_points(
    jobs: Iterable[Job],
    count: int,
    workers: Workers,
    take: Callable[[list[Row]], None],
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Run ``count`` ``jobs``; ``take`` is given their rows, batch by batch, in whatever order they come.
    Once ``stop`` says so, the others are left."""
    run = _Run(workers, iter(jobs), count)
    while (run.left or run.alone or run.under_way) and not stop():
        try:
            run.fill()
            ended, _ = wait(run.under_way, timeout=_LOOK, return_when=FIRST_COMPLETED)
            for future in ended:
                rows = _rows(run, future)
                if rows:
                    take(rows)
        except BrokenExecutor:
            rows = run.broke()
            if rows:
                take(rows)


def _rows(run: _Run, future: Future[list[Row]]) -> list[Row]:
    """Those of a batch that has ended."""
    try:
        rows = future.result()
    except run.workers.pool.died:
        return run.again(run.under_way.pop(future)[0])
    except (BpusimError, BrokenExecutor):
        raise
    except CancelledError:
        what = f"{run.workers.pool.where}: the workers are gone, or who gives them their work"
        raise StudyError(what, do="start them again; the same command goes on with -o") from None
    except Exception as e:
        what = f"points cannot be run on {run.workers.pool.where}: {type(e).__name__}: {e}"
        raise StudyError(what, do="look at its workers; those before are safe") from e
    batch, since = run.under_way.pop(future)
    run.came = True
    _adapt(run, len(batch), monotonic() - since)
    return rows


def _adapt(run: _Run, points: int, seconds: float) -> None:
    """Larger batches while they are over sooner than is worth it, smaller ones if they take long."""
    if points == run.size:
        if seconds < _SECONDS:
            run.size = min(run.size * 2, _MOST)
        elif seconds > 8 * _SECONDS:
            run.size = max(run.size // 2, 1)
