"""One rewrite: nodes in place of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx

from bpusim.compiler.graph import Node

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Rewrite", "WrongRewriteError", "constant"]


class WrongRewriteError(Exception):
    """A rule was applied where its replacement cannot be built."""


@dataclass(slots=True)
class Rewrite:
    """``after`` in place of ``before``.

    ``results``: tensors both make; ``parts``: what nodes of ``before`` become in the whole rewritten graph, by id;
    ``inside``: new names there of tensors that nothing else may read; ``arrays``: constants of ``after``; ``given``:
    inputs that are taken as assumed; ``small``: dims of inputs that are cut for speed; ``wide``: floats are
    computed as 64-bit ones, for their rounding is not the rule's; ``takes``: all that ``after`` may read, if stated.
    """

    rule: str
    node: Node
    before: Sequence[Node]
    after: Sequence[Node]
    results: Sequence[str]
    parts: Mapping[int, Sequence[Node]] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    given: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    small: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    wide: bool = False
    inside: Mapping[str, str] = field(default_factory=dict)
    takes: frozenset[str] | None = None


def constant(name: str, array: NDArray[Any]) -> Node:
    """A node that makes ``name``."""
    return Node("Constant", "", f"{name}/known", (), (name,), {"value": onnx.numpy_helper.from_array(array)})
