"""The channel as a fluid: transfers are flows whose rates change only when one starts, ends, or changes its limit.

What readers get alone, together, and beside others is a matter of :mod:`bpusim.dram.behaviour`, a table fitted to the
bank model; who gets how much of too little, of :class:`bpusim.dram.arbitration.Rules`. Open-loop masters go first.

One live timer serves the whole channel, set for the flow that ends next or the next edge of a burst. A timer that a
change made stale is left in the queue and ignored when it fires: SimPy cannot take an event back, and a check is
cheaper than a heap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf

import simpy

from bpusim.dram.arbitration import PROPORTIONAL, Ask, Rules, meeting, settle
from bpusim.dram.background import Background
from bpusim.dram.behaviour import Behaviour
from bpusim.dram.ending import Ending
from bpusim.dram.port import MasterPort
from bpusim.hardware import MasterSpec
from bpusim.ports import Flow, Observer, TransferList
from bpusim.units import PS_PER_S, Ps

__all__ = ["FlowChannel", "FlowPort", "Transmission"]

_ROUNDS = 4
_KEPT = 4096
"""So many mixes of flows are remembered with their rates."""


class Transmission(Ending):
    """A transfer under way on a :class:`FlowChannel`: a :class:`bpusim.ports.Flow`."""

    __slots__ = ("_channel", "_history", "_rate", "_served", "_since", "bytes", "limit", "port", "written")

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
        self.written = round(parts.written / self.bytes, 2) if self.bytes else 0.0
        super().__init__(channel.env, then)
        self.limit = limit
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
        return rate if self.limit is None else min(rate, self.limit)

    def set_limit(self, bytes_per_s: float | None) -> None:
        """Cap the rate from now on; None lifts the cap."""
        if bytes_per_s is not None and bytes_per_s < 0:
            raise ValueError(f"a limit of {bytes_per_s} B/s")
        self.limit = bytes_per_s
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

    @property
    def progress(self) -> float:
        """Bytes accounted so far."""
        return self._served

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


class FlowPort(MasterPort):
    """A master's port into a :class:`FlowChannel`: a :class:`bpusim.ports.Port`.

    Flows of one port at the same time (two CPU cores) have a window each and share the port's limit evenly.
    """

    __slots__ = ("channel", "latency_alone", "rate_alone", "rate_max")

    def __init__(self, channel: FlowChannel, name: str, window: int, path: Ps, limit: float) -> None:
        super().__init__(name, window, path, limit, channel.rules, channel.behaviour)
        self.channel = channel
        self.rate_alone = self.asked(1, (0.0, 0.0))
        self.rate_max = self.rate_alone
        full = self.rate_alone < self.limit  # a window that is kept full: Little's law
        self.latency_alone = max(window * PS_PER_S / self.rate_alone if full else 0.0, float(self.latency))

    def asked(self, flows: int, others: tuple[float, float]) -> float:
        """B/s that so many flows of the port take while ``others`` take B/s and have bytes in flight."""
        each = self.channel.behaviour.alone(self.window, self.path, self.limit, others)
        return min(flows * each, max(self.limit, each)) if flows > 1 else each

    def start(
        self, parts: TransferList, *, limit: float | None = None, then: Callable[[Flow], None] | None = None
    ) -> Transmission:
        """Begin to move ``parts`` in order and call ``then`` at the end; nothing to move is done at once."""
        flow = Transmission(self.channel, self, parts, limit, then)
        self.channel.add(flow)
        return flow


@dataclass(frozen=True, slots=True)
class _Shares:
    """What a mix of flows comes to: B/s and latency of each flow, B/s of each background master."""

    rates: tuple[float, ...]
    latencies: tuple[float, ...]
    background: tuple[float, ...]


class FlowChannel:
    """A DRAM channel as a fluid. ``background``: masters with traffic of their own, by name."""

    def __init__(
        self,
        env: simpy.Environment,
        behaviour: Behaviour,
        observer: Observer,
        rules: Rules = PROPORTIONAL,
        background: Sequence[tuple[str, MasterSpec]] = (),
    ) -> None:
        self.env = env
        self.behaviour = behaviour
        self.rules = rules
        self._observer = observer
        self._flows: list[Transmission] = []
        self._moved: dict[str, int] = {}
        self._waited: dict[str, float] = {}
        self._timer: simpy.Event | None = None
        self._ending = False
        self._known: dict[object, _Shares] = {}
        self._shares = _Shares((), (), ())
        self._since: Ps = 0
        self._background = [Background(name, spec) for name, spec in background]
        self._closed = {
            name: self.port(name, spec.window, spec.latency, spec.rate) for name, spec in background if spec.window
        }
        self._on = tuple(b.asks(0) for b in self._background)
        if self._background:
            self._shares = self._shares_of([])

    def port(self, name: str, window: int, path: Ps, limit: float) -> FlowPort:
        """A port with ``window`` bytes outstanding over a ``path`` of its own to the channel, at most ``limit`` B/s."""
        return FlowPort(self, name, window, path, limit)

    def add(self, flow: Transmission) -> None:
        """Take in a new flow."""
        if flow.bytes <= 0:
            flow.finish(self._now())
            return
        self._flows.append(flow)
        self.reshare()

    def moved(self) -> dict[str, int]:
        """Bytes moved so far by master, those of flows under way included (rounded down)."""
        self._advance(self._now())
        out = dict(self._moved)
        for f in self._flows:
            out[f.port.name] = out.get(f.port.name, 0) + int(f.served(self._now()))
        for b in self._background:
            out[b.name] = int(b.moved)
        return out

    def dropped(self) -> dict[str, int]:
        """Bytes lost so far by each open-loop master."""
        self._advance(self._now())
        return {b.name: int(b.dropped) for b in self._background if b.open_loop}

    def latency(self) -> dict[str, float]:
        """Mean latency of each master's lines in ps, its own path included, as its share of the channel implies it."""
        self._advance(self._now())
        moved = self.moved()
        return {name: waited / moved[name] for name, waited in self._waited.items() if moved.get(name)}

    def _now(self) -> Ps:
        return self.env.now  # type: ignore[return-value]  # integer by construction

    def _advance(self, now: Ps) -> None:
        """Account what went on since the last change: all rates were constant, but for bursts while nobody watched."""
        for f, latency in zip(self._flows, self._shares.latencies, strict=False):
            before = f.progress
            f.advance(now)
            self._waited[f.port.name] = self._waited.get(f.port.name, 0.0) + (f.progress - before) * latency
        if self._background and now > self._since:
            self._advance_background(now)
        self._since = now

    def _advance_background(self, now: Ps) -> None:
        at = self._since
        while at < now:
            edges = self._edges(at)
            until = min([*edges, now])
            for b, given in zip(self._background, self._shares.background, strict=True):
                b.advance(at, given, until - at)
            at = until
            if until in edges:
                self._on = tuple(b.asks(at) for b in self._background)
                self._shares = self._shares_of(self._flows)

    def _edges(self, at: Ps) -> list[Ps]:
        """When background masters begin or end to ask, at the present rates."""
        given = self._shares.background
        return [e for b, rate in zip(self._background, given, strict=True) if (e := b.edge(at, rate)) is not None]

    def reshare(self) -> None:
        """Work out all rates anew and set the timer for the next end (later, while flows are being ended)."""
        if self._ending:
            return
        now = self._now()
        flows = self._flows
        self._advance(now)
        self._shares = shares = self._shares_of(flows)
        first: Ps | None = None
        for f, rate in zip(flows, shares.rates, strict=True):
            f.take(rate, now)
            end = f.end()
            if end is not None and (first is None or end < first):
                first = end
        if self._observer.wants_rates:
            self._tell(now)
        self._timer = None
        if flows and (first is not None or self._helped(flows)):
            first = min([e for e in (first, *self._edges(now)) if e is not None], default=None)
        if first is not None:
            timer = self.env.timeout(first - now)
            timer.callbacks.append(self._expired)
            self._timer = timer

    def _helped(self, flows: Sequence[Transmission]) -> bool:
        """Whether flows that stand still would move with all bursts over."""
        now_on, self._on = self._on, tuple(b.edge(0, 0.0) is None for b in self._background)
        moves = any(self._shares_of(flows).rates)
        self._on = now_on
        return moves

    def _tell(self, now: Ps) -> None:
        given: dict[str, float] = {}
        for f, rate in zip(self._flows, self._shares.rates, strict=True):
            given[f.port.name] = given.get(f.port.name, 0.0) + rate
        for b, rate in zip(self._background, self._shares.background, strict=True):
            given[b.name] = rate
        self._observer.rates_changed(now, given)

    def _shares_of(self, flows: Sequence[Transmission]) -> _Shares:
        """Rates of a mix of flows: worked out once for each mix."""
        if not flows and not self._background:
            return _Shares((), (), ())
        if len(flows) == 1 and not self._background:
            return _Shares((flows[0].alone,), (flows[0].port.latency_alone,), ())
        key = tuple((f.port.name, f.limit, f.written) for f in flows), self._on
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[key] = self._share(flows)
        return found

    def _share(self, flows: Sequence[Transmission]) -> _Shares:
        """Open-loop masters first; then ports by the rules (a port asks for all its flows); then a port's flows."""
        groups: dict[str, list[Transmission]] = {}
        for f in flows:
            groups.setdefault(f.port.name, []).append(f)
        first = [b for b, on in zip(self._background, self._on, strict=True) if on and b.open_loop]
        closed = [b for b, on in zip(self._background, self._on, strict=True) if on and not b.open_loop]
        ports = [g[0].port for g in groups.values()] + [self._closed[b.name] for b in closed]
        counts = [len(g) for g in groups.values()] + [1] * len(closed)
        caps = [sum(f.alone for f in g) for g in groups.values()] + [inf] * len(closed)
        wanted = sum(b.spec.rate for b in first)
        windows = [float(n * p.window) for n, p in zip(counts, ports, strict=True)]

        def asker(port: FlowPort, count: int, cap: float) -> Callable[[tuple[float, float]], float]:
            return lambda others: min(port.asked(count, others), cap)

        askers = [asker(p, n, c) for p, n, c in zip(ports, counts, caps, strict=True)]
        demands = settle(askers, windows, (wanted, float(len(first) * self.behaviour.burst_bytes)))
        parts = [sum(f.written for f in g) / len(g) for g in groups.values()] + [b.spec.written for b in closed]
        asks = [
            Ask(d, w, p.latency, self.rules.weight(p.name), self.rules.rank(p.name))
            for d, w, p in zip(demands, windows, ports, strict=True)
        ]
        # What the channel can do depends on who gets how much of it: a few rounds, half of the way each.
        got, given, part = demands, demands, 1.0
        for _ in range(_ROUNDS):
            streams = [
                (r / n, w, k >= len(groups))  # a master of the machine file mixes line by line
                for k, (r, w, n) in enumerate(zip(got, parts, counts, strict=True))
                if r
                for _ in range(n)
            ]
            streams += [(part * b.spec.rate, 0.0, False) for b in first if b.spec.written < 1 or not streams]
            posted = part * sum(b.spec.rate * b.spec.written for b in first)
            capacity = self.behaviour.capacity(len(streams), *meeting(streams), posted) if streams else 0.0
            part = min(1.0, capacity / wanted) if wanted else 1.0
            given = self.rules.share(asks, capacity - wanted if wanted < capacity else 0.0)
            got = [(r + g) / 2 if g else 0.0 for r, g in zip(got, given, strict=True)]
        rates: dict[int, float] = {}
        latencies: dict[int, float] = {}
        for group, ask, rate in zip(groups.values(), asks, given, strict=False):
            alone = sum(f.alone for f in group)
            wait = ask.window * PS_PER_S / rate if 0 < rate < group[0].port.limit else 0.0
            for f in group:
                rates[id(f)] = rate * f.alone / alone if alone else 0.0
                latencies[id(f)] = max(wait, float(ask.latency))
        of_closed = dict(zip((b.name for b in closed), given[len(groups) :], strict=True))
        background = tuple(of_closed.get(b.name, part * b.spec.rate if b in first else 0.0) for b in self._background)
        return _Shares(tuple(rates[id(f)] for f in flows), tuple(latencies[id(f)] for f in flows), background)

    def _expired(self, timer: simpy.Event) -> None:
        if timer is not self._timer:
            return
        now = self._now()
        self._advance(now)
        ended = [f for f in self._flows if (end := f.end()) is not None and end <= now]
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
