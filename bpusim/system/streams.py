"""Streams of a scenario: what arrives when, and how long it is."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import simpy

from bpusim.cores import Affinity, HostCluster, Laid
from bpusim.errors import Problem, ScenarioError
from bpusim.metrics import ChatRecord, FrameRecord, Ledger, PipelineRecord
from bpusim.runtime import PlacedModel
from bpusim.scenario import (
    ArrivalSpec,
    ChatSpec,
    FileSpec,
    FramesSpec,
    LognormalSpec,
    PipelineSpec,
    RegionsSpec,
    Scenario,
    StageSpec,
)
from bpusim.units import PS_PER_S, Ps
from bpusim.workload import (
    Ask,
    ChatStream,
    FrameStream,
    PipelineStage,
    PipelineStream,
    Slots,
    asks,
    every,
    fixed,
    gamma,
    generator,
    listed,
    lognormal,
    poisson,
)
from bpusim.workload.draws import Draw

__all__ = [
    "Lengths",
    "Streams",
    "Where",
    "laid_on",
    "lengths_of",
    "log_steps",
    "parts_of",
    "sequences_most",
    "sequences_of",
    "streams_of",
]

_COLUMNS = ("prompt_tokens", "output_tokens")


Where = tuple[str, ...]
"""Where a stream, or a stage of a pipeline, stands in a scenario."""


def parts_of(scenario: Scenario) -> Iterator[tuple[Where, ChatSpec | FramesSpec | StageSpec]]:
    """Streams and stages of pipelines, with where they stand."""
    for name, spec in scenario.streams.items():
        if isinstance(spec, PipelineSpec):
            yield from ((("streams", name, "pipeline", stage), s) for stage, s in spec.pipeline.items())
        else:
            yield ("streams", name), spec


class Lengths:
    """Tokens that a chat asks for: by its spec, or by the rows of a file."""

    def __init__(self, where: Where, spec: ChatSpec | StageSpec, rows: Mapping[str, list[Ask]]) -> None:
        self.where = where
        self.spec = spec
        self.rows = rows
        """By where they stand: ``prompt``, ``output``, ``regions``, ``arrivals``."""

    @property
    def arriving(self) -> list[Ask] | None:
        """Requests of a file of arrivals."""
        return self.rows.get("arrivals")

    def most(self, side: str) -> int:
        """The longest prompt or output there may be."""
        if self.arriving:
            return max(r.prompt if side == "prompt" else r.output for r in self.arriving)
        return self._most(side, getattr(self.spec, side))

    def _most(self, side: str, spec: Any) -> int:
        if isinstance(spec, RegionsSpec):
            return spec.text + spec.per_region * self._most("regions", spec.regions)
        if isinstance(spec, FileSpec):
            return max(r.output if side == "output" else r.prompt for r in self.rows[side])
        return int(spec.max if isinstance(spec, LognormalSpec) else spec)

    def longest(self) -> int:
        """The most tokens of a request; prompts and outputs of one file of arrivals go together."""
        if self.arriving:
            return max(r.prompt + r.output for r in self.arriving)
        return self.most("prompt") + self.most("output")

    def draw(self, side: str, seed: int, user: int = 0) -> Draw:
        """Prompts or outputs of a user."""
        return self._draw(side, getattr(self.spec, side), seed, user)

    def _draw(self, side: str, spec: Any, seed: int, user: int) -> Draw:
        if isinstance(spec, RegionsSpec):
            regions, text, each = self._draw("regions", spec.regions, seed, user), spec.text, spec.per_region
            return lambda: text + each * regions()
        if isinstance(spec, LognormalSpec):
            rng = generator(seed, *self.where[1:], user, side)
            return lognormal(spec.median, spec.sigma, spec.min, spec.max, rng)
        if isinstance(spec, FileSpec):
            return listed([r.output if side == "output" else r.prompt for r in self.rows[side]])
        return fixed(spec)


def lengths_of(scenario: Scenario) -> dict[Where, Lengths]:
    """Of each chat; raises :class:`ScenarioError` with all that is wrong with files of lengths and arrivals."""
    problems: list[Problem] = []
    out: dict[Where, Lengths] = {}
    for where, spec in parts_of(scenario):
        if isinstance(spec, FramesSpec) or spec.chat is None:
            continue
        rows: dict[str, list[Ask]] = {}
        files: dict[str, tuple[Where, Any]] = {
            side: ((side,), getattr(spec, side, None)) for side in ("prompt", "output", "arrivals")
        }
        if isinstance(spec.prompt, RegionsSpec):
            files["regions"] = ("prompt", "regions"), spec.prompt.regions
        for side, (path, given) in files.items():
            if isinstance(given, FileSpec | ArrivalSpec) and given.file is not None:
                place = (*where, *path, "file")
                try:
                    rows[side] = _read(scenario.beside(given.file, *place), arrivals=side == "arrivals")
                except ValueError as e:
                    what, _, do = str(e).partition("; ")
                    problems.append(Problem(what, scenario.where(*place), do))
        out[where] = Lengths(where, spec, rows)
    if problems:
        raise ScenarioError(problems)
    return out


def _read(path: Path, *, arrivals: bool) -> list[Ask]:
    """Rows of a CSV file. Raises :class:`ValueError` with what is wrong and what to do."""
    wanted = (*(("arrival_s",) if arrivals else ()), *_COLUMNS)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise ValueError(f"{path} cannot be read: {e}; name a CSV file with columns {', '.join(wanted)}") from None
    if not table:
        raise ValueError(f"{path} has no rows; write columns {', '.join(wanted)} and a row each request")
    missing = [c for c in wanted if c not in table[0]]
    if missing:
        raise ValueError(f"{path} has no column {missing[0]}; name its columns {', '.join(wanted)}")
    rows: list[tuple[Ps, int, int]] = []
    for n, row in enumerate(table, 2):
        try:
            prompt, output = (int(row[c]) for c in _COLUMNS)
            at = float(row["arrival_s"]) if arrivals else 0.0
            if min(prompt, output) < 1 or not 0 <= at <= 1e7:
                raise ValueError
        except (TypeError, ValueError):
            raise ValueError(
                f"{path}, line {n}: {', '.join(str(row[c]) for c in wanted)}; write seconds from 0 on and "
                "tokens of 1 or more"
                if arrivals
                else f"{path}, line {n}: {', '.join(str(row[c]) for c in wanted)}; write tokens of 1 or more"
            ) from None
        rows.append((round(at * PS_PER_S), prompt, output))
    for n, (one, two) in enumerate(pairwise(rows), 3):
        if two[0] < one[0]:
            raise ValueError(f"{path}, line {n}: it arrives before the one above; sort the file by arrival_s")
    return [Ask(p, o, at - before) for (before, _, _), (at, p, o) in pairwise([(0, 0, 0), *rows])]


def sequences_of(scenario: Scenario, model: str) -> int:
    """Sequences that the KV cache of ``model`` has room for."""
    spec = scenario.models[model]
    chats = [s.users if isinstance(s, ChatSpec) else 1 for _, s in parts_of(scenario) if _chats_with(s, model)]
    return spec.sequences if spec.sequences is not None else max(sum(chats), spec.batch)


def sequences_most(scenario: Scenario, model: str) -> int | None:
    """Sequences of ``model`` that its streams ever have at a time; None if nothing limits them."""
    chats = [s for _, s in parts_of(scenario) if _chats_with(s, model)]
    open_ = any(not isinstance(s, ChatSpec) or s.arrivals is not None for s in chats)
    return None if open_ or not chats else sum(s.users for s in chats if isinstance(s, ChatSpec))


def _chats_with(spec: ChatSpec | FramesSpec | StageSpec, model: str) -> bool:
    return not isinstance(spec, FramesSpec) and spec.chat == model


Streams = dict[str, ChatStream | FrameStream | PipelineStream]


def streams_of(
    env: simpy.Environment,
    scenario: Scenario,
    models: Mapping[str, PlacedModel],
    lengths: Mapping[Where, Lengths],
    host: HostCluster,
    *,
    records: bool,
) -> tuple[Streams, list[Slots]]:
    """(the streams by name, who may be admitted to each model)."""
    slots = {name: Slots(env, name, sequences_of(scenario, name)) for name in models}
    seed = scenario.engine.seed
    out: Streams = {}
    for name, spec in scenario.streams.items():
        if isinstance(spec, ChatSpec):
            asked = lengths["streams", name]
            out[name] = _chat(name, spec, models[spec.chat], slots[spec.chat], asked, seed, records=records)
        elif isinstance(spec, FramesSpec):
            out[name] = _frames(name, spec, models[spec.frames], seed, laid_on(host, spec.parts, spec.affinity))
        else:
            out[name] = _pipeline(name, spec, models, slots, lengths, seed, host, records=records)
    return out, list(slots.values())


def log_steps(streams: Streams, log: Callable[[str, str, int, Ps, Ps, Ledger], None]) -> None:
    """Have each step of each stream told to ``log``, by the stream's name."""
    for name, s in streams.items():
        s.record.log = partial(log, name)
        for label, chat in s.chats.items():
            chat.record.log = partial(log, label)


def _pipeline(
    name: str,
    spec: PipelineSpec,
    models: Mapping[str, PlacedModel],
    slots: Mapping[str, Slots],
    lengths: Mapping[Where, Lengths],
    seed: int,
    host: HostCluster,
    *,
    records: bool,
) -> PipelineStream:
    record, stages = PipelineRecord(), []
    for stage in spec.order():
        s = spec.pipeline[stage]
        if s.chat is not None:
            asked = lengths["streams", name, "pipeline", stage]
            kept = ChatRecord([] if records else None, weight=spec.weight)
            record.chats[stage] = kept
            chat = ChatStream(
                f"{name}.{stage}", models[s.chat], lambda _: iter(()), None, 0, slots[s.chat], kept, weight=spec.weight
            )
            draws = asked.draw("prompt", seed), asked.draw("output", seed)
            stages.append(PipelineStage(stage, s.after, None, chat, *draws))
        else:
            model = models[s.frames] if s.frames is not None else None
            laid = laid_on(host, s.parts, s.affinity)
            stages.append(PipelineStage(stage, s.after, model, host=s.host or 0, wait=s.wait or 0, laid=laid))
    before = {a.removesuffix(".first_token") for s in spec.pipeline.values() for a in s.after}
    ends = spec.deadline or dict.fromkeys((n for n in spec.pipeline if n not in before), None)
    record.limits = dict(ends)
    t = spec.trigger
    gap = every(t.every) if t.every is not None else poisson(t.poisson or 1.0, generator(seed, name, "trigger"))
    return PipelineStream(name, stages, gap, spec.count, spec.start, spec.at_once, record.limits, record, spec.weight)


def _chat(
    name: str, spec: ChatSpec, model: PlacedModel, slots: Slots, lengths: Lengths, seed: int, *, records: bool
) -> ChatStream:
    each = None if spec.requests == "forever" else int(spec.requests)
    arrivals = spec.arrivals
    total = each * spec.users if each is not None else None
    rows = lengths.arriving
    ask: Callable[[int], Iterator[Ask]]
    if rows is not None:
        kept: Sequence[Ask] = rows if spec.model_fields_set.isdisjoint({"requests"}) or each is None else rows[:each]
        total = len(kept)
        ask = lambda _: iter(kept)  # noqa: E731
    else:

        def ask(user: int) -> Iterator[Ask]:
            gap = _gaps(arrivals, seed, name) if arrivals is not None else _thinks(spec, seed, name, user)
            return asks(lengths.draw("prompt", seed, user), lengths.draw("output", seed, user), gap, each)

    record = ChatRecord([] if records else None, (spec.slo.ttft, spec.slo.tpot), spec.weight)
    return ChatStream(
        name, model, ask, total, spec.start, slots, record, spec.users,
        arrivals is not None, spec.waiting, spec.history, round(PS_PER_S / spec.pace) if spec.pace is not None else 0,
        spec.weight,
    )  # fmt: skip


def _gaps(spec: ArrivalSpec, seed: int, name: str) -> Draw:
    rng = generator(seed, name, "arrivals")
    if spec.poisson is not None:
        return poisson(spec.poisson, rng)
    if spec.gamma is not None:
        return gamma(spec.gamma, spec.cv or 1.0, rng)
    return every(spec.every or 0)


def _thinks(spec: ChatSpec, seed: int, name: str, user: int) -> Draw:
    if spec.think_spread == "exponential":
        return poisson(PS_PER_S / spec.think, generator(seed, name, user, "think"))
    return fixed(spec.think)


def laid_on(host: HostCluster, parts: int | str, affinity: Affinity | None = None) -> Laid:
    """How host work is laid on the cores of ``host``; ``cores`` parts are one for each that it may take."""
    return Laid(parts if isinstance(parts, int) else host.cores(affinity), affinity)


def _frames(name: str, spec: FramesSpec, model: PlacedModel, seed: int, laid: Laid) -> FrameStream:
    rng = generator(seed, name, "jitter")
    jitter = (lambda: int(rng.integers(-spec.jitter, spec.jitter, endpoint=True))) if spec.jitter else fixed(0)
    return FrameStream(
        name, model, spec.rate, spec.count, spec.queue, spec.drop, spec.before, spec.after, spec.start,
        FrameRecord(spec.deadline), spec.weight, jitter, spec.threads, spec.overlap == "on", laid,
    )  # fmt: skip
