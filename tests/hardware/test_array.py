"""Cycles of a GEMM: the closed forms against published simulator output, and the pipelined array."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.hardware.array import fill_drain, gemm_tiles, systolic_cycles, tile_cycles

# SCALE-Sim v3 golden COMPUTE_REPORT.csv files, 32 x 32 array, GEMM 256 x 128 x 256 (M x N x K): compute cycles are the
# report's total cycles less its stall cycles (the closed forms know no memory).
GOLDEN = [
    ("os", 52447 - 42272),
    ("ws", 52447 - 41248),
    ("is", 19984 - 5777),
]


@pytest.mark.parametrize(("dataflow", "cycles"), GOLDEN)
def test_a_systolic_gemm_takes_the_published_cycles(dataflow: str, cycles: int) -> None:
    assert systolic_cycles(dataflow, m=256, k=256, n=128, rows=32, cols=32) == cycles  # type: ignore[arg-type]


def test_a_convolution_takes_the_published_cycles() -> None:
    # SCALE-Sim v3 golden report, 32 x 32 weight stationary, AlexNet conv1, computed bandwidth: 112283 cycles, 0 stalls.
    # 227 x 227 x 3 input, 96 filters of 11 x 11 x 3, stride 4: an output of (227 - 11) / 4 + 1 = 55 a side.
    side = (227 - 11) // 4 + 1
    assert systolic_cycles("ws", m=side * side, k=11 * 11 * 3, n=96, rows=32, cols=32) == 112283 - 0


@pytest.mark.parametrize(
    ("dataflow", "cycles"),
    [
        ("os", 4 + 8 + 16 - 2 - 1),  # K + R + C - 2, one fold
        ("ws", 2 + 2 * 8 + 16 - 2 - 1),  # M + 2R + C - 2
        ("is", 3 + 2 * 8 + 16 - 2 - 1),  # N + 2R + C - 2
    ],
)
def test_a_gemm_smaller_than_the_array_takes_one_fold(dataflow: str, cycles: int) -> None:
    assert systolic_cycles(dataflow, m=2, k=4, n=3, rows=8, cols=16) == cycles  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dataflow", "growing"), [("os", "m"), ("os", "n"), ("ws", "k"), ("ws", "n"), ("is", "k"), ("is", "m")]
)
def test_one_row_over_the_edge_costs_a_whole_fold(dataflow: str, growing: str) -> None:
    size = {"m": 8, "k": 8, "n": 8}
    whole = systolic_cycles(dataflow, **size, rows=8, cols=8)  # type: ignore[arg-type]
    over = systolic_cycles(dataflow, **(size | {growing: 9}), rows=8, cols=8)  # type: ignore[arg-type]
    assert over + 1 == 2 * (whole + 1)


# The pipelined array of the modelled cores


@pytest.mark.parametrize(
    ("k", "n", "tiles"),
    [(128, 128, 1), (129, 128, 2), (128, 129, 2), (1, 1, 1), (2048, 11008, 16 * 86), (256, 300, 2 * 3)],
)
def test_weight_tiles_round_up_at_both_edges(k: int, n: int, tiles: int) -> None:
    assert gemm_tiles(k, n, rows=128, cols=128) == tiles


def test_a_tile_of_few_rows_takes_as_long_as_the_next_tile_loads() -> None:
    # 128 rows of weights at 16 a cycle: 8 cycles, whatever the 1 to 8 rows of activations.
    assert [tile_cycles(m, 1, rows=128, load_rows_per_cycle=16) for m in (1, 8, 9)] == [8, 8, 9]


def test_a_tile_of_many_rows_takes_a_cycle_a_row() -> None:
    assert tile_cycles(256, 1, rows=128, load_rows_per_cycle=16) == 256


def test_sixteen_bit_rows_take_four_cycles() -> None:
    assert tile_cycles(256, 4, rows=128, load_rows_per_cycle=16) == 1024


def test_loading_rounds_up_to_whole_cycles() -> None:
    assert tile_cycles(1, 1, rows=10, load_rows_per_cycle=4) == 3


def test_an_array_fills_and_drains_in_its_rows_and_columns() -> None:
    assert fill_drain(128, 64) == 192


@given(m=st.integers(1, 4096), k=st.integers(1, 4096), n=st.integers(1, 4096))
def test_no_gemm_beats_the_array(m: int, k: int, n: int) -> None:
    rows, cols = 128, 64
    cycles = gemm_tiles(k, n, rows, cols) * tile_cycles(m, 1, rows, 16) + fill_drain(rows, cols)
    assert cycles * rows * cols >= m * k * n


@given(m=st.integers(1, 4096), k=st.integers(1, 4096), n=st.integers(1, 4096))
def test_overlap_of_tiles_never_costs_cycles(m: int, k: int, n: int) -> None:
    rows, cols = 128, 64
    pipelined = gemm_tiles(k, n, rows, cols) * tile_cycles(m, 1, rows, 1) + fill_drain(rows, cols)
    assert pipelined <= systolic_cycles("ws", m, k, n, rows, cols) + 3  # the published form counts from cycle 0
