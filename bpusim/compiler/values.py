"""What the compiler knows of each tensor, and what a cost rule gets and gives."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

import onnx

from bpusim.compiler.costs import Cost, Gemm, VecWork
from bpusim.compiler.dims import Expr, as_expr, product
from bpusim.compiler.graph import INTEGER, Node, Stored
from bpusim.compiler.quant import Role, WeightUse
from bpusim.errors import CompileError, Place, Problem

__all__ = ["NARROW", "Context", "Cost", "EmptyCacheError", "Gemm", "Value", "VecWork"]

_T = onnx.TensorProto
NARROW = {_T.INT8, _T.UINT8, _T.INT4, _T.UINT4}
"""Element types that the array takes at its 8-bit rate."""


class EmptyCacheError(CompileError):
    """Shapes that go together over an empty cache only; ``clashes`` are those, where more is wrong."""

    clashes: tuple[Problem, ...] = ()


@dataclass(slots=True)
class Value:
    """A tensor: dims, element type, and what it is.

    ``const``: its integer values, when they are known; ``numbers``: floats worked out from sizes; ``weight``: the
    stored tensor it views; ``book``: integer bookkeeping derived from shapes or masks only; ``storage``: the tensor
    whose bytes it is (a view's source); ``quant``: the integer type that a DequantizeLinear hides, with its stored
    ``scales`` and zero points; ``fed``: an input of the model.
    """

    dims: tuple[Expr, ...]
    dtype: int
    const: tuple[Expr, ...] | None = None
    weight: str | None = None
    book: bool = False
    storage: str = ""
    quant: int | None = None
    scales: tuple[str, ...] = ()
    fed: bool = False
    numbers: tuple[float, ...] | None = None

    @property
    def elements(self) -> Expr:
        """Number of elements."""
        return product(self.dims)

    @property
    def static(self) -> bool:
        """Whether it is a weight, a known constant, or bookkeeping: no activation."""
        return self.weight is not None or self.const is not None or self.book

    @property
    def narrow(self) -> bool:
        """Whether its elements are integers of 8 bits at most: as they are, or behind a DequantizeLinear."""
        return (self.dtype if self.quant is None else self.quant) in NARROW

    @classmethod
    def of_stored(cls, name: str, t: Stored) -> Value:
        """A stored tensor: a weight, or a known constant when its values were kept."""
        dims = tuple(as_expr(d) for d in t.dims)
        const = None if t.values is None else tuple(as_expr(int(v)) for v in t.values.reshape(-1))
        return cls(dims, t.dtype, const, weight=name)


class Context:
    """A node and what is known of its inputs. A rule sets the outputs and returns a :class:`Cost`, None for a view."""

    def __init__(
        self, node: Node, inputs: list[Value | None], stored: dict[str, Stored], opset: int, file: str
    ) -> None:
        self.node = node
        self.inputs = inputs
        self.stored = stored
        self.opset = opset
        self.file = file
        self.outputs: dict[str, Value] = {}
        self.used: set[str] = set()
        """Stored tensors that the rule has charged."""
        self.steering: str | None = None
        """The input that :meth:`unknown` stopped at."""

    def fail(self, what: str, do: str = "") -> NoReturn:
        """Stop with an error that names this node."""
        raise CompileError(f"{self.node}: {what}", place=Place(self.file), do=do)

    def clash(self, a: Expr, b: Expr, what: str) -> NoReturn:
        """Stop because dims ``a`` and ``b`` differ; :class:`EmptyCacheError` if they are equal over an empty cache."""
        if a.over_empty_cache() == b.over_empty_cache():
            raise EmptyCacheError(f"{self.node}: {what}; over an empty cache they do", place=Place(self.file))
        self.fail(what)

    def unknown(self, index: int, what: str) -> NoReturn:
        """Stop since input ``index`` is not known before the run; who knows the graph says how to make it known."""
        self.steering = self.node.inputs[index]
        self.fail(what)

    def value(self, index: int) -> Value:
        """Input number ``index``, which must be given."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            self.fail(f"input {index} is missing", "check the model with onnx")
        return value

    def optional(self, index: int) -> Value | None:
        """Input number ``index``, if given."""
        return self.inputs[index] if index < len(self.inputs) else None

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute; without a default it must be there."""
        if name in self.node.attrs:
            return self.node.attrs[name]
        if default is None:
            self.fail(f"attribute '{name}' is missing", "check the model with onnx")
        return default

    def ints(self, index: int, attr: str | None = None) -> tuple[int, ...] | None:
        """Integers given as input number ``index`` or, in older opsets, as an attribute."""
        value = self.optional(index)
        if value is not None:
            if value.const is None or not all(c.is_const for c in value.const):
                name = self.node.inputs[index]
                self.unknown(index, f"input {index} '{name}' steers the shape, but is not known before the run")
            return tuple(int(c) for c in value.const)
        if attr is not None and attr in self.node.attrs:
            got = self.node.attrs[attr]
            return tuple(got) if isinstance(got, list | tuple) else (int(got),)
        return None

    def floats(self, index: int) -> tuple[float, ...] | None:
        """Known numbers given as input number ``index`` (scales); None if it is left out or not known."""
        value = self.optional(index)
        if value is None or value.weight is None:
            return None if value is None else value.numbers
        return self.stored[value.weight].floats

    def out(self, dims: tuple[Expr | int, ...], *, index: int = 0, dtype: int | None = None) -> Value | None:
        """Declare output number ``index`` (None if the node leaves it out)."""
        if index >= len(self.node.outputs) or not self.node.outputs[index]:
            return None
        name = self.node.outputs[index]
        value = Value(tuple(as_expr(d) for d in dims), self.value(0).dtype if dtype is None else dtype, storage=name)
        self.outputs[name] = value
        return value

    def view(self, dims: tuple[Expr | int, ...], source: int = 0) -> None:
        """Output 0 is input ``source`` under other dims: no work, no bytes."""
        value = self.out(dims)
        origin = self.value(source)
        if value is not None:
            value.storage, value.weight, value.dtype = origin.storage, origin.weight, origin.dtype
            value.book, value.fed = origin.book, origin.fed
            value.quant, value.scales = origin.quant, origin.scales
            if origin.const is not None and len(origin.const) == _count(value):
                value.const = origin.const
            if origin.numbers is not None and len(origin.numbers) == _count(value):
                value.numbers = origin.numbers

    def ranked(self, rank: int) -> list[int]:
        """The dims of input 0 as numbers; it must have ``rank`` of them (at least, where negative)."""
        dims = self.value(0).dims
        if len(dims) != rank if rank >= 0 else len(dims) < -rank:
            self.fail(f"the input {list(dims)} has {len(dims)} dimensions, not {abs(rank)}{' or more' * (rank < 0)}")
        return [self.number(d, "a dimension") for d in dims]

    def axis(self, default: int | None = None, rank: int | None = None, name: str = "axis") -> int:
        """An axis attribute, counted from the front; ``rank``: of input 0 unless given."""
        rank = len(self.value(0).dims) if rank is None else rank
        axis = int(self.attr(name, default))
        if not -rank <= axis < rank:
            self.fail(f"{name} {axis} is not within the {rank} dimensions")
        return axis % rank

    def number(self, dim: Expr, what: str) -> int:
        """A dimension that must be a plain number here."""
        if not dim.is_const:
            self.fail(f"{what} is {dim}; this op needs a fixed number", do="bind it: --bind NAME=NUMBER")
        return int(dim)

    def use(self, value: Value, role: Role, rows: int, k: int, *extra: Value | None) -> WeightUse:
        """``value`` as a weight of ``rows`` x ``k``, with its scales and zero points in ``extra``."""
        assert value.weight is not None
        names = [value.weight, *(v.weight for v in extra if v is not None and v.weight)]
        self.used.update(names)
        return WeightUse(value.weight, role, rows, k, sum(self.stored[n].bytes for n in names))

    def operand(self, value: Value | None, role: Role) -> list[tuple[WeightUse, Expr | None]]:
        """A small weight (bias, norm) read whole; nothing for an activation, a scalar, or none."""
        if value is None or value.weight is None:
            return []
        elements = prod(self.stored[value.weight].dims)  # a broadcast view reads what is stored
        if elements <= 1 or value.dtype == onnx.TensorProto.INT64:
            return []
        return [(self.use(value, role, 1, elements), None)]

    def uncharged(self) -> list[tuple[WeightUse, Expr | None]]:
        """Stored operands that the rule has left out, whole: a mask, a position table, an initial state, indices.

        Scalars, and numbers that are known beforehand, are part of the program.
        """
        out: list[tuple[WeightUse, Expr | None]] = []
        for value in self.inputs:
            if value is None or value.weight is None or value.weight in self.used:
                continue
            elements = prod(self.stored[value.weight].dims)
            if elements > 1 and value.const is None and value.numbers is None and not value.book:
                role: Role = "other" if value.dtype in INTEGER else "bias"
                out.append((self.use(value, role, 1, elements), None))
        return out

    def part(self, value: Value, elements: Expr) -> list[tuple[WeightUse, Expr | None]]:
        """``elements`` of a stored tensor that a copy picks out; nothing for an activation."""
        if value.weight is None:
            return []
        return [(self.use(value, "other", prod(self.stored[value.weight].dims), 1), elements)]


def _count(value: Value) -> int:
    return int(value.elements) if value.elements.is_const else -1
