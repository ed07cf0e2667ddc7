"""An amount over time in few bins."""

from __future__ import annotations

import pytest

from bpusim.metrics import Profile

MS = 10**9


def test_a_profile_goes_on_behind_the_last_amount() -> None:
    """512 bins of 1 ms hold half a second; a run may end long after its last transfer."""
    profile = Profile()
    profile.add(0, 4 * MS, 8.0)
    edges, rates = profile.per_second(1000 * MS)
    assert edges[:3] == [0, 0.002, 0.004]
    assert edges[-1] == 1.0
    assert rates[:3] == pytest.approx([2000.0, 2000.0, 0.0])
    assert not any(rates[2:])
