"""Measurements: a row a run of one language model on a board."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["Architecture", "Measured", "Measurements"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only language model with grouped-query attention and a gated feed-forward block."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    kind: str
    """``model_type`` of its config.json."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A row. ``ttft_ms`` and ``decode_tps``: None where not measured; ``prompt``: where the source does not say."""

    id: str
    line: int
    board: str
    model: str
    quant: str
    cores: tuple[int, int] | None
    """Used, and there; None if the row does not say: one core of the machine."""
    architecture: Architecture | None
    trace: Path | None
    config: Path | None
    weight_bits: int
    """0 with a trace whose row does not say it: the trace has it."""
    group: int | None
    """Elements that share a scale; None: the whole channel, or the row does not say it."""
    activation: Literal["int8", "int16"]
    prompt: int | None
    generated: int
    context: int | None
    """Entries of the compiled cache, or of the context."""
    chunk: int
    kv: Literal["valid", "capacity"]
    ttft_ms: float | None
    decode_tps: float | None
    bytes_estimate: int | None
    peak_bytes_per_s: float | None
    note: str = ""
    unusable: str | None = None
    """Why it cannot be simulated."""
    assumed: tuple[str, ...] = ()
    """What the row does not say and its simulation needs."""

    @property
    def repeat_of(self) -> tuple[object, ...]:
        """What rows have in common that measure the same thing."""
        what = self.architecture or self.trace or self.config
        return (
            self.board, self.cores, what, self.weight_bits, self.group, self.activation,
            self.prompt, self.context, self.chunk, self.kv,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measurements:
    """Rows of a file; ``digest``: SHA-256 of the file; ``left_out``: rows of other boards."""

    file: str
    digest: str
    rows: tuple[Measured, ...]
    left_out: int = 0
    boards: tuple[str, ...] = field(default=())
