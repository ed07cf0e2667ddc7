"""The closed list of terms that a cost may depend on, and their values at a position.

A cost is a vector of integer coefficients over a phase's declared basis; binding it is a dot product. ``kv`` is the
number of cache entries before the step, ``tokens`` the real tokens of the step, ``batch`` the sequences it serves. Of
several sequences each has its own ``kv``: a product with ``batch`` is a sum over them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from math import gcd

__all__ = ["Basis", "at_least", "at_most", "by_sequence", "dot", "evaluator", "is_term"]

Basis = Callable[[tuple[int, ...], int], tuple[int, ...]]
"""Values of a basis by (``kv`` of each sequence, ``tokens``)."""

_PLAIN = {"1": "1", "tokens": "tokens", "kv": "kv", "tokens*kv": "tokens * kv", "tokens^2": "tokens * tokens"}
_CEIL = re.compile(r"ceil\((kv|min\(kv,[1-9]\d*\))/([1-9]\d*)\)")
_MIN = re.compile(r"(tokens\*)?min\(kv,([1-9]\d*)\)")
_OF_BATCH = re.compile(r"(max|min)\((?:([1-9]\d*)\*)?batch,([1-9]\d*)\)")
_BATCH = "batch"
_EACH = "batch*"


def is_term(term: str) -> bool:
    """Whether ``term`` is in the closed list: ``1, tokens, kv, tokens*kv, tokens^2, ceil(kv/n), min(kv,w),
    tokens*min(kv,w), ceil(min(kv,w)/n), batch``, products of these with ``batch``, and ``max(k*batch,n)``,
    ``min(k*batch,n)``, without ``k*`` where it is 1."""
    if term == _BATCH or _OF_BATCH.fullmatch(term):
        return True
    inner = term.removeprefix(_EACH)
    return (inner in _PLAIN and term != "batch*1") or bool(_CEIL.fullmatch(inner) or _MIN.fullmatch(inner))


def by_sequence(term: str) -> str:
    """The term for ``batch`` sequences, of one that holds for each."""
    return _BATCH if term == "1" else f"{_EACH}{term}"


def at_least(each: int, floor: int) -> tuple[int, str]:
    """``max(each * batch, floor)`` as (factor, term): a tile of weights stays in the array for ``each`` cycles a
    sequence, and for ``floor`` to load the next one."""
    return (each, _BATCH) if each >= floor else _limited("max", each, floor)


def at_most(each: int, ceiling: int) -> tuple[int, str]:
    """``min(each * batch, ceiling)`` as (factor, term): every sequence asks for ``each`` of what there are ``ceiling``
    of, and what several ask for is taken once."""
    return (ceiling, "1") if each >= ceiling else _limited("min", each, ceiling)


def _limited(kind: str, each: int, limit: int) -> tuple[int, str]:
    common = gcd(each, limit)
    each, limit = each // common, limit // common
    return common, f"{kind}(batch,{limit})" if each == 1 else f"{kind}({each}*batch,{limit})"


@cache
def _expression(term: str) -> str:
    """What stands behind ``batch*``, as a Python expression in ``kv`` and ``tokens``."""
    if term in _PLAIN:
        return _PLAIN[term]
    if match := _CEIL.fullmatch(term):
        return f"-(-{match[1]} // {int(match[2])})"
    if match := _MIN.fullmatch(term):
        return f"{'tokens * ' if match[1] else ''}min(kv, {int(match[2])})"
    raise ValueError(f"'{term}' is not in the closed list of basis terms")


def _of_batch(term: str) -> str | None:
    """A term of the number of sequences alone, as an expression in ``batch``."""
    if match := _OF_BATCH.fullmatch(term):
        return f"{match[1]}({int(match[2] or 1)} * batch, {int(match[3])})"
    return term if term in (_BATCH, "1") else None


def dot(coefs: Sequence[int], at: Sequence[int]) -> int:
    """The value of a cost where its basis has the values ``at``; missing coefficients are zero."""
    return sum(c * v for c, v in zip(coefs, at, strict=False))


def evaluator(basis: Sequence[str]) -> Basis:
    """A function that gives the values of a whole basis.

    It is compiled from the terms, which come from the closed list alone: a decode step evaluates them for every token.
    A term in ``kv`` or ``tokens`` without ``batch`` says nothing of several sequences: with those it is a ValueError.
    """
    one, many = [], []
    lone = ""
    for term in basis:
        of_batch = _of_batch(term)
        if of_batch is not None:
            one.append(of_batch.replace("batch", "1"))
            many.append(of_batch)
            continue
        each = _expression(term.removeprefix(_EACH))
        one.append(each)
        many.append(f"sum([{each} for kv in kvs])")
        lone = lone or ("" if term.startswith(_EACH) else term)
    single = eval(f"lambda kv, tokens: ({''.join(f'{e}, ' for e in one)})")
    several = eval(f"lambda kvs, tokens, batch: ({''.join(f'{e}, ' for e in many)})")
    if not any(_BATCH in term for term in basis):
        lone = lone or "1"

    def values(kvs: tuple[int, ...], tokens: int) -> tuple[int, ...]:
        if len(kvs) == 1:
            return single(kvs[0], tokens)  # type: ignore[no-any-return]
        if lone:
            raise ValueError(f"the costs are of one sequence: term '{lone}' does not say what several take")
        return several(kvs, tokens, len(kvs))  # type: ignore[no-any-return]

    return values
