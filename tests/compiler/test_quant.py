"""Quantisation plans: bytes of a weight by its role, with rows, blocks and scales rounded as stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.compiler.quant import PLANS, Plan, Role, WeightUse

WHOLE: tuple[Role, ...] = ("norm", "bias", "rope", "other")


def _use(role: Role, rows: int, k: int, stored: int = 1) -> WeightUse:
    return WeightUse("w", role, rows, k, stored)


@pytest.mark.parametrize(
    ("plan", "role", "row"),
    [
        # 256 elements: 128 B of nibbles or 256 B, and two fp16 scales
        ("int4", "linear", 128 + 4),
        ("int4", "head", 256 + 4),
        ("int4", "embedding", 256 + 4),
        ("int8", "linear", 256 + 4),
        ("int8", "head", 256 + 4),
        ("fp16", "linear", 512),
        ("fp16", "conv", 512),
        # a channel has one scale however long it is
        ("int4", "conv", 256 + 2),
        ("int8", "conv", 256 + 2),
    ],
)
def test_a_row_of_256(plan: str, role: Role, row: int) -> None:
    assert Plan(plan).row_bytes(_use(role, 10, 256)) == row  # type: ignore[arg-type]


@pytest.mark.parametrize("plan", ["int4", "int8", "fp16"])
@pytest.mark.parametrize("role", WHOLE)
def test_norms_biases_and_tables_are_fp16_under_every_plan(plan: str, role: Role) -> None:
    assert Plan(plan).row_bytes(_use(role, 1, 100)) == 200  # type: ignore[arg-type]


def test_an_odd_row_of_nibbles_rounds_up_by_itself() -> None:
    """5 nibbles are 3 B, and each row begins at a byte: 3 rows are 9 B of nibbles, not 8, and a scale each."""
    assert Plan("int4").bytes(_use("linear", 3, 5)) == 3 * (3 + 2)


def test_a_block_that_is_not_full_has_its_scale() -> None:
    """129 elements: two blocks."""
    assert Plan("int8").row_bytes(_use("linear", 1, 129)) == 129 + 4


def test_a_tensor_is_its_rows() -> None:
    """The 3B's head: 151,936 rows of 2048 B and 16 scales."""
    assert Plan("int4").bytes(_use("head", 151_936, 2048)) == 151_936 * (2048 + 32)


def test_keep_takes_what_the_file_stores() -> None:
    assert Plan("keep").bytes(_use("linear", 3, 5, stored=77)) == 77


def test_a_kept_row_is_its_share_rounded_up() -> None:
    assert Plan("keep").row_bytes(_use("embedding", 10, 8, stored=77)) == 8


def test_a_kept_tensor_without_rows_has_no_row_bytes() -> None:
    assert Plan("keep").row_bytes(_use("embedding", 0, 8, stored=0)) == 0


@given(st.integers(1, 50), st.integers(1, 3000))
def test_narrower_plans_never_take_more(rows: int, k: int) -> None:
    """But for a row of one element, where the fp16 scale outweighs what int8 saves: 1 + 2 against 2 B."""
    use = _use("linear", rows, k)
    sizes = [Plan(p).bytes(use) for p in ("int4", "int8", "fp16")]
    assert sizes[0] <= sizes[1]
    assert sizes[1] <= sizes[2] or k == 1


@pytest.mark.parametrize("plan", PLANS)
def test_the_header_names_plan_activations_and_cache(plan: str) -> None:
    said = Plan(plan).describe("int16", 32)  # type: ignore[arg-type]
    assert (said["plan"], said["activation"], said["kv"]) == (plan, "int16", "fp32" if plan == "keep" else "fp16")


def test_the_header_spells_the_int4_plan_out() -> None:
    said = Plan("int4").describe("int16", 32)
    assert (said["linear"], said["head"], said["norm"]) == ("int4/128/fp16", "int8/128/fp16", "fp16")
    assert said["conv"] == "int8/channel/fp16"
