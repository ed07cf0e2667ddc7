"""A timeline as a Perfetto trace (protobuf), by the messages of the ``perfetto`` package.

Perfetto's time is whole nanoseconds: every instant is rounded down, so that what nests still does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bpusim.errors import BpusimError
from bpusim.report.timeline.tracks import Arg, Timeline
from bpusim.units import Ps

__all__ = ["messages", "perfetto_bytes"]

_SEQUENCE = 1
_PS_PER_NS = 1000
_END, _BEGIN, _POINT = range(3)


def messages() -> Any:
    """Perfetto's own messages. Raises :class:`BpusimError` where they are not installed."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError:
        raise BpusimError(
            "Perfetto's format needs the perfetto package, which is not there",
            do="pip install 'bpusim[perfetto]', or take --timeline-format json",
        ) from None
    return perfetto_trace_pb2


class _Names:
    """Texts that come often, as numbers that are told once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers) + 1)

    def tell(self, into: Any) -> None:
        for text, number in self.numbers.items():
            into.add(iid=number, name=text)


def perfetto_bytes(timeline: Timeline) -> bytes:
    """The file: the same timeline gives the same bytes."""
    kinds = messages()
    events, keys = _Names(), _Names()
    packets = list(_events(timeline, kinds, events, keys))
    first = kinds.TracePacket(
        trusted_packet_sequence_id=_SEQUENCE, sequence_flags=kinds.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    )
    events.tell(first.interned_data.event_names)
    keys.tell(first.interned_data.debug_annotation_names)
    trace = kinds.Trace()
    trace.packet.append(first)
    trace.packet.extend(_descriptors(timeline, kinds))
    trace.packet.extend(packets)
    return bytes(trace.SerializeToString(deterministic=True))


def _process(n: int) -> int:
    return n + 1


def _track(n: int) -> int:
    return 1_000 + n


def _counter(n: int) -> int:
    return 1_000_000 + n


def _descriptors(timeline: Timeline, kinds: Any) -> Iterable[Any]:
    """Processes, and tracks in them."""
    used = {t.process for t in timeline.tracks} | {c.process for c in timeline.counters}
    numbers = {name: n for n, name in enumerate(timeline.processes) if name in used}
    for name, n in numbers.items():
        packet = kinds.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
        made = packet.track_descriptor
        made.uuid, made.name, made.child_ordering = _process(n), name, kinds.TrackDescriptor.EXPLICIT
        made.process.pid, made.process.process_name = n + 1, name
        yield packet
    for n, track in enumerate(timeline.tracks):
        yield _child(kinds, _track(n), _process(numbers[track.process]), track.thread, n)
    for n, counter in enumerate(timeline.counters):
        packet = _child(kinds, _counter(n), _process(numbers[counter.process]), counter.name, len(timeline.tracks) + n)
        packet.track_descriptor.counter.unit_name = counter.unit
        yield packet


def _child(kinds: Any, uuid: int, parent: int, name: str, rank: int) -> Any:
    packet = kinds.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
    made = packet.track_descriptor
    made.uuid, made.parent_uuid, made.name, made.sibling_order_rank = uuid, parent, name, rank
    return packet


def _events(timeline: Timeline, kinds: Any, names: _Names, keys: _Names) -> Iterable[Any]:
    leaving: dict[int, list[int]] = {}
    entering: dict[int, list[int]] = {}
    for n, flow in enumerate(timeline.flows, 1):
        leaving.setdefault(flow.source, []).append(n)
        entering.setdefault(flow.target, []).append(n)
    rows: list[tuple[Ps, int, int, int, Any]] = []
    outer = sorted(range(len(timeline.slices)), key=lambda n: (timeline.slices[n].start, -timeline.slices[n].end, n))
    for order, n in enumerate(outer):
        rows.append((timeline.slices[n].start, _BEGIN, order, n, None))
        rows.append((timeline.slices[n].end, _END, -order, n, None))
    for n, mark in enumerate(timeline.marks):
        rows.append((mark.at, _POINT, n, 0, mark))
    for n, counter in enumerate(timeline.counters):
        rows += [(at, _POINT, len(timeline.marks) + n, value, counter) for at, value in counter.points]
    rows.sort(key=lambda r: r[:3])
    types = kinds.TrackEvent
    for at, kind, order, n, item in rows:
        packet = kinds.TracePacket(
            timestamp=at // _PS_PER_NS,
            trusted_packet_sequence_id=_SEQUENCE,
            sequence_flags=kinds.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE,
        )
        event = packet.track_event
        if kind == _END:
            event.type, event.track_uuid = types.TYPE_SLICE_END, _track(timeline.slices[n].track)
        elif kind == _BEGIN:
            s = timeline.slices[n]
            event.type, event.track_uuid, event.name_iid = types.TYPE_SLICE_BEGIN, _track(s.track), names[s.name]
            event.flow_ids.extend(leaving.get(n, ()))
            event.terminating_flow_ids.extend(entering.get(n, ()))
            _annotate(event, keys, s.args, s.times)
        elif order < len(timeline.marks):
            event.type, event.track_uuid, event.name = types.TYPE_INSTANT, _track(item.track), item.name
        else:
            event.type, event.track_uuid = types.TYPE_COUNTER, _counter(order - len(timeline.marks))
            event.double_counter_value = n / 10**item.digits
        yield packet


def _annotate(event: Any, keys: _Names, args: Mapping[str, Arg], times: Mapping[str, Ps]) -> None:
    for key, value in args.items():
        made = event.debug_annotations.add(name_iid=keys[key])
        if isinstance(value, bool):
            made.bool_value = value
        elif isinstance(value, int):
            made.int_value = value
        else:
            made.string_value = value
    for cause, n in times.items():
        event.debug_annotations.add(name_iid=keys[f"{cause}_us"], double_value=n / 1e6)
