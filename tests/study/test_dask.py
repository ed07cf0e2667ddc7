"""Points on a Dask cluster of real processes: the same rows, whoever dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bpusim.errors import StudyError
from bpusim.study import Study, dask_pool, local_pool, read_rows, run_study

distributed = pytest.importorskip("distributed", reason="the extra 'dask' is not installed")


def processes(workers: int) -> Any:
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with processes(2) as found:
        yield found


STUDY = """\
measure: [streams.alice.e2e_mean_ms]
vary: {streams.alice.output: {from: 1, to: 20}, models.chat.cores: [bpu0, bpu1]}
"""


Write = Callable[[str], Study]


def rows(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines())


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_cluster_has_the_rows_that_processes_have(workers: int, study: Write, tmp_path: Path) -> None:
    found = study(STUDY)
    run_study(found, tmp_path / "here.jsonl", local_pool(1))
    with processes(workers) as cluster:
        pool = dask_pool(cluster.scheduler_address)
        assert pool.workers == workers
        run_study(found, tmp_path / "there.jsonl", pool)
    assert rows(tmp_path / "here.jsonl") == rows(tmp_path / "there.jsonl")
    assert len(rows(tmp_path / "here.jsonl")) == 40


def test_points_of_a_worker_that_is_killed_run_again(cluster: Any, study: Write, tmp_path: Path) -> None:
    found = study(STUDY)
    out = tmp_path / "r.jsonl"
    victim = next(iter(cluster.workers.values())).pid
    killed = []

    def told(done: int, _there: int, _all: int) -> None:
        if done >= 3 and not killed:
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    outcome = run_study(found, out, dask_pool(cluster.scheduler_address), told=told)
    assert killed
    assert outcome.counts == {"ok": 40}
    assert len({r["key"] for r in read_rows(out)}) == len(rows(out)) == 40
    run_study(found, tmp_path / "here.jsonl", local_pool(2))
    assert rows(out) == rows(tmp_path / "here.jsonl")


def test_no_scheduler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import bpusim.study.pools as pools

    monkeypatch.setattr(pools, "_TIMEOUT", "1s")
    with pytest.raises(StudyError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:1"):
        dask_pool("tcp://127.0.0.1:1")


def test_a_cluster_without_workers_is_told() -> None:
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", processes=False, silence_logs=50) as empty,
        pytest.raises(StudyError, match=r"has no workers; start some: dask worker"),
    ):
        dask_pool(empty.scheduler_address)
