"""The stored tensors of a compiled model: how each is used, and what it takes."""

from __future__ import annotations

from bpusim.compiler.lower import Lowered
from bpusim.compiler.quant import Plan, WeightUse
from bpusim.trace import Tensor

__all__ = ["tensors_of", "weights_of"]


def weights_of(phases: list[Lowered]) -> dict[str, WeightUse]:
    """Each stored tensor with the use that says how it is stored."""
    weights: dict[str, WeightUse] = {}
    for low in phases:
        for name, use in low.weights.items():
            kept = weights.setdefault(name, use)
            if use.role in ("linear", "head") or kept.stored < use.stored:
                weights[name] = use
    return weights


def tensors_of(
    plan: Plan, weights: dict[str, WeightUse], phases: list[Lowered], named: list[dict[str, list[str]]]
) -> tuple[Tensor, ...]:
    """The trace's tensors: stored bytes by the plan, those that are alike as one. ``named``: by phase, the
    stored tensors behind each name."""
    labels: dict[str, list[str]] = {}
    users: dict[str, list[str]] = {}
    for low, behind in zip(phases, named, strict=True):
        labels |= behind
        users |= low.users
    out = []
    for label, names in labels.items():
        use = weights[names[0]]
        shared = tuple(dict.fromkeys(users[names[0]])) if len(names) == 1 and len(set(users[names[0]])) > 1 else ()
        out.append(
            Tensor(label, plan.bytes(use), len(names), use.role, shared if use.role in ("head", "embedding") else ())
        )
    return tuple(out)
