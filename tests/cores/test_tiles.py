"""The tile recursion: hand-worked cases, and equality with a recursion item by item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpusim.cores.tiles import Alone, CallTimes, computed, run_length
from bpusim.errors import SimulationError
from bpusim.trace import CallItems, CallProgram, Header, Op, Phase, Repeat, Trace

GB = 10**9
RATE = 10**10  # B/s: 100 ps a byte
BYTE = 100  # ps
GHZ = 10**9  # a cycle is 1000 ps
PLENTY = 10**9


@dataclass(frozen=True)
class Item:
    """A tile of ``size`` bytes and ``compute`` ps; or the write of the item ``producer``."""

    size: int
    compute: int = 0
    producer: int = -1


def call_of(ops: Sequence[Op | Repeat]) -> CallProgram:
    trace = Trace(Header("m", {}), (), {"frame": Phase("frame", 0, ("1",), tuple(ops))})
    (call,) = trace.bind("frame").calls
    return call


def times_of(items: Sequence[Item], scratchpad: int = PLENTY) -> CallTimes:
    """Times of hand-made items, by way of a call's items, an op each (so cycles are 1 ps at 1 THz)."""
    n = len(items)
    call = CallItems(
        ops=tuple(Op(f"{i}", "A", "mac") for i in range(n)),
        bytes=np.array([i.size for i in items], dtype=np.int64),
        cycles=np.array([i.compute for i in items], dtype=np.int64),
        is_write=np.array([i.producer >= 0 for i in items], dtype=bool),
        op=np.arange(n),
        first=np.array([i.producer < 0 for i in items], dtype=bool),
        layer_end=np.zeros(n, dtype=bool),
        producer=np.array([i.producer for i in items], dtype=np.int64),
    )
    return CallTimes.of(call, 10**12, scratchpad, 0, 0)


def alone(items: Sequence[Item], scratchpad: int = PLENTY) -> Alone:
    return Alone(times_of(items, scratchpad), RATE)


# From a call to times


def test_cycles_become_time_at_the_clock() -> None:
    call = call_of([Op("a", "A", "mac", cycles=(3,), read={"kv": (10,)})])
    assert CallTimes.of(call.items, 2 * GHZ, PLENTY, 0, 0).compute.tolist() == [1500]


def test_op_overhead_is_paid_once_an_op() -> None:
    call = call_of([Op(n, "A", "mac", cycles=(4,), tiles=(2,), read={"kv": (10,)}) for n in "ab"])
    times = CallTimes.of(call.items, GHZ, PLENTY, 70, 0)
    assert times.compute.tolist() == [2070, 2000, 2070, 2000]
    assert times.compute.sum() - call.cycles * 1000 == len(call.ops) * 70 == 140


def test_layer_sync_is_paid_at_the_end_of_each_layer() -> None:
    layer = Repeat(2, "l", tuple(Op(n, "A", "mac", cycles=(1,)) for n in "ab"))
    call = call_of([layer, Op("c", "A", "mac", cycles=(1,))])
    times = CallTimes.of(call.items, GHZ, PLENTY, 0, 500)
    assert times.compute.tolist() == [1000, 1500, 1000, 1500, 1000]
    assert times.compute.sum() - call.cycles * 1000 == call.layout.layers * 500 == 1000


def test_a_tile_waits_for_the_tile_whose_end_makes_room_for_all_of_it() -> None:
    # 250 B of room. The third tile ends at byte 300, so byte 50, in tile 0, must be free; the fourth needs byte 150.
    assert times_of([Item(100)] * 4, scratchpad=250).depends.tolist() == [-1, -1, 0, 1]


def test_a_tile_that_just_fits_waits_for_none() -> None:
    assert times_of([Item(100)] * 3, scratchpad=200).depends.tolist() == [-1, -1, 0]


def test_writes_take_no_room() -> None:
    items = [Item(100), Item(500, producer=0), Item(100)]
    assert times_of(items, scratchpad=200).depends.tolist() == [-1, 0, -1]


def test_a_tile_of_the_whole_scratchpad_waits_for_the_one_before() -> None:
    assert times_of([Item(100), Item(200)], scratchpad=200).depends.tolist() == [-1, 0]


@pytest.mark.parametrize("at", [0, 1])
def test_a_tile_larger_than_the_scratchpad_is_an_error(at: int) -> None:
    items = [Item(100), Item(100)]
    items[at] = Item(201)
    with pytest.raises(SimulationError) as caught:
        times_of(items, scratchpad=200)
    assert str(caught.value) == (
        f"error: a tile of op '{at}', 201 B, exceeds the scratchpad of 200 B; compile the model for this scratchpad"
    )


# A call alone, worked by hand (100 ps a byte)


def test_a_bandwidth_bound_stretch_streams_and_computes_the_last_tile() -> None:
    # Tiles arrive at 10, 20, 30 ns; each is computed in 4 before the next is there.
    assert alone([Item(100, 4000)] * 3).real == 34_000


def test_a_compute_bound_stretch_is_its_first_arrival_and_its_compute() -> None:
    assert alone([Item(100, 25_000)] * 3).real == 10_000 + 3 * 25_000


def test_compute_is_throttled_by_what_the_scratchpad_holds() -> None:
    # Room for one tile: each is fetched when the one before is computed. (10 + 25) x 3 ns.
    one = alone([Item(100, 25_000)] * 3, scratchpad=100)
    assert (one.real, one.unlimited) == (105_000, 85_000)


def test_double_buffering_hides_the_fetch_of_a_compute_bound_stretch() -> None:
    # Room for two: tile 2 starts at C0 = 35, arrives at 45, before C1 = 60.
    two = alone([Item(100, 25_000)] * 3, scratchpad=200)
    assert (two.real, two.unlimited) == (85_000, 85_000)


def test_a_stalled_dma_delays_what_is_behind_it() -> None:
    # Room for two of 100 B. D0 = 10, C0 = 60; D1 = 20, C1 = 61. Tile 2 starts at C0: D2 = 70, C2 = 71. Tile 3 (200 B)
    # starts at C2: D3 = 91, C3 = 92. Unlimited: D3 = 50 and C3 = 60 + 1 + 1 + 1.
    items = [Item(100, 50_000), Item(100, 1000), Item(100, 1000), Item(200, 1000)]
    case = alone(items, scratchpad=200)
    assert (case.real, case.unlimited) == (92_000, 63_000)


def test_a_write_waits_for_its_producer_and_holds_up_the_reads_behind_it() -> None:
    # D0 = 10, C0 = 50. The write starts at 50 and is out at 60; the next tile arrives at 70.
    assert alone([Item(100, 40_000), Item(100, producer=0), Item(100, 5000)]).real == 75_000


def test_a_write_whose_producer_is_done_does_not_wait() -> None:
    # D0 = 10, C0 = 15; D1 = 20; the write follows at once, to 30, behind C1 = 25.
    assert alone([Item(100, 5000), Item(100, 5000), Item(100, producer=0)]).real == 30_000


def test_a_call_ends_when_its_last_write_is_out() -> None:
    assert alone([Item(100, 5000), Item(300, producer=0)]).real == 15_000 + 30_000


def test_a_call_without_bytes_takes_its_compute() -> None:
    assert alone([Item(0, 5000), Item(0, 7000)]).real == 12_000


def test_a_call_of_nothing_takes_no_time() -> None:
    assert alone([]).real == 0


# Runs


def length(items: Sequence[Item], first: int = 0, done: Sequence[int] = (), now: int = 0, **keys: int) -> int:
    times = times_of(items, **keys)
    known = np.zeros(len(items), dtype=np.int64)
    known[: len(done)] = done
    return run_length(times, first, known, now, RATE)


def test_a_run_goes_on_while_nothing_waits() -> None:
    assert length([Item(100, 4000)] * 100, scratchpad=200) == 100


def test_a_run_ends_before_the_first_read_that_waits_for_room() -> None:
    # Tile 2 would start at 20 ns, but its room is free at C0 = 35.
    assert length([Item(100, 25_000)] * 4, scratchpad=200) == 2


def test_a_run_ends_before_a_write_that_waits_for_its_producer() -> None:
    assert length([Item(100, 1000), Item(100, 40_000), Item(100), Item(100, producer=1)]) == 3


def test_the_first_item_of_a_run_has_already_waited() -> None:
    # Tile 2 starts at C0 = 35 and needs no more waiting; tile 3 would start at 45 and needs C1 = 60.
    assert length([Item(100, 25_000)] * 4, first=2, done=[35_000, 60_000], now=35_000, scratchpad=200) == 1


def test_a_backlog_of_compute_ends_a_run_that_would_not_wait_without_it() -> None:
    # Tile 2 arrives at 10 ns, but tile 1 is computed until 100: C2 = 101, C3 = 102. Tile 4 waits for C2.
    items = [Item(100, 1000)] * 6
    assert length(items, first=2, done=[50_000, 100_000], now=100_000, scratchpad=200) == 4
    assert length(items, first=2, done=[50_000, 100_000], now=50_000, scratchpad=200) == 1


def test_room_that_is_free_in_the_instant_of_the_start_is_no_wait() -> None:
    # C0 = 20 ns, when tile 2 starts; C1 = 30, when tile 3 does.
    assert length([Item(100, 10_000)] * 10, scratchpad=200) == 10


def test_an_item_arrives_before_a_standstill_that_begins_with_its_last_byte() -> None:
    history = [
        (0, 0.0, RATE, RATE),
        (10_000, 100.0, 0.0, RATE),
        (50_000, 100.0, RATE, RATE),
        (60_000, 200.0, 0.0, RATE),
    ]
    assert list(computed(times_of([Item(100), Item(100)]), 0, 2, history, 0)) == [10_000, 60_000]


def test_a_long_run_ends_where_a_short_one_would() -> None:
    # Waits 300 items in: beyond what is tried item by item, and beyond the first window.
    items = [Item(100, 1000)] * 300 + [Item(100, 90_000), Item(100), Item(100), Item(100)]
    # Tile 302 needs room of tile 300: its C is at 30100 + 90000 ps, far behind the start at 30200 ps.
    assert length(items, scratchpad=200) == 302


# Against a recursion item by item

Rates = Sequence[tuple[int, float]]  # (for so many ps, B/s), the last for ever


def arrival(rates: Rates, start: float, size: int) -> float:
    """When ``size`` bytes from ``start`` on have arrived at piecewise constant rates."""
    at = 0.0
    left = float(size)
    for k, (duration, rate) in enumerate(rates):
        end = at + duration if k < len(rates) - 1 else float("inf")
        if start < end:
            can = (end - start) * rate / 1e12
            if left <= can:
                return start + left * 1e12 / rate if left else start
            left -= can
            start = end
        at = end
    raise AssertionError("the last rate is for ever")


def reference(items: Sequence[Item], scratchpad: int, rates: Rates, entry: int) -> tuple[list[float], float]:
    """(C of every item, the end): each item starts when the one before has arrived and what it waits for is computed.

    For a read that is the earliest tile after whose end all of the new tile fits.
    """
    done: list[float] = []
    moved = float(entry)
    last = 0.0
    fetched: list[tuple[int, int]] = []  # (bytes fetched by then, item)
    total = 0
    for i, item in enumerate(items):
        start = moved
        if item.producer >= 0:
            start = max(start, done[item.producer])
            moved = arrival(rates, start, item.size)
        else:
            total += item.size
            if total > scratchpad:
                start = max(start, next(done[j] for by, j in fetched if by >= total - scratchpad))
            moved = arrival(rates, start, item.size)
            last = max(last, moved) + item.compute
            fetched.append((total, i))
        done.append(last)
    return done, max(last, moved)


def history_of(rates: Rates, start: int, size: int) -> list[tuple[int, float, float, float]]:
    """What a channel would report of ``size`` bytes begun at ``start``: rates change at whole picoseconds."""
    rows: list[tuple[int, float, float, float]] = []
    at, moved = 0, 0.0
    for k, (duration, rate) in enumerate(rates):
        end = at + duration if k < len(rates) - 1 else None
        if end is None or start < end:
            rows.append((start, moved, rate, RATE))
            if end is None or moved + (end - start) * rate / 1e12 >= size:
                finish = start + -(-(size - moved) * 1e12 // rate)
                return [*rows, (int(finish), float(size), 0.0, RATE)]
            moved += (end - start) * rate / 1e12
            start = end
        at = end
    raise AssertionError("the last rate is for ever")


def merged(items: Sequence[Item], scratchpad: int, rates: Rates, entry: int) -> tuple[list[int], int, int]:
    """(C of every item, the end, how many runs) by stall-free runs checked at ``RATE``, as a core does it."""
    times = times_of(items, scratchpad)
    known = np.zeros(len(items), dtype=np.int64)
    now, i, runs = entry, 0, 0
    while i < len(items):
        if times.depends[i] >= 0:
            now = max(now, int(known[times.depends[i]]))
        j = i + run_length(times, i, known, now, RATE)
        assert j > i
        size = int(times.bytes[i:j].sum())
        history = history_of(rates, now, size) if size else [(now, 0.0, 0.0, RATE)]
        known[i:j] = computed(times, i, j, history, int(known[i - 1]) if i else 0)
        now, i, runs = history[-1][0], j, runs + 1
    return known.tolist(), max(now, int(known[-1])), runs


@st.composite
def item_lists(draw: st.DrawFn, longest: int = 60) -> list[Item]:
    """Reads of up to 200 B, now and then a write of something read before."""
    out: list[Item] = []
    reads: list[int] = []
    for _ in range(draw(st.integers(1, longest))):
        if reads and draw(st.integers(0, 4)) == 0:
            out.append(Item(draw(st.integers(1, 300)), producer=draw(st.sampled_from(reads[-3:]))))
        else:
            reads.append(len(out))
            out.append(Item(draw(st.integers(0, 200)), draw(st.sampled_from([0, 1000, 9000, 15_000, 50_000]))))
    return out


# The channel's rates are at most what a run is checked with.
RATES = st.lists(st.tuples(st.integers(1, 400_000), st.sampled_from([0, 0.1, 0.5, 0.99, 1])), max_size=5).map(
    lambda rows: [*((d, f * RATE) for d, f in rows), (1, 0.3 * RATE)]
)
ROOM = st.integers(200, 1500)
ENTRY = st.integers(0, 10**6)


@settings(max_examples=120, deadline=None)
@given(items=item_lists(), scratchpad=ROOM, rates=RATES, entry=ENTRY)
def test_runs_give_the_times_of_an_item_by_item_recursion(
    items: list[Item], scratchpad: int, rates: Rates, entry: int
) -> None:
    expected, end = reference(items, scratchpad, rates, entry)
    found, at, _ = merged(items, scratchpad, rates, entry)
    assert found == pytest.approx(expected, abs=1000)
    assert at == pytest.approx(end, abs=1000)


@settings(max_examples=40, deadline=None)
@given(pattern=item_lists(longest=8), times=st.integers(40, 120), scratchpad=ROOM, rates=RATES, entry=ENTRY)
def test_long_runs_give_the_times_of_an_item_by_item_recursion(
    pattern: list[Item], times: int, scratchpad: int, rates: Rates, entry: int
) -> None:
    n = len(pattern)
    items = [
        Item(p.size, p.compute // 3, p.producer + k * n if p.producer >= 0 else -1)
        for k in range(times)
        for p in pattern
    ]
    expected, end = reference(items, scratchpad, rates, entry)
    found, at, _ = merged(items, scratchpad, rates, entry)
    assert found == pytest.approx(expected, abs=1000)
    assert at == pytest.approx(end, abs=1000)


@settings(max_examples=60, deadline=None)
@given(items=item_lists(), scratchpad=ROOM)
def test_alone_is_the_recursion_at_the_ports_own_rate(items: list[Item], scratchpad: int) -> None:
    whole: Rates = [(1, float(RATE))]
    case = alone(items, scratchpad)
    assert case.real == pytest.approx(reference(items, scratchpad, whole, 0)[1], abs=1)
    assert case.unlimited == pytest.approx(reference(items, PLENTY, whole, 0)[1], abs=1)


@settings(max_examples=60, deadline=None)
@given(items=item_lists(longest=20), times=st.integers(1, 10), scratchpad=ROOM)
def test_a_scratchpad_never_helps_by_being_small(items: list[Item], times: int, scratchpad: int) -> None:
    n = len(items)
    many = [Item(p.size, p.compute, p.producer + k * n if p.producer >= 0 else -1) for k in range(times) for p in items]
    case = alone(many, scratchpad)
    assert case.unlimited <= case.real
    assert case.real <= alone(many, 200).real
    assert case.real >= max(sum(i.compute for i in many), sum(i.size for i in many) * BYTE)


@settings(max_examples=40, deadline=None)
@given(items=item_lists(), scratchpad=ROOM, rates=RATES, entry=ENTRY)
def test_items_are_computed_in_order_and_not_before_they_arrive(
    items: list[Item], scratchpad: int, rates: Rates, entry: int
) -> None:
    found, _, _ = merged(items, scratchpad, rates, entry)
    assert found == sorted(found)
    moved = np.cumsum([i.size for i in items])
    for i, c in enumerate(found):
        if items[i].producer < 0 and moved[i]:
            assert c >= entry + moved[i] * BYTE + items[i].compute - 1


@settings(max_examples=40, deadline=None)
@given(items=item_lists(), scratchpad=ROOM, rates=RATES, entry=ENTRY)
def test_slower_rates_never_end_a_call_earlier(items: list[Item], scratchpad: int, rates: Rates, entry: int) -> None:
    full = merged(items, scratchpad, [(1, float(RATE))], entry)[0]
    slow = merged(items, scratchpad, rates, entry)[0]
    assert all(s >= f - 1000 for s, f in zip(slow, full, strict=True))


def test_a_bandwidth_bound_call_is_one_run_at_any_rate() -> None:
    items = [Item(100, 4000)] * 1000
    for rates in ([(1, float(RATE))], [(10**5, 5e9), (3 * 10**5, 1e9), (1, 9e9)]):
        assert merged(items, 400, rates, 0)[2] == 1
