"""Streams of a scenario: what arrives when, and how long it is."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import simpy

from bpusim.errors import Problem, ScenarioError
from bpusim.metrics import ChatRecord, FrameRecord
from bpusim.runtime import PlacedModel
from bpusim.scenario import ArrivalSpec, ChatSpec, FileSpec, FramesSpec, LognormalSpec, Scenario
from bpusim.units import PS_PER_S, Ps
from bpusim.workload import (
    Ask,
    ChatStream,
    FrameStream,
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

__all__ = ["Lengths", "lengths_of", "sequences_of", "streams_of"]

_COLUMNS = ("prompt_tokens", "output_tokens")


class Lengths:
    """What a chat stream asks for: by its spec, or by the rows of a file (gap, prompt, output)."""

    def __init__(self, spec: ChatSpec, rows: Mapping[str, list[Ask]]) -> None:
        self.spec = spec
        self.rows = rows
        """By where they stand: ``prompt``, ``output``, ``arrivals``."""

    @property
    def arriving(self) -> list[Ask] | None:
        """Requests of a file of arrivals."""
        return self.rows.get("arrivals")

    def most(self, side: str) -> int:
        """The longest prompt or output there may be."""
        rows = self.arriving or self.rows.get(side)
        if rows is not None:
            return max(r.prompt if side == "prompt" else r.output for r in rows)
        spec = getattr(self.spec, side)
        return int(spec.max if isinstance(spec, LognormalSpec) else spec)

    def longest(self) -> int:
        """The most tokens of a request; prompts and outputs of one file go together."""
        return (
            max(r.prompt + r.output for r in self.arriving)
            if self.arriving
            else self.most("prompt") + self.most("output")
        )

    def draw(self, side: str, seed: int, name: str, user: int) -> Draw:
        """Prompts or outputs of a user."""
        spec = getattr(self.spec, side)
        if isinstance(spec, LognormalSpec):
            return lognormal(spec.median, spec.sigma, spec.min, spec.max, generator(seed, name, user, side))
        return listed([getattr(r, side) for r in self.rows[side]]) if isinstance(spec, FileSpec) else fixed(spec)


def lengths_of(scenario: Scenario) -> dict[str, Lengths]:
    """Of each chat stream; raises :class:`ScenarioError` with all that is wrong with files of lengths and arrivals."""
    problems: list[Problem] = []
    out: dict[str, Lengths] = {}
    for name, spec in scenario.streams.items():
        if isinstance(spec, ChatSpec):
            rows: dict[str, list[Ask]] = {}
            for side in ("prompt", "output", "arrivals"):
                given = getattr(spec, side)
                if isinstance(given, FileSpec | ArrivalSpec) and given.file is not None:
                    place = ("streams", name, side, "file")
                    try:
                        rows[side] = _read(scenario.beside(given.file, *place), arrivals=side == "arrivals")
                    except ValueError as e:
                        what, _, do = str(e).partition("; ")
                        problems.append(Problem(what, scenario.where(*place), do))
            out[name] = Lengths(spec, rows)
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
    given = scenario.models[model].sequences
    chats = [s for s in scenario.streams.values() if isinstance(s, ChatSpec) and s.chat == model]
    return given if given is not None else max(sum(s.users for s in chats), 1)


def streams_of(
    env: simpy.Environment,
    scenario: Scenario,
    models: Mapping[str, PlacedModel],
    lengths: Mapping[str, Lengths],
    *,
    records: bool,
) -> dict[str, ChatStream | FrameStream]:
    """The streams by name."""
    slots = {name: Slots(env, name, sequences_of(scenario, name)) for name in models}
    seed = scenario.engine.seed
    out: dict[str, ChatStream | FrameStream] = {}
    for name, spec in scenario.streams.items():
        if isinstance(spec, ChatSpec):
            out[name] = _chat(name, spec, models[spec.chat], slots[spec.chat], lengths[name], seed, records=records)
        else:
            out[name] = _frames(name, spec, models[spec.frames], seed)
    return out


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
            return asks(lengths.draw("prompt", seed, name, user), lengths.draw("output", seed, name, user), gap, each)

    record = ChatRecord([] if records else None, (spec.slo.ttft, spec.slo.tpot))
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


def _frames(name: str, spec: FramesSpec, model: PlacedModel, seed: int) -> FrameStream:
    rng = generator(seed, name, "jitter")
    jitter = (lambda: int(rng.integers(-spec.jitter, spec.jitter, endpoint=True))) if spec.jitter else fixed(0)
    return FrameStream(
        name, model, spec.rate, spec.count, spec.queue, spec.drop, spec.before, spec.after, spec.start,
        FrameRecord(spec.deadline), spec.weight, jitter, spec.threads, spec.overlap == "on",
    )  # fmt: skip
