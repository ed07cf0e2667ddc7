"""Weights that stay on chip between calls: a trace as it runs once they are there.

A compiler fills the room in the order in which the program reads its weights; the tensor at the end stays in part. What
is read row by row (embedding and rotation tables) is not worth a place, and a CPU op reads from memory whatever lies
on chip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from bpusim.trace.basis import evaluator
from bpusim.trace.model import Op, Phase, Repeat, Tensor, Trace

__all__ = ["with_resident"]

_Kept = dict[tuple[str, int], int]
"""Bytes on chip by buffer and which of the tensors alike."""


def with_resident(trace: Trace, room: int) -> tuple[Trace, int]:
    """(``trace`` without the reads of what stays on chip, bytes that stay there: ``room`` at most).

    An op that reads a tensor several times, or rows of it, reads of each pass what is not on chip.
    """
    tensors = {f"w:{t.name}": t for t in trace.tensors}
    kept: _Kept = {}
    for phase in trace.phases.values():
        at = evaluator(phase.basis)((0,), 1)
        for op, turn in _unrolled(phase):
            for buffer, coefs in op.read.items() if op.unit != "cpu" else ():
                key, size = _key(buffer, turn, tensors), tensors[buffer].bytes if buffer in tensors else 0
                if size and key not in kept and sum(c * v for c, v in zip(coefs, at, strict=False)) >= size:
                    kept[key] = min(size, room)
                    room -= kept[key]
    phases = {name: replace(phase, items=tuple(_items(phase, kept, tensors))) for name, phase in trace.phases.items()}
    return Trace(trace.header, trace.tensors, phases, trace.file), sum(kept.values())


def _unrolled(phase: Phase) -> Iterator[tuple[Op, int]]:
    """Ops in program order, each with the number of the pass that it is in."""
    for item in phase.items:
        for turn in range(item.count if isinstance(item, Repeat) else 1):
            yield from ((op, turn) for op in (item.body if isinstance(item, Repeat) else (item,)))


def _key(buffer: str, turn: int, tensors: Mapping[str, Tensor]) -> tuple[str, int]:
    """Which tensor a pass reads: each its own where there are several alike."""
    return buffer, turn % tensors[buffer].count if buffer in tensors else 0


def _items(phase: Phase, kept: _Kept, tensors: Mapping[str, Tensor]) -> Iterator[Op | Repeat]:
    for item in phase.items:
        if isinstance(item, Repeat):
            passes = (tuple(_without(op, turn, kept, tensors) for op in item.body) for turn in range(item.count))
            for body, alike in groupby(passes):
                yield replace(item, count=sum(1 for _ in alike), body=body)
        else:
            yield _without(item, 0, kept, tensors)


def _without(op: Op, turn: int, kept: _Kept, tensors: Mapping[str, Tensor]) -> Op:
    """An op less what it does not read from memory any more."""
    if op.unit == "cpu":
        return op
    read = dict(op.read)
    for buffer, coefs in op.read.items():
        there = kept.get(_key(buffer, turn, tensors), 0)
        if there:
            read[buffer] = tuple(c - c * there // tensors[buffer].bytes for c in coefs)
    return replace(op, read=read)
