"""Tokens, frames and stages of streams as slices, and what the CPU did for them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from bpusim.metrics import PipelineStats, Result, Step
from bpusim.report.timeline.tracks import Arg, Timeline, cause_times
from bpusim.units import Ps

__all__ = ["add_steps"]

_MOST = 5_000
_ON_CPU = frozenset(("host", "dispatch", "fallback", "handover"))
"""Causes whose time outside of calls is that of a CPU core, or of a wait for what one prepares."""


def add_steps(timeline: Timeline, result: Result, steps: Sequence[Step]) -> None:
    """A track for each stream (for each stage of a pipeline), and another for its thread on the CPU; more of them where
    several are under way at a time."""
    inside = sorted((s for s in steps if timeline.keep.within(s.start, s.end)), key=lambda s: (s.start, s.stream))
    kept = timeline.first("steps of streams", _MOST, inside, [s.start for s in inside])
    pipelines = {name for name, stats in result.streams.items() if isinstance(stats, PipelineStats)}
    groups: dict[str, list[Step]] = {}
    for step in kept:
        name = f"{step.stream} {step.kind}" if step.stream in pipelines else step.stream
        groups.setdefault(name, []).append(step)
    lanes = [(name, step, lane) for name in sorted(groups) for step, lane in _lanes(groups[name])]
    chats = result.chats
    for name, lane in dict.fromkeys((name, lane) for name, _, lane in lanes):
        timeline.track("streams", _named(name, lane))
    for name, step, lane in lanes:
        thread = _named(name, lane)
        track = timeline.track("streams", thread)
        args: dict[str, Arg] = {"stream": step.stream, "number": step.number}
        timeline.add(track, step.start, step.end, step.kind, args, cause_times(step.spent))
        for what, start, end in _path(step):
            timeline.add(track, start, end, what, {})
        # A way through a pipeline repeats its stages, a chat stage its tokens.
        if step.stream not in pipelines or not (
            step.kind.startswith("to the end of ") or f"{step.stream}.{step.kind}" in chats
        ):
            for what, start, end, lost in _host(step):
                args = {"step": step.kind, "number": step.number}
                timeline.add(
                    timeline.track("CPU", thread), start, end, what, args, {"throttling": lost} if lost else {}
                )


def _named(name: str, lane: int) -> str:
    return f"{name} ({lane + 1})" if lane else name


def _lanes(steps: Sequence[Step]) -> Iterator[tuple[Step, int]]:
    """Each with a lane in which none overlaps: that of the step before it of the same number, or the first free one."""
    owners: list[int] = []
    """Whose step was the last, lane by lane."""
    taken: list[tuple[Ps, int]] = []
    free: list[int] = []
    last: dict[int, int] = {}
    for step in steps:
        while taken and taken[0][0] <= step.start:
            heapq.heappush(free, heapq.heappop(taken)[1])
        lane = last.get(step.number)
        if lane is not None and lane in free and owners[lane] == step.number:
            free.remove(lane)
            heapq.heapify(free)
        elif free:
            lane = heapq.heappop(free)
        else:
            lane = len(owners)
            owners.append(step.number)
        owners[lane] = step.number
        last[step.number] = lane
        heapq.heappush(taken, (step.end, lane))
        yield step, lane


def _path(step: Step) -> Iterator[tuple[str, Ps, Ps]]:
    """(what, begin, end) of what it went through."""
    at = step.start
    for what, group in groupby(step.path, key=itemgetter(0)):
        since = at
        at += sum(duration for _, duration in group)
        yield what, since, at


def _host(step: Step) -> Iterator[tuple[str, Ps, Ps, Ps]]:
    """(cause, begin, end, of that for a slow clock) of host work on the way of a step. What a slow clock costs is
    charged before the work that it slowed down."""
    at, slow = step.start, 0
    for what, duration in step.path:
        if what == "throttling":
            slow += duration
        elif what in _ON_CPU:
            yield what, at - slow, at + duration, slow
            slow = 0
        elif slow:
            yield "throttling", at - slow, at, slow
            slow = 0
        at += duration
    if slow:
        yield "throttling", at - slow, at, slow
