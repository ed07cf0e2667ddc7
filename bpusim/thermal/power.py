"""Where the power goes: activity as observers are told of it, turned into power over time.

* A core draws ``busy`` while a call runs. What the call costs in the array and the vector unit is spread over its
  bytes, and so is what moving them costs: that power follows the rate at which they arrive, which is known at every
  instant. A call that moves nothing draws it evenly over the time it takes at the present clock.
* The DRAM draws by the rate of all transfers, and a row is opened once for each row's worth of bytes.
* The CPU cluster draws by the number of cores at work.

Dynamic power goes with the square of the voltage and, for ``busy`` and CPU cores, with the clock. Leakage goes with the
voltage and doubles every so many kelvin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bpusim.hardware import CoreSpec
from bpusim.hardware.heat import PowerSpec
from bpusim.ports import Flow, Work
from bpusim.thermal.clock import ClockDomain
from bpusim.thermal.network import Pulses
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.arrays import Floats

__all__ = ["Meter", "leakage"]

_LEAKAGE_AT = 25.0


def leakage(watts: float, doubles: float, temperature: float, volts: float = 1.0) -> float:
    """Leakage in W at a temperature in degC: ``watts`` at 25 degC and full voltage, twice that ``doubles`` K above.

    ``volts``: the present voltage as a part of the full one.
    """
    return float(watts * volts * 2 ** ((temperature - _LEAKAGE_AT) / doubles))


Spans = tuple[Sequence[Ps], Sequence[Ps]]


@dataclass(slots=True)
class _Core:
    """A core's books: since when the call in progress has drawn power, and what it costs in J at full voltage."""

    index: int
    since: Ps | None = None
    per_byte: float = 0.0
    per_cycle: float = 0.0
    """Of a call without bytes."""


class Meter:
    """Watches activity (the part of :class:`bpusim.ports.Observer` that power needs) and says what it draws.

    ``parts`` names its components: each core, ``dram``, ``host``. ``row_bytes``: of an open row of the channel.
    ``others``: bytes that masters of the machine file have moved so far; their power is the mean between two looks.
    ``host``: when CPU cores were taken and given back since the last look. ``slow``: the same of slow ones, and W that
    each draws at work; None if there are none.
    """

    def __init__(
        self,
        spec: PowerSpec,
        core: CoreSpec,
        clocks: Mapping[str, ClockDomain],
        row_bytes: int,
        others: Callable[[], int] = lambda: 0,
        host: Callable[[], Spans] = lambda: ((), ()),
        slow: tuple[Callable[[], Spans], float] | None = None,
    ) -> None:
        self.spec = spec
        self.clocks = clocks
        self.names = tuple(n for n in clocks if n not in ("dram", "host"))
        self.parts = (*self.names, "dram", "host")
        self._array = core.mac.rows * core.mac.cols * spec.cores.mac
        self._vector = core.vector.lanes * spec.cores.vector
        self._of_dram = spec.dram.per_byte + spec.dram.activate / row_bytes
        self._others, self._moved = others, 0
        self._hosts = [(host, spec.host.active), *([slow] if slow is not None else [])]
        self._working = [0] * len(self._hosts)
        self._at: Ps = 0
        self._cores = {name: _Core(k) for k, name in enumerate(self.names)}
        self._calls: list[tuple[int, Ps, Ps, float]] = []
        self._flows: list[tuple[Flow, int, float]] = []

    def call_started(self, core: str, at: Ps, work: Work) -> None:
        """A core began a call that does ``work``."""
        mine = self._cores[core]
        compute = work.mac_cycles * self._array + (work.cycles - work.mac_cycles) * self._vector
        mine.since = at
        mine.per_byte = compute / work.bytes if work.bytes else 0.0
        mine.per_cycle = compute / work.cycles if work.cycles and not work.bytes else 0.0

    def call_ended(self, core: str, at: Ps) -> None:
        """A core finished its call."""
        self._busy(core, at)
        self._cores[core].since = None

    def flow_started(self, master: str, flow: Flow) -> None:
        """A master began a transfer."""
        mine = self._cores.get(master)
        if mine is None:
            self._flows.append((flow, -1, 0.0))
        else:
            self._flows.append((flow, mine.index, mine.per_byte + self.spec.cores.move))

    def _busy(self, core: str, until: Ps) -> None:
        mine, clock = self._cores[core], self.clocks[core]
        if mine.since is not None and until > mine.since:
            watts = (self.spec.cores.busy * clock.speed + mine.per_cycle * clock.hz) * clock.volts**2
            self._calls.append((mine.index, mine.since, until, watts))
            mine.since = until

    def take(self, now: Ps) -> tuple[Pulses, dict[str, float]]:
        """(power since the last look as pulses by component, the energy in J of each). Clocks and voltages must not
        have changed in between: look before they do."""
        for core in self.names:
            self._busy(core, now)
        calls = np.array(self._calls, dtype=float).reshape(-1, 4)
        self._calls = []
        part, begin, end, watts = (
            np.concatenate(columns) for columns in zip(calls.T, self._moving(now), self._hosting(now), strict=True)
        )
        node = part.astype(np.int64)
        joules = np.bincount(node, weights=watts * (end - begin) / PS_PER_S, minlength=len(self.parts))
        since, self._at = self._at, now
        pulses = Pulses(node, (begin - since) / PS_PER_S, (end - since) / PS_PER_S, watts)
        return pulses, dict(zip(self.parts, joules.tolist(), strict=True))

    def _moving(self, now: Ps) -> tuple[Floats, Floats, Floats, Floats]:
        """(component, begin, end, watts) of all that moved since the last look: once for its master, once for the
        DRAM."""
        flows, since = self._flows, self._at
        self._flows = [f for f in flows if not f[0].ended]
        histories = [f[0].history for f in flows]
        moved = self._others() - self._moved
        if moved and now > since:
            self._moved += moved
            histories.append([(since, 0.0, moved * PS_PER_S / (now - since), 0.0)])
            flows = [*flows, (flows[0][0] if flows else None, -1, 0.0)]  # type: ignore[list-item]  # only its cost is read
        rows = np.array([(r[0], r[2]) for h in histories for r in h], dtype=float).reshape(-1, 2)
        counts = [len(h) for h in histories]
        begin = rows[:, 0]
        end = np.append(begin[1:], now)
        last = np.cumsum(counts, dtype=np.int64)
        end[last[last > 0] - 1] = now  # a flow that has ended has no rate any more
        end = np.minimum(end, now)  # the bank model may be a clock ahead
        costs = [cost * self.clocks[self.parts[k]].volts ** 2 for _, k, cost in flows]
        part, cost = np.repeat([float(k) for _, k, _ in flows], counts), np.repeat(costs, counts)
        begin = np.maximum(begin, since)
        used = (rows[:, 1] > 0) & (end > begin)
        part, begin, end, rate, cost = (a[used] for a in (part, begin, end, rows[:, 1], cost))
        own = part >= 0
        return (
            np.concatenate([part[own], np.full(len(part), float(self.parts.index("dram")))]),
            np.concatenate([begin[own], begin]),
            np.concatenate([end[own], end]),
            np.concatenate([rate[own] * cost[own], rate * self._of_dram]),
        )

    def _hosting(self, now: Ps) -> tuple[Floats, Floats, Floats, Floats]:
        """The same of CPU cores: each that is taken draws from then on, each that is given back no more."""
        clock, begins, powers = self.clocks["host"], list[Ps](), list[float]()
        for k, (look, active) in enumerate(self._hosts):
            taken, given = look()
            each = active * clock.volts**2 * clock.speed
            begins += [self._at, *taken, *given]
            powers += [self._working[k] * each, *[each] * len(taken), *[-each] * len(given)]
            self._working[k] += len(taken) - len(given)
        begin, watts = np.array(begins, dtype=float), np.array(powers)
        return np.full(len(begin), float(self.parts.index("host"))), begin, np.full(len(begin), float(now)), watts

    def standby(self, temperatures: Mapping[str, float]) -> dict[str, float]:
        """W that are drawn all the time, by component: leakage of each core at its temperature in degC, and others."""
        s, out = self.spec, dict[str, float]()
        for core in self.names:
            out[core] = leakage(s.cores.leakage, s.cores.doubles, temperatures[core], self.clocks[core].volts)
        return out | {"dram": s.dram.background, "host": s.host.idle, "board": s.board}
