"""How tables look on a terminal."""

from __future__ import annotations

from rich.table import Table

__all__ = ["plain_table"]


def plain_table(title: str, *columns: str) -> Table:
    """A table without lines: the first column to the left, numbers to the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for i, c in enumerate(columns):
        table.add_column(c, justify="left" if i == 0 else "right", no_wrap=True)
    return table
