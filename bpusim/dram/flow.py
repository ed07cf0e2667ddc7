"""The channel as a fluid: transfers are flows whose rates change only when one starts, ends, or changes its limit.

What readers get alone, together, and beside others is a matter of :mod:`bpusim.dram.behaviour`, a table fitted to the
bank model; who gets how much of too little, of :class:`bpusim.dram.arbitration.Rules`. Open-loop masters go first.

One timer serves the whole channel, set for the flow that ends next or the next edge of a burst. Where that moves to a
later time, the timer stays and sets itself anew when it goes off; where to an earlier one, another is set before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter, mul

import simpy

from bpusim.alarm import alarm
from bpusim.dram.arbitration import PROPORTIONAL, Ask, Rules, meeting, settle
from bpusim.dram.background import Background
from bpusim.dram.behaviour import Behaviour
from bpusim.dram.transmission import FlowPort, Transmission
from bpusim.hardware import MasterSpec
from bpusim.ports import Observer
from bpusim.units import PS_PER_S, Ps

__all__ = ["FlowChannel"]

_ROUNDS = 4
_PACED = 4
"""So many flows may be paced, each asking or not; any beyond that ask all the time."""
_SETTLED = 20
"""Rounds to find how often each of them asks."""
_KEPT = 4096
"""So many mixes of flows are remembered with their rates."""


@dataclass(frozen=True, slots=True)
class _Shares:
    """What a mix of flows comes to: B/s and latency of each flow, B/s of each background master."""

    rates: tuple[float, ...]
    latencies: tuple[float, ...]
    background: tuple[float, ...]

    def spread(self, silent: Collection[int], count: int) -> tuple[list[float], list[float]]:
        """(rates, latencies) of ``count`` flows of which some are silent and not in the mix."""
        rates, latencies = iter(self.rates), iter(self.latencies)
        return (
            [0.0 if i in silent else next(rates) for i in range(count)],
            [0.0 if i in silent else next(latencies) for i in range(count)],
        )


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
        self._watched = observer.wants_rates
        self._flows: list[Transmission] = []
        self._keys: list[tuple[int, float, float]] = []
        self._paced = 0
        self._kinds: dict[object, int] = {}
        self._ports: list[FlowPort] = []
        self._armed: list[Ps] = []
        self._first: Ps | None = None
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
        alike = (window, path, self.rules.limit(name, limit), self.rules.weight(name), self.rules.rank(name))
        port = FlowPort(self, name, window, path, limit, self._kind(alike))
        self._ports.append(port)
        return port

    def _kind(self, alike: object) -> int:
        return self._kinds.setdefault(alike, len(self._kinds))

    def add(self, flow: Transmission) -> None:
        """Take in a new flow."""
        if flow.bytes <= 0:
            flow.finish(self._now())
            return
        port = flow.port
        port.active += 1
        if port.active > 1:
            self._alone_in_kind(flow)
        at = bisect_right(self._keys, flow.key)
        self._keys.insert(at, flow.key)
        self._flows.insert(at, flow)
        if flow.pace is not None:
            self._paced += 1
        self.reshare()

    def _remove(self, flow: Transmission) -> None:
        at = self._flows.index(flow)
        del self._flows[at], self._keys[at]
        flow.port.active -= 1
        if flow.pace is not None:
            self._paced -= 1

    def _alone_in_kind(self, flow: Transmission) -> None:
        """Two flows of one port share it: it is like no other port any more."""
        port, own = flow.port, self._kind(flow.port.name)
        if port.kind != own:
            port.kind = own
            flow.rated()
            self._rated()

    def _rated(self) -> None:
        """Some flows have other keys."""
        for f in self._flows:
            f.rated()
        self._flows.sort(key=attrgetter("key"))
        self._keys = [f.key for f in self._flows]

    def unpaced(self, flow: Transmission) -> None:
        """A flow is cut short and goes on without a pace."""
        if flow.pace is not None:
            flow.pace = flow.rising = None
            self._paced -= 1
        flow.rated()
        self.reshare()

    def changed(self) -> None:
        """A flow has another limit."""
        self._rated()
        self.reshare()

    def rerated(self, port: FlowPort) -> None:
        """A port runs at another rate: it is like no other port any more, and no mix is what it was."""
        port.kind = self._kind((port.name, port.limit))
        self._known.clear()
        self._rated()
        self.reshare()

    def moved(self) -> dict[str, int]:
        """Bytes moved so far by master, those of flows under way included (rounded down)."""
        now, out = self._now(), dict[str, int]()
        self._advance(now)
        for p in self._ports:
            under_way = [int(f.progress(now)) for f in self._flows if f.port is p]
            if p.moved or under_way:
                out[p.name] = out.get(p.name, 0) + p.moved + sum(under_way)
        for b in self._background:
            out[b.name] = int(b.moved)
        return out

    def dropped(self) -> dict[str, int]:
        """Bytes lost so far by each open-loop master."""
        self._advance(self._now())
        return {b.name: int(b.dropped) for b in self._background if b.open_loop}

    def latency(self) -> dict[str, float]:
        """Mean latency of each master's lines in ps, its own path included, as its share of the channel implies it."""
        moved, waited = self.moved(), dict.fromkeys((p.name for p in self._ports), 0.0)
        for p in self._ports:
            waited[p.name] += p.waited + sum(f.waited_by(self._now()) for f in self._flows if f.port is p)
        return {name: total / moved[name] for name, total in waited.items() if total and moved.get(name)}

    def _now(self) -> Ps:
        return self.env.now  # type: ignore[return-value]  # integer by construction

    def _advance(self, now: Ps) -> None:
        """Account what background masters did since the last change: rates were constant, but for bursts while nobody
        watched."""
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
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        if self._background:
            self._advance(now)
        flows = self._flows
        self._shares = shares = self._shares_of(flows)
        first: Ps | None = None
        risen: list[Callable[[], None]] | None = None
        for f, rate, latency in zip(flows, shares.rates, shares.latencies, strict=True):
            if rate != f.rate or f.fresh:
                if f.rising is not None and 0 < f.rate < min(rate, f.alone):
                    risen = [*(risen or ()), f.rising]
                f.take(rate, latency, now)
            due = f.due
            if due is not None and (first is None or due < first):
                first = due
        if self._watched:
            self._tell(now)
        if self._background and flows and (first is not None or self._helped(flows)):
            first = min([e for e in (first, *self._edges(now)) if e is not None], default=None)
        self._first = first
        if first is not None and (not self._armed or first < self._armed[-1]):
            self._arm(first, now)
        if risen:
            for tell in risen:
                tell()

    def _arm(self, first: Ps, now: Ps) -> None:
        """A timer for what comes first. If one goes off before, there is no need for it: that one will see to it."""
        self._armed.append(first)
        alarm(self.env, first - now, self._expired)

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
        if self._paced:
            paced = [i for i, f in enumerate(flows) if f.pace is not None and f.pace < f.asked]
            if paced:
                return self._known_average(flows, paced)
        return self._mix(flows)

    def _known_average(self, flows: Sequence[Transmission], paced: Sequence[int]) -> _Shares:
        key = "paced", tuple([f.key for f in flows]), tuple([(i, flows[i].alone) for i in paced]), self._on
        found = self._known.get(key)
        if found is None:
            shares = self._averaged(flows, paced)
            self._make_room()
            found = self._known[key] = shares
        return found

    def _make_room(self) -> None:
        if len(self._known) >= _KEPT:
            self._known.clear()

    def _averaged(self, flows: Sequence[Transmission], paced: Sequence[int]) -> _Shares:
        """Paced flows ask for part of the time, each by itself: the mean over who asks."""
        every = self._mix(flows)
        if all(flows[i].alone >= every.rates[i] for i in paced):
            return every  # too little for any of them: all ask all the time
        paced = paced[:_PACED]
        # By the set of those that ask, a bit each: the mix, and what each flow gets in it.
        mixes, rates, latencies = [], [], []
        for asking in range(1 << len(paced)):
            silent = {i for k, i in enumerate(paced) if not asking >> k & 1}
            mix = self._mix([f for i, f in enumerate(flows) if i not in silent]) if silent else every
            mixes.append(mix)
            got, late = mix.spread(silent, len(flows))
            rates.append(got)
            latencies.append(late)
        parts, weights = self._parts([flows[i].alone for i in paced], [[r[i] for r in rates] for i in paced])
        mean = [sum(map(mul, weights, column)) for column in zip(*rates, strict=True)]
        wait = [sum(map(mul, weights, column)) for column in zip(*latencies, strict=True)]
        for i, part in zip(paced, parts, strict=True):
            if part < 1.0:
                mean[i] = flows[i].alone
            wait[i] = every.latencies[i]
        background = [sum(map(mul, weights, column)) for column in zip(*(m.background for m in mixes), strict=True)]
        return _Shares(tuple(mean), tuple(wait), tuple(background))

    @staticmethod
    def _parts(paces: Sequence[float], rates: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
        """(how often each asks, how often each set of them does). ``rates``: what each gets, by the set that asks."""
        parts = [1.0] * len(paces)
        weights = [0.0]
        for _ in range(_SETTLED):
            weights = [1.0]
            for part in parts:
                weights = [w * (1 - part) for w in weights] + [w * part for w in weights]
            before, parts = parts, []
            for part, pace, got in zip(before, paces, rates, strict=True):
                while_asking = sum(map(mul, weights, got)) / part if part else 0.0
                parts.append(min(1.0, pace / while_asking) if while_asking else 1.0)
            if max(abs(a - b) for a, b in zip(parts, before, strict=True)) < 1e-9:
                break
        return parts, weights

    def _mix(self, flows: Sequence[Transmission]) -> _Shares:
        """Rates of flows that all ask, worked out once for each mix."""
        key: object = tuple(self._keys if flows is self._flows else [f.key for f in flows])
        if self._background:
            key = key, self._on
        found = self._known.get(key)
        if found is None:
            self._make_room()
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
        caps = [sum(f.asked for f in g) for g in groups.values()] + [inf] * len(closed)
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
            alone = sum(f.asked for f in group)
            wait = ask.window * PS_PER_S / rate if 0 < rate < group[0].port.limit else 0.0
            for f in group:
                rates[id(f)] = rate * f.asked / alone if alone else 0.0
                latencies[id(f)] = max(wait, float(ask.latency))
        of_closed = dict(zip((b.name for b in closed), given[len(groups) :], strict=True))
        background = tuple(of_closed.get(b.name, part * b.spec.rate if b in first else 0.0) for b in self._background)
        return _Shares(tuple(rates[id(f)] for f in flows), tuple(latencies[id(f)] for f in flows), background)

    def _expired(self, _alarm: object) -> None:
        now = self._armed.pop()
        first = self._first
        if first is None:
            return
        if now < first:  # it has moved to a later time
            if not self._armed or first < self._armed[-1]:
                self._arm(first, now)
            return
        soon = now + 1  # a picosecond apart is rounding
        ended = [f for f in self._flows if f.due is not None and f.due <= soon]
        # NOTE: masters start their next flows inside ``finish``; rates are shared out once, after them.
        self._ending = True
        if self._background:
            self._advance(now)
        try:
            for f in ended:
                self._remove(f)
            for f in ended:
                f.finish(now)
        finally:
            self._ending = False
        self.reshare()
