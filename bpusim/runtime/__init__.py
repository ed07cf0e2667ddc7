"""The host's runtime: calls, policies, placement, memory, and the execution of a step."""

from bpusim.runtime.calls import ORDINARY, Call, CoreView, Policy, Terms, Told
from bpusim.runtime.executor import Answer, Executor, Leg, RuntimeOptions, Session
from bpusim.runtime.loading import Loader, LoadTerms, Room
from bpusim.runtime.memory import MemoryMap, Need, lay_out
from bpusim.runtime.placement import PlacedModel, keep_weights, place, place_team
from bpusim.runtime.policies import HIGH, POLICIES, Fifo, Priority, policy_maker
from bpusim.runtime.queue import CoreQueue, Event
from bpusim.runtime.team import Team
from bpusim.runtime.waits import CoreWaits

__all__ = [
    "HIGH",
    "ORDINARY",
    "POLICIES",
    "Answer",
    "Call",
    "CoreQueue",
    "CoreView",
    "CoreWaits",
    "Event",
    "Executor",
    "Fifo",
    "Leg",
    "LoadTerms",
    "Loader",
    "MemoryMap",
    "Need",
    "PlacedModel",
    "Policy",
    "Priority",
    "Room",
    "RuntimeOptions",
    "Session",
    "Team",
    "Terms",
    "Told",
    "keep_weights",
    "lay_out",
    "place",
    "place_team",
    "policy_maker",
]
