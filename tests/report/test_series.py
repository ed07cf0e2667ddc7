"""series.json: what charts are made from adds up with the summary."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from reports import MIXED, written

from bpusim import Result
from bpusim.metrics import Profile

MS = 10**9


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Result]:
    folder, result = written(MIXED, tmp_path_factory.mktemp("series"))
    return json.loads((folder / "series.json").read_text()), result


def test_bytes_of_the_bins_are_what_the_channel_gave(run: tuple[dict[str, Any], Result]) -> None:
    data, result = run
    widths = np.diff(data["bandwidth"]["edges_s"])
    for master, rates in data["bandwidth"]["bytes_per_s"].items():
        assert np.dot(rates, widths) == pytest.approx(result.dram.channel_bytes[master], rel=1e-5)


def test_occupancy_of_the_bins_is_that_of_the_core(run: tuple[dict[str, Any], Result]) -> None:
    data, result = run
    widths = np.diff(data["occupancy"]["edges_s"])
    for core, labels in data["occupancy"]["cores"].items():
        busy = sum(np.dot(row, widths) for row in labels.values())
        assert busy / (result.elapsed / 1e12) == pytest.approx(result.cores[core].occupied_fraction, rel=1e-4)


def test_every_token_and_frame_is_in_a_distribution(run: tuple[dict[str, Any], Result]) -> None:
    """Two requests of six tokens, three frames."""
    counts = {(e["stream"], e["what"]): e["count"] for e in run[0]["latencies"]}
    assert counts == {("alice", "first token"): 2, ("alice", "token"): 10, ("camera", "frame"): 3}


def test_a_small_distribution_has_its_percentiles(run: tuple[dict[str, Any], Result]) -> None:
    data, result = run
    tokens = next(e["ms"] for e in data["latencies"] if e["what"] == "token")
    assert np.percentile(tokens, 90) == pytest.approx(result.chats["alice"].itl_p90_ms, abs=1e-5)


def test_the_close_up_has_the_calls_of_the_core(run: tuple[dict[str, Any], Result]) -> None:
    data, result = run
    calls = data["close_up"]["calls"]
    assert data["close_up"]["all"] == len(calls) == sum(c.calls for c in result.cores.values())
    assert {c[1] for c in calls} == {"alice/prefill", "alice/decode", "camera/frame"}


def test_ops_sum_to_the_time_of_all_calls(run: tuple[dict[str, Any], Result]) -> None:
    """Each call's ops sum to the call, and the core is occupied by calls alone."""
    data, result = run
    us = sum(v for row in data["ops"] for k, v in row.items() if k.endswith("_us"))
    occupied = sum(c.occupied_fraction for c in result.cores.values()) * result.elapsed / 1e6
    assert us == pytest.approx(occupied, rel=1e-9)


def test_a_profile_whose_last_amount_came_long_ago_has_bins_to_the_end() -> None:
    profile = Profile()
    profile.add(0, 2 * MS, 4.0)
    edges, rates = profile.per_second(1000 * MS)
    assert (len(edges), len(rates)) == (501, 500)  # of 2 ms, as all that go on so long have them
    assert rates[:2] == [2000.0, 0.0]
