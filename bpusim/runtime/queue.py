"""The line before a core: ready calls, and the policy that picks."""

from __future__ import annotations

from dataclasses import dataclass

import simpy

from bpusim.cores import BpuCore
from bpusim.errors import SimulationError
from bpusim.runtime.calls import Call, CoreView, Policy
from bpusim.trace import CallProgram
from bpusim.units import Ps

__all__ = ["CoreQueue"]


@dataclass(slots=True)
class _Waiting:
    call: Call
    program: CallProgram
    done: simpy.Event


class CoreQueue:
    """Serves one core: a call runs as soon as the core is free and the policy picks it."""

    def __init__(self, env: simpy.Environment, core: BpuCore, policy: Policy) -> None:
        self.env = env
        self.core = core
        self.policy = policy
        self._waiting: list[_Waiting] = []
        self._seq = 0

    def submit(self, program: CallProgram, stream: str, phase: str) -> simpy.Event:
        """Line up a call; the event's value is its :class:`bpusim.cores.CallResult`."""
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        self._seq += 1
        estimate = self.core.estimate(program) if self.core.busy or self._waiting else 0
        call = Call(stream, phase, 0, None, estimate, now, self._seq)
        entry = _Waiting(call, program, simpy.Event(self.env))
        self._waiting.append(entry)
        if not self.core.busy:
            self._serve()
        return entry.done

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
        running = self.core.run(entry.program, f"{entry.call.stream}/{entry.call.phase}")
        running.callbacks.append(lambda event: self._ended(entry, event))

    def _ended(self, entry: _Waiting, event: simpy.Event) -> None:
        entry.done.succeed(event.value)
        if self._waiting and not self.core.busy:
            self._serve()
