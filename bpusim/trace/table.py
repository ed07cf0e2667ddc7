"""A phase unrolled: coefficients of its calls and CPU ops, to be bound to a position by dot products."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING

import numpy as np

from bpusim.errors import TraceError
from bpusim.ports import MOVES
from bpusim.trace.basis import Basis, dot, evaluator
from bpusim.trace.layout import MOVED, CallLayout, coefficients, lay_out
from bpusim.trace.model import Op, Phase, Repeat
from bpusim.trace.program import CallProgram, CpuWork, Program

if TYPE_CHECKING:
    from bpusim.arrays import Bools, Ints

__all__ = ["PhaseTable"]


@dataclass(slots=True)
class PhaseTable:
    """A phase unrolled: its calls and CPU ops, with coefficients over the basis."""

    name: str
    basis: Basis
    largest: tuple[int, ...]
    """Per term of the basis, the sum over all ops of an op's largest coefficient: nothing bound exceeds it."""
    most: int
    """Sequences whose activations fit on chip together."""
    segments: tuple[CallLayout | _CpuOp, ...]

    @classmethod
    def build(cls, phase: Phase, capacity: int | None = None) -> PhaseTable:
        """Unroll ``phase`` and lay out its calls. ``capacity``: bytes of activations that fit on chip."""
        ops: list[Op] = []
        ends: list[bool] = []
        for item in phase.items:
            body = item.body if isinstance(item, Repeat) else (item,)
            for _ in range(item.count if isinstance(item, Repeat) else 1):
                ops.extend(body)
                ends.extend([False] * (len(body) - 1) + [isinstance(item, Repeat)])
        coefs = coefficients(ops, len(phase.basis))
        scratch = np.zeros((len(ops), len(phase.basis)), dtype=np.int64)
        for j, op in enumerate(ops):
            scratch[j, : len(op.scratch)] = op.scratch
        largest = tuple(sum(map(int, column)) for column in coefs.max(axis=0).T)
        basis = evaluator(phase.basis)
        return cls(
            phase.name,
            basis,
            largest,
            _most(scratch, basis, capacity),
            tuple(_segments(ops, np.array(ends, dtype=bool), coefs, basis)),
        )

    def bind(self, kvs: tuple[int, ...], tokens: int) -> Program:
        """The phase at one position, for one sequence or several. Raises :class:`TraceError`."""
        if len(kvs) > self.most:
            what = f"phase '{self.name}': the activations of {len(kvs)} sequences do not fit on chip together"
            raise TraceError(what, do=f"take {self.most} at a time" if self.most else "take a core that holds one")
        try:
            at = self.basis(kvs, tokens)
        except ValueError as e:
            raise TraceError(f"phase '{self.name}': {e}", do="compile the model again") from None
        if sum(map(mul, self.largest, at)) >= 2**62:
            where = f"kv={max(kvs)}, tokens={tokens}"
            raise TraceError(f"phase '{self.name}': its costs at {where} exceed what can be counted")
        position = (kvs, tokens)
        return Program(
            self.name,
            kvs,
            tokens,
            tuple([CallProgram(s, at, position) if isinstance(s, CallLayout) else s.bind(at) for s in self.segments]),
        )

    @property
    def whole(self) -> bool:
        """Whether it is one call, without CPU ops."""
        return len(self.segments) == 1 and isinstance(self.segments[0], CallLayout)

    def calls(self, kvs: Sequence[int], tokens: int) -> list[CallProgram]:
        """Of a phase that is one call: the call at each of these positions of one sequence. Raises
        :class:`TraceError`."""
        (layout,) = self.segments
        assert isinstance(layout, CallLayout)
        ats = [self.basis((kv,), tokens) for kv in kvs]
        if sum(map(mul, self.largest, map(max, *ats, ats[0]))) >= 2**62:
            return [call for kv in kvs for call in self.bind((kv,), tokens).calls]  # one of them may tell why
        sums = (np.array(ats) @ layout.sums.T).tolist()
        return [CallProgram(layout, at, ((kv,), tokens), row) for kv, at, row in zip(kvs, ats, sums, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class _CpuOp:
    """A CPU op with its coefficients (fields x basis)."""

    op: Op
    coefs: Ints

    def bind(self, at: tuple[int, ...]) -> CpuWork:
        """The op at a position."""
        bound = (self.coefs @ np.array(at)).tolist()
        elements = {c: dot(v, at) for c, v in self.op.vec.items()}
        if bound[3]:
            elements["mac"] = bound[3]
        moved = {key: n for key, n in zip(MOVES, bound[MOVED], strict=True) if n}
        return CpuWork(self.op.id, self.op.type, elements, moved, self.op.tensors, bound[0])


def _most(scratch: Ints, basis: Basis, capacity: int | None) -> int:
    """Sequences that fit into ``capacity``; one was placed by the compiler."""
    try:
        one, two = (scratch @ np.array(basis((0,) * n, 1)) for n in (1, 2))
    except ValueError:  # costs of one sequence; who binds more is told
        return sys.maxsize
    each = two - one
    if capacity is None or not each.any():
        return sys.maxsize
    return int(((capacity - one[each > 0]) // each[each > 0]).min()) + 1


def _segments(ops: list[Op], ends: Bools, coefs: Ints, basis: Basis) -> Iterator[CallLayout | _CpuOp]:
    low = 0
    for j, op in enumerate([*ops, None]):
        if op is None or op.unit == "cpu":
            if j > low:
                yield lay_out(tuple(ops[low:j]), ends[low:j], coefs[:, low:j], basis)
            if op is not None:
                yield _CpuOp(op, coefs[:, j])
            low = j + 1
