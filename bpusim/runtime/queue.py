"""The line before a core: ready calls, and the policy that picks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import simpy

from bpusim.cores import BpuCore, CallResult
from bpusim.errors import SimulationError
from bpusim.runtime.calls import Call, CoreView, Policy
from bpusim.trace import CallProgram
from bpusim.units import Ps

__all__ = ["CoreQueue"]


@dataclass(slots=True)
class _Waiting:
    call: Call
    program: CallProgram
    then: Callable[[CallResult], None]


class CoreQueue:
    """Serves one core: a call runs as soon as the core is free and the policy picks it."""

    def __init__(self, env: simpy.Environment, core: BpuCore, policy: Policy) -> None:
        self.env = env
        self.core = core
        self.policy = policy
        self._waiting: list[_Waiting] = []
        self._seq = 0

    def submit(self, program: CallProgram, stream: str, phase: str, then: Callable[[CallResult], None]) -> None:
        """Line up a call; ``then`` is told its :class:`bpusim.cores.CallResult` when it is over."""
        self._seq += 1
        if self.core.busy or self._waiting:
            now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
            call = Call(stream, phase, 0, None, self.core.estimate(program), now, self._seq)
            self._waiting.append(_Waiting(call, program, then))
            if not self.core.busy:
                self._serve()
        else:
            self._run(program, stream, phase, then)

    def _serve(self) -> None:
        now: Ps = self.env.now  # type: ignore[assignment]
        if len(self._waiting) == 1:
            entry = self._waiting.pop()
        else:
            picked = self.policy.pick([w.call for w in self._waiting], CoreView(self.core.name, now))
            entry = next((w for w in self._waiting if w.call is picked), None)  # type: ignore[assignment]
            if entry is None:
                raise SimulationError(
                    f"policy {type(self.policy).__name__} picked a call that is not ready", do="return one of ready"
                )
            self._waiting.remove(entry)
        self._run(entry.program, entry.call.stream, entry.call.phase, entry.then)

    def _run(self, program: CallProgram, stream: str, phase: str, then: Callable[[CallResult], None]) -> None:
        def ended(result: CallResult) -> None:
            then(result)
            if self._waiting and not self.core.busy:
                self._serve()

        self.core.run(program, f"{stream}/{phase}", ended)
