"""The observer of a run: counters per core, per stream and phase, and per DRAM master."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import add

from bpusim.ports import MOVES, BufferKind, CallCounters, CallDetail, Flow, Work
from bpusim.units import Ps

__all__ = ["CoreCounters", "Recorder"]

_COUNTERS = 5


@dataclass(slots=True)
class CoreCounters:
    """What one core (or one stream in one phase) did."""

    calls: int = 0
    occupied: Ps = 0
    mac_busy: Ps = 0
    macs: int = 0
    issued: int = 0


@dataclass(slots=True)
class Recorder:
    """Implements :class:`bpusim.ports.Observer` by counting; labels of calls are ``stream/phase``."""

    _totals: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """By core and label: calls, time in them, the counters, bytes in the order of ``MOVES``."""
    _host: dict[str, dict[tuple[BufferKind, bool], int]] = field(default_factory=dict)
    _started: dict[str, Ps] = field(default_factory=dict)

    @property
    def cores(self) -> dict[str, CoreCounters]:
        """By core."""
        return self._counted(0)

    @property
    def labels(self) -> dict[str, CoreCounters]:
        """By label."""
        return self._counted(1)

    def _counted(self, part: int) -> dict[str, CoreCounters]:
        sums: dict[str, list[int]] = {}
        for key, row in self._totals.items():
            sums[key[part]] = list(map(add, sums.get(key[part], [0] * _COUNTERS), row))
        return {name: CoreCounters(*row) for name, row in sums.items()}

    @property
    def moved_bytes(self) -> dict[str, dict[tuple[BufferKind, bool], int]]:
        """By master, then by (buffer kind, is a write)."""
        out = {master: dict(table) for master, table in self._host.items()}
        for (core, _), row in self._totals.items():
            table = out.setdefault(core, {})
            for key, n in zip(MOVES, row[_COUNTERS:], strict=True):
                if n:
                    table[key] = table.get(key, 0) + n
        return out

    @property
    def wants_rates(self) -> bool:
        """The flows keep their own history."""
        return False

    def call_started(self, core: str, label: str, at: Ps, work: Work) -> None:  # noqa: ARG002 (the protocol's signature)
        """A core began a call."""
        self._started[core] = at

    def call_ended(self, core: str, label: str, at: Ps, counters: CallCounters) -> None:
        """A core finished a call."""
        self._count(core, label, int(counters.ended), at - self._started.pop(core), counters)

    def calls_passed(self, core: str, label: str, since: Ps, calls: int, occupied: Ps, counters: CallCounters) -> None:
        """A core finished several calls and is in the next one."""
        self._started[core] = since
        self._count(core, label, calls, occupied, counters)

    def _count(self, core: str, label: str, calls: int, duration: Ps, counters: CallCounters) -> None:
        busy, macs, issued, _, moved, _ = counters
        row = (calls, duration, busy, macs, issued, *moved)
        totals = self._totals.get((core, label))
        self._totals[core, label] = list(map(add, totals, row)) if totals is not None else list(row)

    @property
    def wants_detail(self) -> bool:
        """Counters need none."""
        return False

    def call_detailed(self, detail: CallDetail) -> None:
        """Not asked for."""

    @property
    def wants_host(self) -> bool:
        """Counters need none."""
        return False

    def cpu_op_ended(
        self, label: str, op: str, type_: str, moved: Mapping[tuple[BufferKind, bool], int], start: Ps, end: Ps
    ) -> None:
        """Not asked for."""

    def host_took(self, at: Ps) -> None:
        """Not asked for."""

    def host_gave(self, at: Ps) -> None:
        """Not asked for."""

    def moved(self, master: str, totals: Mapping[tuple[BufferKind, bool], int], at: Ps) -> None:  # noqa: ARG002
        """Bytes of host work."""
        table = self._host.setdefault(master, {})
        for key, n in totals.items():
            table[key] = table.get(key, 0) + n

    def rates_changed(self, at: Ps, rates: Mapping[str, float]) -> None:
        """Not asked for."""

    @property
    def wants_activity(self) -> bool:
        """Counters need no power."""
        return False

    def flow_started(self, master: str, flow: Flow) -> None:
        """Not asked for."""

    def occupied_until(self, core: str, now: Ps) -> Ps:
        """Time in calls up to ``now``, a call in progress included."""
        done = sum(row[1] for key, row in self._totals.items() if key[0] == core)
        return done + (now - self._started[core] if core in self._started else 0)
