"""What a run says: plain values, each with its unit in the key of :meth:`Result.to_dict`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bpusim.metrics.detail import Detail
from bpusim.metrics.heat import HeatStats
from bpusim.metrics.recorder import CoreCounters
from bpusim.metrics.splits import SplitPlan
from bpusim.metrics.stats import ChatStats, FrameStats, PhaseStats, PipelineStats
from bpusim.metrics.streams import RequestRow, rate_per_s
from bpusim.ports import BufferKind
from bpusim.units import PS_PER_S, Ps

__all__ = ["BatchStats", "CoreStats", "DramStats", "HeapStats", "MemoryBlock", "Result", "RunWarning", "WeightStats"]

SCHEMA = "bpusim-summary/1"


@dataclass(frozen=True, slots=True)
class RunWarning:
    """Something that is probably not what was meant, and its fix."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class BatchStats:
    """Decode steps of a model that serves up to ``batch`` sequences in one."""

    batch: int
    steps: int
    sequences_mean: float
    """Over the steps; 0 of none."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"batch": self.batch, "steps": self.steps, "sequences_mean": self.sequences_mean}


@dataclass(frozen=True, slots=True)
class CoreStats:
    """A core over the whole run: four utilisations that are never mixed, and what was loaded on it."""

    calls: int
    occupied_fraction: float
    mac_busy_fraction: float
    mac_issued_fraction: float
    mac_utilization: float
    load_log: Sequence[str]
    waits: Mapping[str, float] = field(default_factory=dict)
    """Parts of the time in which it stood still: in calls for ``dram`` (finished ones), between calls for the ``host``
    or an ``other_core``, or with ``no_work``."""

    @classmethod
    def of(
        cls,
        counters: CoreCounters,
        occupied: Ps,
        elapsed: Ps,
        peak_macs_per_s: int,
        load_log: Sequence[str],
        waits: Mapping[str, Ps],
    ) -> CoreStats:
        """From counters over ``elapsed`` of wall time."""
        use = PhaseStats.of(counters, elapsed, peak_macs_per_s)
        fraction = occupied / elapsed if elapsed else 0.0
        return cls(
            counters.calls,
            fraction,
            use.mac_busy_fraction,
            use.mac_issued_fraction,
            use.mac_utilization,
            load_log,
            {why: t / elapsed if elapsed else 0.0 for why, t in waits.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "calls": self.calls,
            "occupied_fraction": self.occupied_fraction,
            "mac_busy_fraction": self.mac_busy_fraction,
            "mac_issued_fraction": self.mac_issued_fraction,
            "mac_utilization": self.mac_utilization,
            "waits": dict(self.waits),
            "load_log": list(self.load_log),
        }


@dataclass(frozen=True, slots=True)
class DramStats:
    """The channel over the whole run: bytes of finished work by master and kind, and of work cut off at the end.

    ``channel_bytes``: all that the channel gave each master, to the last. ``latency``: mean time of each master's lines
    in ps. ``dropped``: bytes that open-loop masters lost. ``background``: what part of their bytes masters of the
    machine file write. ``errors``: known deviation of the fidelity from what ``against`` names, by class of traffic, in
    percent, mean and most.
    """

    preset: str
    fidelity: str
    peak_bytes_per_s: int
    moved: Mapping[str, Mapping[tuple[BufferKind, bool], int]]
    channel_bytes: Mapping[str, int]
    elapsed: Ps
    latency: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    background: Mapping[str, float] = field(default_factory=dict)
    against: str = ""
    errors: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def total(self, write: bool) -> int:
        """Bytes one way."""
        ours = sum(n for table in self.moved.values() for (_, w), n in table.items() if w == write)
        return ours + sum(self._background(name)[write] for name in self.background)

    def _background(self, master: str) -> tuple[int, int]:
        """(read, written) bytes of a master of the machine file."""
        moved = self.channel_bytes.get(master, 0)
        written = round(moved * self.background[master])
        return moved - written, written

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        read, write = self.total(False), self.total(True)
        rate = rate_per_s(sum(self.channel_bytes.values()), self.elapsed)
        masters: dict[str, dict[str, Any]] = {}
        for master, total in sorted(self.channel_bytes.items()):
            table = self.moved.get(master, {})
            row = masters[master] = {
                f"{kind}_{'write' if w else 'read'}_bytes": n for (kind, w), n in sorted(table.items())
            }
            if master in self.background:
                row["read_bytes"], row["write_bytes"] = self._background(master)
                if master in self.dropped:
                    row["dropped_bytes"] = self.dropped[master]
            else:
                row["unfinished_bytes"] = total - sum(table.values())
            if master in self.latency:
                row["mean_latency_ns"] = round(self.latency[master] / 1000, 1)
        return {
            "preset": self.preset,
            "fidelity": self.fidelity,
            "known_error_percent": {
                "against": self.against,
                **{kind: {"mean": mean, "most": most} for kind, (mean, most) in self.errors.items()},
            },
            "read_bytes": read,
            "write_bytes": write,
            "achieved_bytes_per_s": rate,
            "peak_bytes_per_s": self.peak_bytes_per_s,
            "peak_fraction": rate / self.peak_bytes_per_s,
            "by_master": masters,
        }


@dataclass(frozen=True, slots=True)
class HeapStats:
    """A reserved stretch of memory: its size, what lies in it, and the largest block that it could still take."""

    bytes: int
    used: int
    free: int
    blocks: Mapping[str, int]
    """Bytes by ``MODEL.PART``, in order of address."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "size_bytes": self.bytes,
            "used_bytes": self.used,
            "free_bytes": self.free,
            "blocks_bytes": dict(self.blocks),
        }


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A block of memory: ``MODEL.PART``, its first address, its bytes. Models that take turns share addresses."""

    name: str
    base: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"block": self.name, "base_address": self.base, "size_bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class WeightStats:
    """Weights of a model, or of a part of it, on a core (``any``: on whichever is free)."""

    model: str
    core: str
    resident: int
    """Bytes that stay on the core once the first step has read them."""
    streamed: int
    """All others: they come from memory whenever they are used."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "model": self.model,
            "core": self.core,
            "resident_bytes": self.resident,
            "streamed_bytes": self.streamed,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """A whole run. ``requests``: a row each in order of arrival, None unless the run was told to keep them
    (``simulate(..., records=True)``)."""

    scenario: str
    elapsed: Ps
    events: int
    seed: int
    streams: Mapping[str, ChatStats | FrameStats | PipelineStats]
    cores: Mapping[str, CoreStats]
    dram: DramStats
    resident_bytes: int
    usable_bytes: int
    warnings: Sequence[RunWarning]
    requests: Sequence[RequestRow] | None = field(repr=False)
    about: str = ""
    heat: HeatStats | None = None
    """None where nothing is said of the heat path."""
    journal: Sequence[Any] | None = field(default=None, repr=False)
    """What happened to each call (:class:`bpusim.runtime.Event`: at, core, call, what), in order of time; None unless
    the run was told to keep it (``simulate(..., journal=True)``)."""
    detail: Detail | None = field(default=None, repr=False)
    """What it did call by call; None unless the run was told to keep it (``simulate(..., detail=Keep())``)."""
    batches: Mapping[str, BatchStats] = field(default_factory=dict)
    """By model, of those that serve several sequences in a step."""
    splits: Mapping[str, SplitPlan] = field(default_factory=dict)
    """Plans of tensor splits, by model."""
    heaps: Mapping[str, HeapStats] = field(default_factory=dict)
    """Empty where memory is not cut into heaps."""
    weights: Sequence[WeightStats] = ()
    """Empty where no weights stay on the cores."""
    partial: bool = False
    """Whether the run was stopped before its end; where it stood then is not repeatable, unlike all else."""
    blocks: Sequence[MemoryBlock] = ()
    """What lies in memory, model by model."""

    @property
    def chats(self) -> dict[str, ChatStats]:
        """Chat streams, and chat stages of pipelines as ``PIPELINE.STAGE``."""
        out: dict[str, ChatStats] = {}
        for name, s in self.streams.items():
            if isinstance(s, ChatStats):
                out[name] = s
            elif isinstance(s, PipelineStats):
                out |= {f"{name}.{stage}": c for stage, c in s.chats.items()}
        return out

    @property
    def decode_tokens_per_s(self) -> float:
        """Sum over chat streams of 1 / mean TPOT."""
        return sum(s.decode_tokens_per_s for s in self.chats.values())

    @property
    def tokens_per_s(self) -> float:
        """All tokens over wall time."""
        tokens = sum(s.tokens for s in self.chats.values())
        return rate_per_s(tokens, self.elapsed)

    @property
    def goodput_per_s(self) -> float:
        """Requests a second that met what was asked of them, over all chat streams."""
        return sum(s.goodput_per_s for s in self.chats.values())

    @property
    def fairness(self) -> float | None:
        """Jain's index over the decode rates of chats for their weights: 1 if all get what they should, 1/n if one gets
        all; None of fewer than two."""
        rates = [c.decode_tokens_per_s / c.weight for c in self.chats.values() if c.decode_tokens_per_s]
        return sum(rates) ** 2 / (len(rates) * sum(r * r for r in rates)) if len(rates) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """The summary: the same inputs give the same bytes, but of a ``partial`` one. Nothing in it depends on the
        machine it ran on."""
        return {
            "schema": SCHEMA,
            "scenario": self.scenario,
            "about": self.about,
            "simulated_s": self.elapsed / PS_PER_S,
            "events": self.events,
            "partial": self.partial,
            "seed": self.seed,
            "streams": {k: v.to_dict() for k, v in self.streams.items()},
            "total": {
                "decode_tokens_per_s": self.decode_tokens_per_s,
                "tokens_per_s": self.tokens_per_s,
                "goodput_per_s": self.goodput_per_s,
                "fairness": self.fairness,
            },
            **({"batches": {k: v.to_dict() for k, v in self.batches.items()}} if self.batches else {}),
            "cores": {k: v.to_dict() for k, v in self.cores.items()},
            "dram": self.dram.to_dict(),
            **({"heat": self.heat.to_dict()} if self.heat is not None else {}),
            **({"tensor_splits": {k: v.to_dict() for k, v in self.splits.items()}} if self.splits else {}),
            "memory": {
                "resident_bytes": self.resident_bytes,
                "usable_bytes": self.usable_bytes,
                **({"blocks": [b.to_dict() for b in self.blocks]} if self.blocks else {}),
                **({"heaps": {k: h.to_dict() for k, h in self.heaps.items()}} if self.heaps else {}),
                **({"weights": [w.to_dict() for w in self.weights]} if self.weights else {}),
            },
            "warnings": [{"code": w.code, "text": w.text} for w in self.warnings],
        }
