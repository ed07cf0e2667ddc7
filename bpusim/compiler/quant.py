"""Quantisation plans: how many bytes a weight of a given role takes in memory.

``int4``: linear layers int4, embedding and output head int8, per 128-block along K with fp16 scales and no zero
points; norms, biases and KV fp16. ``int8``: linear layers int8 too. ``w4a16``: linear layers int4, all else fp16, as
weight-only quantisers leave a model. ``fp16``: everything fp16. ``keep``: the file's own types. Activations are 16-bit
unless said otherwise. Convolutions take int8 per output channel (fp16 scale) under ``int4`` and ``int8``. A plan that
quantises replaces the scales that the file has for its own types. Overrides change it by class or by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bpusim.compiler.widths import FLOATED, ROUNDED, Override, Role, WeightUse, Width
from bpusim.errors import CompileError, did_you_mean

__all__ = ["PLANS", "Plan", "Role", "WeightUse"]

PlanName = Literal["int4", "int8", "w4a16", "fp16", "keep"]
PLANS: tuple[PlanName, ...] = ("int4", "int8", "w4a16", "fp16", "keep")


@dataclass(frozen=True, slots=True)
class Plan:
    """A named plan with its overrides, of which the last that matches a weight is for it; see the module docstring."""

    name: PlanName
    overrides: tuple[Override, ...] = ()

    @classmethod
    def parse(cls, name: str, overrides: Sequence[str], activation: str) -> Plan:
        """A plan as options state it. Raises :class:`CompileError` for what cannot be meant."""
        if name not in PLANS:
            raise CompileError(f"unknown plan '{name}'", do=did_you_mean(name, PLANS))
        if name == "w4a16" and activation != "int16":
            raise CompileError(
                f"the plan w4a16 has 16-bit activations, not {activation}",
                do="use --quant int4, or --activations int16",
            )
        if name == "keep" and overrides:
            what = f"--quant-set {overrides[0]}: the plan 'keep' leaves weights as the file has them"
            raise CompileError(what, do="choose a plan to change, such as --quant int4")
        return cls(name, tuple(Override.parse(text) for text in overrides))

    def _winner(self, use: WeightUse) -> Override | None:
        return next((o for o in reversed(self.overrides) if o.matches(use)), None)

    def _usual(self, role: Role) -> Width:
        if self.name == "fp16" or role not in ROUNDED or (self.name == "w4a16" and role != "linear"):
            return Width(16)
        return Width.of(4 if self.name in ("int4", "w4a16") and role == "linear" else 8, role)

    def width(self, use: WeightUse) -> Width | None:
        """How a weight is stored; None when the file's own type stays."""
        if self.name == "keep":
            return None
        override = self._winner(use)
        return self._usual(use.role) if override is None else override.width(use.role)

    def row_bytes(self, use: WeightUse) -> int:
        """Bytes of one row of ``k`` elements with its scales."""
        width = self.width(use)
        if width is None:
            return -(-use.stored // use.rows) if use.rows else 0
        return width.row_bytes(use.k)

    def bytes(self, use: WeightUse) -> int:
        """Bytes of the whole tensor with its scales."""
        if self.name == "keep":
            return use.stored
        return 0 if use.role == "scale" else use.rows * self.row_bytes(use)

    def check(self, uses: Iterable[WeightUse]) -> None:
        """Refuse an override that changes no weight, and two widths for one tensor."""
        if not self.overrides:
            return
        all_uses = list(uses)
        won = {o for u in all_uses if (o := self._winner(u)) is not None}
        for o in self.overrides:
            if o not in won:
                known = sorted({u.role for u in all_uses if u.role in (*ROUNDED, *FLOATED)})
                later = any(o.matches(u) for u in all_uses)
                why = "later ones replace it everywhere" if later else "no weight is of that class or name"
                names = sorted({u.tensor for u in all_uses if u.role in ROUNDED})
                close = next((c for k in (known, names) if (c := did_you_mean(o.target, k)).startswith("did")), "")
                do = "leave it out" if later else close or "classes of this model: " + ", ".join(known)
                raise CompileError(f"--quant-set {o.text}: {why}", do=do)
        stored: dict[str, tuple[Role, Width | None]] = {}
        for u in (u for u in all_uses if u.role in ROUNDED):
            role, width = stored.setdefault(u.tensor, (u.role, self.width(u)))
            if width != self.width(u):
                both = f"{role} ({width}) and {u.role} ({self.width(u)})"
                what = f"tensor '{u.tensor}' is {both}, but stored once"
                raise CompileError(what, do=f"set both: --quant-set {role}=... --quant-set {u.role}=...")

    def describe(self, activation: str, kv_bits: int, uses: Iterable[WeightUse] = ()) -> dict[str, str]:
        """For the trace header. With overrides a class has the widths that its weights in ``uses`` got."""
        if self.name == "keep":
            return {"plan": "keep", "activation": activation, "kv": f"fp{kv_bits}"}
        said: dict[str, str] = {"plan": self.name, **{str(r): str(self._usual(r)) for r in (*ROUNDED, "norm")}}
        if self.overrides:
            got: dict[str, set[str]] = {}
            for u in uses:
                got.setdefault(u.role, set()).add(str(self.width(u)))
            said |= {r: ", ".join(sorted(got[r])) for r in (*ROUNDED, *FLOATED) if r in got}
            said["set"] = " ".join(o.text for o in self.overrides)
        return {**said, "kv": "fp16", "activation": activation}
