"""The graph that is costed, as a graph: what the walk put in place of control flow, calls and old forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bpusim.compiler.dims import Expr
from bpusim.compiler.graph import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Program"]


@dataclass(slots=True)
class Program:
    """Nodes in the order they were costed, without control flow, and what is known of how they came about.

    ``known``: constants that no file holds; ``expanded``: control flow with the stretch of ``nodes`` in its place;
    ``folded``: nodes whose results are known; ``decomposed``: nodes that the toolchain does not take, with those in
    their place; ``old``: nodes of a form that newer operator sets have not.
    """

    nodes: list[Node] = field(default_factory=list)
    known: dict[str, NDArray[Any]] = field(default_factory=dict)
    expanded: list[tuple[Node, int, int]] = field(default_factory=list)
    folded: list[Node] = field(default_factory=list)
    decomposed: list[tuple[Node, list[Node]]] = field(default_factory=list)
    old: list[tuple[Node, tuple[Expr, ...]]] = field(default_factory=list)
    """With the dims that input 1 is given."""

    def take(self, source: str, axis: int, place: int, target: str) -> None:
        """``target`` is the part of ``source`` at ``place`` along ``axis``."""
        import numpy as np

        index = f"{target}/place"
        self.known[index] = np.array(place)
        self.nodes.append(Node("Gather", "", "", (source, index), (target,), {"axis": axis}))
