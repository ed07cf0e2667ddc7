"""The bank model as an object: a channel, a controller's settings, masters, and what came of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bpusim.dram.bank import kernel as k
from bpusim.dram.mapping import Mapping as AddressMapping
from bpusim.dram.timing import Channel
from bpusim.errors import HardwareError, did_you_mean

__all__ = ["BankRun", "Controller", "Master", "MasterResult", "RunResult"]

KNOWN_ERROR: Mapping[str, tuple[float, float]] = {
    "sequential": (0.1, 0.2),
    "random": (0.2, 0.3),
    "streams apart": (0.4, 2.4),
    "mixes": (0.2, 0.5),
    "colliding": (0.9, 4.6),
}
"""Deviation from Ramulator 2.1 in percent, mean and most, of the points in docs/VALIDATION.md; a test measures it."""

_FIELD = {"co": k.COLUMN_BITS, "ro": k.ROW_BITS}
_LONGEST = 1 << 14
_COST = 1 << 12
_MODES = {"polled": k.POLLED, "first_come": k.FIRST_COME, "fair": k.FAIR}
_KINDS = {"seq": k.SEQ, "rand": k.RANDOM, "stride": k.STRIDE, "copy": k.COPY, "list": k.LIST}


@dataclass(frozen=True, slots=True)
class Controller:
    """Settings of the memory controller. ``cap``: hits served in a row while an older request waits (0: no cap).

    ``age``: clocks after which the oldest request alone is served (0: never). ``page``: whether rows stay open.
    ``arbitration``: which master's request enters next, and ranks first inside: masters polled in turn (ranked as they
    entered), whose request has waited longest, or fair queueing by the masters' weights.
    """

    reads: int = 32
    writes: int = 32
    high: float = 0.8
    low: float = 0.2
    cap: int = 0
    age: int = 0
    fifo: bool = False
    page: Literal["open", "closed"] = "open"
    refresh: Literal["all_bank", "per_bank", "off"] = "all_bank"
    arbitration: Literal["polled", "first_come", "fair"] = "polled"


@dataclass(frozen=True, slots=True)
class Master:
    """A stream of requests. Addresses, regions, chunks, pitches are bytes; ``out`` counts lines in flight.

    ``gap``: clocks from a completion to the next request (-1: none); ``pace``: clocks between requests, fractions
    included; ``path``: clocks from the channel's data to the master (its outstanding place is free only then).
    ``background`` masters do not keep the run alive. ``segments`` (kind ``list``): (first line, lines, is a write).
    ``level`` 0 goes before 1, and so on; ``weight`` is the share under fair queueing, of all masters of a ``group``
    (the number of its first) together. ``places``: reads of it that the controller holds at most. With a ``path``,
    writes too hold a place in the window until their response. ``buffer`` lines make it an open-loop master: it
    generates a line every ``pace`` clocks, for ``on`` clocks of every ``period`` if that is given, and loses those that
    find its buffer full.
    """

    kind: Literal["seq", "rand", "stride", "copy", "list"] = "seq"
    base: int = 0
    region: int = 1 << 28
    chunk: int = 256
    pitch: int = 4096
    write: int = 0
    count: int = 100_000
    out: int = 64
    gap: int = -1
    background: bool = False
    seed: int = 1
    pace: float = 0
    path: int = 0
    level: int = 0
    weight: float = 1.0
    group: int | None = None
    places: int | None = None
    buffer: int = 0
    on: int = 0
    period: int = 0
    segments: tuple[tuple[int, int, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class MasterResult:
    """What one master got: requests served, clock of the last, lines dropped, latency of its reads in clocks."""

    served: int
    last: int
    dropped: int
    latency_mean: float
    latency_p50: float
    latency_p99: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run, in clocks and lines."""

    channel: Channel
    masters: tuple[MasterResult, ...]
    clocks: int
    """Until the last read return or write acceptance of a foreground master."""
    hits: int
    served: int
    activates: int
    refreshes: int

    @property
    def bytes_per_s(self) -> float:
        """All masters' bytes over the time of the foreground."""
        lines = sum(m.served for m in self.masters)
        return lines * self.channel.line * 1e12 / (self.clocks * self.channel.timing.clock) if self.clocks else 0.0

    @property
    def peak_fraction(self) -> float:
        """Of the pins' rate."""
        return self.bytes_per_s / self.channel.peak

    @property
    def hit_rate(self) -> float:
        """Columns served from a row that was not opened for them."""
        return self.hits / self.served if self.served else 0.0


class BankRun:
    """A run that can be stopped and gone on with. ``log`` keeps so many commands for a protocol checker."""

    def __init__(
        self,
        channel: Channel,
        masters: Sequence[Master],
        controller: Controller = Controller(),
        mapping: str | None = None,
        log: int = 0,
    ) -> None:
        _check(masters, controller)
        self.channel, self.controller = channel, controller
        self._bits = _bits(channel.mapping(mapping))
        self._config = _config(channel, controller)
        rows = [s for m in masters for s in m.segments] or [(0, 0, False)]
        self._segments = np.array(rows, dtype=np.int64)
        self.state = _fresh(self._config[0], masters, channel.line)
        self._log: NDArray[np.int64] = np.zeros((log, len(k.COLUMNS)), dtype=np.int64)
        at = 0
        self._at = [0] * len(masters)
        self._rows: list[list[tuple[int, int, bool]]] = [[] for _ in masters]
        for m, state in zip(masters, self.state.masters, strict=True):
            state["segment"] = at
            at += len(m.segments)
            if m.count:
                self._fetch(state)

    def _fetch(self, master: Any) -> None:
        k.fetch(master, self._segments, self._bits)

    @property
    def now(self) -> int:
        """Present clock."""
        return int(self.state.run[0]["now"])

    @property
    def log(self) -> NDArray[np.int64]:
        """The commands issued so far that the log had room for; columns are ``kernel.COLUMNS``."""
        return self._log[: int(self.state.run[0]["logged"])]

    def run(self, until: int = k.NEVER, *, stop_at_end: bool = False) -> int:
        """Go on; the master that is done, or -1 at ``until`` (or where no master in the foreground has more to do)."""
        if until >= k.NEVER and not self._unfinished():
            return -1
        return int(k.advance(until, stop_at_end, self._config, self._segments, self._bits, self.state, self._log))

    def _unfinished(self) -> bool:
        m = self.state.masters
        return bool(((m["served"] < m["count"]) & (m["background"] == 0)).any())

    def served(self, master: int) -> int:
        """Lines master number ``master`` has got so far."""
        return int(self.state.masters[master]["served"])

    def dropped(self, master: int) -> int:
        """Lines an open-loop master has lost so far."""
        return int(self.state.masters[master]["dropped"])

    def waited(self, master: int) -> tuple[int, int]:
        """Clocks that a master's reads have taken together, and how many they were."""
        state = self.state.masters[master]
        return int(state["waited"]), int(state["waits"])

    def pace(self, master: int, clocks: float) -> None:
        """From now on at least so many clocks between a master's requests (0: no limit)."""
        self.state.masters[master]["pace"] = _fine(clocks)

    def start(self, master: int, segments: Sequence[tuple[int, int, bool]], at: int) -> int:
        """Give an idle ``list`` master more to do from clock ``at`` on; returns the lines it had got before."""
        room = len(self._segments) // len(self._at)
        if len(segments) > room:
            room = 2 * len(segments)
            self._segments = np.zeros((room * len(self._at), 3), dtype=np.int64)
            for m, rows in enumerate(self._rows):
                if rows and m != master:
                    self.state.masters[m]["segment"] += m * room - self._at[m]
                    self._segments[m * room : m * room + len(rows)] = rows
            self._at = [m * room for m in range(len(self._at))]
        self._rows[master] = list(segments)
        first = self._at[master]
        self._segments[first : first + len(segments)] = segments
        state = self.state.masters[master]
        state["segment"], state["offset"], state["ready"] = first, 0, max(at, self.now)
        before = int(state["index"])
        state["count"] = before + sum(n for _, n, _ in segments)
        self._fetch(state)
        return before

    def result(self) -> RunResult:
        """What has come of it so far."""
        masters, v = self.state.masters, self.state.run[0]
        foreground = masters["background"] == 0
        return RunResult(
            channel=self.channel,
            masters=tuple(
                MasterResult(int(m["served"]), int(m["last"]), int(m["dropped"]), *_latency(m, hist))
                for m, hist in zip(masters, self.state.latency, strict=True)
            ),
            clocks=int(masters["last"][foreground].max(initial=0)),
            hits=int(v["hits"]),
            served=int(v["served"]),
            activates=int(v["activates"]),
            refreshes=int(v["refreshes"]),
        )


def _check(masters: Sequence[Master], controller: Controller) -> None:
    """What the compiled loop takes for granted."""
    if not masters:
        raise HardwareError("a run needs a master")
    if controller.reads < 1 or controller.writes < 1 or controller.cap < 0 or controller.age < 0:
        raise HardwareError("a controller needs a place for a read and a write, and no negative cap or age")
    if not 0 <= controller.low <= controller.high <= 1:
        raise HardwareError(f"write watermarks {controller.low} and {controller.high} are not in order within 0 to 1")
    if controller.refresh not in ("all_bank", "per_bank", "off") or controller.page not in ("open", "closed"):
        raise HardwareError(f"unknown refresh '{controller.refresh}' or page policy '{controller.page}'")
    if controller.arbitration not in _MODES:
        raise HardwareError(
            f"unknown arbitration '{controller.arbitration}'", do=did_you_mean(controller.arbitration, list(_MODES))
        )
    for m in masters:
        if m.kind not in _KINDS:
            raise HardwareError(f"unknown pattern '{m.kind}'", do=did_you_mean(m.kind, list(_KINDS)))
        if m.out < 1 or m.count < 0 or min(m.base, m.region, m.chunk, m.pitch, m.pace, m.path) < 0 or m.gap < -1:
            what = "keeps no line in flight" if m.out < 1 else "has a negative figure"
            raise HardwareError(
                f"a master of pattern '{m.kind}' {what}", do="write out=1 or more, and figures from 0 on"
            )
        if not 0 <= m.write <= 100 or m.region < 1:
            raise HardwareError(f"w={m.write} percent of writes in a region of {m.region} B", do="write w=0 to w=100")
        if m.gap >= 0 and m.out != 1:
            raise HardwareError(
                f"a gap after each line needs a master with one line in flight, not {m.out}", do="out=1"
            )
        if not 0 <= m.level < 64 or not m.weight > 0 or m.buffer < 0 or not 0 <= m.on <= m.period:
            raise HardwareError(f"a level, weight, buffer or burst out of range: {m}")
        if (m.places is not None and m.places < 1) or (m.group is not None and not 0 <= m.group < len(masters)):
            raise HardwareError(f"a master without a place in the controller, or of a group that is not there: {m}")
        if m.buffer and m.pace <= 0:
            raise HardwareError("an open-loop master needs a pace")
        if m.write and m.kind not in ("seq", "rand"):
            raise HardwareError(f"a share of writes means nothing to the pattern '{m.kind}'")
        if m.kind == "list":
            lines = sum(n for _, n, _ in m.segments)
            if m.count > lines or any(first < 0 or n < 1 for first, n, _ in m.segments):
                raise HardwareError(
                    f"a list of {lines} lines for {m.count} requests", do="count the lines of all segments"
                )


def _fine(clocks: float) -> int:
    """Clocks as the kernel's fixed-point number; what is not zero stays so."""
    return max(round(clocks * (1 << k.FINE)), 1) if clocks else 0


def _bits(mapping: AddressMapping) -> NDArray[np.int64]:
    """Rows for the kernel: pieces (field, bits, place in the bank's number), XORs (XOR, first row bit, place, mask)."""
    place = {"ba": 0, "bg": mapping.bits["ba"], "ra": mapping.bits["ba"] + mapping.bits["bg"]}
    taken = dict.fromkeys(place, 0)
    rows = []
    for field, n in mapping.pieces:
        at = place[field] + taken[field] if field in place else 0
        if field in taken:
            taken[field] += n
        rows.append((_FIELD.get(field, k.BANK_BITS), n, at, 0))
    rows += [(k.XOR, first, place[f], (1 << mapping.bits[f]) - 1) for f, first in mapping.xors]
    return np.array(rows, dtype=np.int64)


def _config(channel: Channel, controller: Controller) -> NDArray[np.void]:
    s, t, d = channel.timing, channel.timing.timing, channel.timing.device
    return _filled(
        k.CONFIG,
        rcd=t.RCD, rp_pb=s.precharge_to_activate(False), rp_ab=s.precharge_to_activate(True),
        ras=s.activate_to_precharge, rc=t.RC, half=s.extra.half, rrd_s=t.RRD_S, rrd_l=t.RRD_L, faw=t.FAW,
        ccd_s=t.CCD_S, ccd_l=t.CCD_L, rank=s.rank_switch, rd_wr=s.read_to_write, wr_rd_s=s.write_to_read(False),
        wr_rd_l=s.write_to_read(True), rd_pre=s.read_to_precharge, wr_pre=s.write_to_precharge, done=s.read_done,
        refi=t.REFI, rfc_ab=s.refresh_to_activate(True), rfc_pb=s.refresh_to_activate(False),
        rank_wr_rd=max(t.WL + t.BL + t.RTRS - t.RL, 1), burst=t.BL,
        busy_act=s.command.activate, busy_col=s.command.column, busy_pre=s.command.precharge,
        busy_ref=s.command.refresh, banks=d.banks, groups=d.groups, ranks=d.ranks,
        reads=controller.reads, writes=controller.writes, high=int(controller.high * controller.writes),
        low=-int(-controller.low * controller.writes // 1), cap=controller.cap, age=controller.age,
        fifo=controller.fifo, closed=controller.page == "closed",
        refresh={"off": 0, "all_bank": 1, "per_bank": 2}[controller.refresh], mode=_MODES[controller.arbitration],
    )  # fmt: skip


def _filled(record: np.dtype[np.void], **values: int) -> NDArray[np.void]:
    """An array of one record; those fields not given are zero."""
    out = np.zeros(1, dtype=record)
    for name, value in values.items():
        out[name] = value
    return out


def _master(number: int, m: Master, line: int) -> NDArray[np.void]:
    return _filled(
        k.MASTER,
        kind=_KINDS[m.kind], base=m.base // line, region=max(m.region // line, 1), chunk=max(m.chunk // line, 1),
        pitch=max(m.pitch // line, 1), write=m.write, count=m.count, window=m.out, gap=m.gap, background=m.background,
        seed=m.seed, pace=_fine(m.pace), path=m.path, level=m.level, cost=max(round(_COST / m.weight), 1),
        group=number if m.group is None else m.group, places=k.NEVER if m.places is None else m.places,
        open=m.buffer, on=m.on, period=m.period,
    )  # fmt: skip


def _fresh(c: Any, masters: Sequence[Master], line: int) -> k.State:
    n_ranks, per_rank, groups = int(c["ranks"]), int(c["banks"]), int(c["groups"])
    total, n_entries = n_ranks * per_rank, int(c["reads"] + c["writes"])
    ranks = np.zeros(n_ranks, dtype=k.RANK)
    if c["refresh"]:
        period = int(c["refi"]) // (per_rank if c["refresh"] == 2 else 1)
        ranks["refresh_at"] = [period + r * period // n_ranks for r in range(n_ranks)]
    else:
        ranks["refresh_at"] = k.NEVER
    banks = np.zeros(total, dtype=k.BANK)
    banks["rank"] = np.arange(total) // per_rank
    banks["part"] = np.arange(total) // (per_rank // groups)
    lines = np.zeros(2 * total, dtype=k.LINE)
    for none in (banks["open_row"], banks["opened_for"], *(lines[f] for f in ("head", "tail", "hit", "miss"))):
        none[:] = -1
    return k.State(
        run=_filled(k.RUN, free_r=c["reads"], free_w=c["writes"]),
        masters=np.concatenate([_master(i, m, line) for i, m in enumerate(masters)]),
        entries=np.zeros(n_entries, dtype=k.ENTRY),
        lines=lines,
        banks=banks,
        slots=np.zeros(2 * total, dtype=k.SLOT),
        ranks=ranks,
        gates=np.zeros(4 * n_ranks * groups, dtype=np.int64),
        faw=np.full(4 * n_ranks, -k.NEVER, dtype=np.int64),
        free=np.arange(n_entries, dtype=np.int64),
        live=np.zeros(4 * total, dtype=np.int64),
        ends=np.full(4, -1, dtype=np.int64),
        returns=np.zeros((len(masters), max(m.out for m in masters) + 2), dtype=np.int64),
        latency=np.zeros((len(masters), _LONGEST), dtype=np.int64),
    )


def _latency(master: Any, hist: NDArray[np.int64]) -> tuple[float, float, float]:
    """(mean, p50, p99) of read latency in clocks; percentiles count latencies beyond the last bucket as that."""
    count = int(master["waits"])
    if not count:
        return 0.0, 0.0, 0.0
    cumulated = np.cumsum(hist)
    p50, p99 = (float(np.searchsorted(cumulated, p * count)) for p in (0.5, 0.99))
    return float(master["waited"] / count), p50, p99
