"""Shape arithmetic at compile time: integer constants and sizes, symbolic where a size is."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul, neg, sub

import onnx

from bpusim.compiler.dims import ONE, Expr, as_expr, product
from bpusim.compiler.graph import INTEGER, Node, Stored
from bpusim.compiler.values import Value

__all__ = ["fold", "foldable"]

_LIMIT = 4096


def fold(node: Node, inputs: list[Value | None], stored: dict[str, Stored]) -> Value | None:
    """The output of ``node`` if it is known at compile time, else None.

    ``ConstantOfShape`` of a known shape becomes a stored tensor (a weight whose data nobody needs); of the sizes of a
    step, a stored number that is broadcast.
    """
    if node.domain:
        return None
    name = node.outputs[0]
    if node.type == "Shape" and inputs[0] is not None:
        dims = inputs[0].dims[node.attrs.get("start", 0) : node.attrs.get("end")]
        return _known(name, dims)
    if node.type == "Size" and inputs[0] is not None:
        return Value((), onnx.TensorProto.INT64, (inputs[0].elements,), book=True, storage=name)
    given = [v for v in inputs if v is not None]
    if not given or any(v.const is None for v in given):
        return None
    if node.type == "ConstantOfShape":
        return _constant_of_shape(node, given[0], stored)
    a = given[0].const or ()
    if node.type == "Identity":
        return Value(given[0].dims, given[0].dtype, a, book=True, storage=name)
    if node.type == "Cast" and node.attrs.get("to") in INTEGER:
        boolean = node.attrs["to"] == onnx.TensorProto.BOOL
        if boolean and not all(c.is_const for c in a):
            return None
        values = tuple(as_expr(int(int(c) != 0)) for c in a) if boolean else a
        return Value(given[0].dims, node.attrs["to"], values, book=True, storage=name)
    if node.type in _ARITHMETIC or node.type in _COMPARISONS:
        return _two(node, given)
    if node.type in _PLAIN:
        if not all(c.is_const for c in a):
            return None
        return Value(
            given[0].dims, given[0].dtype, tuple(as_expr(_PLAIN[node.type](int(c))) for c in a), book=True, storage=name
        )
    if node.type == "Where":
        return _where(node, given)
    if node.type == "Range" and all(len(v.const or ()) == 1 and v.const[0].is_const for v in given):  # type: ignore[index]
        start, limit, step = (int(v.const[0]) for v in given)  # type: ignore[index]
        numbers = range(start, limit, step)
        if len(numbers) > _LIMIT:
            return None
        return Value((as_expr(len(numbers)),), given[0].dtype, tuple(map(as_expr, numbers)), book=True, storage=name)
    if node.type == "ReduceProd" and not node.attrs.get("axes") and len(given) == 1:
        total = product(a)
        kept = node.attrs.get("keepdims", 1)
        return Value((ONE,) * (len(given[0].dims) * kept), given[0].dtype, (total,), book=True, storage=name)
    return None


def foldable(node: Node) -> bool:
    """Whether :func:`fold` knows its type: it may be known at compile time in another graph."""
    kinds = {"Shape", "Size", "ConstantOfShape", "Range", "ReduceProd", "Where", *_ARITHMETIC, *_COMPARISONS, *_PLAIN}
    return not node.domain and node.type in kinds


def _two(node: Node, given: list[Value]) -> Value | None:
    """Arithmetic and comparisons of two lists of equal length, or of a list and one number."""
    a, b = (v.const or () for v in given[:2])
    if len(a) != len(b) and 1 not in (len(a), len(b)):
        return None
    longest = max(len(a), len(b)) if a and b else 0
    pairs = zip(a * longest if len(a) == 1 else a, b * longest if len(b) == 1 else b, strict=True)
    try:
        if node.type in _ARITHMETIC:
            values = tuple(_ARITHMETIC[node.type](x, y) for x, y in pairs)
        else:
            values = tuple(_compared(node.type, x, y) for x, y in pairs)
    except ValueError:
        return None
    dtype = onnx.TensorProto.BOOL if node.type in _TRUTHS else given[0].dtype
    dims = given[0].dims if len(given[0].dims) >= len(given[1].dims) else given[1].dims
    dims = dims if product(dims) == longest else (as_expr(longest),)
    return Value(dims, dtype, values, book=True, storage=node.outputs[0])


def _compared(kind: str, a: Expr, b: Expr) -> Expr:
    """What a comparison comes to; of sizes where it is the same whatever they are, else ValueError."""
    if (a.is_const and b.is_const) or kind in _LOGIC:
        return as_expr(_COMPARISONS[kind](int(a), int(b)))
    signs = _signs(a, b)
    if kind in ("Min", "Max"):
        smaller = a if signs <= {-1, 0} else b if signs <= {0, 1} else None
        if smaller is not None:
            return smaller if kind == "Min" else a + b - smaller
        found = set()
    else:
        found = {_COMPARISONS[kind](s, 0) for s in signs}
    if len(found) != 1:
        raise ValueError(f"{kind} of {a} and {b} differs from step to step")
    return as_expr(found.pop())


def _signs(a: Expr, b: Expr) -> set[int]:
    """Signs that ``a - b`` may have: all where a size in it is not bound."""
    if any(t.startswith("?") for t in (*a.terms, *b.terms)):
        return {-1, 0, 1}
    low, least = (a - b).least(), (b - a).least()
    signs = {-1, 0, 1}
    if low is not None:
        signs -= {-1, 0} if low > 0 else {-1} if low == 0 else set()
    if least is not None:
        signs -= {1, 0} if least > 0 else {1} if least == 0 else set()
    return signs


def _where(node: Node, given: list[Value]) -> Value | None:
    """A choice between two lists by known truths."""
    lists = [v.const or () for v in given]
    longest = max(map(len, lists))
    if any(len(x) not in (1, longest) for x in lists) or not all(c.is_const for c in lists[0]):
        return None
    truths, yes, no = (x * longest if len(x) == 1 else x for x in lists)
    values = tuple(y if int(t) else n for t, y, n in zip(truths, yes, no, strict=True))
    dims = next(v.dims for v, x in zip(given, lists, strict=True) if len(x) == longest)
    return Value(dims, given[1].dtype, values, book=True, storage=node.outputs[0])


def _quotient(a: int, b: int) -> int:
    """Integer division as ONNX has it, towards zero."""
    if not b:
        raise ValueError("division by zero")
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


def _exact_quotient(a: Expr, b: Expr) -> Expr:
    if a.is_const and b.is_const:
        return as_expr(_quotient(int(a), int(b)))
    if b.is_const and int(b) and all(c % int(b) == 0 for c in a.terms.values()):
        return Expr({t: c // int(b) for t, c in a.terms.items()})
    raise ValueError(f"{a} / {b}")


_ARITHMETIC: dict[str, Callable[[Expr, Expr], Expr]] = {"Add": add, "Sub": sub, "Mul": mul, "Div": _exact_quotient}
_COMPARISONS: dict[str, Callable[[int, int], int]] = {
    "Equal": lambda a, b: int(a == b),
    "Greater": lambda a, b: int(a > b),
    "Less": lambda a, b: int(a < b),
    "GreaterOrEqual": lambda a, b: int(a >= b),
    "LessOrEqual": lambda a, b: int(a <= b),
    "And": lambda a, b: int(bool(a and b)),
    "Or": lambda a, b: int(bool(a or b)),
    "Xor": lambda a, b: int(bool(a) != bool(b)),
    "Min": min,
    "Max": max,
}
_TRUTHS = _COMPARISONS.keys() - {"Min", "Max"}
_LOGIC = {"And", "Or", "Xor"}
_PLAIN: dict[str, Callable[[int], int]] = {"Neg": neg, "Abs": abs, "Not": lambda a: int(not a)}


def _known(name: str, values: tuple[Expr, ...]) -> Value:
    return Value((as_expr(len(values)),), onnx.TensorProto.INT64, values, book=True, storage=name)


def _constant_of_shape(node: Node, shape: Value, stored: dict[str, Stored]) -> Value:
    fill = node.attrs.get("value")
    dtype = onnx.TensorProto.FLOAT if fill is None else fill.data_type
    name = node.outputs[0]
    if not all(c.is_const for c in shape.const or ()):  # a stored number, broadcast to the sizes of the step
        stored[name] = Stored(dtype, ())
        return Value(shape.const or (), dtype, weight=name, book=dtype in INTEGER)
    dims = tuple(int(c) for c in shape.const or ())
    stored[name] = Stored(dtype, dims)
    value = Value.of_stored(name, stored[name])
    count = int(product(value.dims))
    if dtype == onnx.TensorProto.INT64 and count <= _LIMIT:
        number = 0 if fill is None else int(onnx.numpy_helper.to_array(fill).reshape(-1)[0])
        value.const = (as_expr(number),) * count
    return value
