"""The closed list of basis terms, and their values at a position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.trace.basis import evaluator, is_term, term_value


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
        ("batch", 3),
        ("batch*tokens", 21),
        ("batch*kv", 300),
        ("batch*tokens*kv", 2100),
        ("batch*tokens^2", 147),
        ("batch*ceil(kv/64)", 6),
        ("batch*min(kv,64)", 192),
    ],
)
def test_a_term_has_its_value_at_a_position(term: str, value: int) -> None:
    assert is_term(term)
    assert term_value(term, kv=100, tokens=7, batch=3) == value


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
        term_value("kv^2", kv=1, tokens=1)


def test_an_empty_cache_has_no_blocks() -> None:
    assert evaluator(["ceil(kv/64)", "min(kv,64)"])(0, 1, 1) == (0, 0)


def test_a_basis_has_its_values_in_order() -> None:
    assert evaluator(["kv", "1", "tokens"])(5, 2, 1) == (5, 1, 2)


@given(kv=st.integers(0, 10**6), n=st.integers(1, 10**4))
def test_ceil_covers_the_cache_with_no_block_to_spare(kv: int, n: int) -> None:
    blocks = term_value(f"ceil(kv/{n})", kv=kv, tokens=1)
    assert (blocks - 1) * n < kv <= blocks * n or (kv == blocks == 0)
