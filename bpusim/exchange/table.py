"""CSV files by line: named columns, and every cell that is wrong told with its place."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from bpusim.errors import Place, Problem, TraceError

__all__ = ["MOST", "Line", "read_lines", "unique", "whole"]

MOST = 2**53
"""Numbers in a trace stay below this."""
_SHOWN = 40
"""Characters of a bad cell that a message repeats."""


@dataclass(frozen=True, slots=True)
class Line:
    """A row that is not empty, with its line number."""

    number: int
    cells: Sequence[str]


def read_lines(path: Path) -> list[Line]:
    """Rows of a CSV file, cells stripped, empty rows left out; the first is the header.

    Raises :class:`TraceError` for a file that is not text or has no rows below its header.
    """
    place = Place(str(path))
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as e:
        raise TraceError(f"cannot read the file: {e.strerror}", place=place) from None
    except UnicodeDecodeError:
        raise TraceError("not a CSV file: it is not UTF-8 text", place=place) from None
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    lines = []
    while True:
        begin = reader.line_num + 1
        try:
            cells = [c.strip() for c in next(reader)]
        except StopIteration:
            break
        except csv.Error as e:
            raise TraceError(f"not a row of CSV: {e}", place=Place(str(path), begin)) from None
        if any(cells):
            lines.append(Line(begin, cells))
    if len(lines) < 2:
        what = "the file has a header and no rows" if lines else "the file is empty"
        raise TraceError(what, place=place, do="give it a header and a row for each op")
    return lines


def whole(text: str, name: str, place: Place, problems: list[Problem], *, least: int = 0) -> int:
    """``text`` as a whole number of ``least`` or more; else a problem, and ``least``."""
    try:
        value = Decimal(text)
        if value.is_finite() and value == value.to_integral_value() and least <= value < MOST:
            return int(value)
    except InvalidOperation:
        pass
    what = f"{name} is '{text[:_SHOWN]}'" if text else f"{name} is empty"
    problems.append(Problem(what, place, f"give a whole number of {least} or more"))
    return least


def unique(names: Sequence[str]) -> list[str]:
    """The same names; those that were there before are numbered, as in ``conv#2``."""
    given, taken, last = set(names), set[str](), dict[str, int]()
    out = []
    for name in names:
        new, k = name, last.get(name, 1)
        while new in taken or (new != name and new in given):
            k += 1
            new = f"{name}#{k}"
        last[name] = k
        taken.add(new)
        out.append(new)
    return out
