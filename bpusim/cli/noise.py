"""The noise of a quantisation plan by layer: a table, JSON or CSV."""

from __future__ import annotations

import csv
import json
from math import inf
from typing import TextIO

from rich.console import Console
from rich.text import Text

from bpusim.compiler.quant_report import LayerNoise, QuantReport
from bpusim.report.plain import plain_table
from bpusim.units import format_quantity

__all__ = ["print_noise"]


def print_noise(report: QuantReport, form: str, out: TextIO) -> None:
    """``form``: table, json or csv."""
    if form == "table":
        _table(report, out)
    elif form == "json":
        figures = {
            "plan": report.plan,
            "bytes_per_s": report.bytes_per_s,
            "layers": [r.to_dict() for r in report.layers],
            "worth_int8": [r.tensor for r in report.ranked],
            "not_read": report.skipped,
            "few_samples": _few(report),
        }
        out.write(json.dumps(figures, indent=1) + "\n")
    else:
        by = ("weights", *report.samples)
        rows = [_flat(r, report.samples, by) for r in report.layers]
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _few(report: QuantReport) -> dict[str, dict[str, float]]:
    """How far fewer samples, or none, lead from all."""
    out = {}
    for by in ("weights", *report.samples[:-1]) if report.samples else ():
        places, change = report.moved(by)
        out[by] = {"ranks_moved": places, "largest_change_db": change}
    return out


def _flat(r: LayerNoise, samples: tuple[str, ...], by: tuple[str, ...]) -> dict[str, object]:
    row = r.to_dict()
    calibrated, ranks = row.pop("calibrated_db"), row.pop("ranks")
    return row | {f"db_{n}": calibrated.get(n) for n in samples} | {f"rank_{n}": ranks.get(n) for n in by}


def _db(value: float | None) -> str:
    return "-" if value is None else "exact" if value == inf else f"{value:.2f}"


def _table(report: QuantReport, out: TextIO) -> None:
    of = [f"dB, {n} sample{'s' * (n != '1')}" for n in report.samples]
    layers = plain_table(
        f"Signal to noise under {report.plan}", "tensor", "class", "rows x k", "width", "bytes", "dB, weights", *of
    )
    for r in report.layers:
        sides = [_db(r.calibrated_db.get(n)) for n in report.samples]
        layers.add_row(Text(r.tensor), r.role, f"{r.rows} x {r.k}", r.width, str(r.bytes), _db(r.sqnr_db), *sides)
    ranked = plain_table(
        "Worth keeping at int8, most dB a byte first",
        "tensor", "dB gained", "bytes more", "us more a pass", "bytes in all", "us in all",
        *(f"place, {n}" for n in ("weights", *report.samples[:-1]) if report.samples),
    )  # fmt: skip
    size, time = 0, 0.0
    for r in report.ranked:
        size, time = size + r.more_bytes, time + r.more_us
        places = [str(r.ranks[n]) for n in ("weights", *report.samples[:-1]) if report.samples]
        ranked.add_row(
            Text(r.tensor), _db(r.gain_db), str(r.more_bytes), f"{r.more_us:.3f}", str(size), f"{time:.3f}", *places
        )
    console = Console(file=out, highlight=False)
    wide = console.options.update(width=10_000)
    console.width = max(console.width, *(console.measure(t, options=wide).maximum for t in (layers, ranked)))
    console.print(layers)
    if report.ranked:
        console.print(ranked)
        rate = format_quantity(report.bytes_per_s, "bandwidth")
        console.print(
            f"us are bytes over {rate}, what a core has alone; keep one by --quant-set TENSOR=int8", soft_wrap=True
        )
    else:
        console.print("every layer is int8 or wider")
    for by, moved in _few(report).items():
        what = "no samples (weights alone)" if by == "weights" else f"{by} sample{'s' * (by != '1')}"
        console.print(
            f"{what} against all: {moved['ranks_moved']} of {len(report.ranked)} places differ, "
            f"a layer by up to {moved['largest_change_db']:.2f} dB",
            soft_wrap=True,
        )
    for name, why in report.skipped.items():
        console.print(Text(f"not read: {name} ({why})"), soft_wrap=True)
