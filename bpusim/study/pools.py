"""Where points run: anything that is a :class:`concurrent.futures.Executor`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from bpusim.errors import StudyError
from bpusim.study.run_point import watch_parent

__all__ = ["Pool", "Workers", "dask_pool", "local_pool"]

_TIMEOUT = "10s"
"""Until a scheduler that does not answer is not there."""


@dataclass(frozen=True, slots=True)
class Pool:
    """How to make an executor, anew if one breaks, and how many points it runs at a time."""

    make: Callable[[], Executor]
    workers: int
    where: str
    end: Callable[[Executor], None]
    """Ends an executor without waiting for what it still runs."""
    died: tuple[type[BaseException], ...] = ()
    """What a batch fails with if it took its worker down and the others went on."""


class Workers:
    """The executor of a pool, made anew when it breaks; ended at the end of a ``with``."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.executor = pool.make()

    def renew(self) -> None:
        """It broke: another one."""
        self.pool.end(self.executor)
        self.executor = self.pool.make()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.pool.end(self.executor)


def local_pool(workers: int | None = None) -> Pool:
    """Processes on this machine, as many as it has CPU cores unless told otherwise; each begins from nothing."""
    from multiprocessing import get_context

    count = workers or len(os.sched_getaffinity(0))

    def make() -> Executor:
        return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=watch_parent)

    return Pool(make, count, f"{count} process{'es' if count > 1 else ''} here", _end_processes)


def _end_processes(executor: Executor) -> None:
    """A point may take minutes, and an executor that is shut down lets it end: so its processes are ended first."""
    workers: dict[int, Any] = getattr(executor, "_processes", None) or {}  # a public way to do this begins with 3.14
    for worker in list(workers.values()):
        worker.terminate()
    executor.shutdown(wait=True, cancel_futures=True)


def dask_pool(address: str) -> Pool:
    """The workers of a Dask cluster by its scheduler's ``address``. Raises :class:`StudyError` if it is not there."""
    try:
        from distributed import KilledWorker
    except ImportError:
        raise StudyError("--scheduler needs Dask", do="pip install 'bpusim[dask]'") from None
    first = _client(address)
    count = sum(first.nthreads().values())
    if not count:
        first.close()
        raise StudyError(f"the Dask scheduler at {address} has no workers", do=f"start some: dask worker {address}")
    clients = [first]

    def make() -> Executor:
        if not clients:
            clients.append(_client(address))
        return clients[0].get_executor(pure=False, retries=3)  # type: ignore[no-any-return]

    def end(executor: Executor) -> None:
        executor.shutdown(wait=False)  # cancels what waits
        clients.pop().close()

    return Pool(make, count, f"{count} thread{'s' if count > 1 else ''} of Dask at {address}", end, (KilledWorker,))


def _client(address: str) -> Any:
    from distributed import Client

    try:
        for name in ("distributed.client", "distributed.core"):  # what they have to say ends the sweep with one message
            logging.getLogger(name).setLevel(logging.CRITICAL)
        return Client(address, timeout=_TIMEOUT)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as e:
        do = "start it: dask scheduler; then dask worker ADDRESS on each machine"
        raise StudyError(f"no Dask scheduler at {address}: {e}", do=do) from None
