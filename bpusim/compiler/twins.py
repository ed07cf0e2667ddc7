"""Stored tensors that hold the same data twice: a tied table that an exporter wrote out again, perhaps transposed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from math import prod

import numpy as np
import onnx

from bpusim.compiler.graph import ELEMENT_BITS

__all__ = ["twins"]

_Key = tuple[int, tuple[int, ...], bytes]
_WORTH = 65_536
"""Bytes from which a second copy is worth a note."""


def twins(tensors: Iterable[onnx.TensorProto]) -> list[str]:
    """A note on each large tensor whose bytes another one has too.

    Data outside the file are not looked at, nor are tensors of one value all over: these stand for data left out.
    """
    seen: dict[_Key, str] = {}
    heads: set[_Key] = set()
    shapes: dict[tuple[int, ...], int] = {}
    large = [t for t in tensors if len(t.raw_data) >= _WORTH and not _filled(t.raw_data)]
    for t in large:
        shape = (t.data_type, *sorted(t.dims))
        shapes[shape] = shapes.get(shape, 0) + 1
    notes = []
    for t in large:
        if shapes[(t.data_type, *sorted(t.dims))] < 2:
            continue
        own, turned = (t.data_type, tuple(t.dims), _digest(t.raw_data)), _turned(t, heads)
        saving = f"one for both would save {len(t.raw_data)} B"
        if own in seen:
            notes.append(f"'{t.name}' holds the same data as '{seen[own]}': {saving}")
        elif turned in seen:
            notes.append(f"'{t.name}' holds the transposed data of '{seen[turned]}': {saving}")
        else:
            seen[own] = t.name
    return notes


def _filled(data: bytes) -> bool:
    """Whether the same eight bytes come again and again."""
    return data[8:] == data[:-8]


def _turned(t: onnx.TensorProto, heads: set[_Key]) -> _Key:
    """The key of a matrix transposed, if its first column is the first row of one before it; else one of nothing.

    Adds its own first row to ``heads``.
    """
    width = ELEMENT_BITS.get(t.data_type, 0) // 8
    nothing: _Key = (t.data_type, (), b"")
    if len(t.dims) != 2 or not width or prod(t.dims) * width != len(t.raw_data):
        return nothing
    matrix = np.frombuffer(t.raw_data, dtype=f"V{width}").reshape(tuple(t.dims))
    dims = (int(t.dims[1]), int(t.dims[0]))
    known = (t.data_type, dims, _digest(matrix[:, 0].tobytes())) in heads
    heads.add((t.data_type, dims[::-1], _digest(matrix[0].tobytes())))
    return (t.data_type, dims, _digest(np.ascontiguousarray(matrix.T).tobytes())) if known else nothing


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
