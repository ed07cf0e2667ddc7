"""Markdown tables of what was measured, and its ratios to what was saved before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["compared", "tables"]


class Column(NamedTuple):
    """A figure: its key, its heading, its decimals, and how it goes with the time the machine takes (s: 1, 1/s: -1)."""

    key: str
    heading: str
    decimals: int
    time: int


_TABLES: Mapping[str, tuple[str, Sequence[Column]]] = {
    "engine": (
        "engine (the run itself; decode: a long run less a short one)",
        (
            Column("device_s_per_cpu_s", "device s per CPU s", 1, -1),
            Column("decode_device_s_per_cpu_s", "decode", 1, -1),
            Column("events_per_token", "events per token", 1, 0),
            Column("decode_events_per_token", "decode", 1, 0),
            Column("decode_events_per_step", "per step of all cores", 1, 0),
            Column("cpu_us_per_op", "CPU us per op", 2, 1),
            Column("decode_cpu_us_per_op", "decode", 2, 1),
            Column("short_peak_mb", "peak MB short", 1, 0),
            Column("peak_mb", "long", 1, 0),
        ),
    ),
    "process": (
        "command (whole process)",
        (
            Column("cpu_s", "CPU s (least)", 2, 1),
            Column("median_cpu_s", "CPU s (median)", 2, 1),
            Column("peak_mb", "peak MB", 1, 0),
        ),
    ),
    "bank": (
        "bank model (a million requests)",
        (Column("cpu_s", "CPU s (least)", 3, 1), Column("median_cpu_s", "CPU s (median)", 3, 1)),
    ),
}


def tables(saved: Mapping[str, Any]) -> str:
    """How fast the machine was, and a table for each kind of case."""
    least, middle, most = (saved["reference_s"][k] for k in ("least", "median", "most"))
    out = [
        f"Python {saved['python']}, {saved['cpus']} CPUs, {saved['runs']} runs each. "
        f"Reference loop (ten million additions): {least:.2f} to {most:.2f} s, median {middle:.2f} s."
    ]
    for kind, (title, columns) in _TABLES.items():
        rows = [
            [name, *(_number(case["figures"].get(c.key), c.decimals) for c in columns)]
            for name, case in saved["cases"].items()
            if case["kind"] == kind
        ]
        if rows:
            out.append(_table([title, *(c.heading for c in columns)], rows))
    return "\n\n".join(out)


def compared(now: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """Each figure's ratio to what it was: raw, and as if the reference loop had taken as long as it did then."""
    rows = list(_ratios(now["cases"], before["cases"]))
    if not rows:
        return "Nothing of this was measured before."
    return _table(["case", "figure", "before", "now", "ratio", "normalised"], rows)


def _ratios(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[list[str]]:
    for name, case in now.items():
        old = before.get(name)
        if old is None or old["kind"] != case["kind"]:
            continue
        slower = case["reference_s"] / old["reference_s"]
        for c in _TABLES[case["kind"]][1]:
            a, b = old["figures"].get(c.key), case["figures"].get(c.key)
            if a and b:
                key = c.key.replace("_", " ")
                raw, fair = b / a, b / a / slower**c.time
                yield [name, key, _number(a, c.decimals), _number(b, c.decimals), f"{raw:.3f}", f"{fair:.3f}"]


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
