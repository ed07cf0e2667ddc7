"""Durations in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.metrics import Samples

MS = 10**9


def samples(durations: list[int]) -> Samples:
    out = Samples()
    for duration in durations:
        out.append(duration)
    return out


@pytest.mark.parametrize(("q", "ms"), [(0, 1.0), (50, 3.0), (75, 4.5), (100, 6.0)])
def test_a_percentile_is_linear_between_samples(q: float, ms: float) -> None:
    assert samples([6 * MS, 1 * MS, 4 * MS, 2 * MS]).percentile_ms(q) == pytest.approx(ms)


def test_there_is_no_percentile_of_nothing() -> None:
    assert Samples().percentile_ms(50) is None


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50), st.floats(0, 100))
def test_few_samples_have_the_percentiles_of_numpy(durations: list[int], q: float) -> None:
    assert samples(durations).percentile_ms(q) == pytest.approx(float(np.percentile(durations, q)) / 1e9, abs=1e-9)


@pytest.mark.parametrize("q", [1, 50, 99, 99.9])
def test_many_samples_are_counted_in_bins(q: float) -> None:
    """Number and sum stay exact; a percentile is half of the last of fourteen bits off at most."""
    durations = np.random.default_rng(7).lognormal(24, 1, 40_000).astype(int).tolist()
    many = samples(durations)
    assert (len(many), many.total, many.exact) == (len(durations), sum(durations), False)
    assert many.percentile_ms(q) == pytest.approx(float(np.percentile(durations, q)) / 1e9, rel=7e-5)
    with pytest.raises(ValueError, match="kept in bins"):
        many.known()


def test_equal_ones_keep_their_value_in_bins() -> None:
    many = samples([111_011_000_123] * 20_000)
    assert [many.percentile_ms(q) for q in (0, 50, 99)] == [111.011000123] * 3


def test_memory_does_not_grow_with_their_number() -> None:
    few, many = (samples([50 * MS + n % 977 for n in range(count)]) for count in (20_000, 200_000))
    assert len(many._bins) == len(few._bins)
    assert len(many._kept) < 1 << 14
