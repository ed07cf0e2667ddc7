"""Stored tensors: initialisers, sparse ones and constants, by element type and dims; hardly ever by value."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import onnx

from bpusim.compiler.graph import ELEMENT_BITS, INTEGER, Stored
from bpusim.errors import CompileError

__all__ = ["constant", "constant_proto", "sparse", "stored"]

_SMALL = 4096
"""Constants up to this many integer elements keep their values: they may steer shapes."""
_AGAIN = "export the model again"
_FEW = 64
"""Constants up to this many floats keep their values: they may be scales that sizes are multiplied by."""
_FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16}


def stored(t: onnx.TensorProto) -> Stored:
    """A tensor of the file."""
    dims = tuple(t.dims)
    if any(d < 0 for d in dims):
        raise CompileError(f"tensor '{t.name}' has a negative size: {list(dims)}", do=_AGAIN)
    if t.data_type == onnx.TensorProto.STRING:
        return Stored(t.data_type, dims, text=sum(map(len, t.string_data)))
    if t.data_type not in ELEMENT_BITS:
        what = f"tensor '{t.name}' has element type {_type_name(t.data_type)}, which has no known size"
        raise CompileError(what, do=_AGAIN)
    if t.data_location == onnx.TensorProto.EXTERNAL:
        return Stored(t.data_type, dims)
    count, held, wanted = prod(dims), len(t.raw_data), Stored(t.data_type, dims).bytes
    if 0 < held < wanted:
        what = f"tensor '{t.name}': its dims {list(dims)} need {wanted} bytes, the file holds {held}"
        raise CompileError(what, do=_AGAIN)
    if t.data_type in INTEGER and count <= _SMALL:
        return Stored(t.data_type, dims, onnx.numpy_helper.to_array(t).astype(np.int64))
    if t.data_type in _FLOATS and count <= _FEW and (t.raw_data or t.float_data or t.double_data or t.int32_data):
        floats = onnx.numpy_helper.to_array(t).reshape(-1)
        return Stored(t.data_type, dims, floats=tuple(map(float, floats)))
    return Stored(t.data_type, dims)


def sparse(t: onnx.SparseTensorProto) -> Stored:
    """A sparse tensor, taken as the dense one it stands for: the array skips no zeros."""
    if t.values.data_type not in ELEMENT_BITS:
        what = f"tensor '{t.values.name}' has element type {_type_name(t.values.data_type)}, which has no known size"
        raise CompileError(what, do=_AGAIN)
    if any(d < 0 for d in t.dims):
        raise CompileError(f"tensor '{t.values.name}' has a negative size: {list(t.dims)}", do=_AGAIN)
    return Stored(t.values.data_type, tuple(t.dims))


def constant(attrs: dict[str, Any]) -> Stored:
    """What a Constant node holds."""
    if "value" in attrs:
        return stored(attrs["value"])
    if "sparse_value" in attrs:
        return sparse(attrs["sparse_value"])
    for key in ("value_int", "value_ints"):
        if key in attrs:
            values = np.array(attrs[key], dtype=np.int64)
            return Stored(onnx.TensorProto.INT64, values.shape, values)
    for key in ("value_float", "value_floats"):
        if key in attrs:
            array = np.array(attrs[key], dtype=np.float64)
            floats = tuple(map(float, array.reshape(-1))) if array.size <= _FEW else None
            return Stored(onnx.TensorProto.FLOAT, array.shape, floats=floats)
    for key in ("value_string", "value_strings"):
        if key in attrs:
            texts = [attrs[key]] if key == "value_string" else attrs[key]
            dims = () if key == "value_string" else (len(texts),)
            return Stored(onnx.TensorProto.STRING, dims, text=sum(map(len, texts)))
    raise CompileError("a Constant node holds no value", do=_AGAIN)


def constant_proto(attrs: dict[str, Any]) -> onnx.TensorProto | onnx.SparseTensorProto | None:
    """What a Constant node holds, as a tensor proto; None of strings."""
    for key in ("value", "sparse_value"):
        if key in attrs:
            proto: onnx.TensorProto | onnx.SparseTensorProto = attrs[key]
            return proto
    for key, dtype in (("value_int", np.int64), ("value_ints", np.int64),
                       ("value_float", np.float32), ("value_floats", np.float32)):  # fmt: skip
        if key in attrs:
            return onnx.numpy_helper.from_array(np.array(attrs[key], dtype=dtype))
    return None


def _type_name(number: int) -> str:
    known = number in onnx.TensorProto.DataType.values()
    return onnx.TensorProto.DataType.Name(number) if known else str(number)
