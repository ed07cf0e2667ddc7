"""Layout at compile time: known integers that are sliced, joined, picked and turned before they steer a shape."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from bpusim.compiler.dims import as_expr
from bpusim.compiler.graph import Node
from bpusim.compiler.values import Value

__all__ = ["ARRAYS", "fold_arrays"]

_LIMIT = 4096
_SHAPES = {onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL}
"""Element types of what steers shapes; narrower integers are weights."""
Array = np.ndarray[tuple[int, ...], np.dtype[np.object_]]


def fold_arrays(node: Node, inputs: list[Value | None]) -> list[Value] | None:
    """The results of ``node`` if all it reads is known, else None. ValueError and the like if it cannot be done."""
    given = [v for v in inputs if v is not None]
    data = given if node.type == "Concat" else given[:1]
    if not given or any(v.const is None or not all(d.is_const for d in v.dims) for v in given):
        return None
    if any(v.dtype not in _SHAPES for v in data):
        return None
    arrays = [None if v is None else _array(v) for v in inputs]
    results = [np.asarray(r, dtype=object) for r in ARRAYS[node.type](node, arrays)]  # one alone comes bare
    if sum(r.size for r in results) > _LIMIT:
        return None
    return [
        Value(tuple(map(as_expr, r.shape)), given[0].dtype, tuple(r.reshape(-1)), book=True, storage=name)
        for r, name in zip(results, node.outputs, strict=True)
    ]


def _array(value: Value) -> Array:
    out = np.empty(len(value.const or ()), dtype=object)
    out[:] = value.const
    return out.reshape(tuple(int(d) for d in value.dims))


def _numbers(node: Node, arrays: list[Array | None], index: int, attr: str = "") -> list[int] | None:
    """Plain integers given as an input or, in older opsets, as an attribute."""
    array = arrays[index] if index < len(arrays) else None
    if array is None:
        return list(node.attrs[attr]) if attr in node.attrs else None
    return [int(e) for e in array.reshape(-1)]


def _first(arrays: list[Array | None]) -> Array:
    if arrays[0] is None:
        raise ValueError("input 0 is missing")
    return arrays[0]


def _slice(node: Node, arrays: list[Array | None]) -> list[Array]:
    array = _first(arrays)
    starts, ends = _numbers(node, arrays, 1, "starts") or [], _numbers(node, arrays, 2, "ends") or []
    axes = _numbers(node, arrays, 3, "axes") or list(range(len(starts)))
    steps = _numbers(node, arrays, 4) or [1] * len(starts)
    cut = [slice(None)] * array.ndim
    for axis, low, high, step in zip(axes, starts, ends, steps, strict=True):
        size = array.shape[axis]
        if step < 0:  # an end before the first element takes that too
            stop = None if high < -size else high
            cut[axis] = slice(min(low, size - 1), stop, step)
        else:
            cut[axis] = slice(low, high, step)
    return [array[tuple(cut)]]


def _concat(node: Node, arrays: list[Array | None]) -> list[Array]:
    return [np.concatenate([a for a in arrays if a is not None], axis=node.attrs.get("axis", 1))]


def _gather(node: Node, arrays: list[Array | None]) -> list[Array]:
    array, axis = _first(arrays), node.attrs.get("axis", 0)
    index = np.array(_numbers(node, arrays, 1), dtype=np.int64)
    shape = arrays[1].shape if arrays[1] is not None else ()
    return [np.take(array, index.reshape(shape), axis=axis)]


def _transpose(node: Node, arrays: list[Array | None]) -> list[Array]:
    return [np.transpose(_first(arrays), node.attrs.get("perm"))]


def _expand(node: Node, arrays: list[Array | None]) -> list[Array]:
    shape = np.broadcast_shapes(_first(arrays).shape, tuple(_numbers(node, arrays, 1) or ()))
    if int(np.prod(shape)) > _LIMIT:
        raise ValueError(f"{list(shape)} are too many known numbers")
    return [np.broadcast_to(_first(arrays), shape)]


def _split(node: Node, arrays: list[Array | None]) -> list[Array]:
    array, axis, parts = _first(arrays), node.attrs.get("axis", 0), len(node.outputs)
    sizes = _numbers(node, arrays, 1, "split")
    if sizes is None:
        part = -(-array.shape[axis] // parts)
        sizes = [part] * (parts - 1) + [array.shape[axis] - part * (parts - 1)]
    if sum(sizes) != array.shape[axis] or len(sizes) != parts:
        raise ValueError(f"{sizes} are not the parts of {array.shape[axis]}")
    return list(np.split(array, np.cumsum(sizes)[:-1], axis=axis))


def _reshape(node: Node, arrays: list[Array | None]) -> list[Array]:
    array = _first(arrays)
    wanted = _numbers(node, arrays, 1, "shape") or []
    if not node.attrs.get("allowzero", 0):
        wanted = [array.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    return [array.reshape(wanted)]


ARRAYS: dict[str, Callable[[Node, list[Array | None]], list[Array]]] = {
    "Slice": _slice,
    "Concat": _concat,
    "Gather": _gather,
    "Transpose": _transpose,
    "Expand": _expand,
    "Split": _split,
    "Reshape": _reshape,
}
