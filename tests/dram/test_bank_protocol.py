"""Whatever masters ask and however the controller is set: no command is illegal, no request is lost or served twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpusim.dram.bank.kernel import ACT, RD, REF, REFB, WR
from bpusim.dram.bank.model import BankRun, Controller, Master, RunResult
from bpusim.dram.timing import Channel, channel

Check = Callable[[Channel, Sequence[Sequence[int]]], list[str]]
CheckRefresh = Callable[[Channel, Sequence[Sequence[int]], int], list[str]]

CHANNELS = [
    channel(name) for name in ("LPDDR4-4266x32", "LPDDR4X-3200x64", "LPDDR4X-4266x64", "LPDDR5-6400x32", "DDR4-3200x64")
]
ROOM = 20_000
LIMIT = 3_000_000
"""Clocks by which every run below is over: it asks for 480 requests at most, none of which waits 5000 clocks."""
DRAIN = 100_000
"""Clocks in which the writes that are still queued when the masters are done reach the banks."""
M64 = (1 << 64) - 1


@dataclass(frozen=True)
class Case:
    channel: Channel
    masters: tuple[Master, ...]
    controller: Controller
    mapping: str | None

    def start(self) -> BankRun:
        return BankRun(self.channel, self.masters, self.controller, self.mapping, log=ROOM)


def log_of(run: BankRun) -> list[list[int]]:
    """The commands so far."""
    assert len(run.log) < ROOM
    return [[int(x) for x in line] for line in run.log]


def finish(case: Case) -> BankRun:
    """The run, with all its writes in the banks."""
    run = case.start()
    assert run.run(LIMIT) >= 0, "the masters never got all they asked for"
    run.run(run.now + DRAIN)
    return run


# What a master asks for, written anew from the reference streams (dram_streams.py), in lines.


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def asked(m: Master, size: int) -> list[tuple[int, bool]]:
    """(line, is a write) of every request of a master, for lines of ``size`` bytes."""
    if m.kind == "list":
        return [(first + n, write) for first, lines, write in m.segments for n in range(lines)]
    out = []
    region, chunk, pitch, base = m.region // size, m.chunk // size, m.pitch // size, m.base // size
    for i in range(m.count):
        write = _mix((m.seed * 1000003 + i) & M64) % 100 < m.write
        if m.kind == "seq":
            out.append((base + i % region, write))
        elif m.kind == "rand":
            out.append((base + _mix(((m.seed << 40) + i) & M64) % region, write))
        elif m.kind == "stride":
            out.append((base + (i // chunk * pitch + i % chunk) % region, False))
        else:
            block, r = divmod(i, 2 * chunk)
            out.append((base + pitch * (r >= chunk) + (block * chunk + r % chunk) % region, r >= chunk))
    return out


def placed(case: Case) -> Counter[tuple[int, int, int, int]]:
    """(command, rank, bank, row) of every column access that the masters ask for."""
    mapping = case.channel.mapping(case.mapping)
    of_group = case.channel.timing.device.banks // case.channel.timing.device.groups
    out: Counter[tuple[int, int, int, int]] = Counter()
    for m in case.masters:
        for line, write in asked(m, case.channel.line):
            at = mapping.decode(line)
            out[WR if write else RD, at["ra"], at["bg"] * of_group + at["ba"], at["ro"]] += 1
    return out


@st.composite
def masters(draw: st.DrawFn, line: int, capacity: int) -> Master:
    """Any master of up to 120 requests. Small regions make conflicts and hits likely."""
    kind = draw(st.sampled_from(["seq", "rand", "stride", "copy", "list"]))
    gap, buffer = draw(st.sampled_from([-1, -1, 0, 1, 40, 400])), draw(st.sampled_from([0, 0, 0, 1, 16]))
    on = draw(st.sampled_from([0, 500]))
    shared: dict[str, Any] = {
        "kind": kind,
        "out": 1 if gap >= 0 else draw(st.integers(1, 64)),
        "gap": gap,
        "pace": draw(st.sampled_from([1, 7.3, 60] if buffer else [0, 0, 1, 7.3, 60, 900])),
        "path": draw(st.sampled_from([0, 0, 5, 700])),
        "level": draw(st.sampled_from([0, 0, 1, 7])),
        "weight": draw(st.sampled_from([0.5, 1, 3])),
        "buffer": buffer,
        "on": on,
        "period": on * 3,
        "seed": draw(st.integers(0, 2**20)),
    }
    lines = capacity // line
    if kind == "list":
        place = st.one_of(st.integers(0, 600), st.integers(0, lines - 9))
        segments = draw(st.lists(st.tuples(place, st.integers(1, 8), st.booleans()), min_size=1, max_size=15))
        return Master(**shared, segments=tuple(segments), count=sum(n for _, n, _ in segments))
    return Master(
        **shared,
        count=draw(st.integers(1, 120)),
        base=line * draw(st.one_of(st.just(0), st.integers(0, 4096), st.integers(0, lines - 1))),
        region=line * 1 << draw(st.integers(3, 20)),
        chunk=line << draw(st.integers(0, 3)),
        pitch=line << draw(st.integers(4, 16)),
        write=draw(st.sampled_from([0, 0, 10, 50, 100])) if kind in ("seq", "rand") else 0,
    )


controllers = st.builds(
    Controller,
    reads=st.integers(1, 32),
    writes=st.integers(1, 32),
    cap=st.sampled_from([0, 0, 1, 4]),
    age=st.sampled_from([0, 0, 50, 1000]),
    fifo=st.booleans(),
    page=st.sampled_from(["open", "closed"]),
    refresh=st.sampled_from(["all_bank", "per_bank", "off"]),
    arbitration=st.sampled_from(["polled", "first_come", "fair"]),
)
refreshing = st.builds(
    Controller,
    reads=st.integers(1, 32),
    page=st.sampled_from(["open", "closed"]),
    refresh=st.sampled_from(["all_bank", "per_bank"]),
)


@st.composite
def cases(draw: st.DrawFn, controller: st.SearchStrategy[Controller] = controllers) -> Case:
    """Up to four masters on any of the five channels."""
    ch = draw(st.sampled_from(CHANNELS))
    some = draw(st.lists(masters(ch.line, ch.capacity), min_size=1, max_size=4))
    mapping = draw(st.sampled_from([None, "RoBaCo", "RoCoBa", "RoBaCoX"]))
    return Case(ch, tuple(some), draw(controller), mapping)


many = settings(deadline=None, max_examples=100)


@many
@given(case=cases())
def test_no_command_is_illegal(case: Case, check: Check) -> None:
    assert check(case.channel, log_of(finish(case))) == []


@many
@given(case=cases())
def test_every_request_is_served_exactly_once(case: Case) -> None:
    requests = [n[5] for n in log_of(finish(case)) if n[1] in (RD, WR)]
    assert sorted(requests) == list(range(sum(m.count for m in case.masters)))


@many
@given(case=cases())
def test_every_request_is_served_where_its_address_says(case: Case) -> None:
    columns = Counter((n[1], n[2], n[3], n[4]) for n in log_of(finish(case)) if n[1] in (RD, WR))
    assert columns == placed(case)


@many
@given(case=cases())
def test_results_count_what_the_log_shows(case: Case) -> None:
    run = finish(case)
    commands = Counter(n[1] for n in log_of(run))
    result = run.result()
    assert [m.served for m in result.masters] == [m.count for m in case.masters]
    assert result.served == commands[RD] + commands[WR]
    assert result.activates == commands[ACT]
    assert result.refreshes == commands[REF] + commands[REFB]


@many
@given(case=cases(refreshing))
def test_refresh_is_postponed_nine_intervals_at_most_and_kept_up_on_average(
    case: Case, check_refresh: CheckRefresh
) -> None:
    run = case.start()
    run.run(LIMIT)
    run.run(run.now + 12 * case.channel.timing.timing.REFI)
    assert check_refresh(case.channel, log_of(run), run.now) == []


def in_steps(case: Case, steps: Sequence[int]) -> tuple[list[list[int]], RunResult, int]:
    """Log, result and clock of a run that is stopped after each of the ``steps``, over and over."""
    run, until = case.start(), 0
    for _ in range(LIMIT // sum(steps)):
        for step in steps:
            until += step
            if run.run(until) >= 0:
                return log_of(run), run.result(), run.now
    raise AssertionError("the masters never got all they asked for")


def at_once(case: Case) -> tuple[list[list[int]], RunResult, int]:
    """The same of a run that is not stopped."""
    run = case.start()
    assert run.run(LIMIT) >= 0
    return log_of(run), run.result(), run.now


STEPS = st.lists(st.integers(1, 3000), min_size=1, max_size=6).filter(lambda s: sum(s) >= 20)
REFERENCE = CHANNELS[0]
MIXED = (Master(count=60, out=16), Master("rand", count=60, out=8))


@many
@given(case=cases(), steps=STEPS)
def test_a_run_that_is_stopped_goes_on_as_if_it_had_not_been(case: Case, steps: list[int]) -> None:
    assert in_steps(case, steps) == at_once(case)


@pytest.mark.parametrize("second", [1, 64, 512])
def test_a_run_may_be_stopped_when_a_refresh_is_due(second: int) -> None:
    # Bank 0's refresh is due at 1042, when the second request's column, activate or precharge is ready too.
    two = Master("list", count=2, pace=1041, segments=((0, 1, False), (second, 1, False)))
    case = Case(REFERENCE, (two,), Controller(refresh="per_bank"), "RoBaCo")
    assert in_steps(case, [1042]) == at_once(case)


@pytest.mark.parametrize("page", ["open", "closed"])
@pytest.mark.parametrize("refresh", ["all_bank", "per_bank"])
@pytest.mark.parametrize("pace", [0, 21, 52])
def test_a_run_may_be_stopped_at_every_clock(pace: int, refresh: Any, page: Any) -> None:
    # Some of these clocks are those at which a refresh falls due, and a command is ready at the same.
    busy = Master("rand", count=160 if refresh == "per_bank" else 700, pace=pace, region=1 << 30, write=20)
    case = Case(REFERENCE, (busy,), Controller(refresh=refresh, page=page), "RoBaCo")
    assert in_steps(case, [1]) == at_once(case)


TWO_RANKS = [ch for ch in CHANNELS if ch.timing.device.ranks == 2]
PLAIN = "co ba bg ra ro"


def line(ch: Channel, row: int, bank: int, rank: int) -> int:
    """The first line of a row of the first bank group, by the mapping PLAIN."""
    bits = ch.mapping(PLAIN).bits
    return (((row << bits["ra"] | rank) << bits["bg"] + bits["ba"]) | bank) << bits["co"]


@st.composite
def idle_rows(draw: st.DrawFn) -> Case:
    """Requests to rows of two ranks under closed pages, so far apart that rows go idle between them."""
    ch = draw(st.sampled_from(TWO_RANKS))
    apart = st.builds(
        Master,
        kind=st.just("rand"),
        count=st.integers(30, 120),
        pace=st.floats(20, 60),
        write=st.sampled_from([0, 0, 20]),
        region=st.sampled_from([ch.line << 14, ch.line << 22]),
        seed=st.integers(0, 2**20),
    )
    controller = st.builds(
        Controller,
        page=st.just("closed"),
        refresh=st.sampled_from(["all_bank", "per_bank", "off"]),
        arbitration=st.sampled_from(["polled", "first_come", "fair"]),
    )
    some = draw(st.lists(apart, min_size=2, max_size=4))
    return Case(ch, tuple(some), draw(controller), draw(st.sampled_from(["RoBaCo", "RoCoBa"])))


@given(case=idle_rows(), steps=st.lists(st.integers(1, 30), min_size=1, max_size=6).filter(lambda s: sum(s) >= 5))
@settings(deadline=None, max_examples=100, derandomize=True)
def test_a_run_may_be_stopped_when_a_row_is_idle(case: Case, steps: list[int]) -> None:
    assert in_steps(case, steps) == at_once(case)


@pytest.mark.parametrize("ch", TWO_RANKS, ids=lambda ch: ch.name)
def test_an_idle_row_does_not_give_way_to_a_later_request_than_the_next(ch: Channel) -> None:
    # A row of rank 0 goes idle when one of rank 1 is open for its request, and may be closed before that goes. A third
    # bank's activate would be ready in between, but ranks behind.
    s, rcd = ch.timing, ch.timing.timing.RCD
    idle, switch = 1 + s.activate_to_precharge, s.rank_switch - s.timing.BL
    row, other, third = ((line(ch, 0, bank, rank), 1, False) for bank, rank in ((0, 0), (1, 1), (2, 0)))
    for after in range(switch):
        for before in range(switch + 1):
            two = (
                Master("list", count=2, segments=(row, other), pace=idle - rcd + after),
                Master("list", count=2, segments=(row, third), pace=idle - before),
            )
            case = Case(ch, two, Controller(page="closed", refresh="off"), PLAIN)
            assert in_steps(case, [1]) == at_once(case)


@pytest.mark.parametrize("age", [40, 60, 100])
def test_a_run_may_be_stopped_when_a_request_grows_too_old(age: int) -> None:
    # A request is too old from a clock on, whether or not anything else happens at it.
    case = Case(REFERENCE, MIXED, Controller(age=age, refresh="off"), "RoBaCo")
    assert in_steps(case, [1]) == at_once(case)


@given(case=cases())
@settings(deadline=None, max_examples=30)
def test_the_same_masters_give_the_same_run(case: Case) -> None:
    assert at_once(case) == at_once(case)
