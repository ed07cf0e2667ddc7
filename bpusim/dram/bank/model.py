"""The bank model as an object: a channel, a controller's settings, masters, and what came of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bpusim.dram.bank import kernel as k
from bpusim.dram.mapping import Mapping
from bpusim.dram.timing import Channel
from bpusim.errors import HardwareError, did_you_mean

__all__ = ["BankRun", "Controller", "Master", "MasterResult", "RunResult"]

_FIELD = {"co": 0, "ba": 1, "bg": 1, "ra": 1, "ro": 2}
_LONGEST = 1 << 14
_KINDS = {"seq": k.SEQ, "rand": k.RANDOM, "stride": k.STRIDE, "copy": k.COPY, "list": k.LIST}


@dataclass(frozen=True, slots=True)
class Controller:
    """Settings of the memory controller. ``cap``: hits served in a row while an older request waits (0: no cap).

    ``age``: clocks after which the oldest request alone is served (0: never). ``page``: whether rows stay open.
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
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Master:
    """A stream of requests. Addresses, regions, chunks, pitches are bytes; ``out`` counts lines in flight.

    ``gap``: clocks from a completion to the next request (-1: none); ``pace``: clocks between requests; ``path``:
    clocks from the channel's data to the master (its outstanding place is free only then). ``background`` masters do
    not keep the run alive. ``segments`` (kind ``list``): (first line, lines, is a write).
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
    pace: int = 0
    path: int = 0
    segments: tuple[tuple[int, int, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class MasterResult:
    """What one master got: requests served, clock of the last, latency of its reads in clocks."""

    served: int
    last: int
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
        self._masters = np.array([_row(m, channel.line) for m in masters], dtype=np.int64)
        pieces, xors = _bits(channel.mapping(mapping))
        self._map = pieces, xors
        self._config = _config(channel, controller, len(pieces), len(xors))
        rows = [s for m in masters for s in m.segments] or [(0, 0, False)]
        self._segments = np.array(rows, dtype=np.int64)
        self.state = _fresh(self._config, self._masters)
        self.log: NDArray[np.int64] = np.zeros((log, len(k.COLUMNS)), dtype=np.int64)
        at = 0
        self._at = [0] * len(masters)
        self._rows: list[list[tuple[int, int, bool]]] = [[] for _ in masters]
        for i, m in enumerate(masters):
            self.state.progress[i, k.SEGMENT] = at
            at += len(m.segments)
            if m.count:
                k.fetch(i, self._config, self._masters, self._segments, pieces, xors, self.state.progress)

    @property
    def now(self) -> int:
        """Present clock."""
        return int(self.state.scalars[k.NOW])

    def run(self, until: int = k.NEVER, *, stop_at_end: bool = False) -> int:
        """Go on; the master that is done, or -1 at ``until`` (or where no master in the foreground has more to do)."""
        if until >= k.NEVER and not self._unfinished():
            return -1
        return int(
            k.advance(until, stop_at_end, self._config, self._masters, self._segments, *self._map, self.state, self.log)
        )

    def _unfinished(self) -> bool:
        waiting = self.state.progress[:, k.SERVED] < self._masters[:, k.COUNT]
        return bool((waiting & (self._masters[:, k.BACKGROUND] == 0)).any())

    def served(self, master: int) -> int:
        """Lines master number ``master`` has got so far."""
        return int(self.state.progress[master, k.SERVED])

    def start(self, master: int, segments: Sequence[tuple[int, int, bool]], at: int) -> int:
        """Give an idle ``list`` master more to do from clock ``at`` on; returns the lines it had got before."""
        pr = self.state.progress[master]
        room = len(self._segments) // len(self._masters)
        if len(segments) > room:
            room = 2 * len(segments)
            self._segments = np.zeros((room * len(self._masters), 3), dtype=np.int64)
            self._rows = [self._rows[m] if m < len(self._rows) else [] for m in range(len(self._masters))]
            for m, rows in enumerate(self._rows):
                if rows and m != master:
                    self.state.progress[m, k.SEGMENT] += m * room - self._at[m]
                    self._segments[m * room : m * room + len(rows)] = rows
            self._at = [m * room for m in range(len(self._masters))]
        self._rows[master] = list(segments)
        self._segments[self._at[master] : self._at[master] + len(segments)] = segments
        pr[k.SEGMENT], pr[k.OFFSET], pr[k.READY] = self._at[master], 0, max(at, self.now)
        before = int(pr[k.SERVED])
        self._masters[master, k.COUNT] = before + sum(n for _, n, _ in segments)
        k.fetch(master, self._config, self._masters, self._segments, *self._map, self.state.progress)
        return before

    def result(self) -> RunResult:
        """What has come of it so far."""
        st, v = self.state, self.state.scalars
        foreground = self._masters[:, k.BACKGROUND] == 0
        return RunResult(
            channel=self.channel,
            masters=tuple(
                MasterResult(int(p[k.SERVED]), int(p[k.LAST]), *_latency(hist))
                for p, hist in zip(st.progress, st.latency, strict=True)
            ),
            clocks=int(st.progress[foreground, k.LAST].max(initial=0)),
            hits=int(v[k.HITS]),
            served=int(v[k.SERVED_ALL]),
            activates=int(v[k.ACTIVATES]),
            refreshes=int(v[k.REFRESHES]),
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
    for m in masters:
        if m.kind not in _KINDS:
            raise HardwareError(f"unknown pattern '{m.kind}'", do=did_you_mean(m.kind, list(_KINDS)))
        if m.out < 1 or m.count < 0 or min(m.base, m.region, m.chunk, m.pitch, m.pace, m.path) < 0 or m.gap < -1:
            raise HardwareError(f"a master with a negative figure, or without a line in flight: {m}")
        if m.write and m.kind not in ("seq", "rand"):
            raise HardwareError(f"a share of writes means nothing to the pattern '{m.kind}'")
        if m.kind == "list":
            lines = sum(n for _, n, _ in m.segments)
            if m.count > lines or any(first < 0 or n < 1 for first, n, _ in m.segments):
                raise HardwareError(
                    f"a list of {lines} lines for {m.count} requests", do="count the lines of all segments"
                )


def _row(m: Master, line: int) -> list[int]:
    lines = max(m.region // line, 1)
    row = [0] * k.MASTER
    row[k.KIND], row[k.BASE], row[k.REGION] = _KINDS[m.kind], m.base // line, lines
    row[k.CHUNK], row[k.PITCH] = max(m.chunk // line, 1), max(m.pitch // line, 1)
    row[k.WRITE], row[k.COUNT], row[k.WINDOW], row[k.GAP] = m.write, m.count, m.out, m.gap
    row[k.BACKGROUND], row[k.SEED], row[k.PACE] = int(m.background), m.seed, m.pace
    row[k.PATH] = m.path
    return row


def _bits(mapping: Mapping) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pieces (kind, bits, place in the bank's number) and XORs (place, first row bit, mask)."""
    place = {"ba": 0, "bg": mapping.bits["ba"], "ra": mapping.bits["ba"] + mapping.bits["bg"]}
    taken = dict.fromkeys(place, 0)
    pieces = []
    for field, n in mapping.pieces:
        at = place[field] + taken[field] if field in place else 0
        if field in taken:
            taken[field] += n
        pieces.append((_FIELD[field], n, at))
    xors = [(place[f], first, (1 << mapping.bits[f]) - 1) for f, first in mapping.xors]
    return np.array(pieces, dtype=np.int64).reshape(-1, 3), np.array(xors or [(0, 0, 0)], dtype=np.int64)[: len(xors)]


def _config(channel: Channel, controller: Controller, pieces: int, xors: int) -> NDArray[np.int64]:
    s, t, d = channel.timing, channel.timing.timing, channel.timing.device
    c = np.zeros(k.CONFIG, dtype=np.int64)
    values = {
        k.RCD: t.RCD, k.RPPB: t.RPpb, k.RPAB: t.RPab, k.RAS: t.RAS, k.RC: t.RC, k.RRD_S: t.RRD_S, k.RRD_L: t.RRD_L,
        k.FAW: t.FAW, k.CCD_S: t.CCD_S, k.CCD_L: t.CCD_L, k.RANK: s.rank_switch, k.RD_WR: s.read_to_write,
        k.WR_RD_S: s.write_to_read(False), k.WR_RD_L: s.write_to_read(True), k.RD_PRE: s.read_to_precharge,
        k.WR_PRE: s.write_to_precharge, k.DONE: s.read_done, k.REFI: t.REFI, k.RFCAB: t.RFCab, k.RFCPB: t.RFCpb,
        k.BUSY_ACT: s.command.activate, k.BUSY_COL: s.command.column, k.BUSY_PRE: s.command.precharge,
        k.BUSY_REF: s.command.refresh, k.BANKS: d.banks, k.GROUPS: d.groups, k.RANKS: d.ranks,
        k.READS: controller.reads, k.WRITES: controller.writes, k.HIGH: int(controller.high * controller.writes),
        k.LOW: -int(-controller.low * controller.writes // 1), k.CAP: controller.cap, k.AGE: controller.age,
        k.FIFO: int(controller.fifo), k.CLOSED: int(controller.page == "closed"),
        k.REFRESH: {"off": 0, "all_bank": 1, "per_bank": 2}[controller.refresh], k.STRICT: int(controller.strict),
        k.PIECES: pieces, k.XORS: xors, k.BURST: t.BL, k.RANK_WR_RD: max(t.WL + t.BL + t.RTRS - t.RL, 1),
    }  # fmt: skip
    for index, value in values.items():
        c[index] = value
    return c


def _fresh(c: NDArray[np.int64], masters: NDArray[np.int64]) -> k.State:
    ranks, banks, groups = int(c[k.RANKS]), int(c[k.BANKS]), int(c[k.GROUPS])
    total, entries = ranks * banks, int(c[k.READS] + c[k.WRITES])
    nm = len(masters)

    def zeros(*shape: int) -> NDArray[np.int64]:
        return np.zeros(shape, dtype=np.int64)

    def none(*shape: int) -> NDArray[np.int64]:
        return np.full(shape, -1, dtype=np.int64)

    scalars = zeros(k.SCALARS)
    scalars[k.FREE_R], scalars[k.FREE_W] = c[k.READS], c[k.WRITES]
    scalars[k.FORE] = int((masters[:, k.BACKGROUND] == 0).sum())
    returns = int(masters[:, k.WINDOW].max(initial=0)) + 2
    if c[k.REFRESH]:
        period = int(c[k.REFI]) // (banks if c[k.REFRESH] == 2 else 1)
        refresh = np.array([period + r * period // ranks for r in range(ranks)], dtype=np.int64)
    else:
        refresh = np.full(ranks, k.NEVER, dtype=np.int64)
    return k.State(
        scalars=scalars,
        progress=zeros(nm, k.PROGRESS),
        latency=np.zeros((nm, 3 + _LONGEST)),
        row=zeros(entries),
        bank=zeros(entries),
        sequence=zeros(entries),
        master=zeros(entries),
        accepted=zeros(entries),
        visible=zeros(entries),
        after=none(entries),
        before=none(entries),
        free=np.arange(entries, dtype=np.int64),
        head=none(2, total),
        tail=none(2, total),
        hit=none(2, total),
        miss=none(2, total),
        run=zeros(total),
        open_row=none(total),
        opened_for=none(total),
        act_ready=zeros(total),
        col_ready=zeros(total),
        pre_ready=zeros(total),
        read_ok=zeros(ranks * groups),
        write_ok=zeros(ranks * groups),
        rrd_ok=zeros(ranks * groups),
        faw=np.full((ranks, 4), -k.NEVER, dtype=np.int64),
        faw_at=zeros(ranks),
        refresh_at=refresh,
        refresh_due=zeros(ranks),
        refresh_bank=zeros(ranks),
        rank_of=np.repeat(np.arange(ranks, dtype=np.int64), banks),
        part_of=np.arange(total, dtype=np.int64) // (banks // groups),
        return_at=zeros(nm, returns),
        return_accepted=zeros(nm, returns),
    )


def _latency(hist: NDArray[np.float64]) -> tuple[float, float, float]:
    """(mean, p50, p99) of read latency in clocks; percentiles count latencies beyond the last bucket as that."""
    count = hist[1]
    if not count:
        return 0.0, 0.0, 0.0
    cumulated = np.cumsum(hist[2:])
    p50, p99 = (float(np.searchsorted(cumulated, p * count)) for p in (0.5, 0.99))
    return float(hist[0] / count), p50, p99
