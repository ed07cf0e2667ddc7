"""The numbers that matter first, in cards and sentences, and all of a stream's in tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bpusim.report.page.tables import Cell, Table, column, number
from bpusim.report.rows import breakdown_rows, chats_of

__all__ = ["Card", "cards", "stream_tables", "verdicts"]

_CARDS = 6
_VERDICTS = 8


@dataclass(frozen=True, slots=True)
class Card:
    """A number: where it is in the summary, and of which stream it is."""

    key: str
    path: str
    text: str
    unit: str
    of: str


def cards(summary: Mapping[str, Any]) -> list[Card]:
    """No more than six: of several streams the worst."""
    return [c for c in _cards(summary) if c is not None][:_CARDS]


def _cards(summary: Mapping[str, Any]) -> Iterator[Card | None]:
    chats = {_path(summary, name): c for name, c in chats_of(summary).items()}
    streams = summary["streams"]
    frames = {f"streams.{n}": s for n, s in streams.items() if s["kind"] == "frames"}
    ends = {f"streams.{n}.ends.{e}": end for n, s in streams.items() for e, end in s.get("ends", {}).items()}
    if any(c["tpot_mean_ms"] is not None for c in chats.values()):
        total = summary["total"]["decode_tokens_per_s"]
        of = f"{len(chats)} streams together" if len(chats) > 1 else ""
        yield Card("decode_tokens_per_s", "total.decode_tokens_per_s", f"{total:.2f}", "tok/s", of)
    yield from (_worst("p99_ms", {f"{path}.p99_ms": e["p99_ms"]}) for path, e in list(ends.items())[:2])
    yield _worst("ttft_p99_ms", {f"{path}.ttft_p99_ms": c["ttft_p99_ms"] for path, c in chats.items()})
    yield _worst("itl_p99_ms", {f"{path}.itl_p99_ms": c["itl_p99_ms"] for path, c in chats.items()})
    yield _worst("latency_p99_ms", {f"{path}.latency_p99_ms": s["latency_p99_ms"] for path, s in frames.items()})
    heat = summary.get("heat")
    if heat is not None:
        for key in ("energy_per_token_j", "energy_per_frame_j"):
            if heat[key] is not None:
                yield Card(key, f"heat.{key}", f"{heat[key]:.3g}", "J", "")
                break
        node, peak = max(heat["peak_degc"].items(), key=lambda item: item[1])
        yield Card("peak_degc", f"heat.peak_degc.{node}", f"{peak:.1f}", "degC", node)
    dram = summary["dram"]
    yield Card("peak_fraction", "dram.peak_fraction", f"{100 * dram['peak_fraction']:.1f}", "%", dram["preset"])


def _path(summary: Mapping[str, Any], chat: str) -> str:
    if chat in summary["streams"]:
        return f"streams.{chat}"
    stream, _, stage = chat.rpartition(".")
    return f"streams.{stream}.chats.{stage}"


def _worst(key: str, found: Mapping[str, float | None]) -> Card | None:
    known = {path: value for path, value in found.items() if value is not None}
    if not known:
        return None
    path = max(known, key=lambda p: known[p])
    whose = (
        path.rpartition(".")[0].removeprefix("streams.").replace(".ends.", ", to the end of ").replace(".chats.", ".")
    )
    of = f"{whose}, the slowest of {len(known)}" if len(known) > 1 else whose
    return Card(key, path, f"{known[path]:.1f}", "ms", of)


def verdicts(summary: Mapping[str, Any]) -> list[str]:
    """A sentence for each mean latency: its largest causes, those above a twentieth; streams that have the same are
    told together."""
    whose: dict[tuple[str, str], list[str]] = {}
    for row in breakdown_rows(summary):
        largest = sorted(row.ms.items(), key=lambda item: -item[1])
        parts = [f"{cause} {ms / row.total:.0%}" for cause, ms in largest if ms >= row.total / 20][:4]
        whose.setdefault((row.what, f"{row.total:.1f} ms, of which {', '.join(parts)}"), []).append(row.stream)
    out = [f"{what}, {', '.join(names)}: {text}" for (what, text), names in whose.items()]
    return (
        out if len(out) <= _VERDICTS else [*out[:_VERDICTS], f"and {len(out) - _VERDICTS} more, in the table of causes"]
    )


_CHAT = (
    ("tokens", None), ("ttft_mean_ms", 1), ("ttft_p99_ms", 1), ("tpot_mean_ms", 1), ("itl_p50_ms", 1),
    ("itl_p99_ms", 1), ("decode_tokens_per_s", 2), ("tokens_per_s", 2),
)  # fmt: skip
_REQUESTS = (
    ("arrived", None), ("requests", None), ("rejected", None), ("e2e_mean_ms", 1), ("e2e_p99_ms", 1),
    ("under_way_mean", 2), ("under_way_most", None), ("good", None), ("goodput_per_s", 3),
)  # fmt: skip
_FRAMES = (
    ("captured", None), ("frames", None), ("dropped", None), ("lost", None), ("late", None), ("latency_mean_ms", 1),
    ("latency_p50_ms", 1), ("latency_p99_ms", 1), ("fps", 2), ("line_mean", 2), ("line_most", None),
)  # fmt: skip
_ENDS = (("mean_ms", 1), ("p50_ms", 1), ("p99_ms", 1), ("deadline_ms", 0), ("late", None))


def stream_tables(summary: Mapping[str, Any]) -> list[Table]:
    """Chats, their requests, cameras, pipelines."""
    streams, chats = summary["streams"], chats_of(summary)
    frames = {n: s for n, s in streams.items() if s["kind"] == "frames"}
    pipelines = {n: s for n, s in streams.items() if s["kind"] == "pipeline"}
    ends = {f"{n}: {e}": end for n, s in pipelines.items() for e, end in s["ends"].items()}
    total = summary["total"]
    return [
        _table("chats", "Chat streams", _CHAT, chats, total if len(chats) > 1 else None),
        _table("requests", "Requests", _REQUESTS, {n: _asked(c) for n, c in chats.items()}),
        _table("cameras", "Camera streams", _FRAMES, frames),
        _table("pipelines", "Pipelines", (("triggered", None), ("runs", None), ("dropped", None)), pipelines),
        _table("ends", "From the trigger to the end of a stage", _ENDS, ends),
    ]


def _asked(chat: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without good requests where nothing is asked of them."""
    asked = chat["slo_ttft_ms"] is not None or chat["slo_tpot_ms"] is not None
    return chat if asked else {**chat, "good": None, "goodput_per_s": None}


def _table(
    id: str,
    title: str,
    keys: Sequence[tuple[str, int | None]],
    rows: Mapping[str, Mapping[str, Any]],
    total: Mapping[str, Any] | None = None,
) -> Table:
    columns = [column("", "stream"), *(column(k, unit="ms" if k.endswith("_ms") else "", number=True) for k, _ in keys)]
    cells: list[list[Cell | str]] = [[name, *(number(row[k], d) for k, d in keys)] for name, row in rows.items()]
    if total is not None:
        cells.append(["all together", *(number(total[k], d) if k in total else Cell("", None, True) for k, d in keys)])
    return Table(id, title, columns, cells)
