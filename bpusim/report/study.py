"""What a study shows as tables, Markdown or CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bpusim.metrics.studied import Front, HeatMap, Sensitivity, Smallest, Studied
from bpusim.report.plain import markdown_table, markdown_text, narrow, plain_table, reasons
from bpusim.report.styles import BAD, GOOD

__all__ = ["PARTS", "write_studied"]

PARTS = ("effects", "pairs", "sensitivity", "pareto", "smallest")
_POINT = "point"
_POINTS = 12
"""Points of a table; JSON and CSV have all."""


def write_studied(
    studied: Studied, parts: Sequence[str], form: Literal["table", "json", "csv", "markdown"], out: TextIO
) -> None:
    """``parts``: some of :data:`PARTS`, all if empty; of ``csv`` one."""
    wanted = [p for p in PARTS if p in (parts or PARTS)]
    if form == "json":
        keep = {"effects": "effects", "pairs": "maps", "sensitivity": "sensitivity", "pareto": "front",
                "smallest": "smallest"}  # fmt: skip
        dropped = {keep[p] for p in PARTS if p not in wanted}
        data = {k: v for k, v in studied.to_dict().items() if k not in dropped}
        out.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    elif form == "csv":
        _csv(studied, wanted[0], out)
    elif form == "markdown":
        _markdown(studied, wanted, out)
    else:
        _tables(studied, wanted, out)


def _tables(studied: Studied, parts: Sequence[str], out: TextIO) -> None:
    console = Console(file=out, highlight=False)
    for line in _head(studied):
        console.print(line, markup=False, soft_wrap=True)
    for table, lines in _sections(studied, parts):
        if table is not None and not console.is_terminal:  # a file is as wide as it needs to be
            console.width = max(console.width, _width(table, console))
        for part in _parts(table, console) if table is not None else ():
            narrow(part, console.width)
            console.print()
            console.print(f"[bold]{part.title}[/bold]", soft_wrap=not console.is_terminal)
            part.title = None  # rich would make it no wider than the table
            console.print(part)
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)


def _width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _parts(table: Table, console: Console) -> list[Table]:
    """A table that is too wide as several, each with the first column and as many others as there is room for; not one
    of points, whose names break into lines."""
    if table.columns[0].header == _POINT:
        return [table]
    others = list(range(1, len(table.columns)))
    parts: list[Table] = []
    while others:
        taken = next(n for n in range(len(others), 0, -1) if n == 1 or _fits(table, others[:n], console))
        parts.append(_some(table, others[:taken]))
        others = others[taken:]
    return parts


def _fits(table: Table, columns: Sequence[int], console: Console) -> bool:
    return _width(_some(table, columns), console) <= console.width


def _some(table: Table, columns: Sequence[int]) -> Table:
    chosen = [table.columns[k] for k in (0, *columns)]
    part = plain_table(str(table.title), *(str(c.header) for c in chosen))
    for new, old in zip(part.columns, chosen, strict=True):
        new.justify = old.justify
    for cells in zip(*(c.cells for c in chosen), strict=True):
        part.add_row(*cells)
    return part


def _markdown(studied: Studied, parts: Sequence[str], out: TextIO) -> None:
    title, *lines = _head(studied)
    blocks = [f"## {markdown_text(str(title))}\n", *(f"{markdown_text(str(line))}\n" for line in lines)]
    for table, below in _sections(studied, parts):
        blocks += [markdown_table(table)] if table is not None else []
        blocks += [f"{markdown_text(str(line))}\n" for line in below]
    out.write("\n".join(blocks))


def _head(s: Studied) -> list[Text | str]:
    counts = ", ".join(f"{n} {status}" for status, n in sorted(s.counts.items(), reverse=True))
    rows = sum(s.counts.values())
    lines: list[Text | str] = [
        Text.assemble((s.name, "bold"), f": {rows} row{'s' if rows != 1 else ''}: {counts}; {s.design}")
    ]
    lines += [s.about] if s.about else []
    return lines + reasons(s.errors) + [f"note: {note}" for note in s.notes]


def _sections(s: Studied, parts: Sequence[str]) -> Iterator[tuple[Table | None, Sequence[str]]]:
    for part in parts:
        if part == "effects" and s.effects:
            for parameter in dict.fromkeys(e.parameter for e in s.effects):
                yield _effects(s, parameter), ()
        elif part == "pairs":
            for m in s.maps:
                yield _map(m), ()
        elif part == "sensitivity" and s.sensitivity:
            for name in s.figures:
                yield _sensitivity(name, [x for x in s.sensitivity if x.figure == name]), ()
            yield None, [_SENSITIVITY[s.design]]
        elif part == "pareto" and s.front is not None:
            yield _front(s.front), [*_more(len(s.front.points) - _POINTS), *s.front.notes]
        elif part == "smallest" and s.smallest is not None:
            yield _conditions(s.smallest), ()
            below = [*_more(len(s.smallest.candidates) - _POINTS), *_missed(s.smallest)]
            below += [f"cost: {s.smallest.cost}"] if s.smallest.cost else []
            yield _candidates(s.smallest), [*below, *s.smallest.notes]


_SENSITIVITY = {
    "grid": "first, total: Sobol' indices, exact for this grid; elasticity: % a %, end to end (least..most of a step)",
    "grid with holes": "first: part of the variance between values of the parameter; parts overlap where a grid has "
    "holes; no total order; elasticity: % a %, by regression ± its standard error",
    "drawn": "first: Sobol' index ± 95 %; a drawn sample gives no total order; elasticity: % a %, by regression ± its "
    "standard error",
}  # fmt: skip


def _effects(s: Studied, parameter: str) -> Table:
    """A line a figure, a column a value."""
    effects = [e for e in s.effects if e.parameter == parameter]
    labels = list(dict.fromkeys(level.label for e in effects for level in e.levels))
    table = plain_table(
        f"Main effects of {escape(parameter)} (means over all others)", "figure", *map(escape, labels), "change"
    )
    for e in effects:
        cells = {level.label: _mean(level.mean, level.half) for level in e.levels}
        change = f"{e.relative:.1%}" if e.relative is not None else f"{e.change:.4g}"
        table.add_row(Text(e.figure), *(cells.get(name, "-") for name in labels), change)
    return table


def _mean(mean: float, half: float | None) -> str:
    return f"{mean:.5g}" + (f" ±{half:.2g}" if half is not None else "")


def _map(m: HeatMap) -> Table:
    table = plain_table(escape(f"{m.figure}: {m.rows} down, {m.columns} across"), "", *map(escape, m.column_labels))
    for label, cells in zip(m.row_labels, m.means, strict=True):
        table.add_row(Text(label), *("-" if v is None else f"{v:.5g}" for v in cells))
    return table


def _sensitivity(figure: str, rows: Sequence[Sensitivity]) -> Table:
    table = plain_table(f"Sensitivity of {escape(figure)}", "parameter", "first", "total", "elasticity")
    for s in rows:
        half = f" ±{s.first_half:.3f}" if s.first_half is not None else ""
        first = "-" if s.first is None else f"{s.first:.3f}{half}"
        total = "-" if s.total is None else f"{s.total:.3f}"
        table.add_row(Text(s.parameter), first, total, _slope(s))
    return table


def _slope(s: Sensitivity) -> str:
    if s.elasticity is None:
        return "-"
    if s.error is not None:
        return f"{s.elasticity:+.3f} ±{s.error:.3f}"
    return f"{s.elasticity:+.3f} ({s.least:+.3f}..{s.most:+.3f})"


def _front(f: Front) -> Table:
    n = sum(p.best for p in f.points)
    ways = [f"{o.text} ({'more' if o.more else 'less'} is better)" for o in f.objectives]
    table = plain_table(f"Pareto front: {n} of {len(f.points)} points", _POINT, *map(escape, ways), "front")
    for p in f.points[:_POINTS]:
        table.add_row(Text(p.point), *(f"{v:.5g}" for v in p.values), Text("yes", GOOD) if p.best else "")
    return table


def _more(left: int) -> list[str]:
    return [f"and {left} more points: --format csv has all"] if left > 0 else []


def _conditions(s: Smallest) -> Table:
    table = plain_table(f"Limits: {s.met} of {len(s.candidates)} points meet all", "condition", "met by")
    for condition, met in s.conditions.items():
        table.add_row(Text(condition), str(met))
    return table


def _candidates(s: Smallest) -> Table:
    by = "by cost" if s.cost else "small in every numeric parameter"
    title = f"Smallest that meets them, {by}" if s.met else "None meets all; the nearest first"
    costs = ["cost"] if s.cost else []
    table = plain_table(title, _POINT, *costs, "room to the limits", "seeds", "")
    for c in s.candidates[:_POINTS]:
        cost = ["-" if c.cost is None else f"{c.cost:.5g}"] if s.cost else []
        verdict = Text("smallest", GOOD) if c.smallest else Text("meets" if c.met else "misses", GOOD if c.met else BAD)
        rooms = ", ".join("-" if r is None else f"{r:+.1%}" for r in c.room.values())
        table.add_row(Text(c.point), *cost, rooms, f"{c.seeds[0]}/{c.seeds[1]}", verdict)
    return table


def _missed(s: Smallest) -> list[str]:
    """What the nearest point lacks, if none meets all."""
    if s.met or not s.candidates:
        return []
    nearest = s.candidates[0]
    short = [f"{c} by {-r:.1%}" for c, r in nearest.room.items() if r is not None and r < 0]
    return [f"nearest: {nearest.point}; it misses {' and '.join(short)}"] if short else []


def _csv(s: Studied, part: str, out: TextIO) -> None:
    rows = list(_flat(s, part))
    writer = csv.DictWriter(out, list(dict.fromkeys(k for r in rows for k in r)), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)


def _flat(s: Studied, part: str) -> Iterable[Mapping[str, Any]]:
    """A row each, of plain cells."""
    if part == "effects":
        for e in s.effects:
            for v in e.levels:
                yield {"figure": e.figure, "parameter": e.parameter, "value": v.label, "mean": v.mean,
                       "half_width_95": v.half, "points": v.points}  # fmt: skip
    elif part == "pairs":
        for m in s.maps:
            for r, row in enumerate(m.row_labels):
                for c, column in enumerate(m.column_labels):
                    yield {"figure": m.figure, "row": m.rows, "row_value": row, "column": m.columns,
                           "column_value": column, "mean": m.means[r][c], "points": m.points[r][c]}  # fmt: skip
    elif part == "sensitivity":
        for x in s.sensitivity:
            yield {"figure": x.figure, "parameter": x.parameter, "first": x.first, "first_half_width_95": x.first_half,
                   "total": x.total, "elasticity": x.elasticity, "standard_error": x.error, "least": x.least,
                   "most": x.most}  # fmt: skip
    elif part == "pareto" and s.front is not None:
        for p in s.front.points:
            named = {o.text: v for o, v in zip(s.front.objectives, p.values, strict=True)}
            yield {"point": p.point, **named, "front": p.best}
    elif part == "smallest" and s.smallest is not None:
        for q in s.smallest.candidates:
            rooms = {f"room: {c}": r for c, r in q.room.items()}
            yield {"point": q.point, "cost": q.cost, "met": q.met, "smallest": q.smallest, **rooms,
                   "seeds_met": q.seeds[0], "seeds": q.seeds[1]}  # fmt: skip
