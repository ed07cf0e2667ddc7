"""A result as tables for a terminal, or in Markdown: first what matters first, then all else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bpusim.metrics import Result
from bpusim.report.glance import glance_table
from bpusim.report.heat import heat_lines, heat_tables
from bpusim.report.plain import markdown_table, markdown_text, narrow, plain_table
from bpusim.report.splits import split_lines, split_table
from bpusim.report.streams import breakdown_tables, stream_tables
from bpusim.report.styles import WARN
from bpusim.units import PS_PER_S, format_quantity

__all__ = ["print_markdown", "print_result"]

_Section = tuple[Table | None, Sequence[Text | str]]
"""A table, if there is one, and lines below it."""


def print_result(result: Result, file: IO[str] | None = None, *, console: Console | None = None) -> None:
    """Write the tables of ``result`` to ``file``; colours only on a terminal that has them (NO_COLOR is honoured)."""
    if console is None:
        console = Console(file=file, width=None if file is None or file.isatty() else 110, highlight=False)
    for line in _head(result):
        console.print(line, markup=False)
    for table, lines in _sections(result, console):
        console.print()
        if table is not None:
            narrow(table, console.width)
            console.print(table)
        for line in lines:  # whoever searches a file for a warning finds it on one line
            console.print(line, markup=False, soft_wrap=table is None and not console.is_terminal)


def print_markdown(result: Result, file: IO[str]) -> None:
    """Write the same to ``file`` in Markdown, with GitHub's tables."""
    title, *about = _head(result)
    blocks = [f"## {markdown_text(str(title))}\n", *(f"{markdown_text(str(line))}\n" for line in about)]
    for table, lines in _sections(result, Console(file=file, width=10_000)):
        blocks += [markdown_table(table)] if table is not None else []
        blocks += ["".join(f"* {markdown_text(str(line))}\n" for line in lines)] if lines else []
    file.write("\n".join(blocks))


def _head(result: Result) -> list[Text | str]:
    """What was run, and how much of it."""
    title = Text.assemble(
        (result.scenario, "bold"), f": {result.elapsed / PS_PER_S:.3f} s simulated, {result.events} events"
    )
    if result.partial:
        title.append(", partial: stopped before its end", WARN)
    return [title, *([result.about] if result.about else [])]


def _sections(result: Result, console: Console) -> Iterator[_Section]:
    """All below the head; ``console`` says how wide a table may be."""
    yield glance_table(result), ()
    for table in [*stream_tables(result), *breakdown_tables(result, console), *_cores(result), _dram(result)]:
        yield table, ()
    if result.heaps:
        yield _heaps(result), ()
    if result.weights:
        yield _weights(result), ()
    yield _masters(result), [_known_error(result)] if result.dram.errors else []
    for name, plan in result.splits.items():
        yield split_table(name, plan), split_lines(plan)
    if result.heat is not None:
        *tables, last = heat_tables(result.heat)
        for table in tables:
            yield table, ()
        yield last, heat_lines(result.heat)
    loaded = [f"{name}: {line}" for name, c in result.cores.items() for line in c.load_log]
    warnings = [Text.assemble(("warning", WARN), f" ({w.code}): {w.text}") for w in result.warnings]
    yield None, [*loaded, *warnings]


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %" if value < 0.1 else f"{100 * value:.1f} %"


def _cores(result: Result) -> list[Table]:
    table = plain_table("Cores", "core", "calls", "occupied", "array busy", "array issued", "array useful")
    why = plain_table("What cores wait for", "core", "memory, in calls", "host", "another core", "no work")
    for name, c in result.cores.items():
        fractions = (c.occupied_fraction, c.mac_busy_fraction, c.mac_issued_fraction, c.mac_utilization)
        table.add_row(name, str(c.calls), *map(_percent, fractions))
        why.add_row(name, *(_percent(c.waits[w]) for w in ("dram", "host", "other_core", "no_work")))
    return [table, why]


def _heaps(result: Result) -> Table:
    table = plain_table("Heaps", "heap", "size", "used", "free in one piece", "blocks")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for name, h in result.heaps.items():
        cells = (format_quantity(n, "size") for n in (h.bytes, h.used, h.free))
        table.add_row(Text(name), *cells, Text(", ".join(h.blocks) or "-"))
    return table


def _weights(result: Result) -> Table:
    table = plain_table("Weights", "model", "core", "stay on chip", "streamed")
    for w in result.weights:
        sizes = (format_quantity(n, "size") for n in (w.resident, w.streamed))
        table.add_row(Text(w.model), w.core, *sizes)
    return table


def _masters(result: Result) -> Table:
    table = plain_table("Masters of the memory", "master", "moved", "of all", "mean latency", "dropped")
    dram = result.dram
    every = sum(dram.channel_bytes.values())
    for name, n in sorted(dram.channel_bytes.items()):
        table.add_row(
            Text(name),
            format_quantity(n, "size"),
            _percent(n / every if every else 0.0),
            f"{dram.latency[name] / 1000:.0f} ns" if name in dram.latency else "-",
            format_quantity(dram.dropped[name], "size") if name in dram.dropped else "-",
        )
    return table


def _known_error(result: Result) -> str:
    dram = result.dram
    parts = [f"{kind} {mean:g} % (most {most:g})" for kind, (mean, most) in dram.errors.items()]
    return f"Known error of the {dram.fidelity} model, against {dram.against}: {', '.join(parts)}"


def _dram(result: Result) -> Table:
    d = result.dram.to_dict()
    title = f"Memory: {d['preset']}, {d['fidelity']} model"
    table = plain_table(title, "read", "written", "achieved", "of peak", "resident", "usable")
    table.columns[0].justify = "right"
    table.add_row(
        format_quantity(d["read_bytes"], "size"),
        format_quantity(d["write_bytes"], "size"),
        format_quantity(d["achieved_bytes_per_s"], "bandwidth"),
        _percent(d["peak_fraction"]),
        format_quantity(result.resident_bytes, "size"),
        format_quantity(result.usable_bytes, "size"),
    )
    return table
