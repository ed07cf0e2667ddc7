"""A camera: frames at a fixed rate, a short queue, a model, and stages before and after."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import simpy

from bpusim.metrics import FrameRecord, Ledger
from bpusim.runtime import Executor, PlacedModel, Session, Terms
from bpusim.units import PS_PER_S, Ps

__all__ = ["FrameStream"]


@dataclass(slots=True)
class _Frame:
    captured: Ps
    queued: Ps
    ledger: Ledger


@dataclass(slots=True)
class FrameStream:
    """Frames at ``rate`` Hz (``count`` of them, None: endless). ``camera`` stages pass outside the machine and overlap
    from frame to frame; ``cpu`` stages occupy a CPU core. A frame that finds the queue full costs one: itself
    (``newest``) or the one that waits longest (``oldest``)."""

    name: str
    model: PlacedModel
    rate: float
    count: int | None
    queue: int
    drop: Literal["oldest", "newest"]
    before: Mapping[str, Ps]
    after: Mapping[str, Ps]
    start: Ps
    record: FrameRecord
    deadline: Ps | None = None
    """From capture to the end."""
    weight: float = 1.0
    _line: deque[_Frame] = field(default_factory=deque)
    _wake: simpy.Event | None = None
    _open: int = 0
    _drained: simpy.Event | None = None

    def run(self, executor: Executor) -> Generator[simpy.Event, Any, None]:
        """The camera's life, as a SimPy process; ends when the last of ``count`` frames is through."""
        env = executor.env
        env.process(self._serve(executor))
        index = 0
        while self.count is None or index < self.count:
            due = self.start + round(index * PS_PER_S / self.rate)
            if due > executor.now():
                yield env.timeout(due - executor.now())
            self.record.captured += 1
            self._open += 1
            env.process(self._arrive(executor))
            index += 1
        if self._open:
            self._drained = simpy.Event(env)
            yield self._drained

    def _gone(self) -> None:
        """A frame has left, served or dropped."""
        self._open -= 1
        if not self._open and self._drained is not None:
            self._drained.succeed()

    def _stages(
        self, executor: Executor, stages: Mapping[str, Ps], ledger: Ledger
    ) -> Generator[simpy.Event, Any, None]:
        for stage, duration in stages.items():
            if stage == "camera":
                yield executor.env.timeout(duration)
                ledger.add("camera", duration)
            else:
                yield from executor.on_host(duration, "host", ledger)

    def _arrive(self, executor: Executor) -> Generator[simpy.Event, Any, None]:
        """From capture to the queue."""
        captured, ledger = executor.now(), Ledger()
        yield from self._stages(executor, self.before, ledger)
        if len(self._line) >= self.queue:
            self.record.dropped += 1
            self._gone()
            if self.drop == "newest":
                return
            self._line.popleft()
        self._line.append(_Frame(captured, executor.now(), ledger))
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def _serve(self, executor: Executor) -> Generator[simpy.Event, Any, None]:
        """One frame after another through the model; what comes after it overlaps the next."""
        session = Session(self.name, Terms(self.model.priority, self.weight, self.model.max_call))
        while True:
            if not self._line:
                self._wake = simpy.Event(executor.env)
                yield self._wake
            frame = self._line.popleft()
            frame.ledger.add("queueing", executor.now() - frame.queued)
            yield from executor.on_host(executor.host.spec.per_frame, "host", frame.ledger)
            due = frame.captured + self.deadline if self.deadline is not None else None
            yield from executor.step(session, self.model, "frame", 0, 1, frame.ledger, deadline=due)
            executor.env.process(self._leave(executor, frame))

    def _leave(self, executor: Executor, frame: _Frame) -> Generator[simpy.Event, Any, None]:
        """From the model to the user."""
        yield from self._stages(executor, self.after, frame.ledger)
        latency = executor.now() - frame.captured
        frame.ledger.close(latency)
        self.record.ledger.take(frame.ledger)
        self.record.latencies.append(latency)
        if self.deadline is not None and latency > self.deadline:
            self.record.late += 1
        self._gone()
