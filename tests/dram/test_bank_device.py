"""Every constraint between commands, one at a time: not ready at t - 1, ready at t.

A test hands the model two or three requests on an idle channel, with a timing set in which the constraint under test is
the one that decides, and states from the set's own numbers when the command must go. A request that is injected at
clock 0 is seen by the controller at clock 1, the next at clock 2.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bpusim.dram.bank.kernel import ACT, PRE, PREA, RD, REF, REFB, WR
from bpusim.dram.bank.model import BankRun, Controller, Master
from bpusim.dram.timing import Channel, channel

LPDDR4 = channel("LPDDR4-4266x32")
LPDDR4X = channel("LPDDR4X-3200x64")  # two ranks
LPDDR5 = channel("LPDDR5-6400x16")  # bank groups, two ranks
DDR4 = channel("DDR4-3200x64")  # bank groups
SETS = pytest.mark.parametrize("ch", [LPDDR4, LPDDR4X, LPDDR5, DDR4], ids=lambda c: c.name)
GROUPED = pytest.mark.parametrize("ch", [LPDDR5, DDR4], ids=lambda c: c.name)

FIRST = 1
"""When the first request's activate goes."""
LATER = 4
"""A pace at which a write's row is open before a read comes, which would go first."""
PLAIN = "co ba bg ra ro"
NO_REFRESH = Controller(refresh="off")


def changed(ch: Channel, **timing: int) -> Channel:
    """The channel with other timing parameters."""
    return replace(ch, timing=replace(ch.timing, timing=replace(ch.timing.timing, **timing)))


def line(ch: Channel, row: int = 0, bank: int = 0, group: int = 0, rank: int = 0, column: int = 0) -> int:
    """The line at a place, by the mapping PLAIN."""
    bits = ch.mapping(PLAIN).bits
    out = 0
    for field, value in (("ro", row), ("ra", rank), ("bg", group), ("ba", bank), ("co", column)):
        out = out << bits[field] | value
    return out


class Device:
    """A channel and requests, (line, is a write) each, that can be run again and again."""

    def __init__(
        self, ch: Channel, *requests: tuple[int, bool], controller: Controller = NO_REFRESH, pace: int = 0
    ) -> None:
        self.ch, self.controller = ch, controller
        segments = tuple((at, 1, write) for at, write in requests)
        self.master = Master("list", count=len(segments), segments=segments, pace=pace)

    def probe(self, until: int) -> list[tuple[int, int, int, int]]:
        """(clock, command, rank, bank) of all commands before clock ``until``."""
        run = BankRun(self.ch, [self.master], self.controller, PLAIN, log=64)
        while run.now < until:  # a run stops when its masters are done, with writes still queued
            run.run(until)
        return [(int(n[0]), int(n[1]), int(n[2]), int(n[3])) for n in run.log]

    def assert_earliest(self, index: int, command: int, t: int) -> None:
        """The command so far down the log is ``command``: not ready at ``t`` - 1, ready at ``t``."""
        before, after = self.probe(t), self.probe(t + 1)
        assert len(before) == index, f"expected {index} commands before clock {t}, measured {before}"
        assert [n[:2] for n in after[index:]] == [(t, command)]

    def assert_log(self, *expected: tuple[int, int]) -> None:
        """The log begins with these (clock, command)."""
        assert [n[:2] for n in self.probe(expected[-1][0] + 1)] == list(expected)


# One bank.


@SETS
def test_activate_to_read(ch: Channel) -> None:
    """tRCD."""
    Device(ch, (line(ch), False)).assert_earliest(1, RD, FIRST + ch.timing.timing.RCD)


@SETS
def test_activate_to_write(ch: Channel) -> None:
    """tRCD."""
    Device(ch, (line(ch), True)).assert_earliest(1, WR, FIRST + ch.timing.timing.RCD)


@SETS
def test_activate_to_precharge(ch: Channel) -> None:
    """tRAS (and the activate's second half): the read is over long before."""
    t, half = ch.timing.timing, ch.timing.extra.half
    assert t.RCD + ch.timing.read_to_precharge < t.RAS
    Device(ch, (line(ch, row=0), False), (line(ch, row=1), False)).assert_earliest(2, PRE, FIRST + t.RAS + half)


@SETS
def test_precharge_to_activate(ch: Channel) -> None:
    """tRPpb (less the activate's second half), here with a tRC that is over by then."""
    t, half = ch.timing.timing, ch.timing.extra.half
    ch = changed(ch, RC=t.RAS)
    precharge = FIRST + t.RAS + half
    device = Device(ch, (line(ch, row=0), False), (line(ch, row=1), False))
    device.assert_earliest(3, ACT, precharge + t.RPpb - half)


def test_precharge_and_activate_of_the_reference_machine() -> None:
    """tRAS 90 and tRPpb 39 from last clocks: 92 and 37 between first ones, a row cycle of 129 as before."""
    device = Device(LPDDR4, (line(LPDDR4, row=0), False), (line(LPDDR4, row=1), False))
    device.assert_log((1, ACT), (40, RD), (1 + 92, PRE), (1 + 92 + 37, ACT))


@SETS
def test_activate_to_activate_of_a_bank(ch: Channel) -> None:
    """tRC, here longer than tRAS + tRPpb."""
    t = ch.timing.timing
    ch = changed(ch, RC=t.RAS + t.RPpb + 10)
    device = Device(ch, (line(ch, row=0), False), (line(ch, row=1), False))
    device.assert_earliest(3, ACT, FIRST + t.RAS + t.RPpb + 10)


@SETS
def test_read_to_precharge(ch: Channel) -> None:
    """tRTP (and the read's second half), here with a row that might be closed at once."""
    t = ch.timing.timing
    ch = changed(ch, RAS=t.RCD)
    device = Device(ch, (line(ch, row=0), False), (line(ch, row=1), False))
    device.assert_earliest(2, PRE, FIRST + t.RCD + t.RTP + ch.timing.extra.half)


@SETS
def test_write_to_precharge(ch: Channel) -> None:
    """WL + tDQSS + BL + tWR (and the write's second half): later than tRAS."""
    t, x = ch.timing.timing, ch.timing.extra
    device = Device(ch, (line(ch, row=0), True), (line(ch, row=1), True))
    device.assert_earliest(2, PRE, FIRST + t.RCD + t.WL + x.write + t.BL + t.WR + x.half)


def test_write_to_precharge_of_the_reference_machine() -> None:
    """68 clocks after the write at 1 + 39."""
    Device(LPDDR4, (line(LPDDR4, row=0), True), (line(LPDDR4, row=1), True)).assert_earliest(2, PRE, 40 + 68)


# Banks of a rank.


@SETS
def test_activates_of_two_banks(ch: Channel) -> None:
    """tRRD_L: two banks of a group, or of a device without groups."""
    device = Device(ch, (line(ch, bank=0), False), (line(ch, bank=1), False))
    device.assert_earliest(1, ACT, FIRST + ch.timing.timing.RRD_L)


def test_activates_of_two_groups() -> None:
    """tRRD_S 4, where the same group asks for 8."""
    device = Device(DDR4, (line(DDR4, group=0), False), (line(DDR4, group=1), False))
    device.assert_earliest(1, ACT, FIRST + 4)


@SETS
def test_the_fifth_activate_waits_for_the_first(ch: Channel) -> None:
    """tFAW, here longer than four tRRD; columns wait longer still, to leave the command bus free."""
    t = ch.timing.timing
    ch = changed(ch, FAW=4 * t.RRD_L + 7, RCD=9 * t.RRD_L)
    groups = ch.timing.device.groups
    banks = [(line(ch, bank=n // groups, group=n % groups), False) for n in range(5)]
    Device(ch, *banks).assert_earliest(4, ACT, FIRST + 4 * t.RRD_L + 7)


def test_the_sixth_activate_waits_for_the_second() -> None:
    """tFAW moves on with every activate."""
    ch = changed(LPDDR4, FAW=100, RCD=300)
    # Activates at 1, 23, 45, 67 (tRRD 22); then 1 + 100 and 23 + 100.
    Device(ch, *((line(ch, bank=n), False) for n in range(6))).assert_earliest(5, ACT, 23 + 100)


# Columns.


@SETS
def test_read_to_read_of_a_bank(ch: Channel) -> None:
    """tCCD_L."""
    t = ch.timing.timing
    device = Device(ch, (line(ch), False), (line(ch, column=1), False))
    device.assert_earliest(2, RD, FIRST + t.RCD + t.CCD_L)


@SETS
def test_write_to_write_of_a_bank(ch: Channel) -> None:
    """tCCD_L."""
    t = ch.timing.timing
    device = Device(ch, (line(ch), True), (line(ch, column=1), True))
    device.assert_earliest(2, WR, FIRST + t.RCD + t.CCD_L)


@GROUPED
@pytest.mark.parametrize(("write", "command"), [(False, RD), (True, WR)])
def test_columns_of_two_groups(ch: Channel, write: bool, command: int) -> None:
    """tCCD_S, here longer than tRRD_S, so that the second bank's tRCD is over."""
    t = ch.timing.timing
    ch = changed(ch, CCD_S=t.RRD_S + 3, CCD_L=t.RRD_S + 9)
    device = Device(ch, (line(ch, group=0), write), (line(ch, group=1), write))
    device.assert_earliest(3, command, FIRST + t.RCD + t.RRD_S + 3)


@GROUPED
def test_columns_of_two_banks_of_a_group(ch: Channel) -> None:
    """tCCD_L."""
    t = ch.timing.timing
    ch = changed(ch, CCD_S=t.RRD_L + 3, CCD_L=t.RRD_L + 9)
    device = Device(ch, (line(ch, bank=0), False), (line(ch, bank=1), False))
    device.assert_earliest(3, RD, FIRST + t.RCD + t.RRD_L + 9)


@SETS
def test_read_to_write(ch: Channel) -> None:
    """RL + tDQSCK + BL + turnaround - WL."""
    t, x = ch.timing.timing, ch.timing.extra
    device = Device(ch, (line(ch), False), (line(ch, column=1), True))
    device.assert_earliest(2, WR, FIRST + t.RCD + t.RL + t.DQSCK + t.BL + x.turnaround - t.WL)


def test_read_to_write_of_the_reference_machine() -> None:
    """32 clocks after the read at 1 + 39."""
    Device(LPDDR4, (line(LPDDR4), False), (line(LPDDR4, column=1), True)).assert_earliest(2, WR, 40 + 32)


@SETS
def test_write_to_read_of_a_bank(ch: Channel) -> None:
    """WL + tDQSS + BL + tWTR_L."""
    t, x = ch.timing.timing, ch.timing.extra
    device = Device(ch, (line(ch), True), (line(ch, column=1), False), pace=LATER)
    device.assert_earliest(2, RD, FIRST + t.RCD + t.WL + x.write + t.BL + t.WTR_L)


@GROUPED
def test_write_to_read_of_another_group(ch: Channel) -> None:
    """WL + tDQSS + BL + tWTR_S."""
    t, x = ch.timing.timing, ch.timing.extra
    device = Device(ch, (line(ch, group=0), True), (line(ch, group=1), False), pace=LATER)
    device.assert_earliest(3, RD, FIRST + t.RCD + t.WL + x.write + t.BL + t.WTR_S)


def test_write_to_read_of_the_reference_machine() -> None:
    """49 clocks after the write at 1 + 39."""
    device = Device(LPDDR4, (line(LPDDR4), True), (line(LPDDR4, column=1), False), pace=LATER)
    device.assert_earliest(2, RD, 40 + 49)


# Ranks. The second rank's activate waits for the command bus alone.


@pytest.mark.parametrize("ch", [LPDDR4X, LPDDR5], ids=lambda c: c.name)
@pytest.mark.parametrize(("write", "command"), [(False, RD), (True, WR)])
def test_columns_of_two_ranks(ch: Channel, write: bool, command: int) -> None:
    """A burst and tRTRS, here 10: no tRRD, no tCCD between ranks."""
    t = ch.timing.timing
    ch = changed(ch, RTRS=10)
    device = Device(ch, (line(ch, rank=0), write), (line(ch, rank=1), write))
    second = FIRST + ch.timing.command.activate
    device.assert_log((FIRST, ACT), (second, ACT), (FIRST + t.RCD, command), (FIRST + t.RCD + t.BL + 10, command))


def test_columns_of_two_ranks_of_the_reference_board() -> None:
    """8 + 1 clocks after the read at 1 + 29."""
    device = Device(LPDDR4X, (line(LPDDR4X, rank=0), False), (line(LPDDR4X, rank=1), False))
    device.assert_earliest(3, RD, 30 + 9)


def test_read_to_write_of_another_rank() -> None:
    """RL + tDQSCK + BL + turnaround - WL + tRTRS; the write's row is opened after the read, by a tRCD of 10."""
    ch = changed(LPDDR4X, RCD=10)
    device = Device(ch, (line(ch, rank=0), False), (line(ch, rank=1), True))
    device.assert_log((1, ACT), (11, RD), (15, ACT), (11 + 28 + 3 + 8 + 2 - 14 + 1, WR))


def test_write_to_read_of_another_rank() -> None:
    """WL + BL + tRTRS - RL, here with an RL of 4: the bus alone is shared, so there is no tWTR."""
    ch = changed(LPDDR4X, RL=4)
    device = Device(ch, (line(ch, rank=0), True), (line(ch, rank=1), False), pace=LATER)
    device.assert_log((1, ACT), (LATER + 1, ACT), (30, WR), (30 + 14 + 8 + 1 - 4, RD))


# Refresh. The second request is injected when the pace says.


def test_refresh_of_an_idle_rank_goes_when_it_is_due() -> None:
    """tREFI."""
    device = Device(LPDDR4, (line(LPDDR4), False), controller=Controller(page="closed"))
    assert device.probe(8342)[-1] == (8341, REF, 0, 0)


def test_refresh_waits_for_the_precharge_of_all_banks() -> None:
    """tRPab after PREA; the open row is closed when the refresh is due."""
    device = Device(LPDDR4, (line(LPDDR4), False), controller=Controller())
    assert device.probe(8341 + 46)[-2:] == [(8341, PREA, 0, 0), (8341 + 45, REF, 0, 0)]


@SETS
def test_all_bank_refresh_to_activate(ch: Channel) -> None:
    """tRFCab (less the activate's second half), for a bank that was not open."""
    t, half = ch.timing.timing, ch.timing.extra.half
    device = Device(ch, (line(ch), False), (line(ch, bank=3), False), controller=Controller(), pace=t.REFI + 1)
    refreshed = t.REFI + t.RPab
    again = refreshed + t.RFCab - half
    of_rank = [n[:2] for n in device.probe(again + 1) if n[2] == 0]
    assert of_rank == [
        (FIRST, ACT), (FIRST + t.RCD, RD), (t.REFI, PREA), (refreshed, REF), (again, ACT),
    ]  # fmt: skip


def test_all_bank_refresh_leaves_the_other_rank_alone() -> None:
    """A rank in refresh does not block the other: its request, at 6250, goes at once."""
    t = LPDDR4X.timing.timing
    device = Device(
        LPDDR4X, (line(LPDDR4X), False), (line(LPDDR4X, rank=1), False), controller=Controller(), pace=t.REFI + 50
    )
    assert (t.REFI + 51, ACT, 1, 0) in device.probe(t.REFI + 52)


def test_ranks_are_refreshed_in_turn() -> None:
    """The second rank half an interval after the first."""
    device = Device(LPDDR4X, (line(LPDDR4X), False), controller=Controller(page="closed"))
    refreshes = [n for n in device.probe(2 * 6246 + 3123 + 1) if n[1] == REF]
    assert [n[:3] for n in refreshes] == [
        (6246, REF, 0), (6246 + 3123, REF, 1), (2 * 6246, REF, 0), (2 * 6246 + 3123, REF, 1),
    ]  # fmt: skip


def test_per_bank_refresh_to_activate() -> None:
    """tRFCpb 300, less 2, after the bank's refresh, which is tRPpb after its precharge; due after tREFI / 8 = 1042."""
    device = Device(
        LPDDR4, (line(LPDDR4), False), (line(LPDDR4, row=1), False),
        controller=Controller(refresh="per_bank"), pace=1050,
    )  # fmt: skip
    device.assert_log((1, ACT), (40, RD), (1042, PRE), (1042 + 39, REFB), (1042 + 39 + 298, ACT))


def test_per_bank_refresh_leaves_the_other_banks_alone() -> None:
    """Bank 1 is activated while bank 0 is refreshed, until 1379."""
    device = Device(
        LPDDR4, (line(LPDDR4), False), (line(LPDDR4, bank=1), False),
        controller=Controller(refresh="per_bank"), pace=1150,
    )  # fmt: skip
    device.assert_log((1, ACT), (40, RD), (1042, PRE), (1042 + 39, REFB), (1151, ACT))


def test_banks_are_refreshed_in_turn() -> None:
    """One every 1042 clocks, and the first again after the last."""
    device = Device(LPDDR4, (line(LPDDR4), False), controller=Controller(refresh="per_bank", page="closed"))
    refreshes = [n for n in device.probe(9 * 1042 + 1) if n[1] == REFB]
    assert [(n[0], n[3]) for n in refreshes] == [(1042 * (n + 1), n % 8) for n in range(9)]


# Per-bank refresh beside activates: bank 0 is due first, after tREFI / banks, and its refresh counts as an activate.

PER_BANK = Controller(refresh="per_bank")


def due(ch: Channel) -> int:
    """When bank 0's refresh falls due."""
    return ch.timing.timing.REFI // ch.timing.device.banks


@SETS
def test_bank_refresh_to_activate_of_another_bank(ch: Channel) -> None:
    """tRRD_L (less the activate's second half), for a request that is seen a clock after the refresh."""
    t = ch.timing.timing
    ch = changed(ch, RRD_L=t.RRD_L + 5)
    device = Device(ch, (line(ch, bank=1), False), (line(ch, bank=2), False), controller=PER_BANK, pace=due(ch))
    assert device.probe(due(ch) + 1)[-1] == (due(ch), REFB, 0, 0)
    device.assert_earliest(3, ACT, due(ch) + t.RRD_L + 5 - ch.timing.extra.half)


@GROUPED
def test_bank_refresh_to_activate_of_another_group(ch: Channel) -> None:
    """tRRD_S."""
    t = ch.timing.timing
    ch = changed(ch, RRD_S=t.RRD_S + 3, RRD_L=t.RRD_L + 9)
    device = Device(ch, (line(ch, bank=1), False), (line(ch, group=1), False), controller=PER_BANK, pace=due(ch))
    device.assert_earliest(3, ACT, due(ch) + t.RRD_S + 3)


@SETS
def test_activate_to_bank_refresh_of_another_bank(ch: Channel) -> None:
    """tRRD_L (and the activate's second half), after an activate a clock before the refresh is due."""
    t = ch.timing.timing
    ch = changed(ch, RRD_L=t.RRD_L + 5)
    early = due(ch) - 1
    device = Device(ch, (line(ch, bank=1), False), (line(ch, bank=2), False), controller=PER_BANK, pace=early - 1)
    assert device.probe(early + 1)[-1] == (early, ACT, 0, 2)
    device.assert_earliest(3, REFB, early + t.RRD_L + 5 + ch.timing.extra.half)


@GROUPED
def test_activate_to_bank_refresh_of_another_group(ch: Channel) -> None:
    """tRRD_S, here longer than the activate keeps the command bus."""
    t = ch.timing.timing
    ch = changed(ch, RRD_S=t.RRD_S + 3, RRD_L=t.RRD_L + 9)
    early = due(ch) - 1
    device = Device(ch, (line(ch, bank=1), False), (line(ch, group=1), False), controller=PER_BANK, pace=early - 1)
    device.assert_earliest(3, REFB, early + t.RRD_S + 3)


def rows_and_refreshes(ch: Channel, at: int, banks: int) -> list[tuple[int, int, int]]:
    """(clock, command, bank) of activates and refreshes, for a request each of banks 1, 2, ... from clock ``at`` on."""
    run = BankRun(ch, [Master("list", count=0)], PER_BANK, PLAIN, log=64)
    run.start(0, [(line(ch, bank=n + 1), 1, False) for n in range(banks)], at)
    run.run(2000)
    return [(int(n[0]), int(n[1]), int(n[3])) for n in run.log if n[1] in (ACT, REFB)]


def test_a_bank_refresh_counts_in_the_window_of_four_activates() -> None:
    """tFAW, here 200: a refresh at 1042, three activates tRRD 22 apart, the fourth 200 after it, the next 22 later.

    An activate's last clock is its fourth, a refresh's its second: from first clock to first clock 2 less."""
    ch = changed(LPDDR4, FAW=200, RCD=400)
    expected = [(1042, REFB, 0), (1062, ACT, 1), (1084, ACT, 2), (1106, ACT, 3), (1240, ACT, 4), (1262, ACT, 5)]
    assert rows_and_refreshes(ch, 1041, 5) == expected


def test_a_bank_refresh_waits_for_the_window_of_four_activates() -> None:
    """tFAW, here 200: activates tRRD 22 apart from 970 on, then the refresh at 970 + 202, due since 1042."""
    ch = changed(LPDDR4, FAW=200, RCD=400)
    expected = [(970, ACT, 1), (992, ACT, 2), (1014, ACT, 3), (1036, ACT, 4), (1172, REFB, 0)]
    assert rows_and_refreshes(ch, 969, 4) == expected


def test_bank_refreshes_of_a_rank_keep_apart() -> None:
    """tRFCpb, here longer than the 1042 clocks after which the next bank is due: it goes 1500 after the first."""
    ch = changed(LPDDR4, RFCpb=1500)
    refreshes = Device(ch, (line(ch, bank=7), False), controller=Controller(refresh="per_bank", page="closed"))
    at = [(n[0], n[3]) for n in refreshes.probe(1042 + 2 * 1500 + 1) if n[1] == REFB]
    assert at == [(1042, 0), (1042 + 1500, 1), (1042 + 3000, 2)]
    assert [n[0] for n in refreshes.probe(1042 + 1500) if n[1] == REFB] == [1042]


def test_bank_refreshes_of_two_ranks_do_not_keep_apart() -> None:
    """The second rank is due 390 clocks after the first, when that is still at it: tRFCpb here is 600."""
    ch = changed(LPDDR4X, RFCpb=600)
    device = Device(ch, (line(ch, bank=7), False), controller=Controller(refresh="per_bank", page="closed"))
    assert [n for n in device.probe(780 + 391) if n[1] == REFB] == [(780, REFB, 0, 0), (780 + 390, REFB, 1, 0)]


def test_time_goes_before_rank_however_far_off() -> None:
    """tRAS 4000: the bank that was opened first is closed first, though the older request wants the other."""
    ch = changed(LPDDR4, RAS=4000)
    requests = [line(ch, bank=1), line(ch), line(ch, row=1), line(ch, bank=1, row=1)]
    log = Device(ch, *((at, False) for at in requests)).probe(4100)
    assert [n for n in log if n[1] == PRE] == [(1 + 4002, PRE, 0, 1), (23 + 4002, PRE, 0, 0)]


# The command bus.


@pytest.mark.parametrize(
    ("name", "after"),
    [("LPDDR4X-3200x64", 4), ("LPDDR5-6400x16", 2)],  # ACT takes two 2-clock commands, or two
)
def test_an_activate_occupies_the_command_bus(name: str, after: int) -> None:
    """The other rank's activate has nothing else to wait for."""
    ch = channel(name)
    Device(ch, (line(ch, rank=0), False), (line(ch, rank=1), False)).assert_earliest(1, ACT, FIRST + after)


def test_a_column_occupies_the_command_bus() -> None:
    """Rank 1's activate waits for rank 0's read at 1 + 29, four clocks long."""
    device = Device(LPDDR4X, (line(LPDDR4X), False), (line(LPDDR4X, rank=1), False), pace=30)
    device.assert_earliest(2, ACT, 30 + 4)


def test_a_precharge_occupies_the_command_bus() -> None:
    """Rank 1's request, in sight from clock 71 on, waits for rank 0's precharge at 1 + 70, two clocks long."""
    requests = [(line(LPDDR4X), False), (line(LPDDR4X, row=1), False), (line(LPDDR4X, rank=1), False)]
    Device(LPDDR4X, *requests, pace=35).assert_log((1, ACT), (30, RD), (71, PRE), (71 + 2, ACT))


# Pages.


def test_an_open_page_stays_open() -> None:
    """A request for the same row, long after, needs its column alone."""
    Device(LPDDR4, (line(LPDDR4), False), (line(LPDDR4, column=1), False), pace=3000).assert_earliest(2, RD, 3001)


def test_a_closed_page_is_closed_as_soon_as_it_may_be() -> None:
    """tRAS and two clocks after the activate, when nobody wants the row."""
    device = Device(LPDDR4, (line(LPDDR4), False), controller=Controller(refresh="off", page="closed"))
    device.assert_earliest(2, PRE, FIRST + 92)


def test_a_closed_page_waits_for_a_request_that_wants_it() -> None:
    """The second request of the row is in the queue, so the row is closed after it: tRTP decides."""
    ch = changed(LPDDR4, RAS=45)
    device = Device(
        ch, (line(ch), False), (line(ch, column=1), False), controller=Controller(refresh="off", page="closed")
    )
    device.assert_log((1, ACT), (40, RD), (48, RD), (48 + 19, PRE))


# The data.


@SETS
def test_read_data_comes_back(ch: Channel) -> None:
    """tRCD + RL + tDQSCK + BL from the last clock of the column command."""
    t = ch.timing.timing
    run = BankRun(ch, [Master("list", count=1, segments=((line(ch), 1, False),))], NO_REFRESH, PLAIN)
    run.run()
    assert run.result().clocks == FIRST + t.RCD + t.RL + t.DQSCK + t.BL + ch.timing.command.column - 1
