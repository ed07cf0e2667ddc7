"""Weights that stay on chip: what is left to read, to the byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bpusim.trace import Header, Op, Phase, Repeat, Tensor, Trace, with_resident

BASIS = ("1", "tokens")
WEIGHTS = ("weights", False)


def op(name: str, **read: tuple[int, ...]) -> Op:
    return Op(name, "A", "mac", cycles=(100,), read={f"w:{k}": v for k, v in read.items()} | {"io:x": (50,)})


def trace(*items: Op | Repeat, tensors: tuple[Tensor, ...]) -> Trace:
    return Trace(Header("m", {}), tensors, {"frame": Phase("frame", 0, BASIS, items)})


def layered() -> Trace:
    """A table of 1000 of which 10 are read a token, four layers of 100 + 20, and the table whole as the head."""
    tensors = (Tensor("table", 1000), Tensor("a", 100, 4), Tensor("b", 20, 4))
    layer = Repeat(4, "l", (op("x", a=(100,)), op("y", b=(20,))))
    return trace(op("embed", table=(0, 10)), layer, op("head", table=(1000,)), tensors=tensors)


def weights(t: Trace) -> list[int]:
    """Bytes of weights that each op reads, repeats unrolled."""
    (call,) = t.bind("frame", tokens=3).calls
    return [int(n) for n in call.reads[0]]


def test_room_goes_to_tensors_in_the_order_of_the_program_and_in_part_to_the_last() -> None:
    view, kept = with_resident(layered(), 275)
    assert kept == 275
    # Layers 0 and 1 take 240; of layer 2, a keeps 35; rows of the table are read from memory as before.
    assert weights(layered()) == [30, 100, 20, 100, 20, 100, 20, 100, 20, 1000]
    assert weights(view) == [30, 0, 0, 0, 0, 65, 20, 100, 20, 1000]


def test_rows_of_a_table_that_is_also_read_whole_come_from_the_chip_in_proportion() -> None:
    view, kept = with_resident(layered(), 480 + 400)
    assert kept == 880
    assert weights(view) == [18, 0, 0, 0, 0, 0, 0, 0, 0, 600]


def test_a_table_of_which_only_rows_are_read_gets_no_room() -> None:
    t = trace(op("embed", table=(0, 10)), op("x", a=(100,)), tensors=(Tensor("table", 1000), Tensor("a", 100)))
    view, kept = with_resident(t, 10**6)
    assert kept == 100
    assert weights(view) == [30, 0]


def test_a_cpu_op_reads_from_memory() -> None:
    cpu = Op("c", "C", "cpu", read={"w:a": (100,)})
    t = trace(cpu, op("x", b=(7,)), tensors=(Tensor("a", 100), Tensor("b", 7)))
    view, kept = with_resident(t, 10**6)
    assert kept == 7
    assert view.phase("frame").items[0] == cpu


def test_a_tensor_that_is_read_twice_is_kept_once() -> None:
    t = trace(op("x", a=(100,)), op("y", a=(200,)), tensors=(Tensor("a", 100),))
    view, kept = with_resident(t, 25)
    assert kept == 25
    assert weights(view) == [75, 150]


def test_nothing_else_changes() -> None:
    view, _ = with_resident(layered(), 275)
    before, after = (t.bind("frame", tokens=3).calls[0] for t in (layered(), view))
    assert after.cycles == before.cycles
    assert after.overheads == before.overheads
    assert after.moved()["io", False] == before.moved()["io", False]
    assert list(after.lasts) == list(before.lasts)


@given(st.integers(0, 2000))
def test_what_is_kept_and_what_is_still_read_make_the_whole(room: int) -> None:
    view, kept = with_resident(layered(), room)
    assert kept == min(room, 1480)
    full, left = (t.bind("frame", tokens=3).traffic().get(WEIGHTS, 0) for t in (layered(), view))
    rows = 30 - weights(view)[0]  # those of the table's part on chip
    assert full - left == kept + rows
    assert 0 <= rows <= 30
