"""The calls and CPU ops of a phase in order, what repeats folded: what the runtime dispatches, and what crosses."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bpusim.ports import BUFFER_KINDS, BufferKind
from bpusim.trace.program import CallProgram, CpuWork, Program

__all__ = ["Group", "Stop", "stops"]

_LONGEST = 64
"""Calls and CPU ops of the longest pattern that is looked for."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A call of the core, or an op on the CPU."""

    name: str
    on_cpu: bool
    ops: int
    macs: int
    cycles: int
    """Of the core; of a CPU core only what was measured."""
    moved: Mapping[tuple[BufferKind, bool], int]
    """DRAM bytes by (buffer kind, is a write)."""
    tensors: int
    """That cross between host and core."""

    @property
    def read(self) -> int:
        """Bytes it reads."""
        return sum(n for (_, write), n in self.moved.items() if not write)

    @property
    def written(self) -> int:
        """Bytes it writes."""
        return sum(n for (_, write), n in self.moved.items() if write)

    def of(self, kind: BufferKind) -> int:
        """Bytes of a buffer kind, read and written."""
        return self.moved.get((kind, False), 0) + self.moved.get((kind, True), 0)

    def to_dict(self) -> dict[str, Any]:
        """Flat, with units in the names."""
        return {
            "name": self.name,
            "on": "cpu" if self.on_cpu else "bpu",
            "ops": self.ops,
            "macs": self.macs,
            "cycles": self.cycles,
            **{f"{k}_bytes": self.of(k) for k in BUFFER_KINDS},
            "read_bytes": self.read,
            "written_bytes": self.written,
            "tensors": self.tensors,
        }


@dataclass(frozen=True, slots=True)
class Group:
    """Calls and CPU ops that come ``count`` times one after another."""

    count: int
    stops: tuple[Stop, ...]


def stops(program: Program) -> list[Group]:
    """The whole phase; the longest repeated patterns folded."""
    segments = program.segments
    keys = [_key(s) for s in segments]
    out: list[Group] = []
    single: list[Stop] = []
    at = 0
    while at < len(keys):
        length, count = _pattern(keys, at)
        if count == 1:
            single.append(_stop(segments[at]))
            at += 1
            continue
        out += [Group(1, tuple(single))] if single else []
        single = []
        out.append(Group(count, tuple(_stop(s) for s in segments[at : at + length])))
        at += length * count
    return out + ([Group(1, tuple(single))] if single else [])


def _key(segment: CallProgram | CpuWork) -> Hashable:
    """Equal for segments of the same ops: passes of a repeat share them."""
    if isinstance(segment, CpuWork):
        return segment.op_id, tuple(segment.moved.items()), tuple(segment.elements.items())
    return tuple(map(id, segment.ops))


def _pattern(keys: Sequence[Hashable], at: int) -> tuple[int, int]:
    """(length, count) of the pattern that covers most from ``at`` on; the shortest of equals."""
    best = (1, 1)
    for length in range(1, min(_LONGEST, (len(keys) - at) // 2) + 1):
        count = 1
        while keys[at + count * length : at + (count + 1) * length] == keys[at : at + length]:
            count += 1
        if count > 1 and count * length > best[0] * best[1]:
            best = (length, count)
    return best


def _stop(segment: CallProgram | CpuWork) -> Stop:
    if isinstance(segment, CpuWork):
        macs = segment.elements.get("mac", 0)
        return Stop(segment.op_id, True, 1, macs, segment.cycles, segment.moved, segment.tensors)
    ops, first, last = len(segment.ops), segment.ops[0].id, segment.ops[-1].id
    name = first if ops == 1 else f"{first} .. {last}"
    return Stop(name, False, ops, segment.macs, segment.cycles, segment.moved(), segment.layout.tensors)
