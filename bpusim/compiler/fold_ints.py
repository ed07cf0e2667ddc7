"""Shape arithmetic at compile time: integer constants and sizes, symbolic where a size is."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul, sub

import onnx

from bpusim.compiler.dims import Expr, as_expr, product
from bpusim.compiler.graph import Node, Stored
from bpusim.compiler.values import Value

__all__ = ["fold"]

_LIMIT = 4096
_ARITHMETIC: dict[str, Callable[[Expr, Expr], Expr]] = {"Add": add, "Sub": sub, "Mul": mul}


def fold(node: Node, inputs: list[Value | None], stored: dict[str, Stored]) -> Value | None:
    """The output of ``node`` if it is known at compile time, else None.

    ``ConstantOfShape`` of a known shape becomes a stored tensor (a weight whose data nobody needs).
    """
    if node.domain:
        return None
    name = node.outputs[0]
    if node.type == "Shape" and inputs[0] is not None:
        dims = inputs[0].dims[node.attrs.get("start", 0) : node.attrs.get("end")]
        return _known(name, dims)
    given = [v for v in inputs if v is not None]
    if not given or any(v.const is None for v in given):
        return None
    if node.type == "ConstantOfShape":
        return _constant_of_shape(node, given[0], stored)
    a = given[0].const or ()
    if node.type in ("Identity", "Cast"):
        return Value(given[0].dims, given[0].dtype, a, book=True, storage=name)
    if node.type in _ARITHMETIC:
        b = given[1].const or ()
        if len(a) != len(b) and 1 not in (len(a), len(b)):
            return None
        longest = max(len(a), len(b))
        pairs = zip(a * longest if len(a) == 1 else a, b * longest if len(b) == 1 else b, strict=True)
        try:
            values = tuple(_ARITHMETIC[node.type](x, y) for x, y in pairs)
        except ValueError:
            return None
        dims = given[0].dims if len(given[0].dims) >= len(given[1].dims) else given[1].dims
        return Value(
            dims if product(dims) == longest else (as_expr(longest),), given[0].dtype, values, book=True, storage=name
        )
    if node.type == "Concat" and all(len(v.dims) <= 1 for v in given):
        return _known(name, tuple(c for v in given for c in v.const or ()))
    if node.type == "Gather" and len(given[0].dims) == 1 and all(i.is_const for i in given[1].const or ()):
        at = [int(i) for i in given[1].const or ()]
        if any(not -len(a) <= i < len(a) for i in at):
            raise ValueError(f"index {at} of {len(a)} values")
        picked = tuple(a[i] for i in at)
        return Value(given[1].dims, given[0].dtype, picked, book=True, storage=name)
    if node.type == "Slice" and len(given[0].dims) == 1 and len(given) >= 3:
        bounds = [v.const[0] for v in given[1:] if v.const]
        if all(b.is_const for b in bounds):
            step = int(bounds[3]) if len(bounds) > 3 else 1
            return _known(name, a[int(bounds[0]) : int(bounds[1]) : step])
    return None


def _known(name: str, values: tuple[Expr, ...]) -> Value:
    return Value((as_expr(len(values)),), onnx.TensorProto.INT64, values, book=True, storage=name)


def _constant_of_shape(node: Node, shape: Value, stored: dict[str, Stored]) -> Value | None:
    if not all(c.is_const for c in shape.const or ()):
        return None
    dims = tuple(int(c) for c in shape.const or ())
    fill = node.attrs.get("value")
    dtype = onnx.TensorProto.FLOAT if fill is None else fill.data_type
    name = node.outputs[0]
    stored[name] = Stored(dtype, dims)
    value = Value.of_stored(name, stored[name])
    count = int(product(value.dims))
    if dtype == onnx.TensorProto.INT64 and count <= _LIMIT:
        number = 0 if fill is None else int(onnx.numpy_helper.to_array(fill).reshape(-1)[0])
        value.const = (as_expr(number),) * count
    return value
