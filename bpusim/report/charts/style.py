"""How charts look: sizes, colours that can be told apart by everybody, and SVG that is the same bytes every time.

Colours of causes are Okabe and Ito's (Color Universal Design, 2008), all others Paul Tol's *bright* scheme and three
more. Causes beyond eight are lighter kin of the one they belong to, hatched. A cause has one colour in every chart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bpusim.metrics import CAUSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "CAUSE_COLOURS",
    "GRID",
    "INK",
    "MUTED",
    "NARROW",
    "PAPER",
    "WIDE",
    "Size",
    "hatch",
    "legend_above",
    "legend_height",
    "look",
    "named",
    "numbered",
    "sheet",
    "shown",
    "themed",
]

INK, MUTED, GRID, PAPER = "#1b1c1f", "#5b5f67", "#dadde3", "#fefefd"
"""Text, lesser text, lines, background: in a page its style sheet says what they are."""
_THEMED = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)", PAPER: "var(--paper)"}

CAUSE_COLOURS: Mapping[str, str] = dict(
    zip(
        CAUSES,
        (
            "#0072b2", "#e69f00", "#f3cf80", "#d55e00", "#a3243b", "#e0919e", "#56b4e9", "#009e73", "#cc79a7",
            "#7a55a6", "#b9a3d8", "#8c6d46", "#d9cb2f", "#ece6a0", "#8b9199", "#bcc1c7", "#5f6368",
        ),
        strict=True,
    )
)  # fmt: skip
_HATCHED = {"scratchpad": "///", "wakeup": "///", "sync": "\\\\\\", "batching": "///", "pacing": "\\\\\\"}
_NAMED = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#8c6d46", "#44aa99", "#999fa6", "#d08a4e",
)  # fmt: skip
_SALT = "bpusim"


@dataclass(frozen=True, slots=True)
class Size:
    """A chart's width in inches (72 units each), and whether it is for a phone: panels one below the other."""

    width: float
    narrow: bool = False


WIDE, NARROW = Size(10.2), Size(3.9, narrow=True)


def hatch(cause: str) -> str:
    """The pattern over a cause's colour; empty for most."""
    return _HATCHED.get(cause, "")


def named(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """(colour, hatch) of each of these, in their order; hatched where colours come again."""
    patterns = ("", "///", "\\\\\\", "xxx", "...")
    n = len(_NAMED)
    return {name: (_NAMED[k % n], patterns[k // n % len(patterns)]) for k, name in enumerate(names)}


def shown(name: str, most: int = 32) -> str:
    """A user's name as a label: not too long, and not with ``_`` in front, which matplotlib would leave out."""
    short = name if len(name) <= most else f"{name[: most // 2 - 1]}\u2026{name[-(most // 2) :]}"
    return f"\u200a{short}" if short.startswith("_") else short


_RC: dict[str, Any] = {
    "svg.hashsalt": _SALT,
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelsize": 8.5,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,
    "hatch.linewidth": 0.7,
    "figure.facecolor": PAPER,
    "savefig.facecolor": "auto",
    "lines.solid_capstyle": "round",
}


@contextmanager
def look() -> Iterator[None]:
    """The look of charts, whatever the user's own settings of matplotlib are; they come back behind it."""
    import matplotlib

    settings: Any = {
        k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith(("backend", "interactive"))
    }
    with matplotlib.rc_context(settings | _RC):
        yield


def columns(labels: Sequence[str], size: Size) -> int:
    """So many of these labels stand side by side in a legend above a chart."""
    return max(int((size.width * 72 - 20) / (max(map(len, labels), default=1) * 5.0 + 34)), 1)


def legend_height(labels: Sequence[str], size: Size) -> float:
    """Inches of it."""
    return 0.19 * -(-len(labels) // columns(labels, size)) + 0.08


def legend_above(figure: Figure, handles: Sequence[Any], labels: Sequence[str], size: Size) -> None:
    """In the top left corner of all panels."""
    figure.legend(
        handles, [shown(n, 44) for n in labels], loc="outside upper left", ncols=columns(labels, size),
        handlelength=1.3, handleheight=1.0, columnspacing=1.2,
    )  # fmt: skip


def sheet(
    size: Size,
    heights: Sequence[float],
    *,
    ratios: Sequence[float] | None = None,
    columns: int = 1,
    sharex: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure with rows of panels of these heights in inches; ``ratios``: of the panels without their labels."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06, wspace=0.04)
    figure = Figure(figsize=(size.width, sum(heights)), layout=layout)
    grid = figure.subplots(
        len(heights), columns, squeeze=False, sharex="col" if sharex else False, height_ratios=list(ratios or heights)
    )
    return figure, list(grid.flat)


_FINE = re.compile(r"(\d\.\d)\d+")
"""A tenth of a unit is a seventh of a pixel of a wide screen."""
_PLACES = re.compile(r' (?:d|x|y|width|height|transform)="[^"]*"')
_GROUP = re.compile(r' id="(?!clip|[ph][0-9a-f]{10}|m[0-9a-f]{10})[^"]*"')
_CLIP = re.compile(rb"(?<=[\"#])p[0-9a-f]{10}(?=[\")])")
_IDS = re.compile(r'(id="|url\(#|href="#)([^")]+)')


def numbered(svg: bytes) -> bytes:
    """An SVG file with its clip paths numbered in order: their names are hashes of places on the sheet, whose last bits
    are not the same in every layout."""
    names: dict[bytes, bytes] = {}
    return _CLIP.sub(lambda m: names.setdefault(m[0], b"p%010x" % len(names)), svg)


def themed(svg: str, name: str) -> str:
    """An SVG file as part of a page: no prologue, no fixed size, ids of its own, colours of the page's style sheet."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", body, flags=re.DOTALL)  # the page has it
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", body)
    body = re.sub(r'(<svg[^>]*?) (?:width|height)="[^"]*"', r"\1", body)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = _GROUP.sub("", body)
    body = _IDS.sub(rf"\1{name}-\2", body)
    body = _PLACES.sub(lambda m: _FINE.sub(r"\1", m[0]), re.sub(r"\n\s*", "\n", body))
    for colour, variable in _THEMED.items():
        body = body.replace(colour, variable)
    return body
