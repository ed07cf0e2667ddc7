"""Ops of a run, looked at: their points under a roof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bpusim.ports import BUFFER_KINDS
from bpusim.report.ops import OP_CAUSES

__all__ = ["OpPoint", "op_bytes", "op_points", "op_time_us", "phase_points"]


@dataclass(frozen=True, slots=True)
class OpPoint:
    """An op of a stream's phase, over all cores and executions; or a phase as a whole."""

    label: str
    op: str
    intensity: float
    """Operations a byte."""
    achieved: float
    """Operations a second."""
    share: float
    """Of the time of all ops."""


def op_time_us(row: Mapping[str, Any]) -> float:
    """What it added to the time of its calls."""
    return float(sum(row[f"{c}_us"] for c in OP_CAUSES))


def op_bytes(row: Mapping[str, Any]) -> int:
    """All that it moved."""
    return sum(row[f"{k}_bytes"] for k in BUFFER_KINDS)


def op_points(rows: Sequence[Mapping[str, Any]], bytes_per_s: float) -> list[OpPoint]:
    """Ops that have MACs and bytes. Data that came while others computed cost an op no time of its own: it is taken to
    last as long as its bytes at ``bytes_per_s``, at least, and lies on the roof then."""
    return list(_points(rows, lambda row: row["op"], bytes_per_s))


def phase_points(rows: Sequence[Mapping[str, Any]]) -> list[OpPoint]:
    """Phases of streams as a whole: all operations over all bytes, and over the time of all calls."""
    return list(_points(rows, lambda _: "", None))


def _points(rows: Sequence[Mapping[str, Any]], key: Any, bytes_per_s: float | None) -> Iterable[OpPoint]:
    whole = sum(map(op_time_us, rows))
    sums: dict[tuple[str, str], tuple[int, int, float]] = {}
    for row in rows:
        at = row["label"], key(row)
        macs, size, us = sums.get(at, (0, 0, 0.0))
        sums[at] = macs + row["macs"], size + op_bytes(row), us + op_time_us(row)
    for (label, op), (macs, size, us) in sums.items():
        least = size / bytes_per_s * 1e6 if bytes_per_s else 0.0
        if macs and size and us:
            yield OpPoint(label, op, 2 * macs / size, 2 * macs / max(us, least) * 1e6, us / whole)
