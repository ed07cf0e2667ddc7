"""Conditions and expressions of parameters and figures: ``machine.cores.count <= 2 or machine.dram.channels == 1``.

A small part of Python's expressions: comparisons, ``and``, ``or``, ``not``, ``in``, ``x if condition else y``,
arithmetic, ``min``, ``max``, ``sum``, numbers, text, lists, tables (``{'a': 1, 'b': 2}[path]``) and paths. Text that is
a quantity counts as its value in the base unit, so that ``'17 GB/s'`` may be compared with ``machine.cores.dma.rate``.
A path that is no name of Python's is quoted: ``value['streams.my-chat.ttft_mean_ms']``. ``*`` stands for any part of
a path and names all figures that match: a comparison then holds if it holds for each of them.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bpusim.errors import StudyError, UnitError
from bpusim.units import DIMENSIONS, parse_quantity

__all__ = ["Each", "Rule", "quantity_of"]

_DO = "write a comparison of parameters, such as machine.cores.count <= 2"
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {"min": min, "max": max, "sum": sum}
_QUOTED = re.compile(r"""('[^']*'|"[^"]*")""")
_WILD = re.compile(r"[A-Za-z_]\w*(?:\.(?:\w+|\*))*?\.\*(?:\.(?:\w+|\*))*")
_VALUE = "value"
_UNIT = re.compile(r"[+-]?[\d.]+(?:[eE][+-]?\d+)?\s*(\S+)")


class Each(tuple[Any, ...]):
    """Values of all figures that a path with ``*`` names."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition or an expression, read once. ``key``: what it is of, for errors."""

    text: str
    tree: ast.expr
    key: str = "where"

    @classmethod
    def of(cls, text: str, key: str = "where") -> Rule:
        """Raises :class:`StudyError` for what cannot be read."""
        parts = _QUOTED.split(text.strip())
        parts[::2] = [_WILD.sub(lambda m: f"{_VALUE}[{m[0]!r}]", part) for part in parts[::2]]
        try:
            tree = ast.parse("".join(parts), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise StudyError(f"{key}: '{text}' cannot be read", do=_DO) from None
        return cls(text, tree, key)

    def paths(self) -> set[str]:
        """The parameters it asks for."""
        return set(_paths(self.tree))

    def holds(self, known: Mapping[str, Any]) -> bool:
        """Whether it does, given the values of its paths."""
        value = self.value(known)
        if not isinstance(value, bool):
            raise StudyError(f"{self.key}: '{self.text}' is {value!r}, not true or false", do=_DO)
        return value

    def value(self, known: Mapping[str, Any]) -> Any:
        """What it comes to, given the values of its paths: :class:`Each` for one with ``*``."""
        try:
            return _value(self.tree, known)
        except StudyError as e:
            raise StudyError(f"{self.key}: '{self.text}': {e.problems[0].what}", do=e.problems[0].do) from None
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as e:
            raise StudyError(f"{self.key}: '{self.text}' cannot be worked out: {e}", do=_DO) from None

    def conditions(self) -> list[Rule]:
        """Those that hold all together: the parts of ``a and b``, or itself."""
        if not isinstance(self.tree, ast.BoolOp) or not isinstance(self.tree.op, ast.And):
            return [self]
        return [part for v in self.tree.values for part in Rule(_text(v), v, self.key).conditions()]

    def room(self, known: Mapping[str, Any]) -> float | None:
        """How far a comparison of two numbers is from its limit, over the limit: 0.1 is 10 % to spare, -0.1 misses it
        by so much; the least of a path with ``*``. None for other conditions, and a limit of zero."""
        if not isinstance(self.tree, ast.Compare) or len(self.tree.ops) != 1:
            return None
        sign = {ast.Lt: 1, ast.LtE: 1, ast.Gt: -1, ast.GtE: -1}.get(type(self.tree.ops[0]))
        sides = [Rule(self.text, e, self.key).value(known) for e in (self.tree.left, self.tree.comparators[0])]
        left, right = (v if isinstance(v, Each) else Each((v,)) for v in sides)
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (*left, *right))
        if sign is None or not numbers or not all(right) or not left:
            return None
        return float(min(sign * (b - a) / abs(b) for a in left for b in right))


def _paths(node: ast.AST) -> list[str]:
    path = _path(node)
    if path is not None:
        return [path]
    if isinstance(node, ast.Call):  # the function is no path
        return [p for child in node.args for p in _paths(child)]
    return [p for child in ast.iter_child_nodes(node) for p in _paths(child)]


def _path(node: ast.AST) -> str | None:
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(path))) if name == _VALUE:
            return path
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None


def _text(node: ast.expr) -> str:
    text = ast.unparse(node)
    return re.sub(rf"{_VALUE}\['({_WILD.pattern})'\]", r"\1", text)


def quantity_of(value: object) -> tuple[float, str] | None:
    """(number in the base unit, base unit) of text that is a quantity, such as ``17 GB/s``; None of anything else."""
    text = value.strip() if isinstance(value, str) else ""
    found = _UNIT.fullmatch(text)
    for d in DIMENSIONS.values():
        if found is None or found[1] not in d.units:
            continue
        try:
            return parse_quantity(text, d.name), d.base
        except UnitError:  # 12.5 Hz is no frequency, of which there are whole numbers, but a frame rate
            continue
    return None


def _plain(value: Any) -> Any:
    """A quantity as its value in the base unit; a list of them too."""
    if isinstance(value, Each):
        return Each(_plain(v) for v in value)
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    found = quantity_of(value)
    return found[0] if found is not None else value


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    path = _path(node)
    if path is not None:
        return _plain(known[path])
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
            sides = _value(node.left, known), _value(node.right, known)
            if any(isinstance(v, Each) for v in sides):
                raise StudyError(
                    f"'{_text(node)}' counts with several figures", do="write max(...) or sum(...) of them"
                )
            return _ARITHMETIC[type(node.op)](*sides)
        case ast.Compare():
            compared = (node.left, *node.comparators)
            values = [_value(e, known) for e in compared]
            _check_units(node, [_unit(e, known) for e in compared])
            pairs = zip(node.ops, values, values[1:], strict=False)
            return all(_compared(op, a, b) for op, a, b in pairs)
        case ast.IfExp():
            return _value(node.body if _truth(node.test, known) else node.orelse, known)
        case ast.Subscript(value=ast.Dict() as table):
            return _entry(table, _value(node.slice, known), known)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS and node.args:
            values = [_value(e, known) for e in node.args]
            return _FUNCTIONS[name]([v for each in values for v in (each if isinstance(each, list | Each) else [each])])
    raise StudyError(f"'{_text(node)}' is not allowed", do=_DO)


def _check_units(node: ast.Compare, units: Sequence[str | None]) -> None:
    known = [u for u in units if u is not None]
    if len(set(known)) > 1 and not isinstance(node.ops[0], ast.In | ast.NotIn):
        kinds = " with ".join(f"{u}" if u else "a number without a unit" for u in dict.fromkeys(known))
        do = "compare quantities with quantities of their kind, and figures with numbers in the unit of their name"
        raise StudyError(f"'{_text(node)}' compares {kinds}", do=do)


def _unit(node: ast.expr, known: Mapping[str, Any]) -> str | None:
    """The base unit of what an expression comes to, empty for a number without; None if that cannot be said."""
    path = _path(node)
    if path is not None:
        return _unit_of(known[path])
    match node:
        case ast.Constant():
            return _unit_of(node.value) if node.value != 0 else None  # zero is zero in any unit
        case ast.UnaryOp(op=ast.USub()):
            return _unit(node.operand, known)
        case ast.BinOp():
            left, right = _unit(node.left, known), _unit(node.right, known)
            if isinstance(node.op, ast.Add | ast.Sub | ast.Mod) and left == right:
                return left
            if isinstance(node.op, ast.Mult) and "" in (left, right):
                return left or right
            if isinstance(node.op, ast.Div | ast.FloorDiv) and left == right:  # over 1e9 it may be meant as GB/s
                return ""
    return None


def _unit_of(value: Any) -> str | None:
    if isinstance(value, Each):
        return _unit_of(value[0]) if value else None
    found = quantity_of(value)
    if found is not None:
        return found[1]
    return "" if isinstance(value, int | float) and not isinstance(value, bool) else None


def _compared(op: ast.cmpop, a: Any, b: Any) -> bool:
    left, right = (v if isinstance(v, Each) else Each((v,)) for v in (a, b))
    return all(_COMPARE[type(op)](x, y) for x in left for y in right)


def _entry(table: ast.Dict, key: Any, known: Mapping[str, Any]) -> Any:
    for name, entry in zip(table.keys, table.values, strict=True):
        if name is not None and _value(name, known) == key:
            return _value(entry, known)
    raise StudyError(f"the table has no entry for {key!r}", do="add it")


def _truth(node: ast.expr, known: Mapping[str, Any]) -> bool:
    value = _value(node, known)
    if not isinstance(value, bool):
        raise StudyError(f"'{ast.unparse(node)}' is {value!r}, not true or false", do=_DO)
    return value
