"""Tables of a page: cells with the text that is shown and the number that they are sorted by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bpusim.metrics import CAUSES
from bpusim.metrics.definitions import definition
from bpusim.units import format_quantity

__all__ = ["Cell", "Column", "Table", "cause_cells", "column", "count", "number", "percent", "plain", "size"]


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, and what it is sorted by if not by its text."""

    text: Any
    value: float | int | None = None
    number: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """``key``: of its definition; empty if its title says all."""

    key: str
    title: str
    unit: str
    number: bool
    sorted: str = ""
    """``ascending`` or ``descending``, if rows come so."""


class Table:
    """Rows of cells under columns; text among them becomes a cell."""

    def __init__(self, id: str, title: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell | str]]) -> None:
        self.id, self.title, self.columns = id, title, columns
        self.rows = [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in rows]


def column(key: str, title: str | None = None, unit: str = "", *, number: bool = False, sorted: str = "") -> Column:
    """By the name of its figure, unless there is a title."""
    found = definition(key)
    return Column(key, title or (found.name if found else key), unit, number, sorted)


def _short(value: float | int) -> float | int:
    """To sort by; six digits do."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def number(value: float | int | None, digits: int | None = None) -> Cell:
    """With so many decimals; ``-`` where there is none."""
    if value is None:
        return Cell("-", None, True)
    text = str(value) if digits is None else f"{value:,.{digits}f}".replace(",", "\u202f")
    return Cell(text, _short(value), True)


def percent(value: float) -> Cell:
    """A fraction."""
    return Cell(f"{100 * value:.2f} %" if value < 0.1 else f"{100 * value:.1f} %", _short(value), True)


def size(value: int) -> Cell:
    """Bytes."""
    return Cell(format_quantity(value, "size") if value else "-", value, True)


def count(value: int) -> Cell:
    """A large number in four digits."""
    for worth, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= worth:
            return Cell(f"{value / worth:.4g} {unit}", value, True)
    return Cell(str(value) if value else "-", value, True)


def plain(id: str, title: str, heads: Sequence[str], rows: Iterable[tuple[str, Any]]) -> Table:
    """Names and values as text."""
    return Table(id, title, [column("", h) for h in heads], [[a, str(b)] for a, b in rows])


def cause_cells(tables: Sequence[Mapping[str, float]]) -> tuple[list[str], list[Column]]:
    """The causes that any of the tables has, and their columns."""
    used = [c for c in CAUSES if any(t.get(c) for t in tables)]
    return used, [column(f"cause.{c}", number=True) for c in used]
