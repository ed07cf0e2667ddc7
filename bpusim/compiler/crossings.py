"""What CPU fallbacks cost: crossings, bytes, time of each kind, and whether the CPU alone would be faster.

Estimates of one pass, at the start of the context and with nothing else on the machine. A call of the core takes
``dispatch + dispatch_per_layer x caches + interrupt`` of the host and, op by op, the longer of compute and DRAM; a CPU
op takes what the simulator charges it. The CPU alone takes, op by op, the longer of ``fallback_op + cycles / clock``
and the bytes over a CPU core's bandwidth: on one CPU core, with the same bytes, without dispatch and cache maintenance.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bpusim.hardware import HostSpec
from bpusim.trace import CallProgram, CpuWork, Trace
from bpusim.trace.model import Op
from bpusim.trace.roofline import Position, Roof, cpu_time, op_time
from bpusim.units import PS_PER_S, Ps

__all__ = ["Board", "estimate_lines", "estimates", "noteworthy"]


@dataclass(frozen=True, slots=True)
class Board:
    """The machine at hand: its host, and the roof over a core and a CPU core."""

    host: HostSpec
    roof: Roof


@dataclass(slots=True)
class _Phase:
    """A phase at a position, with times by op."""

    board: Board
    at: Position
    ops: dict[str, Op]

    def core(self, op: Op) -> tuple[Ps, Ps]:
        """(compute, DRAM) where the op runs."""
        return op_time(op, self.at, self.board.roof)

    def alone(self, op: Op) -> Ps:
        """On the CPU alone."""
        return max(cpu_time(op, self.at, self.board.roof))

    def around(self, call: CallProgram) -> Ps:
        """What the host takes for a call."""
        host = self.board.host
        shared = round(call.written("io") * host.cache_per_byte)
        return host.dispatch + host.dispatch_per_layer * call.layout.caches + host.interrupt + shared

    def work(self, work: CpuWork) -> dict[str, Ps]:
        """Parts of a CPU op; ``dram`` is what its traffic takes beyond them."""
        host, moved = self.board.host, sum(work.moved.values())
        cycles = work.cycles + sum(n * host.cost(c) for c, n in work.elements.items())
        parts = {
            "entry": host.fallback_op,
            "work": cycles * PS_PER_S // host.clock,
            "cache": round(moved * host.cache_per_byte),
        }
        dram = round(moved * PS_PER_S / self.board.roof.cpu_bytes_per_s)
        return {**parts, "dram": max(dram - sum(parts.values()), 0)}


def estimates(trace: Trace, board: Board) -> dict[str, dict[str, Any]]:
    """By phase: microseconds with the core and on the CPU alone, what most of it is, the crossings."""
    return {name: _phase(trace, name, board) for name in trace.phases}


def noteworthy(found: dict[str, dict[str, Any]]) -> bool:
    """Whether anything falls back, or the CPU would be faster."""
    return any(row["crossings"] or row["cpu_us"] < row["core_us"] for row in found.values())


def _us(ps: Ps) -> float:
    return round(ps / 1e6, 3)


def _phase(trace: Trace, name: str, board: Board) -> dict[str, Any]:
    at = Position.of(trace, name)
    program = trace.bind(name, kv=at.kvs, tokens=at.tokens)
    phase = _Phase(board, at, {op.id: op for op in trace.phase(name).ops() if op.unit == "cpu"})
    reasons = dict.fromkeys(("dispatch", "fallback", "bandwidth", "compute"), 0)
    parts = dict.fromkeys(("entry", "work", "cache", "dram"), 0)
    kinds: dict[str, list[int]] = {}
    moved = tensors = alone = 0
    pieces: list[tuple[Ps, Ps, CallProgram]] = []
    for segment in program.segments:
        if isinstance(segment, CpuWork):
            cost, size = phase.work(segment), _crossing_bytes(segment)
            for key, ps in cost.items():
                parts[key] += ps
            row = kinds.setdefault(segment.type, [0, 0, 0])
            for k, n in enumerate((1, size, sum(cost.values()))):
                row[k] += n
            moved, tensors = moved + size, tensors + segment.tensors
            reasons["fallback"] += sum(cost.values())
            alone += phase.alone(phase.ops[segment.op_id])
            continue
        around = phase.around(segment)
        reasons["dispatch"] += around
        here = around
        own = 0
        for op in segment.ops:
            compute, dram = phase.core(op)
            reasons["bandwidth" if dram > compute else "compute"] += max(compute, dram)
            here += max(compute, dram)
            own += phase.alone(op)
        alone += own
        pieces.append((here, own, segment))
    away = [on_cpu for on_cpu, _ in groupby(program.segments, lambda s: isinstance(s, CpuWork)) if on_cpu]
    faster = [p for p in pieces if p[1] < p[0]] if away else []
    whole = sum(reasons.values())
    out: dict[str, Any] = {
        "core_us": _us(whole),
        "cpu_us": _us(alone),
        "most": max(reasons, key=lambda k: reasons[k]),
        "parts_us": {k: _us(v) for k, v in reasons.items()},
        "crossings": len(away),
        "pieces": len(pieces),
    }
    if away:
        out |= {
            "bytes": moved,
            "call_us": _us(board.host.dispatch + board.host.interrupt),
            "fallback_us": {k: _us(v) for k, v in parts.items()},
            "allocate_us": _us(tensors * board.host.allocate_per_tensor),
            "kinds": {k: {"count": n, "bytes": size, "us": _us(ps)} for k, (n, size, ps) in kinds.items()},
        }
    if faster:
        first = max(faster, key=lambda p: p[0] - p[1])
        out["faster_pieces"] = {
            "count": len(faster),
            "saved_us": _us(sum(here - own for here, own, _ in faster)),
            "largest": first[2].ops[0].id,
            "types": sorted({op.type for op in first[2].ops}),
        }
    return out


def _crossing_bytes(work: CpuWork) -> int:
    """Activations that a CPU op reads and writes: each is written or read by the core too."""
    return sum(n for (kind, _), n in work.moved.items() if kind in ("io", "spill"))


def estimate_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """The report as text, a line each."""
    out = []
    for name, row in found.items():
        core, cpu = _time(row["core_us"]), _time(row["cpu_us"])
        text = f"  {name}: about {core} with the core, {cpu} on the CPU alone"
        if row["cpu_us"] < row["core_us"]:
            share = row["parts_us"][row["most"]] / row["core_us"]
            text += f": the CPU is faster; {share:.0%} of {core} is {row['most']}"
        out.append(text)
        if not row["crossings"]:
            continue
        parts = ", ".join(f"{k} {_time(v)}" for k, v in row["fallback_us"].items() if v)
        out.append(
            f"  {name}: {_so_many(row['crossings'], 'crossing')} to the CPU, "
            f"{_so_many(row['pieces'], 'piece')} on the core, "
            f"{row['bytes']} B cross; a call costs {_time(row['call_us'])}, "
            f"the CPU ops {_time(row['parts_us']['fallback'])} ({parts}), "
            f"allocation {_time(row['allocate_us'])} without a pool"
        )
        out += [
            f"    {kind}: {k['count']} on the CPU, {k['bytes']} B, {_time(k['us'])}" for kind, k in row["kinds"].items()
        ]
        if "faster_pieces" in row:
            fast = row["faster_pieces"]
            out.append(
                f"  {name}: the CPU is faster for {fast['count']} of {row['pieces']} pieces, "
                f"{_time(fast['saved_us'])} in all; most for that at '{fast['largest']}' ({', '.join(fast['types'])})"
            )
    return out


def _so_many(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _time(us: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.4g} {unit}"
    return f"{us:.4g} us"
