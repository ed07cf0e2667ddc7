"""The host's runtime: calls, policies, placement, memory, and the execution of a step."""

from bpusim.runtime.calls import Call, CoreView, Policy
from bpusim.runtime.executor import Executor, RuntimeOptions, Session
from bpusim.runtime.memory import MemoryMap, Need, lay_out
from bpusim.runtime.placement import PlacedModel, place
from bpusim.runtime.policies import Fifo
from bpusim.runtime.queue import CoreQueue

__all__ = [
    "Call",
    "CoreQueue",
    "CoreView",
    "Executor",
    "Fifo",
    "MemoryMap",
    "Need",
    "PlacedModel",
    "Policy",
    "RuntimeOptions",
    "Session",
    "lay_out",
    "place",
]
