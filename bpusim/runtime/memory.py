"""The memory map: what is resident, where, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bpusim.errors import Place, ScenarioError
from bpusim.trace import Trace
from bpusim.units import format_quantity

__all__ = ["MemoryMap", "Need", "Region", "lay_out"]

_ALIGN = 4096


@dataclass(frozen=True, slots=True)
class Need:
    """What a model takes: weights once, KV at full context per sequence, and a workspace per sequence."""

    model: str
    weights: int
    kv: int
    workspace: int

    @classmethod
    def of(cls, model: str, trace: Trace, context: int, sequences: int) -> Need:
        """From a trace, for ``sequences`` concurrent users with ``context`` cache entries each."""
        users = max(sequences, 1)
        return cls(
            model,
            trace.resident_bytes,
            trace.header.kv_bytes_per_token * context * users,
            trace.header.workspace * users,
        )

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.weights + self.kv + self.workspace


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of addresses."""

    name: str
    base: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Regions in order of address."""

    regions: tuple[Region, ...]
    resident: int
    usable: int


def lay_out(needs: Sequence[Need], usable: int, place: Place | None) -> MemoryMap:
    """Give every model its regions; :class:`ScenarioError` with the whole table when they do not fit ``usable``."""
    total = sum(n.total for n in needs)
    parts = [(f"{n.model}.{part}", getattr(n, part)) for n in needs for part in ("weights", "kv", "workspace")]
    regions, base = [], 0
    for name, size in parts:
        if size:
            regions.append(Region(name, base, size))
            base += -(-size // _ALIGN) * _ALIGN
    if total > usable:
        rows = [f"  {'model':<20} {'weights':>10} {'KV':>10} {'workspace':>10} {'total':>10}"]
        for n in needs:
            cells = (format_quantity(v, "size") for v in (n.weights, n.kv, n.workspace, n.total))
            rows.append(f"  {n.model:<20} " + " ".join(f"{c:>10}" for c in cells))
        table = "\n".join(rows)
        raise ScenarioError(
            f"the models need {format_quantity(total, 'size')} and {format_quantity(usable, 'size')} are usable",
            place=place,
            do=f"take a smaller model or quantisation, lower 'context', or run fewer streams\n{table}",
        )
    return MemoryMap(tuple(regions), total, usable)
