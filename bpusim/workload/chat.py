"""Chat users: in a closed loop (ask, read the answer, think, ask again) or as requests that arrive from outside."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import simpy

from bpusim.cores import HostTraffic
from bpusim.hardware import HostSpec
from bpusim.metrics import ChatRecord, Ledger, RequestRow
from bpusim.runtime import Answer, Executor, PlacedModel, Session, Terms
from bpusim.units import Ps
from bpusim.workload.draws import Ask
from bpusim.workload.slots import Slots

__all__ = ["ChatStream", "History"]

_LOGIT_BYTES = 2
History = Literal["none", "kept", "reread"]


@dataclass(slots=True)
class _User:
    """A conversation: its thread on the host, and what the cache holds of it (or would have to be read again)."""

    session: Session
    past: int = 0


@dataclass(slots=True)
class ChatStream:
    """Requests of ``users``, each one's from ``asks(user)``; the record says how they went.

    ``requests``: of all users, None if endless. ``open``: they arrive whatever becomes of those before; ``waiting``: so
    many may stand in line for a place in the KV cache, the others are rejected (None: no limit). ``history``: whether a
    user's prompt goes on from the answers before it, which are still in the cache (``kept``) or ``reread``. ``pace``:
    the least time from one token's start to the next one's. What the record's ``slo`` asks for are the deadlines of
    prefill and of each decode step.
    """

    name: str
    model: PlacedModel
    asks: Callable[[int], Iterator[Ask]]
    requests: int | None
    start: Ps
    slots: Slots
    record: ChatRecord
    users: int = 1
    open: bool = False
    waiting: int | None = None
    history: History = "none"
    pace: Ps = 0
    weight: float = 1.0
    _logits: HostTraffic = field(init=False)
    _index: int = 0
    _drained: simpy.Event | None = None

    def __post_init__(self) -> None:
        vocab = self.model.trace.header.vocab
        self._logits = HostTraffic("io:logits", {("io", False): vocab * _LOGIT_BYTES})

    @property
    def finite(self) -> bool:
        """Whether it comes to an end by itself."""
        return self.requests is not None

    @property
    def chats(self) -> dict[str, ChatStream]:
        """Itself."""
        return {self.name: self}

    @property
    def models(self) -> list[PlacedModel]:
        """The one that it asks."""
        return [self.model]

    @property
    def over(self) -> bool:
        """Whether all its requests are answered, or rejected."""
        return self.requests is not None and self.record.requests + self.record.rejected >= self.requests

    def run(self, executor: Executor) -> Generator[simpy.Event, Any, None]:
        """The stream's life, as a SimPy process."""
        env = executor.env
        if self.start:
            yield env.timeout(self.start)
        if self.open:
            yield from self._arrivals(executor)
        elif self.users == 1:
            yield from self._user(executor, 0)
        else:
            yield env.all_of([env.process(self._user(executor, k)) for k in range(self.users)])

    def _new(self) -> _User:
        return _User(Session(self.name, Terms(self.model.priority, self.weight, self.model.max_call)))

    def _user(self, executor: Executor, k: int) -> Generator[simpy.Event, Any, None]:
        user = self._new()
        held = self.history == "kept"
        for n, ask in enumerate(self.asks(k)):
            if n and ask.gap:
                yield executor.env.timeout(ask.gap)
            self.record.came(executor.now())
            yield from self._request(executor, user, ask, take=not (held and n), give=not held)
        if held:
            self.slots.give(self.name)

    def _arrivals(self, executor: Executor) -> Generator[simpy.Event, Any, None]:
        env = executor.env
        for ask in self.asks(0):
            if ask.gap:
                yield env.timeout(ask.gap)
            if self.waiting is not None and not self.slots.free and self.slots.waiting(self.name) >= self.waiting:
                self.record.arrived += 1
                self.record.rejected += 1
                continue
            self.record.came(executor.now())
            env.process(self._request(executor, self._new(), ask, take=True, give=True))
        self.record.backlog = self.record.present.now
        if self.record.present.now:
            self._drained = simpy.Event(env)
            yield self._drained

    def answer(
        self, executor: Executor, ask: Ask, first: Callable[[Ledger], None]
    ) -> Generator[simpy.Event, Any, Ledger]:
        """One request of a pipeline: ``first`` is told the causes of the time to its first token when that is out;
        returns those of all its time."""
        whole = Ledger()
        self.record.came(executor.now())

        def told(ledger: Ledger) -> None:
            if not whole.total:
                first(ledger)
            whole.take(ledger)

        yield from self._request(executor, self._new(), ask, take=True, give=True, told=told)
        return whole

    def _request(
        self,
        executor: Executor,
        user: _User,
        ask: Ask,
        *,
        take: bool,
        give: bool,
        told: Callable[[Ledger], None] | None = None,
    ) -> Generator[simpy.Event, Any, None]:
        """One request from its arrival to its last token. ``take``, ``give``: a place in the KV cache, before and
        after. ``told``: hears the causes of each token's time."""
        spec, record, now = executor.host.spec, self.record, executor.now
        index, self._index = self._index, self._index + 1
        arrived = now()
        ledger = record.new_ledger()
        turn = self.slots.take(self.name) if take else None
        if turn is not None:
            record.open[index] = ("waiting", arrived)
            yield turn
            ledger.add("queueing", now() - arrived)
        record.open[index] = ("prefill", arrived)
        executor.begin(self.model)
        kv, prompt = self._position(user, ask)
        ttft, tpot = record.slo
        due = arrived + ttft if ttft is not None else None
        yield from executor.on_host(spec.per_request + prompt * spec.tokenize_per_token, "host", ledger)
        chunk = self.model.trace.phase("prefill").tokens or prompt
        begun = now()
        for done in range(0, prompt, chunk):
            tokens = min(chunk, prompt - done)
            # The step behind the last chunk is its batch's, and not prepared by this thread.
            more = done + tokens < prompt or (ask.output > 1 and self.model.batch == 1)
            yield from executor.step(
                user.session, self.model, "prefill", kv + done, tokens, ledger, more=more, deadline=due
            )
        yield from self._sample(executor, ledger)
        first = now()
        record.began(index, arrived, first, ledger)
        cold = ledger.cold
        if told is not None:
            told(ledger)
        kv += prompt
        answer = Answer(index, user.session, self.model, record, kv, ask.output - 1, tpot, self._sampling(spec), ledger)
        if told is None and not self.pace and record.log is None:
            executor.decoding(answer)
        while answer.done < answer.steps:
            begin = answer.begin = now()
            record.open[index] = ("decode", begin)
            ledger = answer.ledger = record.new_ledger()
            if self.pace and begin < begun + self.pace:
                executor.pause(user.session, self.model)
                yield executor.env.timeout(begun + self.pace - begin)
                ledger.add("pacing", now() - begin)
            begun = now()
            due = begin + tpot if tpot is not None else None
            at = answer.done
            more = at + 1 < answer.steps  # nobody can prepare for a request that has not come
            yield from executor.decode(user.session, self.model, kv + at, ledger, more=more, deadline=due)
            yield from self._sample(executor, ledger)
            # NOTE: it may be several steps further on by now: see :mod:`bpusim.system.cruise`.
            record.went_on(index, answer.begin, now(), ledger)
            answer.done += 1
            if told is not None:
                told(ledger)
        executor.decoded(answer)
        del record.open[index]
        executor.end(self.model)
        if give:
            self.slots.give(self.name)
        end = now()
        record.went(arrived, first, end, ask.output, cold=cold)
        if record.rows is not None:
            record.rows.append(RequestRow(self.name, index, prompt, ask.output, arrived, first, end))
        if self._drained is not None and not record.present.now:
            self._drained.succeed()

    def _position(self, user: _User, ask: Ask) -> tuple[int, int]:
        """(cache entries that are there, tokens to be read) at the start of a request."""
        if self.history == "none":
            return 0, ask.prompt
        if user.past and user.past + 1 + ask.prompt + ask.output > self.model.context:
            user.past = 0  # it does not fit any more: the user starts anew
            self.record.restarts += 1
        new = ask.prompt + (1 if user.past else 0)  # the last token of an answer is not in the cache yet
        past, user.past = user.past, user.past + new + ask.output - 1
        return (past, new) if self.history == "kept" else (0, past + new)

    def _sample(self, executor: Executor, ledger: Ledger) -> Generator[simpy.Event, Any, None]:
        """Read a row of logits, pick a token, send it out."""
        duration, traffic = self._sampling(executor.host.spec)
        return executor.on_host(duration, "host", ledger, traffic)

    def _sampling(self, spec: HostSpec) -> tuple[Ps, HostTraffic]:
        """(time, bytes) of it."""
        return self.model.trace.header.vocab * spec.sample_per_entry + spec.per_token, self._logits
