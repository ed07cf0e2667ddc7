"""A measured profile as a trace: one row an op, with the time that it took on a board.

A row's time is all that the op took there: its start, its compute and its memory traffic. Here the op takes
``max(its time, its bytes over the bandwidth)`` when it is alone: the cycles are those of its time less what the machine
adds to every op by itself (``op_overhead``; ``fallback_op`` and cache maintenance for an op on the CPU), and the bytes
are moved beside them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from bpusim.errors import Place, Problem, TraceError, did_you_mean
from bpusim.exchange.measured import measured_cycles
from bpusim.exchange.table import MOST, Line, read_lines, unique, whole
from bpusim.hardware import CoreSpec
from bpusim.trace import Header, Op, Phase, Tensor, Trace
from bpusim.trace.model import UNITS, Unit
from bpusim.trace.roofline import Roof
from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from bpusim.compiler.target import Target

__all__ = ["Row", "import_profile", "read_profile"]

_NEEDED = ("name", "engine", "us", "bytes")
_OPTIONAL = ("type", "macs", "weights", "written", "start")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Row:
    """A measured op: its time, and the bytes that it moved, of which some are weights and some were written."""

    name: str
    type: str
    unit: Unit
    ps: Ps
    bytes: int
    macs: int
    weights: int
    written: int
    start: Ps | None
    line: int


def read_profile(path: Path) -> list[Row]:
    """The rows of a profile. Raises one :class:`TraceError` with everything that is wrong, line by line."""
    header, *lines = read_lines(path)
    names = [c.lower() for c in header.cells]
    place = Place(str(path), header.number)
    problems: list[Problem] = []
    needs = f"give {', '.join(_NEEDED)} in the header"
    problems += [Problem(f"the column '{n}' is missing", place, needs) for n in _NEEDED if n not in names]
    for j, n in enumerate(names):
        if n not in (*_NEEDED, *_OPTIONAL):
            problems.append(Problem(f"unknown column '{n}'", place, did_you_mean(n, [*_NEEDED, *_OPTIONAL])))
        elif n in names[:j]:
            problems.append(Problem(f"the column '{n}' is there twice", place, "leave one out"))
    if problems:
        raise TraceError(problems)
    rows = [_row(names, line, Place(str(path), line.number), problems) for line in lines]
    before = rows[0]
    for row in rows[1:]:
        if row.start is not None and before.start is not None and row.start < before.start:
            what = f"row '{row.name}' starts before row '{before.name}' of line {before.line}"
            problems.append(Problem(what, Place(str(path), row.line), "sort the rows by start"))
        before = row
    if problems:
        raise TraceError(problems)
    return rows


def _row(names: Sequence[str], line: Line, place: Place, problems: list[Problem]) -> Row:
    cells = list(line.cells)
    if len(cells) != len(names):
        what = f"{len(cells)} columns under a header of {len(names)}"
        problems.append(Problem(what, place, "give each column one value"))
        return Row("", "", "dma", 0, 0, 0, 0, 0, None, line.number)
    given = dict(zip(names, cells, strict=True))
    if not given["name"]:
        problems.append(Problem("a row without a name", place, "name the op"))
    engine = given["engine"].lower()
    if engine not in UNITS:
        what = f"unknown engine '{given['engine'][:_SHOWN]}'"
        problems.append(Problem(what, place, did_you_mean(engine, UNITS)))
    size, macs, weights, written = (
        whole(given[n], n, place, problems) if n in given else 0 for n in ("bytes", "macs", "weights", "written")
    )
    if weights + written > size:
        what = f"{weights} bytes of weights and {written} written are more than the {size} moved"
        problems.append(Problem(what, place, "bytes counts all that the op reads and writes"))
    if macs and engine not in ("mac", "cpu"):
        problems.append(Problem(f"{macs} MACs on engine '{engine}'", place, "only mac and cpu multiply"))
    return Row(
        given["name"],
        given.get("type") or "Measured",
        next((u for u in UNITS if u == engine), "dma"),
        _time(given["us"], "us", place, problems),
        size,
        macs,
        weights,
        written,
        _time(given["start"], "start", place, problems) if "start" in given else None,
        line.number,
    )


def _time(text: str, name: str, place: Place, problems: list[Problem]) -> Ps:
    """Microseconds as picoseconds, to the nearest."""
    try:
        value = Decimal(text)
        if value.is_finite() and 0 <= value < 10**9:
            return round(value * 10**6)
    except InvalidOperation:
        pass
    what = f"{name} is '{text[:_SHOWN]}'" if text else f"{name} is empty"
    problems.append(Problem(what, place, "give microseconds, 0 or more"))
    return 0


def import_profile(
    path: Path, core: CoreSpec, roof: Roof, *, hz: int | None = None, name: str | None = None, command: str = ""
) -> tuple[Trace, list[str]]:
    """(a trace of one phase, ``frame``; warnings of rows that cannot take their time here).

    ``hz``: clock of the core that was measured, the machine's if None. Raises :class:`TraceError`.
    """
    from bpusim.compiler.target import Target

    clock = hz or core.clock
    rows = read_profile(path)
    ids = unique([r.name for r in rows])
    warnings: list[str] = []
    target = Target(core, "int8", 1)  # for how reads are cut into tiles
    ops = [_op(r, id_, clock, roof, target, warnings, path) for r, id_ in zip(rows, ids, strict=True)]
    warnings += _overlaps(rows, path)
    header = Header(
        model=name or path.stem,
        target=core.fingerprint(),
        source={
            "file": path.name,
            "format": "profile",
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "clock": f"{clock} Hz",
            "op_overhead": f"{roof.op_overhead} ps",
            "cpu_clock": f"{roof.cpu_hz} Hz",
        },
        command=command,
        workspace=max(r.bytes - r.weights for r in rows),
    )
    tensors = tuple(Tensor(id_, r.weights) for r, id_ in zip(rows, ids, strict=True) if r.weights)
    return Trace(header, tensors, {"frame": Phase("frame", 0, ("1",), tuple(ops))}), warnings


def _op(row: Row, id_: str, hz: int, roof: Roof, target: Target, warnings: list[str], path: Path) -> Op:
    from bpusim.compiler.dims import as_expr

    on_cpu = row.unit == "cpu"
    rate = roof.cpu_bytes_per_s if on_cpu else roof.bytes_per_s
    cycles, added = measured_cycles(row.ps, row.bytes, row.macs, roof, hz, on_cpu=on_cpu)
    where = f"{Place(str(path), row.line)}: op '{row.name}'"
    needed = round(row.bytes * PS_PER_S / rate)
    if needed > row.ps:
        moved = f"{row.bytes} bytes take {needed / 1e6:g} us at the {rate / 1e9:.1f} GB/s of this machine"
        warnings.append(f"{where}: {moved}, not {row.ps / 1e6:g}")
    if added > row.ps:
        what = "its MACs, the entry into a kernel and cache maintenance" if on_cpu else "the start of an op"
        warnings.append(f"{where}: {what} alone take {added / 1e6:g} us on this machine, not {row.ps / 1e6:g}")
    if cycles >= MOST:
        raise TraceError("the time is longer than can be counted", place=Place(str(path), row.line))
    read: Mapping[str, int] = {f"w:{id_}": row.weights, f"spill:{id_}": row.bytes - row.weights - row.written}
    array = row.unit == "mac"
    return Op(
        id=id_,
        type=row.type,
        unit=row.unit,
        macs=(row.macs,) if row.macs else (),
        issued=(row.macs,) if row.macs else (),
        cycles=(cycles,) if cycles else (),
        mac_cycles=(cycles,) if array and cycles else (),
        read={b: (n,) for b, n in read.items() if n},
        tiles=target.tiles(as_expr(sum(read.values()))).coefs(("1",)),
        write={f"spill:{id_}/out": (row.written,)} if row.written else {},
    )


def _overlaps(rows: Sequence[Row], path: Path) -> list[str]:
    """Rows that began before the one before was over: here they run one after another."""
    lost = [
        (b.line, a.start + a.ps - b.start)
        for a, b in pairwise(rows)
        if a.start is not None and b.start is not None and a.start + a.ps > b.start
    ]
    if not lost:
        return []
    place = Place(str(path), lost[0][0])
    what = f"{len(lost)} rows begin before the one above is over, {sum(n for _, n in lost) / 1e6:g} us in all"
    return [f"{place}: {what}: ops run one after another here"]
