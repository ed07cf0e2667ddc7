"""The channel as a fluid for a few masters who take turns with known flows, each all that it gets: the arithmetic of
:class:`bpusim.dram.FlowChannel` without events, and without what only others need (limits, paces, bursts, meters).

What moves on a flow channel may be taken over, and be given back later on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from bpusim.dram.transmission import Transmission
from bpusim.ports import CRUMB, Transfer
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.dram.flow import FlowChannel
    from bpusim.dram.transmission import FlowPort

__all__ = ["FOREVER", "Picture", "PlainChannel", "PlainFlow"]

FOREVER: Ps = 1 << 200
_Row = tuple[Ps, float, float, float]
_key = attrgetter("key")


class PlainFlow:
    """A master's flow, one at a time: used again for each. ``then`` is called at its end, with the time."""

    __slots__ = (
        "alone", "bytes", "due", "history", "key", "latency", "mix", "port", "rate", "slowed", "then", "waited",
    )  # fmt: skip

    def __init__(self, port: FlowPort, then: Callable[[Ps], None]) -> None:
        self.port, self.then = port, then
        self.alone = port.rate_alone
        self.mix = 0.0
        self.key = port.kind, -1.0, self.mix
        self.bytes = 0
        self.rate, self.latency, self.waited, self.slowed = -1.0, 0.0, 0.0, False
        self.due: Ps = FOREVER
        self.history: list[_Row] = []


class _Lump(NamedTuple):
    """Bytes of which nobody asks any more what they are: a :class:`bpusim.ports.TransferList`."""

    bytes: int
    mix: float

    def __iter__(self) -> Iterator[Transfer]:  # type: ignore[override]  # nobody takes it for a tuple
        return iter(())


class Picture(NamedTuple):
    """What moves at an instant, and what has moved by then."""

    flows: list[tuple[PlainFlow, FlowPort, int, float, float, float, float, bool, Ps, list[_Row]]]
    ports: list[tuple[FlowPort, int, float, int, int]]


class PlainChannel:
    """Takes over a flow channel at ``now``; ``first``: when the next flow ends."""

    def __init__(self, channel: FlowChannel, now: Ps) -> None:
        self.now = now
        self.first: Ps = FOREVER
        self._channel = channel
        self._flows: list[PlainFlow] = []
        self._keys: list[tuple[int, float, float]] = []
        self._ending = False

    def take_over(self, flow: Transmission, then: Callable[[Ps], None]) -> PlainFlow:
        """Go on with what moves."""
        own = PlainFlow(flow.port, then)
        own.mix, own.key, own.bytes = flow.written, flow.key, flow.bytes
        own.rate, own.latency, own.waited, own.slowed = flow.rate, flow.latency, flow.waited, flow.slowed
        own.due, own.history = FOREVER if flow.due is None else flow.due, flow.history
        at = bisect_right(self._keys, own.key)
        self._keys.insert(at, own.key)
        self._flows.insert(at, own)
        self.first = min(self.first, own.due)
        return own

    def flow(self, port: FlowPort, then: Callable[[Ps], None]) -> PlainFlow:
        """A flow of a master, to be started later."""
        return PlainFlow(port, then)

    def start(self, flow: PlainFlow, size: int, mix: float) -> None:
        """Move ``size`` bytes, of a call of which a part of ``mix`` is written."""
        port = flow.port
        flow.bytes, flow.rate, flow.waited, flow.slowed, flow.history = size, -1.0, 0.0, False, []
        port.active += 1
        if port.active > 1 and self._channel.shared(port):
            for f in self._flows:
                f.key, f.rate = (f.port.kind, -1.0, f.mix), -1.0
            self._flows.sort(key=_key)
            self._keys = [f.key for f in self._flows]
        flow.mix = mix
        flow.key = key = port.kind, -1.0, mix
        keys = self._keys
        at = bisect_right(keys, key)
        keys.insert(at, key)
        self._flows.insert(at, flow)
        if not self._ending:
            self._share()

    def _share(self) -> None:
        """Work out all rates anew, and when the next flow ends."""
        now, flows, first = self.now, self._flows, FOREVER
        if flows:
            mix = tuple(self._keys)
            shares = self._channel.mixes.get(mix) or self._channel.mixed(mix, [self._real(f) for f in flows])
            for f, rate, latency in zip(flows, shares.rates, shares.latencies, strict=True):
                if rate != f.rate:
                    history, moved, size = f.history, 0.0, f.bytes
                    if history:
                        start, by_then, before, alone = history[-1]
                        moved = by_then + before * (now - start) / PS_PER_S
                        if moved > size:
                            moved = float(size)
                        f.waited += (moved - by_then) * f.latency
                        if before < alone and start < now:
                            f.slowed = True
                    f.rate, f.latency = rate, latency
                    history.append((now, moved, rate, f.alone))
                    if rate > 0:
                        f.due = now + round((size - moved) * PS_PER_S / rate)
                    else:
                        f.due = now if moved > size - CRUMB else FOREVER
                if f.due < first:
                    first = f.due
        self.first = first

    def advance(self) -> None:
        """Go to the next end of a flow."""
        self.now = now = self.first
        soon = now + 1  # a picosecond apart is rounding
        ended = [f for f in self._flows if f.due <= soon]
        self._ending = True
        for f in ended:
            at = self._flows.index(f)
            del self._flows[at], self._keys[at]
            f.port.active -= 1
        for f in ended:
            size, port = f.bytes, f.port
            start, by_then, before, alone = f.history[-1]
            port.waited += f.waited + (size - by_then) * f.latency
            port.moved += size
            if before < alone and start < now:
                f.slowed = True
            f.history.append((now, float(size), 0.0, f.alone))
            f.then(now)
        self._ending = False
        self._share()

    def _real(self, flow: PlainFlow) -> Transmission:
        return Transmission(self._channel, flow.port, _Lump(flow.bytes, flow.mix), None, None, None, None)

    def clear(self) -> None:
        """Nothing moves on it any more."""
        self._flows.clear()

    def picture(self) -> Picture:
        """What it is like."""
        flows = [
            (f, f.port, f.bytes, f.mix, f.rate, f.latency, f.waited, f.slowed, f.due, [*f.history]) for f in self._flows
        ]
        return Picture(flows, [(p, p.moved, p.waited, p.active, p.kind) for p in self._channel.ports])

    def give_back(self, picture: Picture) -> dict[PlainFlow, Transmission]:
        """The flow channel is as it was then; what moves on it, by whose it is."""
        for port, moved, waited, active, kind in picture.ports:
            port.moved, port.waited, port.active, port.kind = moved, waited, active, kind
        flows: dict[PlainFlow, Transmission] = {}
        for own, port, size, mix, rate, latency, waited, slowed, due, history in picture.flows:
            flow = Transmission(self._channel, port, _Lump(size, mix), None, None, None, None)
            flow.rate, flow.latency, flow.waited, flow.slowed, flow.fresh = rate, latency, waited, slowed, False
            flow.due, flow.history = due if due < FOREVER else None, history
            flows[own] = flow
        self._channel.take_back(list(flows.values()))
        return flows
