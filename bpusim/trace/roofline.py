"""A phase op by op at one position: what each computes and moves, and which of the two holds it up.

An op alone takes at least the longer of its compute (with the core's overhead of an op) and its bytes over what the
core gets from the channel alone. Calls overlap ops further; what a step takes is the simulator's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any, Literal

from bpusim.errors import TraceError, did_you_mean
from bpusim.ports import BUFFER_KINDS, BufferKind
from bpusim.trace.model import Coefs, Op, Repeat, Trace, buffer_kind
from bpusim.units import PS_PER_S, Ps

__all__ = ["Folded", "OpRow", "Position", "Roof", "cpu_time", "folded", "op_rows", "op_time", "totals"]

Bound = Literal["compute", "dram", "cpu", "overhead"]


@dataclass(frozen=True, slots=True)
class Roof:
    """What one core, and one CPU core, can do at most."""

    hz: int
    """Clock of the core."""
    macs_per_cycle: int
    """Of the array with the fastest activation type."""
    bytes_per_s: float
    """What the core's DMA gets from the channel alone."""
    op_overhead: Ps
    cpu_hz: int
    cpu_bytes_per_s: float
    """What a CPU core gets from the channel alone."""
    cpu_cycles: Mapping[str, int]
    """CPU cycles of an element by class."""
    cpu_entry: Ps
    """Entry into a CPU kernel."""
    cpu_cache_per_byte: float
    """Picoseconds of cache maintenance a byte."""

    @property
    def balance(self) -> float:
        """Operations (2 a MAC) a byte below which the channel holds a GEMM up, above which the array does."""
        return 2 * self.macs_per_cycle * self.hz / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class Position:
    """Where costs are looked at: a phase with ``kv`` cache entries in each sequence before ``tokens`` tokens."""

    phase: str
    kvs: tuple[int, ...]
    tokens: int
    at: tuple[int, ...]
    """Values of the phase's basis."""
    steps: bool
    """Whether the phase is a step over tokens and a cache."""

    def __str__(self) -> str:
        if not self.steps:
            return self.phase
        kv = f"kv {self.kvs[0]}" + (f" in each of {len(self.kvs)} sequences" if len(self.kvs) > 1 else "")
        return f"{self.phase} at {kv}, {self.tokens} token{'s' * (self.tokens != 1)}"

    @classmethod
    def of(cls, trace: Trace, phase: str, kv: int = 0, tokens: int | None = None, batch: int = 1) -> Position:
        """``tokens``: the phase's chunk if None. Raises :class:`TraceError` for what the trace does not say."""
        found = trace.phase(phase)
        if kv and not found.empty_cache and not any("kv" in term for term in found.basis):
            raise TraceError(f"phase '{phase}' has no cache: nothing depends on kv", do="leave kv out")
        if tokens is not None and not found.tokens:
            raise TraceError(f"phase '{phase}' has no tokens", do="leave tokens out")
        program = trace.bind(phase, kv=(kv,) * batch, tokens=max(found.tokens, 1) if tokens is None else tokens)
        at = trace.table(phase).basis(program.kvs, program.tokens)
        return cls(phase, program.kvs, program.tokens, at, found.tokens > 0)

    def value(self, coefs: Coefs) -> int:
        """A cost here."""
        return sum(map(mul, coefs, self.at))


@dataclass(frozen=True, slots=True)
class Folded:
    """An op with the passes that its repeat makes over it."""

    op: Op
    count: int
    repeat: str
    """Name of the repeat, empty outside."""


def folded(trace: Trace, phase: str) -> Iterator[Folded]:
    """Ops in program order, repeated bodies once."""
    for item in trace.phase(phase).items:
        if isinstance(item, Repeat):
            yield from (Folded(op, item.count, item.name) for op in item.body)
        else:
            yield Folded(item, 1, "")


@dataclass(frozen=True, slots=True)
class OpRow:
    """An op at a position. Sizes, cycles and times are of one pass; ``count`` passes are made."""

    op: str
    type: str
    unit: str
    count: int
    macs: int
    cycles: int
    """Of the core; of a CPU core for ops on the CPU."""
    moved: Mapping[BufferKind, int]
    """Bytes read and written by buffer kind."""
    written: int
    """Bytes of them that are written."""
    compute_ps: Ps
    """Without the DRAM; the overhead of an op included."""
    dram_ps: Ps
    bound: Bound
    share: float = 0.0
    """Part of the sum of all ``time_ps``, all passes together."""

    @property
    def bytes(self) -> int:
        """All that it moves."""
        return sum(self.moved.values())

    @property
    def time_ps(self) -> Ps:
        """The least it takes alone: the roof over it."""
        return max(self.compute_ps, self.dram_ps)

    @property
    def intensity(self) -> float | None:
        """Operations (2 a MAC) a byte; None of an op that moves nothing."""
        return 2 * self.macs / self.bytes if self.bytes else None

    def to_dict(self) -> dict[str, Any]:
        """Flat, with units in the names."""
        return {
            "op": self.op,
            "type": self.type,
            "unit": self.unit,
            "count": self.count,
            "macs": self.macs,
            "cycles": self.cycles,
            **{f"{k}_bytes": self.moved.get(k, 0) for k in BUFFER_KINDS},
            "written_bytes": self.written,
            "bytes": self.bytes,
            "operations_per_byte": self.intensity,
            "compute_us": self.compute_ps / 1e6,
            "dram_us": self.dram_ps / 1e6,
            "time_us": self.time_ps / 1e6,
            "bound": self.bound,
            "share": self.share,
        }


def op_rows(trace: Trace, at: Position, roof: Roof) -> list[OpRow]:
    """Every op of a phase at a position, against the roof of its machine."""
    rows = [_row(f, at, roof) for f in folded(trace, at.phase)]
    whole = sum(r.time_ps * r.count for r in rows)
    return [_shared(r, whole) for r in rows]


def op_time(op: Op, at: Position, roof: Roof) -> tuple[Ps, Ps]:
    """(compute with what the machine adds to an op by itself, bytes over the bandwidth) of one pass."""
    size = sum(at.value(c) for table in (op.read, op.write) for c in table.values())
    if op.unit == "cpu":
        work = _cpu_cycles(op, at, roof) * PS_PER_S // roof.cpu_hz
        compute = roof.cpu_entry + work + round(size * roof.cpu_cache_per_byte)
        return compute, round(size * PS_PER_S / roof.cpu_bytes_per_s)
    return roof.op_overhead + at.value(op.cycles) * PS_PER_S // roof.hz, round(size * PS_PER_S / roof.bytes_per_s)


def cpu_time(op: Op, at: Position, roof: Roof) -> tuple[Ps, Ps]:
    """The same of an op on the CPU where everything is: its real MACs, no cache maintenance."""
    cycles = _cpu_cycles(op, at, roof)
    if op.unit != "cpu":  # the array's own cycles and padding are none of the CPU's
        cycles += (at.value(op.macs) - at.value(op.issued)) * roof.cpu_cycles["mac"] - at.value(op.cycles)
    size = sum(at.value(c) for table in (op.read, op.write) for c in table.values())
    return roof.cpu_entry + cycles * PS_PER_S // roof.cpu_hz, round(size * PS_PER_S / roof.cpu_bytes_per_s)


def _cpu_cycles(op: Op, at: Position, roof: Roof) -> int:
    for k in op.vec:
        if k not in roof.cpu_cycles:
            raise TraceError(f"op '{op.id}': unknown class of work '{k}'", do=did_you_mean(k, list(roof.cpu_cycles)))
    elements = sum(at.value(c) * roof.cpu_cycles[k] for k, c in op.vec.items())
    return at.value(op.cycles) + elements + at.value(op.issued) * roof.cpu_cycles["mac"]


def _row(f: Folded, at: Position, roof: Roof) -> OpRow:
    op = f.op
    moved: dict[BufferKind, int] = {}
    for table in (op.read, op.write):
        for buffer, coefs in table.items():
            kind = buffer_kind(buffer)
            moved[kind] = moved.get(kind, 0) + at.value(coefs)
    written = sum(at.value(c) for c in op.write.values())
    cycles = at.value(op.cycles) if op.unit != "cpu" else _cpu_cycles(op, at, roof)
    compute, dram = op_time(op, at, roof)
    bound: Bound = "dram"
    if dram < compute:
        bound = "cpu" if op.unit == "cpu" else "compute" if compute >= 2 * roof.op_overhead else "overhead"
    return OpRow(op.id, op.type, op.unit, f.count, at.value(op.macs), cycles, moved, written, compute, dram, bound)


def _shared(row: OpRow, whole: Ps) -> OpRow:
    return replace(row, share=row.time_ps * row.count / whole if whole else 0.0)


def totals(rows: Sequence[OpRow]) -> dict[str, Any]:
    """Sums over all passes of all ops; ``time_us`` is that of ops one after another."""

    def whole(value: Callable[[OpRow], int]) -> int:
        return sum(value(r) * r.count for r in rows)

    macs, size = whole(lambda r: r.macs), whole(lambda r: r.bytes)
    return {
        "count": sum(r.count for r in rows),
        "macs": macs,
        "cycles": whole(lambda r: 0 if r.unit == "cpu" else r.cycles),
        "cpu_cycles": whole(lambda r: r.cycles if r.unit == "cpu" else 0),
        **{f"{k}_bytes": sum(r.moved.get(k, 0) * r.count for r in rows) for k in BUFFER_KINDS},
        "written_bytes": whole(lambda r: r.written),
        "bytes": size,
        "operations_per_byte": 2 * macs / size if size else None,
        "compute_us": whole(lambda r: r.compute_ps) / 1e6,
        "dram_us": whole(lambda r: r.dram_ps) / 1e6,
        "time_us": whole(lambda r: r.time_ps) / 1e6,
    }
