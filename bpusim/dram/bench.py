"""What a channel gives to given streams, by the bank model: the work behind ``bpusim dram bench`` and ``show``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bpusim.dram.bank.model import BankRun, Controller, Master, RunResult
from bpusim.dram.timing import Channel
from bpusim.errors import HardwareError, did_you_mean

__all__ = ["STANDARD", "BenchRow", "bench", "parse_stream", "parse_streams", "spacings"]

_SUFFIX = {"K": 10, "M": 20, "G": 30}
_KEYS = {
    "base": "base", "region": "region", "chunk": "chunk", "pitch": "pitch", "w": "write", "n": "count", "out": "out",
    "gap": "gap", "bg": "background", "seed": "seed", "pace": "pace", "path": "path", "level": "level",
    "weight": "weight", "buffer": "buffer", "on": "on", "period": "period",
}  # fmt: skip

STANDARD: dict[str, str] = {
    "one sequential reader": "seq,out=64",
    "two sequential readers": "seq,out=64 seq,out=64,base=256M",
    "four sequential readers": "seq,out=16 seq,out=16,base=128M seq,out=16,base=256M seq,out=16,base=384M",
    "random lines": "rand,out=64,region=1G",
    "256 B every 4 KiB": "stride,out=64,chunk=256,pitch=4K",
    "copy": "copy,out=64,chunk=4K,pitch=64M,region=64M",
    "10 % writes": "seq,out=64,w=10,seed=7",
    "25 % writes": "seq,out=64,w=25,seed=7",
    "50 % writes": "seq,out=64,w=50,seed=7",
    "shares 32 : 8": "seq,out=32 seq,out=8,base=256M,bg=1,n=1G",
    "a light master alone": "rand,out=1,gap=400,region=256M,base=1G,n=5000",
    "a light master under load": "rand,out=1,gap=400,region=256M,base=1G,n=5000 seq,out=64,bg=1,n=1G",
}
"""Name of a case -> its masters. ``out`` lines in flight, ``w`` percent of writes, ``bg`` a master that runs along."""


def parse_stream(text: str) -> Master:
    """``seq,n=100000,out=64``: a pattern and its values; K, M and G are binary. Raises :class:`HardwareError`."""
    kind, *pairs = text.split(",")
    if kind not in ("seq", "rand", "stride", "copy"):
        known = ["seq", "rand", "stride", "copy"]
        raise HardwareError(f"stream '{text}': unknown pattern '{kind}'", do=did_you_mean(kind, known))
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if key not in _KEYS:
            raise HardwareError(f"stream '{text}': unknown key '{key}'", do=did_you_mean(key, list(_KEYS)))
        try:
            fraction = key in ("pace", "weight") and "." in value
            number: float = float(value) if fraction else _whole(value)
        except ValueError:
            raise HardwareError(f"stream '{text}': '{pair}' is no number", do="write out=64, region=1G") from None
        if not equals or number < (-1 if key == "gap" else 0):
            raise HardwareError(f"stream '{text}': '{pair}' is no value", do="write out=64, region=1G")
        values[_KEYS[key]] = bool(number) if key == "bg" else number
    return Master(kind=kind, **values)  # type: ignore[arg-type]  # one of the four, checked above


def parse_streams(text: str) -> tuple[Master, ...]:
    """Masters separated by spaces."""
    return tuple(parse_stream(word) for word in text.split())


def _whole(text: str) -> int:
    return int(text[:-1], 0) << _SUFFIX[text[-1]] if text[-1:] in _SUFFIX else int(text, 0)


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One case: what came of it, and how fast it was simulated."""

    name: str
    streams: str
    result: RunResult
    wall_s: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON and CSV; latencies of each master's reads in ns."""
        r, clock = self.result, self.result.channel.timing.clock / 1000
        out: dict[str, Any] = {
            "case": self.name,
            "streams": self.streams,
            "bytes_per_s": r.bytes_per_s,
            "peak_fraction": r.peak_fraction,
            "row_hit_rate": r.hit_rate,
            "refreshes": r.refreshes,
            "requests": r.served,
            "requests_per_wall_s": r.served / self.wall_s if self.wall_s else 0.0,
        }
        for i, m in enumerate(r.masters):
            out[f"m{i}_requests"] = m.served
            out[f"m{i}_latency_mean_ns"] = m.latency_mean * clock
            out[f"m{i}_latency_p50_ns"] = m.latency_p50 * clock
            out[f"m{i}_latency_p99_ns"] = m.latency_p99 * clock
        return out


def bench(channel: Channel, cases: dict[str, str], controller: Controller, mapping: str | None) -> Sequence[BenchRow]:
    """Run each case on an idle channel. The first compiles the model once; its wall time is not counted."""
    warm = BankRun(channel, [Master(count=1)], controller, mapping)
    warm.run()
    rows = []
    for name, text in cases.items():
        run = BankRun(channel, parse_streams(text), controller, mapping)
        begin = time.perf_counter()
        run.run()
        rows.append(BenchRow(name, text, run.result(), time.perf_counter() - begin))
    return rows


def spacings(channel: Channel) -> dict[str, int]:
    """Every parameter and derived spacing of a channel, in clocks."""
    s, t = channel.timing, channel.timing.timing
    own = {f"t{name}" if name not in ("RL", "WL", "BL") else name: getattr(t, name) for name in t.__slots__}
    derived = {
        "RD->WR": s.read_to_write,
        "WR->RD, same group": s.write_to_read(True),
        "WR->RD, other group": s.write_to_read(False),
        "RD->PRE": s.read_to_precharge,
        "WR->PRE": s.write_to_precharge,
        "ACT->PRE": s.activate_to_precharge,
        "PRE->ACT": s.precharge_to_activate(False),
        "PRE all->ACT": s.precharge_to_activate(True),
        "REF->ACT": s.refresh_to_activate(True),
        "REF of a bank->ACT": s.refresh_to_activate(False),
        "RD->data": s.read_done,
        "column, other rank": s.rank_switch,
    }
    return {**own, **derived}
