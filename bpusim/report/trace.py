"""A trace as tables for a terminal: its ops against the roof of a machine, its calls, and what differs from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bpusim.ports import BUFFER_KINDS
from bpusim.report.plain import plain_table
from bpusim.trace.calls import Group
from bpusim.trace.roofline import OpRow, Position, Roof, totals
from bpusim.units import format_quantity

__all__ = ["print_difference", "print_ops"]


def _console(out: TextIO, tables: Sequence[Table]) -> Console:
    console = Console(file=out, highlight=False)
    wide = console.options.update(width=10_000)  # cut columns would help nobody: a terminal breaks the lines
    console.width = max(console.width, *(console.measure(t, options=wide).maximum for t in tables))
    return console


def _size(n: int) -> str:
    return format_quantity(n, "size") if n else "-"


def _count(n: int) -> str:
    """A large count in four digits."""
    for worth, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if n >= worth:
            return f"{n / worth:.4g} {unit}"
    return str(n) if n else "-"


def print_ops(rows: Sequence[OpRow], groups: Sequence[Group], at: Position, roof: Roof, out: TextIO) -> None:
    """Ops and calls of a phase; a row is one pass, a total all of them."""
    kinds = [k for k in BUFFER_KINDS if any(r.moved.get(k) for r in rows)]
    times = ("compute us", "DRAM us", "bound by", "at least us", "of all")
    ops = plain_table("Ops", "op", "unit", "times", "MACs", "cycles", *kinds, "op/B", *times)
    for r in rows:
        ops.add_row(
            Text(r.op), r.unit, str(r.count), _count(r.macs), _count(r.cycles),
            *(_size(r.moved.get(k, 0)) for k in kinds),
            "-" if r.intensity is None else f"{r.intensity:.4g}",
            f"{r.compute_ps / 1e6:.2f}", f"{r.dram_ps / 1e6:.2f}", r.bound, f"{r.time_ps / 1e6:.2f}", f"{r.share:.1%}",
        )  # fmt: skip
    whole = totals(rows)
    ops.add_row(
        "total", "", str(whole["count"]), _count(whole["macs"]), "",
        *(_size(whole[f"{k}_bytes"]) for k in kinds),
        "-" if whole["operations_per_byte"] is None else f"{whole['operations_per_byte']:.4g}",
        f"{whole['compute_us']:.2f}", f"{whole['dram_us']:.2f}", "", f"{whole['time_us']:.2f}", "", style="bold",
    )  # fmt: skip
    calls = plain_table("Calls and CPU ops", "from .. to", "on", "times", "ops", "MACs", "read", "written", "tensors")
    for group in groups:
        for s in group.stops:
            calls.add_row(
                Text(s.name), "cpu" if s.on_cpu else "bpu", str(group.count), str(s.ops), _count(s.macs),
                _size(s.read), _size(s.written), str(s.tensors),
            )  # fmt: skip
    console = _console(out, [ops, calls])
    console.print(f"phase {at}", soft_wrap=True)
    rate = format_quantity(roof.bytes_per_s, "bandwidth")
    peak = 2 * roof.macs_per_cycle * roof.hz / 1e12
    balance = f"balance at {roof.balance:.4g} operations a byte ({peak:.4g} TOPS, {rate} alone)"
    console.print(f"{balance}; a row is one pass, its op alone", soft_wrap=True)
    for table in (ops, calls):
        console.print()
        console.print(table)


def print_difference(rows: Sequence[Mapping[str, Any]], names: tuple[str, str], out: TextIO) -> None:
    """What changed, op by op and in total; nothing but a line if nothing did."""
    table = plain_table(f"{names[1]} against {names[0]}", "what", "figure", "before", "after", "change")
    table.columns[1].justify = "left"
    for row in rows:
        table.add_row(Text(row["what"]), Text(row["figure"]), *map(_shown, (row["before"], row["after"])), _change(row))
    if not rows:
        out.write("no difference\n")
        return
    _console(out, [table]).print(table)


def _shown(value: Any) -> Text:
    return Text("-" if value is None else str(value))


def _change(row: Mapping[str, Any]) -> str:
    a, b = row["before"], row["after"]
    if not (isinstance(a, int) and isinstance(b, int)) or not a:
        return ""
    return f"{b / a - 1:+.2%}"
