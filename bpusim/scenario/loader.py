"""Reads a scenario file: parents, overrides, machine preset, checks; all problems are raised at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from bpusim.documents import MAX_DEPTH, Document, KeyPath, parse_value, read_document
from bpusim.errors import BpusimError, HardwareError, Place, Problem, ScenarioError
from bpusim.hardware.presets import cooling_document, cooling_names, preset_document, preset_names
from bpusim.hardware.spec import MachineSpec
from bpusim.runtime import Policy, Priority, policy_maker
from bpusim.scenario.checks import cross_problems
from bpusim.scenario.model import Scenario
from bpusim.scenario.problems import problem_at, schema_problems
from bpusim.scenario.schema import ScenarioSpec

__all__ = ["load_machine", "load_scenario", "machine_document"]


def load_scenario(path: str | Path, set: Mapping[str, object] | Iterable[str] = ()) -> Scenario:
    """The scenario in file ``path``, changed by ``set``.

    ``set`` maps paths in the file (``machine.dram.arbitration``) to values, or lists texts ``path=value``
    whose values are YAML. Raises :class:`ScenarioError` with all problems found.
    """
    path = Path(path)
    layers, files = _read_chain(path)
    # Paths in a file start from its folder; those in an override from the working directory.
    folders = {layer.where().file: file.parent for layer, file in zip(layers, files, strict=True)}
    document = _overridden(_stacked(layers), [set] if isinstance(set, str) else set)
    if "scenario" in document.data and "streams" not in document.data:
        what, do = "this is a study; a scenario has streams", "run it by bpusim sweep"
        raise ScenarioError(what, place=document.key("scenario"), do=do)
    machine_files: list[Path] = []
    document, problems = _with_machine(document, folders, machine_files)
    unusable = "machine" if problems else ""
    traces = _traces(document, folders)
    problems.extend(cross_problems(document, traces))
    make_policy = _policy(document, folders, path.parent, problems)
    try:
        # As JSON, because a strict pydantic dataclass takes mappings from JSON only.
        spec = ScenarioSpec.model_validate_json(json.dumps(document.data))
    except ValidationError as failure:
        problems.extend(schema_problems(failure, document, but=unusable))
    except TypeError as failure:  # json's, from a Python caller's override
        problems.append(Problem(f"a value cannot be used: {failure}", Place("--set"), "give plain data"))
    if problems:
        raise ScenarioError(sorted(problems, key=_position))
    chain = tuple(file.resolve() for file in (*files, *machine_files))
    return Scenario(
        name=path.stem,
        file=chain[0],
        files=chain,
        about=spec.about,
        machine=spec.machine,
        models=spec.models,
        streams=spec.streams,
        host=spec.host,
        policy=spec.policy,
        make_policy=make_policy,
        engine=spec.engine,
        run=spec.run,
        document=document,
        folders=folders,
        traces=traces,
    )


def _policy(
    document: Document, folders: Mapping[str, Path], beside: Path, problems: list[Problem]
) -> Callable[[], Policy]:
    """What makes the policy that is named; a problem more if there is none."""
    name, at = document.data.get("policy", "priority"), document.where("policy")
    try:
        return policy_maker(name, folders.get(at.file, beside), beside) if isinstance(name, str) else Priority
    except ValueError as failure:
        what, _, do = str(failure).partition("; ")
        problems.append(problem_at(at, ("policy",), what, do))
        return Priority


def load_machine(preset: str, set: Mapping[str, object] | Iterable[str] = ()) -> MachineSpec:
    """The machine of ``preset`` (a name, or a machine file), changed by ``set`` as in a scenario
    (``machine.cores.clock=1 GHz``).

    Raises :class:`ScenarioError` or :class:`HardwareError` with all problems found.
    """
    document = machine_document(preset, set)
    try:
        return _MachineOnly.model_validate_json(json.dumps(document.data)).machine
    except ValidationError as failure:
        raise ScenarioError(schema_problems(failure, document)) from None


def machine_document(preset: str, set: Mapping[str, object] | Iterable[str] = ()) -> Document:
    """The same as plain data under ``machine``, with the place of each value; not checked against the schema."""
    place = Place(f"--machine {preset}")
    data = {"machine": {"preset": preset}}
    paths: list[KeyPath] = [(), ("machine",), ("machine", "preset")]
    named = Document(data, dict.fromkeys(paths, place), dict.fromkeys(paths, place))
    document, problems = _with_machine(_overridden(named, set), {}, [])
    if problems:
        raise HardwareError(problems)
    return document


class _MachineOnly(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    machine: MachineSpec


def _position(problem: Problem) -> tuple[str, int, int]:
    place = problem.place or Place("")
    return place.file, place.line, place.col


def _read_chain(path: Path) -> tuple[list[Document], list[Path]]:
    """The file and its parents, child first."""
    layers: list[Document] = []
    files: list[Path] = []
    named_at: Place | None = None
    while True:
        layer = read_document(path, error=ScenarioError, named_at=named_at)
        again = any(path.samefile(file) for file in files)
        layers.append(layer)
        files.append(path)
        if again:
            chain = " -> ".join(file.name for file in files)
            raise ScenarioError(f"extends goes in a circle: {chain}", place=named_at, do="remove one of them")
        parent = layer.data.get("extends")
        if parent is None:
            return layers, files
        named_at = layer.where("extends")
        if not isinstance(parent, str) or not parent:
            raise ScenarioError("extends: not a path", place=named_at, do="name one parent file")
        path = path.parent / parent


def _stacked(layers: list[Document]) -> Document:
    document = _normal(layers[-1])
    for layer in reversed(layers[:-1]):
        document = _changed(document, layer)
    return document


def _normal(document: Document) -> Document:
    """``machine: NAME`` as ``machine: {preset: NAME}``, and ``cooling`` in it, so that they can be merged."""
    data, place = document.data, dict[KeyPath, Place]()
    if isinstance(data.get("machine"), str):
        place["machine", "preset"] = document.where("machine")
        data = {**data, "machine": {"preset": data["machine"]}}
    elif isinstance(machine := data.get("machine"), dict) and isinstance(machine.get("cooling"), str):
        place["machine", "cooling", "preset"] = document.where("machine", "cooling")
        data = {**data, "machine": {**machine, "cooling": {"preset": machine["cooling"]}}}
    return Document(data, {**document.places, **place}, {**document.keys, **place}) if place else document


def _changed(base: Document, top: Document) -> Document:
    """``base`` changed by ``top``; a stream that turns from chat to frames, or back, is replaced."""
    top = _normal(top)
    old, new = base.data.get("streams"), top.data.get("streams")
    if isinstance(old, dict) and isinstance(new, dict):
        kept = {name: entry for name, entry in old.items() if not _turns(entry, new.get(name))}
        base = replace(base, data={**base.data, "streams": kept})
    return top.over(base)


def _turns(old: Any, new: Any) -> bool:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    return ("chat" in old and "frames" in new) or ("frames" in old and "chat" in new)


def _overridden(document: Document, overrides: Mapping[str, object] | Iterable[str]) -> Document:
    given = overrides.items() if isinstance(overrides, Mapping) else [(text, None) for text in overrides]
    problems: list[Problem] = []
    for text, value in given:
        try:
            name, content = (text, value) if isinstance(overrides, Mapping) else _assignment(text)
            document = _changed(document, _override(name, content, document))
        except ScenarioError as error:
            problems.extend(error.problems)
    if problems:
        raise ScenarioError(problems)
    return document


def _assignment(text: str) -> tuple[str, object]:
    name, equals, content = text.partition("=")
    place = Place(f"--set {name.strip() or text}")
    if not equals or not name.strip():
        raise ScenarioError(f"'{text}' sets nothing", place=place, do="write --set path=value")
    return name.strip(), parse_value(content.strip(), place=place, error=ScenarioError)


def _override(name: str, value: object, document: Document) -> Document:
    """One override as a document to merge, all at the place ``--set name``."""
    place = Place(f"--set {name}")
    path = _segments(name, document.data)
    if not all(path) or len(path) > MAX_DEPTH:
        do = "write keys joined by dots: machine.dram.preset"
        raise ScenarioError(f"'{name}' is not a path", place=place, do=do)
    if path[0] == "extends":
        raise ScenarioError("extends cannot be set", place=place, do="write it in the file")
    for n in range(1, len(path)):
        outer = document.where(*path[:n])
        if outer.file == f"--set {'.'.join(path[:n])}" and not isinstance(_value_at(document.data, path[:n]), dict):
            what = f"{'.'.join(path[:n])} is set too, to no mapping, and has no '{path[n]}'"
            raise ScenarioError(what, place=place, do="set one of them")
    data: Any = value
    for key in reversed(path):
        data = {key: data}
    around: list[KeyPath] = [path[:n] for n in range(1, len(path))]
    inside = list(_paths(value, path))
    # Mappings on the way keep the place of their keys, so that what they lack is reported where they stand.
    keys = dict.fromkeys([p for p in around if p not in document.keys] + inside, place)
    return Document(data, dict.fromkeys(around + inside, place), keys)


def _segments(name: str, data: Any) -> tuple[str, ...]:
    """The keys of a dotted path; where the data has a key with dots in it (``qwen2.5``), that key."""
    rest = name.split(".")
    path: list[str] = []
    while rest:
        known = data if isinstance(data, dict) else {}
        taken = next((n for n in range(len(rest), 0, -1) if ".".join(rest[:n]) in known), 1)
        path.append(".".join(rest[:taken]))
        data = known.get(path[-1])
        rest = rest[taken:]
    return tuple(path)


def _value_at(data: Any, path: Sequence[str]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _paths(value: object, path: KeyPath) -> Iterator[KeyPath]:
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _paths(item, (*path, key))


def _with_machine(document: Document, folders: Mapping[str, Path], files: list[Path]) -> tuple[Document, list[Problem]]:
    """The document with its machine changes merged into the preset, or why that cannot be. ``files``: gets the machine
    files that were read."""
    if "machine" not in document.data:
        return document, []
    machine = document.data["machine"]
    place, path = document.where("machine"), ("machine",)
    choose = f"write one of {', '.join(preset_names())}, a machine file, or {{preset: NAME, ...changes}}"
    bare = replace(document, data={**document.data, "machine": None})
    if not isinstance(machine, dict):
        return bare, [problem_at(place, path, "not the name of a preset or a mapping", choose)]
    if "preset" not in machine:
        return bare, [problem_at(document.key("machine"), path, "'preset' is missing", choose)]
    name, named_at = machine["preset"], document.where("machine", "preset")
    if not isinstance(name, str):
        return bare, [problem_at(named_at, ("machine", "preset"), "not the name of a preset", choose)]
    try:
        preset = _preset(name, named_at, folders.get(named_at.file, Path()), files).under("machine")
    except BpusimError as error:
        return bare, list(error.problems)
    changes = {key: value for key, value in machine.items() if key != "preset"}
    return _with_cooling(replace(document, data={**document.data, "machine": changes}).over(preset))


def _preset(name: str, named_at: Place, folder: Path, files: list[Path]) -> Document:
    """A preset by its name; or a machine file, which is all of a machine or names in ``preset`` what it changes."""
    if not name.endswith((".yaml", ".yml")):
        return preset_document(name, named_at)
    path = folder / name
    layer = read_document(path, error=HardwareError, named_at=named_at)
    if any(path.samefile(file) for file in files):
        raise HardwareError(f"preset goes in a circle: '{name}'", place=named_at, do="name another one")
    files.append(path)
    base = layer.data.get("preset")
    if base is None:
        return layer
    if not isinstance(base, str):
        what = "preset: not the name of a preset or a machine file"
        raise HardwareError(what, place=layer.where("preset"), do=f"write one of {', '.join(preset_names())}")
    changes = replace(layer, data={k: v for k, v in layer.data.items() if k != "preset"})
    return changes.over(_preset(base, layer.where("preset"), path.parent, files))


def _with_cooling(document: Document) -> tuple[Document, list[Problem]]:
    """The same of the machine's heat path: a preset, one with changes, or (without a preset) all its own."""
    machine = document.data["machine"]
    cooling = machine.get("cooling")
    if cooling is None:
        return document, []
    path: KeyPath = ("machine", "cooling")
    named = cooling.get("preset") if isinstance(cooling, dict) else cooling
    place = document.where(*path, "preset") if isinstance(cooling, dict) else document.where(*path)
    changes = {key: value for key, value in cooling.items() if key != "preset"} if isinstance(cooling, dict) else {}

    def having(value: Any) -> Document:
        return replace(document, data={**document.data, "machine": {**machine, "cooling": value}})

    if named is None and isinstance(cooling, dict):
        return having(changes), []
    if not isinstance(named, str):
        choose = f"write one of {', '.join(cooling_names())}, {{preset: NAME, ...changes}}, or nodes and links"
        return having(None), [problem_at(place, path, "not the name of a preset or a mapping", choose)]
    try:
        preset = cooling_document(named, place).under("cooling").under("machine")
    except HardwareError as error:
        return having(None), list(error.problems)
    return having(changes).over(preset), []


def _traces(document: Document, folders: Mapping[str, Path]) -> dict[str, Path]:
    """The path of each model's trace, from the folder of the file that names it."""
    models = document.data.get("models")
    traces: dict[str, Path] = {}
    for name, entry in models.items() if isinstance(models, dict) else ():
        trace = entry.get("trace") if isinstance(entry, dict) else None
        if isinstance(trace, str) and trace:
            folder = folders.get(document.where("models", name, "trace").file, Path())
            path = folder.absolute() / trace
            try:
                traces[name] = path.resolve()
            except (OSError, RuntimeError, ValueError):  # a name no file can have: the checks report it
                traces[name] = path
    return traces
