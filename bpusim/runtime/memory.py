"""The memory map: what is resident, where, and whether it fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bpusim.errors import Place, ScenarioError
from bpusim.trace import Trace
from bpusim.units import format_quantity

__all__ = ["Heap", "MemoryMap", "Need", "Region", "lay_out"]

_ALIGN = 4096
_PARTS = ("weights", "kv", "workspace")


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


@dataclass(slots=True)
class Heap:
    """A reserved stretch of memory. It never merges with another: a block lies in one of them or nowhere."""

    name: str
    base: int
    bytes: int
    blocks: list[Region] = field(default_factory=list)
    """What lies in it, in order of address, each at the start of a page."""

    @property
    def used(self) -> int:
        """Bytes of its blocks."""
        return sum(b.bytes for b in self.blocks)

    @property
    def free(self) -> int:
        """Bytes of the stretch behind its last block: the largest block that it can still take."""
        last = self.blocks[-1] if self.blocks else Region("", self.base, 0)
        return max(self.base + self.bytes - _page(last.base + last.bytes), 0)

    def take(self, name: str, size: int) -> Region:
        """Place a block behind the others."""
        self.blocks.append(Region(name, self.base + _page(self.bytes - self.free), size))
        return self.blocks[-1]


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Regions model by model; without heaps that is the order of address."""

    regions: tuple[Region, ...]
    resident: int
    usable: int
    heaps: tuple[Heap, ...] = ()

    @property
    def end(self) -> int:
        """First address behind all regions and heaps."""
        ends = [r.base + r.bytes for r in self.regions] + [h.base + h.bytes for h in self.heaps]
        return max(ends, default=0)


def lay_out(
    needs: Sequence[Need],
    usable: int,
    place: Place | None,
    heaps: Mapping[str, int] | None = None,
    pinned: Mapping[str, str] | None = None,
    where: Callable[[str], Place] | None = None,
    sharing: Mapping[str, str] | None = None,
) -> MemoryMap:
    """Give every model its regions; :class:`ScenarioError` with the whole table when they do not fit ``usable``.

    ``heaps``: bytes of reserved stretches by name; each block then lies whole in one of them: in the one where its
    model is ``pinned``, else in the first that has room, in their order. ``where``: the place of a model in the file.
    ``sharing``: models whose weights take turns in one block, with its name; it is as large as the largest of them.
    """
    shared = _Shared(needs, sharing or {})
    if heaps:
        return _in_heaps(needs, usable, heaps, pinned or {}, where or (lambda _: place), shared)
    total = sum(n.total for n in needs) - shared.saved
    regions, base = [], 0
    for need in needs:
        for name, size in _blocks(need):
            there = shared.found(need, name)
            if there is None:
                there = Region(name, base, shared.size(need, name, size))
                shared.keep(need, there)
                base = _page(base + there.bytes)
            regions.append(Region(name, there.base, size))
    if total > usable:
        raise ScenarioError(
            f"the models need {_size(total)} and {_size(usable)} are usable",
            place=place,
            do=f"take a smaller model or quantisation, lower 'context', or run fewer streams\n{_table(needs)}",
        )
    return MemoryMap(tuple(regions), total, usable)


class _Shared:
    """Blocks of weights that several models have in turn."""

    def __init__(self, needs: Sequence[Need], sharing: Mapping[str, str]) -> None:
        self._sharing = sharing
        self._most: dict[str, int] = {}
        self._blocks: dict[str, Region] = {}
        for need in needs:
            if need.model in sharing:
                place = sharing[need.model]
                self._most[place] = max(self._most.get(place, 0), need.weights)
        self.saved = sum(n.weights for n in needs if n.model in sharing) - sum(self._most.values())
        """Bytes that are not needed twice."""

    def _place(self, need: Need, block: str) -> str | None:
        return self._sharing.get(need.model) if block == f"{need.model}.weights" else None

    def size(self, need: Need, block: str, size: int) -> int:
        """Bytes to be reserved for a block."""
        place = self._place(need, block)
        return size if place is None else self._most[place]

    def found(self, need: Need, block: str) -> Region | None:
        """Where it lies, if another model has come before."""
        return self._blocks.get(self._place(need, block) or "")

    def keep(self, need: Need, region: Region) -> None:
        """It has been placed."""
        place = self._place(need, region.name)
        if place is not None:
            self._blocks[place] = region


def _in_heaps(
    needs: Sequence[Need],
    usable: int,
    sizes: Mapping[str, int],
    pinned: Mapping[str, str],
    where: Callable[[str], Place | None],
    shared: _Shared,
) -> MemoryMap:
    heaps: list[Heap] = []
    for name, size in sizes.items():
        heaps.append(Heap(name, _page(heaps[-1].base + heaps[-1].bytes) if heaps else 0, size))
    regions: list[Region] = []
    for need in needs:
        allowed = [h for h in heaps if h.name == pinned.get(need.model, h.name)]
        for name, own in _blocks(need):
            size = shared.size(need, name, own)
            there = shared.found(need, name)
            if there is None:
                heap = next((h for h in allowed if h.free >= size), None)
                if heap is None:
                    raise _no_heap(need, name, size, allowed, heaps, needs, where(need.model))
                there = heap.take(name, size)
                shared.keep(need, there)
            regions.append(Region(name, there.base, own))
    return MemoryMap(tuple(regions), sum(n.total for n in needs) - shared.saved, usable, tuple(heaps))


def _no_heap(
    need: Need,
    block: str,
    size: int,
    allowed: Sequence[Heap],
    heaps: Sequence[Heap],
    needs: Sequence[Need],
    place: Place | None,
) -> ScenarioError:
    """The error of a block that no heap takes."""
    best = max(allowed, key=lambda h: h.free)
    asked, most = f"{block} of {_size(size)}", _size(best.free)
    if len(allowed) < len(heaps):
        what = f"heap '{best.name}' of model '{need.model}' does not take {asked}: {most} are free"
    else:
        what = f"no heap takes {asked}: the largest free stretch is {most} in '{best.name}'"
    rows = [f"  {'heap':<20} {'size':>10} {'used':>10} {'free':>10}  blocks so far"]
    for h in heaps:
        cells = " ".join(f"{_size(v):>10}" for v in (h.bytes, h.used, h.free))
        rows.append(f"  {h.name:<20} {cells}  {', '.join(b.name for b in h.blocks) or '-'}")
    table = "\n".join([*rows, _table(needs)])
    merge = f"heaps do not merge, though {_size(sum(h.free for h in heaps))} are free in all"
    return ScenarioError(
        f"{what}, {_size(size - best.free)} too little; {merge}",
        place=place,
        do=f"make one of machine.dram.heaps larger, list the largest model first, or take a smaller one\n{table}",
    )


def _blocks(need: Need) -> list[tuple[str, int]]:
    """What a model needs in one piece each; what takes nothing is left out."""
    return [(f"{need.model}.{part}", getattr(need, part)) for part in _PARTS if getattr(need, part)]


def _page(address: int) -> int:
    """The first page that begins at ``address`` or behind it."""
    return -(-address // _ALIGN) * _ALIGN


def _size(n: int) -> str:
    return format_quantity(n, "size")


def _table(needs: Sequence[Need]) -> str:
    rows = [f"  {'model':<20} {'weights':>10} {'KV':>10} {'workspace':>10} {'total':>10}"]
    for n in needs:
        cells = " ".join(f"{_size(v):>10}" for v in (n.weights, n.kv, n.workspace, n.total))
        rows.append(f"  {n.model:<20} {cells}")
    return "\n".join(rows)
