"""Weights on their way from storage into memory: what a model's first run waits for."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from bpusim.cores import HostCluster, HostTraffic
from bpusim.units import PS_PER_S, Ps

__all__ = ["LoadTerms", "Loader"]


@dataclass(frozen=True, slots=True)
class LoadTerms:
    """What loading a model takes: its weights come at ``rate`` B/s, and a CPU core then works for ``fixed`` (making the
    session, compiling). ``early``: it begins with the run, not with the model's first step."""

    rate: int
    fixed: Ps = 0
    early: bool = False


class Loader:
    """Loads the weights of one model, once.

    ``storage`` serves one model at a time. It writes to memory by itself, at no more than its rate, through a transfer
    of the host's port; no CPU core is needed for that.
    """

    def __init__(
        self,
        env: simpy.Environment,
        model: str,
        size: int,
        terms: LoadTerms,
        host: HostCluster,
        storage: simpy.Resource,
    ) -> None:
        self.env = env
        self.terms = terms
        self.loaded = False
        """Whether the model can run."""
        self._weights = HostTraffic(f"w:{model}", {("weights", True): size})
        self._host = host
        self._storage = storage
        self._under_way: simpy.Process | None = None

    def begin(self) -> simpy.Process:
        """Load it, if nobody has asked for that before; the process ends when it is loaded."""
        if self._under_way is None:
            self._under_way = self.env.process(self._load())
        return self._under_way

    def _load(self) -> Generator[simpy.Event, Any, None]:
        size, rate = self._weights.bytes, self.terms.rate
        with self._storage.request() as turn:
            yield turn
            if size:
                written = self._host.write(self._weights, rate)
                # The last byte is read from storage no sooner than this, and then it has to be written.
                yield self.env.all_of([self.env.timeout(-(-size * PS_PER_S // rate)), written])
        done = self._host.work(self.terms.fixed)
        if done is not None:
            yield done
        self.loaded = True
