"""Rows of a study as CSV or JSON, in the order of its points."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Sequence
from typing import Any

from bpusim.study.compare import t95
from bpusim.study.run_point import Row

__all__ = ["rows_csv", "rows_json", "spread"]


def spread(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """(mean, half width of its 95 % confidence interval) over seeds; None where there is none."""
    known = [v for v in values if v is not None]
    if not known:
        return None, None
    if len(known) == 1:
        return known[0], None
    mean = sum(known) / len(known)
    return mean, t95(len(known) - 1) * statistics.stdev(known) / math.sqrt(len(known))


def flat(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Point, status, figures (means, with ``NAME ±`` beside them if there are several seeds), error."""
    out = []
    for row in rows:
        cells = {path: _cell(v) for path, v in row["point"].items()} | {"status": row["status"]}
        for name, values in row.get("measures", {}).items():
            cells[name], half = spread(values)
            if len(values) > 1:
                cells[f"{name} ±"] = half
        out.append(cells | ({"error": row["error"]} if "error" in row else {}))
    return out


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def rows_csv(rows: Sequence[Row]) -> str:
    """A line a row."""
    table = flat(rows)
    names = list(dict.fromkeys(n for cells in table for n in cells))
    names = [n for n in names if n != "error"] + [n for n in names if n == "error"]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in cells.items()} for cells in table)
    return out.getvalue()


def rows_json(rows: Sequence[Row]) -> str:
    """A list of rows as they are."""
    return json.dumps(list(rows), indent=1, ensure_ascii=False) + "\n"
