"""Checks across the sections of a scenario: names that must exist, files that must be there.

They read the raw data, not the validated models, so that they report together with what the schema finds; a
value of the wrong type is the schema's to report and passes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bpusim.documents import Document, KeyPath, file_hint
from bpusim.errors import Problem, did_you_mean
from bpusim.scenario.problems import problem_at

__all__ = ["cross_problems"]


def cross_problems(document: Document, traces: dict[str, Path]) -> Iterator[Problem]:
    """Problems between sections of ``document``; ``traces`` are the paths of the models' traces."""
    for name in _entries(document, "models"):
        if name in traces:
            yield from _trace_exists(document, name, traces[name])
    for problem in _between(document):
        yield replace(problem, between=True)


def _between(document: Document) -> Iterator[Problem]:
    models = _entries(document, "models")
    cores = _cores(document)
    for name in models:
        yield from _cores_exist(document, name, cores)
        yield from _heap_exists(document, name)
    yield from _masters_exist(document, cores)
    yield from _devices_exist(document, cores)
    yield from _nodes_exist(document, cores)
    yield from _memory_clock_stays(document)
    for name in _entries(document, "streams"):
        yield from _model_exists(document, name, sorted(models))
    yield from _affinities_known(document)
    yield from _run_ends(document)


def _at(document: Document, *path: str | int) -> Any:
    value: Any = document.data
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _entries(document: Document, section: str) -> dict[str, dict[str, Any]]:
    entries = _at(document, section)
    if not isinstance(entries, dict):
        return {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def _names(document: Document, *path: str) -> list[str]:
    entries = _at(document, *path)
    return list(entries) if isinstance(entries, dict) else []


def _cores(document: Document) -> list[str]:
    """Names of the machine's cores; none if the machine has an error of its own."""
    count = _at(document, "machine", "cores", "count")
    known = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= 1000
    return [f"bpu{i}" for i in range(count)] if known else []


def _problem(document: Document, path: KeyPath, what: str, do: str) -> Problem:
    return problem_at(document.where(*path), path, what, do)


def _cores_exist(document: Document, model: str, cores: list[str]) -> Iterator[Problem]:
    path: KeyPath = ("models", model, "cores")
    named = _at(document, *path)
    many = isinstance(named, list)
    if named == "any":
        return
    if isinstance(named, list) and "any" in named:
        yield _problem(document, path, "any stands for all cores", "write cores: any, without a list")
        return
    seen: set[str] = set()
    for position, core in enumerate(named if many else [named]):
        here = (*path, position) if many else path
        if not isinstance(core, str):
            continue
        if cores and core not in cores:
            yield _problem(document, here, f"the machine has no core '{core}'", did_you_mean(core, cores))
        if core in seen:
            yield _problem(document, here, f"core '{core}' is listed twice", "name each core once")
        seen.add(core)


def _heap_exists(document: Document, model: str) -> Iterator[Problem]:
    path: KeyPath = ("models", model, "heap")
    heap, heaps = _at(document, *path), _names(document, "machine", "dram", "heaps")
    if isinstance(heap, str) and heap not in heaps:
        do = did_you_mean(heap, heaps) if heaps else f"add machine.dram.heaps: {{{heap}: 1 GB}}, or remove it"
        yield _problem(document, path, f"the memory has no heap '{heap}'", do)


def _trace_exists(document: Document, model: str, trace: Path) -> Iterator[Problem]:
    path: KeyPath = ("models", model, "trace")
    try:
        if trace.is_file():
            return
        what = "is not a file" if trace.exists() else "no such file"
    except (OSError, ValueError):
        what = "it cannot be opened"
    yield _problem(document, path, f"cannot read trace {_at(document, *path)!r}: {what}", file_hint(trace))


def _masters_exist(document: Document, cores: list[str]) -> Iterator[Problem]:
    dram: KeyPath = ("machine", "dram")
    masters = [*cores, "cpu", *_names(document, "machine", "masters")]
    if not cores:
        return
    order = _at(document, *dram, "order")
    named: list[tuple[KeyPath, Any]] = []
    if isinstance(order, list):
        named += [((*dram, "order", position), master) for position, master in enumerate(order)]
    for key in ("weights", "limits"):
        table = _at(document, *dram, key)
        if isinstance(table, dict):
            named += [((*dram, key, master), master) for master in table]
    for path, master in named:
        if not isinstance(master, str):
            continue
        place = document.key(*path)
        if master not in masters:
            what = f"the machine has no DRAM master '{master}'"
            yield problem_at(place, path, what, did_you_mean(master, masters))
        elif master not in cores and master != "cpu" and _at(document, "machine", "masters", master, "window") is None:
            do = "leave it out, or give it a window"
            yield problem_at(place, path, f"'{master}' is open-loop: it takes its rate before all others", do)


def _devices_exist(document: Document, cores: list[str]) -> Iterator[Problem]:
    cooling: KeyPath = ("machine", "cooling")
    fan = ["fan"] if _at(document, *cooling, "fan") is not None else []
    known = ["cores", *cores, "host", "dram", *fan]
    clocks = {"host": "host", "dram": "dram", **dict.fromkeys(("cores", *cores), "cores")}
    for zone in _names(document, "machine", "cooling", "zones"):
        trips = _at(document, *cooling, "zones", zone, "trips")
        for k, trip in enumerate(trips) if isinstance(trips, list) and cores else ():
            named = trip.get("devices") if isinstance(trip, dict) else None
            for n, device in enumerate(named) if isinstance(named, list) else ():
                path: KeyPath = (*cooling, "zones", zone, "trips", k, "devices", n)
                if not isinstance(device, str):
                    continue
                if device not in known:
                    lacks = "add a fan" if device == "fan" else did_you_mean(device, known)
                    yield _problem(document, path, f"the machine has no cooling device '{device}'", lacks)
                elif device in clocks and _at(document, "machine", "clocks", clocks[device]) is None:
                    do = f"add machine.clocks.{clocks[device]} with its points"
                    yield _problem(document, path, f"'{device}' has no operating points to step down to", do)


def _nodes_exist(document: Document, cores: list[str]) -> Iterator[Problem]:
    """Single cores that a heat path names; its other nodes are checked with it."""
    cooling = ("machine", "cooling")
    named: list[tuple[Any, KeyPath]] = [
        (name, (*cooling, "start", name)) for name in _names(document, *cooling, "start")
    ]
    for zone in _names(document, *cooling, "zones"):
        path: KeyPath = (*cooling, "zones", zone, "sensor")
        named.append((_at(document, *path), path))
    for name, path in named:
        a_core = isinstance(name, str) and re.fullmatch(r"bpu\d+", name) is not None
        if a_core and cores and name not in (*cores, *_names(document, *cooling, "nodes")):
            yield _problem(document, path, f"the machine has no core '{name}'", did_you_mean(name, cores))


def _memory_clock_stays(document: Document) -> Iterator[Problem]:
    """At bank fidelity."""
    if _at(document, "engine", "dram") != "bank":
        return
    what, do = "the memory clock cannot change at bank fidelity", "use engine.dram: flow"
    path: KeyPath = ("machine", "clocks", "dram", "governor")
    if _at(document, *path) not in (None, "performance"):
        yield _problem(document, path, what, f"{do}, or governor: performance")
    for zone in _names(document, "machine", "cooling", "zones"):
        trips = _at(document, "machine", "cooling", "zones", zone, "trips")
        for k, trip in enumerate(trips) if isinstance(trips, list) else ():
            devices = trip.get("devices") if isinstance(trip, dict) else None
            if isinstance(devices, list) and "dram" in devices:
                path = ("machine", "cooling", "zones", zone, "trips", k, "devices", devices.index("dram"))
                yield _problem(document, path, what, f"{do}, or take dram out of the devices")


def _model_exists(document: Document, stream: str, models: list[str]) -> Iterator[Problem]:
    here: KeyPath = ("streams", stream)
    places = [here, *((*here, "pipeline", stage) for stage in _names(document, "streams", stream, "pipeline"))]
    for path in ((*place, kind) for place in places for kind in ("chat", "frames")):
        model = _at(document, *path)
        if models and isinstance(model, str) and model not in models:
            yield _problem(document, path, f"no model is named '{model}'", did_you_mean(model, models))


def _affinities_known(document: Document) -> Iterator[Problem]:
    """Fast and slow CPU cores only where there are slow ones."""
    if _at(document, "machine", "host", "slow") is not None or not isinstance(_at(document, "machine", "host"), dict):
        return
    paths: list[KeyPath] = [("host", "affinity")]
    for stream in _names(document, "streams"):
        if _at(document, "streams", stream, "chat") is not None:
            continue  # it has no such key, and is told so
        stages = _names(document, "streams", stream, "pipeline")
        paths += [("streams", stream, "affinity"), *(("streams", stream, "pipeline", s, "affinity") for s in stages)]
    for path in paths:
        if _at(document, *path) in ("fast", "slow"):
            do = "remove it, or add machine.host.slow: {cores: 4, speed: 0.45}"
            yield _problem(document, path, "all CPU cores of the machine are alike", do)


def _run_ends(document: Document) -> Iterator[Problem]:
    streams = _entries(document, "streams").values()
    kinds = [s for s in streams if s.keys() & {"chat", "frames", "pipeline"}]
    if kinds and _at(document, "run", "until") is None and all(_endless(s) for s in kinds):
        do = "add run: {until: 30 min}, or give a stream a number of requests or frames"
        place = document.key("streams")
        yield Problem("every stream is endless and nothing ends the run", place, do)


def _endless(stream: dict[str, Any]) -> bool:
    if "chat" not in stream:
        return stream.get("count") is None
    return stream.get("requests") == "forever"
