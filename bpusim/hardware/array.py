"""Cycles of a GEMM ``M x K x N`` on a systolic array of ``R x C`` MACs: closed forms.

``pipelined`` is how the modelled cores work: consecutive weight tiles overlap, so the array never drains between
them. ``systolic`` has no overlap and equals the published closed forms of a scale-out systolic simulator
(SCALE-Sim: output, weight and input stationary).
"""

from __future__ import annotations

from typing import Literal

__all__ = ["fill_drain", "gemm_tiles", "systolic_cycles", "tile_cycles"]


def gemm_tiles(k: int, n: int, rows: int, cols: int) -> int:
    """Weight tiles of a ``K x N`` operand held stationary: edges round up."""
    return -(-k // rows) * -(-n // cols)


def tile_cycles(m: int, cycles_per_row: int, rows: int, load_rows_per_cycle: int) -> int:
    """Cycles one stationary tile occupies a pipelined array: ``max(R / load rows, M x cycles per row)``."""
    return max(-(-rows // load_rows_per_cycle), m * cycles_per_row)


def fill_drain(rows: int, cols: int) -> int:
    """Cycles to fill and drain the array, paid once a GEMM: ``R`` to the last row in, ``C`` to the last column out."""
    return rows + cols


def systolic_cycles(dataflow: Literal["os", "ws", "is"], m: int, k: int, n: int, rows: int, cols: int) -> int:
    """Cycles without overlap between tiles (the last cycle index, as the reference reports it).

    OS: ``ceil(M/R) ceil(N/C) (K + R + C - 2) - 1``; WS: ``ceil(K/R) ceil(N/C) (M + 2R + C - 2) - 1``;
    IS: ``ceil(K/R) ceil(M/C) (N + 2R + C - 2) - 1``.
    """

    def ceil(a: int, b: int) -> int:
        return -(-a // b)

    if dataflow == "os":
        return ceil(m, rows) * ceil(n, cols) * (k + rows + cols - 2) - 1
    if dataflow == "ws":
        return ceil(k, rows) * ceil(n, cols) * (m + 2 * rows + cols - 2) - 1
    return ceil(k, rows) * ceil(m, cols) * (n + 2 * rows + cols - 2) - 1
