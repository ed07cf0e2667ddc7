"""Which part of a model runs on which core."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

from bpusim.errors import TraceError
from bpusim.runtime.loading import Loader
from bpusim.runtime.team import Team
from bpusim.trace import Program, TensorSplit, Trace, with_resident
from bpusim.units import Ps

__all__ = ["Balance", "PlacedModel", "keep_weights", "place", "place_team"]

Balance = Literal["load", "bandwidth"]

_KEPT = 64


@dataclass(slots=True)
class PlacedModel:
    """A resident model: its parts with the core each runs on."""

    name: str
    trace: Trace
    parts: tuple[tuple[int, Trace], ...]
    context: int
    priority: int = 0
    max_call: Ps | None = None
    batch: int = 1
    """Sequences that a decode step serves at most."""
    anywhere: tuple[int, ...] = ()
    """Cores of which each call goes to the one with the shortest line; empty if its parts stay where they are."""
    balance: Balance = "load"
    """What makes a line long: the calls in it, or the bytes that they have to move."""
    team: Team | None = None
    """Cores that run it together; its one part is then on the first of them."""
    split: TensorSplit | None = None
    """How its ops are spread over them."""
    loader: Loader | None = None
    """What its first step waits for; None if it is loaded before the run begins."""
    on_chip: dict[int, tuple[Trace | TensorSplit, int]] = field(default_factory=dict)
    """By part: it as it runs once its weights have been read, and how many bytes of them stay on its core."""
    warm: set[int] = field(default_factory=set)
    """Parts of those that have been read."""
    _bound: OrderedDict[tuple[int, str, int | tuple[int, ...], int, bool], Program] = field(
        default_factory=OrderedDict, repr=False
    )

    @property
    def cores(self) -> tuple[int, ...]:
        """Those that may run it."""
        if self.team is not None:
            return self.team.cores
        return self.anywhere or tuple(core for core, _ in self.parts)

    @property
    def plain(self) -> bool:
        """Whether a step serves one sequence on one core, and its weights are where they always are."""
        return self.batch == 1 and len(self.parts) == 1 and not (
            self.anywhere or self.team or self.loader or self.on_chip
        )  # fmt: skip

    def bind(self, part: int, phase: str, kv: int | tuple[int, ...], tokens: int) -> Program:
        """A part at a position. Prefill chunks and frames come again and are kept; a decode step is bound each time."""
        warm = part in self.warm
        source = self.on_chip[part][0] if warm else self.split or self.parts[part][1]
        if phase == "decode":
            return source.bind(phase, kv=kv, tokens=tokens)
        key = (part, phase, kv, tokens, warm)
        if key not in self._bound:
            self._bound[key] = source.bind(phase, kv=kv, tokens=tokens)
            if len(self._bound) > _KEPT:
                self._bound.popitem(last=False)
        return self._bound[key]


def keep_weights(models: Iterable[PlacedModel], room: int) -> None:
    """Give each model, in their order, what the ones before have left of ``room`` bytes on each of its cores, for
    weights that stay there from the end of its first step on. A model that may run on any core gets none; cores that
    run one together have even shares of it."""
    left: dict[int, int] = {}
    for model in models:
        if model.split is not None:
            n = model.split.n
            view, kept = with_resident(model.trace, n * min(left.setdefault(core, room) for core in model.cores))
            if kept:
                model.on_chip[0] = model.split.of(view), kept
            for core in model.cores:
                left[core] -= -(-kept // n)
            continue
        for part, (core, trace) in enumerate(model.parts if not model.anywhere else ()):
            view, kept = with_resident(trace, left.setdefault(core, room))
            if kept:
                model.on_chip[part] = view, kept
                left[core] -= kept


def place(
    name: str,
    trace: Trace,
    asked: Sequence[int],
    split: str | Sequence[int] | None,
    context: int,
    *,
    anywhere: bool = False,
) -> tuple[PlacedModel, list[str]]:
    """(the placed model, warnings). A trace pinned to cores stays there, whatever is asked. ``anywhere``: its calls go
    to whichever of the cores has the shortest line."""
    pinned = trace.header.cores
    if anywhere:
        free = tuple(c for c in asked if pinned == "any" or c in pinned)
        told = []
        if isinstance(pinned, tuple) and len(free) < len(asked):
            have = "[" + ", ".join(map(str, pinned)) + "]"
            what = f"model '{name}' may run on any core, but its trace is compiled for cores {have} and stays there; "
            told = [f"{what}compile it with --cores any to let it"]
        if len(free) > 1:
            return PlacedModel(name, trace, ((free[0], trace),), context, anywhere=free), told
        if free:
            return PlacedModel(name, trace, ((free[0], trace),), context), told
        asked = asked[:1]
    if isinstance(pinned, tuple) and not set(asked) <= set(pinned):
        have = "[" + ", ".join(map(str, pinned)) + "]"
        want = ", ".join(f"bpu{c}" for c in asked)
        fix = f"--cores {','.join(map(str, asked))}" if len(asked) == 1 else "--cores any"
        warning = (
            f"model '{name}' asks for {want}, but its trace is compiled for cores {have} and stays there; "
            f"compile it with {fix} to move it"
        )
        return PlacedModel(name, trace, ((pinned[0], trace),), context), [warning]
    if len(asked) == 1:
        return PlacedModel(name, trace, ((asked[0], trace),), context), []
    parts = trace.split(len(asked) if split == "even" or split is None else tuple(int(n) for n in split))
    return PlacedModel(name, trace, tuple(zip(asked, parts, strict=True)), context), []


def place_team(
    name: str, trace: Trace, cores: Sequence[int], sync: Ps, unsplit: Set[str], context: int, piece: int
) -> PlacedModel:
    """A model that ``cores`` run together. ``unsplit``, ``piece``: see :class:`bpusim.trace.TensorSplit`. Raises
    :class:`TraceError` for a trace that is pinned elsewhere."""
    pinned = trace.header.cores
    if isinstance(pinned, tuple) and not set(cores) <= set(pinned):
        have, want = ", ".join(map(str, pinned)), ",".join(map(str, cores))
        what = f"model '{name}' cannot be spread over cores {want}: its trace is compiled for cores [{have}]"
        raise TraceError(what, do=f"compile it with --cores any, or take cores: bpu{pinned[0]} without the split")
    split = TensorSplit(trace, len(cores), unsplit, piece)
    return PlacedModel(name, trace, ((cores[0], trace),), context, team=Team(tuple(cores), sync), split=split)
