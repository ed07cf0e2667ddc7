"""The plans of tensor splits for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from bpusim.metrics import SplitPlan
from bpusim.report.plain import plain_table
from bpusim.units import format_quantity

__all__ = ["split_lines", "split_table"]

_SMALL = 0.001
"""Part of the time that is worth a name on a terminal; all are in summary.json."""


def split_table(name: str, plan: SplitPlan) -> Table:
    """What a split can gain at most, and how often its cores meet."""
    sync = format_quantity(plan.sync, "time") if plan.sync else "0 s"
    title = f"Tensor split of {name} over {', '.join(plan.cores)}, {sync} a barrier"
    table = plain_table(title, "pass", "f, splittable", "1/(1-f+f/n)", "barriers", "a layer", "bytes")
    for phase, p in plan.phases.items():
        each = f"{p.barriers / p.layers:.1f}" if p.layers else "-"
        table.add_row(
            phase, f"{100 * p.splittable:.1f} %", f"{p.bound:.2f} x", str(p.barriers), each, f"{p.moved:.2f} x"
        )
    return table


def split_lines(plan: SplitPlan) -> list[str]:
    """Which op types are split, and which are left on one core, with their part of the time there."""
    return [
        f"{phase}, of the time on one core: split {_named(p.split)}; left on one core {_named(p.left)}"
        for phase, p in plan.phases.items()
    ]


def _named(parts: Mapping[str, float]) -> str:
    shown = [f"{op} {100 * part:.1f} %" for op, part in parts.items() if part >= _SMALL]
    small = len(parts) - len(shown)
    shown += [f"{small} below {100 * _SMALL:.1f} %"] if small else []
    return ", ".join(shown) or "nothing"
