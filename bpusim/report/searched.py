"""What a search found as a table, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import json
from typing import Literal, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bpusim.metrics.studied import Searched
from bpusim.report.plain import markdown_table, markdown_text, narrow, plain_table, reasons
from bpusim.report.styles import BAD, GOOD

__all__ = ["write_searched"]

_POINTS = 12
"""Points of a table, the best apart; JSON and CSV have all."""


def write_searched(s: Searched, form: Literal["table", "json", "csv", "markdown"], out: TextIO) -> None:
    """Best points first, then those that meet all conditions, then the nearest."""
    if form == "json":
        out.write(json.dumps(s.to_dict(), indent=1, ensure_ascii=False) + "\n")
    elif form == "csv":
        _csv(s, out)
    elif form == "markdown":
        lines = [f"{markdown_text(line)}\n" for line in _notes(s)]
        out.write("\n".join([f"## {markdown_text(_head(s))}\n", markdown_table(_table(s)), *lines]))
    else:
        console = Console(file=out, highlight=False)
        console.print(Text(_head(s), "bold"), soft_wrap=True)
        if s.tried:
            table = _table(s)
            if console.is_terminal:
                narrow(table, console.width)
            else:
                console.width = max(
                    console.width, console.measure(table, options=console.options.update(width=10_000)).maximum
                )
            console.print(table)
        for line in _notes(s):
            console.print(line, markup=False, soft_wrap=True)


def _head(s: Searched) -> str:
    counts = ", ".join(f"{n} {status}" for status, n in sorted(s.counts.items(), reverse=True))
    of = f" of {s.space}" if s.space is not None else ""
    before = f"; {s.there} were there before" if s.there else ""
    return f"{s.name}: {sum(s.counts.values())}{of} points tried: {counts}{before}"


def _table(s: Searched) -> Table:
    ways = [f"{o.text} ({'more' if o.more else 'less'} is better)" for o in s.objectives]
    limits = any(t.room for t in s.tried)
    table = plain_table("", "try", "point", *map(escape, ways), *(["room to the limits"] if limits else []), "")
    for t in s.tried[: max(_POINTS, len(s.best))]:
        values = ("-" if v is None else f"{v:.5g}" for v in t.objectives)
        rooms = [", ".join("-" if r is None else f"{r:+.1%}" for r in t.room.values())] if limits else []
        verdict = "best" if t.best else "meets" if t.met else "misses"
        shown = Text(verdict, BAD if not t.met else GOOD) if limits or t.best else ""
        table.add_row(str(t.number), Text(t.point), *values, *rooms, shown)
    return table


def _notes(s: Searched) -> list[str]:
    lines = []
    left = len(s.tried) - max(_POINTS, len(s.best))
    if left > 0:
        lines.append(f"and {left} more points: --format csv has all")
    if not s.tried:
        lines.append("no point has a result")
    elif not s.best:
        short = [f"{c} by {-r:.1%}" for c, r in s.tried[0].room.items() if r is not None and r < 0]
        lines.append(f"none meets every condition; the nearest misses {' and '.join(short) or 'one'}")
    limits = next((list(t.room) for t in s.tried), [])
    lines += [f"limits: {', '.join(limits)}"] if limits else []
    return [*lines, *reasons(s.errors), *(f"note: {note}" for note in s.notes)]


def _csv(s: Searched, out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    paths = list(s.tried[0].values) if s.tried else []
    limits = list(s.tried[0].room) if s.tried else []
    names = [o.text for o in s.objectives]
    writer.writerow(["try", *paths, *names, *(f"room: {c}" for c in limits), "met", "best"])
    for t in s.tried:
        cells = (json.dumps(v) if isinstance(v, dict | list) else v for v in t.values.values())
        rooms = ("" if r is None else f"{r:.6g}" for r in t.room.values())
        values = ("" if v is None else v for v in t.objectives)
        writer.writerow([t.number, *cells, *values, *rooms, int(t.met), int(t.best)])
