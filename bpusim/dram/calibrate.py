"""Fits the flow model's table of a timing set to the bank model: the work behind ``bpusim dram calibrate``.

Every figure of a table is measured on the bank model with a first-come controller; nothing is tuned to a scenario. What
the flow model then says of other streams is compared with the bank model in the same run, and the greatest deviation of
each class of traffic goes into the table as its known error.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bpusim.dram.arbitration import Ask, meeting, proportional, settle
from bpusim.dram.bank.model import BankRun, Controller, Master, RunResult
from bpusim.dram.mapping import NAMED
from bpusim.dram.table import FlowTable, digest, flow_table, table_path
from bpusim.dram.timing import Channel, timing_set
from bpusim.units import PS_PER_S

__all__ = ["CASES", "Comparison", "calibrate", "compare", "flow_answer", "write_table"]

_STREAMS = (1, 2, 3, 4, 6, 8)
_WRITES = (0, 5, 10, 25, 50, 75, 100)
_IN_FLIGHT = (1, 2, 4, 8, 16, 32, 64)
_LINES = 24_000
_PLACINGS = 8
"""Streams lie at so many random places, multiples of 4 KiB: what they gain or lose by their banks averages out."""
_FAR = 1000
"""Clocks of a path so long that a few lines in flight never meet."""
_POSTED = (0.0, 0.04, 0.08, 0.16, 0.24, 0.32, 0.48, 0.64, 0.8)
_MIDDLE = 500
"""Clocks of a path between a CPU's and a DMA engine's, to measure what others cost a reader."""
_BESIDE = (0.0, 0.02, 0.04, 0.08, 0.12, 0.16, 0.24, 0.32)
_FIRST_COME = Controller(arbitration="first_come")
_FOREVER = 1 << 40


def _run(ch: Channel, masters: Sequence[Master], mapping: str | None, controller: Controller) -> RunResult:
    run = BankRun(ch, masters, controller, mapping)
    run.run()
    return run.result()


def _bases(ch: Channel, n: int, draw: random.Random) -> list[int]:
    """Random places in ``n`` parts of one rank: streams in several ranks would hide each other's refresh."""
    part = ch.capacity // ch.timing.device.ranks // n // 2
    return [2 * k * part + draw.randrange(part // 4096) * 4096 for k in range(n)]


def _placed(ch: Channel, mapping: str | None, masters: Sequence[Master], seed: int) -> list[RunResult]:
    """Results with the masters at random places."""
    draw = random.Random(seed)
    out = []
    for _ in range(_PLACINGS):
        bases = _bases(ch, len(masters), draw)
        out.append(_run(ch, [replace(m, base=b) for m, b in zip(masters, bases, strict=True)], mapping, _FIRST_COME))
    return out


def _efficiency(ch: Channel, mapping: str | None, masters: Sequence[Master]) -> float:
    found = [r.peak_fraction for r in _placed(ch, mapping, masters, len(masters))]
    return round(sum(found) / len(found), 4)


def _grid(ch: Channel, mapping: str | None) -> list[list[float]]:
    return [
        [_efficiency(ch, mapping, [Master(count=_LINES // n, write=w, seed=7 + k) for k in range(n)]) for w in _WRITES]
        for n in _STREAMS
    ]


def _beside_a_writer(ch: Channel, mapping: str | None, used: float) -> float:
    """Part of the peak that a reader and an open-loop writer of so much reach; the writer goes first."""
    burst = ch.timing.timing.BL
    clocks = _LINES * burst
    masters = [Master(count=_FOREVER, out=128, level=1)]
    if used:
        masters.append(Master(count=_FOREVER, background=True, write=100, buffer=512, pace=burst / used))
    draw, found = random.Random(len(masters)), []
    for _ in range(_PLACINGS):
        bases = _bases(ch, len(masters), draw)
        run = BankRun(ch, [replace(m, base=b) for m, b in zip(masters, bases, strict=True)], _FIRST_COME, mapping)
        run.run(clocks)
        found.append(sum(run.served(i) for i in range(len(masters))) * burst / clocks)
    return round(sum(found) / len(found), 4)


def _fit(ch: Channel, mapping: str | None) -> dict[str, Any]:
    quiet = replace(_FIRST_COME, refresh="off")

    def clocks(result: RunResult) -> float:
        return result.masters[0].last / result.masters[0].served

    latency = {
        n: n * clocks(_run(ch, [Master(count=_LINES // 4, out=n, path=_FAR)], mapping, quiet)) - _FAR
        for n in _IN_FLIGHT
    }
    beside = {}
    reader = Master(count=_LINES // 2, out=24, path=_MIDDLE)
    for used in _BESIDE:
        other = Master(count=_FOREVER, background=True, buffer=512, pace=ch.timing.timing.BL / used) if used else None
        found = [reader.out * clocks(r) for r in _placed(ch, mapping, [reader, other] if other else [reader], 3)]
        beside[used] = sum(found) / len(found)
    busy, refreshed = (
        clocks(_run(ch, [Master(count=4 * _LINES, out=256)], mapping, controller))
        for controller in (quiet, _FIRST_COME)
    )
    light = Master("rand", out=1, gap=397, region=ch.capacity, count=_LINES // 4)
    return {
        "latency": {str(n): round(v, 3) for n, v in latency.items()},
        "beside": {str(u): round(max(v - beside[0.0], 0.0), 2) for u, v in beside.items()},
        "light": round(_run(ch, [light], mapping, _FIRST_COME).masters[0].latency_mean, 3),
        "busy": round(busy, 4),
        "blocked": round(ch.timing.timing.REFI * (1 - busy / refreshed), 2),
        "efficiency": _grid(ch, mapping),
        "posted": {str(u): _beside_a_writer(ch, mapping, u) for u in _POSTED},
    }


def calibrate(stem: str, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """The table of a timing set such as ``LPDDR4X-3200``, for its own mapping and all named ones."""
    timing = timing_set(stem)
    d = timing.device
    ch = Channel(f"{stem}x{d.width}", timing, 1)
    data: dict[str, Any] = {
        "made_by": f"bpusim dram calibrate {stem}",
        "from": "the bank model: first come first served, 32 + 32 entries, write watermarks 80 and 20 %, open page, "
        "all-bank refresh",
        "timing": digest(stem),
        "clock_ps": ch.timing.clock,
        "width": d.width,
        "burst": ch.timing.timing.BL,
        "line": ch.line,
        "capacity": ch.capacity,
        "queue": _FIRST_COME.reads,
        "interval": ch.timing.timing.REFI,
        "streams": list(_STREAMS),
        "writes": [w / 100 for w in _WRITES],
        "mappings": {},
    }
    for name in (ch.timing.mapping, *NAMED):
        say(f"{stem}, mapping {name}: measuring")
        row = data["mappings"][name] = {**_fit(ch, name), "errors": {}}
        table = flow_table(f"{stem}x{d.width}", 1, name, data=data)
        say(f"{stem}, mapping {name}: comparing")
        errors: dict[str, list[float]] = {}
        for c in compare(ch, table):
            errors.setdefault(c.kind, []).append(abs(c.deviation))
        row["errors"] = {k: [round(sum(v) / len(v), 1), round(max(v), 1)] for k, v in errors.items()}
    return data


def write_table(stem: str, data: dict[str, Any]) -> str:
    """Write a table where the flow model finds it; returns its path."""
    path = table_path(stem)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return str(path)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure by both models. ``kind``: streams, shares, mixes (GB/s of the channel or a master), or light (ns)."""

    kind: str
    streams: str
    flow: float
    bank: float

    @property
    def deviation(self) -> float:
        """Of flow from bank, in percent; for shares, in points of the whole."""
        return 100 * (self.flow - self.bank) if self.kind == "shares" else 100 * (self.flow / self.bank - 1)


CASES: dict[str, tuple[str, ...]] = {
    "streams": (
        *(f"seq,out={n}" for n in (8, 16, 32, 64, 128)),
        *(f"seq,out={n},path=300" for n in (8, 16, 32, 48, 64, 128)),
        *(f"seq,out={n},path=700" for n in (16, 64, 96, 128)),
        *("seq,out=64,pace=11.3", "seq,out=64,path=700,pace=10.5", "seq,out=128,path=700,pace=10.5"),
        *(f"seq,out={n} seq,out={n}" for n in (8, 16, 64)),
        *(f"seq,out={n},path=700 seq,out={n},path=700" for n in (16, 64, 128)),
        *(
            "seq,out=24,path=700 " * 3,
            "seq,out=16,path=300 seq,out=16,path=300",
            "seq,out=32,path=700 seq,out=8,path=200,bg=1,n=1G",
        ),
        "seq,out=64 seq,out=64 seq,out=64 seq,out=64",
    ),
    "shares": (
        *("seq,out=16 seq,out=4,bg=1,n=1G", "seq,out=32 seq,out=8,bg=1,n=1G", "seq,out=64 seq,out=16,bg=1,n=1G"),
        *("seq,out=64,path=700 seq,out=64,bg=1,n=1G", "seq,out=64,path=700 seq,out=20,path=190,bg=1,n=1G"),
    ),
    "mixes": (
        *(f"seq,out=64,w={w},seed=3" for w in (10, 25, 50)),
        *("seq,out=64 seq,out=64,w=100", "seq,out=64,w=20 seq,out=64,w=20,seed=5"),
        *("copy,out=64,chunk=16K,pitch=64M,region=64M", "copy,out=64,chunk=64K,pitch=64M,region=64M seq,out=64"),
    ),
    "light": tuple(f"rand,out=1,gap=397,region=256M,n=5000 seq,out={n},bg=1,n=1G" for n in (4, 8, 16, 32, 64)),
}
"""Streams that a table is not made from, by class of traffic; they are laid at random places."""


def compare(ch: Channel, table: FlowTable) -> list[Comparison]:
    """What both models say of ``CASES``."""
    return [_compare(ch, table, kind, text) for kind, cases in CASES.items() for text in cases]


def _compare(ch: Channel, table: FlowTable, kind: str, text: str) -> Comparison:
    from bpusim.dram.bench import parse_streams

    masters = [m if m.background or kind == "light" else replace(m, count=_LINES) for m in parse_streams(text)]
    rates, waits = flow_answer(table, masters)
    found = []
    for result in _placed(ch, table.mapping, masters, 99):
        if kind == "light":
            found.append(result.masters[0].latency_mean * table.clock / 1000)
        elif kind == "shares":
            found.append(result.masters[0].served / sum(m.served for m in result.masters))
        else:
            found.append(result.bytes_per_s / 1e9)
    flow = {"light": waits[0], "shares": rates[0] / sum(rates)}.get(kind, sum(rates) / 1e9)
    return Comparison(kind, text, flow, sum(found) / len(found))


def flow_answer(table: FlowTable, masters: Sequence[Master]) -> tuple[list[float], list[float]]:
    """What the flow model says of masters that never stop: (B/s, latency in ns) of each, first come first served.

    A master with a ``gap`` is light: it takes what it asks for before the others share.
    """
    line_ps = table.line * PS_PER_S
    light = [m.gap >= 0 for m in masters]
    rates, latencies, limits = [], [], []
    for m in masters:
        path = m.path * table.clock
        latencies.append(path + (table.light_latency if m.gap >= 0 else table.idle_latency(m.out * table.line)))
        limits.append(line_ps / (m.pace * table.clock) if m.pace else math.inf)
        rates.append(line_ps / (latencies[-1] + m.gap * table.clock) if m.gap >= 0 else 0.0)
    taken = sum(rates)
    heavy = [i for i, m in enumerate(masters) if m.gap < 0]

    def alone(i: int) -> Callable[[tuple[float, float]], float]:
        m = masters[i]
        return lambda others: table.alone(m.out * table.line, round(m.path * table.clock), limits[i], others)

    windows = [m.out * table.line for m in masters]
    of_light = sum(w for w, is_light in zip(windows, light, strict=True) if is_light)
    demands = settle([alone(i) for i in heavy], [windows[i] for i in heavy], (taken, of_light))
    streams = [
        (d, 0.5 if masters[i].kind == "copy" else masters[i].write / 100, masters[i].kind != "copy")
        for i, d in zip(heavy, demands, strict=True)
    ]
    capacity = table.capacity(len(heavy), *meeting(streams))
    asks = [Ask(d, masters[i].out * table.line, round(latencies[i])) for i, d in zip(heavy, demands, strict=True)]
    waited = 0.0
    for i, ask, rate in zip(heavy, asks, proportional(asks, capacity - taken), strict=True):
        rates[i] = rate
        if rate < ask.rate:
            waited = max(waited, ask.window * PS_PER_S / rate - ask.latency)
    waits = [
        (latency + waited) / 1000 if is_light else m.out * line_ps / rate / 1000
        for m, latency, rate, is_light in zip(masters, latencies, rates, light, strict=True)
    ]
    return rates, waits
