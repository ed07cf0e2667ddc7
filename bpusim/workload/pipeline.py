"""Pipelines: stages over models and the host that begin when others are done, from a trigger to an end.

The time from a trigger to the end of a stage has one critical path: each stage begins at the very instant at which the
last of those before it is done. The causes of that time are those along the path, so they sum to it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from bpusim.cores import WHOLE, Laid
from bpusim.errors import SimulationError
from bpusim.metrics import Ledger, PipelineRecord
from bpusim.runtime import Executor, PlacedModel, Session, Terms
from bpusim.units import PS_PER_S, Ps
from bpusim.workload.chat import ChatStream
from bpusim.workload.draws import Ask, Draw

__all__ = ["FIRST_TOKEN", "PipelineStage", "PipelineStream"]

FIRST_TOKEN = "first_token"
"""``say.first_token``: when the chat stage ``say`` has its first token."""
_MOST = 10_000
"""Runs under way at a time: more than that will never end."""


@dataclass(slots=True)
class PipelineStage:
    """Something that is done once a run, when all of ``after`` are (stages, or ``stage.first_token``): a frame of
    ``model``, an answer of ``chat`` of so many tokens, ``host`` ps of a CPU core, or a ``wait`` outside the machine."""

    name: str
    after: Sequence[str]
    model: PlacedModel | None = None
    chat: ChatStream | None = None
    prompt: Draw | None = None
    output: Draw | None = None
    host: Ps = 0
    wait: Ps = 0
    laid: Laid = WHOLE
    """How ``host`` work is laid on cores."""


@dataclass(slots=True)
class _Mark:
    """A point of a run: when it was reached, what the way from ``before`` took."""

    reached: simpy.Event
    at: Ps = 0
    before: _Mark | None = None
    ledger: Ledger = field(default_factory=Ledger)

    def reach(self, at: Ps, before: _Mark | None, ledger: Ledger) -> None:
        self.at, self.before = at, before
        self.ledger.take(ledger)
        self.reached.succeed()


@dataclass(slots=True)
class PipelineStream:
    """Runs of ``stages`` (in an order in which each comes after those it waits for), one a trigger: ``gap`` ps after
    the one before, ``count`` in all (None: endless). With ``at_once`` runs under way a trigger is dropped. ``ends``:
    the stages to which time is measured, with the time that each may take (None: any)."""

    name: str
    stages: Sequence[PipelineStage]
    gap: Draw
    count: int | None
    start: Ps
    at_once: int | None
    ends: Mapping[str, Ps | None]
    record: PipelineRecord
    weight: float = 1.0
    _drained: simpy.Event | None = None

    @property
    def over(self) -> bool:
        """Whether all its runs have ended."""
        return self.count is not None and self.record.triggered == self.count and not self.record.present.now

    @property
    def finite(self) -> bool:
        """Whether it comes to an end by itself."""
        return self.count is not None

    @property
    def chats(self) -> dict[str, ChatStream]:
        """Its chat stages, as ``PIPELINE.STAGE``."""
        return {s.chat.name: s.chat for s in self.stages if s.chat is not None}

    @property
    def models(self) -> list[PlacedModel]:
        """Those that its stages ask."""
        return [
            m for s in self.stages for m in (s.model, s.chat.model if s.chat is not None else None) if m is not None
        ]

    def run(self, executor: Executor) -> Generator[simpy.Event, Any, None]:
        """The pipeline's life, as a SimPy process."""
        env, record = executor.env, self.record
        if self.start:
            yield env.timeout(self.start)
        while self.count is None or record.triggered < self.count:
            gap = self.gap()
            if gap:
                yield env.timeout(gap)
            record.triggered += 1
            if self.at_once is not None and record.present.now >= self.at_once:
                record.dropped += 1
                continue
            record.present.change(executor.now(), 1)
            if record.present.now > _MOST:
                raise SimulationError(
                    f"{_MOST} runs of {self.name} are under way at {executor.now() / PS_PER_S:.3f} s: they come faster "
                    "than they end",
                    do="trigger it less often, or drop triggers by at_once: 1",
                )
            env.process(self._once(executor, record.triggered - 1))
        record.backlog = record.present.now
        if record.present.now:
            self._drained = simpy.Event(env)
            yield self._drained

    def _once(self, executor: Executor, run: int) -> Generator[simpy.Event, Any, None]:
        env, trigger = executor.env, executor.now()
        marks = {s.name: _Mark(simpy.Event(env)) for s in self.stages}
        marks |= {f"{s.name}.{FIRST_TOKEN}": _Mark(simpy.Event(env)) for s in self.stages if s.chat is not None}
        limits = [limit for limit in self.ends.values() if limit is not None]
        due = trigger + min(limits) if limits else None
        yield env.all_of([env.process(self._stage(executor, s, run, marks, due)) for s in self.stages])
        record = self.record
        for name in self.ends:
            mark: _Mark | None = marks[name]
            ledger = Ledger()
            while mark is not None:
                ledger.take(mark.ledger)
                mark = mark.before
            record.ended(name, run, trigger, marks[name].at, ledger)
        record.runs += 1
        record.present.change(executor.now(), -1)
        if self._drained is not None and not record.present.now:
            self._drained.succeed()

    def _stage(
        self, executor: Executor, stage: PipelineStage, run: int, marks: Mapping[str, _Mark], due: Ps | None
    ) -> Generator[simpy.Event, Any, None]:
        """One stage of a run, from the last of what it waits for to its mark."""
        before: _Mark | None = None
        for name in stage.after:
            mark = marks[name]
            if not mark.reached.processed:
                yield mark.reached
            if before is None or mark.at > before.at:
                before = mark
        record = self.record
        begin, ledger = executor.now(), Ledger(path=record.log is not None)
        if stage.wait:
            yield executor.env.timeout(stage.wait)
            ledger.add("camera", stage.wait)
        elif stage.host:
            yield from executor.on_host(stage.host, "host", ledger, laid=stage.laid)
        elif stage.model is not None:
            session = Session(
                f"{self.name}.{stage.name}", Terms(stage.model.priority, self.weight, stage.model.max_call)
            )
            executor.begin(stage.model)
            yield from executor.on_host(executor.host.spec.per_frame, "host", ledger)
            yield from executor.step(session, stage.model, "frame", 0, 1, ledger, deadline=due)
            executor.end(stage.model)
        elif stage.chat is not None and stage.prompt is not None and stage.output is not None:

            def first(so_far: Ledger) -> None:
                marks[f"{stage.name}.{FIRST_TOKEN}"].reach(executor.now(), before, so_far)

            ask = Ask(stage.prompt(), stage.output(), 0)
            ledger = yield from stage.chat.answer(executor, ask, first)
        record.stage(stage.name, run, begin, executor.now(), ledger)
        marks[stage.name].reach(executor.now(), before, ledger)
