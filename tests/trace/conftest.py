"""A small trace to damage, and the committed ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpusim.trace import Header, Op, Phase, Repeat, Tensor, Trace, load_trace

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture(scope="session")
def committed() -> dict[str, Trace]:
    """All traces of the repository by file name."""
    return {p.name: load_trace(p) for p in sorted(TRACES.glob("*.trace"))}


@pytest.fixture
def small() -> Trace:
    """Two ops around three layers of two ops; decode and prefill."""
    embed = Op("embed", "Gather", "dma", read={"io:ids": (8,), "w:table": (100,)})
    project = Op(
        "project",
        "MatMul",
        "mac",
        macs=(0, 10),
        issued=(0, 16),
        cycles=(50, 2),
        read={"w:proj.{i}": (300,)},
        tiles=(3,),
    )
    attend = Op(
        "attend",
        "Attention",
        "mac",
        ("/a", "/b"),
        cycles=(20, 0, 3),
        vec={"exp": (0, 0, 4)},
        read={"kv": (0, 0, 16)},
        write={"kv": (0, 16)},
        scratch=(64,),
    )
    head = Op("head", "MatMul", "mac", macs=(0, 7), cycles=(9,), read={"w:table": (100,)}, write={"io:logits": (40,)})
    items = (embed, Repeat(3, "layers", (project, attend), carry=(0, 24), carry_tensors=2), head)
    basis = ("1", "tokens", "kv")
    return Trace(
        Header("tiny", {"mac.rows": 8}, context=64, chunk=4, kv_bytes_per_token=48, layers=3, vocab=20, workspace=10),
        (Tensor("table", 100, role="head", shared_by=("embed", "head")), Tensor("proj.{i}", 300, 3)),
        {"prefill": Phase("prefill", 4, basis, items), "decode": Phase("decode", 1, basis, items)},
    )
