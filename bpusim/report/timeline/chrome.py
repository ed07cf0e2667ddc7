"""A timeline in the Trace Event Format (JSON), gzipped.

Times are decimals of a microsecond, exact to the picosecond. Slices are pairs of begin and end, not complete events
(``X``): readers round times to nanoseconds, and a begin and a duration rounded apart may overlap the next slice by one,
which is then dropped. Rounding each instant by itself keeps their order.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import lru_cache

from bpusim.report.timeline.tracks import Arg, Timeline
from bpusim.units import Ps

__all__ = ["chrome_bytes"]

_LEVEL = 6
Row = tuple[Ps, int, int, str]
"""(at, rank, order, event): at one instant slices end before others begin, and arrows are told within slices."""
_END, _BEGIN, _LEAVE, _ENTER, _POINT = range(5)


def chrome_bytes(timeline: Timeline) -> bytes:
    """The file: the same timeline gives the same bytes."""
    head = json.dumps({"displayTimeUnit": "ms", "otherData": timeline.about}, ensure_ascii=False)
    events = [*_names(timeline), *_events(timeline)]
    text = head[:-1] + ', "traceEvents": [\n' + ",\n".join(events) + "\n]}\n"
    return gzip.compress(text.encode(), _LEVEL, mtime=0)


def _us(ps: Ps) -> str:
    """Picoseconds as decimals of a microsecond."""
    whole, part = divmod(ps, 10**6)
    return f"{whole}.{part:06d}" if part else str(whole)


def _decimal(value: int, digits: int) -> str:
    if not digits:
        return str(value)
    sign, value = ("-", -value) if value < 0 else ("", value)
    whole, part = divmod(value, 10**digits)
    return f"{sign}{whole}.{part:0{digits}d}".rstrip("0").rstrip(".")


@lru_cache(4096)
def _text(text: str | bool) -> str:
    return json.dumps(text, ensure_ascii=False)


def _args(args: Mapping[str, Arg], times: Mapping[str, Ps]) -> str:
    parts = [f'"{key}":{v if type(v) is int else _text(v)}' for key, v in args.items()]
    parts += [f'"{cause}_us":{_us(n)}' for cause, n in times.items()]
    return f',"args":{{{",".join(parts)}}}' if parts else ""


def _places(timeline: Timeline) -> list[str]:
    """``"pid":1,"tid":2`` of each track."""
    pids = {name: n + 1 for n, name in enumerate(timeline.processes)}
    return [f'"pid":{pids[t.process]},"tid":{n + 101}' for n, t in enumerate(timeline.tracks)]


def _names(timeline: Timeline) -> list[str]:
    """What processes and threads are called, and their order."""
    used = {t.process for t in timeline.tracks} | {c.process for c in timeline.counters}
    out = []
    for n, name in enumerate(timeline.processes):
        if name in used:
            for what, arg in (("process_name", f'"name":{_text(name)}'), ("process_sort_index", f'"sort_index":{n}')):
                out.append(f'{{"ph":"M","pid":{n + 1},"tid":0,"name":"{what}","args":{{{arg}}}}}')
    for n, (track, place) in enumerate(zip(timeline.tracks, _places(timeline), strict=True)):
        for what, arg in (("thread_name", f'"name":{_text(track.thread)}'), ("thread_sort_index", f'"sort_index":{n}')):
            out.append(f'{{"ph":"M",{place},"name":"{what}","args":{{{arg}}}}}')
    return out


def _events(timeline: Timeline) -> list[str]:
    rows: list[Row] = []
    places = _places(timeline)
    # A slice is told before those within it, and ends after them.
    outer = sorted(range(len(timeline.slices)), key=lambda n: (timeline.slices[n].start, -timeline.slices[n].end, n))
    for order, n in enumerate(outer):
        s = timeline.slices[n]
        place, args = places[s.track], _args(s.args, s.times)
        rows.append((s.start, _BEGIN, order, f'{{"ph":"B",{place},"ts":{_us(s.start)},"name":{_text(s.name)}{args}}}'))
        rows.append((s.end, _END, -order, f'{{"ph":"E",{place},"ts":{_us(s.end)}}}'))
    for n, flow in enumerate(timeline.flows, 1):
        source, target = timeline.slices[flow.source], timeline.slices[flow.target]
        same = f'"id":{n},"cat":"flow","name":"{flow.kind}"'
        leaves = f'{{"ph":"s",{places[source.track]},"ts":{_us(flow.leaves)},{same}}}'
        enters = f'{{"ph":"f","bp":"e",{places[target.track]},"ts":{_us(target.start)},{same}}}'
        rows += [(flow.leaves, _LEAVE, n, leaves), (target.start, _ENTER, n, enters)]
    for n, mark in enumerate(timeline.marks):
        event = f'{{"ph":"i","s":"t",{places[mark.track]},"ts":{_us(mark.at)},"name":{_text(mark.name)}}}'
        rows.append((mark.at, _POINT, n, event))
    for n, counter in enumerate(timeline.counters, len(timeline.marks)):
        begin = f'{{"ph":"C","pid":{timeline.processes.index(counter.process) + 1},"tid":0,"ts":'
        name = f',"name":{_text(counter.name)},"args":{{{_text(counter.unit)}:'
        for at, value in counter.points:
            rows.append((at, _POINT, n, f"{begin}{_us(at)}{name}{_decimal(value, counter.digits)}}}}}"))
    rows.sort()
    return [event for *_, event in rows]
