"""Re-verifies the command log of a bank-model run against its timing set, by rules written apart from the kernel.

Every rule is a sum of JEDEC parameters written out here (``RL``, ``tDQSCK``, ...), not one of the spacings that
``TimingSet`` derives or the kernel keeps. Loaded by path from ``conftest.py``; tests use the ``check`` fixture.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bpusim.dram.timing import Channel

RD, WR, ACT, PRE, PREA, REF, REFB = range(7)
NAMES = ("RD", "WR", "ACT", "PRE", "PREA", "REF", "REFB")
LONG_AGO = -(10**15)
POSTPONED = 9
"""JEDEC lets eight refreshes be postponed, so that two may be nine intervals apart."""

Row = Sequence[int]


@dataclass(slots=True)
class _Bank:
    """What one bank remembers: its open row, and when it last saw each command."""

    row: int | None = None
    activated: int = LONG_AGO
    read: int = LONG_AGO
    written: int = LONG_AGO
    closed: int = LONG_AGO
    busy_until: int = LONG_AGO
    """End of a refresh or of a precharge, for a command as short as these."""


@dataclass(slots=True)
class _Rank:
    banks: list[_Bank]
    activates: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=4))
    """(clock, command, bank) of the last four; a refresh of one bank counts as one."""
    refreshed: int = LONG_AGO
    """When one of its banks was last refreshed."""


class Checker:
    """Reads a log command by command; ``problems`` says what broke which rule, when."""

    def __init__(self, channel: Channel) -> None:
        self.set, self.t, self.device = channel.timing, channel.timing.timing, channel.timing.device
        self.ranks = [_Rank([_Bank() for _ in range(self.device.banks)]) for _ in range(self.device.ranks)]
        self.columns: deque[tuple[int, int, int, int]] = deque()
        self.problems: list[str] = []
        t = self.t
        self._reach = t.RL + t.DQSCK + t.WL + t.BL + max(t.WTR_L, t.WTR_S, t.CCD_L, t.CCD_S, t.RTRS) + 16
        """No rule between columns looks further back."""
        self._bus_free = LONG_AGO
        self._now: Row = ()

    def read(self, log: Sequence[Row]) -> list[str]:
        """All problems of a log."""
        for line in log:
            self._now = line
            time, command, rank, bank, row = line[:5]
            self._apart("command bus", self._bus_free, 0, time)
            self._bus_free = time + self._occupies(command)
            if command in (RD, WR):
                self._column(time, command, rank, bank, row)
            elif command == ACT:
                self._activate(time, rank, bank, row)
            elif command == PRE:
                self._precharge(time, self.ranks[rank].banks[bank], self.t.RPpb)
            elif command == PREA:
                self._precharge_all(time, self.ranks[rank].banks)
            elif command == REF:
                self._refresh(time, self.ranks[rank].banks, self.t.RFCab)
            else:
                self._refresh_bank(time, self.ranks[rank], bank)
        return self.problems

    def _say(self, what: str) -> None:
        time, command, rank, bank = self._now[:4]
        self.problems.append(f"clock {time}: {NAMES[command]} rank {rank} bank {bank}: {what}")

    def _apart(self, rule: str, since: int, least: int, time: int) -> None:
        if time < since + least:
            self._say(f"{rule}: {time - since} clocks, at least {least}")

    def _occupies(self, command: int) -> int:
        c = self.set.command
        return {RD: c.column, WR: c.column, ACT: c.activate, PRE: c.precharge, PREA: c.precharge}.get(
            command, c.refresh
        )

    def _shift(self, first: int, second: int) -> int:
        """LPDDR4 counts from a command's last clock, the log from its first; other sets count from first clocks."""
        counts_from_last = self.set.family.startswith("LPDDR4")
        return self._occupies(first) - self._occupies(second) if counts_from_last else 0

    def _group(self, bank: int) -> int:
        return bank * self.device.groups // self.device.banks

    def _idle(self, bank: _Bank, command: int, time: int) -> None:
        if bank.row is not None:
            self._say(f"row {bank.row} is open")
        self._apart("bank busy", bank.busy_until, self._shift(REF, command), time)
        self._apart("tRC", bank.activated, self.t.RC + self._shift(ACT, command), time)

    def _activate(self, time: int, rank: int, bank: int, row: int) -> None:
        b = self.ranks[rank].banks[bank]
        self._idle(b, ACT, time)
        self._in_turn(time, ACT, self.ranks[rank], bank)
        b.row, b.activated = row, time

    def _in_turn(self, time: int, command: int, r: _Rank, bank: int) -> None:
        """An activate, or what draws as much current as one, after those of the rank's other banks."""
        t = self.t
        for since, before, other in r.activates:
            same, shift = self._group(other) == self._group(bank), self._shift(before, command)
            self._apart("tRRD_L" if same else "tRRD_S", since, (t.RRD_L if same else t.RRD_S) + shift, time)
        if len(r.activates) == 4:
            since, before, _ = r.activates[0]
            self._apart("tFAW", since, t.FAW + self._shift(before, command), time)
        r.activates.append((time, command, bank))

    def _may_close(self, time: int, b: _Bank) -> None:
        t, written = self.t, self.t.WL + self.set.extra.write + self.t.BL + self.t.WR
        self._apart("tRAS", b.activated, t.RAS + self._shift(ACT, PRE), time)
        self._apart("RD to PRE", b.read, t.RTP + self._shift(RD, PRE), time)
        self._apart("WR to PRE", b.written, written + self._shift(WR, PRE), time)

    def _precharge(self, time: int, b: _Bank, takes: int) -> None:
        if b.row is None:
            self._say("no row is open")
        self._may_close(time, b)
        self._apart("bank busy", b.busy_until, 0, time)
        b.row, b.closed, b.busy_until = None, time, time + takes

    def _precharge_all(self, time: int, banks: list[_Bank]) -> None:
        if all(b.row is None for b in banks):
            self._say("no row of the rank is open")
        for b in banks:
            if b.row is not None:
                self._may_close(time, b)
            b.row, b.closed, b.busy_until = None, time, max(b.busy_until, time + self.t.RPab)

    def _refresh(self, time: int, banks: list[_Bank], takes: int) -> None:
        for b in banks:
            self._idle(b, REF, time)
            b.busy_until = time + takes

    def _refresh_bank(self, time: int, r: _Rank, bank: int) -> None:
        self._refresh(time, [r.banks[bank]], self.t.RFCpb)
        self._apart("tRFCpb", r.refreshed, self.t.RFCpb, time)
        self._in_turn(time, REFB, r, bank)
        r.refreshed = time

    def _column(self, time: int, command: int, rank: int, bank: int, row: int) -> None:
        b = self.ranks[rank].banks[bank]
        if b.row != row:
            self._say(f"row {b.row} is open, not {row}")
        self._apart("tRCD", b.activated, self.t.RCD, time)
        self._apart("bank busy", b.busy_until, 0, time)
        group = self._group(bank)
        while self.columns and self.columns[0][0] < time - self._reach:
            self.columns.popleft()
        for since, before, other_rank, other_group in self.columns:
            self._after_column(time, command, since, before, other_rank == rank, other_group == group)
        self.columns.append((time, command, rank, group))
        if command == RD:
            b.read = time
        else:
            b.written = time

    def _after_column(self, time: int, command: int, since: int, before: int, rank: bool, group: bool) -> None:
        """Column after column: of the same ``rank`` or another, the same ``group`` of it or another."""
        t, x = self.t, self.set.extra
        if not rank:
            # The data bus alone is shared: bursts of two ranks are tRTRS apart on it.
            starts = {RD: t.RL + t.DQSCK, WR: t.WL + x.write}
            self._apart("data of two ranks", since + starts[before] + t.BL, t.RTRS, time + starts[command])
            if before == command:
                self._apart("rank switch", since, t.BL + t.RTRS, time)
            elif before == RD:
                least = t.RL + t.DQSCK + t.BL + x.turnaround - t.WL + t.RTRS
                self._apart("RD to WR, other rank", since, least, time)
        elif before == command:
            self._apart("tCCD_L" if group else "tCCD_S", since, t.CCD_L if group else t.CCD_S, time)
        elif before == RD:
            self._apart("RD to WR", since, t.RL + t.DQSCK + t.BL + x.turnaround - t.WL, time)
        else:
            wait = t.WTR_L if group else t.WTR_S
            self._apart("WR to RD, same group" if group else "WR to RD", since, t.WL + x.write + t.BL + wait, time)


def check(channel: Channel, log: Sequence[Row]) -> list[str]:
    """What is wrong with the spacings and bank states of a log; nothing, if it is legal."""
    return Checker(channel).read(log)


def check_refresh(channel: Channel, log: Sequence[Row], end: int) -> list[str]:
    """What is wrong with the refreshes of a log until clock ``end``.

    Per rank (and bank, if per bank): no two further apart than nine intervals, and as many as intervals have passed,
    but for those that may still be postponed and the one that is just due. A bank's own interval is as many tREFIpb as
    there are banks, each of whole clocks (1042 where tREFI is 8341): a little less than tREFI.
    """
    t, d = channel.timing.timing, channel.timing.device
    per_bank = any(line[1] == REFB for line in log)
    interval = t.REFI // d.banks * d.banks if per_bank else t.REFI
    problems = []
    for rank in range(d.ranks):
        for bank in range(d.banks if per_bank else 1):
            times = [n[0] for n in log if n[1] in (REF, REFB) and n[2] == rank and (not per_bank or n[3] == bank)]
            where = f"rank {rank}" + (f" bank {bank}" if per_bank else "")
            for a, b in pairwise([0, *times, end]):
                if b - a > POSTPONED * t.REFI:
                    problems.append(f"{where}: no refresh from {a} to {b}")
            if not end // t.REFI - POSTPONED <= len(times) <= end // interval + 1:
                problems.append(f"{where}: {len(times)} refreshes in {end // t.REFI} intervals")
    return problems
