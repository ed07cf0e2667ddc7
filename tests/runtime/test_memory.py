"""The memory map: what a model needs, where it lies, and whether all fit."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


HEAPS = {"npu0": 10**9, "npu1": 7 * 10**8}


def test_a_block_goes_whole_into_the_first_heap_with_room() -> None:
    needs = [Need("a", 800_000_000, 300_000_000, 0), Need("b", 100_000_000, 100_000_000, 10)]
    memory = lay_out(needs, 2 * GB, None, HEAPS)
    second = -(-(10**9) // 4096) * 4096  # heaps begin at pages too
    # a.kv does not fit behind a.weights; b.weights does, b.kv would end behind the heap by less than a page.
    after = -(-800_000_000 // 4096) * 4096
    assert memory.regions == (
        Region("a.weights", 0, 800_000_000),
        Region("a.kv", second, 300_000_000),
        Region("b.weights", after, 100_000_000),
        Region("b.kv", second + -(-300_000_000 // 4096) * 4096, 100_000_000),
        Region("b.workspace", after + -(-100_000_000 // 4096) * 4096, 10),
    )
    assert [(h.name, h.used, [b.name for b in h.blocks]) for h in memory.heaps] == [
        ("npu0", 900_000_010, ["a.weights", "b.weights", "b.workspace"]),
        ("npu1", 400_000_000, ["a.kv", "b.kv"]),
    ]
    assert memory.resident == 1_300_000_010


def test_a_model_may_be_pinned_to_a_heap() -> None:
    memory = lay_out([Need("a", 100, 50, 5)], GB, None, {"x": 8192, "y": 20000}, {"a": "y"})
    assert [r.base for r in memory.regions] == [8192, 8192 + 4096, 8192 + 8192]
    assert [h.free for h in memory.heaps] == [8192, 20000 - 3 * 4096]


@pytest.mark.parametrize(("size", "fits"), [(10**9, True), (10**9 + 1, False)])
def test_a_block_may_fill_a_heap_to_the_byte(size: int, fits: bool) -> None:
    if fits:
        assert lay_out([Need("a", size, 0, 0)], 2 * GB, None, HEAPS).heaps[0].free == 0
    else:
        with pytest.raises(ScenarioError, match="1 B too little"):
            lay_out([Need("a", size, 0, 0)], 2 * GB, None, HEAPS)


def test_heaps_do_not_merge() -> None:
    """BH-39: heaps of 1.0 and 0.7 GB do not hold a block of 1.2 GB."""
    with pytest.raises(ScenarioError) as caught:
        lay_out([Need("a", 1_200_000_000, 0, 0)], 2 * GB, None, HEAPS, where=lambda name: Place(f"{name}.yaml", 3, 1))
    assert str(caught.value).splitlines() == [
        "a.yaml:3:1: error: no heap takes a.weights of 1.2 GB: the largest free stretch is 1 GB in 'npu0', "
        "200 MB too little; heaps do not merge, though 1.7 GB are free in all; "
        "make one of machine.dram.heaps larger, list the largest model first, or take a smaller one",
        "  heap                       size       used       free  blocks so far",
        "  npu0                       1 GB        0 B       1 GB  -",
        "  npu1                     700 MB        0 B     700 MB  -",
        "  model                   weights         KV  workspace      total",
        "  a                        1.2 GB        0 B        0 B     1.2 GB",
    ]


def test_two_heaps_do_not_hold_one_larger_block() -> None:
    """BH-39."""
    two = {"x": 700_000_000, "y": 700_000_000}
    assert lay_out([Need("a", 700_000_000, 700_000_000, 0)], 2 * GB, None, two).resident == 1_400_000_000
    with pytest.raises(ScenarioError, match=r"1\.4 GB are free in all"):
        lay_out([Need("a", 10**9, 0, 0)], 2 * GB, None, two)


def test_a_pinned_model_does_not_go_where_there_is_room() -> None:
    with pytest.raises(
        ScenarioError, match=r"heap 'x' of model 'a' does not take a\.kv of 8\.192 kB: 4\.096 kB are free"
    ):
        lay_out([Need("a", 100, 8192, 0)], GB, None, {"x": 8192, "y": GB // 2}, {"a": "x"})


@given(
    st.lists(st.tuples(*[st.integers(0, 50_000)] * 3), min_size=1, max_size=6),
    st.lists(st.integers(1, 200_000), min_size=1, max_size=4),
)
def test_blocks_lie_in_their_heaps_and_do_not_meet(sizes: list[tuple[int, int, int]], heaps: list[int]) -> None:
    needs = [Need(f"m{k}", *s) for k, s in enumerate(sizes)]
    try:
        memory = lay_out(needs, GB, None, {f"h{k}": n for k, n in enumerate(heaps)})
    except ScenarioError:
        return
    assert sum(r.bytes for r in memory.regions) == sum(n.total for n in needs) == sum(h.used for h in memory.heaps)
    ordered = sorted(memory.regions, key=lambda r: r.base)
    assert all(a.base + a.bytes <= b.base for a, b in pairwise(ordered))
    for h in memory.heaps:
        assert all(h.base <= b.base and b.base + b.bytes <= h.base + h.bytes for b in h.blocks)
    assert memory.end >= max((r.base + r.bytes for r in memory.regions), default=0)
