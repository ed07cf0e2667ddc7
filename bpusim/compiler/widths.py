"""Widths of stored weights, and the text by which a user sets them: ``CLASS=WIDTH[/BLOCK[/SCALE]]``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from bpusim.errors import CompileError, did_you_mean

__all__ = ["FLOATED", "ROUNDED", "Override", "Role", "WeightUse", "Width"]

Role = Literal["linear", "head", "embedding", "conv", "norm", "bias", "rope", "scale", "other"]
ROUNDED: tuple[Role, ...] = ("linear", "head", "embedding", "conv")
"""Classes that a plan may store as integers; a pattern of names means tensors of these."""
FLOATED: tuple[Role, ...] = ("norm", "bias")
"""Classes whose elements stay floats."""
_FIXED: tuple[Role, ...] = ("rope", "scale", "other")
_INTEGERS = {"int4": 4, "int8": 8}
_FLOATS = {"fp16": 16, "fp32": 32}
_CHANNEL = "channel"
_BLOCK = 128


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A weight as an op sees it: ``rows`` blocks of ``k`` elements, and the bytes the file stores for it."""

    tensor: str
    role: Role
    rows: int
    k: int
    stored: int


@dataclass(frozen=True, slots=True)
class Width:
    """How a row of weights is stored: integers of 4 or 8 ``bits`` in blocks with a scale each, or floats of 16 or 32.

    ``block``: elements that share a scale, 0 for a whole row; ``scale``: bytes of a scale. Floats have neither.
    """

    bits: int
    block: int = 0
    scale: int = 0

    @classmethod
    def of(cls, bits: int, role: Role) -> Width:
        """The usual one: blocks of 128, for a convolution's channel one scale, scales of 2 bytes."""
        return cls(bits) if bits >= 16 else cls(bits, 0 if role == "conv" else _BLOCK, 2)

    @property
    def integer(self) -> bool:
        """Whether elements are rounded to integers."""
        return self.bits < 16

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of ``k`` elements: each block begins at a byte and has its scale."""
        if not self.integer:
            return k * self.bits // 8
        block = self.block or max(k, 1)
        full, rest = divmod(k, block)
        return full * (-(-block * self.bits // 8) + self.scale) + (rest > 0) * (-(-rest * self.bits // 8) + self.scale)

    def __str__(self) -> str:
        if not self.integer:
            return f"fp{self.bits}"
        return f"int{self.bits}/{self.block or _CHANNEL}/fp{8 * self.scale}"


@dataclass(frozen=True, slots=True)
class Override:
    """A width for a class of weights, or for the tensors whose names match a pattern (``*`` and ``?``)."""

    text: str
    target: str
    bits: int
    block: int | None
    scale: int

    @classmethod
    def parse(cls, text: str) -> Override:
        """``CLASS=WIDTH[/BLOCK[/SCALE]]``: ``embedding=int8``, ``*.down_proj.*=int8/32/fp32``."""
        target, equals, value = text.rpartition("=")
        if not equals or not target:
            raise CompileError(
                f"--quant-set {text}: sets nothing", do="write CLASS=WIDTH[/BLOCK[/SCALE]]: head=int8/32"
            )
        bad = f"--quant-set {text}: "
        if target in _FIXED:
            raise CompileError(f"{bad}'{target}' follows the plan", do="set one of: " + ", ".join((*ROUNDED, *FLOATED)))
        width, *rest = value.split("/")
        if width in _FLOATS:
            if rest:
                raise CompileError(f"{bad}floats have no blocks and scales", do=f"write {target}={width}")
            return cls(text, target, _FLOATS[width], None, 0)
        if width not in _INTEGERS:
            raise CompileError(f"{bad}unknown width '{width}'", do=did_you_mean(width, [*_INTEGERS, *_FLOATS]))
        if target in FLOATED:
            raise CompileError(f"{bad}norms and biases are floats", do=f"write {target}=fp16 or {target}=fp32")
        block, scale = (*rest, "", "")[:2]
        if len(rest) > 2 or (rest and not block) or (len(rest) == 2 and scale not in _FLOATS):
            raise CompileError(
                f"{bad}not WIDTH[/BLOCK[/SCALE]]", do=f"such as {target}={width}/32/fp16; a scale is fp16 or fp32"
            )
        if block and block != _CHANNEL and not (block.isascii() and block.isdigit() and int(block) > 0):
            raise CompileError(f"{bad}'{block}' is no block", do="give elements that share a scale, or 'channel'")
        size = None if not block else 0 if block == _CHANNEL else int(block)
        return cls(text, target, _INTEGERS[width], size, _FLOATS[scale or "fp16"] // 8)

    def matches(self, use: WeightUse) -> bool:
        """Whether it is for this weight. A class by its name; all else is a pattern of tensor names."""
        if self.target in (*ROUNDED, *FLOATED):
            return use.role == self.target
        return use.role in ROUNDED and (use.tensor == self.target or fnmatchcase(use.tensor, self.target))

    def width(self, role: Role) -> Width:
        """What it sets for a weight of ``role``."""
        usual = Width.of(self.bits, role)
        if not usual.integer:
            return usual
        return replace(usual, block=usual.block if self.block is None else self.block, scale=self.scale)
