"""Tables without lines for a terminal, and the same ones as Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["markdown_table", "markdown_text", "narrow", "plain_table", "reasons"]

_REASONS = 3
"""Reasons that are told; more are counted."""
_GAP = 2
"""Letters between the columns of a table."""
_NAME = 4
"""A name is broken into so many letters at least."""


def plain_table(title: str, *columns: str) -> Table:
    """A table without lines: the first column to the left, numbers to the right."""
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, _GAP, 0, 0)
    )
    table.show_header = any(columns)
    for i, c in enumerate(columns):
        table.add_column(c, justify="left" if i == 0 else "right", no_wrap=True)
    return table


def narrow(table: Table, width: int) -> None:
    """Make ``table`` no wider than ``width`` where heads that break at spaces, and then names that break anywhere, are
    enough for that; figures stay whole."""
    if not all(column.no_wrap for column in table.columns):
        return  # text, which breaks by itself
    cells = [max((cell_len(_plain(c)) for c in column.cells), default=0) for column in table.columns]
    heads = [_plain(column.header) for column in table.columns]
    full = [max(a, len(head)) for a, head in zip(cells, heads, strict=True)]
    least = [max([a, *map(len, head.split())]) for a, head in zip(cells, heads, strict=True)]
    over = sum(full) + _GAP * (len(full) - 1) - width
    room = {k: full[k] - least[k] for k in sorted(range(len(full)), key=lambda k: least[k] - full[k])}
    room[0] = max(full[0] - _NAME, 0) if over > sum(room.values()) else room[0]
    for k, most in room.items():
        if over > 0 and most:
            table.columns[k].width = full[k] - min(over, most)
            table.columns[k].no_wrap, table.columns[k].overflow = False, "fold"
            over -= most


def reasons(errors: Mapping[str, int]) -> list[str]:
    """Why so many points have no result, the most frequent first, by the first line of an error: what follows it, such
    as the sizes of all models, differs from point to point."""
    firsts: Counter[str] = Counter()
    for text, n in errors.items():
        firsts[text.strip().partition("\n")[0]] += n
    found = firsts.most_common()
    lines = [f"{n} without a result: {text}" for text, n in found[:_REASONS]]
    if len(found) > _REASONS:
        others = sum(n for _, n in found[_REASONS:])
        lines.append(f"{others} without a result, for {len(found) - _REASONS} other reasons")
    return lines


def markdown_table(table: Table) -> str:
    """``table`` as GitHub has tables, under its title in bold."""
    columns = [[_cell(c.header), *map(_cell, c.cells)] for c in table.columns]
    rows = [f"| {' | '.join(row)} |" for row in zip(*columns, strict=True)]
    rule = " | ".join("---:" if c.justify == "right" else "---" for c in table.columns)
    title = [f"**{markdown_text(_plain(table.title))}**", ""] if table.title else []
    return "\n".join([*title, rows[0], f"| {rule} |", *rows[1:]]) + "\n"


def markdown_text(text: str) -> str:
    """``text`` with nothing in it that Markdown would take for more than text."""
    special = r"[\\`*\[\]<>|~]|(?<![^\W_])_|_(?![^\W_])"  # an underscore inside a word is none
    return re.sub(f"({special})", r"\\\1", " ".join(text.split()))


def _cell(content: RenderableType) -> str:
    return markdown_text(_plain(content))


def _plain(content: object) -> str:
    """Cells are texts, or strings with rich's markup."""
    return content.plain if isinstance(content, Text) else Text.from_markup(str(content)).plain
