"""A calibration as tables for people, and as rows for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bpusim.report.plain import markdown_table, markdown_text, plain_table

if TYPE_CHECKING:
    from bpusim.study.calibration import Calibration, RowResult

__all__ = ["calibration_csv", "calibration_json", "print_calibration"]


def print_calibration(done: Calibration, out: TextIO, *, markdown: bool = False) -> None:
    """Parameters, rows, means, and all that was left out or assumed."""
    tables = list(_tables(done))
    notes = list(_notes(done))
    title = f"Machine {done.machine.name}, rows of {done.measurements.file}"
    if markdown:
        out.write(
            "\n".join(
                [
                    markdown_text(title) + "\n",
                    *(markdown_table(t) for t in tables),
                    *(f"* {markdown_text(n)}" for n in notes),
                ]
            )
            + "\n"
        )
        return
    console = Console(file=out, highlight=False)
    console.print(Text(title), soft_wrap=True)
    console.print()
    for table in tables:
        needed = console.measure(table, options=console.options.update(width=10_000)).maximum
        console.width = max(console.width, needed) if not console.is_terminal else console.width
        console.print(table)
        console.print()
    for note in notes:
        console.print(Text(note), soft_wrap=True)


def _tables(done: Calibration) -> Iterator[Table]:
    found = done.found
    if found is not None:
        table = plain_table("Fitted, with 95 % intervals", "path", "value", "from", "to", "±", "started at")
        for k, p in enumerate(done.parameters):
            low, high = found.interval(k)
            value = p.value(found.at[k])
            half = f"{(high - low) / 2 / value:.1%}"
            table.add_row(Text(p.path), p.short(value), p.short(low), p.short(high), half, p.short(p.start))
        yield table
        if len(done.parameters) > 1:
            table = plain_table("Correlations", "", *(p.path for p in done.parameters))
            for k, p in enumerate(done.parameters):
                table.add_row(Text(p.path), *(f"{c:+.2f}" for c in found.correlation[k]))
            yield table
    yield _decode(done)
    yield _first_tokens(done)
    yield _means(done)


def _decode(done: Calibration) -> Table:
    unseen = ("unseen",) if done.found is not None else ()
    table = plain_table(
        "Decode, tok/s", "row", "model", "quant", "GB read", "measured", "simulated", "error", *unseen,
        "efficiency", "bytes + layers", "weights + constant",
    )  # fmt: skip
    for r in done.rows:
        if r.row.decode_tps is None:
            continue
        simple = [_percent(_error(p, r.row.decode_tps)) for p in _formulas(r)]
        own = [_percent(r.error("decode", r.unseen))] if unseen else []
        table.add_row(
            Text(_marked(r, "decode")), Text(r.row.model), Text(r.row.quant), f"{r.recipe.step_bytes / 1e9:.3f}",
            f"{r.row.decode_tps:g}", f"{r.fitted.decode_tps:.2f}", _percent(r.error("decode", r.fitted)), *own, *simple,
        )  # fmt: skip
    return table


def _first_tokens(done: Calibration) -> Table:
    unseen = ("unseen",) if done.found is not None else ()
    table = plain_table("First token, ms", "row", "model", "quant", "prompt", "measured", "simulated", "error", *unseen)
    for r in done.rows:
        if r.row.ttft_ms is None:
            continue
        prompt = str(r.row.prompt) if r.row.prompt is not None else f"{r.row.chunk}?"
        own = [_percent(r.error("ttft", r.unseen))] if unseen else []
        table.add_row(
            Text(_marked(r, "ttft")), Text(r.row.model), Text(r.row.quant), prompt,
            f"{r.row.ttft_ms:g}", f"{r.fitted.ttft_ms:.1f}", _percent(r.error("ttft", r.fitted)), *own,
        )  # fmt: skip
    return table


def _means(done: Calibration) -> Table:
    table = plain_table("Mean absolute error of rows that count", "", "decode", "first token")
    for name, decode, ttft in means(done):
        table.add_row(Text(name), *(f"{v:.1%}" if v is not None else "-" for v in (decode, ttft)))
    return table


def means(done: Calibration) -> list[tuple[str, float | None, float | None]]:
    """(what, of decode rates, of first tokens): mean absolute errors over the rows that count."""
    out: list[tuple[str, float | None, float | None]] = []
    whole = "simulated" if done.found is None else "simulated, fitted to all"
    out.append((whole, done.mean("decode", lambda r: r.fitted), done.mean("ttft", lambda r: r.fitted)))
    if done.found is not None:
        name = "simulated, fitted without the row"
        out.append((name, done.mean("decode", lambda r: r.unseen), done.mean("ttft", lambda r: r.unseen)))
    for name, of in (
        ("constant efficiency, without the row", lambda r: _error(r.efficiency_tps, r.row.decode_tps)),
        ("bytes/BW + layers x o, without the row", lambda r: _error(r.per_layer_tps, r.row.decode_tps)),
        ("weights/BW + constant, without the row", lambda r: _error(r.per_token_tps, r.row.decode_tps)),
    ):
        out.append((name, done.mean("decode", of), None))
    return out


def _notes(done: Calibration) -> Iterator[str]:
    for o in done.outliers:
        yield f"left out: {o}"
    for row, why in done.unusable:
        yield f"not simulated: row {row.id} ({row.model}): {why}"
    alike: dict[str, list[str]] = {}
    for r in done.rows:
        for note in r.notes:
            if not any(o.observation.recipe is r.recipe and note.endswith(o.why) for o in done.outliers):
                alike.setdefault(note, []).append(r.row.id)
    for note, ids in alike.items():
        yield f"row{'s' * (len(ids) > 1)} {', '.join(ids)}: {note}"
    if done.measurements.left_out:
        yield f"{done.measurements.left_out} rows of other boards"
    yield (
        f"*: does not count, see above; unseen: by a fit without the row; the last three columns: formulas, fitted "
        f"without the row; {done.runs} runs"
        if done.found is not None
        else f"*: does not count, see above; {done.runs} runs"
    )


def _formulas(r: RowResult) -> tuple[float | None, ...]:
    return r.efficiency_tps, r.per_layer_tps, r.per_token_tps


def _marked(r: RowResult, kind: str) -> str:
    return r.row.id if r.counted(kind) else f"{r.row.id} *"


def _error(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured - 1 if predicted is not None and measured is not None else None


def _percent(value: float | None) -> str:
    return f"{value:+.1%}" if value is not None else "-"


def _records(done: Calibration) -> list[dict[str, Any]]:
    return [
        {
            "row_id": r.row.id,
            "model": r.row.model,
            "quant": r.row.quant,
            "weight_bytes": r.recipe.weight_bytes,
            "step_bytes": r.recipe.step_bytes,
            "decode_tps": r.row.decode_tps,
            "simulated_decode_tps": r.fitted.decode_tps,
            "decode_error": r.error("decode", r.fitted),
            "unseen_decode_error": r.error("decode", r.unseen),
            "efficiency_decode_error": _error(r.efficiency_tps, r.row.decode_tps),
            "per_layer_decode_error": _error(r.per_layer_tps, r.row.decode_tps),
            "per_token_decode_error": _error(r.per_token_tps, r.row.decode_tps),
            "decode_counts": r.counted("decode"),
            "ttft_ms": r.row.ttft_ms,
            "simulated_ttft_ms": r.fitted.ttft_ms,
            "ttft_error": r.error("ttft", r.fitted),
            "unseen_ttft_error": r.error("ttft", r.unseen),
            "ttft_counts": r.counted("ttft"),
            "notes": " | ".join(r.notes),
        }
        for r in done.rows
    ]


def calibration_csv(done: Calibration) -> str:
    """A row a measured one."""
    records = _records(done)
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def calibration_json(done: Calibration) -> str:
    """All of it."""
    found = done.found
    data: dict[str, Any] = {
        "machine": done.machine.name,
        "measurements": {"file": done.measurements.file, "sha256": done.measurements.digest},
        "parameters": [],
        "means": {name: {"decode": decode, "ttft": ttft} for name, decode, ttft in means(done)},
        "rows": _records(done),
        "outliers": [str(o) for o in done.outliers],
        "not_simulated": {row.id: why for row, why in done.unusable},
        "observations": done.observations,
        "runs": done.runs,
    }
    if found is not None:
        for k, p in enumerate(done.parameters):
            low, high = found.interval(k)
            unit = {"unit": p.dimension} if p.dimension is not None else {}
            value = p.value(found.at[k])
            data["parameters"].append({"path": p.path, "value": value, "low_95": low, "high_95": high, **unit})
        data["correlation"] = found.correlation.tolist()
        data["degrees_of_freedom"] = found.freedom
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"
