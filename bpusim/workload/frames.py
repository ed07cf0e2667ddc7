"""A camera: frames at a rate, a short line, a model, and stages before and after."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import simpy

from bpusim.cores import WHOLE, Laid
from bpusim.errors import SimulationError
from bpusim.metrics import FrameRecord, Ledger
from bpusim.runtime import Executor, PlacedModel, Session, Terms
from bpusim.units import PS_PER_S, Ps
from bpusim.workload.chat import ChatStream
from bpusim.workload.draws import Draw, fixed

__all__ = ["FrameStream"]

_ON_TIME = fixed(0)
_MOST = 100_000
"""Frames under way at a time: more than that will never be served."""


@dataclass(slots=True)
class _Frame:
    captured: Ps
    queued: Ps
    ledger: Ledger


@dataclass(slots=True)
class FrameStream:
    """Frames at ``rate`` Hz (``count`` of them, None: endless), each up to ``jitter`` early or late. ``camera`` stages
    pass outside the machine and overlap from frame to frame; ``cpu`` stages occupy a CPU core.

    A frame that finds the line of ``queue`` full costs one: itself (``newest``), the one that waits longest
    (``oldest``), or none (``block``): it waits, and the camera takes no other meanwhile. ``threads`` take frames from
    the line; with ``overlap`` a thread takes the next one while the CPU still works on what comes after the model.
    """

    name: str
    model: PlacedModel
    rate: float
    count: int | None
    queue: int
    drop: Literal["oldest", "newest", "block"]
    before: Mapping[Any, Ps]
    after: Mapping[Any, Ps]
    start: Ps
    record: FrameRecord
    weight: float = 1.0
    jitter: Draw = _ON_TIME
    """ps by which a frame is late."""
    threads: int = 1
    overlap: bool = True
    laid: Laid = WHOLE
    """How its ``cpu`` stages are laid on cores."""
    _line: deque[_Frame] = field(default_factory=deque)
    _idle: deque[simpy.Event] = field(default_factory=deque)
    """Threads that wait for a frame."""
    _blocked: deque[simpy.Event] = field(default_factory=deque)
    """Frames that wait for room in the line."""
    _drained: simpy.Event | None = None

    @property
    def finite(self) -> bool:
        """Whether it comes to an end by itself."""
        return self.count is not None

    @property
    def chats(self) -> dict[str, ChatStream]:
        """None."""
        return {}

    @property
    def models(self) -> list[PlacedModel]:
        """The one that it asks."""
        return [self.model]

    def run(self, executor: Executor) -> Generator[simpy.Event, Any, None]:
        """The camera's life, as a SimPy process; ends when the last of ``count`` frames is through."""
        env, now = executor.env, executor.now
        for _ in range(self.threads):
            env.process(self._serve(executor))
        index = 0
        while self.count is None or index < self.count:
            due = self.start + round(index * PS_PER_S / self.rate) + self.jitter()
            if due > now():
                yield env.timeout(due - now())
            index += 1
            if self.drop == "block" and self._blocked:
                self.record.lost += 1
                continue
            self.record.captured += 1
            self.record.present.change(now(), 1)
            if self.record.present.now > _MOST:
                raise SimulationError(
                    f"{_MOST} frames of {self.name} are under way at {now() / PS_PER_S:.3f} s: they come faster than "
                    "what is before the model takes them",
                    do="lower the rate, or shorten the stages before",
                )
            env.process(self._arrive(executor))
        if self.record.present.now:
            self._drained = simpy.Event(env)
            yield self._drained

    def _gone(self, at: Ps) -> None:
        """A frame has left, served or dropped."""
        self.record.present.change(at, -1)
        if not self.record.present.now and self._drained is not None:
            self._drained.succeed()

    def _stages(
        self, executor: Executor, stages: Mapping[Any, Ps], ledger: Ledger
    ) -> Generator[simpy.Event, Any, None]:
        for stage, duration in stages.items():
            if stage == "camera":
                yield executor.env.timeout(duration)
                ledger.add("camera", duration)
            else:
                yield from executor.on_host(duration, "host", ledger, laid=self.laid)

    def _arrive(self, executor: Executor) -> Generator[simpy.Event, Any, None]:
        """From capture to the queue."""
        captured, ledger = executor.now(), self.record.new_ledger()
        yield from self._stages(executor, self.before, ledger)
        if len(self._line) >= self.queue and self.drop == "block":
            room = simpy.Event(executor.env)
            self._blocked.append(room)
            arrived = executor.now()
            yield room
            ledger.add("queueing", executor.now() - arrived)
        elif len(self._line) >= self.queue:
            self.record.dropped += 1
            self._gone(executor.now())
            if self.drop == "newest":
                return
            self._line.popleft()
            self.record.line.change(executor.now(), -1)
        self._line.append(_Frame(captured, executor.now(), ledger))
        self.record.line.change(executor.now(), 1)
        if self._idle:
            self._idle.popleft().succeed()

    def _serve(self, executor: Executor) -> Generator[simpy.Event, Any, None]:
        """A thread: one frame after another through the model."""
        session = Session(self.name, Terms(self.model.priority, self.weight, self.model.max_call))
        while True:
            while not self._line:
                self._idle.append(simpy.Event(executor.env))
                yield self._idle[-1]
            frame = self._line.popleft()
            self.record.line.change(executor.now(), -1)
            if self._blocked:
                self._blocked.popleft().succeed()
            frame.ledger.add("queueing", executor.now() - frame.queued)
            executor.begin(self.model)
            yield from executor.on_host(executor.host.spec.per_frame, "host", frame.ledger)
            due = frame.captured + self.record.deadline if self.record.deadline is not None else None
            yield from executor.step(session, self.model, "frame", 0, 1, frame.ledger, deadline=due)
            executor.end(self.model)
            if self.overlap:
                executor.env.process(self._leave(executor, frame))
            else:
                yield from self._leave(executor, frame)

    def _leave(self, executor: Executor, frame: _Frame) -> Generator[simpy.Event, Any, None]:
        """From the model to the user."""
        yield from self._stages(executor, self.after, frame.ledger)
        self.record.ended(frame.captured, executor.now(), frame.ledger)
        self._gone(executor.now())
