"""The seams between components: protocols and value types, no logic.

A core knows its clock, its DMA port and its observer only through these; the DRAM channel, in either fidelity,
is what stands behind a :class:`Port`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

import simpy

from bpusim.units import Ps

if TYPE_CHECKING:
    from bpusim.arrays import Bools, Ints

__all__ = [
    "BUFFER_KINDS",
    "CALL_CAUSES",
    "CRUMB",
    "MOVES",
    "BufferKind",
    "CallCounters",
    "CallDetail",
    "Clock",
    "Flow",
    "HeatSample",
    "History",
    "LonePort",
    "Observer",
    "Passage",
    "Port",
    "Transfer",
    "TransferList",
    "Work",
]

BufferKind = Literal["weights", "kv", "spill", "io"]
BUFFER_KINDS: tuple[BufferKind, ...] = ("weights", "kv", "spill", "io")
MOVES: tuple[tuple[BufferKind, bool], ...] = tuple((kind, write) for write in (False, True) for kind in BUFFER_KINDS)
"""(buffer kind, is a write): the order of counts by kind and way."""

CALL_CAUSES = ("compute", "dram", "scratchpad", "contention", "throttling", "wakeup", "dispatch")
"""What the time of a call on a core goes to, in the order in which it is counted."""

History = Sequence[tuple[Ps, float, float, float]]
"""Rows of (from time, bytes arrived by then, B/s from then on, B/s if it were alone)."""
CRUMB = 0.1
"""Part of a byte: less than this is what rounding an instant to a picosecond leaves, and has arrived."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes of one buffer, moved one way: ``bytes`` from ``offset`` of ``buffer``."""

    buffer: str
    offset: int
    bytes: int
    kind: BufferKind
    write: bool


class TransferList(Protocol):
    """Transfers in the order the DMA issues them; made one by one only for whoever iterates."""

    @property
    def bytes(self) -> int:
        """Sum over all transfers."""
        ...

    @property
    def mix(self) -> float:
        """What part of the traffic they belong to is written, 0 to 1: the channel's efficiency goes by it. It is the
        same for all transfers of a call, however they are cut."""
        ...

    def __iter__(self) -> Iterator[Transfer]: ...


class Clock(Protocol):
    """A clock domain."""

    @property
    def hz(self) -> int:
        """Present frequency."""
        ...

    def cycles_to_ps(self, cycles: int) -> Ps:
        """Duration of ``cycles`` at the present frequency, rounded to the nearest picosecond."""
        ...

    def on_change(self, callback: Callable[[int], None]) -> None:
        """Call ``callback(new_hz)`` whenever the frequency changes."""
        ...


class Flow(Protocol):
    """A transfer under way. Bytes arrive at a rate that changes only at the instants in ``history``."""

    then: Callable[[Flow], None] | None
    """Called at the end."""

    @property
    def done(self) -> simpy.Event:
        """Succeeds when the last byte has arrived: for processes. Callbacks are cheaper (``then`` of :class:`Port`)."""
        ...

    @property
    def history(self) -> History:
        """Its rates so far; once it is done, the last row is its end."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the last byte has arrived."""
        ...

    @property
    def slowed(self) -> bool:
        """Whether it ever got less than it would have got alone."""
        ...

    @property
    def throttled(self) -> float:
        """ps that a slow channel clock has cost it."""
        ...

    def cut(self, sizes: Sequence[int]) -> int:
        """End at the first of these sizes that it has not passed, if it can, without a pace; returns the size it will
        end at."""
        ...

    def set_limit(self, bytes_per_s: float | None) -> None:
        """Cap the rate from now on; None lifts the cap."""
        ...

    def served(self, at: Ps) -> float:
        """Bytes arrived by ``at``."""
        ...


class Port(Protocol):
    """A master's way into the DRAM channel."""

    @property
    def name(self) -> str:
        """Name of the master."""
        ...

    @property
    def rate_alone(self) -> float:
        """B/s with the channel to itself."""
        ...

    @property
    def rate_max(self) -> float:
        """A rate in B/s that this port never exceeds, not for a moment."""
        ...

    @property
    def latency(self) -> Ps:
        """From a request on an idle channel to its data."""
        ...

    @property
    def cuts(self) -> bool:
        """Whether its flows can be cut short."""
        ...

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` before ``rate_max`` changes take effect."""
        ...

    def start(
        self,
        parts: TransferList,
        *,
        limit: float | None = None,
        pace: float | None = None,
        rising: Callable[[], None] | None = None,
        then: Callable[[Flow], None] | None = None,
    ) -> Flow:
        """Begin to move ``parts`` in order; ``then(flow)`` is called when the last byte has arrived.

        ``limit``: B/s it never exceeds. ``pace``: B/s at which the master consumes them, stopping and going: it gets
        no more on average. ``rising()`` is called when a flow that was slower than its pace gets more again.
        ``then`` may start the port's next flow: rates are shared out once, after all that end at this instant.
        """
        ...


class Passage(Protocol):
    """Flows of one master, one behind the other, that need not be started as long as nobody else is on the channel."""

    def interrupted(self, now: Ps) -> None:
        """Somebody else is: what is over is to be told by ``vacate``, what is under way to be resumed."""
        ...


@runtime_checkable
class LonePort(Port, Protocol):
    """A port that knows whether it is alone on its channel, and what a flow takes then."""

    def claim(self) -> bool:
        """Whether nobody else is on the channel, and nobody watches it: ``hold`` it then."""
        ...

    def hold(self, passage: Passage) -> None:
        """Have the channel until ``vacate``, or until ``passage`` is interrupted."""
        ...

    def disturb(self) -> None:
        """Interrupt whoever holds the channel."""
        ...

    def vacate(self, sizes: Sequence[int]) -> None:
        """Flows of so many bytes each have moved, one behind the other and alone."""
        ...

    def resume(
        self,
        parts: TransferList,
        begin: Ps,
        *,
        pace: float | None = None,
        rising: Callable[[], None] | None = None,
        then: Callable[[Flow], None] | None = None,
    ) -> Flow:
        """As ``start``, at an earlier time since when it has been alone."""
        ...


class Work(Protocol):
    """What a call does, as far as its power depends on it. Cycles are of the core clock."""

    @property
    def bytes(self) -> int:
        """DRAM bytes."""
        ...

    @property
    def cycles(self) -> int:
        """Compute cycles."""
        ...

    @property
    def mac_cycles(self) -> int:
        """Those in which the array works."""
        ...


class CallCounters(NamedTuple):
    """What one call did, for the observers. Cycles are of the core clock."""

    mac_busy_ps: Ps
    macs: int
    issued_macs: int
    ops: int
    moved: Sequence[int]
    """DRAM bytes in the order of ``MOVES``."""
    ended: bool = True
    """Whether the call is over; it is not if it was interrupted."""


class CallDetail(NamedTuple):
    """What each op of a call, or of a part of one, did on a core. Arrays have a row an op, in program order; an op that
    was interrupted has a row in each part. Times are absolute ps."""

    core: str
    label: str
    work: Work
    start: Ps
    end: Ps
    ops: Ints
    """Which op of the call's each row is."""
    begun: Bools
    """Whether it began in this part."""
    causes: Ints
    """Ops x ``CALL_CAUSES``: what each has added to the call's time, by cause. All of it sums to ``end - start``."""
    compute: Ints
    """Ops x (from, to): when it was computed, waits between its tiles included."""
    read: Ints
    """Ops x (from, to): when the DMA fetched what it reads; an empty stretch if nothing."""
    write: Ints
    """Ops x (from, to): when the DMA wrote what it made."""


@dataclass(frozen=True, slots=True)
class HeatSample:
    """A row of ``thermal.csv``: degC by node, mean W since the last row by component, Hz by clock, fan level, and of
    each stream the tokens or frames so far with the sum of their times: ITL of tokens, latencies of frames."""

    at: Ps
    temperatures: Mapping[str, float]
    watts: Mapping[str, float]
    clocks: Mapping[str, int]
    fan: int
    done: Mapping[str, tuple[int, Ps]]


class Observer(Protocol):
    """Watches a run. Components call it; it never calls back."""

    @property
    def wants_rates(self) -> bool:
        """Whether ``rates_changed`` is to be called: it comes with every flow."""
        ...

    def call_started(self, core: str, label: str, at: Ps, work: Work) -> None:
        """A core began a call."""
        ...

    def call_ended(self, core: str, label: str, at: Ps, counters: CallCounters) -> None:
        """A core finished a call."""
        ...

    def calls_passed(self, core: str, label: str, since: Ps, calls: int, occupied: Ps, counters: CallCounters) -> None:
        """So many calls of one kind have ended, the one in progress and those behind it but the last, in progress
        ``since`` then. They took ``occupied`` together; ``counters`` are of all."""
        ...

    @property
    def wants_detail(self) -> bool:
        """Whether ``call_detailed`` is to be called: it costs more than all else in a run. A call is asked for it when
        it begins."""
        ...

    def call_detailed(self, detail: CallDetail) -> None:
        """What the ops of a call did; comes behind ``call_ended``."""
        ...

    @property
    def wants_host(self) -> bool:
        """Whether ``cpu_op_ended``, ``host_took`` and ``host_gave`` are to be called."""
        ...

    def cpu_op_ended(
        self, label: str, op: str, type_: str, moved: Mapping[tuple[BufferKind, bool], int], start: Ps, end: Ps
    ) -> None:
        """An op that falls back to the CPU is over: crossings and waits for a CPU core included."""
        ...

    def host_took(self, at: Ps) -> None:
        """A CPU core has begun to work."""
        ...

    def host_gave(self, at: Ps) -> None:
        """A CPU core has nothing to do from ``at`` on, which may be a moment ago."""
        ...

    def moved(self, master: str, totals: Mapping[tuple[BufferKind, bool], int], at: Ps) -> None:
        """``master`` has moved these bytes, by (kind, is a write), outside any call."""
        ...

    def rates_changed(self, at: Ps, rates: Mapping[str, float]) -> None:
        """The channel gives these rates in B/s from now on."""
        ...

    @property
    def wants_activity(self) -> bool:
        """Whether ``flow_started`` is to be called."""
        ...

    def flow_started(self, master: str, flow: Flow) -> None:
        """A master began a transfer; its history says what it got."""
        ...
