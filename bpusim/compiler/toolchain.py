"""A toolchain's rules held against a model: what of an op they look at, and whether a toolchain names what exists."""

from __future__ import annotations

import onnx

from bpusim.compiler.rules import FAMILIES, RULES
from bpusim.compiler.values import Context
from bpusim.errors import CompileError, did_you_mean
from bpusim.hardware.toolchain import Toolchain

__all__ = ["check_toolchain", "facts"]

_WINDOWED = {*FAMILIES["Convolutions"][0], *FAMILIES["Pooling"][0]}
"""Ops that have a kernel and a stride."""
_QUANTISED = {"QLinearConv": 3}
"""Where the kernel of a convolution is among its inputs, if not second."""


def facts(ctx: Context) -> dict[str, int | str]:
    """What limits are held against: ``opset``, ``rank``, ``type``, and of convolutions and pooling ``kernel``,
    ``stride``. What is not known is left out."""
    node = ctx.node
    out: dict[str, int | str] = {}
    if not node.domain:
        out["opset"] = ctx.opset
    first = ctx.optional(0)
    if first is not None:
        out["rank"] = len(first.dims)
        out["type"] = onnx.TensorProto.DataType.Name(first.dtype)
    if node.type in _WINDOWED:
        kernel = node.attrs.get("kernel_shape")
        weight = ctx.optional(_QUANTISED.get(node.type, 1))
        if not kernel and node.type in FAMILIES["Convolutions"][0] and weight is not None:
            kernel = [int(d) for d in weight.dims[2:] if d.is_const]
        if not kernel and first is not None and node.type.startswith(("Global", "QLinearGlobal")):
            kernel = [int(d) for d in first.dims[2:] if d.is_const]
        if kernel:
            out["kernel"] = max(kernel)
        out["stride"] = max(node.attrs.get("strides") or [1])
    return out


def check_toolchain(toolchain: Toolchain) -> None:
    """Refuse op types that nobody has a rule for, and limits that would hold nothing."""
    for key, types in toolchain.named.items():
        for kind in types:
            if kind not in RULES:
                what = f"{key} of toolchain {toolchain.name}: no op with a cost rule is called '{kind}'"
                raise CompileError(what, do=did_you_mean(kind, sorted(RULES)))
    serial = [t for t in toolchain.ops if t in FAMILIES["On the CPU"][0]]
    if serial:
        what = f"ops of toolchain {toolchain.name}: no unit of a core can do {serial[0]}"
        raise CompileError(what, do="remove it: it runs on the CPU")
    for kind, limits in toolchain.limits.items():
        where = f"limits.{kind} of toolchain {toolchain.name}"
        if kind not in toolchain.ops:
            raise CompileError(f"{where}: {kind} is not among its ops", do="remove the limits, or add it to ops")
        if kind not in _WINDOWED and (limits.kernel is not None or limits.stride is not None):
            raise CompileError(f"{where}: {kind} has no kernel and no stride", do="remove both")
        known = onnx.TensorProto.DataType.keys()
        wrong = [t for t in limits.types or [] if t not in known]
        if wrong:
            raise CompileError(f"{where}: no element type is called '{wrong[0]}'", do=did_you_mean(wrong[0], known))
