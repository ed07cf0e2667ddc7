"""Values over time: bandwidth, queues, CPU cores, temperatures, power, clocks and the fan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from bpusim.metrics import Detail, Result
from bpusim.report.timeline.tracks import Mark, Timeline
from bpusim.units import PS_PER_S, Ps

__all__ = ["add_counters"]

_MOST = 20_000


def add_counters(timeline: Timeline, result: Result, detail: Detail) -> None:
    """All counters of a run, and what its heat did."""
    busy = [p for p in detail.cpu_busy() if p[0] <= timeline.until]
    timeline.count("CPU", "busy CPU cores", "cores", _few(timeline, "changes of busy CPU cores", busy))
    _add_queues(timeline, result)
    _add_bandwidth(timeline, result, detail)
    if result.heat is not None:
        _add_heat(timeline, result)


def _few(timeline: Timeline, what: str, points: Sequence[tuple[Ps, int]]) -> Sequence[tuple[Ps, int]]:
    """The last point before the window, and so many in it as there is room for."""
    before = sum(1 for at, _ in points if at <= timeline.keep.begin)
    points = points[max(before - 1, 0) :]
    return timeline.first(what, _MOST, points, [at for at, _ in points])


def _add_queues(timeline: Timeline, result: Result) -> None:
    """Calls of each core that are submitted and not over, the one on the core included."""
    for core in result.cores:
        depth = 0
        points: list[tuple[Ps, int]] = [(0, 0)]
        for event in result.journal or ():
            if event.core == core and event.at <= timeline.until and event.what in ("submit", "end"):
                depth += 1 if event.what == "submit" else -1
                points.append((event.at, depth))
        timeline.count(core, f"queue of {core}", "calls", _few(timeline, f"changes of the queue of {core}", points))


def _add_bandwidth(timeline: Timeline, result: Result, detail: Detail) -> None:
    """Of each master the sum of the rates of its transfers; means of bins where those are not kept."""
    changes: dict[str, list[tuple[Ps, int]]] = {}
    for master, history in detail.transfers:
        rates = [round(rate) for _, _, rate, _ in history[:-1]]
        mine = changes.setdefault(master, [])
        for (at, *_), rate, before in zip(history, [*rates, 0], [0, *rates], strict=True):
            mine.append((at, rate - before))
    left_from = detail.left_from.get("transfers")
    for master in sorted(detail.bandwidth):
        exact = [(0, 0), *_sums(sorted(changes.get(master, ())))]
        # Masters of the machine file may have no transfers.
        since = 0 if master in result.dram.background and master not in changes else left_from
        points = exact if since is None else [p for p in exact if p[0] < since]
        edges, means = detail.bandwidth[master].per_second(timeline.end)
        for (at, until), mean in zip(pairwise(round(e * PS_PER_S) for e in edges), means, strict=True):
            if since is not None and until > since:
                points.append((max(at, since), round(mean)))
        timeline.count("DRAM", f"bandwidth of {master}", "GB/s", _few(timeline, f"rates of {master}", points), 9)


def _sums(changes: Iterable[tuple[Ps, int]]) -> list[tuple[Ps, int]]:
    total, out = 0, []
    for at, by in changes:
        total += by
        out.append((at, total))
    return out


def _add_heat(timeline: Timeline, result: Result) -> None:
    """Temperatures and clocks as sampled, power as it was from one sample to the next, and what happened."""
    heat = result.heat
    assert heat is not None
    samples = timeline.first("samples of heat", _MOST, heat.samples, [s.at for s in heat.samples])
    for node in heat.peak_degc:
        points = [(s.at, round(s.temperatures[node] * 1000)) for s in samples]
        timeline.count("heat", f"temperature of {node}", "degC", points, 3)
    starts = [0, *(s.at for s in samples)]
    for part in heat.energy_j:
        points = [(at, round(s.watts[part] * 1000)) for at, s in zip(starts, samples, strict=False)]
        timeline.count("heat", f"power of {part}", "W", points, 3)
    for clock in heat.throttled:
        timeline.count("heat", f"clock of {clock}", "MHz", [(s.at, s.clocks[clock]) for s in samples], 6)
    timeline.count("heat", "fan", "level", [(s.at, s.fan) for s in samples])
    inside = [(at, what) for at, what in heat.events if timeline.keep.within(at, at)]
    track = timeline.track("heat", "events")
    for at, what in timeline.first("events of heat", _MOST, inside, [at for at, _ in inside]):
        timeline.marks.append(Mark(track, at, what))
