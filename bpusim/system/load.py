"""From a scenario to resident models: traces for this machine, cores, memory, and streams that can be served."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path

import simpy

from bpusim.cores import HostCluster
from bpusim.errors import BpusimError, Place, Problem, ScenarioError, TraceError, did_you_mean
from bpusim.hardware.spec import toolchain_name
from bpusim.hardware.toolchain import load_toolchain, toolchain_names
from bpusim.metrics import RunWarning
from bpusim.runtime import (
    Loader,
    LoadTerms,
    MemoryMap,
    Need,
    PlacedModel,
    Room,
    keep_weights,
    lay_out,
    place,
    place_team,
)
from bpusim.scenario import ChatSpec, FramesSpec, Scenario
from bpusim.system.first_chunk import beyond_first_chunk
from bpusim.system.streams import Lengths, Where, parts_of, sequences_of
from bpusim.trace import Trace, base_type, load_trace

__all__ = ["check_streams", "load_traces", "load_weights", "memory_of", "name_warnings", "place_models"]

_PORTABLE_NAME = re.compile(r"[A-Za-z0-9_]+")


def load_traces(scenario: Scenario) -> dict[str, Trace]:
    """The trace of each model, read once a file; every one that is damaged or for another core in one error."""
    problems: list[Problem] = []
    traces: dict[str, Trace] = {}
    loaded: dict[Path, Trace] = {}
    fingerprint = scenario.machine.cores.fingerprint()
    for name in scenario.models:
        path = scenario.trace_path(name)
        try:
            if path not in loaded:
                loaded[path] = load_trace(path, shared=True)
            traces[name] = loaded[path]
        except BpusimError as e:
            problems.extend(e.problems)
            continue
        target = traces[name].header.target
        differs = {k: v for k, v in fingerprint.items() if target.get(k) != v}
        if differs:
            what = "; ".join(f"{k} {target.get(k)} where the machine has {v}" for k, v in differs.items())
            command = (
                traces[name].header.command or f"bpusim compile MODEL --machine {scenario.machine.name} -o {path.name}"
            )
            command = command.replace(f"-o {path.name}", f"-o {path}")
            changes = "".join(f" --set 'machine.cores.{k}={_yaml(v)}'" for k, v in differs.items())
            problems.append(
                Problem(
                    f"the trace of model '{name}' is compiled for another core: {what}",
                    scenario.where("models", name, "trace"),
                    f"compile it for this machine, where its source is: {command}{changes}",
                )
            )
    if problems:
        raise TraceError(problems)
    return traces


def _yaml(value: object) -> str:
    """A fingerprint value as ``--set`` reads it back: text that looks like a number needs quotes."""
    number = isinstance(value, str) and re.fullmatch(r"[-+.\d_eE]+", value)
    return f'"{value}"' if number else str(value)


def name_warnings(name: str) -> list[RunWarning]:
    """A warning for a model name that some toolchains drop."""
    if _PORTABLE_NAME.fullmatch(name):
        return []
    better = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return [
        RunWarning(
            "model-name",
            f"model name '{name}' is dropped by toolchains that take only letters, digits and '_'; call it '{better}'",
        )
    ]


def place_models(scenario: Scenario, traces: Mapping[str, Trace]) -> tuple[dict[str, PlacedModel], list[RunWarning]]:
    """(models on their cores, warnings about traces that stay elsewhere than asked)."""
    names = scenario.machine.cores.names
    models: dict[str, PlacedModel] = {}
    warnings: list[RunWarning] = []
    problems: list[Problem] = []
    for name, spec in scenario.models.items():
        trace = traces[name]
        limit = trace.header.context
        if spec.context is not None and limit and spec.context > limit:
            problems.append(
                Problem(
                    f"a context of {spec.context} exceeds the {limit} the trace is compiled for",
                    scenario.where("models", name, "context"),
                    f"write {limit} or less, or compile with --context",
                )
            )
            continue
        idle = [k for k in ("context", "sequences", "batch") if k in spec.model_fields_set]
        if idle and "decode" not in trace.phases:
            what = f"'{name}' decodes nothing: its trace has the phases {', '.join(trace.phases)}"
            problems.append(Problem(what, scenario.where("models", name, idle[0]), f"leave out {', '.join(idle)}"))
            continue
        problems.extend(_batch_fits(scenario, name, trace))
        try:
            anywhere = spec.cores == ("any",)
            asked = range(len(names)) if anywhere else [names.index(c) for c in spec.cores]
            texts: list[str] = []
            if spec.split == "tensor":
                placed = _team(scenario, name, trace, asked, spec.context or limit)
            else:
                placed, texts = place(name, trace, asked, spec.split, spec.context or limit, anywhere=anywhere)
        except ScenarioError as e:
            problems.extend(e.problems)
            continue
        except TraceError as e:
            problems.extend(Problem(p.what, scenario.where("models", name), p.do) for p in e.problems)
            continue
        if max(core for core, _ in placed.parts) >= len(names):
            problems.append(
                Problem(
                    f"the trace of model '{name}' is pinned to a core this machine lacks",
                    scenario.where("models", name),
                )
            )
            continue
        if anywhere and placed.anywhere and scenario.machine.cores.weights_sram is not None:
            text = f"model '{name}' may run on any core, so none of its weights stay in weights_sram; name its core"
            warnings.append(RunWarning("weights-streamed", text))
        placed.priority, placed.max_call = spec.priority, spec.max_call
        placed.batch, placed.balance = spec.batch, spec.balance
        models[name] = placed
        warnings.extend(RunWarning("pinned-trace", t) for t in texts)
    if problems:
        raise ScenarioError(problems)
    if scenario.machine.cores.weights_sram is not None:
        keep_weights(models.values(), scenario.machine.cores.weights_sram)
    return models, warnings


def _batch_fits(scenario: Scenario, name: str, trace: Trace) -> list[Problem]:
    """What is wrong with the batch of a model."""
    batch, room = scenario.models[name].batch, sequences_of(scenario, name)
    if batch == 1:
        return []
    place = scenario.where("models", name, "batch")
    if batch > room:
        what = f"a batch of {batch} sequences, and the cache of '{name}' has room for {room}"
        return [Problem(what, place, f"give it sequences: {batch} or more, or lower batch")]
    try:
        trace.bind("decode", kv=(0,) * batch)
    except TraceError as e:
        return [Problem(p.what, place, p.do) for p in e.problems]
    return []


def _team(scenario: Scenario, name: str, trace: Trace, cores: Sequence[int], context: int) -> PlacedModel:
    """A model that ``cores`` run together; :class:`ScenarioError` for an ``unsplit`` that means nothing to it."""
    spec, core = scenario.models[name], scenario.machine.cores
    unsplit: Set[str]
    if spec.unsplit is not None:
        ops = [op for phase in trace.phases.values() for op in phase.ops()]
        known = sorted({op.type for op in ops} | {base_type(op) for op in ops})
        wrong = [n for n, t in enumerate(spec.unsplit) if t not in known]
        problems = [
            Problem(
                f"the trace of model '{name}' has no op of type '{spec.unsplit[n]}'",
                scenario.where("models", name, "unsplit", n),
                did_you_mean(spec.unsplit[n], known),
            )
            for n in wrong
        ]
        if problems:
            raise ScenarioError(problems)
        unsplit = set(spec.unsplit)
        if all(op.unit not in ("mac", "vector") or unsplit & {op.type, base_type(op)} for op in ops):
            raise ScenarioError(
                f"unsplit leaves nothing of model '{name}' to split",
                place=scenario.where("models", name, "unsplit"),
                do="name fewer types, or give it one core",
            )
    elif core.toolchain in toolchain_names() or toolchain_name(core.toolchain) != core.toolchain:
        unsplit = set(load_toolchain(core.toolchain, scenario.where("machine")).unsplit)
    else:
        raise ScenarioError(
            f"nobody says which ops toolchain '{core.toolchain}' leaves on one core",
            place=scenario.where("models", name, "split"),
            do="add unsplit: [Softmax], or [] for none",
        )
    return place_team(name, trace, cores, spec.sync or 0, unsplit, context, max(core.scratchpad // 4, 1))


def memory_of(scenario: Scenario, models: Mapping[str, PlacedModel]) -> MemoryMap:
    """Where everything lies in memory, or an error with the table of what does not fit."""
    needs = []
    for name, model in models.items():
        needs.append(Need.of(name, model.trace, model.context, sequences_of(scenario, name)))
    dram = scenario.machine.dram
    pinned = {name: spec.heap for name, spec in scenario.models.items() if spec.heap is not None}
    return lay_out(
        needs, dram.usable, scenario.where("models"), dram.heaps, pinned, _place_of(scenario), _sharing(scenario)
    )


def _place_of(scenario: Scenario) -> Callable[[str], Place]:
    """Where a model is in the scenario: its heap, or itself."""
    return lambda name: scenario.where("models", name, "heap")


def load_weights(
    env: simpy.Environment, scenario: Scenario, models: Mapping[str, PlacedModel], host: HostCluster
) -> None:
    """Models that come from storage during the run get what loads them; all of them share the storage."""
    storage = simpy.Resource(env)
    rooms: dict[str, Room] = {}
    for name, spec in scenario.models.items():
        if spec.load is not None:
            terms = LoadTerms(spec.load.rate, spec.load.fixed, spec.load.when == "start")
            room = Room() if spec.load.place is None else rooms.setdefault(spec.load.place, Room())
            models[name].loader = Loader(env, name, models[name].trace.resident_bytes, terms, host, storage, room)


def _sharing(scenario: Scenario) -> dict[str, str]:
    """Models that have a place in memory in turn, with its name. Raises :class:`ScenarioError`."""
    places = {n: m.load.place for n, m in scenario.models.items() if m.load is not None and m.load.place is not None}
    problems = []
    for shared in dict.fromkeys(places.values()):
        models = [n for n in places if places[n] == shared]
        if len(models) == 1:
            what, do = (
                f"no other model takes turns in place '{shared}'",
                "name it in two models or more, or leave it out",
            )
            problems.append(Problem(what, scenario.where("models", models[0], "load", "place"), do))
        early = [n for n in models if (load := scenario.models[n].load) is not None and load.when == "start"]
        if len(early) > 1:
            what = f"{' and '.join(early)} are both loaded at the start, and only one is in place '{shared}' at a time"
            problems.append(Problem(what, scenario.where("models", early[1], "load", "when"), "leave one of them out"))
        heaps = {scenario.models[n].heap for n in models}
        if len(heaps) > 1:
            what = f"models of place '{shared}' are in different heaps"
            problems.append(Problem(what, scenario.where("models", models[0], "heap"), "name one heap for all of them"))
    if problems:
        raise ScenarioError(problems)
    return places


def check_streams(scenario: Scenario, models: Mapping[str, PlacedModel], lengths: Mapping[Where, Lengths]) -> None:
    """Every stream, and every stage of a pipeline, has a model that can serve it, and fits its context."""
    problems = []
    for where, spec in parts_of(scenario):
        chats = not isinstance(spec, FramesSpec) and spec.chat is not None
        key, wanted = ("chat", ("prefill", "decode")) if chats else ("frames", ("frame",))
        named = getattr(spec, key)
        if named is None:  # a stage on the host
            continue
        model = models[named]
        if any(p not in model.trace.phases for p in wanted):
            have = ", ".join(model.trace.phases)
            problems.append(
                Problem(
                    f"model '{model.name}' cannot serve {key}: its trace has the phases {have}",
                    scenario.where(*where, key),
                    f"name a model compiled from {'an LLM' if chats else 'a model that takes frames'}",
                )
            )
        elif chats and lengths[where].longest() > model.context:
            prompt, output = lengths[where].most("prompt"), lengths[where].most("output")
            problems.append(
                Problem(
                    f"prompt {prompt} and output {output} exceed the context of {model.context} tokens",
                    scenario.where(*where, "prompt"),
                    "shorten them, or compile the model with a longer --context",
                )
            )
        elif chats and not isinstance(spec, FramesSpec):
            problems.extend(beyond_first_chunk(scenario, where, spec, model, lengths[where]))
    for asked in scenario.models:
        keeping = [
            (name, chat.users)
            for name, chat in scenario.streams.items()
            if isinstance(chat, ChatSpec) and chat.chat == asked and chat.history == "kept"
        ]
        users, room = sum(n for _, n in keeping), sequences_of(scenario, asked)
        askers = sum(1 for _, part in parts_of(scenario) if not isinstance(part, FramesSpec) and part.chat == asked)
        more = int(askers > len(keeping))  # others need a place too
        if keeping and users + more > room:
            what = f"{users} users keep their conversations in the cache of '{asked}', which has room for {room}"
            place = scenario.where("streams", keeping[0][0], "history")
            do = f"give the model sequences: {users + more} or more, or write history: reread"
            problems.append(Problem(what, place, do))
    if problems:
        raise ScenarioError(problems)
