"""The example studies: each can be run, is in the docs with its picture, and gives the numbers that stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpusim.study import load_study, points_of, run_study
from bpusim.study.analysis.data import gather
from bpusim.study.analysis.objectives import Judge
from bpusim.study.pools import local_pool
from bpusim.study.rules import Rule

ROOT = Path(__file__).resolve().parents[2]
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
PAGE = (ROOT / "docs" / "STUDIES.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_it_is_small_and_says_what_it_is_for(path: Path) -> None:
    study = load_study(path)
    assert study.about
    assert len(points_of(study).points) <= 40


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_it_is_in_the_docs_with_its_picture(path: Path) -> None:
    assert f"`studies/{path.name}`" in PAGE
    assert f"(img/{path.stem}.svg)" in PAGE
    assert (ROOT / "docs" / "img" / f"{path.stem}.svg").is_file()


def some(name: str, *where: str) -> Judge:
    """The points of a study that meet these conditions, run."""
    study = load_study(ROOT / "studies" / f"{name}.yaml", changes={"where": list(where)})
    return Judge(gather(run_study(study, pool=local_pool(1)).rows, study.axes))


def test_faster_memory_helps_as_the_docs_say() -> None:
    judge = some(
        "dram_choice", "machine.dram.preset != 'LPDDR4X-4266x64'", "machine.cores.dma.port in ['17.1 GB/s', '25 GB/s']"
    )
    found = {judge.data.point(k): judge.data.means["total.decode_tokens_per_s"][k] for k in range(4)}
    rates = {name: f"{rate:.1f}" for name, rate in found.items()}
    assert rates == {
        "dram.preset LPDDR4X-3200x64, dma.port 17.1 GB/s": "22.3",
        "dram.preset LPDDR4X-3200x64, dma.port 25 GB/s": "22.3",
        "dram.preset LPDDR5-6400x64, dma.port 17.1 GB/s": "32.2",
        "dram.preset LPDDR5-6400x64, dma.port 25 GB/s": "35.2",
    }
    assert all(f"{rate}" in PAGE for rate in rates.values())


def test_the_board_misses_the_limit_as_the_docs_say() -> None:
    judge = some("slo_frontier", "machine.dram.preset == 'LPDDR4X-3200x64'", "machine.cores.clock == '1.2207 GHz'",
                 "machine.cores.dma.port == '17.1 GB/s'")  # fmt: skip
    rule = Rule.of("streams.talk.itl_p99_ms <= 66")
    known = judge.known(rule, 0)
    assert known is not None
    room = rule.room(known)
    assert room is not None
    assert f"misses the gaps by {-room:.1%}".replace("%", " %") in PAGE.replace("\n", " ")
