"""``report.html``: one file that shows a result to people, without network, on any screen, in print and read aloud.

It is made from the other files of the folder alone, and the same folder gives the same bytes.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

from bpusim.errors import BpusimError
from bpusim.metrics.definitions import Definition, definition
from bpusim.report.charts import KINDS, inline_svg
from bpusim.report.page.heat import heat_part
from bpusim.report.page.memory import masters_table, memory_part
from bpusim.report.page.numbers import cards, stream_tables, verdicts
from bpusim.report.page.ops import ops_table
from bpusim.report.page.tables import Table, cause_cells, column, number, percent, plain
from bpusim.report.rows import breakdown_rows
from bpusim.report.view import View

__all__ = ["report_html"]


def report_html(view: View) -> str:
    """The page. Raises :class:`BpusimError` for a result without series."""
    import jinja2
    from markupsafe import Markup

    view.needed("machine")
    glossary = _Glossary()
    page = files(__name__)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    charts = _charts(view)
    context = _context(view) | {
        "charts": {k: {size: Markup(svg) for size, svg in c.items()} for k, c in charts.items()},
        "css": Markup((page / "report.css").read_text(encoding="utf-8").strip()),
        "js": Markup((page / "report.js").read_text(encoding="utf-8").strip()),
        "define": glossary.define,
        "glossary": glossary.used,
    }
    context["sections"] = [(i, title) for i, title in _SECTIONS if _is_there(i, context)]
    template = environment.from_string((page / "report.html.j2").read_text(encoding="utf-8"))
    return template.render(context) + "\n"


_MOST_SVG = 600_000
"""Bytes of charts in a page that is to be below a megabyte."""
_SECTIONS = (
    ("numbers", "Numbers"), ("time", "Where time goes"), ("latencies", "Latencies"), ("bandwidth", "Bandwidth"),
    ("heat", "Heat"), ("cores", "Cores"), ("ops", "Ops"), ("memory", "Memory"), ("reproduce", "Reproduce"),
    ("definitions", "Definitions"),
)  # fmt: skip


def _is_there(section: str, context: Mapping[str, Any]) -> bool:
    drawn = {"time": "breakdown", "latencies": "latency", "bandwidth": "bandwidth"}
    if section in drawn:
        return bool(context["charts"][drawn[section]])
    return bool(context[section]) if section in ("heat", "ops") else True


class _Glossary:
    """Definitions that the page has asked for."""

    def __init__(self) -> None:
        self._used: dict[str, Definition] = {}

    def define(self, key: str) -> Definition | None:
        """That of a figure, if it is one."""
        found = definition(key)
        if found is not None:
            self._used[key] = found
        return found

    def used(self) -> list[Definition]:
        """All of them so far, by name."""
        return sorted(self._used.values(), key=lambda d: (d.name.lower(), d.key))


def _charts(view: View) -> dict[str, dict[str, str]]:
    """For wide and for narrow screens, by kind; empty of what a run has nothing of. Where that would be too much for a
    page, one for all screens."""
    charts: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for kind, sizes in charts.items():
        with suppress(BpusimError):
            sizes |= {"wide": inline_svg(view, kind), "narrow": inline_svg(view, kind, narrow=True)}
    if sum(len(svg) for sizes in charts.values() for svg in sizes.values()) > _MOST_SVG:
        return {kind: {"any": sizes["wide"]} if sizes else {} for kind, sizes in charts.items()}
    return charts


def _context(view: View) -> dict[str, Any]:
    summary, manifest = view.summary, view.manifest
    dram = summary["dram"]
    return {
        "scenario": summary["scenario"],
        "about": summary["about"],
        "version": manifest["versions"]["bpusim"],
        "meta": [
            f"{summary['simulated_s']:.3f} s simulated",
            f"machine {manifest['machine']}",
            f"{dram['preset']}, {dram['fidelity']} model",
            f"{summary['events']} events",
            f"seed {summary['seed']}",
        ],
        "cards": cards(summary),
        "verdicts": verdicts(summary),
        "warnings": summary["warnings"],
        "streams": stream_tables(summary),
        "breakdown": _breakdown(summary),
        "percentiles": _percentiles(view),
        "bandwidth_text": _bandwidth_text(view),
        "masters": masters_table(summary),
        "heat": heat_part(summary) if view.thermal is not None else None,
        "cores": _cores(summary),
        **ops_table(view),
        "memory": memory_part(summary),
        "command": _command(manifest),
        "versions": plain("versions", "Made with", ("program", "version"), manifest["versions"].items()),
        "inputs": plain("inputs", "Made from", ("file", "SHA-256"), manifest["inputs"].items()),
    }


def _command(manifest: Mapping[str, Any]) -> str:
    file = next(iter(manifest["inputs"]))
    words = ["bpusim", "run", file, *(w for text in manifest["overrides"] for w in ("--set", text)), "-o", "FOLDER"]
    return shlex.join(words)


def _breakdown(summary: Mapping[str, Any]) -> Table:
    rows = breakdown_rows(summary)
    used, heads = cause_cells([r.ms for r in rows])
    columns = [column("", "mean of"), column("", "stream"), *heads, column("", "sum", number=True)]
    return Table(
        "breakdown",
        "Mean latencies by cause, ms",
        columns,
        [[r.what, r.stream, *(number(r.ms.get(c, 0.0), 2) for c in used), number(r.total, 2)] for r in rows],
    )


def _percentiles(view: View) -> Table:
    rows = []
    for entry in view.needed("latencies"):
        ms: Sequence[float] = entry["ms"]
        table = view.percentiles(entry)
        cells = [number(table[f"p{q}"], 3) for q in (50, 90, 95, 99)]
        rows.append(
            [entry["stream"], entry["what"], number(entry["count"]), number(ms[0], 3), *cells, number(ms[-1], 3)]
        )
    names = ["least", "median", "p90", "p95", "p99", "most"]
    columns = [column("", "stream"), column("", "of"), *(column("", n, number=True) for n in ("number", *names))]
    return Table("percentiles", "Percentiles, ms", columns, rows)


def _bandwidth_text(view: View) -> str:
    dram, machine = view.summary["dram"], view.needed("machine")
    text = (
        f"Achieved {dram['achieved_bytes_per_s'] / 1e9:.1f} GB/s, {dram['peak_fraction']:.1%} of the peak, on average. "
    )
    alone = machine["core_alone_bytes_per_s"] / 1e9
    text += f"One core alone gets {alone:.1f} GB/s"
    if machine["cores"] > 1:
        both = machine["channel_capacity_bytes_per_s"] / 1e9
        text += f", {machine['cores']} cores that read at once {both:.1f} GB/s together"
    return text + "; bins are means, so a bin with gaps between calls is lower."


def _cores(summary: Mapping[str, Any]) -> list[Table]:
    keys = ("occupied_fraction", "mac_busy_fraction", "mac_issued_fraction", "mac_utilization")
    cores = summary["cores"]
    use = Table(
        "core-use",
        "How the cores were used",
        [column("", "core"), column("calls", number=True), *(column(k, number=True) for k in keys)],
        [[name, number(c["calls"]), *(percent(c[k]) for k in keys)] for name, c in cores.items()],
    )
    waits = {"dram": "memory, in calls", "host": "host", "other_core": "another core", "no_work": "no work"}
    why = Table(
        "core-waits",
        "What the cores waited for, parts of the time",
        [column("", "core"), *(column("waits", title, number=True) for title in waits.values())],
        [[name, *(percent(c["waits"][w]) for w in waits)] for name, c in cores.items()],
    )
    return [use, why]
