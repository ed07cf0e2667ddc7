"""A result as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bpusim.metrics import ChatStats, ColdStats, FrameStats, PipelineStats, Result
from bpusim.report.heat import heat_lines, heat_tables
from bpusim.report.plain import plain_table
from bpusim.report.splits import split_lines, split_table
from bpusim.units import PS_PER_S, format_quantity

__all__ = ["print_result"]


def print_result(result: Result, file: IO[str] | None = None, *, console: Console | None = None) -> None:
    """Write the tables of ``result`` to ``file``; colours only on a terminal that has them (NO_COLOR is honoured)."""
    if console is None:
        console = Console(file=file, width=None if file is None or file.isatty() else 110, highlight=False)
    seconds = result.elapsed / PS_PER_S
    console.print(Text.assemble((result.scenario, "bold"), f": {seconds:.3f} s simulated, {result.events} events"))
    if result.about:
        console.print(result.about, markup=False)
    chats = result.chats
    pipelines = {n: s for n, s in result.streams.items() if isinstance(s, PipelineStats)}
    frames = {n: s for n, s in result.streams.items() if isinstance(s, FrameStats)}
    tables = [_chats(chats, result)] if chats else []
    tables += [_requests(chats)] if any(_open(s) for s in chats.values()) else []
    tables += [_batches(result)] if result.batches else []
    tables += [_frames(frames)] if frames else []
    tables += [_pipelines(pipelines)] if pipelines else []
    tables += _cold(result)
    tables += [*_breakdown(result, console), *_cores(result), _dram(result)]
    tables += [_heaps(result)] if result.heaps else []
    tables += [_weights(result)] if result.weights else []
    tables += [_masters(result)]
    for table in tables:
        console.print()
        console.print(table)
    if result.dram.errors:
        console.print(_known_error(result), markup=False)
    for name, plan in result.splits.items():
        console.print()
        console.print(split_table(name, plan))
        for line in split_lines(plan):
            console.print(line, markup=False)
    if result.heat is not None:
        for table in heat_tables(result.heat):
            console.print()
            console.print(table)
        for line in heat_lines(result.heat):
            console.print(line, markup=False, soft_wrap=True)
    console.print()
    for name, c in result.cores.items():
        for line in c.load_log:
            console.print(f"{name}: {line}", markup=False, soft_wrap=True)
    for w in result.warnings:
        console.print(Text.assemble(("warning", "yellow"), f" ({w.code}): {w.text}"), soft_wrap=True)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %" if value < 0.1 else f"{100 * value:.1f} %"


def _chats(chats: Mapping[str, ChatStats], result: Result) -> Table:
    table = plain_table("Chat streams", "stream", "tokens", "TTFT ms", "TPOT ms", "ITL p99 ms", "decode tok/s", "tok/s")
    for name, s in chats.items():
        table.add_row(
            Text(name),
            str(s.tokens),
            _ms(s.ttft_mean_ms),
            _ms(s.tpot_mean_ms),
            _ms(s.itl_p99_ms),
            f"{s.decode_tokens_per_s:.2f}",
            f"{s.tokens_per_s:.2f}",
        )
    if len(chats) > 1:
        tokens = str(sum(s.tokens for s in chats.values()))
        table.add_row(
            "total", tokens, "", "", "", f"{result.decode_tokens_per_s:.2f}", f"{result.tokens_per_s:.2f}", style="bold"
        )
    return table


def _open(s: ChatStats) -> bool:
    """Whether its requests are more than one after the other."""
    return s.under_way_most > 1 or s.rejected > 0 or _asked(s)


def _asked(s: ChatStats) -> bool:
    """Whether anything is asked of its requests."""
    return s.slo_ttft_ms is not None or s.slo_tpot_ms is not None


def _requests(chats: Mapping[str, ChatStats]) -> Table:
    names = ("arrived", "answered", "rejected", "E2E ms", "p99 ms", "under way", "most", "good", "good/s")
    table = plain_table("Requests", "stream", *names)
    for name, s in chats.items():
        asked = _asked(s)
        table.add_row(
            Text(name),
            str(s.arrived),
            str(s.requests),
            str(s.rejected),
            _ms(s.e2e_mean_ms),
            _ms(s.e2e_p99_ms),
            f"{s.under_way_mean:.2f}",
            str(s.under_way_most),
            f"{s.good / s.requests:.1%}" if asked and s.requests else "-",
            f"{s.goodput_per_s:.3f}" if asked else "-",
        )
    return table


def _batches(result: Result) -> Table:
    table = plain_table("Batches", "model", "decode steps", "sequences in one", "at most")
    for name, b in result.batches.items():
        table.add_row(Text(name), str(b.steps), f"{b.sequences_mean:.2f}", str(b.batch))
    return table


def _frames(frames: Mapping[str, FrameStats]) -> Table:
    table = plain_table(
        "Camera streams", "stream", "captured", "through", "dropped", "late", "latency ms", "p99 ms", "frames/s"
    )
    for name, s in frames.items():
        table.add_row(
            Text(name),
            str(s.captured),
            str(s.frames),
            str(s.dropped + s.lost),
            str(s.late) if s.deadline_ms is not None else "-",
            _ms(s.latency_mean_ms),
            _ms(s.latency_p99_ms),
            f"{s.fps:.2f}",
        )
    return table


def _pipelines(pipelines: Mapping[str, PipelineStats]) -> Table:
    names = ("triggered", "through", "dropped", "to the end of", "ms", "p99 ms", "deadline", "late")
    table = plain_table("Pipelines", "stream", *names)
    for name, s in pipelines.items():
        for k, (stage, e) in enumerate(s.ends.items()):
            counts = (str(s.triggered), str(s.runs), str(s.dropped)) if not k else ("", "", "")
            limit, late = (f"{e.deadline_ms:g}", str(e.late)) if e.deadline_ms is not None else ("-", "-")
            table.add_row(Text(name if not k else ""), *counts, Text(stage), _ms(e.mean_ms), _ms(e.p99_ms), limit, late)
    return table


def _every_cold(result: Result) -> dict[str, tuple[str, ColdStats]]:
    """(whose times, those that waited for weights to load) by stream, or by stage of a pipeline."""
    out = {name: ("first tokens", s.cold) for name, s in result.chats.items()}
    for name, s in result.streams.items():
        if isinstance(s, FrameStats):
            out[name] = ("frames", s.cold)
        elif isinstance(s, PipelineStats):
            out |= {f"{name}: to the end of {stage}": ("runs", e.cold) for stage, e in s.ends.items()}
    return {name: entry for name, entry in out.items() if entry[1].count}


def _cold(result: Result) -> list[Table]:
    every = _every_cold(result)
    if not every:
        return []
    table = plain_table("Cold: waited for weights", "stream", "what", "number", "ms", "in means and p99")
    for name, (what, cold) in every.items():
        table.add_row(Text(name), what, str(cold.count), _ms(cold.mean_ms), "no")
    return [table]


def _breakdown(result: Result, console: Console) -> list[Table]:
    """Causes across, or down where they are too wide for the terminal; nothing before the first token or frame."""
    rows: dict[str, Mapping[str, float]] = {}
    for name, c in result.chats.items():
        rows |= {f"{name}: first token": c.ttft_breakdown_ms} if c.ttft_mean_ms is not None else {}
        rows |= {f"{name}: each token": c.breakdown_ms} if c.tpot_mean_ms is not None else {}
    for name, s in result.streams.items():
        if isinstance(s, FrameStats) and s.latency_mean_ms is not None:
            rows[f"{name}: a frame"] = s.breakdown_ms
        elif isinstance(s, PipelineStats):
            ends = {stage: e for stage, e in s.ends.items() if e.mean_ms is not None}
            rows |= {f"{name}: to the end of {stage}": e.breakdown_ms for stage, e in ends.items()}
    rows |= {f"{name}: cold {what}": cold.breakdown_ms for name, (what, cold) in _every_cold(result).items()}
    if not rows:
        return []
    title = "Where the time goes, ms"
    causes = [c for c in next(iter(rows.values())) if any(row[c] for row in rows.values())]
    cells = {
        name: [*(f"{row[c]:.1f}" if row[c] else "-" for c in causes), f"{sum(row.values()):.1f}"]
        for name, row in rows.items()
    }
    across = plain_table(title, "", *causes, "sum")
    for name, row_cells in cells.items():
        across.add_row(Text(name), *row_cells)
    if console.measure(across, options=console.options.update(width=10_000)).maximum <= console.width:
        return [across]
    each = max(len(n) for n in cells) + 2
    fit = max((console.width - max(map(len, causes)) - 2) // each, 1)
    names = list(cells)
    tables = []
    for at in range(0, len(names), fit):
        part = names[at : at + fit]
        down = plain_table(title if not at else "", "", *(escape(n) for n in part))
        for i, cause in enumerate([*causes, "sum"]):
            down.add_row(cause, *(cells[n][i] for n in part))
        tables.append(down)
    return tables


def _cores(result: Result) -> list[Table]:
    table = plain_table("Cores", "core", "calls", "occupied", "array busy", "array issued", "array useful")
    why = plain_table("What cores wait for", "core", "memory, in calls", "host", "another core", "no work")
    for name, c in result.cores.items():
        fractions = (c.occupied_fraction, c.mac_busy_fraction, c.mac_issued_fraction, c.mac_utilization)
        table.add_row(name, str(c.calls), *map(_percent, fractions))
        why.add_row(name, *(_percent(c.waits[w]) for w in ("dram", "host", "other_core", "no_work")))
    return [table, why]


def _heaps(result: Result) -> Table:
    table = plain_table("Heaps", "heap", "size", "used", "free in one piece", "blocks")
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for name, h in result.heaps.items():
        cells = (format_quantity(n, "size") for n in (h.bytes, h.used, h.free))
        table.add_row(Text(name), *cells, Text(", ".join(h.blocks) or "-"))
    return table


def _weights(result: Result) -> Table:
    table = plain_table("Weights", "model", "core", "stay on chip", "streamed")
    for w in result.weights:
        sizes = (format_quantity(n, "size") for n in (w.resident, w.streamed))
        table.add_row(Text(w.model), w.core, *sizes)
    return table


def _masters(result: Result) -> Table:
    table = plain_table("Masters of the memory", "master", "moved", "of all", "mean latency", "dropped")
    dram = result.dram
    every = sum(dram.channel_bytes.values())
    for name, n in sorted(dram.channel_bytes.items()):
        table.add_row(
            Text(name),
            format_quantity(n, "size"),
            _percent(n / every if every else 0.0),
            f"{dram.latency[name] / 1000:.0f} ns" if name in dram.latency else "-",
            format_quantity(dram.dropped[name], "size") if name in dram.dropped else "-",
        )
    return table


def _known_error(result: Result) -> str:
    dram = result.dram
    parts = [f"{kind} {mean:g} % (most {most:g})" for kind, (mean, most) in dram.errors.items()]
    return f"Known error of the {dram.fidelity} model, against {dram.against}: {', '.join(parts)}"


def _dram(result: Result) -> Table:
    d = result.dram.to_dict()
    title = f"Memory: {d['preset']}, {d['fidelity']} model"
    table = plain_table(title, "read", "written", "achieved", "of peak", "resident", "usable")
    table.columns[0].justify = "right"
    table.add_row(
        format_quantity(d["read_bytes"], "size"),
        format_quantity(d["write_bytes"], "size"),
        format_quantity(d["achieved_bytes_per_s"], "bandwidth"),
        _percent(d["peak_fraction"]),
        format_quantity(result.resident_bytes, "size"),
        format_quantity(result.usable_bytes, "size"),
    )
    return table
