"""Reads timelines back: the JSON of the Trace Event Format, and Perfetto's protobuf."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from bpusim.report.timeline import Timeline


class Read(NamedTuple):
    """A slice as a file has it; times in ps or ns."""

    process: str
    thread: str
    name: str
    start: int
    end: int


@dataclass
class File:
    slices: list[Read] = field(default_factory=list)
    args: dict[Read, dict[str, Any]] = field(default_factory=dict)
    arrows: list[tuple[Read, Read]] = field(default_factory=list)
    counters: dict[tuple[str, str], list[tuple[int, Any]]] = field(default_factory=dict)
    marks: list[tuple[str, str, int]] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)


def expected(timeline: Timeline, per: int = 1) -> list[Read]:
    """Slices of a timeline, times rounded down to ``per`` ps."""
    return sorted(
        Read(*timeline.tracks[s.track], s.name, s.start // per, s.end // per)  # type: ignore[arg-type]
        for s in timeline.slices
    )


def crossings(slices: Sequence[Any]) -> list[Any]:
    """Pairs of slices of one track that are neither nested nor disjoint; each has a start and an end."""
    out: list[Any] = []
    stack: list[Any] = []
    for s in sorted(slices, key=lambda s: (s.start, -s.end)):
        while stack and stack[-1].end <= s.start:
            stack.pop()
        if stack and s.end > stack[-1].end:
            out.append((stack[-1], s))
        stack.append(s)
    return out


def _ps(ts: Any) -> int:
    exact = Decimal(ts) * 10**6
    assert exact == int(exact), f"{ts} us is no whole number of ps"
    return int(exact)


def read_json(data: bytes) -> File:
    """Asserts on the way what readers rely on: time does not run back, begins and ends pair up, each arrow has one
    begin and one end, both within a slice."""
    content = json.loads(gzip.decompress(data), parse_float=Decimal)
    events, file = content["traceEvents"], File(about=content["otherData"])
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name" if "name" in e else "ph"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    open_: dict[tuple[int, int], list[tuple[str, int, Any, list[tuple[str, int]]]]] = {}
    starts: dict[int, Read] = {}
    ends: dict[int, Read] = {}
    now = 0
    for e in events:
        if e["ph"] == "M":
            continue
        at, key = _ps(e["ts"]), (e["pid"], e["tid"])
        assert at >= now, "time runs back"
        now = at
        if e["ph"] == "B":
            open_.setdefault(key, []).append((e["name"], at, e.get("args", {}), []))
        elif e["ph"] == "E":
            name, since, args, arrows = open_[key].pop()
            made = Read(processes[key[0]], threads[key], name, since, at)
            file.slices.append(made)
            file.args[made] = args
            for kind, n in arrows:
                known = starts if kind == "s" else ends
                assert n not in known, f"arrow {n} twice"
                known[n] = made
        elif e["ph"] in "sf":
            assert open_[key], "an arrow outside any slice"
            assert e["ph"] == "s" or e["bp"] == "e"
            open_[key][-1][3].append((e["ph"], e["id"]))
        elif e["ph"] == "C":
            ((unit, value),) = e["args"].items()
            file.counters.setdefault((processes[e["pid"]], f"{e['name']} {unit}"), []).append((at, value))
        else:
            assert e["ph"] == "i"
            file.marks.append((threads[key], e["name"], at))
    assert not any(open_.values()), "a slice without an end"
    assert starts.keys() == ends.keys(), "an arrow without one of its ends"
    file.arrows = [(starts[n], ends[n]) for n in sorted(starts)]
    file.slices.sort()
    return file


def read_perfetto(data: bytes) -> File:
    """By Perfetto's own messages; times in ns."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as kinds

    trace, file = kinds.Trace(), File()
    trace.ParseFromString(data)
    first = trace.packet[0]
    assert first.sequence_flags == kinds.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    names = {n.iid: n.name for n in first.interned_data.event_names}
    keys = {n.iid: n.name for n in first.interned_data.debug_annotation_names}
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    open_: dict[int, list[tuple[str, int, Any, list[int], list[int]]]] = {}
    starts: dict[int, Read] = {}
    ends: dict[int, Read] = {}
    now = 0
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == first.trusted_packet_sequence_id
        if not packet.HasField("track_event"):
            continue
        event, at = packet.track_event, packet.timestamp
        assert at >= now, "time runs back"
        now = at
        track = tracks[event.track_uuid]
        process = tracks[track.parent_uuid].process.process_name
        if event.type == event.TYPE_SLICE_BEGIN:
            args = {keys[a.name_iid]: getattr(a, a.WhichOneof("value")) for a in event.debug_annotations}
            row = (names[event.name_iid], at, args, list(event.flow_ids), list(event.terminating_flow_ids))
            open_.setdefault(event.track_uuid, []).append(row)
        elif event.type == event.TYPE_SLICE_END:
            name, since, args, leaving, entering = open_[event.track_uuid].pop()
            made = Read(process, track.name, name, since, at)
            file.slices.append(made)
            file.args[made] = args
            for n in leaving:
                assert n not in starts
                starts[n] = made
            for n in entering:
                assert n not in ends
                ends[n] = made
        elif event.type == event.TYPE_COUNTER:
            key = process, f"{track.name} {track.counter.unit_name}"
            file.counters.setdefault(key, []).append((at, event.double_counter_value))
        else:
            assert event.type == event.TYPE_INSTANT
            file.marks.append((track.name, event.name, at))
    assert not any(open_.values())
    assert starts.keys() == ends.keys()
    file.arrows = [(starts[n], ends[n]) for n in sorted(starts)]
    file.slices.sort()
    return file
