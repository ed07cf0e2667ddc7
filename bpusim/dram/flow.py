"""The channel as a fluid: transfers are flows whose rates change only when one starts, ends, or changes its limit.

One live timer serves the whole channel, set for the flow that ends next. A timer that a change made stale is left in
the queue and ignored when it fires: SimPy cannot take an event back, and a check is cheaper than a heap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

import simpy

from bpusim.dram.arbitration import Share
from bpusim.dram.ending import Ending
from bpusim.ports import Flow, Observer, TransferList
from bpusim.units import PS_PER_S, Ps

__all__ = ["FlowChannel", "FlowPort", "Transmission"]


class Transmission(Ending):
    """A transfer under way on a :class:`FlowChannel`: a :class:`bpusim.ports.Flow`."""

    __slots__ = ("_channel", "_history", "_limit", "_rate", "_served", "_since", "bytes", "port")

    def __init__(
        self,
        channel: FlowChannel,
        port: FlowPort,
        parts: TransferList,
        limit: float | None,
        then: Callable[[Flow], None] | None,
    ) -> None:
        self._channel = channel
        self.port = port
        self.bytes = parts.bytes
        super().__init__(channel.env, then)
        self._limit = limit
        self._rate = 0.0
        self._served = 0.0
        self._since: Ps = channel.env.now  # type: ignore[assignment]  # SimPy types time as float; ours is integer
        self._history: list[tuple[Ps, float, float, float]] = []

    @property
    def history(self) -> Sequence[tuple[Ps, float, float, float]]:
        """(from time, bytes by then, B/s from then on, B/s if alone); the last row is the end once it is done."""
        return self._history

    @property
    def alone(self) -> float:
        """B/s it would get with the channel to itself."""
        rate = self.port.rate_alone
        return rate if self._limit is None else min(rate, self._limit)

    def set_limit(self, bytes_per_s: float | None) -> None:
        """Cap the rate from now on; None lifts the cap."""
        if bytes_per_s is not None and bytes_per_s < 0:
            raise ValueError(f"a limit of {bytes_per_s} B/s")
        self._limit = bytes_per_s
        if not self.ended:
            self._channel.reshare()

    def served(self, at: Ps) -> float:
        """Bytes arrived by ``at``."""
        if self.ended and at >= self._since:
            return float(self.bytes)
        for start, by_then, rate, _ in reversed(self._history):
            if at >= start:
                return min(by_then + rate * (at - start) / PS_PER_S, float(self.bytes))
        return 0.0

    def advance(self, now: Ps) -> None:
        """Account the bytes up to ``now`` at the present rate."""
        if now > self._since:
            self._served = min(self._served + self._rate * (now - self._since) / PS_PER_S, float(self.bytes))
            self._since = now

    def take(self, rate: float, now: Ps) -> None:
        """Go on at ``rate`` from ``now``."""
        if not self._history or (rate, self.alone) != self._history[-1][2:]:
            self._rate = rate
            self._history.append((now, self._served, rate, self.alone))

    def end(self) -> Ps | None:
        """When the last byte arrives at the present rate; None if it stands still."""
        left = self.bytes - self._served
        if left <= 0:
            return self._since
        return self._since + ceil(left * PS_PER_S / self._rate) if self._rate > 0 else None

    def finish(self, now: Ps) -> None:
        """The last byte has arrived."""
        self._served, self._since = float(self.bytes), now
        self._history.append((now, float(self.bytes), 0.0, self.alone))
        self._end()


class FlowPort:
    """A master's port into a :class:`FlowChannel`: a :class:`bpusim.ports.Port`.

    Flows of one port at the same time (two CPU cores) have a window each and share the port's limit evenly.
    """

    __slots__ = ("channel", "latency", "limit", "name", "rate_alone", "rate_max", "window")

    def __init__(self, channel: FlowChannel, name: str, window: int, latency: Ps, limit: int) -> None:
        self.channel = channel
        self.name = name
        self.window = window
        self.latency = latency
        self.limit = float(limit)
        self.rate_alone = min(float(limit), window * PS_PER_S / latency, channel.capacity)
        self.rate_max = self.rate_alone

    def start(
        self, parts: TransferList, *, limit: float | None = None, then: Callable[[Flow], None] | None = None
    ) -> Transmission:
        """Begin to move ``parts`` in order and call ``then`` at the end; nothing to move is done at once."""
        flow = Transmission(self.channel, self, parts, limit, then)
        self.channel.add(flow)
        return flow


class FlowChannel:
    """A DRAM channel that gives its masters at most ``capacity`` B/s in all, shared by ``share``.

    ``order`` ranks masters for the strict policy; those not named come after, as they started.
    """

    def __init__(
        self, env: simpy.Environment, capacity: float, share: Share, observer: Observer, order: Sequence[str] = ()
    ) -> None:
        self.env = env
        self.capacity = capacity
        self._share = share
        self._observer = observer
        self._rank = {name: i for i, name in enumerate(order)}
        self._flows: list[Transmission] = []
        self._moved: dict[str, int] = {}
        self._timer: simpy.Event | None = None
        self._ending = False

    def port(self, name: str, window: int, latency: Ps, limit: int) -> FlowPort:
        """A port that keeps ``window`` bytes outstanding at an unloaded ``latency``, at most ``limit`` B/s."""
        return FlowPort(self, name, window, latency, limit)

    def add(self, flow: Transmission) -> None:
        """Take in a new flow."""
        if flow.bytes <= 0:
            flow.finish(self._now())
            return
        self._flows.append(flow)
        if self._rank:
            self._flows.sort(key=lambda f: self._rank.get(f.port.name, len(self._rank)))
        self.reshare()

    def moved(self) -> dict[str, int]:
        """Bytes moved so far by master, those of flows under way included (rounded down)."""
        out = dict(self._moved)
        for f in self._flows:
            out[f.port.name] = out.get(f.port.name, 0) + int(f.served(self._now()))
        return out

    def _now(self) -> Ps:
        return self.env.now  # type: ignore[return-value]  # integer by construction

    def reshare(self) -> None:
        """Work out all rates anew and set the timer for the next end (later, while flows are being ended)."""
        if self._ending:
            return
        now = self._now()
        flows = self._flows
        for f in flows:
            f.advance(now)
        if not flows:
            self._timer = None
            if self._observer.wants_rates:
                self._observer.rates_changed(now, {})
            return
        rates = [min(flows[0].alone, self.capacity)] if len(flows) == 1 else self._rates(flows)
        first: Ps | None = None
        for f, rate in zip(flows, rates, strict=True):
            f.take(rate, now)
            end = f.end()
            if end is not None and (first is None or end < first):
                first = end
        if self._observer.wants_rates:
            given: dict[str, float] = {}
            for f, rate in zip(flows, rates, strict=True):
                given[f.port.name] = given.get(f.port.name, 0.0) + rate
            self._observer.rates_changed(now, given)
        self._timer = None
        if first is not None:
            timer = self.env.timeout(first - now)
            timer.callbacks.append(self._expired)
            self._timer = timer

    def _rates(self, flows: list[Transmission]) -> list[float]:
        """Shares among ports (a port asks for all its flows together), then among a port's own flows by demand."""
        if len({f.port.name for f in flows}) == len(flows):
            return self._share([f.alone for f in flows], [float(f.port.window) for f in flows], self.capacity)
        ports: dict[str, list[Transmission]] = {}
        for f in flows:
            ports.setdefault(f.port.name, []).append(f)
        wanted = [sum(f.alone for f in group) for group in ports.values()]
        demands = [min(w, max(g[0].port.limit, g[0].alone)) for w, g in zip(wanted, ports.values(), strict=True)]
        windows = [float(sum(f.port.window for f in group)) for group in ports.values()]
        shares = self._share(demands, windows, self.capacity)
        part = {name: r / w if w else 0.0 for name, r, w in zip(ports, shares, wanted, strict=True)}
        return [f.alone * part[f.port.name] for f in flows]

    def _expired(self, timer: simpy.Event) -> None:
        if timer is not self._timer:
            return
        now = self._now()
        ended = []
        for f in self._flows:
            f.advance(now)
            end = f.end()
            if end is not None and end <= now:
                ended.append(f)
        self._flows = [f for f in self._flows if f not in ended]
        # NOTE: masters start their next flows inside ``finish``; rates are shared out once, after them.
        self._ending = True
        try:
            for f in ended:
                self._moved[f.port.name] = self._moved.get(f.port.name, 0) + f.bytes
                f.finish(now)
        finally:
            self._ending = False
        self.reshare()
