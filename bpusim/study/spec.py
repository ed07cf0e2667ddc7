"""What a user writes to vary a scenario: a study file, read with the place of every mistake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from bpusim.documents import Document, read_document
from bpusim.errors import Place, Problem, StudyError, did_you_mean
from bpusim.scenario.section import Count, Section
from bpusim.study.axes import Axis, axis_of, zipped
from bpusim.study.rules import Rule

__all__ = ["MEASURES", "SampleSpec", "Study", "StudySpec", "load_study", "study_schema"]

MEASURES = ("total.decode_tokens_per_s", "streams.*.ttft_mean_ms", "streams.*.tpot_mean_ms", "streams.*.itl_p99_ms",
            "streams.*.latency_mean_ms", "streams.*.latency_p99_ms", "streams.*.fps", "streams.*.dropped",
            "streams.*.ends.*.p99_ms", "heat.mean_power_w", "heat.energy_per_token_j",
            "dram.achieved_bytes_per_s", "memory.resident_bytes")  # fmt: skip
"""Figures of each point, as far as it has them, unless others are asked for."""


_FILES = (".yaml", ".yml", ".csv", ".json")
"""Ends of values that may be files: machines, arrivals, lengths."""


_NO_FIGURES = ("machine", "models", "host", "policy", "engine", "run", "cost")
"""What is asked for by conditions and is none: sections of a scenario, and the study's cost."""


class SampleSpec(Section):
    """How points are drawn."""

    method: Literal["grid", "random", "lhs", "sobol"] = Field(
        "grid", description="grid: every combination; random; lhs: Latin hypercube; sobol"
    )
    points: Count | None = Field(None, description="How many are drawn; not for a grid")
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(0, description="Of the draw")


class SearchSpec(Section):
    """What to look for."""

    minimize: tuple[str, ...] = Field((), description="Figures that are to be small")
    maximize: tuple[str, ...] = Field((), description="Figures that are to be large")
    subject_to: tuple[str, ...] = Field((), description="Conditions on figures: streams.alice.ttft_p99_ms <= 200")
    trials: Count = Field(100, description="Points to try")
    batch: Count = Field(8, description="Points that are chosen at a time; the search learns from them together")
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(0, description="Of the search")


class StudySpec(Section):
    """A study file."""

    about: str = Field("", description="One sentence on what it is for")
    scenario: str = Field(description="The scenario to vary; its path from this file")
    set: dict[str, Any] = Field(default_factory=dict, description="Changes at every point: PATH: VALUE")
    vary: dict[str, Any] = Field(
        default_factory=dict, description="Values by path: a list, or {from, to, step | points, scale: linear | log}"
    )
    zip: tuple[dict[str, list[Any]], ...] = Field(
        (), description="Groups of paths whose values go together, row by row"
    )
    sample: SampleSpec = Field(default_factory=lambda: SampleSpec(), description="How points are drawn")
    where: tuple[str, ...] = Field((), description="Conditions that each point meets: machine.cores.count <= 2")
    skip: Literal["infeasible"] | None = Field(
        None, description="infeasible: a point that no machine can run is a row of its own kind, and no failure"
    )
    measure: tuple[str, ...] = Field((), description="Figures of the summary; * for any part of a name")
    seeds: Count = Field(1, description="Runs of each point, with seeds 0 to N-1")
    sources: tuple[str, ...] = Field((), description="Folders of models, to compile traces for other cores")
    slo: tuple[str, ...] = Field((), description="Conditions on figures that a machine is to meet")
    cost: str = Field("", description="What makes a machine small: an expression of parameters and figures")
    search: SearchSpec | None = Field(None, description="What bpusim search looks for")


@dataclass(frozen=True, slots=True)
class Study:
    """A study that has been read. ``changes``: by path, at every point; ``file``: None if there is none."""

    scenario: Path
    changes: Mapping[str, Any]
    axes: tuple[Axis, ...]
    sample: SampleSpec
    rules: tuple[Rule, ...]
    infeasible: bool
    """Whether a point that cannot be is a row of its own kind."""
    measures: tuple[str, ...]
    """Figures that each point must have; ``*`` for any part of a name."""
    also: tuple[str, ...]
    """Figures that are taken where they are: the usual ones if none are asked for, and ``needed``."""
    needed: tuple[str, ...]
    """Paths of parameters and figures in ``slo``, ``cost`` and ``search``."""
    seeds: int
    sources: tuple[Path, ...] = ()
    slo: tuple[str, ...] = ()
    cost: str = ""
    search: SearchSpec | None = None
    about: str = ""
    file: Path | None = None
    folder: Path = Path()
    """From which paths of traces in it start."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """Where a path or a condition stands in the file."""

    def placed(self, problem: Problem) -> Problem:
        """A problem of the scenario with what the study sets or varies, at its place in the study."""
        path = problem.place.file.removeprefix("--set ") if problem.place is not None else ""
        return replace(problem, place=self.places.get(path, problem.place))

    def resolved(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """``values`` with traces and other files that are there from this study's folder on, as
        :class:`~pathlib.Path`."""
        return {path: self._found(path.rpartition(".")[2], value) for path, value in values.items()}

    def _found(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: self._found(k, v) for k, v in value.items()}
        if not isinstance(value, str) or not (key == "trace" or value.endswith(_FILES)):
            return value
        file = self.folder / value
        return file if key == "trace" or file.is_file() else value

    def overrides(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What to change in the scenario at a point of these values: the whole before its parts."""
        changed = self.resolved({**self.changes, **values})
        return {path: _plain(v) for path, v in sorted(changed.items(), key=lambda item: item[0].count("."))}

    @property
    def name(self) -> str:
        """Of its file, or of its scenario."""
        return (self.file or self.scenario).stem


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return str(value.absolute()) if isinstance(value, Path) else value


def study_schema() -> dict[str, Any]:
    """The JSON Schema of study files."""
    return StudySpec.model_json_schema()


def is_study(path: Path) -> bool:
    """Whether the file is a study and no scenario. Raises :class:`StudyError` if it cannot be read."""
    data = read_document(path, error=StudyError).data
    studied = {"scenario", "vary", "zip", "sample", "where", "measure"} & data.keys()
    return bool(studied) and not {"streams", "models", "extends"} & data.keys()


def load_study(
    path: Path,
    *,
    changes: Mapping[str, Any] | None = None,
    sets: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
) -> Study:
    """Read a study file. ``changes``: keys of it that are to be others; ``sets``, ``search``: more of these sections.
    Raises :class:`StudyError` with every problem found."""
    document = read_document(path, error=StudyError)
    data = {**document.data, **(changes or {})}
    for section, more in (("set", sets), ("search", search)):
        if more and isinstance(data.get(section) or {}, dict):
            data[section] = {**(data.get(section) or {}), **more}
    try:
        spec = StudySpec.model_validate_json(json.dumps(data))
    except ValidationError as failure:
        raise StudyError(_problems(failure, document)) from None
    return study_of(spec, path.parent, path, document)


def study_of(spec: StudySpec, folder: Path, file: Path | None = None, document: Document | None = None) -> Study:
    """A study from its parts; paths in it start from ``folder``. Raises :class:`StudyError` with every problem."""
    problems: list[Problem] = []
    axes: list[Axis] = []

    def placed(e: StudyError, *path: str | int) -> None:
        place = document.where(*path) if document is not None else None
        problems.extend(Problem(p.what, p.place or place, p.do) for p in e.problems)

    for name, given in spec.vary.items():
        try:
            axes.append(axis_of(name, given))
        except StudyError as e:
            placed(e, "vary", name)
    for k, group in enumerate(spec.zip):
        try:
            if not group:
                raise StudyError("zip: an empty group", do="give it paths with lists of values, or leave it out")
            axes.append(zipped([axis_of(name, given) for name, given in group.items()]))
        except StudyError as e:
            placed(e, "zip", k)

    def rule(text: str, *path: str | int) -> Rule | None:
        try:
            return Rule.of(text, str(path[0]))
        except StudyError as e:
            placed(e, *path)
            return None

    rules = [rule(text, "where", k) for k, text in enumerate(spec.where)]
    judged = [rule(text, "slo", k) for k, text in enumerate(spec.slo)]
    judged += [rule(spec.cost, "cost")] if spec.cost else []
    if spec.search is not None:
        judged += [rule(text, "search", "subject_to", k) for k, text in enumerate(spec.search.subject_to)]
        judged += [rule(text, "search", "minimize", k) for k, text in enumerate(spec.search.minimize)]
        judged += [rule(text, "search", "maximize", k) for k, text in enumerate(spec.search.maximize)]
    needed = {path for r in judged if r is not None for path in r.paths() if path.split(".")[0] not in _NO_FIGURES}
    _check(spec, axes, problems, document)
    if problems:
        raise StudyError(problems)
    return Study(
        scenario=folder / spec.scenario,
        changes=spec.set,
        axes=tuple(axes),
        sample=spec.sample,
        rules=tuple(r for r in rules if r is not None),
        infeasible=spec.skip == "infeasible",
        measures=spec.measure,
        also=(*(() if spec.measure else MEASURES), *sorted(needed - set(spec.measure))),
        needed=tuple(sorted(needed)),
        seeds=spec.seeds,
        sources=tuple(folder / s for s in spec.sources),
        slo=spec.slo,
        cost=spec.cost,
        search=spec.search,
        about=spec.about,
        file=file,
        folder=folder,
        places=_places(spec, document),
    )


def _places(spec: StudySpec, document: Document | None) -> dict[str, Place]:
    if document is None:
        return {path: Place(f"--vary {path}") for path in spec.vary}
    places = {path: document.where("set", path) for path in spec.set}
    places |= {path: document.where("vary", path) for path in spec.vary}
    places |= {path: document.where("zip", k, path) for k, group in enumerate(spec.zip) for path in group}
    return places | {text: document.where("where", k) for k, text in enumerate(spec.where)}


def _check(spec: StudySpec, axes: list[Axis], problems: list[Problem], document: Document | None) -> None:
    def wrong(what: str, do: str, *path: str | int) -> None:
        problems.append(Problem(what, document.where(*path) if document is not None else None, do))

    if not spec.vary and not spec.zip:
        wrong("nothing is varied", "add vary: {path: [value, value]}", "vary")
    seen: dict[str, int] = {}
    for axis in axes:
        for path in axis.paths:
            seen[path] = seen.get(path, 0) + 1
            if path in spec.set:
                wrong(f"{path} is both set and varied", "keep one of them", "set", path)
            if path == "engine.seed" and spec.seeds > 1:
                wrong("engine.seed is varied, and seeds says how many there are", "keep one of them", "seeds")
    for path, times in seen.items():
        if times > 1:
            wrong(f"{path} is varied twice", "keep one of them", "zip")
    drawn = spec.sample.method != "grid"
    if drawn and spec.sample.points is None:
        wrong(f"sample: {spec.sample.method} without a number of points", "add points: 100", "sample")
    if not drawn and spec.sample.points is not None:
        wrong(
            "sample: a grid has as many points as it has", "leave points out, or write method: lhs", "sample", "points"
        )
    if not drawn and spec.search is None:
        for axis in axes:
            if axis.span is not None:
                wrong(
                    f"{axis.paths[0]}: a range without steps has no end of values",
                    "add step or points to it, or draw points: sample: {method: lhs, points: 100}",
                    "vary", axis.paths[0],
                )  # fmt: skip


def _problems(failure: ValidationError, document: Document) -> list[Problem]:
    known = sorted(StudySpec.model_fields)
    out = []
    for e in failure.errors(include_url=False):
        path = tuple(p for p in e["loc"] if not (isinstance(p, str) and p.startswith("function-")))
        name = ".".join(str(p) for p in path)
        if e["type"] == "extra_forbidden":
            fields = (
                known if len(path) == 1 else sorted((SampleSpec if path[0] == "sample" else SearchSpec).model_fields)
            )
            out.append(Problem(f"unknown key '{name}'", document.key(*path), did_you_mean(str(path[-1]), fields)))
        elif e["type"] == "missing":
            out.append(Problem(f"'{name}' is missing", Place(document.where().file), f"add {name}: ..."))
        else:
            out.append(Problem(f"{name}: {e['msg'][:1].lower()}{e['msg'][1:]}", document.where(*path), ""))
    return out
