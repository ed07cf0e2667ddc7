"""What ops did over a run, each op of a phase on a core once."""

from __future__ import annotations

from typing import Any

from bpusim.metrics import Detail
from bpusim.ports import BUFFER_KINDS, CALL_CAUSES
from bpusim.trace.layout import READS, WRITES

__all__ = ["op_table"]


def op_table(detail: Detail) -> list[dict[str, Any]]:
    """A row an op of a stream's phase on a core: executions, MACs, us by cause, bytes by buffer kind."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for (core, label, _), s in detail.sums.items():
        for k, op in enumerate(s.ops):
            row = rows.setdefault(
                (label, core, op.id),
                {
                    "label": label,
                    "core": core,
                    "op": op.id,
                    "type": op.type,
                    "unit": op.unit,
                    "executions": 0,
                    "macs": 0,
                }
                | {f"{c}_us": 0.0 for c in CALL_CAUSES}
                | {f"{b}_bytes": 0 for b in BUFFER_KINDS},
            )
            row["executions"] += int(s.executions[k])
            row["macs"] += int(s.fields[2, k])
            for c, v in zip(CALL_CAUSES, s.causes[k], strict=True):
                row[f"{c}_us"] += int(v) / 1e6
            for b, n in zip(BUFFER_KINDS, s.fields[READS, k] + s.fields[WRITES, k], strict=True):
                row[f"{b}_bytes"] += int(n)
    return list(rows.values())
