"""How a tensor split spreads a model over cores, and what it can gain at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bpusim.units import Ps

__all__ = ["SplitPhase", "SplitPlan"]


@dataclass(frozen=True, slots=True)
class SplitPhase:
    """One pass over a phase with ``kv`` cache entries before it.

    ``split`` and ``left``: part of the time on one core by op type, of what is spread over the cores and of what stays
    on one (or on the CPU); they sum to 1. An op's time is the longer of its cycles and its bytes at what a core reads
    alone, and its overhead. ``moved``: bytes of all cores over those of one, since each reads inputs in full and what
    they exchange goes through DRAM.
    """

    kv: int
    cores: int
    split: Mapping[str, float]
    left: Mapping[str, float]
    barriers: int
    layers: int
    moved: float

    @property
    def splittable(self) -> float:
        """Part of the time on one core that is spread over the cores."""
        return sum(self.split.values())

    @property
    def bound(self) -> float:
        """The most that it can gain, barriers and the memory being free: ``1 / (1 - f + f / n)`` (Amdahl's law)."""
        f = self.splittable
        return 1 / (1 - f + f / self.cores)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kv_entries": self.kv,
            "splittable_fraction": self.splittable,
            "speedup_bound": self.bound,
            "barriers": self.barriers,
            "layers": self.layers,
            "moved_ratio": self.moved,
            "split_fractions": dict(self.split),
            "one_core_fractions": dict(self.left),
        }


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """A model that several cores run together, by phase. ``sync``: what each barrier costs."""

    cores: Sequence[str]
    sync: Ps
    phases: Mapping[str, SplitPhase]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        phases = {name: p.to_dict() for name, p in self.phases.items()}
        return {"cores": list(self.cores), "sync_us": self.sync / 1e6, "phases": phases}
