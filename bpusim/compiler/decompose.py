"""Rewrite rules: ops that a toolchain does not take, as ops that it takes.

Each gives nodes that compute the same, from the operator's definition in the ONNX reference. ``--verify`` runs both.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from bpusim.compiler.graph import Node, Stored
from bpusim.compiler.values import Context, Value
from bpusim.compiler.walk import Walk
from bpusim.hardware.toolchain import Toolchain

__all__ = ["DECOMPOSED", "decomposed"]

_AXES_AS_INPUT = 18
"""Opset from which ``ReduceMean`` takes its axes as an input."""
_LAST = "last axis"
_QUICK = 1.702
"""Alpha of QuickGelu where it states none; epsilons of norms likewise."""
_EPSILON, _SKIP_EPSILON = 1e-5, 1e-12


class _Steps:
    """Nodes in the place of one, each making one tensor."""

    def __init__(self, ctx: Context) -> None:
        self.node = ctx.node
        self.opset = ctx.opset
        self.nodes: list[Node] = []
        self.numbers: dict[str, float] = {}

    def number(self, text: str, value: float) -> str:
        """A stored scalar."""
        name = f"{self.node.label}/{text}"
        self.numbers[name] = value
        return name

    def add(self, kind: str, *inputs: str, out: str = "", **attrs: object) -> str:
        """One more node, of the same opset; its result is called ``out`` if that is given."""
        label = f"{self.node.label}/{kind}.{len(self.nodes)}"
        name = out or label
        self.nodes.append(Node(kind, "", label, inputs, (name,), dict(attrs), self.node.opset, self.node.origin))
        return name

    def mean(self, x: str) -> str:
        """The mean over the last axis."""
        if self.opset < _AXES_AS_INPUT:
            return self.add("ReduceMean", x, axes=[-1], keepdims=1)
        return self.add("ReduceMean", x, f"{self.node.label}/{_LAST}", keepdims=1)

    def end(self) -> None:
        """The last node makes the result of the whole."""
        last = self.nodes.pop()
        self.nodes.append(Node(last.type, "", last.name, last.inputs, self.node.outputs[:1], last.attrs, last.opset))


def _gelu(s: _Steps, _: Context) -> bool:
    """``x/2 (1 + erf(x / sqrt 2))``; the approximation by tanh is not rewritten."""
    if s.node.attrs.get("approximate", "none") not in ("none", b"none"):
        return False
    x = s.node.inputs[0]
    erf = s.add("Erf", s.add("Mul", x, s.number("rsqrt2", 0.5**0.5)))
    s.add("Mul", s.add("Mul", x, s.add("Add", erf, s.number("one", 1.0))), s.number("half", 0.5))
    return True


def _swish(s: _Steps, _: Context) -> bool:
    """``x sigmoid(x)``; Swish with an alpha and QuickGelu scale within."""
    x = s.node.inputs[0]
    alpha = s.node.attrs.get("alpha", _QUICK if s.node.type == "QuickGelu" else 1.0)
    s.add("Mul", x, s.add("Sigmoid", s.add("Mul", x, s.number("alpha", alpha)) if alpha != 1.0 else x))
    return True


def _hard_swish(s: _Steps, _: Context) -> bool:
    """``x clip(x / 6 + 1/2, 0, 1)``."""
    x = s.node.inputs[0]
    s.add("Mul", x, s.add("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    return True


def _mish(s: _Steps, _: Context) -> bool:
    x = s.node.inputs[0]
    s.add("Mul", x, s.add("Tanh", s.add("Softplus", x)))
    return True


def _norm(s: _Steps, ctx: Context) -> bool:
    """Mean, centre, variance, root, scale, shift; of RMS norms the mean of squares, scale. Skips are added first.

    Only over the last axis, and only where nobody reads more than the result and the sum.
    """
    node, kind = s.node, s.node.type
    skip, rms = kind.startswith("Skip"), kind != "LayerNormalization" and kind != "SkipLayerNormalization"
    rank = len(ctx.value(0).dims)
    if not skip and node.attrs.get("axis", -1) not in (-1, rank - 1):
        return False
    if any(node.outputs[1:3]) or (len(node.outputs) > 3 and not skip):
        return False
    x, rest = node.inputs[0], list(node.inputs[1:])
    if skip:
        x = s.add("Add", x, rest.pop(0))
        bias = rest.pop() if len(rest) > (1 if rms else 2) else ""
        if bias:
            x = s.add("Add", x, bias)
        if len(node.outputs) > 3 and node.outputs[3]:
            last = s.nodes.pop()
            x = node.outputs[3]
            s.nodes.append(Node(last.type, "", last.name, last.inputs, (x,), {}, last.opset))
    if not rms:
        x = s.add("Sub", x, s.mean(x))
    square = s.mean(s.add("Mul", x, x))
    epsilon = node.attrs.get("epsilon", _SKIP_EPSILON if skip else _EPSILON)
    root = s.add("Sqrt", s.add("Add", square, s.number("epsilon", epsilon)))
    s.add("Div", x, root)
    for kind, operand in zip(("Mul", "Add"), rest, strict=False):
        if operand:
            s.add(kind, s.nodes[-1].outputs[0], operand)
    return True


DECOMPOSED: dict[str, Callable[[_Steps, Context], bool]] = {
    "Gelu": _gelu,
    "Silu": _swish,
    "Swish": _swish,
    "QuickGelu": _swish,
    "HardSwish": _hard_swish,
    "Mish": _mish,
    "LayerNormalization": _norm,
    "RMSNormalization": _norm,
    "SimplifiedLayerNormalization": _norm,
    "SkipLayerNormalization": _norm,
    "SkipSimplifiedLayerNormalization": _norm,
}
"""Op types that may be rewritten."""


def decomposed(ctx: Context, walk: Walk, toolchain: Toolchain) -> list[Node]:
    """The nodes in place of ``ctx.node``; none where no rule fits, or the toolchain does not take its ops either."""
    rule = DECOMPOSED.get(ctx.node.type)
    steps = _Steps(ctx)
    if rule is None or not rule(steps, ctx) or any(n.type not in toolchain.ops for n in steps.nodes):
        return []
    steps.end()
    dtype = ctx.value(0).dtype
    for name, number in steps.numbers.items():
        walk.stored[name] = Stored(onnx.TensorProto.FLOAT, ())
        walk.values[name] = Value((), dtype, weight=name)
        walk.program.known[name] = np.array(number, onnx.helper.tensor_dtype_to_np_dtype(dtype))
    axis = f"{ctx.node.label}/{_LAST}"
    if any(axis in n.inputs for n in steps.nodes):
        walk.stored[axis] = Stored(onnx.TensorProto.INT64, (1,), np.array([-1]))
        walk.values[axis] = Value.of_stored(axis, walk.stored[axis])
        walk.program.known[axis] = np.array([-1])
    walk.program.decomposed.append((ctx.node, steps.nodes))
    return steps.nodes
