"""A study from its points to its rows: what is there already, what is still to run, what came out."""

from __future__ import annotations

import fnmatch
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpusim.errors import StudyError
from bpusim.study.points import Points, points_of
from bpusim.study.pools import Pool, Workers, local_pool
from bpusim.study.run_point import Row
from bpusim.study.runner import jobs_of, run_points
from bpusim.study.spec import Study, StudySpec, study_of
from bpusim.study.store import Store, latest

__all__ = ["Outcome", "run_study", "sweep"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows of a study in the order of its points; ``there``: so many of them were there before."""

    rows: tuple[Row, ...]
    points: int
    """More than there are rows if it was stopped."""
    there: int
    left_out: int
    """Points that its conditions left out."""
    torn: int = 0
    """Bytes of a line that a killed run had left."""
    unmatched: tuple[str, ...] = ()
    """Figures with a ``*`` in their names that no point has."""

    @property
    def counts(self) -> dict[str, int]:
        """Rows by status."""
        return dict(Counter(row["status"] for row in self.rows))


def run_study(
    study: Study,
    out: Path | None = None,
    pool: Pool | None = None,
    *,
    retry: bool = False,
    told: Callable[[int, int, int], None] = lambda _done, _there, _all: None,
    stop: Callable[[], bool] = lambda: False,
    points: Points | None = None,
) -> Outcome:
    """Run every point that has no row in ``out`` yet, and append its row there; without ``out`` rows are only returned.

    ``retry``: run those again whose row says that they failed. ``told``: is called with how many points have rows, how
    many had them before, and how many there are; ``stop``: is asked whether to leave the others. Raises
    :class:`BpusimError` for a study that is wrong, before anything runs, and for a file that cannot be written.
    """
    found = points if points is not None else points_of(study)
    keys = {p.key for p in found.points}
    with ExitStack() as stack:
        store = stack.enter_context(Store(out, retry=retry)) if out is not None else None
        kept = f"{out.absolute()}.traces" if out is not None else stack.enter_context(tempfile.TemporaryDirectory())
        there = len(keys & store.done) if store is not None else 0
        rows: dict[str, Row] = {}
        done = there
        told(done, there, len(keys))

        def take(fresh: list[Row]) -> None:
            nonlocal done
            if store is not None:
                store.add(fresh)
            else:
                rows.update((row["key"], row) for row in fresh)
            done += len(fresh)
            told(done, there, len(keys))

        left = [p for p in found.points if store is None or p.key not in store.done]
        if left:
            jobs = jobs_of(study, left, kept, found)
            with Workers(pool if pool is not None else local_pool()) as workers:
                run_points(jobs, len(left), workers, take, stop)
        if out is not None:
            rows = {key: row for key, row in latest(out).items() if key in keys}
        torn = store.torn if store is not None else 0
    unmatched = _unmatched(study, rows)
    in_order = tuple(rows[p.key] for p in found.points if p.key in rows)
    return Outcome(in_order, len(found.points), there, found.left_out, torn, unmatched)


def _unmatched(study: Study, rows: Mapping[str, Row]) -> tuple[str, ...]:
    """Figures that were asked for and that no point has. Raises :class:`StudyError` if there are no others."""
    good = [row for row in rows.values() if row["status"] == "ok"]
    names = {name for row in good for name in row["measures"]}
    if good and not names:
        wanted = ", ".join((*study.measures, *study.also))
        what, do = f"no point has any of the figures {wanted}", "look at the names in summary.json"
        raise StudyError(what, do=do)
    if not good:
        return ()
    return tuple(m for m in study.measures if not any(fnmatch.fnmatchcase(n, m) for n in names))


def sweep(
    scenario: str | Path, vary: Mapping[str, Sequence[object]], measure: Sequence[str] = (), *, seeds: int = 1
) -> Iterator[dict[str, Any]]:
    """One row a point of the full grid over ``vary`` (paths as in the file), in this process: point and figures.

    ``measure``: paths into the summary (``streams.alice.tpot_mean_ms``), ``*`` for any part of it. Raises
    :class:`StudyError` for what cannot be varied, and the error of a point that cannot be run.
    """
    from bpusim.study.run_point import run_jobs

    spec = StudySpec(
        scenario=str(Path(scenario).absolute()), vary={k: list(v) for k, v in vary.items()},
        measure=tuple(measure), seeds=seeds,
    )  # fmt: skip
    study = study_of(spec, Path())
    found = points_of(study)
    with tempfile.TemporaryDirectory() as kept:
        for job in jobs_of(study, found.points, kept, found):
            (row,) = run_jobs([job])
            if row["status"] != "ok":
                raise StudyError(f"{row['point']}: {row['error']}")
            means = {name: _mean(values) for name, values in row["measures"].items()}
            yield {**row["point"], **means}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return known[0] if len(known) == 1 else sum(known) / len(known) if known else None
