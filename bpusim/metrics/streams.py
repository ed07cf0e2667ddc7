"""What users of a stream feel, by the field's names: TTFT, TPOT, ITL, frame latency."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bpusim.metrics.causes import Ledger
from bpusim.metrics.samples import Samples
from bpusim.units import PS_PER_S, Ps

__all__ = ["ChatRecord", "Cold", "FrameRecord", "Level", "PipelineRecord", "RequestRow", "StepLog", "rate_per_s"]


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One finished request: when it came, when its first and last token were out."""

    stream: str
    index: int
    prompt: int
    tokens: int
    arrived: Ps
    first_token: Ps
    end: Ps

    @property
    def ttft(self) -> Ps:
        """Time to first token."""
        return self.first_token - self.arrived


@dataclass(slots=True)
class Level:
    """A number that goes up and down: what it is, the most it was, and its integral over time."""

    now: int = 0
    most: int = 0
    _since: Ps = 0
    _area: int = 0

    def change(self, at: Ps, by: int) -> None:
        """It changes by so much at this instant."""
        self._area += self.now * (at - self._since)
        self._since = at
        self.now += by
        self.most = max(self.most, self.now)

    def mean(self, until: Ps) -> float:
        """Over time, from 0 to ``until``."""
        return (self._area + self.now * (until - self._since)) / until if until else 0.0


@dataclass(slots=True)
class Cold:
    """Times of what had to wait for weights to load, and their causes: kept apart from all others."""

    times: Samples = field(default_factory=Samples)
    ledger: Ledger = field(default_factory=Ledger)

    def took(self, duration: Ps, ledger: Ledger) -> None:
        """Count one more."""
        self.times.append(duration)
        self.ledger.take(ledger)


StepLog = Callable[[str, int, Ps, Ps, Ledger], None]
"""Hears of a step of a stream that is over: its kind, number of the request (frame, run), begin, end, causes."""


@dataclass(slots=True)
class ChatRecord:
    """Everything counted of one chat stream. ``decode`` and ``first`` sum the causes of all decode tokens and of all
    times to first token but ``cold`` ones."""

    rows: list[RequestRow] | None = None
    """Every finished request, if they are to be kept."""
    slo: tuple[Ps | None, Ps | None] = (None, None)
    """TTFT and mean TPOT that a good request keeps."""
    weight: float = 1.0
    arrived: int = 0
    rejected: int = 0
    """Those that found no place in line."""
    requests: int = 0
    good: int = 0
    """Finished requests that met what was asked of them."""
    restarts: int = 0
    """Conversations that outgrew the context and began anew."""
    tokens: int = 0
    ttfts: Samples = field(default_factory=Samples)
    gaps: Samples = field(default_factory=Samples)
    tpots: Samples = field(default_factory=Samples)
    """Mean gap of each finished request with two tokens or more."""
    whole: Samples = field(default_factory=Samples)
    """From arrival to the last token."""
    decode: Ledger = field(default_factory=Ledger)
    first: Ledger = field(default_factory=Ledger)
    cold: Cold = field(default_factory=Cold)
    """Times to first token of requests that waited for weights to load."""
    open: dict[int, tuple[str, Ps]] = field(default_factory=dict)
    """The step in progress of each request: its phase (``waiting`` for room in the cache) and when it began."""
    backlog: int = 0
    """Requests under way when the last of arrivals had come."""
    present: Level = field(default_factory=Level)
    """Requests in the system."""
    log: StepLog | None = None
    """Told of first tokens (``first token``) and all others (``token``)."""

    @property
    def times(self) -> Samples:
        """What paces it: times of decode tokens."""
        return self.gaps

    def came(self, at: Ps) -> None:
        """A request that is not rejected."""
        self.arrived += 1
        self.present.change(at, 1)

    def new_ledger(self) -> Ledger:
        """For the causes of a step."""
        return Ledger(path=self.log is not None)

    def began(self, request: int, arrived: Ps, now: Ps, ledger: Ledger) -> None:
        """A first token is out, with the causes of the time to it."""
        duration = now - arrived
        ledger.close(duration)
        self.tokens += 1
        if self.log is not None:
            self.log("first token", request, arrived, now, ledger)
        if ledger.cold:
            self.cold.took(duration, ledger)
        else:
            self.ttfts.append(duration)
            self.first.take(ledger)

    def went_on(self, request: int, begin: Ps, now: Ps, ledger: Ledger) -> None:
        """Another token is out, with the causes of the time since the one before."""
        gap = now - begin
        ledger.close(gap)
        self.tokens += 1
        self.decode.take(ledger)
        self.gaps.append(gap)
        if self.log is not None:
            self.log("token", request, begin, now, ledger)

    def went_far(self, gaps: Iterable[Ps], ledger: Ledger) -> None:
        """Several tokens of an answer are out, the last ones of which there is no log, with the causes of all."""
        for gap in gaps:
            self.gaps.append(gap)
            self.tokens += 1
        self.decode.take(ledger)

    def went(self, arrived: Ps, first: Ps, end: Ps, tokens: int, *, cold: bool = False) -> None:
        """A request is answered."""
        self.requests += 1
        self.present.change(end, -1)
        if not cold:
            self.whole.append(end - arrived)
        if tokens > 1:
            self.tpots.append((end - first) // (tokens - 1))
        ttft, tpot = self.slo
        in_time = ttft is None or first - arrived <= ttft
        self.good += in_time and (tpot is None or end - first <= tpot * max(tokens - 1, 0))

    def phase_time(self, phase: str, now: Ps) -> Ps:
        """Time spent in ``prefill`` or ``decode`` up to ``now``, steps in progress included."""
        done = self.ttfts.total + self.cold.times.total if phase == "prefill" else self.gaps.total
        return done + sum(now - since for p, since in self.open.values() if p == phase)

    def tokens_lost(self, lived: Ps) -> float:
        """How many more tokens ``lived``, the time since its start, would have brought without ``throttling``."""
        slow = sum(ledger.spent["throttling"] for ledger in (self.first, self.decode, self.cold.ledger))
        return self.tokens * slow / (lived - slow) if lived > slow else 0.0

    @property
    def decode_tokens(self) -> int:
        """Tokens after the first of their request."""
        return len(self.gaps)


@dataclass(slots=True)
class FrameRecord:
    """Everything counted of one camera stream."""

    deadline: Ps | None = None
    """From capture to the end."""
    captured: int = 0
    dropped: int = 0
    lost: int = 0
    """Those that the camera could not take, because the line was full and none is dropped."""
    late: int = 0
    """Those that took longer than their deadline."""
    latencies: Samples = field(default_factory=Samples)
    ledger: Ledger = field(default_factory=Ledger)
    cold: Cold = field(default_factory=Cold)
    """Frames that waited for weights to load."""
    present: Level = field(default_factory=Level)
    """Frames in the system."""
    line: Level = field(default_factory=Level)
    """Frames that wait for the model."""
    log: StepLog | None = None
    """Told of frames (``frame``)."""

    @property
    def times(self) -> Samples:
        """What paces it: latencies of frames."""
        return self.latencies

    @property
    def through(self) -> int:
        """Frames that came to their end."""
        return len(self.latencies) + len(self.cold.times)

    def new_ledger(self) -> Ledger:
        """For the causes of a frame."""
        return Ledger(path=self.log is not None)

    def ended(self, captured: Ps, now: Ps, ledger: Ledger) -> None:
        """A frame has come through, with the causes of its time."""
        latency = now - captured
        ledger.close(latency)
        if self.log is not None:
            self.log("frame", self.through, captured, now, ledger)
        if ledger.cold:
            self.cold.took(latency, ledger)
        else:
            self.latencies.append(latency)
            self.ledger.take(ledger)
        self.late += self.deadline is not None and latency > self.deadline


@dataclass(slots=True)
class PipelineRecord:
    """Everything counted of one pipeline. ``ends``: time from trigger to a stage's end, of those it is measured to;
    ``stages``: time of each stage itself; ``chats``: what became of its chat stages."""

    triggered: int = 0
    dropped: int = 0
    runs: int = 0
    ends: dict[str, Samples] = field(default_factory=dict)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    """Causes of the time to each end, along the critical path."""
    cold: dict[str, Cold] = field(default_factory=dict)
    """Times to each end of runs that waited for weights to load on the way."""
    late: dict[str, int] = field(default_factory=dict)
    stages: dict[str, Samples] = field(default_factory=dict)
    chats: dict[str, ChatRecord] = field(default_factory=dict)
    limits: dict[str, Ps | None] = field(default_factory=dict)
    backlog: int = 0
    """Runs under way at the last trigger."""
    present: Level = field(default_factory=Level)
    log: StepLog | None = None
    """Told of stages (by name), and of the whole time to each end (``to the end of STAGE``)."""

    @property
    def times(self) -> Samples:
        """What paces it: times to the first of its ends."""
        return next((self.ends[n] for n in self.limits if n in self.ends), Samples())

    def ended(self, stage: str, run: int, trigger: Ps, at: Ps, ledger: Ledger) -> None:
        """A run has come to the end of ``stage``, with the causes of all its time since its trigger."""
        whole, limit = at - trigger, self.limits.get(stage)
        late = limit is not None and whole > limit
        ledger.close(whole)
        if self.log is not None:
            self.log(f"to the end of {stage}", run, trigger, at, ledger)
        if ledger.cold:
            self.cold.setdefault(stage, Cold()).took(whole, ledger)
        else:
            self.ends.setdefault(stage, Samples()).append(whole)
            self.ledgers.setdefault(stage, Ledger()).take(ledger)
        self.late[stage] = self.late.get(stage, 0) + late

    def stage(self, name: str, run: int, begin: Ps, now: Ps, ledger: Ledger) -> None:
        """A stage is over, with the causes of its time; those that waited for weights to load are kept apart."""
        if not ledger.cold:
            self.stages.setdefault(name, Samples()).append(now - begin)
        if self.log is not None:
            self.log(name, run, begin, now, ledger)


def rate_per_s(count: int, duration: Ps) -> float:
    """``count`` per second of ``duration``; 0 of no time."""
    return count * PS_PER_S / duration if duration else 0.0
