"""The systolic closed forms against a small simulation of the array, cycle by cycle.

The simulation knows nothing of the forms. It moves tokens: operands enter the edges one cycle apart (skewed), hop from
processing element to processing element, and a result leaves where the dataflow says. A fold ends when its last result
has left; the next starts then. What it counts is compared on a thousand shapes.
"""

from __future__ import annotations

import random
from typing import Literal

import pytest

from bpusim.hardware.array import systolic_cycles

Dataflow = Literal["os", "ws", "is"]


def _stream(rows: int, cols: int, length: int) -> int:
    """Cycles until the last of ``length`` operands, that enter each row one cycle after the row above, has passed the
    last column. Tokens sit in registers that shift right once a cycle."""
    lanes: list[list[int | None]] = [[None] * cols for _ in range(rows)]
    sent, passed, cycles = [0] * rows, 0, 0
    while passed < rows * length:
        for r in range(rows):
            passed += lanes[r][-1] is not None
            entering = sent[r] if cycles >= r and sent[r] < length else None
            sent[r] += entering is not None
            lanes[r] = [entering, *lanes[r][:-1]]
        cycles += 1
    return cycles - 1  # the last token is counted a cycle after it was used in the last column


def _drain(rows: int) -> int:
    """Cycles that results, one in each row of a column, take to leave at the bottom."""
    column, left, cycles = [True] * rows, 0, 0
    while left < rows:
        left += column[-1]
        column = [False, *column[:-1]]
        cycles += 1
    return cycles


def _fold(dataflow: Dataflow, length: int, rows: int, cols: int) -> int:
    """Cycles of one fold.

    Output stationary: both operands stream in; a result leaves each row of PEs when its last product is made, a row at
    a time, along with the next. Weight or input stationary: the stationary operand is shifted in, row by row, and then
    the other streams; partial sums leave the last column with the last operand.
    """
    if dataflow == "os":
        return _stream(rows, cols, length)
    return _drain(rows) + _stream(rows, cols, length)


def simulated(dataflow: Dataflow, m: int, k: int, n: int, rows: int, cols: int) -> int:
    """Index of the last cycle of a GEMM: folds one after another."""
    over, across, length = {"os": (m, n, k), "ws": (k, n, m), "is": (k, m, n)}[dataflow]
    cycles = 0
    at = 0
    while at < over:  # fold by fold, as a sequencer would
        beside = 0
        while beside < across:
            cycles += _fold(dataflow, length, rows, cols)
            beside += cols
        at += rows
    return cycles - 1


def _shapes() -> list[tuple[int, int, int, int, int]]:
    draw = random.Random(20)
    edges = [(m, k, n, r, c) for m in (1, 4, 5) for k in (1, 4, 9) for n in (1, 8, 9) for r in (1, 4) for c in (1, 8)]
    sizes = ((1, 40), (1, 40), (1, 40), (1, 12), (1, 12))
    return edges + [tuple(draw.randint(*s) for s in sizes) for _ in range(1000 - len(edges))]  # type: ignore[misc]


@pytest.mark.parametrize("dataflow", ["os", "ws", "is"])
def test_the_closed_form_is_what_a_simulation_counts(dataflow: Dataflow) -> None:
    shapes = _shapes()
    assert len(shapes) == 1000
    for shape in shapes:
        assert systolic_cycles(dataflow, *shape) == simulated(dataflow, *shape), shape


def test_the_simulation_by_hand() -> None:
    """2 x 2 PEs, 3 products each, output stationary: the last PE is 2 hops away, so that its third product is made in
    cycle 5 and cycle index 4; one fold. K + R + C - 2 = 3 + 2 + 2 - 2 = 5 cycles."""
    assert simulated("os", 2, 3, 2, 2, 2) == 4


def test_a_stationary_operand_is_loaded_first() -> None:
    """The same array, weights of 2 x 2, 3 rows of inputs: 2 cycles to load, then as above."""
    assert simulated("ws", 3, 2, 2, 2, 2) == 6
