"""What matters first of a result, in a few lines: latencies and rates, the largest causes, channel, memory, heat."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from bpusim.metrics import ChatStats, FrameStats, HeatStats, PipelineStats, Result
from bpusim.report.plain import plain_table
from bpusim.report.styles import BAD, CAUSE_STYLES, GOOD, WARN
from bpusim.units import PS_PER_S, format_quantity

__all__ = ["glance_table"]

_STREAMS = 8
"""So many streams, and as many lines of causes, are worth a line here; the tables have all."""
_LARGEST = 2
"""Causes that are named."""


def glance_table(result: Result) -> Table:
    """A line a stream, and one each for causes, channel, memory, heat and warnings."""
    table = plain_table("At a glance", "", "")
    table.columns[1].justify, table.columns[1].no_wrap = "left", False
    for name, s in list(result.streams.items())[:_STREAMS]:
        for k, parts in enumerate(_stream(s)):
            table.add_row(Text(name if not k else ""), _joined(parts))
    if len(result.streams) > _STREAMS:
        table.add_row("", f"and {len(result.streams) - _STREAMS} streams more, below")
    if len(result.chats) > 1 and result.decode_tokens_per_s:
        table.add_row("all chats", f"{result.decode_tokens_per_s:.2f} tok/s")
    for k, line in enumerate(_causes(result)[:_STREAMS]):
        table.add_row("causes" if not k else "", line)
    d = result.dram.to_dict()
    rate, peak = (format_quantity(round(d[f"{k}_bytes_per_s"]), "bandwidth") for k in ("achieved", "peak"))
    table.add_row("DRAM", f"{rate} of {peak}, {100 * d['peak_fraction']:.1f} % of the peak")
    used, usable = (format_quantity(n, "size") for n in (result.resident_bytes, result.usable_bytes))
    table.add_row("memory", f"{used} of {usable} usable, {100 * result.resident_bytes / result.usable_bytes:.1f} %")
    if result.heat is not None:
        table.add_row("heat", _joined(_heat(result.heat)))
    if result.warnings:
        table.add_row("warnings", Text(f"{len(result.warnings)}, at the end", WARN))
    return table


_Parts = list[str | Text]


def _joined(parts: _Parts) -> Text:
    return Text(", ").join(Text(p) if isinstance(p, str) else p for p in parts)


def _stream(s: ChatStats | FrameStats | PipelineStats) -> list[_Parts]:
    """Its lines."""
    if isinstance(s, PipelineStats):
        return _pipeline(s)
    return [_frames(s) if isinstance(s, FrameStats) else _chat(s)]


def _chat(s: ChatStats) -> _Parts:
    out: _Parts = []
    if s.ttft_mean_ms is not None:
        out.append(f"TTFT {s.ttft_mean_ms:.1f} ms")
    if s.tpot_mean_ms is not None:
        out += [f"TPOT {s.tpot_mean_ms:.1f} ms", f"{s.decode_tokens_per_s:.2f} tok/s"]
    out = out or [f"{s.tokens} tokens" if s.tokens else "no token yet"]
    if s.rejected:
        out.append(Text(f"{s.rejected} requests rejected", BAD))
    if s.requests and (s.slo_ttft_ms is not None or s.slo_tpot_ms is not None):
        missed = s.requests - s.good
        out.append(Text(f"{missed} of {s.requests} missed the SLO", BAD) if missed else Text("SLO met", GOOD))
    return out


def _frames(s: FrameStats) -> _Parts:
    out: _Parts = [f"{s.fps:.2f} frames/s"] if s.frames else ["no frame yet"]
    if s.latency_p99_ms is not None:
        out.append(f"p99 {s.latency_p99_ms:.1f} ms")
    gone = s.dropped + s.lost
    out.append(Text(f"{gone} of {s.captured + s.lost} dropped", BAD) if gone else Text("none dropped", GOOD))
    if s.deadline_ms is not None and s.frames:
        out.append(_late(s.late, s.frames))
    return out


def _pipeline(s: PipelineStats) -> list[_Parts]:
    lines: list[_Parts] = []
    for stage, e in s.ends.items():
        if e.mean_ms is not None and e.p99_ms is not None:
            late = [_late(e.late, s.runs)] if e.deadline_ms is not None else []
            lines.append([f"{e.mean_ms:.1f} ms to the end of {stage}", f"p99 {e.p99_ms:.1f} ms", *late])
    lines = lines or [["no run has ended"]]
    if s.dropped:
        lines[0].append(Text(f"{s.dropped} of {s.triggered} dropped", BAD))
    return lines


def _late(late: int, all_: int) -> Text:
    return Text(f"{late} of {all_} late", BAD) if late else Text("none late", GOOD)


def _causes(result: Result) -> list[Text]:
    """The largest causes of what each stream waits for; streams of which the same is said share a line."""
    who: dict[tuple[str, str], list[str]] = {}
    said: dict[tuple[str, str], Text] = {}
    for name, s in result.streams.items():
        for what, breakdown in _waits(s):
            largest = _largest(breakdown)
            key = what, largest.plain
            who.setdefault(key, []).append(name)
            said[key] = largest
    return [Text(f"{key[0]} of {', '.join(names)}: ") + said[key] for key, names in who.items()]


def _waits(s: ChatStats | FrameStats | PipelineStats) -> list[tuple[str, Mapping[str, float]]]:
    """What somebody waits for, and where that time goes."""
    if isinstance(s, PipelineStats):
        return [(f"time to {stage}", e.breakdown_ms) for stage, e in s.ends.items() if e.mean_ms]
    if isinstance(s, FrameStats):
        return [("a frame", s.breakdown_ms)] if s.latency_mean_ms else []
    if s.tpot_mean_ms:
        return [("TPOT", s.breakdown_ms)]
    return [("TTFT", s.ttft_breakdown_ms)] if s.ttft_mean_ms else []


def _largest(breakdown: Mapping[str, float]) -> Text:
    """``dram 52.4 ms (60 %), contention 25.9 ms (29 %)``."""
    whole = sum(breakdown.values())
    first = sorted((c for c in breakdown if breakdown[c]), key=lambda c: -breakdown[c])[:_LARGEST]
    return Text(", ").join(
        Text.assemble((c, CAUSE_STYLES[c]), f" {breakdown[c]:.1f} ms ({100 * breakdown[c] / whole:.0f} %)")
        for c in first
    )


def _heat(heat: HeatStats) -> _Parts:
    node = max(heat.peak_degc, key=lambda n: heat.peak_degc[n])
    out: _Parts = [f"{heat.mean_w:.2f} W", f"{node} up to {heat.peak_degc[node]:.1f} degC"]
    slow = max(heat.throttled.values(), default=0)
    slowed = f"slowed down {slow / PS_PER_S:.1f} of {heat.elapsed / PS_PER_S:.1f} s"
    out.append(Text(slowed, WARN) if slow else Text("never slowed down", GOOD))
    return [*out, Text("SHUT DOWN", BAD)] if heat.shutdown else out
