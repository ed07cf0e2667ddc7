"""What each op of each model cost in a run: rows of ``ops.csv``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import add

from bpusim.metrics import Detail
from bpusim.ports import CALL_CAUSES, MOVES
from bpusim.trace.layout import FIELDS, MOVED
from bpusim.units import Ps

__all__ = ["OP_CAUSES", "OpRow", "by_type", "op_rows", "ops_csv"]

OP_CAUSES = (*CALL_CAUSES, "fallback")
"""What the time of an op goes to: of ops on a core, and of those on the CPU."""


@dataclass(frozen=True, slots=True)
class OpRow:
    """An op of a phase on a core, all its executions together, those of repeated layers too. ``causes``: ps that it has
    added to the calls it is in, in the order of :data:`OP_CAUSES`; over all ops they sum to the calls. ``computed``: ps
    from the begin of its first tile to the end of its last, waits between them included."""

    stream: str
    phase: str
    core: str
    op: str
    type: str
    unit: str
    executions: int
    causes: tuple[Ps, ...]
    computed: Ps
    macs: int
    issued: int
    moved: tuple[int, ...]
    """DRAM bytes in the order of ``MOVES``."""

    @property
    def time(self) -> Ps:
        """All that it has added."""
        return sum(self.causes)

    @property
    def bytes(self) -> int:
        """All that it moved."""
        return sum(self.moved)

    def with_(self, other: OpRow, **names: str) -> OpRow:
        """Both together, under the names of this one but for ``names``."""
        named = {n: names.get(n, getattr(self, n)) for n in ("stream", "phase", "core", "op", "type", "unit")}
        return OpRow(
            **named,
            executions=self.executions + other.executions,
            causes=tuple(map(add, self.causes, other.causes)),
            computed=self.computed + other.computed,
            macs=self.macs + other.macs,
            issued=self.issued + other.issued,
            moved=tuple(map(add, self.moved, other.moved)),
        )


def op_rows(detail: Detail) -> list[OpRow]:
    """By stream and phase, then core, in program order; CPU ops behind the others of their phase."""
    rows: dict[tuple[str, str, str], OpRow] = {}
    macs, issued = FIELDS.index("macs"), FIELDS.index("issued")
    for (core, label, _), sums in sorted(detail.sums.items(), key=lambda entry: (entry[0][1], entry[0][0])):
        stream, _, phase = label.rpartition("/")
        moved = sums.fields[MOVED].T.tolist()
        for k, op in enumerate(sums.ops):
            executions = int(sums.executions[k])
            if not executions:
                continue
            row = OpRow(
                stream, phase, core, op.id, op.type, op.unit, executions, (*sums.causes[k].tolist(), 0),
                int(sums.computed[k]), int(sums.fields[macs, k]), int(sums.fields[issued, k]), tuple(moved[k]),
            )  # fmt: skip
            at = label, core, op.id
            rows[at] = rows[at].with_(row) if at in rows else row
    none = (0,) * len(CALL_CAUSES)
    for (label, op_id, type_), cpu in detail.cpu_ops.items():
        stream, _, phase = label.rpartition("/")
        rows[label, "cpu", op_id] = OpRow(
            stream, phase, "cpu", op_id, type_, "cpu", cpu.executions, (*none, cpu.duration), cpu.duration, 0, 0,
            tuple(cpu.moved.get(key, 0) for key in MOVES),
        )  # fmt: skip
    return [rows[at] for at in sorted(rows, key=lambda at: (at[0], at[1] == "cpu"))]


def by_type(rows: Iterable[OpRow]) -> list[OpRow]:
    """Rows of one stream's phase and type together, whatever core; the largest first within a phase."""
    out: dict[tuple[str, str, str, str], OpRow] = {}
    for row in rows:
        at = row.stream, row.phase, row.type, row.unit
        if at in out:
            same = out[at].core == row.core
            out[at] = out[at].with_(row, op="", core=row.core if same else "several")
        else:
            out[at] = row
    return sorted(out.values(), key=lambda r: (r.stream, r.phase, -r.time))


def ops_csv(rows: Sequence[OpRow]) -> str:
    """``ops.csv``: times in ms, over all executions."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [f"{kind}_{'write' if write else 'read'}_bytes" for kind, write in MOVES]
    writer.writerow(
        ["stream", "phase", "core", "op", "type", "unit", "executions", "time_ms", *(f"{c}_ms" for c in OP_CAUSES),
         "computed_ms", "macs", "issued_macs", *names]
    )  # fmt: skip
    for r in rows:
        times = [_ms(t) for t in (r.time, *r.causes, r.computed)]
        writer.writerow(
            [r.stream, r.phase, r.core, r.op, r.type, r.unit, r.executions, *times, r.macs, r.issued, *r.moved]
        )
    return out.getvalue()


def _ms(ps: Ps) -> str:
    """Exact, so that sums are."""
    return f"{ps // 10**9}.{ps % 10**9:09d}".rstrip("0").rstrip(".")
