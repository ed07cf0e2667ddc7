"""Weights on their way from storage into memory: what a model's first run waits for, and later ones if it had to go."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

from bpusim.cores import HostCluster, HostTraffic
from bpusim.metrics import Ledger
from bpusim.units import PS_PER_S, Ps

__all__ = ["LoadTerms", "Loader", "Room"]


@dataclass(frozen=True, slots=True)
class LoadTerms:
    """What loading a model takes: its weights come at ``rate`` B/s, and the first time a CPU core then works for
    ``fixed`` (making the session, compiling). ``early``: it begins with the run, not with the model's first step."""

    rate: int
    fixed: Ps = 0
    early: bool = False


class Room:
    """Memory for the weights of one model at a time, of those that share it.

    Who is asked for comes in when the steps of the one inside are over, in the order of asking; the other is gone.
    """

    def __init__(self) -> None:
        self._inside: Loader | None = None
        self._steps = 0
        self._line: deque[tuple[Loader, simpy.Event]] = deque()
        self._loading = False

    def enter(self, loader: Loader) -> simpy.Event | None:
        """A step of a model begins: None if it is there, else an event that succeeds when it is. Then ``leave``."""
        if self._inside is loader and not self._line:
            self._steps += 1
            return None
        turn = simpy.Event(loader.env)
        self._line.append((loader, turn))
        self._serve()
        return turn

    def leave(self) -> None:
        """A step is over."""
        self._steps -= 1
        self._serve()

    def _serve(self) -> None:
        while self._line and not self._loading:
            loader, turn = self._line[0]
            if self._inside is loader:
                self._line.popleft()
                self._steps += 1
                turn.succeed()
            elif self._steps:
                return
            else:
                self._inside, self._loading = None, True
                loader.env.process(self._load(loader))

    def _load(self, loader: Loader) -> Generator[simpy.Event, Any, None]:
        yield from loader.load()
        self._inside, self._loading = loader, False
        self._serve()


class Loader:
    """Loads the weights of one model into its ``room`` when a step needs them.

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
        room: Room,
    ) -> None:
        self.env = env
        self.terms = terms
        self.loads = 0
        """How often it has been loaded."""
        self.room = room
        self._weights = HostTraffic(f"w:{model}", {("weights", True): size})
        self._host = host
        self._storage = storage
        self._began: Ps = 0

    def early(self) -> Generator[simpy.Event, Any, None]:
        """Load it before anybody asks."""
        yield from self.enter(Ledger())
        self.room.leave()

    def enter(self, ledger: Ledger) -> Generator[simpy.Event, Any, None]:
        """Before a step: wait until the weights are there. The first time is ``cold``. Behind the step, leave the
        room."""
        begin: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        first = not self.loads
        turn = self.room.enter(self)
        if turn is not None:
            yield turn
            now: Ps = self.env.now  # type: ignore[assignment]
            loading = now - max(self._began, begin)
            ledger.add("loading", loading)
            ledger.add("queueing", now - begin - loading)
            ledger.cold = ledger.cold or first

    def load(self) -> Generator[simpy.Event, Any, None]:
        """From storage into memory."""
        size, rate = self._weights.bytes, self.terms.rate
        self._began = self.env.now  # type: ignore[assignment]  # integer by construction
        with self._storage.request() as turn:
            yield turn
            if size:
                written = self._host.write(self._weights, rate)
                # The last byte is read from storage no sooner than this, and then it has to be written.
                yield self.env.all_of([self.env.timeout(-(-size * PS_PER_S // rate)), written])
        done = self._host.work(self.terms.fixed) if not self.loads else None
        if done is not None:
            yield done
        self.loads += 1
