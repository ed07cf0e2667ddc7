"""The memory map: what a model needs, where it lies, and whether all fit."""

from __future__ import annotations

import pytest

from bpusim.errors import Place, ScenarioError
from bpusim.runtime import Need, lay_out
from bpusim.runtime.memory import Region
from bpusim.trace import Header, Tensor, Trace

GB = 10**9


def trace() -> Trace:
    return Trace(Header("m", {}, kv_bytes_per_token=10, workspace=7), (Tensor("a", 100), Tensor("b.{i}", 30, 4)), {})


@pytest.mark.parametrize(("users", "kv", "workspace"), [(1, 500, 7), (3, 1500, 21), (0, 500, 7)])
def test_weights_are_there_once_and_cache_and_workspace_per_user(users: int, kv: int, workspace: int) -> None:
    need = Need.of("m", trace(), context=50, sequences=users)
    assert (need.weights, need.kv, need.workspace) == (220, kv, workspace)
    assert need.total == 220 + kv + workspace


def test_regions_begin_at_page_boundaries_one_after_another() -> None:
    needs = [Need("a", 100, 5000, 0), Need("b", 4096, 0, 1)]
    memory = lay_out(needs, 10**6, None)
    assert memory.regions == (
        Region("a.weights", 0, 100),
        Region("a.kv", 4096, 5000),
        Region("b.weights", 4096 + 8192, 4096),
        Region("b.workspace", 4096 + 8192 + 4096, 1),
    )


def test_the_map_says_what_is_resident_and_what_is_usable() -> None:
    memory = lay_out([Need("a", 100, 50, 5)], 1000, None)
    assert (memory.resident, memory.usable) == (155, 1000)


def test_models_that_just_fit_fit() -> None:
    assert lay_out([Need("a", 600, 0, 0), Need("b", 300, 100, 0)], 1000, None).resident == 1000


def test_models_that_do_not_fit_are_an_error_with_the_whole_table() -> None:
    needs = [Need("chat", 4 * GB, GB, 0), Need("cam", GB, 0, 500_000)]
    with pytest.raises(ScenarioError) as caught:
        lay_out(needs, 5 * GB, Place("s.yaml", 3, 1))
    assert str(caught.value).splitlines() == [
        "s.yaml:3:1: error: the models need 6 GB and 5 GB are usable; "
        "take a smaller model or quantisation, lower 'context', or run fewer streams",
        "  model                   weights         KV  workspace      total",
        "  chat                       4 GB       1 GB        0 B       5 GB",
        "  cam                        1 GB        0 B     500 kB       1 GB",
    ]
