"""The closed list of basis terms, and their values at a position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.trace.basis import at_least, at_most, by_sequence, evaluator, is_term


@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("1", 1),
        ("tokens", 7),
        ("kv", 100),
        ("tokens*kv", 700),
        ("tokens^2", 49),
        ("ceil(kv/64)", 2),  # 100 = 64 + 36
        ("ceil(kv/100)", 1),
        ("ceil(kv/1)", 100),
        ("min(kv,64)", 64),
        ("min(kv,128)", 100),
        ("tokens*min(kv,64)", 7 * 64),
        ("ceil(min(kv,64)/48)", 2),
        ("ceil(min(kv,128)/64)", 2),
        ("batch", 1),
        ("batch*kv", 100),
        ("max(batch,2)", 2),
        ("max(3*batch,8)", 8),
        ("max(9*batch,8)", 9),
    ],
)
def test_a_term_has_its_value_at_a_position(term: str, value: int) -> None:
    assert is_term(term)
    assert evaluator([term])((100,), 7) == (value,)


@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("batch", 3),
        ("batch*tokens", 21),
        ("batch*kv", 100 + 64 + 1),
        ("batch*tokens*kv", 7 * 165),
        ("batch*tokens^2", 147),
        ("batch*ceil(kv/64)", 2 + 1 + 1),
        ("batch*min(kv,64)", 64 + 64 + 1),
        ("max(batch,2)", 3),
        ("max(3*batch,8)", 9),
        ("max(2*batch,9)", 9),
        ("min(batch,2)", 2),
        ("min(2*batch,9)", 6),
    ],
)
def test_with_several_sequences_a_product_with_batch_is_a_sum_over_them(term: str, value: int) -> None:
    assert is_term(term)
    assert evaluator(["1", term])((100, 64, 1), 7) == (1, value)


@pytest.mark.parametrize("basis", [("1",), ("1", "kv"), ("1", "batch", "kv"), ("batch*kv", "tokens")])
def test_costs_of_one_sequence_say_nothing_of_several(basis: tuple[str, ...]) -> None:
    assert len(evaluator(basis)((5,), 2)) == len(basis)
    with pytest.raises(ValueError, match=r"^the costs are of one sequence: term '[a-z1]+' does not say"):
        evaluator(basis)((5, 6), 2)


@given(each=st.integers(1, 10**4), floor=st.integers(1, 10**4), batch=st.integers(1, 100))
def test_a_tile_stays_for_its_rows_or_while_the_next_is_loaded(each: int, floor: int, batch: int) -> None:
    factor, term = at_least(each, floor)
    assert is_term(term)
    assert factor * evaluator(["batch", term])((0,) * batch, 1)[1] == max(each * batch, floor)
    factor, term = at_most(each, floor)
    assert factor * evaluator(["batch", term])((0,) * batch, 1)[1] == min(each * batch, floor)


@given(kvs=st.lists(st.integers(0, 5000), min_size=1, max_size=6), tokens=st.integers(1, 64))
def test_a_batch_costs_what_its_sequences_cost_one_by_one(kvs: list[int], tokens: int) -> None:
    plain = ["1", "tokens", "kv", "tokens*kv", "tokens^2", "ceil(kv/64)", "min(kv,512)"]
    alone = evaluator(plain)
    one_by_one = [alone((kv,), tokens) for kv in kvs]
    together = evaluator([by_sequence(t) for t in plain])(tuple(kvs), tokens)
    assert together == tuple(map(sum, zip(*one_by_one, strict=True)))


@pytest.mark.parametrize(
    "term",
    [
        "",
        "2",
        "kv^2",
        "kv*tokens",
        "ceil(kv/0)",
        "ceil(kv/064)",
        "ceil(tokens/64)",
        "min(kv,0)",
        "min(kv, 64)",
        "batch*1",
        "batch*batch",
        "max(kv,2)",
        "max(batch,0)",
        "max(0*batch,2)",
        "batch*max(batch,2)",
        "batch*batch*kv",
        "kv*batch",
        " kv",
        "kv\n",
    ],
)
def test_what_is_not_in_the_list_is_no_term(term: str) -> None:
    assert not is_term(term)


def test_the_value_of_an_unknown_term_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^'kv\^2' is not in the closed list of basis terms$"):
        evaluator(["kv^2"])


def test_an_empty_cache_has_no_blocks() -> None:
    assert evaluator(["ceil(kv/64)", "min(kv,64)"])((0,), 1) == (0, 0)


def test_a_basis_has_its_values_in_order() -> None:
    assert evaluator(["kv", "1", "tokens"])((5,), 2) == (5, 1, 2)


@given(kv=st.integers(0, 10**6), n=st.integers(1, 10**4))
def test_ceil_covers_the_cache_with_no_block_to_spare(kv: int, n: int) -> None:
    (blocks,) = evaluator([f"ceil(kv/{n})"])((kv,), 1)
    assert (blocks - 1) * n < kv <= blocks * n or (kv == blocks == 0)
