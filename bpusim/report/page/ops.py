"""Ops on a page: a table to sort and to search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bpusim.report.charts.style import CAUSE_COLOURS
from bpusim.report.ops import OP_CAUSES
from bpusim.report.ops_view import op_bytes, op_time_us
from bpusim.report.page.tables import Cell, Table, cause_cells, column, count, number, percent, size
from bpusim.report.view import View

__all__ = ["ops_table"]

_ROWS = 300
"""No more, so that a report stays small; the longest are taken."""


def ops_table(view: View) -> dict[str, Any]:
    """Ops of all phases, the one that took the longest first, and what is left out."""
    rows = sorted(view.needed("ops"), key=lambda r: (-op_time_us(r), r["label"], r["core"], r["op"]))
    if not rows:
        return {"ops": None, "ops_note": ""}
    whole = sum(map(op_time_us, rows)) or 1.0
    used, heads = cause_cells([{c: r[f"{c}_us"] for c in OP_CAUSES} for r in rows])
    columns = [
        column("", "op"), column("", "stream/phase"), column("", "core"), column("", "type"), column("", "unit"),
        column("executions", number=True), column("op_time", unit="ms", number=True, sorted="descending"),
        column("", "of all", number=True), column("", "causes"), *heads, column("macs", number=True),
        column("", "bytes", number=True), column("operations_per_byte", number=True),
    ]  # fmt: skip
    table = Table("op-table", "Ops of the run", columns, [_row(r, used, whole) for r in rows[:_ROWS]])
    notes = []
    if len(rows) > _ROWS:
        notes.append(f"The {_ROWS} that took the longest, of {len(rows)}; all are in ops.csv.")
    until = view.needed("ops_until_s")
    if until is not None:
        notes.append(f"Sums go up to {until:.3g} s of simulated time; what ops did later is not in them.")
    return {"ops": table, "ops_note": " ".join(notes)}


def _row(r: Mapping[str, Any], used: list[str], whole: float) -> list[Cell | str]:
    us, moved = op_time_us(r), op_bytes(r)
    intensity = 2 * r["macs"] / moved if moved and r["macs"] else None
    times = {c: r[f"{c}_us"] for c in used}
    return [
        r["op"],
        r["label"],
        r["core"],
        r["type"],
        r["unit"],
        number(r["executions"]),
        number(us / 1e3, 3),
        percent(us / whole),
        Cell(_mix(times)),
        *(number(t / 1e3, 3) for t in times.values()),
        count(r["macs"]),
        size(moved),
        Cell("-", None, True) if intensity is None else Cell(f"{intensity:.4g}", intensity, True),
    ]


def _mix(causes: Mapping[str, float]) -> Any:
    """A small bar; the numbers stand beside it."""
    from markupsafe import Markup

    whole = sum(causes.values())
    parts = [(c, 100 * v / whole) for c, v in causes.items() if v] if whole else []
    bars = "".join(f'<i style="width:{p:.1f}%;background:{CAUSE_COLOURS[c]}"></i>' for c, p in parts if p >= 0.5)
    return Markup(f'<span class="mix" aria-hidden="true">{bars}</span>')
