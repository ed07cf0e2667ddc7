"""What ports of either fidelity have in common: a master's window, its path, its limit, and an idle latency."""

from __future__ import annotations

from bpusim.dram.arbitration import Rules
from bpusim.dram.behaviour import Behaviour
from bpusim.units import Ps

__all__ = ["MasterPort"]


class MasterPort:
    """``window`` bytes outstanding over a ``path``; at most ``limit`` B/s, or as regulated."""

    __slots__ = ("latency", "limit", "name", "path", "window")

    def __init__(self, name: str, window: int, path: Ps, limit: float, rules: Rules, behaviour: Behaviour) -> None:
        self.name = name
        self.window = window
        self.path = path
        self.limit = rules.limit(name, limit)
        self.latency = path + behaviour.idle_latency(window)
