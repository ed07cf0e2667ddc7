"""A chat user in a closed loop: asks, reads the answer, thinks, asks again."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import simpy

from bpusim.cores import HostTraffic
from bpusim.metrics import ChatRecord, Ledger, RequestRow
from bpusim.runtime import Executor, PlacedModel, Session, Terms
from bpusim.units import Ps

__all__ = ["ChatStream"]

_LOGIT_BYTES = 2


@dataclass(slots=True)
class ChatStream:
    """``requests`` (None: endless) of ``prompt`` and ``output`` tokens; the record says how they went."""

    name: str
    model: PlacedModel
    prompt: int
    output: int
    requests: int | None
    start: Ps
    think: Ps
    record: ChatRecord
    slo: tuple[Ps | None, Ps | None] = (None, None)
    """TTFT and TPOT to be met: deadlines of prefill and of each decode step."""
    weight: float = 1.0
    _logits: HostTraffic = field(init=False)

    def __post_init__(self) -> None:
        vocab = self.model.trace.header.vocab
        self._logits = HostTraffic("io:logits", {("io", False): vocab * _LOGIT_BYTES})

    @property
    def over(self) -> bool:
        """Whether all its requests are answered."""
        return self.record.requests == self.requests

    def run(self, executor: Executor) -> Generator[simpy.Event, Any, None]:
        """The user's life, as a SimPy process."""
        session = Session(self.name, Terms(self.model.priority, self.weight, self.model.max_call))
        if self.start:
            yield executor.env.timeout(self.start)
        index = 0
        while self.requests is None or index < self.requests:
            yield from self._request(executor, session, index)
            index += 1
            if self.think and index != self.requests:
                yield executor.env.timeout(self.think)

    def _request(self, executor: Executor, session: Session, index: int) -> Generator[simpy.Event, Any, None]:
        spec, record = executor.host.spec, self.record
        arrived = executor.now()
        ttft, tpot = self.slo
        due = arrived + ttft if ttft is not None else None
        record.open = ("prefill", arrived)
        ledger = Ledger()
        yield from executor.on_host(spec.per_request + self.prompt * spec.tokenize_per_token, "host", ledger)
        chunk = self.model.trace.phase("prefill").tokens or self.prompt
        for done in range(0, self.prompt, chunk):
            tokens = min(chunk, self.prompt - done)
            more = done + tokens < self.prompt or self.output > 1
            yield from executor.step(session, self.model, "prefill", done, tokens, ledger, more=more, deadline=due)
        yield from self._sample(executor, ledger)
        first = executor.now()
        ledger.close(first - arrived)
        record.first.take(ledger)
        record.ttfts.append(first - arrived)
        record.tokens += 1
        for n in range(self.output - 1):
            begin = executor.now()
            record.open = ("decode", begin)
            ledger = Ledger()
            due = begin + tpot if tpot is not None else None
            more = n + 2 < self.output  # nobody can prepare for a request that has not come
            yield from executor.step(session, self.model, "decode", self.prompt + n, 1, ledger, more=more, deadline=due)
            yield from self._sample(executor, ledger)
            gap = executor.now() - begin
            ledger.close(gap)
            record.decode.take(ledger)
            record.gaps.append(gap)
            record.tokens += 1
        record.open = None
        record.requests += 1
        if record.rows is not None:
            record.rows.append(RequestRow(self.name, index, self.prompt, self.output, arrived, first, executor.now()))

    def _sample(self, executor: Executor, ledger: Ledger) -> Generator[simpy.Event, Any, None]:
        """Read a row of logits, pick a token, send it out."""
        spec, vocab = executor.host.spec, self.model.trace.header.vocab
        return executor.on_host(vocab * spec.sample_per_entry + spec.per_token, "host", ledger, self._logits)
