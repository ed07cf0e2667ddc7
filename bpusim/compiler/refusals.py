"""Nodes that have no cost: why, and what to do. They are counted by type and told at the end, all at once."""

from __future__ import annotations

import onnx

from bpusim.compiler.graph import Node
from bpusim.compiler.rules import REFUSED
from bpusim.compiler.values import Value
from bpusim.compiler.walk import Walk

__all__ = ["refuse_lost", "refuse_strings", "refuse_type"]


def refuse_lost(node: Node, walk: Walk) -> None:
    """A node without a rule whose inputs are unknown: noted now if it is refused in any case."""
    known = bool(node.domain) or onnx.defs.has(node.type)
    unstated = [o for o in node.outputs if o and o not in walk.graph.annotated]
    told = any(key.startswith(f"{node.kind}\n") for key in walk.ruleless)
    if unstated or not known or told or node.type in REFUSED:
        refuse_type(node, walk, known, f", and the file does not state the shape of '{(unstated or [''])[0]}'")


def refuse_strings(node: Node, inputs: list[Value | None], ruleless: bool, walk: Walk) -> None:
    """Note a node that reads strings: they have no size of their own, so no cost is known."""
    do = "cut it off with --until, or leave text to the host and feed numbers"
    if ruleless:
        key = f"{node.kind}\n, which reads strings: their size is not known before the run\n{do}"
        walk.ruleless.setdefault(key, []).append(node)
        walk.lose(node)
        return
    name = next(n for n, v in zip(node.inputs, inputs, strict=True) if v and v.dtype == onnx.TensorProto.STRING)
    walk.refuse(node, f"tensor '{name}' has element type STRING, which has no size before the run", do)


def refuse_type(node: Node, walk: Walk, known: bool, shape: str) -> bool:
    """Note a node that cannot be priced, with the others of its type; the first one's reason stands for all."""
    why = shape
    do = "state it there to have the op priced on the CPU by its elements, or replace it, or cut it off with --until"
    if not known:
        why, do = (
            ": the standard operators do not have it",
            "replace it by ops that have one, or cut it off with --until",
        )
    elif node.type in REFUSED or not shape:
        why = f", {REFUSED.get(node.type, 'whose work does not follow from the sizes of its results')}"
        do = "replace it by ops that have one (a MatMul, a Conv), or cut it off with --until"
    told = next((key for key in walk.ruleless if key.startswith(f"{node.kind}\n")), f"{node.kind}\n{why}\n{do}")
    walk.ruleless.setdefault(told, []).append(node)
    return False
