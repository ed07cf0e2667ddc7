"""Sizes by name: ``seq``, or an expression of names such as ``past_len + seq``; what ``--bind`` gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx

from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.graph import INTEGER, Graph
from bpusim.errors import CompileError, Place, Problem, did_you_mean

__all__ = ["Bindings", "bind", "leaves"]

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_$][\w.$:]*)|(//|[-+*/(),]))")
_LONGEST = 200
"""Characters of a name that is read as an expression; no exporter writes longer ones."""
Tree = tuple[str, list["Tree"]]


@dataclass(slots=True)
class Bindings:
    """What the user bound: sizes by symbol, whole shapes by input, and values of scalar integer inputs."""

    sizes: dict[str, Expr] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()
    """Names that are no expressions."""
    told: dict[str, str] = field(default_factory=dict)
    """How the user bound a size, by symbol."""
    preset: bool = False
    """Whether the phases of a language model set some."""
    overridden: dict[str, str] = field(default_factory=dict)
    """Inputs whose fixed sizes the user bound to others, and how."""

    def size(self, dim: int | str | None, unnamed: str) -> Expr:
        """A dim; an unbound one is a term ``?name`` that multiplies to itself (``unnamed`` where it has no name)."""
        if isinstance(dim, int):
            return as_expr(dim)
        if not dim:
            return Expr({f"?{unnamed}": 1})
        if dim in self.sizes:
            return self.sizes[dim]
        tree = expression(dim, self.plain | self.sizes.keys())
        if tree is None:
            return Expr({f"?{dim}": 1})
        missing = [n for n in _names(tree) if n not in self.sizes]
        if missing:
            return Expr({f"?{missing[0]}": 1})
        by = ", ".join(dict.fromkeys(f"{n} = {self.sizes[n]}" for n in _names(tree)))
        try:
            value = _value(tree, self.sizes)
        except (ValueError, ZeroDivisionError):
            what = f"the size '{dim}' has no whole value for {by}"
            raise CompileError(what, do=f'bind others, or itself: --bind "{dim}=NUMBER"') from None
        if value.is_const and int(value) < 0:
            raise CompileError(f"the size '{dim}' comes to {value} for {by}", do="bind others")
        return value


def leaves(dim: str, plain: frozenset[str]) -> list[str]:
    """The names to bind for a symbolic dim: itself, or those in its expression."""
    tree = expression(dim, plain)
    return [dim] if tree is None else list(dict.fromkeys(_names(tree)))


def expression(text: str, known: frozenset[str] | set[str]) -> Tree | None:
    """``text`` as an expression of names, None if it is a name itself.

    Names may hold dots, and those some exporters write hold slashes and dashes: without spaces, ``a/b`` is an
    expression only if ``a`` and ``b`` are ``known`` sizes or numbers.
    """
    if len(text) > _LONGEST or text in known:
        return None
    try:
        tree = _parse(text)
    except ValueError:
        return None
    if not tree[1]:
        return None
    clear = re.search(r"[+*(]|\s", text) is not None
    return tree if clear or all(n in known for n in _names(tree)) else None


def _parse(text: str) -> Tree:
    """The tree of an expression: (operator, operands), (name or number, nothing). ValueError if it is none."""
    tokens: list[str] = []
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(text)
        tokens.append(found.group(found.lastindex or 0))
        at = found.end()
    tokens.append("")

    def summed() -> Tree:
        left = multiplied()
        while tokens[0] in ("+", "-"):
            left = (tokens.pop(0), [left, multiplied()])
        return left

    def multiplied() -> Tree:
        left = single()
        while tokens[0] in ("*", "/", "//"):
            left = (tokens.pop(0), [left, single()])
        return left

    def single() -> Tree:
        token = tokens.pop(0)
        if token == "-":
            return ("-", [("0", []), single()])
        if token == "(":
            inner = summed()
        elif token and token not in "+*/,)":
            if tokens[0] != "(":
                return (token, [])
            tokens.pop(0)
            operands = [summed()]
            while tokens[0] == ",":
                tokens.pop(0)
                operands.append(summed())
            inner = (token.lower() + "()", operands)
            if inner[0] not in _CALLS:
                raise ValueError(text)
        else:
            raise ValueError(text)
        if tokens.pop(0) != ")":
            raise ValueError(text)
        return inner

    tree = summed()
    if tokens != [""]:
        raise ValueError(text)
    return tree


_CALLS = {"floor()", "ceil()", "ceiling()", "min()", "max()", "mod()"}


def _names(tree: Tree) -> Iterator[str]:
    head, operands = tree
    if not operands and not head.isdigit():
        yield head
    for t in operands:
        yield from _names(t)


def _value(tree: Tree, sizes: Mapping[str, Expr]) -> Expr:
    """Its value. ``floor`` and ``ceil`` apply to the division in them; a bare ``/`` must come out even."""
    head, operands = tree
    if not operands:
        return as_expr(int(head)) if head.isdigit() else sizes[head]
    if head in ("floor()", "ceil()", "ceiling()"):
        (inner,) = operands
        if inner[0] not in ("/", "//"):
            return _value(inner, sizes)
        a, b = (int(_value(t, sizes)) for t in inner[1])
        return as_expr(a // b if head == "floor()" else -(-a // b))
    parts = [_value(t, sizes) for t in operands]
    if head == "+":
        return parts[0] + parts[1]
    if head == "-":
        return parts[0] - parts[1]
    if head == "*":
        return parts[0] * parts[1]
    numbers = [int(p) for p in parts]
    if head == "/" and numbers[0] % numbers[1]:
        raise ValueError("does not divide")
    if head in ("/", "//"):
        return as_expr(numbers[0] // numbers[1])
    if head == "mod()":
        return as_expr(numbers[0] % numbers[1])
    return as_expr(min(numbers) if head == "min()" else max(numbers))


def bind(
    graph: Graph, given: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]], preset: Mapping[str, Expr]
) -> Bindings:
    """What ``given`` numbers and ``shapes`` bind; ``preset`` sizes are those of a language model's phase.

    A number binds a symbol of that name; else the value of an integer input of one element, or the size of an input
    of one dimension. A shape binds the symbols of its input too. Raises :class:`CompileError` with every name that
    the model does not have, and every size bound to two numbers.
    """
    place = Place(graph.file)
    problems: list[Problem] = []
    symbols = [d for _, dims in graph.inputs.values() for d in dims if isinstance(d, str)]
    plain = frozenset(s for s in symbols if re.fullmatch(r"[A-Za-z_$][\w.$:]*", s))
    out = Bindings({}, {}, {}, plain)
    names = dict.fromkeys(symbols) | dict.fromkeys(n for s in symbols for n in leaves(s, plain))
    names |= dict.fromkeys(d for _, dims in graph.annotated.values() for d in dims if isinstance(d, str))
    told = out.told
    for name, number in given.items():
        dtype, dims = graph.inputs.get(name, (0, ()))
        what = ""
        if name in names:
            out.sizes[name], told[name] = as_expr(number), f"--bind {name}={number}"
        elif name not in graph.inputs:
            known = sorted({*names, *graph.inputs})
            problems.append(Problem(f"the model has no size called '{name}'", place, did_you_mean(name, known)))
            continue
        elif name not in graph.unshaped and dtype in INTEGER and all(d == 1 for d in dims):
            out.values[name] = number
            continue
        elif len(dims) == 1 or name in graph.unshaped:
            out.shapes[name] = (number,)
        else:
            kind = onnx.TensorProto.DataType.Name(dtype).lower() if dtype else "untyped"
            what = f"--bind {name}={number}: the input is {kind} {list(dims)}; one number is its shape or value only if"
            what += " it has one dimension, or is one integer"
        if not what and number < 0:
            what = f"--bind {name}={number}: a size is 0 or more"
        if what:
            problems.append(Problem(what, place, f"write {_pattern(name, dims)}"))
    out.shapes |= {n: s for n, s in shapes.items() if n in graph.inputs}
    problems += [
        Problem(f"the model has no input '{n}'", place, "inputs: " + ", ".join(graph.inputs))
        for n in shapes
        if n not in graph.inputs
    ]
    for name, shape in out.shapes.items():
        problems += [Problem(p, place) for p in _bind_shape(graph, name, shape, out, told)]
    out.sizes, out.preset = {**preset, **out.sizes}, bool(preset)
    if not problems:
        problems += [Problem(p, place) for p in _contradictions(symbols, out, told)]
    if problems:
        raise CompileError(problems)
    return out


def _pattern(name: str, dims: tuple[int | str | None, ...]) -> str:
    """How to bind a whole input: ``--bind x=1x3xHxW``."""
    return f"--bind {name}=" + ("x".join(str(d) if isinstance(d, int) else "N" for d in dims) or "NUMBER")


def _bind_shape(graph: Graph, name: str, shape: tuple[int, ...], out: Bindings, told: dict[str, str]) -> Iterator[str]:
    """Bind the symbols of an input whose whole shape is given; what is wrong with that."""
    declared = graph.inputs[name][1]
    text = f"--bind {name}=" + "x".join(map(str, shape))
    if name in graph.unshaped:
        return
    if len(declared) != len(shape):
        yield f"{text}: the input has {len(declared)} dimensions: {list(declared)}"
        return
    fixed = [d for d in declared if isinstance(d, int)]
    if len(fixed) == len(shape) and sorted(fixed) == sorted(shape) and tuple(fixed) != shape:
        yield f"{text}: the input is {list(declared)}, which are the same sizes in another order (NCHW for NHWC?)"
    for d, n in zip(declared, shape, strict=True):
        if isinstance(d, int) and d != n:
            out.overridden[name] = f"{text}: the file says {list(declared)}"
        if not isinstance(d, str):
            continue
        if out.sizes.setdefault(d, as_expr(n)) != n:
            yield f"{text}: the size '{d}' is {out.sizes[d]} by {told[d]}"
        told.setdefault(d, text)


def _contradictions(symbols: list[str], out: Bindings, told: Mapping[str, str]) -> Iterator[str]:
    """Sizes bound as a whole whose expression comes to another number."""
    for dim in dict.fromkeys(symbols):
        if dim not in told:
            continue
        tree = expression(dim, out.plain)
        if tree is None or any(n not in out.sizes for n in _names(tree)):
            continue
        try:
            value = _value(tree, out.sizes)
        except (ValueError, ZeroDivisionError):
            continue
        if value != out.sizes[dim]:
            by = ", ".join(dict.fromkeys(told.get(n, f"{n}={out.sizes[n]}") for n in _names(tree)))
            yield f"the size '{dim}' is {out.sizes[dim]} by {told[dim]}, but {value} by {by}"
