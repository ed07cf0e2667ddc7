"""Quantisation plans: how many bytes a weight of a given role takes in memory.

``int4``: linear layers int4, embedding and output head int8, per 128-block along K with fp16 scales and no zero
points; norms, biases and KV fp16. ``int8``: linear layers int8 too. ``fp16``: everything fp16. ``keep``: the file's
own types. Activations are 16-bit unless said otherwise. Convolutions take int8 per output channel (fp16 scale) under
``int4`` and ``int8``. A plan that quantises replaces the scales that the file has for its own types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["PLANS", "Plan", "Role", "WeightUse"]

Role = Literal["linear", "head", "embedding", "conv", "norm", "bias", "rope", "scale", "other"]
PlanName = Literal["int4", "int8", "fp16", "keep"]
PLANS: tuple[PlanName, ...] = ("int4", "int8", "fp16", "keep")
_BLOCK = 128
_SCALE = 2


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A weight as an op sees it: ``rows`` blocks of ``k`` elements, and the bytes the file stores for it."""

    tensor: str
    role: Role
    rows: int
    k: int
    stored: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A named plan; see the module docstring."""

    name: PlanName

    def bits(self, role: Role) -> int | None:
        """Bits of an element without its scales; None when the file's own type stays."""
        if self.name == "keep":
            return None
        if self.name == "fp16" or role in ("norm", "bias", "rope", "other"):
            return 16
        return 4 if self.name == "int4" and role == "linear" else 8

    def row_bytes(self, use: WeightUse) -> int:
        """Bytes of one row of ``k`` elements with its scales."""
        bits = self.bits(use.role)
        if bits is None:
            return -(-use.stored // use.rows) if use.rows else 0
        if bits == 16:
            return 2 * use.k
        scales = 1 if use.role == "conv" else -(-use.k // _BLOCK)
        return -(-use.k * bits // 8) + scales * _SCALE

    def bytes(self, use: WeightUse) -> int:
        """Bytes of the whole tensor with its scales."""
        if use.role == "scale" and self.name != "keep":
            return 0
        return use.stored if self.bits(use.role) is None else use.rows * self.row_bytes(use)

    def describe(self, activation: str, kv_bits: int) -> dict[str, str]:
        """For the trace header."""
        if self.name == "keep":
            return {"plan": "keep", "activation": activation, "kv": f"fp{kv_bits}"}

        def text(role: Role) -> str:
            bits = self.bits(role)
            return "fp16" if bits == 16 else f"int{bits}/{'channel' if role == 'conv' else _BLOCK}/fp16"

        roles: tuple[Role, ...] = ("linear", "head", "embedding", "conv", "norm")
        return {"plan": self.name, **{r: text(r) for r in roles}, "kv": "fp16", "activation": activation}
