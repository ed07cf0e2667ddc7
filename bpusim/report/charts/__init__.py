"""Charts of a result: drawn by matplotlib from the files of its folder, the same bytes every time.

matplotlib is imported when a chart is drawn, and not before.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpusim.errors import BpusimError, Place, did_you_mean
from bpusim.report.charts.bandwidth import draw_bandwidth
from bpusim.report.charts.breakdown import draw_breakdown
from bpusim.report.charts.latency import draw_latency
from bpusim.report.charts.roofline import draw_roofline
from bpusim.report.charts.style import NARROW, PAPER, WIDE, Size, look, numbered, themed
from bpusim.report.charts.thermal import draw_thermal
from bpusim.report.charts.timeline import draw_timeline
from bpusim.report.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["KINDS", "inline_svg", "write_chart", "write_drawn"]

KINDS: Mapping[str, Callable[[View, Size], Figure]] = {
    "breakdown": draw_breakdown,
    "timeline": draw_timeline,
    "bandwidth": draw_bandwidth,
    "thermal": draw_thermal,
    "roofline": draw_roofline,
    "latency": draw_latency,
}
"""What can be drawn. Each raises :class:`BpusimError` for a run that has nothing of it."""
_ENDINGS: Mapping[str, Mapping[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""By ending of the file, what must not be written into it."""
_DPI = 160


def write_chart(view: View, kind: str, out: Path) -> None:
    """Draw a chart into a file, whose ending says what it is to be; raises :class:`BpusimError`."""
    write_drawn(lambda: KINDS[kind](view, WIDE), out)


def write_drawn(draw: Callable[[], Figure], out: Path) -> None:
    """The same of any figure; ``draw`` is called with the look of charts set."""
    ending = out.suffix.lower()
    if ending not in _ENDINGS:
        what = f"a chart cannot be a '{ending}' file" if ending else "the file's name has no ending"
        raise BpusimError(what, place=Place(str(out)), do=f"{did_you_mean(ending, list(_ENDINGS))}")
    data = _rendered(draw, ending)
    try:
        out.write_bytes(data)
    except OSError as e:
        raise BpusimError(f"cannot write the chart: {e.strerror}", place=Place(str(out))) from None


def inline_svg(view: View, kind: str, *, narrow: bool = False) -> str:
    """A chart as an element of a page, in the page's colours."""
    svg = _rendered(lambda: KINDS[kind](view, NARROW if narrow else WIDE), ".svg", clear=True).decode()
    return themed(svg, f"{kind}-{'narrow' if narrow else 'wide'}")


def _rendered(draw: Callable[[], Figure], ending: str, *, clear: bool = False) -> bytes:
    out = io.BytesIO()
    with look(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # an SVG's reader may have it, and a box says enough
        figure = draw()
        figure.set_facecolor("none" if clear else PAPER)
        figure.savefig(out, format=ending[1:], metadata=dict(_ENDINGS[ending]), dpi=_DPI)
    return numbered(out.getvalue()) if ending == ".svg" else out.getvalue()
