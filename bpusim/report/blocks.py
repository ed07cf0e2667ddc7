"""Text in blocks - headings, paragraphs, tables, commands - for a terminal or as markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bpusim.report.plain import plain_table

__all__ = ["Block", "Bullets", "Cell", "Code", "Grid", "Heading", "Paragraph", "markdown", "print_blocks"]


@dataclass(frozen=True, slots=True)
class Heading:
    """``level`` 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A few sentences; ``lead`` are its first words, which stand out."""

    text: str
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    """Short remarks, one a line, under a line of their own."""

    head: str
    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to be copied: never broken."""

    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with a meaning: ``good``, ``bad``, or none."""

    text: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: the first column to the left, numbers to the right; a last column of ``words`` to the left again.

    ``narrow``: what is shown where it is too wide for a terminal.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    words: bool = False
    narrow: Sequence[Block] = field(default=())


Block = Heading | Paragraph | Bullets | Code | Grid
_TONES = {"good": "green", "bad": "red", "": ""}


def print_blocks(blocks: Iterable[Block], file: IO[str]) -> None:
    """Write ``blocks`` for a terminal; colours only on one that has them (NO_COLOR is honoured)."""
    console = Console(file=file, width=None if file.isatty() else 110, highlight=False)
    for n, block in enumerate(blocks):
        if n and not isinstance(block, Code):
            console.print()
        _print(block, console)


def _print(block: Block, console: Console) -> None:
    if isinstance(block, Heading):
        console.print(Text(block.text, style="bold" if block.level > 1 else "bold underline"), soft_wrap=True)
    elif isinstance(block, Paragraph):
        console.print(Text.assemble((block.lead, "bold"), block.text))
    elif isinstance(block, Bullets):
        console.print(Text(block.head, style="bold"))
        for item in block.items:
            console.print(Padding(Text(item), (0, 0, 0, 2), expand=False))
    elif isinstance(block, Code):
        for line in block.lines:
            console.print(Text(line), soft_wrap=True)
    else:
        table = _table(block)
        needed = console.measure(table, options=console.options.update(width=10_000)).maximum
        if needed > console.width and block.narrow and console.is_terminal:
            for part in block.narrow:
                _print(part, console)
            return
        if needed > console.width and not block.words and not console.is_terminal:
            console = Console(file=console.file, width=needed, highlight=False)  # a file is as wide as it needs to be
        console.print(table)


def _table(grid: Grid) -> Table:
    table = plain_table("", *map(escape, grid.columns))
    table.title = None
    if grid.words:
        table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for row in grid.rows:
        table.add_row(*(Text(c.text, style=_TONES[c.tone]) if isinstance(c, Cell) else Text(c) for c in row))
    return table


def markdown(blocks: Iterable[Block]) -> str:
    """``blocks`` as markdown."""
    return "\n\n".join(_markdown(b) for b in blocks) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_escaped(block.text)}"
    if isinstance(block, Paragraph):
        lead = f"**{_escaped(block.lead.strip())}** " if block.lead else ""
        return lead + _escaped(block.text.strip())
    if isinstance(block, Bullets):
        return "\n".join([f"**{_escaped(block.head)}**", "", *(f"- {_escaped(i)}" for i in block.items)])
    if isinstance(block, Code):
        return "\n".join(["```sh", *block.lines, "```"])
    rule = ["---"] + ["---:"] * (len(block.columns) - 1)
    if block.words:
        rule[-1] = "---"
    rows = [block.columns, rule, *([c.text if isinstance(c, Cell) else c for c in row] for row in block.rows)]
    return "\n".join(f"| {' | '.join(_escaped(c, cell=True) for c in row)} |" for row in rows)


def _escaped(text: str, *, cell: bool = False) -> str:
    """Names of streams and models mean themselves."""
    for mark in ("\\", "*", "_", "`", "<", *("|" if cell else "")):
        text = text.replace(mark, f"\\{mark}")
    return text
