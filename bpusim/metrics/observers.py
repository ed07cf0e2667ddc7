"""Two observers of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bpusim.ports import BufferKind, CallCounters, CallDetail, Flow, Observer, Work
from bpusim.units import Ps

__all__ = ["Both"]


@dataclass(frozen=True, slots=True)
class Both:
    """Tells both, in this order."""

    first: Observer
    second: Observer

    @property
    def wants_rates(self) -> bool:
        """Whether one does."""
        return self.first.wants_rates or self.second.wants_rates

    @property
    def wants_detail(self) -> bool:
        """Whether one does."""
        return self.first.wants_detail or self.second.wants_detail

    @property
    def wants_activity(self) -> bool:
        """Whether one does."""
        return self.first.wants_activity or self.second.wants_activity

    @property
    def wants_host(self) -> bool:
        """Whether one does."""
        return self.first.wants_host or self.second.wants_host

    def call_started(self, core: str, label: str, at: Ps, work: Work) -> None:
        """A core began a call."""
        for one in (self.first, self.second):
            one.call_started(core, label, at, work)

    def calls_passed(self, core: str, label: str, since: Ps, calls: int, occupied: Ps, counters: CallCounters) -> None:
        """To both."""
        self.first.calls_passed(core, label, since, calls, occupied, counters)
        self.second.calls_passed(core, label, since, calls, occupied, counters)

    def call_ended(self, core: str, label: str, at: Ps, counters: CallCounters) -> None:
        """A core finished a call."""
        for one in (self.first, self.second):
            one.call_ended(core, label, at, counters)

    def call_detailed(self, detail: CallDetail) -> None:
        """What the ops of a call did."""
        for one in (self.first, self.second):
            one.call_detailed(detail)

    def cpu_op_ended(
        self, label: str, op: str, type_: str, moved: Mapping[tuple[BufferKind, bool], int], start: Ps, end: Ps
    ) -> None:
        """An op on the CPU is over."""
        for one in (self.first, self.second):
            one.cpu_op_ended(label, op, type_, moved, start, end)

    def host_took(self, at: Ps) -> None:
        """A CPU core has begun to work."""
        for one in (self.first, self.second):
            one.host_took(at)

    def host_gave(self, at: Ps) -> None:
        """A CPU core has stopped."""
        for one in (self.first, self.second):
            one.host_gave(at)

    def moved(self, master: str, totals: Mapping[tuple[BufferKind, bool], int], at: Ps) -> None:
        """Bytes of host work."""
        for one in (self.first, self.second):
            one.moved(master, totals, at)

    def rates_changed(self, at: Ps, rates: Mapping[str, float]) -> None:
        """The channel gives these rates from now on."""
        for one in (self.first, self.second):
            one.rates_changed(at, rates)

    def flow_started(self, master: str, flow: Flow) -> None:
        """A master began a transfer."""
        for one in (self.first, self.second):
            one.flow_started(master, flow)
