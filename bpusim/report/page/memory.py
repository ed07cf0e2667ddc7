"""Memory on a page: who moved how much, and what lies where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bpusim.ports import BUFFER_KINDS
from bpusim.report.charts.style import named
from bpusim.report.page.tables import Table, column, number, size
from bpusim.units import format_quantity

__all__ = ["masters_table", "memory_part"]


def masters_table(summary: Mapping[str, Any]) -> Table:
    """Bytes by master and kind, both ways."""
    masters = summary["dram"]["by_master"]
    keys = [f"{k}_{way}_bytes" for k in BUFFER_KINDS for way in ("read", "write")]
    keys += ["read_bytes", "write_bytes", "unfinished_bytes", "dropped_bytes"]
    used = [k for k in keys if any(row.get(k) for row in masters.values())]
    names = {k: k.removesuffix("_bytes").replace("write", "written").replace("_", " ") for k in used}
    columns = [
        column("", "master"),
        *(column(k, names[k], number=True) for k in used),
        column("mean_latency_ns", unit="ns", number=True),
    ]
    rows = [
        [name, *(size(row.get(k, 0)) for k in used), number(row.get("mean_latency_ns"), 1)]
        for name, row in masters.items()
    ]
    return Table("masters", "Bytes by master", columns, rows)  # fmt: skip


def memory_part(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A sentence, a bar for each stretch of memory, and tables."""
    memory = summary["memory"]
    resident, usable, blocks = memory["resident_bytes"], memory["usable_bytes"], memory.get("blocks", ())
    colours = named(list(dict.fromkeys(_model(b) for b in blocks)))
    heaps: Mapping[str, Any] = memory.get("heaps", {})
    text = f"{_size(resident)} of {_size(usable)} usable are taken ({resident / usable:.1%})."
    if heaps:
        text += " Blocks lie in heaps, which do not merge."
    maps = [_map("Memory", blocks, 0, usable, colours)] if not heaps else _heap_maps(heaps, blocks, colours)
    return {"text": text, "maps": maps, "tables": [_blocks(blocks), _heaps(heaps), _weights(memory.get("weights", ()))]}


def _heap_maps(
    heaps: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]], colours: Mapping[str, Any]
) -> list[dict[str, Any]]:
    out, base = [], 0
    for name, heap in heaps.items():
        own = [b for b in blocks if b["block"] in heap["blocks_bytes"]]
        base = min((b["base_address"] for b in own), default=base)
        out.append(_map(f"Heap {name}, {_size(heap['size_bytes'])}", own, base, heap["size_bytes"], colours))
    return out


def _map(
    title: str, blocks: Sequence[Mapping[str, Any]], base: int, whole: int, colours: Mapping[str, Any]
) -> dict[str, Any]:
    bars = [
        {
            "left": f"{100 * (b['base_address'] - base) / whole:.3f}",
            "width": f"{100 * b['size_bytes'] / whole:.3f}",
            "colour": colours[_model(b)][0],
            "text": f"{b['block']}: {_size(b['size_bytes'])}",
        }
        for b in blocks
    ]
    return {"title": title, "blocks": bars, "text": "; ".join(b["text"] for b in bars) or "empty"}


def _model(block: Mapping[str, Any]) -> str:
    return str(block["block"]).rpartition(".")[0]


def _size(n: int) -> str:
    return format_quantity(n, "size")


def _blocks(blocks: Sequence[Mapping[str, Any]]) -> Table:
    columns = [column("", "block"), column("", "first address", number=True), column("", "size", number=True)]
    rows = [[b["block"], number(b["base_address"]), size(b["size_bytes"])] for b in blocks]
    return Table("blocks", "What lies where", columns, rows)


def _heaps(heaps: Mapping[str, Any]) -> Table:
    columns = [column("", "heap"), *(column("", n, number=True) for n in ("size", "used", "free in one piece"))]
    keys = ("size_bytes", "used_bytes", "free_bytes")
    return Table("heaps", "Heaps", columns, [[name, *(size(h[k]) for k in keys)] for name, h in heaps.items()])


def _weights(weights: Sequence[Mapping[str, Any]]) -> Table:
    columns = [
        column("", "model"),
        column("", "core"),
        *(column("", n, number=True) for n in ("stay on chip", "streamed")),
    ]
    rows = [[w["model"], w["core"], size(w["resident_bytes"]), size(w["streamed_bytes"])] for w in weights]
    return Table("weights", "Weights", columns, rows)
