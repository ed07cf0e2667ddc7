"""``series.json``: what happened over time and how times are distributed, for charts: bounded, however long the run.

Times are in seconds of simulated time unless a key says otherwise. Bins of all series over time are equally wide but
the last one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from bpusim.dram import flow_table
from bpusim.metrics import CallSpan, Detail, PipelineStats, Profile, Result
from bpusim.ports import BUFFER_KINDS, MOVES
from bpusim.report.ops import OP_CAUSES, OpRow, op_rows
from bpusim.scenario import Scenario
from bpusim.system.roof import roof_of
from bpusim.units import PS_PER_S, Ps

__all__ = ["SERIES", "series_json"]

SERIES = "bpusim-series/1"
_POINTS = 401
"""Of a distribution: all of it while it is small, evenly spaced quantiles beyond."""
_BINS = 512
_CLOSE = 80
"""Calls of the close-up."""
_END = "to the end of "


def series_json(result: Result, scenario: Scenario) -> str:
    """The file: the same run gives the same bytes. The result must have its detail."""
    detail = result.detail
    assert detail is not None
    data = {
        "schema": SERIES,
        "machine": _machine(scenario),
        "latencies": _latencies(result, detail),
        "bandwidth": _over_time(detail.bandwidth, result.elapsed, "bytes_per_s"),
        "occupancy": _occupancy(detail, result.elapsed),
        "close_up": _close_up(detail.calls, result.elapsed),
        "ops": [_op(row) for row in op_rows(detail)],
        "ops_until_s": None if detail.ops_until is None else detail.ops_until / PS_PER_S,
    }
    # A line for each part: to be read by programs, and looked at by people.
    parts = (f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in data.items())
    return "{" + ",\n".join(parts) + "}\n"


def _machine(scenario: Scenario) -> dict[str, Any]:
    machine = scenario.machine
    roof = roof_of(machine)
    dram = machine.dram
    table = flow_table(dram.preset, dram.channels, dram.mapping)
    return {
        "name": machine.name,
        "cores": len(machine.cores.names),
        "core_peak_ops_per_s": 2 * roof.macs_per_cycle * roof.hz,
        "core_alone_bytes_per_s": round(roof.bytes_per_s),
        "channel_capacity_bytes_per_s": round(table.capacity(len(machine.cores.names))),
    }


def _op(row: OpRow) -> dict[str, Any]:
    moved = dict.fromkeys(BUFFER_KINDS, 0)
    for (kind, _), n in zip(MOVES, row.moved, strict=True):
        moved[kind] += n
    return {
        "label": f"{row.stream}/{row.phase}",
        **{name: getattr(row, name) for name in ("core", "op", "type", "unit", "executions", "macs")},
        **{f"{cause}_us": ps / 1e6 for cause, ps in zip(OP_CAUSES, row.causes, strict=True)},
        **{f"{kind}_bytes": n for kind, n in moved.items()},
    }


def _latencies(result: Result, detail: Detail) -> list[dict[str, Any]]:
    """Cold ones are left out, as they are in the summary's percentiles."""
    found: dict[tuple[str, str], list[Ps]] = {}
    for s in detail.steps:
        stage = isinstance(result.streams.get(s.stream), PipelineStats) and not s.kind.startswith(_END)
        if not stage and not (s.cold and s.kind != "token"):
            found.setdefault((s.stream, s.kind), []).append(s.end - s.start)
    out = []
    for (stream, kind), times in found.items():
        ordered = np.sort(np.array(times, dtype=np.int64)) / 1e9
        if len(ordered) > _POINTS:
            ordered = np.quantile(ordered, np.linspace(0, 1, _POINTS))
        out.append({"stream": stream, "what": kind, "count": len(times), "ms": [round(float(t), 6) for t in ordered]})
    return out


def _over_time(profiles: Mapping[str, Profile], until: Ps, key: str) -> dict[str, Any]:
    """Profiles brought to the width of the widest of them."""
    width = max((p.width for p in profiles.values()), default=1)
    while until > width * _BINS:
        width *= 2
    n = max(-(-until // width), 1)
    edges = np.minimum(np.arange(n + 1) * width, until) / PS_PER_S
    spans = np.diff(edges)
    rows: dict[str, list[float]] = {}
    for name, profile in sorted(profiles.items()):
        own, rates = (np.array(v) for v in profile.per_second(until))
        each = width // profile.width
        amounts = np.zeros(n * each)
        amounts[: len(rates)] = rates * np.diff(own)
        sums = amounts.reshape(n, each).sum(axis=1)
        rows[name] = _short(np.divide(sums, spans, out=np.zeros(n), where=spans > 0))
    return {"edges_s": [round(float(e), 9) for e in edges], key: rows}


def _occupancy(detail: Detail, until: Ps) -> dict[str, Any]:
    """Part of each bin in which a core has a call of a label; and how many CPU cores work, mean."""
    profiles: dict[str, Profile] = {}
    for c in detail.calls:
        profiles.setdefault(f"{c.core} {c.label}", Profile()).add(c.start, c.end, (c.end - c.start) / PS_PER_S)
    cpu = Profile()
    busy = [*detail.cpu_busy(), (until, 0)]
    for (at, working), (then, _) in pairwise(busy):
        end = min(then, until)
        if working and end > at:
            cpu.add(at, end, working * (end - at) / PS_PER_S)
    series = _over_time(profiles | {"cpu": cpu}, until, "fraction")
    rows = series["fraction"]
    cores: dict[str, dict[str, Any]] = {}
    for core, label in sorted({(c.core, c.label) for c in detail.calls}):
        cores.setdefault(core, {})[label] = rows[f"{core} {label}"]
    return {"edges_s": series["edges_s"], "cores": cores, "cpu_cores": rows["cpu"]}


def _close_up(calls: Iterable[CallSpan], until: Ps) -> dict[str, Any]:
    """The first calls one by one, as long as they are few enough to be seen."""
    ordered = sorted(calls, key=lambda c: (c.start, c.core))
    end = ordered[_CLOSE].start if len(ordered) > _CLOSE else until
    kept = [c for c in ordered if c.start < end]
    rows = [[c.core, c.label, round(c.start / 1e9, 6), round(min(c.end, end) / 1e9, 6)] for c in kept]
    return {"until_ms": round(end / 1e9, 6), "calls": rows, "all": len(ordered)}


def _short(values: np.ndarray[Any, Any]) -> list[float]:
    return [float(f"{v:.6g}") for v in values]
