"""The bank model behind a port: transfers become streams of lines, and time goes no further than SimPy's next event.

Each flow is a list of stretches of addresses that a master of the bank model works off within its window. The model is
advanced in slices: up to the next event of the simulation (which may start a flow), the next end of a flow, or the end
of the slice, whose only purpose is a fine rate history.

Of several channels side by side one is modelled: lines take turns over them, so each sees every n-th line of the same
streams, a window of as many lines less, and the same banks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import simpy

from bpusim.dram.arbitration import PROPORTIONAL, Rules
from bpusim.dram.bank.model import BankRun, Controller, Master
from bpusim.dram.behaviour import Behaviour
from bpusim.dram.ending import Ending
from bpusim.dram.port import MasterPort
from bpusim.dram.timing import Channel
from bpusim.errors import HardwareError
from bpusim.hardware import MasterSpec
from bpusim.ports import BufferKind, Flow, History, Observer, TransferList
from bpusim.units import PS_PER_S, Ps

__all__ = ["BankChannel", "BankFlow", "BankPort", "Regions"]

_SLICE = 20_000_000
"""A rate history row at least every 20 us."""
_IN_FLIGHT = 64
"""Lines an open-loop reader may have under way."""
_FOREVER = 1 << 50

Regions = Mapping[str, Mapping[BufferKind, tuple[int, int]]]
"""For each port, base address and bytes by buffer kind."""


class BankFlow(Ending):
    """A transfer under way on a :class:`BankChannel`: a :class:`bpusim.ports.Flow`."""

    __slots__ = ("_history", "bytes", "lines", "port", "slot", "started_lines")

    def __init__(self, port: BankPort, parts: TransferList, then: Callable[[Flow], None] | None) -> None:
        super().__init__(port.channel.env, then)
        self.port = port
        self.bytes = parts.bytes
        self.lines = 0
        self.slot = -1
        self.started_lines = 0
        self._history: list[tuple[Ps, float, float, float]] = []

    @property
    def history(self) -> History:
        """As the model found it: each rate is the mean until the next row."""
        return self._history

    @property
    def throttled(self) -> float:
        """None: the channel's clock does not change."""
        return 0.0

    @property
    def slowed(self) -> bool:
        """Whether it was ever slower than alone: for a moment at least, after a refresh, it always is."""
        return any(rate < alone for _, _, rate, alone in self._history[:-1])

    def cut(self, sizes: Sequence[int]) -> int:
        """What its masters have asked for cannot be taken back: it goes to its end."""
        return sizes[-1]

    def set_limit(self, bytes_per_s: float | None) -> None:
        """Cap the rate from the next slice on; None lifts the cap. A flow cannot be stopped, only slowed down."""
        if bytes_per_s is not None and bytes_per_s <= 0:
            raise ValueError(f"a limit of {bytes_per_s} B/s")
        if not self.ended:
            self.port.channel.limit(self, bytes_per_s)

    def served(self, at: Ps) -> float:
        """Bytes arrived by ``at``, as far as the model has come."""
        for start, by_then, rate, _ in reversed(self._history):
            if at >= start:
                return min(by_then + rate * (at - start) / PS_PER_S, float(self.bytes))
        return 0.0

    def note(self, at: Ps, served: float) -> None:
        """So many bytes had arrived at ``at``: the mean rate of the stretch before is known now."""
        if self._history:
            start, by_then, _, alone = self._history[-1]
            if at == start:
                return
            self._history[-1] = (start, by_then, (served - by_then) * PS_PER_S / (at - start), alone)
        self._history.append((at, served, 0.0, self.port.rate_alone))

    def finish(self, at: Ps) -> None:
        """The last byte has arrived."""
        self.note(at, float(self.bytes))
        self.end()


class BankPort(MasterPort):
    """A master's port into a :class:`BankChannel`. Its flows at the same time (CPU cores) are masters of their own."""

    __slots__ = ("channel", "rate_alone", "rate_max", "slots")

    def __init__(self, channel: BankChannel, name: str, window: int, path: Ps, limit: float, slots: int) -> None:
        super().__init__(name, window, path, limit, channel.rules, channel.behaviour)
        self.channel = channel
        self.slots = slots
        self.rate_max = float(channel.peak)  # for a moment, after a refresh: what waited comes all at once
        self.rate_alone = channel.behaviour.alone(window, path, self.limit, (0.0, 0.0))

    @property
    def cuts(self) -> bool:
        """What has been asked for cannot be taken back."""
        return False

    def on_change(self, callback: Callable[[], None]) -> None:
        """Its rate does not change."""

    def start(
        self,
        parts: TransferList,
        *,
        limit: float | None = None,
        pace: float | None = None,
        rising: Callable[[], None] | None = None,  # noqa: ARG002 (rates are never known ahead)
        then: Callable[[Flow], None] | None = None,
    ) -> BankFlow:
        """Begin to move ``parts`` in order and call ``then`` at the end; nothing to move is done at once.

        A ``pace`` is a limit: the DMA asks for a line at a time.
        """
        limit = pace if limit is None else limit if pace is None else min(limit, pace)
        flow = BankFlow(self, parts, then)
        if self.channel.observer.wants_activity:
            self.channel.observer.flow_started(self.name, flow)
        self.channel.add(flow, parts)
        if limit is not None:
            flow.set_limit(limit)
        return flow


class BankChannel:
    """A DRAM channel at bank fidelity, ``count`` of them side by side.

    Transfers of a kind walk through their region one behind the other, as a compiler lays weights out in the order it
    streams them; a region's end wraps to its start. ``background``: masters with traffic of their own, each with its
    base address. ``behaviour`` says what a port gets alone.
    """

    def __init__(
        self,
        env: simpy.Environment,
        channel: Channel,
        behaviour: Behaviour,
        observer: Observer,
        regions: Regions,
        rules: Rules = PROPORTIONAL,
        *,
        mapping: str | None = None,
        count: int = 1,
        background: Sequence[tuple[str, MasterSpec, int]] = (),
    ) -> None:
        self.env = env
        self.channel = channel
        self.behaviour = behaviour
        self.rules = rules
        self.count = count
        self.peak = channel.peak * count
        self.observer = observer
        self._regions = regions
        self._mapping = mapping
        self._background = background
        self._cursor: dict[tuple[str, BufferKind], int] = {}
        self._ports: list[BankPort] = []
        self._run: BankRun | None = None
        self._names: list[str] = []
        self._slots: dict[str, list[int]] = {}
        self._active: dict[int, BankFlow] = {}
        self._moved: dict[str, int] = {}
        self._timer: simpy.Event | None = None
        self._ending = False
        self._line = channel.line * count
        fair = rules.policy in ("equal", "weighted")
        self._controller = Controller(arbitration="fair" if fair else "first_come")

    def port(self, name: str, window: int, path: Ps, limit: float, slots: int = 1) -> BankPort:
        """A port with ``window`` bytes outstanding over a ``path`` of its own to the channel, at most ``limit`` B/s."""
        if self._run is not None:
            raise HardwareError(f"port '{name}' comes after the first transfer")
        port = BankPort(self, name, window, path, limit, slots)
        self._ports.append(port)
        return port

    def moved(self) -> dict[str, int]:
        """Bytes moved so far by master, those of flows under way included."""
        out = dict(self._moved)
        for f in self._active.values():
            done = self._lines_done(f) * self._line
            out[f.port.name] = out.get(f.port.name, 0) + min(done, f.bytes)
        for slot, (name, _, _) in enumerate(self._background):
            out[name] = self._caught_up().served(slot) * self._line
        return out

    def dropped(self) -> dict[str, int]:
        """Bytes lost so far by each open-loop master."""
        return {
            name: self._caught_up().dropped(slot) * self._line
            for slot, (name, spec, _) in enumerate(self._background)
            if spec.window is None
        }

    def latency(self) -> dict[str, float]:
        """Mean latency of each master's reads in ps, its own path included."""
        if self._run is None:
            return {}
        waited: dict[str, tuple[int, int]] = {}
        for slot, name in enumerate(self._names):
            so_far, lines = waited.get(name, (0, 0))
            clocks, n = self._run.waited(slot)
            waited[name] = so_far + clocks, lines + n
        clock = self.channel.timing.clock
        return {name: clocks * clock / n for name, (clocks, n) in waited.items() if n}

    def limit(self, flow: BankFlow, bytes_per_s: float | None) -> None:
        """Pace a flow from now on."""
        if self._run is not None:
            rate = flow.port.limit if bytes_per_s is None else min(bytes_per_s, flow.port.limit)
            self._run.pace(flow.slot, self._pace(rate))

    def add(self, flow: BankFlow, parts: TransferList) -> None:
        """Take in a new flow."""
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        if flow.bytes <= 0:
            flow.finish(now)
            return
        run = self._run or self._build()
        free = self._slots[flow.port.name]
        if not free:
            raise HardwareError(f"port '{flow.port.name}' has more transfers at a time than it has places")
        flow.slot = free.pop()
        stretches = self._stretches(flow.port.name, parts)
        flow.lines = sum(n for _, n, _ in stretches)
        run.pace(flow.slot, self._pace(flow.port.limit))
        flow.started_lines = run.start(flow.slot, stretches, -(-now // self.channel.timing.clock))
        flow.note(now, 0.0)
        self._active[flow.slot] = flow
        if self._timer is None and not self._ending:
            self._set_timer(now)

    def _pace(self, bytes_per_s: float) -> float:
        """Clocks between lines at a rate."""
        return self._line * PS_PER_S / (bytes_per_s * self.channel.timing.clock)

    def _caught_up(self) -> BankRun:
        """The run, brought to the present: while no flow is under way, nobody else moves it."""
        run = self._run or self._build()
        now = int(self.env.now // self.channel.timing.clock)
        if not self._active and run.now < now:
            run.run(now)
        return run

    def _build(self) -> BankRun:
        clock, masters = self.channel.timing.clock, []
        # Open-loop masters go before all others; ranks of the strict policy follow.
        for name, spec, base in self._background:
            self._names.append(name)
            closed = spec.window is not None
            masters.append(
                Master(
                    "seq", base=base // self.count, region=1 << 26, write=round(100 * spec.written), count=_FOREVER,
                    out=self._lines(spec.window) if spec.window is not None else _IN_FLIGHT, background=True,
                    pace=self._pace(self.rules.limit(name, spec.rate) if closed else spec.rate),
                    path=round(spec.latency / clock),
                    level=1 + self._rank(name) if closed else 0, weight=self.rules.weight(name),
                    places=self._places(name) if closed else None,
                    buffer=0 if closed else max(spec.buffer // self._line, 1),
                    on=round((spec.on or 0) / clock), period=round((spec.period or 0) / clock),
                )
            )  # fmt: skip
        for port in self._ports:
            for _ in range(port.slots):
                self._slots.setdefault(port.name, []).append(len(masters))
                self._names.append(port.name)
                masters.append(
                    Master(
                        "list", count=0, out=self._lines(port.window), pace=self._pace(port.limit),
                        path=round(port.path / clock), level=1 + self._rank(port.name),
                        weight=self.rules.weight(port.name), group=self._slots[port.name][0],
                        places=self._places(port.name),
                    )
                )  # fmt: skip
        self._run = BankRun(self.channel, masters, self._controller, self._mapping)
        return self._run

    def _places(self, name: str) -> int | None:
        """Places in the controller: whom others may overtake gets half of them, or they would wait for one."""
        whole = self.rules.rank(name) == 0 if self.rules.policy == "strict" else self._controller.arbitration != "fair"
        return None if whole else max(self._controller.reads // 2, 1)

    def _rank(self, name: str) -> int:
        return min(self.rules.rank(name), 60) if self.rules.policy == "strict" else 0

    def _lines(self, window: int) -> int:
        """Lines in flight at one channel."""
        return max(window // self._line, 1)

    def _stretches(self, port: str, parts: TransferList) -> list[tuple[int, int, bool]]:
        """(first line, lines, is a write) at one channel, stretches that follow each other in memory joined."""
        out: list[tuple[int, int, bool]] = []
        for t in parts:
            base, size = self._regions[port][t.kind]
            at = self._cursor.get((port, t.kind), 0)
            n = -(-t.bytes // self._line)
            if at + n * self._line > size:
                at = 0
            self._cursor[port, t.kind] = at + n * self._line
            first = (base + at) // self._line
            if out and out[-1][2] == t.write and out[-1][0] + out[-1][1] == first:
                out[-1] = (out[-1][0], out[-1][1] + n, t.write)
            else:
                out.append((first, n, t.write))
        return out

    def _lines_done(self, flow: BankFlow) -> int:
        assert self._run is not None
        return self._run.served(flow.slot) - flow.started_lines

    def _set_timer(self, at: Ps) -> None:
        now: Ps = self.env.now  # type: ignore[assignment]
        timer = self.env.timeout(max(at - now, 0))
        timer.callbacks.append(self._go_on)
        self._timer = timer

    def _go_on(self, timer: simpy.Event) -> None:
        """Advance the model to whatever comes first, and wake when it is there."""
        if timer is not self._timer or self._run is None:
            return
        self._timer = None
        now: Ps = self.env.now  # type: ignore[assignment]
        clock = self.channel.timing.clock
        ended = [f for f in self._active.values() if self._lines_done(f) >= f.lines]
        if ended:
            self._end(ended, now)
        if not self._active:
            return
        limit = min(self.env.peek(), now + _SLICE)
        until = max(-(-int(limit) // clock), self._run.now)
        self._run.run(until, stop_at_end=True)
        reached = max(self._run.now * clock, now)
        for f in self._active.values():
            done = self._lines_done(f)
            if done < f.lines:
                f.note(reached, min(done * self._line, f.bytes))
        self._set_timer(reached if reached > now else int(limit))

    def _end(self, ended: list[BankFlow], now: Ps) -> None:
        self._ending = True
        try:
            for f in ended:
                del self._active[f.slot]
                self._slots[f.port.name].append(f.slot)
                self._moved[f.port.name] = self._moved.get(f.port.name, 0) + f.bytes
                f.finish(now)
        finally:
            self._ending = False
        if self.observer.wants_rates:
            rates: dict[str, float] = {f.port.name: f.port.rate_alone for f in self._active.values()}
            self.observer.rates_changed(now, rates)
