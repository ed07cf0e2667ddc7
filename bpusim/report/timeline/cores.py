"""What each core did: calls, the ops in them on the array and the vector unit, and the DMA; arrows between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from bpusim.metrics import CallSpan, Result, Step
from bpusim.ports import CallDetail
from bpusim.report.timeline.tracks import Arg, Timeline, cause_times
from bpusim.trace import CallPart, CallProgram
from bpusim.trace.layout import FIELDS, READS, WRITES

__all__ = ["add_cores"]

_MOST = 20_000
_MACS = FIELDS.index("macs")
_THREADS = ("calls", "MAC", "vector", "DMA read", "DMA write")

Placed = tuple[CallSpan, int]
"""A call and its slice."""


def add_cores(timeline: Timeline, result: Result, calls: Sequence[CallSpan], details: Sequence[CallDetail]) -> None:
    """A track of calls for each core, and of their ops as far as they were kept."""
    for core in result.cores:
        for thread in _THREADS:
            timeline.track(core, thread)
    causes = {(d.core, d.start, d.end): d.causes.sum(axis=0).tolist() for d in details}
    inside = sorted((c for c in calls if timeline.keep.within(c.start, c.end)), key=lambda c: (c.start, c.core))
    placed: list[Placed] = []
    for call in timeline.first("calls", _MOST, inside, [c.start for c in inside]):
        args: dict[str, Arg] = {} if call.ended else {"interrupted": True}
        times = cause_times(causes.get((call.core, call.start, call.end), ()))
        number = timeline.add(timeline.track(call.core, "calls"), call.start, call.end, call.label, args, times)
        if number is not None:
            placed.append((call, number))
    for detail in details:
        _add_ops(timeline, detail)
    steps = result.detail.steps if result.detail is not None else ()
    flows = {*_handovers(steps, placed, result.batches), *_barriers(result, placed)}
    for kind, source, target in sorted(flows, key=lambda f: (timeline.slices[f[1]].end, *f)):
        timeline.flow(kind, source, timeline.slices[source].end - 1, target)


def _add_ops(timeline: Timeline, detail: CallDetail) -> None:
    """Of each op in a call: when it was computed, and when the DMA moved what it reads and writes."""
    call = detail.work
    assert isinstance(call, CallProgram)
    whole = call.whole if isinstance(call, CallPart) else call
    fields = whole.fields
    macs, read, written = (
        fields[_MACS].tolist(),
        fields[READS].sum(axis=0).tolist(),
        fields[WRITES].sum(axis=0).tolist(),
    )
    tracks = {name: timeline.track(detail.core, name) for name in _THREADS}
    rows = zip(
        detail.ops.tolist(), detail.begun.tolist(), detail.causes.tolist(), detail.compute.tolist(),
        detail.read.tolist(), detail.write.tolist(), strict=True,
    )  # fmt: skip
    for n, begun, causes, compute, fetch, store in rows:
        op = whole.ops[n]
        args: dict[str, Arg] = {
            "op": n, "type": op.type, "unit": op.unit, "macs": macs[n], "read_bytes": read[n],
            "write_bytes": written[n],
        }  # fmt: skip
        if not begun:
            args["resumed"] = True
        unit = tracks["MAC" if op.unit == "mac" else "vector"]
        made = timeline.add(unit, compute[0], compute[1], op.id, args, cause_times(causes))
        reads, writes = {"op": n, "bytes": read[n]}, {"op": n, "bytes": written[n]}
        fetched = timeline.add(tracks["DMA read"], fetch[0], fetch[1], op.id, reads)
        timeline.add(tracks["DMA write"], store[0], store[1], op.id, writes)
        if made is not None and fetched is not None:
            timeline.flow("DMA", fetched, fetch[0], made)


def _handovers(
    steps: Sequence[Step], placed: Sequence[Placed], batches: Iterable[str]
) -> Iterator[tuple[str, int, int]]:
    """From a call to the one behind it in the same step of which the way between is ``handover``."""
    begins = {(c.label.rpartition("/")[0], c.start): n for c, n in placed}
    ends = {(c.label.rpartition("/")[0], c.end): n for c, n in placed if c.ended}
    for step in steps:
        if all(what != "handover" for what, _ in step.path):
            continue
        for stream in (step.stream, f"{step.stream}.{step.kind}", *(f"{model}/batch" for model in batches)):
            source = target = None
            between = False
            at = step.start
            for what, duration in step.path:
                if what == "call":
                    target = begins.get((stream, at))
                    if between and source is not None and target is not None:
                        yield "handover", source, target
                    source, between = None, False
                at += duration
                between = between or what == "handover"
                if not between:  # of an interrupted call, what it waited for the core comes behind it
                    source = ends.get((stream, at), source)


def _barriers(result: Result, placed: Sequence[Placed]) -> Iterator[tuple[str, int, int]]:
    """From the last core at each barrier of a tensor split to the others.

    Parts of a call on the cores of a team that begin at one instant are between the same two barriers. The next ones
    begin when the last of them is over and the barrier is passed. Where another call had a core meanwhile, it is not
    told and no arrow is drawn.
    """
    for plan in result.splits.values():
        mine = [(c, n) for c, n in placed if c.core in plan.cores]
        groups = [list(g) for _, g in groupby(mine, key=lambda p: (p[0].start, p[0].label))]
        for before, after in pairwise(groups):
            last, source = max(before, key=lambda p: p[0].end)
            if last.label == after[0][0].label and last.end + plan.sync == after[0][0].start:
                yield from (("barrier", source, n) for c, n in after if c.core != last.core)
