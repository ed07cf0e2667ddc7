"""Which points to try next: Optuna's tree-structured Parzen estimator, asked for and told batches of points."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bpusim.errors import StudyError
from bpusim.study.axes import Axis
from bpusim.study.points import values_of
from bpusim.study.rules import quantity_of

__all__ = ["Chooser"]

_FINITE = 200_000
"""Points up to which a space is counted out, to find one that was not tried."""


class Chooser:
    """Chooses values, and learns how good they are. ``more``: by objective, whether more of it is better.

    What it chooses depends on ``seed`` and on what it was told, and on nothing else. Raises :class:`StudyError` without
    Optuna.
    """

    def __init__(self, axes: tuple[Axis, ...], more: Sequence[bool], seed: int) -> None:
        try:
            import optuna
        except ImportError:
            raise StudyError("bpusim search needs Optuna", do="pip install 'bpusim[search]'") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._axes = axes
        self._trials: dict[int, Any] = {}
        """Those that were asked for, and are not told yet."""
        self._failed = optuna.trial.TrialState.FAIL
        self._distributions = {axis.paths[0]: _distribution(axis) for axis in axes}
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
        ways = optuna.study.StudyDirection
        directions = [ways.MAXIMIZE if m else ways.MINIMIZE for m in more]
        self._study = optuna.create_study(sampler=sampler, directions=directions)
        self._worst: list[float | None] = [None] * len(more)
        self._more = list(more)
        self.size = self._size()
        """Points of the space; None if it has no end."""
        self.counted = self.size is not None and self.size <= _FINITE
        """Whether all its points can be gone through."""
        self._order = self._shuffled(seed)

    def ask(self) -> tuple[int, dict[str, Any]]:
        """(number of the trial, values by path)."""
        trial = self._study.ask(self._distributions)
        self._trials[trial.number] = trial
        return trial.number, values_of(self._axes, [_row(a, trial.params[a.paths[0]]) for a in self._axes])

    def other(self, wanted: Callable[[dict[str, Any]], bool]) -> bool:
        """Let the next one asked for be one that is ``wanted``, by chance; False if there is none, or too many to
        know."""
        for found in self._order:
            values = values_of(self._axes, [a.rows[k] for a, k in zip(self._axes, found, strict=True)])
            if wanted(values):
                self._study.enqueue_trial({axis.paths[0]: k for axis, k in zip(self._axes, found, strict=True)})
                return True
        return False

    def tell(self, number: int, objectives: Sequence[float], missed: Sequence[float]) -> None:
        """How good a trial is; ``missed``: by how much each condition, not above zero if it is met."""
        for k, value in enumerate(objectives):
            worst = self._worst[k]
            if worst is None or (value < worst if self._more[k] else value > worst):
                self._worst[k] = value
        self._told(number, objectives, missed)

    def failed(self, number: int, conditions: int) -> None:
        """A trial without a result: as bad as the worst, and far from every condition."""
        self._told(number, [w if w is not None else 0.0 for w in self._worst], (1e6,) * conditions)

    def leave(self, number: int) -> None:
        """A trial that is not run."""
        self._study.tell(self._trials.pop(number), state=self._failed)

    def _told(self, number: int, objectives: Sequence[float], missed: Sequence[float]) -> None:
        trial = self._trials.pop(number)
        for k, by in enumerate(missed):
            trial.set_constraint(f"condition {k}", by)
        self._study.tell(trial, list(objectives))

    def _size(self) -> int | None:
        size = 1
        for axis in self._axes:
            if axis.span is not None:
                return None
            size *= len(axis.rows)
        return size

    def _shuffled(self, seed: int) -> Iterator[tuple[int, ...]]:
        if not self.counted:
            return iter(())
        every = list(itertools.product(*(range(len(axis.rows)) for axis in self._axes)))
        random.Random(seed).shuffle(every)
        return iter(every)


def _distribution(axis: Axis) -> Any:
    """A number from 0 to below 1 along a range, a place in a list of numbers, or a choice."""
    from optuna import distributions

    if axis.span is not None:
        return distributions.FloatDistribution(0.0, 1.0 - 1e-9)
    count = len(axis.rows)
    if count > 1 and _numbers(axis.rows):
        return distributions.IntDistribution(0, count - 1)
    return distributions.CategoricalDistribution(list(range(count)))


def _numbers(rows: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a single parameter has numbers, or quantities of one unit, in order of size: neighbours are alike."""
    if len(rows[0]) != 1:
        return False
    values = [(float(v), "") if type(v) in (int, float) else quantity_of(v) for (v,) in rows]
    known = [v for v in values if v is not None]
    if len(known) < len(values) or len({unit for _, unit in known}) != 1:
        return False
    return all(a < b for (a, _), (b, _) in itertools.pairwise(known))


def _row(axis: Axis, at: float | int) -> tuple[Any, ...]:
    return axis.at(float(at)) if axis.span is not None else axis.rows[int(at)]
