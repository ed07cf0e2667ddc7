"""Whether a trace that can be read also makes sense: sums, bounds, and tensors that hang in the air.

The reader has checked what one line can tell: keys, types, terms of the basis, tensors that ops name. Here ops are
bound at positions and held against each other, against the tensors and against the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bpusim.errors import TraceError
from bpusim.ports import MOVES
from bpusim.trace.model import Op, Trace, buffer_kind
from bpusim.trace.program import CallProgram, CpuWork, Program
from bpusim.trace.roofline import Position, folded

__all__ = ["Report", "check_trace"]

_WHOLE = ("linear", "head", "conv", "norm", "bias")
"""Roles of tensors that an op reads whole, once: never more than is stored."""
_MEASURED = ("profile", "chakra")
"""Formats of measured ops, which do not say who made what another reads."""


@dataclass(slots=True)
class Report:
    """What was looked at, how often, and what is wrong."""

    checked: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def hold(self, law: str, good: bool, what: str) -> None:
        """Count ``law``; note ``what`` if it does not hold."""
        self.checked[law] = self.checked.get(law, 0) + 1
        if not good:
            self.problems.append(what)


def check_trace(trace: Trace) -> Report:
    """Check a trace at several positions. Does not raise: what is wrong is in the report."""
    report = Report()
    _tensors(trace, report)
    for phase in trace.phases:
        if trace.header.source.get("format") not in _MEASURED:
            _spills(trace, phase, report)
        for at in _positions(trace, phase, report):
            _ops(trace, at, report)
            _sums(trace, at, report)
    return report


def _positions(trace: Trace, phase: str, report: Report) -> Iterator[Position]:
    """The first, one in the middle and the last of the context, and the first for two sequences if costs say so."""
    h = trace.header
    room = max(h.context - max(trace.phase(phase).tokens, 1), 0) if not trace.phase(phase).empty_cache else 0
    several = any("batch" in term for term in trace.phase(phase).basis)
    for kv, batch in dict.fromkeys([(0, 1), (room // 2, 1), (room, 1), *([(room // 2, 2)] if several else [])]):
        try:
            at = Position.of(trace, phase, kv, batch=batch)
        except TraceError as e:
            refused = "do not fit" in str(e) and batch > 1  # a core may hold the activations of one sequence only
            report.hold("positions that can be bound", refused, str(e.problems[0].what))
        else:
            report.hold("positions that can be bound", True, "")
            yield at


def _tensors(trace: Trace, report: Report) -> None:
    """Every listed tensor has a reader."""
    read = {b for p in trace.phases.values() for op in p.ops() for b in op.read}
    for t in trace.tensors:
        report.hold("tensors that somebody reads", f"w:{t.name}" in read, f"no op reads tensor '{t.name}'")
        report.hold("tensors that have bytes", t.bytes > 0 and t.count > 0, f"tensor '{t.name}' has no bytes")
    for phase in trace.phases.values():
        for op in phase.ops():
            for b in op.write:
                law, kind = "writes that go to memory of their own", buffer_kind(b)
                report.hold(law, kind != "weights", f"phase '{phase.name}', op '{op.id}': writes weight '{b[2:]}'")


def _spills(trace: Trace, phase: str, report: Report) -> None:
    """What is spilled is written before it is read, and read by somebody. ``'`` behind a name: of another pass."""
    law = "spilled tensors that are written, then read"
    written, read = set[str](), set[str]()
    for op in trace.phase(phase).ops():
        taken = {b.rstrip("'") for b in op.read if b.startswith("spill:")}
        for b in taken:
            what = f"phase '{phase}', op '{op.id}': reads '{b}', which nobody wrote before it"
            report.hold(law, b in written, what)
        read |= taken
        written |= {b.rstrip("'") for b in op.write if b.startswith("spill:")}
    for b in sorted(written):
        report.hold(law, b in read, f"phase '{phase}': nobody reads '{b}', which is written")


def _ops(trace: Trace, at: Position, report: Report) -> None:
    target = trace.header.target
    measured = trace.header.source.get("format") in _MEASURED  # perhaps on another array
    stored = {f"w:{t.name}": t.bytes for t in trace.tensors if t.role in _WHOLE and not t.shared_by}
    scratchpad, held = (_bytes(target.get(k)) for k in ("scratchpad", "activations"))
    peak = _whole(target.get("mac.rows")) * _whole(target.get("mac.cols"))
    classes = {k.removeprefix("vector.cycles.") for k in target if k.startswith("vector.cycles.")}
    for f in folded(trace, at.phase):
        op = f.op
        where = f"phase {at}, op '{op.id}'"
        macs, issued, cycles, busy = (at.value(getattr(op, k)) for k in ("macs", "issued", "cycles", "mac_cycles"))
        report.hold("useful MACs that are issued", macs <= issued, f"{where}: {macs} useful MACs, {issued} issued")
        what = f"{where}: the array works {busy} of {cycles} cycles"
        report.hold("array cycles within cycles", busy <= cycles or op.unit == "cpu", what)
        if op.unit == "cpu":
            report.hold(
                "CPU ops off the array", not busy, f"{where}: the array works {busy} cycles of an op on the CPU"
            )
        elif peak:
            what = f"{where}: {issued} MACs in {busy} cycles of an array of {peak}"
            report.hold("MACs that the array can do", issued <= busy * peak or measured, what)
        for kind in op.vec if classes else ():
            report.hold("classes of vector work", kind in classes, f"{where}: unknown class of vector work '{kind}'")
        for buffer in op.read.keys() & stored.keys():
            size = at.value(op.read[buffer])
            what = f"{where}: reads {size} of the {stored[buffer]} bytes of '{buffer[2:]}'"
            report.hold("weights read within what is stored", size <= stored[buffer], what)
        _room(op, at, where, scratchpad, held, report)


def _room(op: Op, at: Position, where: str, scratchpad: int, held: int, report: Report) -> None:
    """Tiles fit the scratchpad, activations the chip."""
    if op.unit == "cpu":
        return
    read, tiles = sum(at.value(c) for c in op.read.values()), max(at.value(op.tiles), 1)
    if scratchpad:
        what = f"{where}: {read} bytes in {tiles} tiles; the scratchpad has {scratchpad}"
        report.hold("tiles within the scratchpad", -(-read // tiles) <= scratchpad, what)
    if held and len(at.kvs) == 1:
        live = at.value(op.scratch)
        report.hold("activations on chip", live <= held, f"{where}: {live} bytes on chip, which has {held}")


def _sums(trace: Trace, at: Position, report: Report) -> None:
    """Calls and CPU ops move, and calls compute, what their ops say; tiles sum to the call."""
    program = trace.bind(at.phase, kv=at.kvs, tokens=at.tokens)
    where = f"phase {at}"
    moved = dict.fromkeys(MOVES, 0)
    cycles = macs = 0
    for f in folded(trace, at.phase):
        for write, table in ((False, f.op.read), (True, f.op.write)):
            for buffer, c in table.items():
                moved[buffer_kind(buffer), write] += at.value(c) * f.count
        on_cpu = f.op.unit == "cpu"
        cycles += 0 if on_cpu else at.value(f.op.cycles) * f.count
        macs += at.value(f.op.issued if on_cpu else f.op.macs) * f.count
    for key, n in moved.items():
        got = sum(_moved(s).get(key, 0) for s in program.segments)
        report.hold("bytes of calls by kind", got == n, f"{where}: calls move {got} bytes of {key[0]}, their ops {n}")
    got = sum(c.cycles for c in program.calls)
    report.hold("cycles of calls", got == cycles, f"{where}: calls take {got} cycles, their ops {cycles}")
    report.hold("MACs of the phase", program.macs == macs, f"{where}: {program.macs} MACs, {macs} by op")
    _tiles(program, where, report)


def _tiles(program: Program, where: str, report: Report) -> None:
    for call in program.calls:
        bytes_, cycles = int(call.items.bytes.sum()), int(call.items.cycles.sum())
        what = f"{where}: tiles of the call from '{call.ops[0].id}' move {bytes_} of {call.bytes} bytes"
        report.hold("bytes of tiles", bytes_ == call.bytes, what)
        what = f"{where}: tiles of the call from '{call.ops[0].id}' take {cycles} of {call.cycles} cycles"
        report.hold("cycles of tiles", cycles == call.cycles, what)


def _moved(segment: CallProgram | CpuWork) -> dict[tuple[str, bool], int]:
    return {(k, w): n for (k, w), n in (segment.moved if isinstance(segment, CpuWork) else segment.moved()).items()}


def _bytes(value: object) -> int:
    """A size of the target such as ``4194304 B``; 0 if it does not say."""
    head = str(value).partition(" ")[0]
    return int(head) if head.isdigit() else 0


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
