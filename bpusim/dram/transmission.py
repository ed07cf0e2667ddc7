"""What masters hold of a channel at flow fidelity: their ports, and transfers under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bpusim.dram.ending import Ending
from bpusim.dram.moving import arrive
from bpusim.dram.port import MasterPort
from bpusim.ports import Flow, Passage, TransferList
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.dram.flow import FlowChannel

__all__ = ["FlowPort", "Transmission"]


class Transmission(Ending):
    """A transfer under way on a :class:`bpusim.dram.FlowChannel`: a :class:`bpusim.ports.Flow`.

    It keeps its history of rates; what it has moved is worked out from the last row when somebody asks.
    """

    __slots__ = (
        "_channel",
        "alone",
        "asked",
        "bytes",
        "due",
        "fresh",
        "history",
        "key",
        "latency",
        "limit",
        "pace",
        "part",
        "port",
        "rate",
        "rising",
        "slowed",
        "throttled",
        "waited",
        "written",
    )  # fmt: skip

    def __init__(
        self,
        channel: FlowChannel,
        port: FlowPort,
        parts: TransferList,
        limit: float | None,
        pace: float | None,
        rising: Callable[[], None] | None,
        then: Callable[[Flow], None] | None,
    ) -> None:
        self.ended = False
        self.then = then
        self._env = channel.env
        self._done = None
        self._channel = channel
        self.port = port
        self.bytes = parts.bytes
        self.written = parts.mix
        self.limit = limit
        self.pace = pace
        self.rising = rising
        self.rate = -1.0
        self.latency = 0.0
        self.waited = 0.0
        self.slowed = False
        self.throttled = 0.0
        """ps that a slow channel clock has cost, up to the last row of the history."""
        self.part = channel.part
        """Of its full clock that the channel has had since then."""
        self.due: Ps | None = None
        self.history: list[tuple[Ps, float, float, float]] = []
        self.rated()

    def rated(self) -> None:
        """The limit or the port is another."""
        port, limit = self.port, self.limit
        self.fresh = True
        """Whether its end has to be worked out anew, even at the same rate."""
        asked = port.rate_alone
        if limit is None:
            self.key = port.kind, -1.0, self.written
            """Transfers of one key get the same while they ask."""
        else:
            asked = min(asked, limit)
            self.key = port.kind, limit, self.written
        self.asked = asked
        """B/s it takes with the channel to itself while it asks."""
        self.alone = asked if self.pace is None else min(asked, self.pace)

    def set_limit(self, bytes_per_s: float | None) -> None:
        """Cap the rate from now on; None lifts the cap."""
        if bytes_per_s is not None and bytes_per_s < 0:
            raise ValueError(f"a limit of {bytes_per_s} B/s")
        self.limit = bytes_per_s
        if not self.ended:
            self._channel.changed()

    def cut(self, sizes: Sequence[int]) -> int:
        """End at the first of these sizes that it has not passed, without a pace; returns that."""
        served = self.served(self._channel.env.now)  # type: ignore[arg-type]  # integer by construction
        self.bytes = next(n for n in sizes if n >= served)
        self._channel.unpaced(self)
        return self.bytes

    def served(self, at: Ps) -> float:
        """Bytes arrived by ``at``."""
        history = self.history
        if self.ended and at >= history[-1][0]:
            return float(self.bytes)
        for start, by_then, rate, _ in reversed(history):
            if at >= start:
                return min(by_then + rate * (at - start) / PS_PER_S, float(self.bytes))
        return 0.0

    def progress(self, now: Ps) -> float:
        """Bytes arrived by now, while it is under way."""
        if not self.history:
            return 0.0
        start, by_then, rate, _ = self.history[-1]
        moved = by_then + rate * (now - start) / PS_PER_S
        return moved if moved < self.bytes else float(self.bytes)

    def waited_by(self, now: Ps) -> float:
        """Bytes so far times their latency."""
        return self.waited + (self.progress(now) - self.history[-1][1]) * self.latency

    def throttle(self, now: Ps) -> None:
        """The channel's clock is slow, or has been since the last row of the history: count what that has cost."""
        if self.part < 1.0 and self.history:
            start, _, before, _ = self.history[-1]
            self.throttled += self._lost(before, now - start)
        self.part = self._channel.part

    def _lost(self, rate: float, duration: Ps) -> float:
        """ps of ``duration`` at ``rate`` that the channel's full clock would have saved: its share would have been as
        much more as the clock is, up to what it gets alone then."""
        caps = [self.port.rate_full, *(c for c in (self.limit, self.pace) if c is not None)]
        return duration * max(min(1.0 - rate / min(caps), 1.0 - self.part), 0.0) if min(caps) > 0 else 0.0

    def finish(self, now: Ps) -> None:
        """The last byte has arrived: tell those who wait."""
        if self.part < 1.0:
            self.throttle(now)
        arrive(self, now)
        self.end()


class FlowPort(MasterPort):
    """A master's port into a :class:`bpusim.dram.FlowChannel`: a :class:`bpusim.ports.Port`.

    Flows of one port at the same time (two CPU cores) have a window each and share the port's limit evenly. ``kind`` is
    the same for ports that are treated alike.
    """

    __slots__ = (
        "_listeners",
        "active",
        "channel",
        "kind",
        "latency_alone",
        "moved",
        "rate_alone",
        "rate_full",
        "rate_max",
        "waited",
    )

    def __init__(self, channel: FlowChannel, name: str, window: int, path: Ps, limit: float, kind: int) -> None:
        super().__init__(name, window, path, limit, channel.rules, channel.behaviour)
        self.channel = channel
        self.kind = kind
        self.active = 0
        """Transfers under way."""
        self.moved = 0
        """Bytes of transfers that have ended."""
        self.waited = 0.0
        """Those bytes times their latency."""
        self._listeners: list[Callable[[], None]] = []
        self.measure()
        self.rate_full = self.rate_alone
        """B/s alone with the channel at its full clock."""

    @property
    def cuts(self) -> bool:
        """They can."""
        return True

    def asked(self, flows: int, others: tuple[float, float]) -> float:
        """B/s that so many flows of the port take while ``others`` take B/s and have bytes in flight."""
        each = self.channel.behaviour.alone(self.window, self.path, self.limit, others)
        return min(flows * each, max(self.limit, each)) if flows > 1 else each

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the port's rate is about to change: it sees the new one, transfers still the old."""
        self._listeners.append(callback)

    def set_limit(self, bytes_per_s: float) -> None:
        """The port itself runs at another rate from now on."""
        if bytes_per_s <= 0:
            raise ValueError(f"a port of {bytes_per_s} B/s")
        self.channel.disturb()
        self.limit = self.channel.rules.limit(self.name, bytes_per_s)
        self.measure()
        self.rate_full = self.channel.made.alone(self.window, self.path, self.limit, (0.0, 0.0))
        self.tell()
        self.channel.rerated(self)

    def measure(self) -> None:
        """Work out anew what it gets alone: its limit or the channel's clock is another."""
        self.latency = self.path + self.channel.behaviour.idle_latency(self.window)
        self.rate_alone = self.asked(1, (0.0, 0.0))
        self.rate_max = self.rate_alone
        full = self.rate_alone < self.limit  # a window that is kept full: Little's law
        self.latency_alone = max(self.window * PS_PER_S / self.rate_alone if full else 0.0, float(self.latency))

    def tell(self) -> None:
        """Tell those who rely on its rate."""
        for tell in self._listeners:
            tell()

    def start(
        self,
        parts: TransferList,
        *,
        limit: float | None = None,
        pace: float | None = None,
        rising: Callable[[], None] | None = None,
        then: Callable[[Flow], None] | None = None,
    ) -> Transmission:
        """Begin to move ``parts`` in order and call ``then`` at the end; nothing to move is done at once.

        With a ``pace`` it asks for its full rate, but only part of the time, so that it gets the pace on average; what
        others get is the average of when it asks and when it does not. ``rising`` is called when it has been slower
        than its pace and gets more again.
        """
        flow = Transmission(self.channel, self, parts, limit, pace, rising, then)
        if self.channel.metered:
            self.channel.observer.flow_started(self.name, flow)
        self.channel.add(flow)
        return flow

    def claim(self) -> bool:
        """Whether nothing moves on the channel, and nobody watches it."""
        return self.channel.free

    def hold(self, passage: Passage) -> None:
        """Have the channel until ``vacate``, or until ``passage`` is interrupted."""
        self.channel.hold(passage)

    def disturb(self) -> None:
        """Interrupt whoever has the channel."""
        self.channel.disturb()

    def vacate(self, sizes: Sequence[int]) -> None:
        """Flows of so many bytes each have moved, one behind the other and alone."""
        self.channel.hold(None)
        for size in sizes:  # in turn: a sum of floats depends on its order
            self.waited += size * self.latency_alone
            self.moved += size

    def resume(
        self,
        parts: TransferList,
        begin: Ps,
        *,
        pace: float | None = None,
        rising: Callable[[], None] | None = None,
        then: Callable[[Flow], None] | None = None,
    ) -> Transmission:
        """As ``start``, at an earlier time since when it has been alone."""
        flow = Transmission(self.channel, self, parts, None, pace, rising, then)
        self.channel.resume(flow, begin)
        return flow
