"""Who gets how much of a channel at flow fidelity: worked out once for each mix of transfers, and remembered.

What readers get alone, together, and beside others is a matter of :mod:`bpusim.dram.behaviour`; who gets how much of
too little, of :class:`bpusim.dram.arbitration.Rules`. Open-loop masters go first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import mul
from typing import TYPE_CHECKING

from bpusim.dram.arbitration import Ask, Rules, meeting, settle
from bpusim.dram.background import Background
from bpusim.dram.behaviour import Behaviour
from bpusim.units import PS_PER_S

if TYPE_CHECKING:
    from bpusim.dram.transmission import FlowPort, Transmission

__all__ = ["Shares", "Sharing"]

_ROUNDS = 4
"""Rounds in which what the channel can do and who gets it settle."""
_PACED = 4
"""So many flows may be paced, each asking or not; any beyond that ask all the time."""
_SETTLED = 20
"""Rounds to find how often each of them asks."""
_KEPT = 4096
"""So many mixes of flows are remembered with their rates."""


@dataclass(frozen=True, slots=True)
class Shares:
    """What a mix of flows comes to: B/s and latency of each flow, B/s of each background master."""

    rates: tuple[float, ...]
    latencies: tuple[float, ...]
    background: tuple[float, ...]
    load: float = 0.0
    """What all of them get together, as a part of what the channel gives such a mix."""

    def spread(self, silent: Collection[int], count: int) -> tuple[list[float], list[float]]:
        """(rates, latencies) of ``count`` flows of which some are silent and not in the mix."""
        rates, latencies = iter(self.rates), iter(self.latencies)
        return (
            [0.0 if i in silent else next(rates) for i in range(count)],
            [0.0 if i in silent else next(latencies) for i in range(count)],
        )


class Sharing:
    """Shares out a channel. ``closed``: ports of background masters with a window."""

    def __init__(
        self,
        behaviour: Behaviour,
        rules: Rules,
        background: Sequence[Background],
        closed: Mapping[str, FlowPort],
    ) -> None:
        self.behaviour = behaviour
        self.rules = rules
        self._background = background
        self._closed = closed
        self._on: tuple[bool, ...] = ()
        self._known: dict[object, Shares] = {}
        self._one = behaviour.capacity(1)

    def forget(self) -> None:
        """No mix is what it was: a port runs at another rate."""
        self._known.clear()
        self._one = self.behaviour.capacity(1)

    def of(
        self, flows: Sequence[Transmission], keys: Sequence[object], on: tuple[bool, ...], *, paced: bool = True
    ) -> Shares:
        """What ``flows``, each with its key, get while the background masters that are ``on`` ask.

        ``paced``: whether any of them may have a pace.
        """
        self._on = on
        if not flows and not self._background:
            return Shares((), (), ())
        if len(flows) == 1 and not self._background:
            alone, latency = flows[0].alone, flows[0].port.latency_alone
            found = self._known.get((alone, latency))
            if found is None:
                self._make_room()
                found = self._known[alone, latency] = Shares((alone,), (latency,), (), alone / self._one)
            return found
        if paced:
            slower = [i for i, f in enumerate(flows) if f.pace is not None and f.pace < f.asked]
            if slower:
                return self._known_average(flows, keys, slower)
        return self._mix(flows, keys)

    def _known_average(self, flows: Sequence[Transmission], keys: Sequence[object], paced: Sequence[int]) -> Shares:
        key = "paced", tuple(keys), tuple([(i, flows[i].alone) for i in paced]), self._on
        found = self._known.get(key)
        if found is None:
            shares = self._averaged(flows, keys, paced)
            self._make_room()
            found = self._known[key] = shares
        return found

    def _make_room(self) -> None:
        if len(self._known) >= _KEPT:
            self._known.clear()

    def _averaged(self, flows: Sequence[Transmission], keys: Sequence[object], paced: Sequence[int]) -> Shares:
        """Paced flows ask for part of the time, each by itself: the mean over who asks."""
        every = self._mix(flows, keys)
        if all(flows[i].alone >= every.rates[i] for i in paced):
            return every  # too little for any of them: all ask all the time
        paced = paced[:_PACED]
        # By the set of those that ask, a bit each: the mix, and what each flow gets in it.
        mixes, rates, latencies = [], [], []
        for asking in range(1 << len(paced)):
            silent = {i for k, i in enumerate(paced) if not asking >> k & 1}
            asks = [i for i in range(len(flows)) if i not in silent]
            mix = self._mix([flows[i] for i in asks], [keys[i] for i in asks]) if silent else every
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
        load = sum(map(mul, weights, (m.load for m in mixes)))
        return Shares(tuple(mean), tuple(wait), tuple(background), load)

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

    def _mix(self, flows: Sequence[Transmission], keys: Sequence[object]) -> Shares:
        """Rates of flows that all ask, worked out once for each mix."""
        key: object = tuple(keys)
        if self._background:
            key = key, self._on
        found = self._known.get(key)
        if found is None:
            self._make_room()
            found = self._known[key] = self._share(flows)
        return found

    def _share(self, flows: Sequence[Transmission]) -> Shares:
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
        used = sum(given) + part * wanted
        load = min(used / capacity, 1.0) if capacity else 0.0
        return Shares(tuple(rates[id(f)] for f in flows), tuple(latencies[id(f)] for f in flows), background, load)
