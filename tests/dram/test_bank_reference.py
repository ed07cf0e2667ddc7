"""The bank model against DRAMsim3, Ramulator 2.1 and DRAMSys 5.1, on the points of ``reference_points.csv``.

Each point belongs to a class, and each class has its tolerance (facts/dram.md, "What they agree on, and what they do
not"). A point names its streams in words; ``masters`` says them in ours.
"""

from __future__ import annotations

import csv
import functools
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from bpusim.dram.bank.model import KNOWN_ERROR, BankRun, Master
from bpusim.dram.timing import channel

pytestmark = pytest.mark.validation

CHANNEL = channel("LPDDR4-4266x32")
MIB = 1 << 20
GIB = 1 << 30
COUNT = 100_000
FOREVER = 1 << 40
REFERENCES = ("DRAMsim3", "Ramulator2", "Ramulator2_RowHit", "DRAMSys", "DRAMSys_FrFcfsGrp")


@dataclass(frozen=True)
class Point:
    """A row of the table."""

    mapping: str
    pattern: str
    params: str
    metric: str
    values: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        return f"{self.mapping} {self.pattern} {self.params}"

    def of(self, who: str) -> float | None:
        """A simulator's figure, if the row has one."""
        return dict(self.values).get(who)


def points() -> list[Point]:
    """All rows."""
    lines = Path(__file__).with_name("reference_points.csv").read_text(encoding="utf-8").splitlines()
    return [
        Point(
            r["mapping"], r["pattern"], r["params"], r["metric"],
            tuple((name, float(r[name])) for name in REFERENCES if r[name]),
        )
        for r in csv.DictReader(line for line in lines if not line.startswith("#"))
    ]  # fmt: skip


def masters(p: Point) -> list[Master]:
    """The streams of a point."""
    outs = [int(x) for x in re.findall(r"out=(\d+)", p.params)]
    out = outs[0] if outs else 64
    light = Master("rand", out=1, gap=400, base=GIB, region=256 * MIB, count=5000)
    if p.pattern in ("seq_outstanding", "seq_sat"):
        return [Master(count=COUNT, out=out)]
    if p.pattern == "random":
        return [Master("rand", region=GIB, count=COUNT, out=out, seed=1)]
    if match := re.fullmatch(r"(\d)_seq(_offset)?", p.pattern):
        apart = 128 * MIB + (4096 if match[2] else 0)
        return [Master(count=COUNT // 2, out=out, base=n * apart) for n in range(int(match[1]))]
    if p.pattern == "light_alone":
        return [light]
    if p.pattern == "light_vs_heavy":
        return [Master(count=FOREVER, out=out, background=True), light]
    if p.pattern == "read_plus_write_stream":
        return [Master(count=COUNT, out=64), Master(count=COUNT, write=100, base=512 * MIB, out=64)]
    if match := re.fullmatch(r"seq_write(\d+)", p.pattern):
        return [Master(count=COUNT, out=64, write=int(match[1]), seed=7)]
    if p.pattern == "strided":
        chunk, pitch = (256, 4096) if "256B" in p.params else (64, 1024)
        return [Master("stride", count=COUNT, out=64, chunk=chunk, pitch=pitch)]
    if p.pattern in ("two_seq", "two_seq_offset"):
        apart = 256 * MIB + (16384 if p.pattern == "two_seq_offset" else 0)
        return [Master(count=COUNT, out=out, base=n * apart) for n in range(2)]
    if p.pattern == "two_seq_unequal":
        other = Master(count=FOREVER, out=outs[1], base=256 * MIB + 20480, background=True)
        return [Master(count=COUNT, out=outs[0]), other]
    assert p.pattern == "seq_vs_random"
    other = Master("rand", count=FOREVER, out=outs[1], base=GIB, region=256 * MIB, background=True)
    return [Master(count=COUNT, out=outs[0]), other]


@functools.cache
def measured(p: Point) -> float:
    """GB/s, or the light master's latency in ns."""
    run = BankRun(CHANNEL, masters(p), mapping=p.mapping)
    run.run()
    result = run.result()
    if p.metric == "GBps":
        return result.bytes_per_s / 1e9
    assert p.metric == "light_avg_lat_ns"
    return result.masters[-1].latency_mean * 0.469


def klass(p: Point) -> str:
    """Which row of the table of tolerances a point is in."""
    if p.pattern == "seq_outstanding":
        return "outstanding" if int(p.params[4:]) <= 8 else "saturating"
    # Under RoBaCo an offset puts each stream into banks of its own.
    apart = p.mapping == "RoBaCo" and p.pattern in ("4_seq_offset", "8_seq_offset", "two_seq_unequal")
    if apart or p.pattern in ("strided", "two_seq_offset"):
        return "apart"
    by_name = {"seq_sat": "saturating", "random": "random", "read_plus_write_stream": "writes"}
    return by_name.get(p.pattern, "writes" if p.pattern.startswith("seq_write") else "policy")


TOLERANCE = {"outstanding": 1.0, "saturating": 1.0, "random": 2.0, "apart": 3.0, "writes": 5.0, "policy": 10.0}
"""Percent of Ramulator; of Ramulator or DRAMSys for a sequential stream alone."""

ALL = points()


def references(p: Point) -> list[float]:
    """The figures that a point's class is measured by."""
    who = ("Ramulator2", "DRAMSys") if klass(p) in ("outstanding", "saturating") else ("Ramulator2",)
    return [ref for name in who if (ref := p.of(name)) is not None]


@pytest.mark.parametrize("p", ALL, ids=str)
def test_point(p: Point) -> None:
    got, kind = measured(p), klass(p)
    allowed = ("Ramulator2", "DRAMSys") if kind in ("outstanding", "saturating") else ("Ramulator2",)
    deviations = {who: 100 * (got / ref - 1) for who in allowed if (ref := p.of(who)) is not None}
    assert any(abs(d) <= TOLERANCE[kind] for d in deviations.values()), (
        f"{p}: expected {p.of('Ramulator2')}, measured {got:.4g}, "
        f"deviation {', '.join(f'{d:+.2f} % of {who}' for who, d in deviations.items())}; "
        f"class {kind}, {TOLERANCE[kind]} %"
    )


@pytest.mark.parametrize("p", [p for p in ALL if klass(p) == "policy"], ids=str)
def test_a_point_that_hangs_on_policy_lies_between_the_references(p: Point) -> None:
    # The references' own policies, and a percent: what they differ by where no policy matters.
    low, high = min(v for _, v in p.values), max(v for _, v in p.values)
    assert 0.99 * low <= measured(p) <= 1.01 * high, f"{p}: expected {low} to {high}, measured {measured(p):.4g}"


CLASS = {"outstanding": "sequential", "saturating": "sequential", "random": "random", "apart": "streams apart",
         "writes": "mixes", "policy": "colliding"}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN_ERROR)
def test_the_error_that_reports_state_is_the_error_of_the_points(name: str) -> None:
    """Mean and most, rounded up to a tenth of a percent: neither less than measured nor much more."""
    off = [min(abs(100 * (measured(p) / ref - 1)) for ref in references(p)) for p in ALL if CLASS[klass(p)] == name]
    for stated, got in zip(KNOWN_ERROR[name], (sum(off) / len(off), max(off)), strict=True):
        assert got <= stated <= got + 0.15, f"{name}: expected {stated} %, measured {got:.3f} %"


def test_all_points_of_the_table_are_here() -> None:
    assert len(ALL) == len(set(ALL)) == 79
