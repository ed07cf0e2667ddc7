"""Expressions in tokens and kv: sums, products inside the closed list, padding, blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.compiler.dims import KV, ONE, TOKENS, Expr, as_expr, product
from bpusim.trace.basis import evaluator

NUMBERS = st.integers(-50, 50)
LINEAR = st.builds(lambda a, b, c: as_expr(a) + TOKENS * b + KV * c, NUMBERS, NUMBERS, NUMBERS)
IN_TOKENS = st.builds(lambda a, b: as_expr(a) + TOKENS * b, NUMBERS, NUMBERS)


def _value(e: Expr, tokens: int, kv: int) -> int:
    """The number an expression stands for at a position."""
    return sum(c * v for c, v in zip(e.terms.values(), evaluator(list(e.terms))((kv,), tokens), strict=True))


@given(LINEAR, LINEAR, st.integers(1, 300), st.integers(0, 5000))
def test_a_sum_of_expressions_is_the_sum_of_their_values(a: Expr, b: Expr, tokens: int, kv: int) -> None:
    assert _value(a + b, tokens, kv) == _value(a, tokens, kv) + _value(b, tokens, kv)


@given(LINEAR, LINEAR, st.integers(1, 300), st.integers(0, 5000))
def test_a_difference_of_expressions_is_the_difference_of_their_values(a: Expr, b: Expr, tokens: int, kv: int) -> None:
    assert _value(a - b, tokens, kv) == _value(a, tokens, kv) - _value(b, tokens, kv)


@given(LINEAR, IN_TOKENS, st.integers(1, 300), st.integers(0, 5000))
def test_a_product_of_expressions_is_the_product_of_their_values(a: Expr, b: Expr, tokens: int, kv: int) -> None:
    assert _value(a * b, tokens, kv) == _value(a, tokens, kv) * _value(b, tokens, kv)


@given(LINEAR, st.integers(1, 300), st.integers(0, 5000))
def test_padding_puts_the_chunk_where_tokens_stood(e: Expr, chunk: int, kv: int) -> None:
    padded = e.padded(chunk)
    assert not any("tokens" in t for t in padded.terms)
    assert _value(padded, 1, kv) == _value(e, chunk, kv)


def test_padding_reaches_products_too() -> None:
    """tokens^2 + 2 tokens kv + 3 kv at a chunk of 4: 16 + 11 kv."""
    e = TOKENS * TOKENS + TOKENS * KV * 2 + KV * 3
    assert e.padded(4) == as_expr(16) + KV * 11


def test_kv_times_kv_is_outside_the_closed_list() -> None:
    with pytest.raises(ValueError, match="outside the closed list"):
        KV * KV


def test_three_factors_are_outside_the_closed_list() -> None:
    with pytest.raises(ValueError, match="outside the closed list"):
        TOKENS * TOKENS * TOKENS


def test_a_plain_number_compares_with_integers() -> None:
    assert as_expr(7) == 7
    assert as_expr(7) != 8
    assert KV != 7


def test_equal_expressions_hash_alike() -> None:
    assert hash(KV + TOKENS) == hash(TOKENS + KV)


def test_terms_that_cancel_are_gone() -> None:
    assert (KV - KV).terms == {}


def test_an_expression_with_terms_is_no_number() -> None:
    with pytest.raises(ValueError, match="is not a plain number"):
        int(KV + 1)


def test_the_product_of_nothing_is_one() -> None:
    assert product([]) == ONE == 1


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_blocks_of_a_number_round_up(n: int, block: int) -> None:
    blocks = int(as_expr(n).ceil_div(block))
    assert blocks * block >= n > (blocks - 1) * block


@given(st.integers(0, 5000), st.integers(0, 300), st.integers(2, 200))
def test_blocks_of_the_cache_cover_it_and_what_is_new(kv: int, new: int, block: int) -> None:
    """Old and new parts are blocked apart: enough for both, and at most one block more than without the seam."""
    blocks = _value((KV + new).ceil_div(block), 1, kv)
    assert -(-(kv + new) // block) <= blocks <= -(-(kv + new) // block) + 1


def test_blocks_of_one_are_the_cache_itself() -> None:
    assert (KV + 3).ceil_div(1) == KV + 3


@pytest.mark.parametrize("e", [TOKENS, KV * 2, TOKENS * KV])
def test_blocks_of_other_expressions_are_outside_the_closed_list(e: Expr) -> None:
    with pytest.raises(ValueError, match="outside the closed list"):
        e.ceil_div(64)


def test_coefficients_follow_the_basis_without_trailing_zeros() -> None:
    assert (KV * 3 + 2).coefs(("1", "tokens", "kv", "tokens*kv")) == (2, 0, 3)


def test_the_coefficients_of_nothing_are_none() -> None:
    assert as_expr(0).coefs(("1", "kv")) == ()


def test_an_unbound_size_stays_visible_in_a_product() -> None:
    """So that the error can name it."""
    assert any(t.startswith("?") for t in (Expr({"?rows": 1}) * KV * 8).terms)


# --- what is known of a size before the run


@given(LINEAR, st.integers(1, 300), st.integers(0, 5000))
def test_no_position_is_below_the_least(e: Expr, tokens: int, kv: int) -> None:
    least = e.least()
    assert least is None or _value(e, tokens, kv) >= least
    assert least is None or _value(e, 1, 0) == least


@pytest.mark.parametrize(
    ("e", "least"),
    [(TOKENS, 1), (KV, 0), (TOKENS * TOKENS + KV * 3 + 4, 5), (KV * TOKENS - 2, -2), (TOKENS - KV, None), (ONE, 1)],
)
def test_the_least_of_a_size(e: Expr, least: int | None) -> None:
    """One token or more, no entry or more: what is taken away has no limit."""
    assert e.least() == least


def test_of_an_unbound_size_no_least_is_known() -> None:
    assert Expr({"?kv_rows": 1}).least() is None


def test_over_an_empty_cache_what_grows_with_it_is_gone() -> None:
    """An unbound size stays, whatever its name."""
    size = TOKENS + KV * 3 + KV * TOKENS + Expr({"?kv_rows": 1, "ceil(kv/4)": 2, "min(kv,9)": 5})
    assert size.over_empty_cache() == TOKENS + Expr({"?kv_rows": 1})


# --- a window over the cache

WINDOW = Expr({"min(kv,63)": 1})


@given(IN_TOKENS, st.integers(1, 300), st.integers(0, 5000))
def test_a_window_multiplies_by_tokens(e: Expr, tokens: int, kv: int) -> None:
    assert _value(WINDOW * e, tokens, kv) == min(kv, 63) * _value(e, tokens, kv)
    assert _value((WINDOW * e).padded(tokens), 1, kv) == min(kv, 63) * _value(e, tokens, kv)


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 5000))
def test_a_window_is_cut_into_blocks(block: int, new: int, kv: int) -> None:
    """Old and new entries apart, as without a window."""
    assert _value((WINDOW + new).ceil_div(block), 1, kv) == -(-min(kv, 63) // block) + -(-new // block)


def test_a_window_times_kv_is_outside_the_closed_list() -> None:
    with pytest.raises(ValueError, match="outside the closed list"):
        WINDOW * KV
