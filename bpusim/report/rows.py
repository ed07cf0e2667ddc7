"""Rows of tables and bars, taken from a summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["BreakdownRow", "breakdown_rows", "chats_of"]


@dataclass(frozen=True, slots=True)
class BreakdownRow:
    """A mean latency by cause, in ms."""

    stream: str
    what: str
    ms: dict[str, float]

    @property
    def total(self) -> float:
        """The mean itself."""
        return sum(self.ms.values())


def chats_of(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Chat streams, and chat stages of pipelines as ``PIPELINE.STAGE``."""
    out: dict[str, Mapping[str, Any]] = {}
    for name, s in summary["streams"].items():
        if s["kind"] == "chat":
            out[name] = s
        out |= {f"{name}.{stage}": c for stage, c in s.get("chats", {}).items()}
    return out


def breakdown_rows(summary: Mapping[str, Any]) -> list[BreakdownRow]:
    """Of everything that came to its end, by what it is: first tokens, tokens, frames, runs; then the cold ones."""
    return [row for row in (*_warm(summary), *_cold(summary)) if row.total > 0]


def _warm(summary: Mapping[str, Any]) -> Iterator[BreakdownRow]:
    chats = chats_of(summary)
    yield from (BreakdownRow(n, "First token (TTFT)", c["ttft_breakdown_ms"]) for n, c in chats.items())
    yield from (BreakdownRow(n, "Each token after it (ITL)", c["breakdown_ms"]) for n, c in chats.items())
    for name, s in summary["streams"].items():
        if s["kind"] == "frames":
            yield BreakdownRow(name, "A frame", s["breakdown_ms"])
    for name, s in summary["streams"].items():
        for stage, end in s.get("ends", {}).items():
            yield BreakdownRow(f"{name}: {stage}", "From trigger to the end of a stage", end["breakdown_ms"])


def _cold(summary: Mapping[str, Any]) -> Iterator[BreakdownRow]:
    what = "Cold: waited for weights to load"
    for name, c in chats_of(summary).items():
        yield BreakdownRow(name, what, c["cold_breakdown_ms"])
    for name, s in summary["streams"].items():
        if s["kind"] == "frames":
            yield BreakdownRow(name, what, s["cold_breakdown_ms"])
        for stage, end in s.get("ends", {}).items():
            yield BreakdownRow(f"{name}: {stage}", what, end["cold_breakdown_ms"])
