"""Rows of studies that never ran: figures are functions of the point."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Point = dict[str, Any]
Figures = Callable[[Point], Mapping[str, Any]]


def rows_of(points: Iterable[Point], figures: Figures) -> list[dict[str, Any]]:
    """A row a point. A figure is a number, a list of one a seed, or text: the error of a point without a result."""
    rows = []
    for n, point in enumerate(points):
        row: dict[str, Any] = {"key": f"k{n}", "point": point}
        found = figures(point)
        if "error" in found:
            rows.append(row | {"status": found.get("status", "failed"), "error": found["error"]})
            continue
        measures = {name: v if isinstance(v, list) else [v] for name, v in found.items()}
        rows.append(row | {"status": "ok", "measures": measures})
    return rows


def grid(values: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Every combination, the last parameter fastest."""
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def written(rows: Iterable[Mapping[str, Any]], path: Path) -> Path:
    """As a sweep writes them."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
