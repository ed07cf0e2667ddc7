"""Rows of a study as CSV, JSON or Parquet, in the order of its points."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bpusim.errors import Place, StudyError, did_you_mean
from bpusim.study.compare import t95
from bpusim.study.run_point import Row

__all__ = ["rows_csv", "rows_json", "rows_parquet", "spread", "write_rows"]


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


def _columns(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """The error last."""
    names = list(dict.fromkeys(n for cells in table for n in cells))
    return [n for n in names if n != "error"] + [n for n in names if n == "error"]


def rows_csv(rows: Sequence[Row]) -> str:
    """A line a row."""
    table = flat(rows)
    names = _columns(table)
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({k: "" if v is None else v for k, v in cells.items()} for cells in table)
    return out.getvalue()


def rows_json(rows: Sequence[Row]) -> str:
    """A list of rows as they are."""
    return json.dumps(list(rows), indent=1, ensure_ascii=False) + "\n"


def rows_parquet(rows: Sequence[Row]) -> bytes:
    """The columns of the CSV, with types: whole numbers, numbers, truth, or text where a column has several kinds.

    Raises :class:`StudyError` if pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise StudyError("pyarrow is not installed", do="install it: pip install 'bpusim[parquet]'") from None
    table = flat(rows)
    columns = {name: _typed([cells.get(name) for cells in table]) for name in _columns(table)}
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def _typed(values: Sequence[Any]) -> list[Any]:
    """As they are if they are of one kind, else as text: a column of Parquet has one."""
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float}:
        return [float(v) if v is not None and float in kinds else v for v in values]
    return list(values) if len(kinds) == 1 else [None if v is None else str(v) for v in values]


_WRITERS: Mapping[str, Callable[[Sequence[Row]], bytes]] = {
    ".csv": lambda rows: rows_csv(rows).encode(),
    ".json": lambda rows: rows_json(rows).encode(),
    ".parquet": rows_parquet,
}


def write_rows(rows: Sequence[Row], out: Path) -> int:
    """Write them to a .csv, .json or .parquet file, whole or not at all; how many. Raises :class:`StudyError`."""
    ending = out.suffix.lower()
    if ending not in _WRITERS:
        what = f"rows cannot be a '{ending}' file" if ending else "the file's name has no ending"
        raise StudyError(what, place=Place(str(out)), do=did_you_mean(ending, list(_WRITERS)))
    data = _WRITERS[ending](rows)
    fresh = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        fresh.write_bytes(data)
        fresh.replace(out)
    except OSError as e:
        fresh.unlink(missing_ok=True)
        raise StudyError(f"cannot write rows: {e.strerror}", place=Place(str(out))) from None
    return len(rows)
