"""The graph of calls as a picture (SVG): calls of the core on the left, ops on the CPU on the right, what crosses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bpusim.trace.calls import Group, Stop
from bpusim.units import format_quantity

__all__ = ["call_graph_svg"]

_WIDE, _HIGH, _GAP = 330, 58, 42
_LANES = (56, 470)
"""Left edges of the core's and of the CPU's boxes."""
_TOP = 84
_WIDTH = _LANES[1] + _WIDE + 60
_FILLS = ("#e3edf9", "#fdebd8")
_LINES = ("#3b6ea5", "#b8722a")
_PAD = 18
"""Above and below what comes again: room for its frame."""
_LETTERS = 42
"""Of a name in a box."""
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.name{font-weight:600}.small{font-size:11px;fill:#555}"
    ".title{font-size:15px;font-weight:600}"
)


@dataclass(frozen=True, slots=True)
class _Box:
    stop: Stop
    top: int

    @property
    def left(self) -> int:
        return _LANES[self.stop.on_cpu]

    @property
    def middle(self) -> int:
        return self.left + _WIDE // 2


def call_graph_svg(groups: Sequence[Group], title: str) -> str:
    """A box for each call and CPU op, patterns that come again once, with how often; arrows carry the bytes that cross
    between core and CPU."""
    body: list[str] = []
    top = _TOP
    before: _Box | None = None
    for group in groups:
        pad = _PAD if group.count > 1 else 0
        top += pad
        begin = top
        for stop in group.stops:
            box = _Box(stop, top)
            body += _arrow(before, box) if before is not None else []
            body += _box(box)
            before = box
            top += _HIGH + _GAP
        if group.count > 1:
            body += _again(begin, top - _GAP, group.count)
            top += pad
    height = max(top, _TOP + _HIGH) + 4
    lanes = [
        f'<text class="small" x="{x}" y="58">{name}</text>'
        for x, name in zip(_LANES, ("calls of the core", "ops on the CPU"), strict=True)
    ]
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#666"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="{_LANES[0]}" y="32">{escape(title)}</text>',
        *lanes,
    ]
    return "\n".join([*head, *body, "</svg>", ""])


def _short(name: str) -> str:
    """Both ends of a name that is too long for its box."""
    if len(name) <= _LETTERS:
        return name
    half = (_LETTERS - 3) // 2
    return f"{name[:half]}...{name[-half:]}"


def _box(box: _Box) -> list[str]:
    s, x, y = box.stop, box.left, box.top
    ops = "1 op" if s.ops == 1 else f"{s.ops} ops"
    work = f"{ops}, {s.macs / 1e6:.4g} MMAC" if s.macs else ops
    moved = f"reads {format_quantity(s.read, 'size')}, writes {format_quantity(s.written, 'size')}"
    fill, line = _FILLS[s.on_cpu], _LINES[s.on_cpu]
    frame = f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}" rx="6" fill="{fill}" stroke="{line}"/>'
    lines = ((18, "name", _short(s.name)), (34, "small", work), (50, "small", moved))
    return [
        f"<g><title>{escape(s.name)}</title>",
        frame,
        *(f'<text class="{c}" x="{x + 10}" y="{y + dy}">{escape(text)}</text>' for dy, c, text in lines),
        "</g>",
    ]


def _arrow(a: _Box, b: _Box) -> list[str]:
    """From one box to the next; between core and CPU with the bytes of the op on the CPU."""
    y1, y2 = a.top + _HIGH, b.top - 3
    half = y2 - 14  # clear of a frame above, and of one that begins below
    path = f"M{a.middle},{y1} V{half} H{b.middle} V{y2}"
    out = [f'<path d="{path}" fill="none" stroke="#666" marker-end="url(#tip)"/>']
    if b.stop.on_cpu or a.stop.on_cpu:
        size = b.stop.read if b.stop.on_cpu else a.stop.written
        tensors = f", {b.stop.tensors} tensors" if b.stop.on_cpu and b.stop.tensors else ""
        x = (a.middle + b.middle) // 2
        text = f"{format_quantity(size, 'size')}{tensors}"
        out.append(f'<text class="small" x="{x}" y="{half - 5}" text-anchor="middle">{text}</text>')
    return out


def _again(top: int, bottom: int, count: int) -> list[str]:
    """A frame around what comes ``count`` times."""
    left, right = _LANES[0] - 16, _LANES[1] + _WIDE + 10
    frame = f'x="{left}" y="{top - 10}" width="{right - left}" height="{bottom - top + 20}"'
    return [
        f'<rect {frame} rx="10" fill="none" stroke="#888" stroke-dasharray="5 4"/>',
        f'<text class="name" x="{right + 6}" y="{(top + bottom) // 2}">x {count}</text>',
    ]
