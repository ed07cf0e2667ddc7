"""What users of a stream feel, by the field's names: TTFT, TPOT, ITL, frame latency."""

from __future__ import annotations

from dataclasses import dataclass, field

from bpusim.metrics.causes import Ledger
from bpusim.metrics.samples import Samples
from bpusim.units import PS_PER_S, Ps

__all__ = ["ChatRecord", "FrameRecord", "RequestRow", "rate_per_s"]


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
class ChatRecord:
    """Everything counted of one chat stream. ``decode`` and ``first`` sum the causes of all decode tokens and of all
    times to first token."""

    rows: list[RequestRow] | None = None
    """Every finished request, if they are to be kept."""
    requests: int = 0
    tokens: int = 0
    ttfts: Samples = field(default_factory=Samples)
    gaps: Samples = field(default_factory=Samples)
    decode: Ledger = field(default_factory=Ledger)
    first: Ledger = field(default_factory=Ledger)
    open: tuple[str, Ps] | None = None
    """The step in progress: its phase and when it began."""

    def phase_time(self, phase: str, now: Ps) -> Ps:
        """Time spent in ``prefill`` or ``decode`` up to ``now``, the step in progress included."""
        done = self.ttfts.total if phase == "prefill" else self.gaps.total
        return done + (now - self.open[1] if self.open is not None and self.open[0] == phase else 0)

    def tokens_lost(self, lived: Ps) -> float:
        """How many more tokens ``lived``, the time since its start, would have brought without ``throttling``."""
        slow = self.first.spent["throttling"] + self.decode.spent["throttling"]
        return self.tokens * slow / (lived - slow) if lived > slow else 0.0

    @property
    def decode_tokens(self) -> int:
        """Tokens after the first of their request."""
        return len(self.gaps)


@dataclass(slots=True)
class FrameRecord:
    """Everything counted of one camera stream."""

    captured: int = 0
    dropped: int = 0
    late: int = 0
    """Those that took longer than their deadline."""
    latencies: Samples = field(default_factory=Samples)
    ledger: Ledger = field(default_factory=Ledger)


def rate_per_s(count: int, duration: Ps) -> float:
    """``count`` per second of ``duration``; 0 of no time."""
    return count * PS_PER_S / duration if duration else 0.0
