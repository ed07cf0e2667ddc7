"""The bank model behind a port: transfers become streams of lines, and time goes no further than SimPy's next event.

Each flow is a list of stretches of addresses that a master of the bank model works off within its window. The model is
advanced in slices: up to the next event of the simulation (which may start a flow), the next end of a flow, or the end
of the slice, whose only purpose is a fine rate history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import simpy

from bpusim.dram.bank.model import BankRun, Controller, Master
from bpusim.dram.ending import Ending
from bpusim.dram.timing import Channel
from bpusim.errors import HardwareError
from bpusim.ports import BufferKind, Flow, Observer, TransferList
from bpusim.units import PS_PER_S, Ps

__all__ = ["BankChannel", "BankFlow", "BankPort"]

_SLICE = 20_000_000
"""A rate history row at least every 20 us."""


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
    def history(self) -> Sequence[tuple[Ps, float, float, float]]:
        """(from time, bytes by then, mean B/s until the next row, B/s if alone); the last row is the end."""
        return self._history

    def set_limit(self, bytes_per_s: float | None) -> None:
        """Not at this fidelity yet: nothing limits a flow but its port."""
        if bytes_per_s is not None:
            raise HardwareError("a flow cannot be limited at bank fidelity yet", do="run it with engine.dram: flow")

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
        self._end()


class BankPort:
    """A master's port into a :class:`BankChannel`. Its flows at the same time (CPU cores) are masters of their own."""

    __slots__ = ("channel", "latency", "name", "path", "rate_alone", "rate_max", "slots", "window")

    def __init__(self, channel: BankChannel, name: str, window: int, path: Ps, limit: int, slots: int) -> None:
        clock, line = channel.channel.timing.clock, channel.channel.line
        self.channel = channel
        self.name = name
        self.window = max(window // line, 1)
        self.path = path
        self.latency = path + channel.channel.latency
        self.slots = slots
        self.rate_max = float(channel.channel.peak)  # for a moment, after a refresh: what waited comes all at once
        paced = line * PS_PER_S / (self.pace(limit) * clock)
        self.rate_alone = min(paced, window * PS_PER_S / self.latency, self.rate_max)

    def pace(self, limit: int) -> int:
        """Clocks between lines at the port's own limit, rounded down: never slower than the port."""
        clock, line = self.channel.channel.timing.clock, self.channel.channel.line
        return max(int(line * PS_PER_S / (limit * clock)), 1)

    def start(
        self, parts: TransferList, *, limit: float | None = None, then: Callable[[Flow], None] | None = None
    ) -> BankFlow:
        """Begin to move ``parts`` in order and call ``then`` at the end; nothing to move is done at once."""
        flow = BankFlow(self, parts, then)
        flow.set_limit(limit)
        self.channel.add(flow, parts)
        return flow


class BankChannel:
    """A DRAM channel at bank fidelity. ``regions``: for each port, base address and bytes by buffer kind.

    Transfers of a kind walk through their region one behind the other, as a compiler lays weights out in the order it
    streams them; a region's end wraps to its start.
    """

    def __init__(
        self,
        env: simpy.Environment,
        channel: Channel,
        observer: Observer,
        controller: Controller,
        regions: dict[str, dict[BufferKind, tuple[int, int]]],
    ) -> None:
        self.env = env
        self.channel = channel
        self._observer = observer
        self._controller = controller
        self._regions = regions
        self._cursor: dict[tuple[str, BufferKind], int] = {}
        self._ports: list[tuple[BankPort, int]] = []
        self._run: BankRun | None = None
        self._slots: dict[str, list[int]] = {}
        self._active: dict[int, BankFlow] = {}
        self._moved: dict[str, int] = {}
        self._timer: simpy.Event | None = None
        self._ending = False

    def port(self, name: str, window: int, path: Ps, limit: int, slots: int = 1) -> BankPort:
        """A port with ``window`` bytes outstanding over a ``path`` of its own to the channel, at most ``limit`` B/s."""
        if self._run is not None:
            raise HardwareError(f"port '{name}' comes after the first transfer")
        port = BankPort(self, name, window, path, limit, slots)
        self._ports.append((port, limit))
        return port

    def moved(self) -> dict[str, int]:
        """Bytes moved so far by master, those of flows under way included."""
        out = dict(self._moved)
        for f in self._active.values():
            done = self._lines_done(f) * self.channel.line
            out[f.port.name] = out.get(f.port.name, 0) + min(done, f.bytes)
        return out

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
        flow.started_lines = run.start(flow.slot, stretches, -(-now // self.channel.timing.clock))
        flow.note(now, 0.0)
        self._active[flow.slot] = flow
        if self._timer is None and not self._ending:
            self._set_timer(now)

    def _build(self) -> BankRun:
        masters: list[Master] = []
        clock = self.channel.timing.clock
        for port, limit in self._ports:
            for _ in range(port.slots):
                self._slots.setdefault(port.name, []).append(len(masters))
                path = round(port.path / clock)
                masters.append(
                    Master("list", count=0, out=port.window, pace=port.pace(limit), path=path, background=False)
                )
        self._run = BankRun(self.channel, masters, self._controller)
        return self._run

    def _stretches(self, port: str, parts: TransferList) -> list[tuple[int, int, bool]]:
        """(first line, lines, is a write), stretches that follow each other in memory joined."""
        line = self.channel.line
        out: list[tuple[int, int, bool]] = []
        for t in parts:
            base, size = self._regions[port][t.kind]
            at = self._cursor.get((port, t.kind), 0)
            n = -(-t.bytes // line)
            if at + n * line > size:
                at = 0
            self._cursor[port, t.kind] = at + n * line
            first = (base + at) // line
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
                f.note(reached, min(done * self.channel.line, f.bytes))
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
        if self._observer.wants_rates:
            rates: dict[str, float] = {f.port.name: f.port.rate_alone for f in self._active.values()}
            self._observer.rates_changed(now, rates)
