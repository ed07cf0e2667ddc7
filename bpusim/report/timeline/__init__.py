"""A run as a timeline for ui.perfetto.dev or chrome://tracing: a file of tracks, arrows and counters."""

from __future__ import annotations

from bpusim.errors import BpusimError, UnitError
from bpusim.metrics import Keep, Result
from bpusim.report.timeline.cores import add_cores
from bpusim.report.timeline.counters import add_counters
from bpusim.report.timeline.steps import add_steps
from bpusim.report.timeline.tracks import Counter, Flow, Mark, Slice, Timeline, Track
from bpusim.units import PS_PER_S, format_quantity, parse_quantity

__all__ = [
    "FORMATS",
    "Counter",
    "Flow",
    "Mark",
    "Slice",
    "Timeline",
    "Track",
    "check_format",
    "keep_for",
    "timeline_file",
    "timeline_of",
]

FORMATS = {"json": "trace.json.gz", "perfetto": "trace.pftrace"}
"""Names of files by format."""
_SLICES = 20_000


def keep_for(window: str | None) -> Keep:
    """What a run is to keep for a timeline of ``window``: ``0s..200ms``; either end may be left out.

    Raises :class:`BpusimError` for what is no window.
    """
    if window is None:
        return Keep(slices=_SLICES)
    do = "write it as 0s..200ms, or with one end only: 2s.."
    first, dots, last = window.partition("..")
    if not dots or not (first.strip() or last.strip()):
        raise BpusimError(f"'{window}' is no window of time", do=do)
    try:
        begin = int(parse_quantity(first, "time")) if first.strip() else 0
        end = int(parse_quantity(last, "time")) if last.strip() else None
    except UnitError as e:
        raise BpusimError(f"'{window}' is no window of time: {e.problems[0].what}", do=do) from None
    if end is not None and end <= begin:
        raise BpusimError(f"the window '{window}' ends before it begins", do=do)
    return Keep(begin, end, slices=_SLICES)


def timeline_of(result: Result) -> Timeline:
    """The timeline of a run that kept ``detail`` and ``journal``. Raises :class:`BpusimError` of one that did not."""
    detail = result.detail
    if detail is None or result.journal is None:
        raise BpusimError("this run kept no detail", do="simulate it with detail=Keep(), journal=True")
    keep = detail.keep
    processes = ("notes", "streams", "CPU", *result.cores, "DRAM", "heat")
    timeline = Timeline(processes, keep, result.elapsed)
    if keep.begin > result.elapsed:
        ended = format_quantity(result.elapsed, "time")
        timeline.notices.append(f"the window begins after the end of the run, which is at {ended}")
    add_steps(timeline, result, detail.steps)
    add_cores(timeline, result, detail.calls, detail.details)
    add_counters(timeline, result, detail)
    for what, n in sorted(detail.left_out.items()):
        timeline.leave_out(what, n, detail.left_from[what])
    timeline.about = {
        "scenario": result.scenario,
        "seed": result.seed,
        "simulated_s": result.elapsed / PS_PER_S,
        "window_begin_s": keep.begin / PS_PER_S,
        "window_end_s": timeline.until / PS_PER_S,
        "left_out": list(timeline.notices),
        "warnings": [w.text for w in result.warnings],
    }
    return timeline


def check_format(form: str) -> None:
    """Raise :class:`BpusimError` if what it takes to write ``form`` is not installed."""
    if form == "perfetto":
        from bpusim.report.timeline.perfetto import messages

        messages()


def timeline_file(timeline: Timeline, form: str) -> tuple[str, bytes]:
    """(name, content) of a file in a format of ``FORMATS``; the same run gives the same bytes."""
    if form == "perfetto":
        from bpusim.report.timeline.perfetto import perfetto_bytes

        return FORMATS[form], perfetto_bytes(timeline)
    from bpusim.report.timeline.chrome import chrome_bytes

    return FORMATS[form], chrome_bytes(timeline)
