"""The closed list of terms that a cost may depend on, and their values at a position.

A cost is a vector of integer coefficients over a phase's declared basis; binding it is a dot product. ``kv`` is the
number of cache entries before the step, ``tokens`` the real tokens of the step, ``batch`` the sequences it serves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["is_term", "term_value"]

_PLAIN = {"1", "tokens", "kv", "tokens*kv", "tokens^2"}
_CEIL = re.compile(r"ceil\(kv/([1-9]\d*)\)")
_MIN = re.compile(r"min\(kv,([1-9]\d*)\)")


def is_term(term: str) -> bool:
    """Whether ``term`` is in the closed list: ``1, tokens, kv, tokens*kv, tokens^2, ceil(kv/n), min(kv,w), batch``
    and products with ``batch``."""
    if term == "batch":
        return True
    inner = term.removeprefix("batch*")
    return (inner in _PLAIN and term != "batch*1") or bool(_CEIL.fullmatch(inner) or _MIN.fullmatch(inner))


def term_value(term: str, *, kv: int, tokens: int, batch: int = 1) -> int:
    """The value of one term of the closed list."""
    if term == "batch":
        return batch
    if term.startswith("batch*"):
        return batch * term_value(term.removeprefix("batch*"), kv=kv, tokens=tokens)
    plain = {"1": 1, "tokens": tokens, "kv": kv, "tokens*kv": tokens * kv, "tokens^2": tokens * tokens}
    if term in plain:
        return plain[term]
    if match := _CEIL.fullmatch(term):
        return -(-kv // int(match[1]))
    if match := _MIN.fullmatch(term):
        return min(kv, int(match[1]))
    raise ValueError(f"'{term}' is not in the closed list of basis terms")


def values(basis: Sequence[str], *, kv: int, tokens: int, batch: int = 1) -> list[int]:
    """The values of a whole basis."""
    return [term_value(t, kv=kv, tokens=tokens, batch=batch) for t in basis]
