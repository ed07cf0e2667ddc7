"""What a run says: plain values, each with its unit in the key of :meth:`Result.to_dict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bpusim.metrics.causes import shares_ms
from bpusim.metrics.heat import HeatStats
from bpusim.metrics.recorder import CoreCounters
from bpusim.metrics.streams import ChatRecord, FrameRecord, RequestRow, rate_per_s
from bpusim.ports import BufferKind
from bpusim.units import PS_PER_S, Ps

__all__ = ["ChatStats", "CoreStats", "DramStats", "FrameStats", "PhaseStats", "Result", "RunWarning"]

SCHEMA = "bpusim-summary/1"


@dataclass(frozen=True, slots=True)
class RunWarning:
    """Something that is probably not what was meant, and its fix."""

    code: str
    text: str


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
class ChatStats:
    """A chat stream. Means are over all first tokens and over all later tokens; None where there are none."""

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
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": "chat",
            "tokens": self.tokens,
            "requests": self.requests,
            "ttft_mean_ms": self.ttft_mean_ms,
            "ttft_p99_ms": self.ttft_p99_ms,
            "tpot_mean_ms": self.tpot_mean_ms,
            "itl_p50_ms": self.itl_p50_ms,
            "itl_p99_ms": self.itl_p99_ms,
            "decode_tokens_per_s": self.decode_tokens_per_s,
            "tokens_per_s": self.tokens_per_s,
            "breakdown_ms": dict(self.breakdown_ms),
            "ttft_breakdown_ms": dict(self.ttft_breakdown_ms),
            "phases": {k: v.to_dict() for k, v in self.phases.items()},
        }


@dataclass(frozen=True, slots=True)
class FrameStats:
    """A camera stream. ``fps`` counts frames that came through, over wall time."""

    captured: int
    frames: int
    dropped: int
    latency_mean_ms: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    fps: float
    breakdown_ms: Mapping[str, float]

    @classmethod
    def of(cls, r: FrameRecord, elapsed: Ps) -> FrameStats:
        """From a record over ``elapsed`` of wall time."""
        mean, shares = shares_ms(r.ledger.spent, len(r.latencies))
        return cls(
            captured=r.captured,
            frames=len(r.latencies),
            dropped=r.dropped,
            latency_mean_ms=mean if r.latencies else None,
            latency_p50_ms=r.latencies.percentile_ms(50),
            latency_p99_ms=r.latencies.percentile_ms(99),
            fps=rate_per_s(len(r.latencies), elapsed),
            breakdown_ms=shares,
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": "frames",
            "captured": self.captured,
            "frames": self.frames,
            "dropped": self.dropped,
            "latency_mean_ms": self.latency_mean_ms,
            "latency_p50_ms": self.latency_p50_ms,
            "latency_p99_ms": self.latency_p99_ms,
            "fps": self.fps,
            "breakdown_ms": dict(self.breakdown_ms),
        }


@dataclass(frozen=True, slots=True)
class CoreStats:
    """A core over the whole run: four utilisations that are never mixed, and what was loaded on it."""

    calls: int
    occupied_fraction: float
    mac_busy_fraction: float
    mac_issued_fraction: float
    mac_utilization: float
    load_log: Sequence[str]

    @classmethod
    def of(
        cls, counters: CoreCounters, occupied: Ps, elapsed: Ps, peak_macs_per_s: int, load_log: Sequence[str]
    ) -> CoreStats:
        """From counters over ``elapsed`` of wall time."""
        use = PhaseStats.of(counters, elapsed, peak_macs_per_s)
        fraction = occupied / elapsed if elapsed else 0.0
        return cls(
            counters.calls, fraction, use.mac_busy_fraction, use.mac_issued_fraction, use.mac_utilization, load_log
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "calls": self.calls,
            "occupied_fraction": self.occupied_fraction,
            "mac_busy_fraction": self.mac_busy_fraction,
            "mac_issued_fraction": self.mac_issued_fraction,
            "mac_utilization": self.mac_utilization,
            "load_log": list(self.load_log),
        }


@dataclass(frozen=True, slots=True)
class DramStats:
    """The channel over the whole run: bytes of finished work by master and kind, and of work cut off at the end.

    ``channel_bytes``: all that the channel gave each master, to the last. ``latency``: mean time of each master's lines
    in ps. ``dropped``: bytes that open-loop masters lost. ``background``: what part of their bytes masters of the
    machine file write. ``errors``: known deviation of the fidelity from what ``against`` names, by class of traffic, in
    percent, mean and most.
    """

    preset: str
    fidelity: str
    peak_bytes_per_s: int
    moved: Mapping[str, Mapping[tuple[BufferKind, bool], int]]
    channel_bytes: Mapping[str, int]
    elapsed: Ps
    latency: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    background: Mapping[str, float] = field(default_factory=dict)
    against: str = ""
    errors: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def total(self, write: bool) -> int:
        """Bytes one way."""
        ours = sum(n for table in self.moved.values() for (_, w), n in table.items() if w == write)
        return ours + sum(self._background(name)[write] for name in self.background)

    def _background(self, master: str) -> tuple[int, int]:
        """(read, written) bytes of a master of the machine file."""
        moved = self.channel_bytes.get(master, 0)
        written = round(moved * self.background[master])
        return moved - written, written

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        read, write = self.total(False), self.total(True)
        rate = rate_per_s(sum(self.channel_bytes.values()), self.elapsed)
        masters: dict[str, dict[str, Any]] = {}
        for master, total in sorted(self.channel_bytes.items()):
            table = self.moved.get(master, {})
            row = masters[master] = {
                f"{kind}_{'write' if w else 'read'}_bytes": n for (kind, w), n in sorted(table.items())
            }
            if master in self.background:
                row["read_bytes"], row["write_bytes"] = self._background(master)
                if master in self.dropped:
                    row["dropped_bytes"] = self.dropped[master]
            else:
                row["unfinished_bytes"] = total - sum(table.values())
            if master in self.latency:
                row["mean_latency_ns"] = round(self.latency[master] / 1000, 1)
        return {
            "preset": self.preset,
            "fidelity": self.fidelity,
            "known_error_percent": {
                "against": self.against,
                **{kind: {"mean": mean, "most": most} for kind, (mean, most) in self.errors.items()},
            },
            "read_bytes": read,
            "write_bytes": write,
            "achieved_bytes_per_s": rate,
            "peak_bytes_per_s": self.peak_bytes_per_s,
            "peak_fraction": rate / self.peak_bytes_per_s,
            "by_master": masters,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """A whole run. ``requests``: a row each in order of arrival, None unless the run was told to keep them
    (``simulate(..., records=True)``)."""

    scenario: str
    elapsed: Ps
    events: int
    seed: int
    streams: Mapping[str, ChatStats | FrameStats]
    cores: Mapping[str, CoreStats]
    dram: DramStats
    resident_bytes: int
    usable_bytes: int
    warnings: Sequence[RunWarning]
    requests: Sequence[RequestRow] | None = field(repr=False)
    about: str = ""
    heat: HeatStats | None = None
    """None where nothing is said of the heat path."""

    @property
    def decode_tokens_per_s(self) -> float:
        """Sum over chat streams of 1 / mean TPOT."""
        return sum(s.decode_tokens_per_s for s in self.streams.values() if isinstance(s, ChatStats))

    @property
    def tokens_per_s(self) -> float:
        """All tokens over wall time."""
        tokens = sum(s.tokens for s in self.streams.values() if isinstance(s, ChatStats))
        return rate_per_s(tokens, self.elapsed)

    def to_dict(self) -> dict[str, Any]:
        """The summary: the same inputs give the same bytes. Nothing in it depends on the machine it ran on."""
        return {
            "schema": SCHEMA,
            "scenario": self.scenario,
            "about": self.about,
            "simulated_s": self.elapsed / PS_PER_S,
            "events": self.events,
            "seed": self.seed,
            "streams": {k: v.to_dict() for k, v in self.streams.items()},
            "total": {"decode_tokens_per_s": self.decode_tokens_per_s, "tokens_per_s": self.tokens_per_s},
            "cores": {k: v.to_dict() for k, v in self.cores.items()},
            "dram": self.dram.to_dict(),
            **({"heat": self.heat.to_dict()} if self.heat is not None else {}),
            "memory": {"resident_bytes": self.resident_bytes, "usable_bytes": self.usable_bytes},
            "warnings": [{"code": w.code, "text": w.text} for w in self.warnings],
        }
