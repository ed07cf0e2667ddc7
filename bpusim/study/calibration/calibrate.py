"""Fits a machine to measurements, and says how well it tells rows that it has not seen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bpusim.errors import StudyError
from bpusim.hardware import MachineSpec
from bpusim.study.calibration.baselines import constant_efficiency, per_layer, per_token
from bpusim.study.calibration.bench import Bench, Figures
from bpusim.study.calibration.fit import Fit, Observation, check_enough, fit, refit
from bpusim.study.calibration.outliers import Outlier, apart, check_units, impossible, of_repeats
from bpusim.study.calibration.parameters import Parameter, parameters_of
from bpusim.study.calibration.recipe import Compile, Recipe, recipe_of, told_bytes
from bpusim.study.calibration.rows import Measured, Measurements

__all__ = ["Calibration", "Noise", "RowResult", "calibrate"]


@dataclass(frozen=True, slots=True)
class Noise:
    """Relative standard deviations of published figures: about 3 % on decode rates, 10 to 15 % on first tokens."""

    decode: float = 0.03
    ttft: float = 0.12


@dataclass(frozen=True, slots=True)
class RowResult:
    """A row beside what the machine makes of it. ``unseen``: with parameters fitted without the row; None if nothing is
    fitted. ``notes``: what was assumed, and why figures do not count."""

    row: Measured
    recipe: Recipe
    fitted: Figures
    unseen: Figures | None
    efficiency_tps: float | None
    per_layer_tps: float | None
    per_token_tps: float | None
    counts: tuple[bool, bool]
    """Whether its TTFT and its decode rate count in the means."""
    notes: tuple[str, ...]

    def error(self, kind: str, figures: Figures | None) -> float | None:
        """Relative error of a figure (``ttft`` or ``decode``); None where there is nothing to compare."""
        measured = self.row.ttft_ms if kind == "ttft" else self.row.decode_tps
        if measured is None or figures is None:
            return None
        return (figures.ttft_ms if kind == "ttft" else figures.decode_tps) / measured - 1

    def counted(self, kind: str) -> bool:
        """Whether a figure counts in the means."""
        return self.counts[kind == "decode"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A machine beside measurements. ``found`` is None if nothing was fitted."""

    measurements: Measurements
    machine: MachineSpec
    parameters: tuple[Parameter, ...]
    found: Fit | None
    rows: tuple[RowResult, ...]
    outliers: tuple[Outlier, ...]
    unusable: tuple[tuple[Measured, str], ...]
    observations: int
    runs: int

    def mean(self, kind: str, of: Callable[[RowResult], Figures | float | None]) -> float | None:
        """Mean of the absolute errors of what ``of`` gives for each row that counts; None if it gives none."""
        errors = []
        for r in self.rows:
            value = of(r)
            if isinstance(value, Figures):
                value = r.error(kind, value)
            if value is not None and r.counted(kind):
                errors.append(abs(value))
        return sum(errors) / len(errors) if errors else None


def calibrate(
    measurements: Measurements,
    machine: str,
    paths: Sequence[str],
    compiled: Compile,
    *,
    overrides: Sequence[str] = (),
    noise: Noise = Noise(),
    keep_outliers: bool = False,
    traces: Path | None = None,
    told: Callable[[int], None] = lambda _runs: None,
) -> Calibration:
    """Fit the numbers at ``paths`` of ``machine`` (a preset, or a machine file), changed by ``overrides``, to rows.

    Without ``paths`` the machine is compared as it is. ``traces``: a folder that keeps compiled traces; ``told``: how
    many runs there have been. Raises :class:`StudyError` where the data do not carry the parameters.
    """
    from bpusim.scenario import load_machine, machine_document

    spec = load_machine(machine, overrides)
    parameters = parameters_of(paths, machine_document(machine, overrides), spec)
    name = str(Path(machine).absolute()) if machine.endswith((".yaml", ".yml")) else machine
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        bench = Bench(name, tuple(overrides), parameters, work, told)
        recipes, unusable = _recipes(measurements, spec, traces or work, compiled)
        observations = [o for r in recipes for o in _observations(r, noise)]
        flagged = [] if keep_outliers else [*of_repeats(observations), *impossible(observations)]
        check_units(observations, flagged)
        found = None
        if parameters:
            fitted, found, more = _fitted(bench, observations, flagged, keep_outliers)
            flagged = [*flagged, *more]
        else:
            fitted = []
        rows = _results(bench, recipes, fitted, found, flagged)
        return Calibration(
            measurements, spec, parameters, found, tuple(rows), tuple(flagged), tuple(unusable), len(fitted), bench.runs
        )


def _recipes(
    measurements: Measurements, machine: MachineSpec, folder: Path, compiled: Compile
) -> tuple[list[Recipe], list[tuple[Measured, str]]]:
    recipes, unusable = [], []
    folder.mkdir(parents=True, exist_ok=True)
    for row in measurements.rows:
        try:
            recipes.append(recipe_of(row, machine, folder, compiled, measurements.file))
        except StudyError as e:
            unusable.append((row, e.problems[0].what))
    if not recipes:
        row, why = unusable[0]
        raise StudyError(f"no row can be simulated; the first, {row.id}: {why}", do="look at docs/CALIBRATION.md")
    return recipes, unusable


def _observations(recipe: Recipe, noise: Noise) -> list[Observation]:
    row, found = recipe.row, []
    if row.ttft_ms is not None and row.prompt is not None:
        found.append(Observation(recipe, "ttft", row.ttft_ms, noise.ttft))
    if row.decode_tps is not None:
        found.append(Observation(recipe, "decode", row.decode_tps, noise.decode))
    return found


def _fitted(
    bench: Bench, observations: Sequence[Observation], flagged: Sequence[Outlier], keep: bool
) -> tuple[list[Observation], Fit, list[Outlier]]:
    """(observations that count, the fit, outliers that it showed): from a rough fit that hardly minds them."""
    out = {id(o.observation) for o in flagged}
    rest = [o for o in observations if id(o) not in out]
    more: list[Outlier] = []
    start: tuple[float, ...] | None = None
    check_enough(bench.parameters, rest)
    if not keep:
        rough = fit(bench, rest, checked=False)
        more = apart(rough, rest)
        check_units(observations, [*flagged, *more])
        start = rough.at
        rest = [o for o in rest if all(o is not m.observation for m in more)]
    return rest, fit(bench, rest, start), more


def _results(
    bench: Bench,
    recipes: Sequence[Recipe],
    fitted: Sequence[Observation],
    found: Fit | None,
    flagged: Sequence[Outlier],
) -> list[RowResult]:
    from_whole = found.at if found is not None else ()
    bad = {(id(o.observation.recipe), o.observation.kind): o.why for o in flagged}
    decoding = [r for r in recipes if r.row.decode_tps is not None and (id(r), "decode") not in bad]
    data = [(r.moved, r.layers, r.row.decode_tps or 0.0) for r in decoding]
    weights = [(float(r.row.bytes_estimate or r.weight_bytes), 1, r.row.decode_tps or 0.0) for r in decoding]
    formulas = zip(constant_efficiency(data), per_layer(data), per_token(weights), strict=True)
    simple = dict(zip(map(id, decoding), formulas, strict=True))
    rows = []
    for recipe in recipes:
        whole = bench.figures(recipe, from_whole)
        unseen = None
        if found is not None:
            kept = [k for k, o in enumerate(fitted) if o.recipe is not recipe]
            at = refit(bench, found, fitted, kept) if len(kept) < len(fitted) else from_whole
            unseen = bench.figures(recipe, at)
        ttft = recipe.row.prompt is not None and recipe.row.ttft_ms is not None and (id(recipe), "ttft") not in bad
        decode = recipe.row.decode_tps is not None and (id(recipe), "decode") not in bad
        assumed = [f"assumed: {', '.join(recipe.assumed)}"] if recipe.assumed else []
        notes = [*assumed, *(f"{k}: {why}" for (i, k), why in bad.items() if i == id(recipe))]
        size = told_bytes(recipe)
        efficiency, layered, constant = simple.get(id(recipe), (None, None, None))
        rows.append(
            RowResult(
                recipe.row,
                recipe,
                whole,
                unseen,
                efficiency,
                layered,
                constant,
                (ttft, decode),
                (*notes, *([size] if size is not None else [])),
            )
        )
    return rows
