"""The channel as a fluid: transfers are flows whose rates change only when one starts, ends, or changes its limit.

Who gets how much is a matter of :mod:`bpusim.dram.sharing`.

One timer serves the whole channel, set for the flow that ends next or the next edge of a burst. Where that moves to a
later time, the timer stays and sets itself anew when it goes off; where to an earlier one, another is set before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

import simpy

from bpusim.alarm import alarm
from bpusim.dram.arbitration import PROPORTIONAL, Rules
from bpusim.dram.background import Background
from bpusim.dram.behaviour import Behaviour
from bpusim.dram.moving import take
from bpusim.dram.sharing import Shares, Sharing
from bpusim.dram.transmission import FlowPort, Transmission
from bpusim.hardware import MasterSpec
from bpusim.ports import Observer, Passage
from bpusim.units import PS_PER_S, Ps

__all__ = ["FlowChannel"]

_NOTHING = Shares((), (), ())
"""What nobody gets."""
_MIXES = 1024
"""So many mixes of flows are remembered here."""


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
        self.behaviour = self.made = behaviour
        self.part = 1.0
        """Of the clock the channel was made for."""
        self.rules = rules
        self.observer = observer
        self.metered = observer.wants_activity
        self._watched = observer.wants_rates
        self._flows: list[Transmission] = []
        self._keys: list[tuple[int, float, float]] = []
        self._paced = 0
        self._kinds: dict[object, int] = {}
        self._ports: list[FlowPort] = []
        self._armed: list[Ps] = []
        self._first: Ps | None = None
        self._ending = False
        self._passage: Passage | None = None
        self._shares = _NOTHING
        self.mixes: dict[tuple[object, ...], Shares] = {}
        """What mixes of flows come to that all ask, without background masters."""
        self._since: Ps = 0
        self.governed = False
        """Whether somebody asks how busy it is."""
        self._busy = 0.0
        self._busy_at: Ps = 0
        self._background = [Background(name, spec) for name, spec in background]
        self._closed = {
            name: self.port(name, spec.window, spec.latency, spec.rate) for name, spec in background if spec.window
        }
        self._on = tuple(b.asks(0) for b in self._background)
        self._sharing = Sharing(behaviour, self.rules, self._background, self._closed)
        if self._background:
            self._shares = self._sharing.of([], [], self._on)

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
        if self._passage is not None:
            self.disturb()
        self._take_in(flow)
        self.reshare()

    def resume(self, flow: Transmission, begin: Ps) -> None:
        """Take in a flow that began earlier and has been alone since."""
        self._take_in(flow)
        take(flow, flow.alone, flow.port.latency_alone, begin)
        flow.fresh = False
        self.reshare()

    def _take_in(self, flow: Transmission) -> None:
        port = flow.port
        port.active += 1
        if port.active > 1:
            self._alone_in_kind(flow)
        at = bisect_right(self._keys, flow.key)
        self._keys.insert(at, flow.key)
        self._flows.insert(at, flow)
        if flow.pace is not None:
            self._paced += 1

    @property
    def free(self) -> bool:
        """Whether nothing moves, and nobody watches."""
        return self.plain and not self._flows

    @property
    def plain(self) -> bool:
        """Whether nobody but flows moves anything, and nobody watches."""
        return not (
            self._passage is not None or self._background or self._watched or self.metered
            or self.governed or self.part < 1.0
        )  # fmt: skip

    @property
    def flows(self) -> Sequence[Transmission]:
        """Those under way."""
        return self._flows

    @property
    def ports(self) -> Sequence[FlowPort]:
        """All of them."""
        return self._ports

    def alarmed(self, event: object) -> bool:
        """Whether an event of the simulation is an alarm of its own."""
        return getattr(event, "callbacks", None) == [self._expired]

    def take_back(self, flows: list[Transmission]) -> None:
        """These flows are under way instead of those before, as they are. Its alarms are gone."""
        self._flows, self._keys = flows, [f.key for f in flows]
        self._paced = 0
        self._armed.clear()
        self.reshare()

    def hold(self, passage: Passage | None) -> None:
        """Whose flows pass alone; None: nobody's any more."""
        self._passage = passage

    def disturb(self) -> None:
        """Flows that pass alone do so no more."""
        passage, self._passage = self._passage, None
        if passage is not None:
            passage.interrupted(self._now())

    def _remove(self, flow: Transmission) -> None:
        at = self._flows.index(flow)
        del self._flows[at], self._keys[at]
        flow.port.active -= 1
        if flow.pace is not None:
            self._paced -= 1

    def _alone_in_kind(self, flow: Transmission) -> None:
        """Two flows of one port share it: it is like no other port any more."""
        if self.shared(flow.port):
            flow.rated()
            self._rated()

    def shared(self, port: FlowPort) -> bool:
        """Two flows share a port: whether it is no longer like others by that."""
        before, port.kind = port.kind, self._kind(port.name)
        return port.kind != before

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
        self._forget()
        self._rated()
        self.reshare()

    def _forget(self) -> None:
        """No mix is what it was."""
        self._sharing.forget()
        self.mixes.clear()

    def set_clock(self, part: float) -> None:
        """Run the channel at ``part`` (above 0) of the clock it was made for, from now on."""
        self.disturb()
        self._advance(self._now())
        self.part = part
        self.behaviour = self.made.at_clock(part) if part != 1 else self.made
        self._sharing.behaviour = self.behaviour
        self._forget()
        for port in self._ports:
            port.measure()
        for f in self._flows:
            f.rated()
        for port in self._ports:
            port.tell()
        self.reshare()

    def _count(self, now: Ps) -> None:
        self._busy += self._shares.load * (now - self._busy_at)
        self._busy_at = now

    def busy(self) -> float:
        """Seconds so far that it has worked, as if at full load, once it is ``governed``."""
        self._count(self._now())
        return self._busy / PS_PER_S

    def moved(self) -> dict[str, int]:
        """Bytes moved so far by master, those of flows under way included (rounded down)."""
        self.disturb()
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
                if self.governed:
                    self._count(until)
                self._on = tuple(b.asks(at) for b in self._background)
                self._shares = self._sharing.of(self._flows, self._keys, self._on)

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
        if self.governed:
            self._count(now)
        flows = self._flows
        if not flows and not self._background and not self._watched:
            self._shares, self._first = _NOTHING, None
            return
        if self._paced or self._background:
            shares = self._sharing.of(flows, self._keys, self._on, paced=self._paced > 0)
        else:
            mix = tuple(self._keys)
            shares = self.mixes.get(mix) or self.mixed(mix, flows)
        self._shares = shares
        first: Ps | None = None
        risen: list[Callable[[], None]] | None = None
        for f, rate, latency in zip(flows, shares.rates, shares.latencies, strict=True):
            if rate != f.rate or f.fresh:
                if f.rising is not None and 0 < f.rate < min(rate, f.alone):
                    risen = [*(risen or ()), f.rising]
                if f.part < 1.0 or self.part < 1.0:
                    f.throttle(now)
                take(f, rate, latency, now)
                f.fresh = False
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

    def mixed(self, mix: tuple[tuple[int, float, float], ...], flows: Sequence[Transmission]) -> Shares:
        """What flows with these keys get that all ask, nobody else being there: of each mix it is asked once."""
        if len(self.mixes) >= _MIXES:
            self.mixes.clear()
        shares = self.mixes[mix] = self._sharing.of(flows, mix, self._on, paced=False)
        return shares

    def _arm(self, first: Ps, now: Ps) -> None:
        """A timer for what comes first. If one goes off before, there is no need for it: that one will see to it."""
        self._armed.append(first)
        alarm(self.env, first - now, self._expired)

    def _helped(self, flows: Sequence[Transmission]) -> bool:
        """Whether flows that stand still would move with all bursts over."""
        always = tuple(b.edge(0, 0.0) is None for b in self._background)
        return any(self._sharing.of(flows, self._keys, always).rates)

    def tell(self) -> None:
        """Tell the observer what rates there are: of masters that move something before anybody starts a flow."""
        self._tell(self._now())

    def _tell(self, now: Ps) -> None:
        given: dict[str, float] = {}
        for f, rate in zip(self._flows, self._shares.rates, strict=True):
            given[f.port.name] = given.get(f.port.name, 0.0) + rate
        for b, rate in zip(self._background, self._shares.background, strict=True):
            given[b.name] = rate
        self.observer.rates_changed(now, given)

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
