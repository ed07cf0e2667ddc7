"""What became of streams, as tables for a terminal, and where their time went."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bpusim.metrics import ChatStats, ColdStats, FrameStats, PipelineStats, Result
from bpusim.report.plain import plain_table
from bpusim.report.styles import BAD, CAUSE_STYLES, GOOD

__all__ = ["breakdown_tables", "stream_tables"]


def stream_tables(result: Result) -> list[Table]:
    """Chats and their requests, batches, cameras, pipelines, and what was cold."""
    chats = result.chats
    pipelines = {n: s for n, s in result.streams.items() if isinstance(s, PipelineStats)}
    frames = {n: s for n, s in result.streams.items() if isinstance(s, FrameStats)}
    tables = [_chats(chats, result)] if chats else []
    tables += [_requests(chats)] if any(_open(s) for s in chats.values()) else []
    tables += [_batches(result)] if result.batches else []
    tables += [_frames(frames)] if frames else []
    tables += [_pipelines(pipelines)] if pipelines else []
    return tables + _cold(result)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _verdict(text: str, good: bool) -> Text:
    return Text(text, GOOD if good else BAD)


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
            Text(str(s.rejected), BAD if s.rejected else ""),
            _ms(s.e2e_mean_ms),
            _ms(s.e2e_p99_ms),
            f"{s.under_way_mean:.2f}",
            str(s.under_way_most),
            _verdict(f"{s.good / s.requests:.1%}", s.good == s.requests) if asked and s.requests else "-",
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
            _verdict(str(s.dropped + s.lost), not s.dropped + s.lost),
            _verdict(str(s.late), not s.late) if s.deadline_ms is not None else "-",
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
            dropped = Text(str(s.dropped), BAD if s.dropped else "")
            counts = (str(s.triggered), str(s.runs), dropped) if not k else ("", "", "")
            asked = e.deadline_ms is not None
            limit, late = (f"{e.deadline_ms:g}", _verdict(str(e.late), not e.late)) if asked else ("-", "-")
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


def breakdown_tables(result: Result, console: Console) -> list[Table]:
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
    heads = [f"[{CAUSE_STYLES[c]}]{c}[/]" for c in causes]
    cells = {name: [*(_share(row, c) for c in causes), Text(f"{sum(row.values()):.1f}")] for name, row in rows.items()}
    across = plain_table(title, "", *heads, "sum")
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
        for i, cause in enumerate([*heads, "sum"]):
            down.add_row(cause, *(cells[n][i] for n in part))
        tables.append(down)
    return tables


def _share(row: Mapping[str, float], cause: str) -> Text:
    """The largest of a row stands out."""
    return Text(f"{row[cause]:.1f}" if row[cause] else "-", "bold" if row[cause] == max(row.values()) else "")
