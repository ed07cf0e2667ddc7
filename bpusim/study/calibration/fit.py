"""Weighted least squares on the logarithms of what was measured over what is simulated.

Each observation (a row's TTFT or its decode rate) has the residual ``log(measured / simulated) / noise``: of a rate it
is that of its reciprocal, so both count relative errors. The covariance is ``(J'J)^-1 s^2``, ``s^2`` being the mean
square of the residuals by degrees of freedom, one at least: uncertainties are never below what the stated noise makes
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from bpusim.errors import StudyError
from bpusim.study.calibration.bench import Bench
from bpusim.study.calibration.parameters import Parameter
from bpusim.study.calibration.recipe import Recipe
from bpusim.study.compare import t95

if TYPE_CHECKING:
    from bpusim.arrays import Floats

__all__ = ["Fit", "Observation", "check_enough", "fit", "refit"]

Kind = Literal["ttft", "decode"]
_ALIKE = 0.98
"""Correlation above which two parameters cannot be told apart."""
_NO_EFFECT = 1e-4
"""Relative change of the figures, by as much of a parameter, below which it has no effect."""
_UNKNOWN = 1.0
"""Standard error of a logarithm beyond which the data say nothing of a parameter: a factor of e either way."""
_SHOWN = math.log(1e4)
"""Half width of a logarithm's interval beyond which its ends are not worth showing (or are no floats)."""
_SINGULAR = 0.02
"""Least singular value of unit columns of derivatives, below which they are as good as dependent: of two of them it is
``sqrt(1 - correlation)``."""
_CLOSE = 1e-3
"""Of the coordinate: so near a bound is at it."""
_TOLERANCE = 1e-3
"""Of the coordinates: a smaller step is the last. It is 0.1 % of a parameter: data with percents of noise do not know
it so well."""
_ROUGH = 0.01
"""The same of a rough fit, which only has to show what is twice off."""
_ORIGIN = 1.0
"""Coordinates are shifted by it for the solver, whose tolerance is relative to their length."""
_REFITS = 12


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured figure of a row. ``noise``: relative standard deviation of such figures."""

    recipe: Recipe
    kind: Kind
    measured: float
    """ms or tokens a second."""
    noise: float

    def residual(self, bench: Bench, at: Sequence[float]) -> float:
        """How much longer it was measured than simulated, as a logarithm over the noise."""
        figures = bench.figures(self.recipe, at)
        if self.kind == "ttft":
            return math.log(self.measured / figures.ttft_ms) / self.noise
        return math.log(figures.decode_tps / self.measured) / self.noise


@dataclass(frozen=True, slots=True)
class Fit:
    """Coordinates of the parameters, their covariance, and what it came from."""

    parameters: tuple[Parameter, ...]
    at: tuple[float, ...]
    jacobian: Floats
    residuals: Floats
    covariance: Floats

    @property
    def freedom(self) -> int:
        """Observations less parameters."""
        return len(self.residuals) - len(self.at)

    @property
    def correlation(self) -> Floats:
        """Of the parameters."""
        sd = np.sqrt(np.diag(self.covariance))
        return np.asarray(self.covariance / np.outer(sd, sd), dtype=np.float64)

    def half(self, k: int) -> float:
        """Half width of the 95 % interval of a coordinate: of the logarithm of the parameter."""
        return t95(self.freedom) * math.sqrt(self.covariance[k, k])

    def interval(self, k: int) -> tuple[float, float]:
        """95 % interval of a parameter in its base unit."""
        p, x, half = self.parameters[k], self.at[k], self.half(k)
        return p.value(x - half), p.value(x + half)


def check_enough(parameters: Sequence[Parameter], observations: Sequence[Observation]) -> None:
    """Refuse more parameters than there can be said anything of. Raises :class:`StudyError`."""
    n, p = len(observations), len(parameters)
    if n < p + 1:
        what = f"{p} parameter{'s' * (p > 1)} and {n} observation{'s' * (n != 1)} to fit"
        do = f"{p + 1} are the fewest that leave an error to estimate: fit fewer parameters, or measure more"
        raise StudyError(what, do=do)


def fit(
    bench: Bench, observations: Sequence[Observation], start: Sequence[float] | None = None, *, checked: bool = True
) -> Fit:
    """The parameters that fit best. Raises :class:`StudyError` where the data do not say what they are.

    Not ``checked`` it is a rough fit, in which large residuals count little (soft L1), and which raises only where
    there is nothing to solve.
    """
    from scipy.optimize import least_squares

    parameters = bench.parameters
    check_enough(parameters, observations)
    at = np.zeros(len(parameters)) if start is None else np.array(start)
    jacobian = _jacobian(bench, observations, at)
    _check_effects(parameters, observations, jacobian)
    low, high = zip(*(p.bounds for p in parameters), strict=True)
    solved = least_squares(
        lambda z: _residuals(bench, observations, z - _ORIGIN),
        at + _ORIGIN,
        jac=lambda z: _jacobian(bench, observations, z - _ORIGIN),
        bounds=([b + _ORIGIN for b in low], [b + _ORIGIN for b in high]),
        x_scale=1.0, xtol=_TOLERANCE if checked else _ROUGH, ftol=1e-4 if checked else _ROUGH, gtol=1e-6, max_nfev=40,
        loss="linear" if checked else "soft_l1",
    )  # fmt: skip
    best = solved.x - _ORIGIN
    jacobian = _jacobian(bench, observations, best)
    for p, x, a, b in zip(parameters, best, low, high, strict=True):
        if checked and min(x - a, b - x) < _CLOSE:
            what = f"{p.path} ended at {p.short(p.value(x))}, the {'least' if x - a < b - x else 'most'} it may be"
            raise StudyError(what, do="the data ask for more than it can do: fit another parameter, or start elsewhere")
    if checked:
        _check_effects(parameters, observations, jacobian)
        _check_apart(parameters, jacobian)
    residuals = _residuals(bench, observations, best)
    found = Fit(parameters, tuple(map(float, best)), jacobian, residuals, _covariance(jacobian, residuals))
    if checked:
        _check_known(found)
    return found


def refit(bench: Bench, whole: Fit, observations: Sequence[Observation], kept: Sequence[int]) -> tuple[float, ...]:
    """The parameters without some observations, ``kept`` being the others: Gauss-Newton from those of all.

    Every step simulates the kept rows again; the derivatives are those of all rows, which a few percent of a parameter
    hardly change, so that the steps end where the kept residuals are orthogonal to them.
    """
    rows = [observations[k] for k in kept]
    check_enough(whole.parameters, rows)
    jacobian = whole.jacobian[list(kept)]
    _check_effects(whole.parameters, rows, jacobian)
    low, high = (np.array(b) for b in zip(*(p.bounds for p in whole.parameters), strict=True))
    at = np.array(whole.at)
    for _ in range(_REFITS):
        step = -np.linalg.lstsq(jacobian, _residuals(bench, rows, at), rcond=None)[0]
        before, at = at, np.clip(at + step, low, high)
        if float(np.abs(at - before).max()) < _TOLERANCE:
            break
    return tuple(map(float, at))


def _residuals(bench: Bench, observations: Sequence[Observation], at: Sequence[float] | Floats) -> Floats:
    return np.array([o.residual(bench, list(at)) for o in observations])


def _jacobian(bench: Bench, observations: Sequence[Observation], at: Floats) -> Floats:
    """By differences, away from the nearer bound; a step is what it comes to in whole base units."""
    here = _residuals(bench, observations, at)
    columns = []
    for k, p in enumerate(bench.parameters):
        step = p.step(at[k]) * (-1 if at[k] > sum(p.bounds) / 2 else 1)
        there = at.copy()
        there[k] += step
        columns.append((_residuals(bench, observations, there) - here) / step)
    return np.stack(columns, axis=1)


def _covariance(jacobian: Floats, residuals: Floats) -> Floats:
    scale = max(float(residuals @ residuals) / (len(residuals) - jacobian.shape[1]), 1.0)
    return np.asarray(np.linalg.pinv(jacobian.T @ jacobian) * scale, dtype=np.float64)


def _check_effects(parameters: Sequence[Parameter], observations: Sequence[Observation], jacobian: Floats) -> None:
    noise = np.array([o.noise for o in observations])
    effects = np.abs(jacobian * noise[:, None]).max(axis=0)
    for p, effect in zip(parameters, effects, strict=True):
        if effect < _NO_EFFECT:
            raise StudyError(f"{p.path} has no effect on what was measured", do="leave it out of --fit")


def _check_apart(parameters: Sequence[Parameter], jacobian: Floats) -> None:
    unit = jacobian / np.linalg.norm(jacobian, axis=0)
    _, sizes, directions = np.linalg.svd(unit, full_matrices=False)
    if sizes[-1] < _SINGULAR:
        parts = np.abs(directions[-1])
        names = [p.path for p, part in zip(parameters, parts, strict=True) if part > 0.3]
        raise StudyError(f"{' and '.join(names)} cannot be told apart by these rows", do="fit one of them")


def _check_known(found: Fit) -> None:
    matrix = found.correlation
    for k, p in enumerate(found.parameters):
        for j in range(k):
            if abs(matrix[j, k]) > _ALIKE:
                other = found.parameters[j].path
                what = f"{other} and {p.path} cannot be told apart by these rows: correlation {matrix[j, k]:.3f}"
                raise StudyError(what, do="fit one of them")
        if math.sqrt(found.covariance[k, k]) > _UNKNOWN:
            what = f"{p.path} is not determined by the rows"
            if found.half(k) < _SHOWN:
                low, high = (p.short(v) for v in found.interval(k))
                what += f": 95 % from {low} to {high}"
            raise StudyError(what, do="leave it out of --fit, or add rows on which it acts more")
