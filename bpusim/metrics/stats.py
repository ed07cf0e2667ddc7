"""What a run says of a stream: vLLM's names for requests, and a camera's for frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bpusim.metrics.causes import Ledger, shares_ms
from bpusim.metrics.recorder import CoreCounters
from bpusim.metrics.samples import Samples
from bpusim.metrics.slo import Limited, fail
from bpusim.metrics.streams import ChatRecord, Cold, FrameRecord, PipelineRecord, rate_per_s
from bpusim.units import PS_PER_S, Ps

__all__ = ["ChatStats", "ColdStats", "EndStats", "FrameStats", "PhaseStats", "PipelineStats"]


@dataclass(frozen=True, slots=True)
class PhaseStats:
    """How the array was used over the wall time of a stream's phase: fractions of that time, and of the peak."""

    seconds: float
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

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seconds_s": self.seconds,
            "mac_busy_fraction": self.mac_busy_fraction,
            "mac_issued_fraction": self.mac_issued_fraction,
            "mac_utilization": self.mac_utilization,
        }


@dataclass(frozen=True, slots=True)
class ColdStats:
    """What had to wait for weights to load: how many, their mean time and its causes. No other mean and no percentile
    counts them; numbers of requests, frames, tokens, and of those in time or late, do."""

    count: int = 0
    mean_ms: float | None = None
    breakdown_ms: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, cold: Cold) -> ColdStats:
        """From a record."""
        mean, shares = shares_ms(cold.ledger.spent, len(cold.times))
        return cls(len(cold.times), mean if len(cold.times) else None, shares)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, among the figures of a stream."""
        return {"cold": self.count, "cold_mean_ms": self.mean_ms, "cold_breakdown_ms": dict(self.breakdown_ms)}


NEVER = ColdStats()


@dataclass(frozen=True, slots=True)
class ChatStats(Limited):
    """A chat stream. Means are over all first tokens and over all later tokens, cold requests left out; None where
    there are none."""

    tokens: int
    requests: int
    ttft_mean_ms: float | None
    ttft_p99_ms: float | None
    tpot_mean_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    decode_tokens_per_s: float
    tokens_per_s: float
    breakdown_ms: Mapping[str, float]
    ttft_breakdown_ms: Mapping[str, float]
    phases: Mapping[str, PhaseStats]
    ttft_p50_ms: float | None = None
    e2e_mean_ms: float | None = None
    e2e_p50_ms: float | None = None
    e2e_p99_ms: float | None = None
    arrived: int = 0
    rejected: int = 0
    restarts: int = 0
    """Conversations that outgrew the context."""
    under_way_mean: float = 0.0
    """Requests in the system, over time."""
    under_way_most: int = 0
    under_way_at_end: int = 0
    good: int = 0
    goodput_per_s: float = 0.0
    weight: float = 1.0
    slo_ttft_ms: float | None = None
    slo_tpot_ms: float | None = None
    cold: ColdStats = NEVER
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
            ttft_mean_ms=ttft if first_tokens else None,
            ttft_p99_ms=r.ttfts.percentile_ms(99),
            tpot_mean_ms=tpot if r.decode_tokens else None,
            itl_p50_ms=r.gaps.percentile_ms(50),
            itl_p99_ms=r.gaps.percentile_ms(99),
            decode_tokens_per_s=1000 / tpot if tpot else 0.0,
            tokens_per_s=rate_per_s(r.tokens, elapsed),
            breakdown_ms=tpot_shares,
            ttft_breakdown_ms=ttft_shares,
            phases=phases,
            ttft_p50_ms=r.ttfts.percentile_ms(50),
            e2e_mean_ms=r.whole.total / len(r.whole) / 1e9 if len(r.whole) else None,
            e2e_p50_ms=r.whole.percentile_ms(50),
            e2e_p99_ms=r.whole.percentile_ms(99),
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
            cold=ColdStats.of(r.cold),
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": "chat",
            "tokens": self.tokens,
            "requests": self.requests,
            "arrived": self.arrived,
            "rejected": self.rejected,
            "restarts": self.restarts,
            "under_way_mean": self.under_way_mean,
            "under_way_most": self.under_way_most,
            "under_way_at_end": self.under_way_at_end,
            "good": self.good,
            "goodput_per_s": self.goodput_per_s,
            "weight": self.weight,
            "slo_ttft_ms": self.slo_ttft_ms,
            "slo_tpot_ms": self.slo_tpot_ms,
            "e2e_mean_ms": self.e2e_mean_ms,
            "e2e_p50_ms": self.e2e_p50_ms,
            "e2e_p99_ms": self.e2e_p99_ms,
            "ttft_mean_ms": self.ttft_mean_ms,
            "ttft_p50_ms": self.ttft_p50_ms,
            "ttft_p99_ms": self.ttft_p99_ms,
            "tpot_mean_ms": self.tpot_mean_ms,
            "itl_p50_ms": self.itl_p50_ms,
            "itl_p99_ms": self.itl_p99_ms,
            "decode_tokens_per_s": self.decode_tokens_per_s,
            "tokens_per_s": self.tokens_per_s,
            "breakdown_ms": dict(self.breakdown_ms),
            "ttft_breakdown_ms": dict(self.ttft_breakdown_ms),
            **self.cold.to_dict(),
            "phases": {k: v.to_dict() for k, v in self.phases.items()},
        }


@dataclass(frozen=True, slots=True)
class FrameStats(Limited):
    """A camera stream. ``fps`` counts frames that came through, over wall time."""

    captured: int
    frames: int
    dropped: int
    latency_mean_ms: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    fps: float
    breakdown_ms: Mapping[str, float]
    late: int = 0
    """Frames that took longer than their deadline."""
    lost: int = 0
    """Frames that a blocked camera could not take."""
    line_mean: float = 0.0
    """Frames that wait for the model, over time."""
    line_most: int = 0
    under_way_mean: float = 0.0
    """Frames in the system, over time."""
    under_way_at_end: int = 0
    deadline_ms: float | None = None
    cold: ColdStats = NEVER
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
            latency_p50_ms=r.latencies.percentile_ms(50),
            latency_p99_ms=r.latencies.percentile_ms(99),
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
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": "frames",
            "captured": self.captured,
            "frames": self.frames,
            "dropped": self.dropped,
            "lost": self.lost,
            "deadline_ms": self.deadline_ms,
            "late": self.late,
            "line_mean": self.line_mean,
            "line_most": self.line_most,
            "under_way_mean": self.under_way_mean,
            "under_way_at_end": self.under_way_at_end,
            "latency_mean_ms": self.latency_mean_ms,
            "latency_p50_ms": self.latency_p50_ms,
            "latency_p99_ms": self.latency_p99_ms,
            "fps": self.fps,
            "breakdown_ms": dict(self.breakdown_ms),
            **self.cold.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class EndStats:
    """Time from a pipeline's trigger to the end of one of its stages, and its causes along the critical path."""

    mean_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    deadline_ms: float | None
    late: int
    breakdown_ms: Mapping[str, float]
    cold: ColdStats = NEVER
    """Runs that waited for weights to load on the way."""

    @classmethod
    def of(cls, r: PipelineRecord, stage: str) -> EndStats:
        """From a record."""
        times, ledger = r.ends.get(stage, Samples()), r.ledgers.get(stage, Ledger())
        mean, shares = shares_ms(ledger.spent, len(times))
        return cls(
            mean if len(times) else None,
            times.percentile_ms(50),
            times.percentile_ms(99),
            _ms(r.limits.get(stage)),
            r.late.get(stage, 0),
            shares,
            ColdStats.of(r.cold.get(stage, Cold())),
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "mean_ms": self.mean_ms,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "deadline_ms": self.deadline_ms,
            "late": self.late,
            "breakdown_ms": dict(self.breakdown_ms),
            **self.cold.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class PipelineStats(Limited):
    """A pipeline: ``ends`` by the stage to which time is measured, mean time of each stage itself, chat stages."""

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

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": "pipeline",
            "triggered": self.triggered,
            "dropped": self.dropped,
            "runs": self.runs,
            "under_way_mean": self.under_way_mean,
            "under_way_most": self.under_way_most,
            "ends": {stage: e.to_dict() for stage, e in self.ends.items()},
            "stages_ms": dict(self.stages_ms),
            "chats": {stage: c.to_dict() for stage, c in self.chats.items()},
        }

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


def _ms(duration: Ps | None) -> float | None:
    return duration / 1e9 if duration is not None else None
