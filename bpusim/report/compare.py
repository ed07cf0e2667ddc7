"""A comparison as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bpusim.report.plain import markdown_table, markdown_text, plain_table

__all__ = ["HEADLINES", "headline", "print_comparison"]

HEADLINES = (
    "ttft_mean_ms", "ttft_p99_ms", "tpot_mean_ms", "itl_p99_ms", "e2e_p99_ms", "decode_tokens_per_s", "tokens_per_s",
    "goodput_per_s", "rejected", "latency_mean_ms", "latency_p99_ms", "fps", "dropped", "late", "fairness",
    "occupied_fraction", "achieved_bytes_per_s", "energy_per_token_j",
)  # fmt: skip
"""Figures that are shown unless all are asked for."""


def headline(name: str) -> bool:
    """Whether a figure is one of those that matter first."""
    return name.rpartition(".")[2] in HEADLINES


def print_comparison(
    rows: Sequence[dict[str, Any]], variants: Sequence[str], seeds: int, out: TextIO, *, markdown: bool = False
) -> None:
    """``rows`` of :meth:`bpusim.study.Comparison.rows`: a line a figure; what differs by more than chance is marked."""
    by_figure: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_figure.setdefault(row["figure"], {})[row["variant"]] = row
    whole = _table(by_figure, variants)
    if seeds > 1:
        text = f"means of {seeds} seeds; ±: 95 % confidence of the difference, seed by seed; *: more than chance"
    else:
        text = "one run each: differences are exact for these arrivals; --seeds 10 tells whether others agree"
    if markdown:
        out.write(f"{markdown_table(whole)}\n{markdown_text(text)}\n")
        return
    console = Console(file=out, highlight=False)
    needed = console.measure(whole, options=console.options.update(width=10_000)).maximum
    if needed <= console.width or not console.is_terminal:
        console.width = max(console.width, needed)  # a file is as wide as it needs to be
        console.print(whole)
    else:
        for variant in variants[1:]:
            console.print(_table(by_figure, [variants[0], variant]))
    console.print(text, soft_wrap=True)


def _table(by_figure: Mapping[str, Mapping[str, dict[str, Any]]], variants: Sequence[str]) -> Table:
    table = plain_table(f"Against {variants[0]}", "figure", *variants)
    for figure, cells in by_figure.items():
        if any(c["mean"] for c in cells.values()):
            shown = (_cell(cells[v], first=v == variants[0]) if v in cells else "-" for v in variants)
            table.add_row(Text(figure), *shown)
    return table


def _cell(c: dict[str, Any], *, first: bool) -> str:
    if c["mean"] is None:
        return "-"
    value = f"{c['mean']:.5g}"
    if first or not c["difference"]:
        return value
    relative, half = c["relative"], c["half_width_95"]
    base = abs(c["mean"] - c["difference"])
    change = f"{relative:+.1%}" if relative is not None else f"{c['difference']:+.4g}"
    if half is not None:
        change += f" ±{half / base:.1%}" if relative is not None else f" ±{half:.3g}"
        change += "*" if c["significant"] else ""
    return f"{value} ({change})"
