"""What a run says of a stream: vLLM's names for requests, and a camera's for frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from bpusim.metrics.causes import Ledger, shares_ms
from bpusim.metrics.recorder import CoreCounters
from bpusim.metrics.samples import Samples
from bpusim.metrics.slo import Limited, fail
from bpusim.metrics.streams import ChatRecord, Cold, FrameRecord, PipelineRecord, rate_per_s
from bpusim.units import PS_PER_S, Ps

__all__ = ["ChatStats", "ColdStats", "EndStats", "FrameStats", "PhaseStats", "PipelineStats"]


@dataclass(frozen=True, slots=True)
class ColdStats:
    """What had to wait for weights to load: how many, their mean time and its causes. No other mean and no percentile
    counts them; numbers of requests, frames, tokens, and of those in time or late, do."""

    count: int
    mean_ms: float | None
    breakdown_ms: Mapping[str, float]

    @classmethod
    def of(cls, cold: Cold) -> ColdStats:
        """From a record."""
        mean, shares = shares_ms(cold.ledger.spent, len(cold.times))
        return cls(len(cold.times), mean if len(cold.times) else None, shares)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, among the figures of a stream."""
        return {"cold": self.count, "cold_mean_ms": self.mean_ms, "cold_breakdown_ms": dict(self.breakdown_ms)}


class Stats:
    """Figures by name, each with its unit at the end of the name."""

    __slots__ = ()
    kind: ClassVar[str] = ""
    """What stands before them in a summary, if anything."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        own: dict[str, Any] = {"kind": self.kind} if self.kind else {}
        for f in fields(self):  # type: ignore[arg-type]  # all are
            value = getattr(self, f.name)
            own |= value.to_dict() if isinstance(value, ColdStats) else {f.name: _plain(value)}
        return own


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return value.to_dict() if isinstance(value, Stats) else value


@dataclass(frozen=True, slots=True)
class PhaseStats(Stats):
    """How the array was used over the wall time of a stream's phase: fractions of that time, and of the peak."""

    seconds_s: float
    mac_busy_fraction: float
    mac_issued_fraction: float
    mac_utilization: float

    @classmethod
    def of(cls, counters: CoreCounters, duration: Ps, peak_macs_per_s: int) -> PhaseStats:
        """From counters; zero fractions of no time."""
        peak = peak_macs_per_s * duration / PS_PER_S
        if not duration:
            return cls(0.0, 0.0, 0.0, 0.0)
        return cls(duration / PS_PER_S, counters.mac_busy / duration, counters.issued / peak, counters.macs / peak)


@dataclass(frozen=True, slots=True)
class ChatStats(Stats, Limited):
    """A chat stream. ``ttft`` and ``e2e`` are of requests, ``itl`` of the gaps between tokens. ``tpot`` is a request's
    mean gap; its own mean is over all gaps. ``ttft`` and ``e2e`` leave cold requests out. None where there are none."""

    kind: ClassVar[str] = "chat"
    tokens: int
    requests: int
    arrived: int
    rejected: int
    restarts: int
    """Conversations that outgrew the context."""
    under_way_mean: float
    """Requests in the system, over time."""
    under_way_most: int
    under_way_at_end: int
    good: int
    goodput_per_s: float
    weight: float
    slo_ttft_ms: float | None
    slo_tpot_ms: float | None
    e2e_mean_ms: float | None
    e2e_p50_ms: float | None
    e2e_p90_ms: float | None
    e2e_p95_ms: float | None
    e2e_p99_ms: float | None
    ttft_mean_ms: float | None
    ttft_p50_ms: float | None
    ttft_p90_ms: float | None
    ttft_p95_ms: float | None
    ttft_p99_ms: float | None
    tpot_mean_ms: float | None
    tpot_p50_ms: float | None
    tpot_p90_ms: float | None
    tpot_p95_ms: float | None
    tpot_p99_ms: float | None
    itl_p50_ms: float | None
    itl_p90_ms: float | None
    itl_p95_ms: float | None
    itl_p99_ms: float | None
    decode_tokens_per_s: float
    tokens_per_s: float
    breakdown_ms: Mapping[str, float]
    ttft_breakdown_ms: Mapping[str, float]
    phases: Mapping[str, PhaseStats]
    cold: ColdStats
    """First tokens of requests that waited for weights to load; their whole times are in no E2E figure either."""

    @classmethod
    def of(cls, r: ChatRecord, elapsed: Ps, phases: Mapping[str, PhaseStats]) -> ChatStats:
        """From a record over ``elapsed`` of wall time."""
        first_tokens = len(r.ttfts)
        ttft, ttft_shares = shares_ms(r.first.spent, first_tokens)
        tpot, tpot_shares = shares_ms(r.decode.spent, r.decode_tokens)
        return cls(
            tokens=r.tokens,
            requests=r.requests,
            arrived=r.arrived,
            rejected=r.rejected,
            restarts=r.restarts,
            under_way_mean=r.present.mean(elapsed),
            under_way_most=r.present.most,
            under_way_at_end=r.present.now,
            good=r.good,
            goodput_per_s=rate_per_s(r.good, elapsed),
            weight=r.weight,
            slo_ttft_ms=_ms(r.slo[0]),
            slo_tpot_ms=_ms(r.slo[1]),
            e2e_mean_ms=r.whole.total / len(r.whole) / 1e9 if len(r.whole) else None,
            ttft_mean_ms=ttft if first_tokens else None,
            tpot_mean_ms=tpot if r.decode_tokens else None,
            decode_tokens_per_s=1000 / tpot if tpot else 0.0,
            tokens_per_s=rate_per_s(r.tokens, elapsed),
            breakdown_ms=tpot_shares,
            ttft_breakdown_ms=ttft_shares,
            phases=phases,
            cold=ColdStats.of(r.cold),
            **_percentiles("e2e_", r.whole),
            **_percentiles("ttft_", r.ttfts),
            **_percentiles("tpot_", r.tpots),
            **_percentiles("itl_", r.gaps),
        )


@dataclass(frozen=True, slots=True)
class FrameStats(Stats, Limited):
    """A camera stream. ``fps`` counts frames that came through, over wall time."""

    kind: ClassVar[str] = "frames"
    captured: int
    frames: int
    dropped: int
    latency_mean_ms: float | None
    latency_p50_ms: float | None
    latency_p90_ms: float | None
    latency_p95_ms: float | None
    latency_p99_ms: float | None
    fps: float
    breakdown_ms: Mapping[str, float]
    late: int
    """Frames that took longer than their deadline."""
    lost: int
    """Frames that a blocked camera could not take."""
    line_mean: float
    """Frames that wait for the model, over time."""
    line_most: int
    under_way_mean: float
    """Frames in the system, over time."""
    under_way_at_end: int
    deadline_ms: float | None
    cold: ColdStats
    """Frames that waited for weights to load."""

    @classmethod
    def of(cls, r: FrameRecord, elapsed: Ps) -> FrameStats:
        """From a record over ``elapsed`` of wall time."""
        mean, shares = shares_ms(r.ledger.spent, len(r.latencies))
        return cls(
            captured=r.captured,
            frames=r.through,
            dropped=r.dropped,
            latency_mean_ms=mean if r.latencies else None,
            fps=rate_per_s(r.through, elapsed),
            breakdown_ms=shares,
            late=r.late,
            lost=r.lost,
            line_mean=r.line.mean(elapsed),
            line_most=r.line.most,
            under_way_mean=r.present.mean(elapsed),
            under_way_at_end=r.present.now,
            deadline_ms=_ms(r.deadline),
            cold=ColdStats.of(r.cold),
            **_percentiles("latency_", r.latencies),
        )


@dataclass(frozen=True, slots=True)
class EndStats(Stats):
    """Time from a pipeline's trigger to the end of one of its stages, and its causes along the critical path."""

    mean_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    deadline_ms: float | None
    late: int
    breakdown_ms: Mapping[str, float]
    cold: ColdStats
    """Runs that waited for weights to load on the way."""

    @classmethod
    def of(cls, r: PipelineRecord, stage: str) -> EndStats:
        """From a record."""
        times, ledger = r.ends.get(stage, Samples()), r.ledgers.get(stage, Ledger())
        mean, shares = shares_ms(ledger.spent, len(times))
        return cls(
            mean_ms=mean if len(times) else None,
            deadline_ms=_ms(r.limits.get(stage)),
            late=r.late.get(stage, 0),
            breakdown_ms=shares,
            cold=ColdStats.of(r.cold.get(stage, Cold())),
            **_percentiles("", times),
        )


@dataclass(frozen=True, slots=True)
class PipelineStats(Stats, Limited):
    """A pipeline: ``ends`` by the stage to which time is measured, mean time of each stage itself, chat stages."""

    kind: ClassVar[str] = "pipeline"
    triggered: int
    dropped: int
    runs: int
    ends: Mapping[str, EndStats]
    stages_ms: Mapping[str, float]
    chats: Mapping[str, ChatStats]
    under_way_mean: float
    under_way_most: int

    @classmethod
    def of(cls, r: PipelineRecord, elapsed: Ps, chats: Mapping[str, ChatStats]) -> PipelineStats:
        """From a record over ``elapsed`` of wall time."""
        return cls(
            r.triggered,
            r.dropped,
            r.runs,
            {stage: EndStats.of(r, stage) for stage in r.limits},
            {stage: times.total / len(times) / 1e9 for stage, times in r.stages.items()},
            chats,
            r.present.mean(elapsed),
            r.present.most,
        )

    def assert_slo(self, **limits: object) -> None:
        """As of other streams, with the figures of its ends by ``STAGE_FIGURE``: ``assert_slo(talk_p99="1 s")``."""
        flat = {k: v for k, v in self.to_dict().items() if not isinstance(v, dict)}
        flat |= {
            f"{stage}_{k}": v
            for stage, e in self.ends.items()
            for k, v in e.to_dict().items()
            if not isinstance(v, dict)
        }
        fail(flat, limits)


def _percentiles(name: str, samples: Samples) -> dict[str, Any]:
    return {f"{name}p{q}_ms": samples.percentile_ms(q) for q in (50, 90, 95, 99)}


def _ms(duration: Ps | None) -> float | None:
    return duration / 1e9 if duration is not None else None
