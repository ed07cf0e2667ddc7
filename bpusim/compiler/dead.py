"""Parts of a file that lead to no output: they are left out, and worth a note."""

from __future__ import annotations

from bpusim.compiler.graph import Graph
from bpusim.compiler.nested import with_bodies

__all__ = ["dead_parts"]


def dead_parts(graph: Graph, live: Graph) -> list[str]:
    """A note on the nodes and weights of ``graph`` that ``live``, what its outputs need, does without."""
    kept = {id(n) for n in live.nodes}
    nodes = [n for n in graph.nodes if id(n) not in kept]
    reads = {*live.outputs, *(x for n in with_bodies(live.nodes) for x in n.inputs)}
    reads |= {o for n in with_bodies(live.nodes) for b in n.bodies for o in b.outputs}
    tensors = {name: t for name, t in live.stored.items() if name not in reads}
    weights = {name: t for name, t in tensors.items() if t.values is None and t.floats is None}
    parts = []
    if nodes:
        parts.append(f"{len(nodes)} node{'s' * (len(nodes) > 1)} ({_some([str(n) for n in nodes])})")
    if weights:
        size = sum(t.bytes for t in weights.values())
        parts.append(f"{len(weights)} tensor{'s' * (len(weights) > 1)} of {size} B ({_some(list(weights))})")
    return [f"leads to no output and costs nothing: {', '.join(parts)}"] if parts else []


def _some(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
