"""Sizes that take a detour over floats: a size is cast, multiplied by a scale, rounded down and cast back."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, sqrt

import onnx

from bpusim.compiler.dims import as_expr
from bpusim.compiler.graph import INTEGER, Node, Stored
from bpusim.compiler.values import Value

__all__ = ["fold_floats"]

_LIMIT = 64
"""Numbers at most: more are data."""
_FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16}
_ONE: dict[str, Callable[[float], float]] = {
    "Floor": floor,
    "Ceil": ceil,
    "Round": round,  # halves to even, as ONNX has it
    "Sqrt": sqrt,
    "Neg": lambda a: -a,
    "Identity": lambda a: a,
}
_TWO: dict[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
}


def fold_floats(node: Node, inputs: list[Value | None], stored: dict[str, Stored]) -> Value | None:
    """The result of ``node`` if it follows from sizes and a few stored floats, else None.

    Stored floats alone stay what they are: weights.
    """
    given = [v for v in inputs if v is not None]
    if node.domain or not given or all(v.weight is not None for v in given):
        return None
    numbers = [_numbers(v, stored) for v in given]
    if any(n is None or len(n) > _LIMIT for n in numbers):
        return None
    lists = [n for n in numbers if n is not None]
    if node.type == "Cast":
        return _cast(node, given[0], lists[0])
    if not any(v.numbers is not None or v.dtype in _FLOATS for v in given):
        return None  # integers are folded exactly, or not at all
    if node.type in _ONE:
        return _made(node, given[0], [_ONE[node.type](a) for a in lists[0]])
    if node.type in _TWO:
        longest = max(map(len, lists))
        if any(len(x) not in (1, longest) for x in lists):
            return None
        a, b = (x * longest if len(x) == 1 else x for x in lists)
        shape = max(given, key=lambda v: (int(v.elements), len(v.dims)))
        return _made(node, shape, [_TWO[node.type](x, y) for x, y in zip(a, b, strict=True)])
    if node.type == "Concat" and all(len(v.dims) == 1 for v in given):
        joined = [x for part in lists for x in part]
        return Value((as_expr(len(joined)),), given[0].dtype, book=True, storage=node.outputs[0], numbers=tuple(joined))
    if node.type == "Gather" and len(given[0].dims) == 1:
        picked = [lists[0][int(i)] for i in lists[1]]
        return _made(node, given[1], picked, given[0].dtype)
    return None


def _numbers(value: Value, stored: dict[str, Stored]) -> tuple[float, ...] | None:
    if value.numbers is not None:
        return value.numbers
    if value.const is not None:
        return tuple(float(int(c)) for c in value.const) if all(c.is_const for c in value.const) else None
    return stored[value.weight].floats if value.weight is not None else None


def _made(node: Node, like: Value, numbers: list[float], dtype: int | None = None) -> Value:
    kind = onnx.TensorProto.FLOAT if like.dtype in INTEGER and dtype is None else like.dtype if dtype is None else dtype
    return Value(like.dims, kind, book=True, storage=node.outputs[0], numbers=tuple(map(float, numbers)))


def _cast(node: Node, value: Value, numbers: tuple[float, ...]) -> Value | None:
    """To integers towards zero; to floats as they are."""
    to = node.attrs.get("to")
    if to in _FLOATS:
        return _made(node, value, list(numbers), to)
    if to not in INTEGER or value.numbers is None:
        return None
    whole = tuple(as_expr(int(n != 0) if to == onnx.TensorProto.BOOL else int(n)) for n in numbers)
    return Value(value.dims, to, whole, book=True, storage=node.outputs[0])
