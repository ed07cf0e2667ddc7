"""The closed list of terms that a cost may depend on, and their values at a position.

A cost is a vector of integer coefficients over a phase's declared basis; binding it is a dot product. ``kv`` is the
number of cache entries before the step, ``tokens`` the real tokens of the step, ``batch`` the sequences it serves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

__all__ = ["evaluator", "is_term", "term_value"]

_PLAIN = {"1": "1", "tokens": "tokens", "kv": "kv", "tokens*kv": "tokens * kv", "tokens^2": "tokens * tokens"}
_CEIL = re.compile(r"ceil\(kv/([1-9]\d*)\)")
_MIN = re.compile(r"min\(kv,([1-9]\d*)\)")


def is_term(term: str) -> bool:
    """Whether ``term`` is in the closed list: ``1, tokens, kv, tokens*kv, tokens^2, ceil(kv/n), min(kv,w), batch``
    and products with ``batch``."""
    if term == "batch":
        return True
    inner = term.removeprefix("batch*")
    return (inner in _PLAIN and term != "batch*1") or bool(_CEIL.fullmatch(inner) or _MIN.fullmatch(inner))


@cache
def _expression(term: str) -> str:
    """The term as a Python expression in ``kv``, ``tokens`` and ``batch``."""
    if term == "batch":
        return "batch"
    if term.startswith("batch*"):
        return f"batch * ({_expression(term.removeprefix('batch*'))})"
    if term in _PLAIN:
        return _PLAIN[term]
    if match := _CEIL.fullmatch(term):
        return f"-(-kv // {int(match[1])})"
    if match := _MIN.fullmatch(term):
        return f"min(kv, {int(match[1])})"
    raise ValueError(f"'{term}' is not in the closed list of basis terms")


def term_value(term: str, *, kv: int, tokens: int, batch: int = 1) -> int:
    """The value of one term of the closed list."""
    return evaluator([term])(kv, tokens, batch)[0]


def evaluator(basis: Sequence[str]) -> Callable[[int, int, int], tuple[int, ...]]:
    """A function of (kv, tokens, batch) that gives the values of a whole basis.

    It is compiled from the terms, which come from the closed list alone: a decode step evaluates them for every token.
    """
    terms = "".join(f"{_expression(term)}, " for term in basis)
    return eval(f"lambda kv, tokens, batch: ({terms})")  # type: ignore[no-any-return]
