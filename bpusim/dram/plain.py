"""The channel as a fluid for a few masters with known flows, each of which takes all that it gets.

It does what :class:`bpusim.dram.FlowChannel` does, without events, and without what only others need: limits, paces,
bursts, meters. What moves on a flow channel may be taken over, and be given back later on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from bpusim.dram.moving import arrive, take
from bpusim.dram.transmission import Transmission
from bpusim.ports import Transfer
from bpusim.units import Ps

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
        self.due: Ps | None = None
        self.begin(0, 0.0)

    def begin(self, size: int, mix: float) -> None:
        """Move ``size`` bytes, of a call of which a part of ``mix`` is written."""
        self.bytes, self.mix = size, mix
        self.key = self.port.kind, -1.0, mix
        self.rate, self.latency, self.waited, self.slowed = -1.0, 0.0, 0.0, False
        self.history: list[_Row] = []


class _Lump(NamedTuple):
    """Bytes of which nobody asks any more what they are: a :class:`bpusim.ports.TransferList`."""

    bytes: int
    mix: float

    def __iter__(self) -> Iterator[Transfer]:  # type: ignore[override]  # nobody takes it for a tuple
        return iter(())


class Picture(NamedTuple):
    """What moves at an instant, and what has moved by then."""

    flows: list[tuple[PlainFlow, int, float, float, float, float, bool, Ps | None, list[_Row]]]
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
        own.begin(flow.bytes, flow.written)
        own.rate, own.latency, own.waited, own.slowed = flow.rate, flow.latency, flow.waited, flow.slowed
        own.due, own.history = flow.due, flow.history
        self._insert(own)
        if own.due is not None:
            self.first = min(self.first, own.due)
        return own

    def _insert(self, flow: PlainFlow) -> None:
        at = bisect_right(self._keys, flow.key)
        self._keys.insert(at, flow.key)
        self._flows.insert(at, flow)

    def start(self, flow: PlainFlow, size: int, mix: float) -> None:
        """Begin to move ``size`` bytes, of a call of which a part of ``mix`` is written."""
        port = flow.port
        port.active += 1
        if port.active > 1 and self._channel.shared(port):
            for f in self._flows:
                f.key, f.rate = (f.port.kind, -1.0, f.mix), -1.0
            self._flows.sort(key=_key)
            self._keys = [f.key for f in self._flows]
        flow.begin(size, mix)
        self._insert(flow)
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
                    take(f, rate, latency, now)
                due = f.due
                if due is not None and due < first:
                    first = due
        self.first = first

    def advance(self) -> None:
        """Go to the next end of a flow."""
        self.now = now = self.first
        soon = now + 1  # a picosecond apart is rounding
        ended = [f for f in self._flows if f.due is not None and f.due <= soon]
        self._ending = True
        for f in ended:
            at = self._flows.index(f)
            del self._flows[at], self._keys[at]
            f.port.active -= 1
        for f in ended:
            arrive(f, now)
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
        flows = [(f, f.bytes, f.mix, f.rate, f.latency, f.waited, f.slowed, f.due, [*f.history]) for f in self._flows]
        return Picture(flows, [(p, p.moved, p.waited, p.active, p.kind) for p in self._channel.ports])

    def give_back(self, picture: Picture) -> dict[PlainFlow, Transmission]:
        """The flow channel is as it was then; what moves on it, by whose it is."""
        for port, moved, waited, active, kind in picture.ports:
            port.moved, port.waited, port.active, port.kind = moved, waited, active, kind
        flows: dict[PlainFlow, Transmission] = {}
        for own, size, mix, rate, latency, waited, slowed, due, history in picture.flows:
            own.begin(size, mix)
            flow = flows[own] = self._real(own)
            flow.rate, flow.latency, flow.waited, flow.slowed, flow.fresh = rate, latency, waited, slowed, False
            flow.due, flow.history = due, history
        self._channel.take_back(list(flows.values()))
        return flows
