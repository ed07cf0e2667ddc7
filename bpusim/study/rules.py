"""Conditions on the parameters of a point: ``machine.cores.count <= 2 or machine.dram.channels == 1``.

A small part of Python's expressions: comparisons, ``and``, ``or``, ``not``, ``in``, arithmetic, numbers, text, lists,
and paths of the scenario. Text that is a quantity counts as its value in the base unit, so that ``'17 GB/s'`` may be
compared with ``machine.cores.dma.rate``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bpusim.errors import StudyError
from bpusim.units import dimension_of, parse_quantity

__all__ = ["Rule"]

_DO = "write a comparison of parameters, such as machine.cores.count <= 2"
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition, read once."""

    text: str
    tree: ast.expr

    @classmethod
    def of(cls, text: str) -> Rule:
        """Raises :class:`StudyError` for what is no condition."""
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise StudyError(f"where: '{text}' cannot be read", do=_DO) from None
        return cls(text, tree)

    def paths(self) -> set[str]:
        """The parameters it asks for."""
        return set(_paths(self.tree))

    def holds(self, known: Mapping[str, Any]) -> bool:
        """Whether it does, given the values of its paths."""
        try:
            value = _value(self.tree, known)
        except StudyError as e:
            raise StudyError(f"where: '{self.text}': {e.problems[0].what}", do=e.problems[0].do) from None
        except (TypeError, ZeroDivisionError, OverflowError) as e:
            raise StudyError(f"where: '{self.text}' cannot be worked out: {e}", do=_DO) from None
        if not isinstance(value, bool):
            raise StudyError(f"where: '{self.text}' is {value!r}, not true or false", do=_DO)
        return value


def _paths(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute | ast.Name):
        path = _path(node)
        return [path] if path is not None else []
    return [p for child in ast.iter_child_nodes(node) for p in _paths(child)]


def _path(node: ast.expr) -> str | None:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None


def _plain(value: Any) -> Any:
    """A quantity as its value in the base unit; a list of them too."""
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    dimension = dimension_of(value)
    return parse_quantity(value, dimension) if dimension is not None else value


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return _plain(node.value)
        case ast.List() | ast.Tuple():
            return [_value(e, known) for e in node.elts]
        case ast.BoolOp():
            parts = (_truth(v, known) for v in node.values)
            return all(parts) if isinstance(node.op, ast.And) else any(parts)
        case ast.UnaryOp(op=ast.Not()):
            return not _truth(node.operand, known)
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, known)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            return _ARITHMETIC[type(node.op)](_value(node.left, known), _value(node.right, known))
        case ast.Compare():
            values = [_value(e, known) for e in (node.left, *node.comparators)]
            pairs = zip(node.ops, values, values[1:], strict=False)
            return all(_COMPARE[type(op)](a, b) for op, a, b in pairs)
        case ast.Attribute() | ast.Name() if (path := _path(node)) is not None:
            return _plain(known[path])
    raise StudyError(f"'{ast.unparse(node)}' is not allowed", do=_DO)


def _truth(node: ast.expr, known: Mapping[str, Any]) -> bool:
    value = _value(node, known)
    if not isinstance(value, bool):
        raise StudyError(f"'{ast.unparse(node)}' is {value!r}, not true or false", do=_DO)
    return value
