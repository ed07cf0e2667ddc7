"""What an op asks of the machine, before it is known what the machine takes for it. Needs no onnx."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bpusim.compiler.dims import ONE, Expr, as_expr
from bpusim.compiler.widths import WeightUse

__all__ = ["Cost", "Gemm", "VecWork"]


@dataclass(frozen=True, slots=True)
class Gemm:
    """``groups`` products of ``m x k`` by ``k x n``; the ``k x n`` operand is held stationary.

    ``stored``: it is a weight, so that the rows of all sequences of a batch pass through it. ``narrow``: both operands
    are integers of 8 bits at most. ``turns``: how often the array fills and drains (steps that wait for each other).
    """

    m: Expr
    k: Expr
    n: Expr
    groups: int = 1
    stored: bool = False
    narrow: bool = False
    turns: int = 1

    @property
    def macs(self) -> Expr:
        """Multiply-accumulates."""
        return self.m * self.k * self.n * self.groups


@dataclass(frozen=True, slots=True)
class VecWork:
    """``rows`` of ``length`` elements, each costing ``per`` cycles of its class."""

    per: Mapping[str, int]
    rows: Expr
    length: Expr = ONE


@dataclass(slots=True)
class Cost:
    """What an op asks of the machine. ``fused``: vector work overlaps the array. ``weights``: which and how many
    rows are read (None: all). ``kv_read``, ``kv_write``: cache elements."""

    gemms: list[Gemm] = field(default_factory=list)
    vec: list[VecWork] = field(default_factory=list)
    weights: list[tuple[WeightUse, Expr | None]] = field(default_factory=list)
    kv_read: Expr = field(default_factory=lambda: as_expr(0))
    kv_write: Expr = field(default_factory=lambda: as_expr(0))
    fused: bool = False
    resident: list[WeightUse] = field(default_factory=list)
    """Weights of this op that another op (the RoPE prologue) reads."""
    rereads: dict[str, int] = field(default_factory=dict)
    """Weights that every step of a recurrence needs: by name, the steps. Those that do not stay on chip are read in
    each."""
    cpu: str = ""
    """Why the op runs on the CPU, if it does."""
    cache_inputs: tuple[int, ...] = ()
    cache_outputs: tuple[int, ...] = ()
    """Inputs and outputs that are the KV cache, charged through ``kv_read`` and ``kv_write``."""
