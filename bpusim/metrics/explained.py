"""Where the time of a stream goes and what bounds it: plain values. Times are integer picoseconds: sums are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bpusim.metrics.causes import CAUSES
from bpusim.units import Ps

__all__ = ["MEANINGS", "Bound", "Explained", "FirstToken", "Interval"]

MEANINGS: Mapping[str, str] = {
    "compute": "array and vector unit at full clock",
    "dram": "data, even with the channel all to itself",
    "scratchpad": "no room for the next tile",
    "contention": "others on the channel",
    "throttling": "clocks below those the machine was made for",
    "wakeup": "a core that had fallen asleep",
    "dispatch": "submitting calls, interrupts, op overhead",
    "host": "tokenising, sampling, logging, allocating",
    "fallback": "CPU ops and their crossings",
    "handover": "from core to core in a pipeline split",
    "sync": "barriers of a tensor split, waiting for the last core",
    "loading": "weights on their way from storage",
    "queueing": "a busy core or CPU, no room in the cache",
    "batching": "for the step of a batch to begin",
    "camera": "outside the machine: exposure, readout, waits",
    "pacing": "held back, because the user asked for a slower pace",
    "other": "claimed by no cause",
}
"""One line for each cause."""

_AT_WORK = (
    "compute", "dram", "scratchpad", "contention", "throttling", "wakeup", "dispatch", "fallback", "handover", "sync",
)  # fmt: skip
"""Causes of the time in which a model is at work, its submits and CPU ops included."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The mean of something that takes time, and its causes: a first token, each token, a frame, a way to an end."""

    name: str
    mean: Ps
    causes: Mapping[str, Ps]

    def ranked(self) -> list[tuple[str, Ps]]:
        """Causes that cost anything, the largest first."""
        return sorted(((c, t) for c, t in self.causes.items() if t), key=lambda row: (-row[1], CAUSES.index(row[0])))

    @property
    def at_work(self) -> Ps:
        """The part in which the model is at work: no host work, no waiting for a turn."""
        return sum(self.causes[c] for c in _AT_WORK)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        causes = [{"cause": c, "ms": t / 1e9, "share": t / self.mean} for c, t in self.ranked()]
        return {"mean_ms": self.mean / 1e9, "causes": causes}


@dataclass(frozen=True, slots=True)
class Bound:
    """What the machine allows a pass over the model at best, beside what it took.

    ``position``: where it is looked at. ``issued`` and ``useful``: operations (2 a MAC), padding counted and not.
    ``compute``: what array and vector unit take at full clock, of it ``array``; ``transfer``: bytes over
    ``bytes_per_s``, what its cores read alone. ``readers``: masters that read at the same time at most, and then
    ``shared_bytes_per_s`` is an equal share. ``peak``: operations a second with the model's type of activations.
    """

    position: str
    measured: Ps
    causes: Mapping[str, Ps]
    useful: int
    issued: int
    bytes: int
    compute: Ps
    array: Ps
    transfer: Ps
    peak: float
    activation: str
    bytes_per_s: float
    readers: int
    shared_bytes_per_s: float

    @property
    def by(self) -> Literal["compute", "dram"]:
        """Which of the two is in force."""
        return "dram" if self.transfer >= self.compute else "compute"

    @property
    def ideal(self) -> Ps:
        """The longer of compute and transfer: nothing in the way of either."""
        return max(self.compute, self.transfer)

    @property
    def ideal_shared(self) -> Ps:
        """The same while all that may read do, each with an equal share of the channel."""
        return max(self.compute, round(self.transfer * self.bytes_per_s / self.shared_bytes_per_s))

    @property
    def distance(self) -> float:
        """Measured over ideal."""
        return self.measured / self.ideal

    @property
    def intensity(self) -> float:
        """Issued operations a byte."""
        return self.issued / self.bytes if self.bytes else float("inf")

    @property
    def balance(self) -> float:
        """Operations a byte at which the array and what the cores read alone take equally long."""
        return self.peak / self.bytes_per_s

    @property
    def balance_shared(self) -> float:
        """The same with an equal share of the channel."""
        return self.peak / self.shared_bytes_per_s

    @property
    def between(self) -> dict[str, Ps]:
        """What lies between ideal and measured, exactly: causes, the largest first, and what of compute and DRAM does
        not overlap (below zero: what of the causes is hidden behind the ideal, such as the overhead of ops). Nothing
        where no causes are known."""
        if not self.causes:
            return {}
        rows = {c: t for c, t in self.causes.items() if t and c not in ("compute", "dram")}
        rows["overlap"] = self.causes["compute"] + self.causes["dram"] - self.ideal
        return dict(sorted(rows.items(), key=lambda row: -row[1]))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "position": self.position,
            "bound": self.by,
            "operations_per_byte": self.intensity if self.bytes else None,
            "useful_operations_per_byte": self.useful / self.bytes if self.bytes else None,
            "balance_operations_per_byte": self.balance,
            "balance_shared_operations_per_byte": self.balance_shared,
            "peak_operations_per_s": self.peak,
            "activation": self.activation,
            "bytes": self.bytes,
            "bytes_per_s": self.bytes_per_s,
            "readers": self.readers,
            "shared_bytes_per_s": self.shared_bytes_per_s,
            "compute_ms": self.compute / 1e9,
            "array_ms": self.array / 1e9,
            "transfer_ms": self.transfer / 1e9,
            "ideal_ms": self.ideal / 1e9,
            "ideal_shared_ms": self.ideal_shared / 1e9,
            "measured_ms": self.measured / 1e9,
            "measured_over_ideal": self.distance,
            "between_ms": {c: t / 1e9 for c, t in self.between.items()},
        }


@dataclass(frozen=True, slots=True)
class FirstToken:
    """What the first token is of a request: ``prompt`` and ``output`` are mean tokens of those that finished."""

    ttft: Ps
    tpot: Ps | None
    e2e: Ps
    prefill: Ps
    """The part of the first token in which the model reads the prompt."""
    prompt: float
    output: float
    chunk: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "prompt_tokens_mean": self.prompt,
            "output_tokens_mean": self.output,
            "ttft_ms": self.ttft / 1e9,
            "prefill_ms": self.prefill / 1e9,
            "e2e_ms": self.e2e / 1e9,
            "ttft_share_of_e2e": self.ttft / self.e2e,
            "prefill_share_of_ttft": self.prefill / self.ttft,
            "prefill_share_of_e2e": self.prefill / self.e2e,
            "ttft_ms_per_prompt_token": self.ttft / self.prompt / 1e9,
        }


@dataclass(frozen=True, slots=True)
class Explained:
    """A stream, or a chat stage of a pipeline (``PIPELINE.STAGE``)."""

    name: str
    kind: Literal["chat", "frames", "pipeline"]
    intervals: Sequence[Interval]
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    """By interval, and by stage of a pipeline for those that run a model on a frame."""
    first: FirstToken | None = None
    stage: bool = False
    """It is a stage: its time is part of its pipeline's."""
    output: float | None = None
    """Tokens of a chat's answer on average, of those asked for if none is finished; None if nobody knows."""

    def interval(self, name: str) -> Interval | None:
        """The one of that name, if there is one."""
        return next((i for i in self.intervals if i.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kind": self.kind,
            "intervals": {i.name: i.to_dict() for i in self.intervals},
            "bounds": {name: b.to_dict() for name, b in self.bounds.items()},
            "first_token": self.first.to_dict() if self.first is not None else None,
        }
