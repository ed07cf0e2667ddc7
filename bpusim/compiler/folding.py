"""Results that are known before the run, whatever kind of arithmetic makes them."""

from __future__ import annotations

from bpusim.compiler.fold_arrays import ARRAYS, fold_arrays
from bpusim.compiler.fold_floats import fold_floats
from bpusim.compiler.fold_ints import fold
from bpusim.compiler.graph import Node, Stored
from bpusim.compiler.values import Value

__all__ = ["MALFORMED", "folded"]

MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, AssertionError, AttributeError)
"""What a node raises that is not as its operator set says."""


def folded(node: Node, inputs: list[Value | None], stored: dict[str, Stored]) -> list[Value] | None:
    """The results of ``node`` where they are known before the run. Raises one of ``MALFORMED``."""
    known = fold_arrays(node, inputs) if node.type in ARRAYS and not node.domain else None
    if known is not None:
        return known
    one = fold(node, inputs, stored) or fold_floats(node, inputs, stored)
    return None if one is None else [one]
