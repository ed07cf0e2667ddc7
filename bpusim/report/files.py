"""A result as text: JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from bpusim.errors import BpusimError
from bpusim.metrics import Result

__all__ = ["requests_csv", "streams_csv", "summary_json"]


def summary_json(result: Result) -> str:
    """``summary.json``: the same scenario and seed give the same bytes."""
    return json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n"


def streams_csv(result: Result) -> str:
    """One row a stream."""
    rows = []
    for name, s in result.streams.items():
        row: dict[str, Any] = {"stream": name}
        for key, value in s.to_dict().items():
            if not isinstance(value, dict):
                row[key] = value
            elif key.endswith("breakdown_ms"):
                prefix = key.removesuffix("breakdown_ms")
                row |= {f"{prefix}{cause}_ms": ms for cause, ms in value.items()}
        rows.append(row)
    keys = list(dict.fromkeys(k for row in rows for k in row))
    return _csv(keys, [[row.get(k) for k in keys] for row in rows])


def requests_csv(result: Result) -> str:
    """One row a finished request, by arrival."""
    keys = ["stream", "request", "prompt_tokens", "output_tokens", "arrival_s", "ttft_ms", "tpot_ms", "e2e_ms"]
    rows = []
    if result.requests is None:
        raise BpusimError("this run kept no requests", do="simulate it with records=True")
    for r in result.requests:
        tpot = (r.end - r.first_token) / (r.tokens - 1) / 1e9 if r.tokens > 1 else None
        rows.append(
            [r.stream, r.index, r.prompt, r.tokens, r.arrived / 1e12, r.ttft / 1e9, tpot, (r.end - r.arrived) / 1e9]
        )
    return _csv(keys, rows)


def _csv(keys: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([["" if v is None else v for v in row] for row in rows])
    return out.getvalue()
