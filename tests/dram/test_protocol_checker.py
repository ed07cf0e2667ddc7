"""The protocol checker itself: each of its rules finds the command that breaks it by one clock, and no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from bpusim.dram.bank.kernel import ACT, PRE, PREA, RD, REF, REFB, WR
from bpusim.dram.timing import Channel, channel

Check = Callable[[Channel, Sequence[Sequence[int]]], list[str]]
CheckRefresh = Callable[[Channel, Sequence[Sequence[int]], int], list[str]]
Line = tuple[int, int, int, int, int]

LPDDR4 = channel("LPDDR4-4266x32")
LPDDR4X = channel("LPDDR4X-3200x64")
DDR4 = channel("DDR4-3200x64")
LPDDR5 = channel("LPDDR5-6400x32")


def a(time: int, bank: int = 0, row: int = 0, rank: int = 0) -> Line:
    """An activate."""
    return time, ACT, rank, bank, row


def refresh(time: int, bank: int = 0, rank: int = 0) -> Line:
    """A refresh of one bank."""
    return time, REFB, rank, bank, -1


# (rule, channel, legal commands, the command that is legal at its clock and not one clock earlier); times by the
# timing files, of LPDDR4 two clocks more from a long command to a short one and two less from a short one to a long
# one: LPDDR4-4266 tRCD 39 tRAS 90 tRPpb 39 tRPab 45 tRC 129 tRRD 22 tFAW 86, DDR4 tRRD 4/8 tCCD 4/8, ...
RULES: list[tuple[str, Channel, list[Line], Line]] = [
    ("tRCD", LPDDR4, [a(0)], (39, RD, 0, 0, 0)),
    ("tRAS", LPDDR4, [a(0)], (90 + 2, PRE, 0, 0, 0)),
    ("tRAS", LPDDR5, [a(0)], (34, PRE, 0, 0, 0)),
    ("bank busy", LPDDR4, [a(0), (100, PRE, 0, 0, 0)], a(139 - 2)),
    ("bank busy", LPDDR4, [a(0), (100, PREA, 0, 0, 0)], a(145 - 2)),
    ("bank busy", LPDDR5, [a(0), (100, PRE, 0, 0, 0)], a(115)),
    ("bank busy", LPDDR4, [a(0), (100, PREA, 0, 0, 0)], (145, REF, 0, 0, -1)),
    ("tRRD_L", LPDDR4, [a(0)], a(22, bank=1)),
    ("tRRD_L", DDR4, [a(0)], a(8, bank=3)),
    ("tRRD_S", DDR4, [a(0)], a(4, bank=4)),
    ("tFAW", DDR4, [a(0), a(4, 4), a(8, 8), a(12, 12)], a(34, bank=1)),
    ("tCCD_L", LPDDR4, [a(0), (40, RD, 0, 0, 0)], (48, RD, 0, 0, 0)),
    ("tCCD_L", DDR4, [a(0), (40, WR, 0, 0, 0)], (48, WR, 0, 0, 0)),
    ("tCCD_S", DDR4, [a(0), a(4, 4), (40, RD, 0, 0, 0)], (44, RD, 0, 4, 0)),
    ("RD to WR", LPDDR4, [a(0), (40, RD, 0, 0, 0)], (40 + 32, WR, 0, 0, 0)),
    ("WR to RD, same group", LPDDR4, [a(0), (40, WR, 0, 0, 0)], (40 + 49, RD, 0, 0, 0)),
    ("WR to RD", DDR4, [a(0), a(4, 4), (40, WR, 0, 0, 0)], (40 + 16 + 4 + 4, RD, 0, 4, 0)),
    ("RD to PRE", LPDDR4, [a(0), (200, RD, 0, 0, 0)], (200 + 19, PRE, 0, 0, 0)),
    ("WR to PRE", LPDDR4, [a(0), (200, WR, 0, 0, 0)], (200 + 68, PRE, 0, 0, 0)),
    ("WR to PRE", LPDDR4, [a(0), (200, WR, 0, 0, 0)], (200 + 68, PREA, 0, 0, 0)),
    ("rank switch", LPDDR4X, [a(0), a(4, rank=1), (40, RD, 0, 0, 0)], (40 + 9, RD, 1, 0, 0)),
    ("rank switch", LPDDR4X, [a(0), a(4, rank=1), (40, WR, 0, 0, 0)], (40 + 9, WR, 1, 0, 0)),
    ("RD to WR, other rank", LPDDR4X, [a(0), a(4, rank=1), (40, RD, 0, 0, 0)], (40 + 27 + 1, WR, 1, 0, 0)),
    ("bank busy", LPDDR4, [(0, REF, 0, 0, -1)], a(599 - 2)),
    ("bank busy", LPDDR4, [(0, REF, 0, 0, -1)], a(599 - 2, bank=7)),
    ("bank busy", LPDDR4, [(0, REF, 0, 0, -1)], (599, REF, 0, 0, -1)),
    ("bank busy", LPDDR4, [refresh(0, 5)], a(300 - 2, bank=5)),
    ("bank busy", LPDDR4, [a(0), (100, PRE, 0, 0, 0)], refresh(139)),
    ("tRRD_L", LPDDR4, [refresh(0)], a(22 - 2, bank=1)),
    ("tRRD_L", LPDDR4, [a(0)], refresh(22 + 2, 1)),
    ("tRRD_L", DDR4, [refresh(0)], a(8, bank=3)),
    ("tRRD_L", DDR4, [a(0)], refresh(8, 3)),
    ("tRRD_S", DDR4, [refresh(0)], a(4, bank=4)),
    ("tRRD_S", DDR4, [a(0)], refresh(4, 4)),
    ("tFAW", DDR4, [refresh(0), a(4, 4), a(8, 8), a(12, 12)], a(34, bank=1)),
    ("tFAW", DDR4, [a(0), a(4, 4), refresh(8, 8), a(12, 12)], a(34, bank=1)),
    ("tFAW", DDR4, [a(0), a(4, 4), a(8, 8), a(12, 12)], refresh(34, 1)),
    ("tRFCpb", LPDDR4, [refresh(0)], refresh(300, 1)),
    ("tRFCpb", DDR4, [refresh(0), a(100, 4), a(200, 8)], refresh(576, 12)),
    ("command bus", LPDDR4X, [a(0)], a(4, rank=1)),
    ("command bus", LPDDR4X, [a(0), a(4, rank=1), (40, RD, 0, 0, 0)], a(44, bank=1)),
    ("command bus", LPDDR4X, [a(0), (100, PRE, 0, 0, 0)], a(102, rank=1)),
    ("command bus", LPDDR4X, [(0, REF, 0, 0, -1)], a(2, rank=1)),
]


@pytest.mark.parametrize(("rule", "ch", "before", "last"), RULES)
def test_a_command_at_its_clock_is_legal(check: Check, rule: str, ch: Channel, before: list[Line], last: Line) -> None:
    assert check(ch, [*before, last]) == []


@pytest.mark.parametrize(("rule", "ch", "before", "last"), RULES)
def test_a_command_a_clock_early_is_not(check: Check, rule: str, ch: Channel, before: list[Line], last: Line) -> None:
    problems = check(ch, [*before, (last[0] - 1, *last[1:])])
    assert problems
    assert any(f": {rule}: " in p for p in problems)


def test_a_row_cycle_is_tested_apart_from_its_parts(check: Check) -> None:
    # tRC 49 is tRAS 34 + tRPpb 15 here: a precharge that is early makes both late rules fire.
    problems = check(LPDDR5, [a(0), (33, PRE, 0, 0, 0), a(48)])
    assert [p.split(": ")[2] for p in problems] == ["tRAS", "tRC"]


@pytest.mark.parametrize("after", [refresh(2, 1, rank=1), a(2, bank=1, rank=1)])
def test_a_bank_under_refresh_binds_its_own_rank_alone(check: Check, after: Line) -> None:
    # The command bus is free again after two clocks; tRRD 16 and tRFCpb 224 would ask for more.
    assert check(LPDDR4X, [refresh(0), after]) == []


def test_a_refresh_of_the_same_bank_is_early_for_both_reasons(check: Check) -> None:
    problems = check(LPDDR4, [refresh(0), refresh(299)])
    assert [p.split(": ")[2] for p in problems] == ["bank busy", "tRFCpb"]


def test_a_write_of_one_rank_and_a_read_of_another_share_the_data_bus(check: Check) -> None:
    # Write data on the bus from 43 + WL 14 + tDQSS 1 for 8; tRTRS 1 later, at 67, RL 28 + tDQSCK 3 after the read.
    before = [a(0), a(4, rank=1), (67, WR, 0, 0, 0)]
    assert check(LPDDR4X, [*before, (67 + 4, RD, 1, 0, 0)]) == []


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ([(50, RD, 0, 0, 0)], "row None is open, not 0"),
        ([a(0, row=7), (50, WR, 0, 0, 8)], "row 7 is open, not 8"),
        ([a(0), (92, PRE, 0, 0, 0), (200, RD, 0, 0, 0)], "row None is open, not 0"),
        ([a(0), a(500, row=1)], "row 0 is open"),
        ([(50, PRE, 0, 0, -1)], "no row is open"),
        ([(50, PREA, 0, 0, -1)], "no row of the rank is open"),
        ([a(0), (200, REF, 0, 0, -1)], "row 0 is open"),
        ([a(0, bank=3), (200, REFB, 0, 3, -1)], "row 0 is open"),
    ],
)
def test_a_bank_in_the_wrong_state(check: Check, log: list[Line], what: str) -> None:
    assert [p.split(": ")[2] for p in check(LPDDR4, log)] == [what]


def test_refreshes_on_time(check_refresh: CheckRefresh) -> None:
    log = [(8341 * n, REF, 0, 0, -1) for n in range(1, 30)]
    assert check_refresh(LPDDR4, log, 30 * 8341) == []


def test_no_refresh_at_all(check_refresh: CheckRefresh) -> None:
    assert len(check_refresh(LPDDR4, [], 30 * 8341)) == 2  # none for too long, and none in thirty intervals


def test_a_refresh_that_is_postponed_too_long(check_refresh: CheckRefresh) -> None:
    late = [(8341 * n, REF, 0, 0, -1) for n in (1, 2, 11)]
    assert check_refresh(LPDDR4, late, 11 * 8341) == []
    assert len(check_refresh(LPDDR4, [*late[:2], (11 * 8341 + 1, REF, 0, 0, -1)], 11 * 8341 + 1)) == 1


def test_per_bank_refresh_that_forgets_a_bank(check_refresh: CheckRefresh) -> None:
    log = [(1042 * n, REFB, 0, n % 8, -1) for n in range(1, 240) if n % 8 != 5]
    problems = check_refresh(LPDDR4, log, 240 * 1042)
    assert problems
    assert all("bank 5" in p for p in problems)
