"""Where points run: anything that is a :class:`concurrent.futures.Executor`."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from bpusim.errors import StudyError
from bpusim.study.run_point import watch_parent

__all__ = ["Pool", "dask_pool", "local_pool"]


@dataclass(frozen=True, slots=True)
class Pool:
    """How to make an executor, anew if one breaks, and how many points it runs at a time."""

    make: Callable[[], Executor]
    workers: int
    where: str
    died: tuple[type[BaseException], ...] = ()
    """What a batch fails with if it took its worker down and the others went on."""


def local_pool(workers: int | None = None) -> Pool:
    """Processes on this machine, as many as it has CPU cores unless told otherwise; each begins from nothing."""
    from multiprocessing import get_context

    count = workers or len(os.sched_getaffinity(0))

    def make() -> Executor:
        return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=watch_parent)

    return Pool(make, count, f"{count} process{'es' if count > 1 else ''} here")


def dask_pool(address: str) -> Pool:
    """The workers of a Dask cluster by its scheduler's ``address``. Raises :class:`StudyError` if it is not there."""
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise StudyError("--scheduler needs Dask", do="pip install 'bpusim[dask]'") from None
    try:
        client: Any = Client(address, timeout="10s")
    except (OSError, TimeoutError, ValueError) as e:
        do = "start it: dask scheduler; then dask worker ADDRESS on each machine"
        raise StudyError(f"no Dask scheduler at {address}: {e}", do=do) from None
    count = sum(client.nthreads().values())
    if not count:
        client.close()
        raise StudyError(f"the Dask scheduler at {address} has no workers", do=f"start some: dask worker {address}")
    return Pool(
        lambda: client.get_executor(pure=False, retries=3),
        count,
        f"{count} threads of Dask at {address}",
        (KilledWorker,),
    )
