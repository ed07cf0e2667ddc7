"""Closed forms that the reference simulators' runs obey; each test measures one, its formula in the docstring."""

from __future__ import annotations

import pytest

from bpusim.dram.bank.model import BankRun, Controller, Master, RunResult
from bpusim.dram.timing import Channel, channel

LPDDR4 = channel("LPDDR4-4266x32")
BOARD = channel("LPDDR4X-3200x64")
GIB = 1 << 30
NO_REFRESH = Controller(refresh="off")
CLOCK_NS = 0.469
REFRESH = 1 - (599 + 45 + 39 + 13) / 8341
"""What all-bank refresh leaves: 0.916."""


def run(
    *masters: Master, controller: Controller | None = None, mapping: str = "RoBaCo", ch: Channel = LPDDR4
) -> RunResult:
    bank_run = BankRun(ch, masters, controller or Controller(), mapping)
    bank_run.run()
    return bank_run.result()


def near(measured: float, expected: float, percent: float) -> None:
    """Tells expected, measured and deviation when they differ by more than so many percent."""
    deviation = 100 * (measured / expected - 1)
    assert abs(deviation) <= percent, f"expected {expected:.4g}, measured {measured:.4g}, deviation {deviation:+.2f} %"


# Sequential.


@pytest.mark.parametrize("mapping", ["RoBaCo", "RoCoBa", "RoCoBaCo2X"])
def test_sequential_ceiling(mapping: str) -> None:
    """peak x (1 - (tRFCab + tRPab + tRCD + 13) / tREFI) = 17.058 x (1 - 696 / 8341) = 15.63 GB/s."""
    got = run(Master(count=100_000), mapping=mapping)
    near(got.bytes_per_s / 1e9, 17.058 * (1 - (599 + 45 + 39 + 13) / 8341), 1)


def test_sequential_without_refresh_is_the_peak() -> None:
    """A burst every 8 clocks: all pins busy but for the first row."""
    near(run(Master(count=100_000), controller=NO_REFRESH).bytes_per_s / 1e9, 64 / (8 * CLOCK_NS), 0.1)


@pytest.mark.parametrize("mapping", ["RoCoBa", "RoCoBaCo2X"])
def test_sequential_with_per_bank_refresh(mapping: str) -> None:
    """95.7 to 97.8 % of peak (facts/dram.md), within the 1 % of a saturating stream: seven banks work on meanwhile.

    1 - (2 + tRPpb + 2) / (tREFI / 8) = 1 - 43 / 1042 = 95.9 %: the bank is closed, and nothing else begins until it is.
    Where in a burst the row turns then fall moves it by 0.3 %. A stream over all banks, that is; under RoBaCo it is in
    one bank at a time and meets that bank's refresh.
    """
    got = run(Master(count=200_000), controller=Controller(refresh="per_bank"), mapping=mapping).peak_fraction
    assert 0.99 * 0.957 <= got <= 1.01 * 0.978, f"expected 95.7 to 97.8 % of peak, measured {100 * got:.1f} %"
    near(100 * got, 100 * (1 - 43 / 1042), 1)


def test_two_sequential_cores_of_the_reference_board() -> None:
    """22 to 23.5 GB/s of 25.6 (facts/dram.md); 25.6 x (1 - (448 + 34 + 29 + 13) / 6246) = 23.45 at most."""
    got = run(*(Master(count=100_000, base=n * GIB) for n in range(2)), mapping=BOARD.timing.mapping, ch=BOARD)
    assert 22 <= got.bytes_per_s / 1e9 <= 23.5


# Random.


def test_random_without_refresh() -> None:
    """64 B / max(tRRD, tFAW / 4) = 64 / (22 x 0.469 ns) = 6.203 GB/s: every request activates a row."""
    got = run(Master("rand", count=100_000, region=GIB), controller=NO_REFRESH)
    near(got.bytes_per_s / 1e9, 64 / (max(22, 86 / 4) * CLOCK_NS), 1)


def test_random_with_refresh() -> None:
    """The same x 0.916 = 5.68 GB/s."""
    got = run(Master("rand", count=100_000, region=GIB))
    near(got.bytes_per_s / 1e9, 6.203 * REFRESH, 1)


def test_random_requests_all_activate_a_row() -> None:
    """Of 2^24 lines no two in flight share a row but by chance: 64 in flight of 2^18 rows."""
    got = run(Master("rand", count=100_000, region=GIB))
    assert got.activates >= 0.99 * got.served


# Writes among reads.


@pytest.mark.parametrize(("high", "low", "batch"), [(0.8, 0.2, 20), (0.5, 0.2, 11), (0.9, 0.1, 26)])
@pytest.mark.parametrize("refresh", ["all_bank", "off"])
def test_write_batches(high: float, low: float, batch: int, refresh: str) -> None:
    """16 B / (16 B + (32 - 8) + (49 - 8)) x refresh factor, for as many reads as writes.

    A batch of B writes begins with one write more than the high watermark of the 32 places and ends with less than the
    low one: B = floor(32 high) + 1 - (ceil(32 low) - 1); 26 - 6 = 20 by the defaults.
    """
    assert batch == int(32 * high) + 1 + int(-32 * low // 1) + 1
    master = Master(count=100_000, write=50, seed=7)
    got = run(master, controller=Controller(high=high, low=low, refresh=refresh))  # type: ignore[arg-type]
    expected = 16 * batch / (16 * batch + (32 - 8) + (49 - 8)) * (1 if refresh == "off" else REFRESH)
    near(got.peak_fraction, expected, 3)


# Windows.


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 6])
def test_a_window_limits_the_rate(window: int) -> None:
    """W / L0: hits of one row take a clock to be seen and 51 to have their data, with W of 64 B in flight."""
    row_of_hits = Master(count=20_000, region=4096, out=window)
    got = run(row_of_hits, controller=NO_REFRESH)
    near(got.bytes_per_s / 1e9, window * 64 / (52 * CLOCK_NS), 0.5)


def test_the_latency_of_a_hit() -> None:
    """1 + 51 clocks."""
    assert run(Master(count=20_000, region=4096, out=1), controller=NO_REFRESH).masters[0].latency_p50 == 52


def test_the_latency_of_a_miss() -> None:
    """1 + (tRPpb - 2) + tRCD + 51 clocks: a lone master's bank is open with another row, and may be closed at once."""
    conflict = Master("stride", count=1000, out=1, gap=400, chunk=64, pitch=8 * 4096, region=GIB)
    assert run(conflict, controller=NO_REFRESH).masters[0].latency_p50 == 1 + 37 + 39 + 51


@pytest.mark.parametrize("kind", ["seq", "rand"])
@pytest.mark.parametrize("window", [16, 32])
def test_littles_law_at_saturation(kind: str, window: int) -> None:
    """Mean latency x rate = outstanding, for a master whose window is always full."""
    got = run(Master(kind, count=100_000, region=GIB, out=window))  # type: ignore[arg-type]
    near(got.masters[0].latency_mean * got.masters[0].served / got.clocks, window, 0.5)


@pytest.mark.parametrize(("mine", "other", "expected"), [(16, 4, 0.85), (32, 8, 0.82)])
def test_two_streams_share_by_their_windows(mine: int, other: int, expected: float) -> None:
    """Shares go by the lines outstanding: 16 : 4 to 85 : 15, 32 : 8 to 82 : 18 (facts/dram.md), within 3 points."""
    second = Master(count=1 << 40, out=other, base=(256 << 20) + 20480, background=True)
    got = run(Master(count=100_000, out=mine), second, mapping="RoCoBaCo2X")
    share = got.masters[0].served / sum(m.served for m in got.masters)
    assert abs(share - expected) <= 0.03, f"expected {expected:.0%}, measured {share:.1%}"


# Refresh.

SECOND = 10**12 // 469
"""In clocks."""


@pytest.mark.parametrize("busy", [False, True])
def test_refreshes_of_a_second(busy: bool) -> None:
    """time / tREFI = 255628, idle or with a light master that keeps rows open."""
    count = 1 << 40 if busy else 1
    bank_run = BankRun(LPDDR4, [Master("rand", count=count, out=1, gap=4000, background=True, region=GIB)])
    bank_run.run(SECOND)
    assert abs(bank_run.result().refreshes - SECOND / 8341) <= 1


def test_refreshes_of_two_ranks_in_a_second() -> None:
    """Each rank once every tREFI: 2 x 1 s / (6246 x 625 ps)."""
    bank_run = BankRun(BOARD, [Master(count=1, background=True)])
    bank_run.run(10**12 // 625)
    assert abs(bank_run.result().refreshes - 2 * (10**12 // 625) / 6246) <= 2


def test_per_bank_refreshes_of_a_second() -> None:
    """time / tREFIpb, which DRAMSys gives as 1042 clocks (lpddr_timings.csv): a bank each."""
    bank_run = BankRun(LPDDR4, [Master(count=1, background=True)], Controller(refresh="per_bank"))
    bank_run.run(SECOND)
    assert abs(bank_run.result().refreshes - SECOND / 1042) <= 1


def test_no_refresh_when_it_is_off() -> None:
    """None in a second."""
    bank_run = BankRun(LPDDR4, [Master(count=1, background=True)], NO_REFRESH)
    bank_run.run(SECOND)
    assert bank_run.result().refreshes == 0
