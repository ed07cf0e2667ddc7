"""The observer of a run: counters per core, per stream and phase, and per DRAM master."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bpusim.ports import BufferKind, CallCounters
from bpusim.units import Ps

__all__ = ["CoreCounters", "Recorder"]


@dataclass(slots=True)
class CoreCounters:
    """What one core (or one stream in one phase) did."""

    calls: int = 0
    occupied: Ps = 0
    mac_busy: Ps = 0
    macs: int = 0
    issued: int = 0

    def add(self, duration: Ps, counters: CallCounters) -> None:
        """Count one finished call."""
        self.calls += 1
        self.occupied += duration
        self.mac_busy += counters.mac_busy_ps
        self.macs += counters.macs
        self.issued += counters.issued_macs


@dataclass(slots=True)
class Recorder:
    """Implements :class:`bpusim.ports.Observer` by counting; labels of calls are ``stream/phase``."""

    cores: dict[str, CoreCounters] = field(default_factory=lambda: defaultdict(CoreCounters))
    labels: dict[str, CoreCounters] = field(default_factory=lambda: defaultdict(CoreCounters))
    moved_bytes: dict[str, dict[tuple[BufferKind, bool], int]] = field(default_factory=dict)
    _started: dict[str, Ps] = field(default_factory=dict)

    @property
    def wants_rates(self) -> bool:
        """The flows keep their own history."""
        return False

    def call_started(self, core: str, label: str, at: Ps) -> None:  # noqa: ARG002 (the protocol's signature)
        """A core began a call."""
        self._started[core] = at

    def call_ended(self, core: str, label: str, at: Ps, counters: CallCounters) -> None:
        """A core finished a call."""
        duration = at - self._started.pop(core)
        self.cores[core].add(duration, counters)
        self.labels[label].add(duration, counters)
        self.moved(core, counters.moved, at)

    @property
    def wants_ops(self) -> bool:
        """Counters need no ops."""
        return False

    def ops_ended(self, core: str, label: str, start: Ps, ends: Sequence[Ps]) -> None:
        """Not asked for."""

    def moved(self, master: str, totals: Mapping[tuple[BufferKind, bool], int], at: Ps) -> None:  # noqa: ARG002
        """Bytes of a finished call, or of host work."""
        table = self.moved_bytes.setdefault(master, {})
        for key, n in totals.items():
            table[key] = table.get(key, 0) + n

    def rates_changed(self, at: Ps, rates: Mapping[str, float]) -> None:
        """Not asked for."""

    def clock_changed(self, unit: str, hz: int, at: Ps) -> None:
        """Clocks are fixed so far."""

    def waited(self, who: str, cause: str, start: Ps, end: Ps) -> None:
        """Causes are kept in ledgers."""

    def occupied_until(self, core: str, now: Ps) -> Ps:
        """Time in calls up to ``now``, a call in progress included."""
        done = self.cores[core].occupied if core in self.cores else 0
        return done + (now - self._started[core] if core in self._started else 0)
