"""How bytes arrive at a rate that changes now and then: the arithmetic of all transfers at flow fidelity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bpusim.ports import CRUMB
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.dram.transmission import FlowPort

__all__ = ["Moving", "arrive", "take"]


class Moving(Protocol):
    """A transfer under way. It keeps a row of history for each rate it has had."""

    port: FlowPort
    bytes: int
    alone: float
    """B/s it would get with the channel to itself."""
    rate: float
    latency: float
    waited: float
    """Bytes up to the last row of the history times their latency."""
    slowed: bool
    due: Ps | None
    """When the last byte arrives at the present rate; None if it stands still."""
    history: list[tuple[Ps, float, float, float]]
    """Its rates so far; once it is done, the last row is its end."""


def take(flow: Moving, rate: float, latency: float, now: Ps) -> None:
    """Go on at ``rate`` from ``now``."""
    history, moved, size = flow.history, 0.0, flow.bytes
    if history:
        start, by_then, before, alone = history[-1]
        moved = by_then + before * (now - start) / PS_PER_S
        if moved > size:
            moved = float(size)
        flow.waited += (moved - by_then) * flow.latency
        if before < alone and start < now:
            flow.slowed = True
    flow.rate, flow.latency = rate, latency
    history.append((now, moved, rate, flow.alone))
    if rate > 0:
        flow.due = now + round((size - moved) * PS_PER_S / rate)
    else:
        flow.due = now if moved > size - CRUMB else None


def arrive(flow: Moving, now: Ps) -> None:
    """The last byte has arrived."""
    history, size, port = flow.history, flow.bytes, flow.port
    if history:
        start, by_then, before, alone = history[-1]
        port.waited += flow.waited + (size - by_then) * flow.latency
        if before < alone and start < now:
            flow.slowed = True
    history.append((now, float(size), 0.0, flow.alone))
    port.moved += size
