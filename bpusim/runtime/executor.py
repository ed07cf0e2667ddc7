"""Runs one step of a model: dispatch, calls, CPU ops, hand-overs, each interval charged to its cause."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import simpy

from bpusim.alarm import Later
from bpusim.cores import WHOLE, CallResult, CorePool, HostCluster, HostTraffic, Laid
from bpusim.metrics import ChatRecord, Ledger
from bpusim.runtime.batching import Batch
from bpusim.runtime.calls import ORDINARY, Terms
from bpusim.runtime.placement import PlacedModel
from bpusim.runtime.queue import CoreQueue
from bpusim.runtime.team import TeamQueue, Turns
from bpusim.trace import CallProgram, CpuWork
from bpusim.units import Ps

__all__ = ["Answer", "Executor", "Leg", "RuntimeOptions", "Session"]


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Settings of the host's runtime."""

    log_ops: bool = False
    memory_pool: bool = True
    async_submit: bool = True
    fallback: Laid = WHOLE
    """How CPU ops are laid on cores."""


@dataclass(slots=True)
class Session:
    """One stream's thread on the host, and the terms of its calls. ``ahead``: when its next call is prepared, on a CPU
    core of its own; an event if that core has to be waited for. ``prepared``: for so many sequences. ``batched``: its
    sequence is in the batch of its model, which waits for it."""

    stream: str
    terms: Terms = ORDINARY
    ahead: Ps | simpy.Event | None = None
    prepared: int = 1
    batched: bool = False
    submitted: Ps = 0
    """When its call under way was."""


@dataclass(slots=True)
class Leg:
    """A call's way: its core's queue, that of the call behind it, what going there and coming back is charged to, what
    its preparation takes for any step and for each sequence."""

    queue: CoreQueue | TeamQueue
    next: CoreQueue | TeamQueue
    phase: str
    enters: str
    leaves: str
    preparation: Ps
    each: Ps
    upcoming: Leg | None = None
    """The next call of the step, if it is prepared while this one runs."""
    final: bool = False
    """It is the last of the step."""
    around: tuple[CoreQueue, ...] = ()
    """Queues of which the shortest takes it, and the next one too."""
    shortest: Callable[[CoreQueue], int] = attrgetter("load")
    """How long a queue is."""


@dataclass(slots=True, eq=False)
class Answer:
    """An answer that is being decoded: ``done`` of ``steps`` decode steps, over a cache of ``kv`` entries before the
    first. ``begin``: of the step under way, with its causes so far in ``ledger``."""

    index: int
    session: Session
    model: PlacedModel
    record: ChatRecord
    kv: int
    steps: int
    tpot: Ps | None
    """From the begin of a step to its deadline."""
    sampling: tuple[Ps, HostTraffic]
    """What the host does after each step."""
    ledger: Ledger
    begin: Ps = 0
    done: int = 0


class Executor:
    """The runtime's way of running a step on the machine."""

    def __init__(
        self, env: simpy.Environment, host: HostCluster, queues: Mapping[int, CoreQueue], options: RuntimeOptions
    ) -> None:
        self.env = env
        self.host = host
        self.queues = queues
        self.options = options
        self._routes: dict[tuple[str, str], list[list[Leg]]] = {}
        self.batches: dict[str, Batch] = {}
        """By model, of those that serve several sequences a step."""
        self._teams: dict[str, TeamQueue] = {}
        self._turns = Turns()
        self.answers: dict[Answer, None] = {}
        """Those that are being decoded token by token, each step a call and what the host does for any."""

    def now(self) -> Ps:
        """Simulated time."""
        return self.env.now  # type: ignore[return-value]  # integer by construction

    def begin(self, model: PlacedModel) -> None:
        """A request of ``model`` is with the host, on its way to the first of its cores."""
        self._present(model, 1)

    def end(self, model: PlacedModel) -> None:
        """A request of ``model`` is over."""
        self._present(model, -1)

    def _present(self, model: PlacedModel, by: int) -> None:
        for k, core in enumerate(model.cores):
            k = 0 if model.anywhere or model.team else k
            self.queues[core].waits.change(host=0 if k else by, elsewhere=by if k else 0)

    def on_host(
        self, duration: Ps, cause: str, ledger: Ledger, traffic: HostTraffic | None = None, laid: Laid = WHOLE
    ) -> Generator[simpy.Event, Any, None]:
        """Host work, charged to ``cause``; time in line for a CPU core is ``queueing``, what a slow clock costs is
        ``throttling``."""
        begin = self.now()
        done = self.host.work(duration, traffic, laid)
        if done is not None:
            queued, lost = yield done
            if queued:
                ledger.add("queueing", queued)
            if lost:
                ledger.add("throttling", lost)
            ledger.add(cause, self.now() - begin - queued - lost)

    def decode(
        self,
        session: Session,
        model: PlacedModel,
        kv: int,
        ledger: Ledger,
        *,
        more: bool,
        deadline: Ps | None = None,
    ) -> Generator[simpy.Event, Any, None]:
        """A decode step of one sequence: alone, or with others if its model has a batch."""
        if model.batch == 1:
            return self.step(session, model, "decode", kv, 1, ledger, more=more, deadline=deadline)
        inside, session.batched = session.batched, more
        batch = self.batches.get(model.name) or self._batch(model)
        return batch.step(kv, session.terms.weight, deadline, ledger, inside=inside, stays=more)

    def decoding(self, answer: Answer) -> None:
        """An answer is being decoded, as far as :attr:`answers` are concerned."""
        if answer.model.plain and self.options.memory_pool and not self.options.log_ops:
            self.answers[answer] = None

    def decoded(self, answer: Answer) -> None:
        """It is no longer."""
        self.answers.pop(answer, None)

    def pause(self, session: Session, model: PlacedModel) -> None:
        """The next decode step of a sequence is not due yet: its batch goes on without it."""
        if session.batched:
            session.batched = False
            self.batches[model.name].leave()

    def _batch(self, model: PlacedModel) -> Batch:
        session = Session(f"{model.name}/batch")  # no stream can be called that

        def run(
            kvs: tuple[int, ...], weight: float, deadline: Ps | None, more: bool, ledger: Ledger
        ) -> Generator[simpy.Event, Any, None]:
            session.terms = Terms(model.priority, weight, model.max_call)
            return self.step(session, model, "decode", kvs, 1, ledger, more=more, deadline=deadline)

        batch = self.batches[model.name] = Batch(self.env, session.stream, model.batch, run)
        return batch

    def step(
        self,
        session: Session,
        model: PlacedModel,
        phase: str,
        kv: int | tuple[int, ...],
        tokens: int,
        ledger: Ledger,
        *,
        more: bool = False,
        deadline: Ps | None = None,
    ) -> Generator[simpy.Event, Any, None]:
        """One pass over a phase of ``model``, once its weights are there: a prefill chunk, a decode step, or a frame;
        ``kv``: of each sequence.

        ``deadline``: when it should be over, for policies that ask. ``more``: another step is sure to follow, so that
        an asynchronous runtime prepares its first call meanwhile.
        """
        if model.loader is not None:
            yield from model.loader.enter(ledger)
        route = self._routes.get((model.name, phase))
        if route is None:
            route = self._routes[model.name, phase] = self._route(model, phase, kv, tokens)
        again = route[0][0] if more and route[0] else None
        for part, legs in enumerate(route):
            calls = iter(legs)
            program = model.bind(part, phase, kv, tokens)
            if part in model.on_chip:
                model.warm.add(part)  # what comes behind this step finds its weights there
            for segment in program.segments:
                if isinstance(segment, CpuWork):
                    yield from self._fallback(f"{session.stream}/{phase}", segment, ledger)
                else:
                    yield from self._call(session, next(calls), segment, again, ledger, deadline)
        if model.loader is not None:
            model.loader.room.leave()

    def only_leg(self, model: PlacedModel, phase: str) -> Leg | None:
        """The way of the one call of a phase, once a step has begun; None if there are more."""
        match self._routes.get((model.name, phase)):
            case [[leg]]:
                return leg
        return None

    def _route(self, model: PlacedModel, phase: str, kv: int | tuple[int, ...], tokens: int) -> list[list[Leg]]:
        """The calls of a phase, part by part: where each goes, and what the way there and back is charged to."""
        route: list[list[Leg]] = []
        for part, (core, _) in enumerate(model.parts):
            segments = model.bind(part, phase, kv, tokens).segments
            calls = [k for k, s in enumerate(segments) if isinstance(s, CallProgram)]
            legs: list[Leg] = []
            for n, k in enumerate(calls):
                call, last = segments[k], n + 1 == len(calls)
                assert isinstance(call, CallProgram)
                hands_over = last and part < len(model.parts) - 1
                after_cpu = k > 0 and isinstance(segments[k - 1], CpuWork)
                before_cpu = k + 1 < len(segments) and isinstance(segments[k + 1], CpuWork)
                legs.append(
                    Leg(
                        self._line(model, core),
                        self._line(model, core if not last else model.parts[(part + 1) % len(model.parts)][0]),
                        phase,
                        "fallback" if after_cpu else "handover" if part and not n else "dispatch",
                        "fallback" if before_cpu else "handover" if hands_over else "dispatch",
                        max(self.host.spec.dispatch - self.host.spec.doorbell, 0),  # descriptors
                        call.layout.caches * self.host.spec.dispatch_per_layer,  # addresses of a sequence's cache
                        around=tuple(self.queues[c] for c in model.anywhere),
                        shortest=attrgetter("backlog" if model.balance == "bandwidth" else "load"),
                    )
                )
                if n:
                    legs[n - 1].upcoming = legs[n]
                legs[n].final = last and not hands_over
            route.append(legs)
        return route

    def _line(self, model: PlacedModel, core: int) -> CoreQueue | TeamQueue:
        """Where the calls of a part on ``core`` go."""
        team = model.team
        if team is None:
            return self.queues[core]
        if model.name not in self._teams:
            queues = [self.queues[c] for c in team.cores]
            self._teams[model.name] = TeamQueue(self.env, queues, team.sync, self._turns)
        return self._teams[model.name]

    def _call(
        self, session: Session, leg: Leg, call: CallProgram, again: Leg | None, ledger: Ledger, deadline: Ps | None
    ) -> Generator[simpy.Event, Any, None]:
        """Submit one call and wait for its interrupt; prepare the next one meanwhile, if submit is async.

        ``again``: the first call of the step behind this one, None if there may be none.
        """
        env, host, options = self.env, self.host, self.options
        spec = host.spec
        if not options.memory_pool:
            yield from self.on_host(call.layout.tensors * spec.allocate_per_tensor, "host", ledger)
        begin = self.now()
        ahead, session.ahead = session.ahead, None
        sequences = len(call.position[0])
        prepare = spec.doorbell
        if ahead is None:
            prepare += leg.preparation + leg.each * sequences
        else:
            prepare += leg.each * max(sequences - session.prepared, 0)  # who has joined since
            if not isinstance(ahead, simpy.Event):
                if ahead > begin:
                    yield env.timeout(ahead - begin)
            elif not ahead.processed:
                yield ahead
        done = host.work(prepare)
        queued, lost = (yield done) if done is not None else (0, 0)
        submitted = session.submitted = self.now()
        if queued:
            ledger.add("queueing", queued)
        if lost:
            ledger.add("throttling", lost)
        ledger.add(leg.enters, submitted - begin - queued - lost)
        leaving = spec.interrupt + host.cache_ps(call.written("io"))
        over, away = Later(env), sequences * int(leg.next is not leg.queue)
        held: CorePool | None = None

        def ended(result: CallResult) -> None:
            # The interrupt follows at once if a CPU core is free for it: one event for both.
            nonlocal held
            for q in leg.around or (leg.next,):
                q.waits.change(host=sequences, elsewhere=-away)
            if away:
                leg.queue.waits.change(elsewhere=sequences)
            held = host.take() if leaving > 0 else None
            if held is not None:
                host.after(held.span(leaving), lambda _: over.happen(result))
            else:
                over.succeed_in(0, result)

        for q in leg.around or (leg.queue,):
            q.waits.change(host=-sequences)
        queue = min(leg.around, key=leg.shortest) if leg.around else leg.queue
        queue.submit(call, session.stream, leg.phase, ended, session.terms, deadline)
        upcoming = again if leg.final else leg.upcoming
        if upcoming is not None and options.async_submit:
            session.ahead = host.aside(upcoming.preparation + upcoming.each * sequences)
            session.prepared = sequences
        result: CallResult = yield over
        if result.start > session.submitted:
            ledger.add("queueing", result.start - session.submitted)
        ledger.add_call(result.causes)
        if result.suspended:
            ledger.add("queueing", result.suspended)
        if result.sync:
            ledger.add("sync", result.sync)
        if held is not None:
            host.give(held)
            leaving = held.span(leaving)
            lost = self.now() - result.end - leaving
            if lost > 0:
                ledger.add("throttling", lost)
            ledger.add(leg.leaves, leaving + min(lost, 0))  # several changes of the clock within it may round down
        else:
            yield from self.on_host(leaving, leg.leaves, ledger)
        if options.log_ops:
            yield from self.on_host(len(call.ops) * spec.log_per_op, "host", ledger)

    def _fallback(self, label: str, work: CpuWork, ledger: Ledger) -> Generator[simpy.Event, Any, None]:
        """An op on the CPU: allocation without a pool, cache maintenance, and the op with its DRAM traffic."""
        spec = self.host.spec
        if not self.options.memory_pool:
            yield from self.on_host(work.tensors * spec.allocate_per_tensor, "host", ledger)
        traffic, begin, observer = HostTraffic(f"spill:{work.op_id}", work.moved), self.now(), self.host.observer
        yield from self.on_host(
            self.host.cache_ps(traffic.bytes) + self.host.fallback_ps(work),
            "fallback",
            ledger,
            traffic,
            self.options.fallback,
        )
        if observer.wants_host:
            observer.cpu_op_ended(label, work.op_id, work.type, work.moved, begin, self.now())
        if self.options.log_ops:
            yield from self.on_host(spec.log_per_op, "host", ledger)
