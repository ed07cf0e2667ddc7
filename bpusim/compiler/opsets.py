"""Versions of the file format and of the operators: which are read, and what old ones look like in new form."""

from __future__ import annotations

from dataclasses import replace

import onnx

from bpusim.compiler.dims import as_expr
from bpusim.compiler.values import Context, Value
from bpusim.errors import CompileError, Place, Problem

__all__ = ["OLDEST", "adapted", "check_versions"]

OLDEST = 6
"""Oldest version of the standard operators all of whose forms are known."""


def check_versions(model: onnx.ModelProto, file: str) -> list[str]:
    """Notes on a newer file format and on very old operators. Raises :class:`CompileError` for operators too new."""
    newest = onnx.defs.onnx_opset_version()
    imports = [("the model", o) for o in model.opset_import]
    imports += [(f"function {f.name}", o) for f in model.functions for o in f.opset_import]
    problems, notes = [], []
    for who, o in imports:
        if o.domain not in ("", "ai.onnx"):
            continue
        if o.version > newest:
            what = f"{who} is written for opset {o.version} of ai.onnx; the newest known is {newest}"
            problems.append(Problem(what, Place(file), "update the onnx package, or export for an older opset"))
        elif o.version < OLDEST:
            notes.append(f"{who} is written for opset {o.version} of ai.onnx; forms are known from {OLDEST} on")
    if problems:
        raise CompileError(problems)
    if not any(o.domain in ("", "ai.onnx") for o in model.opset_import) and any(not n.domain for n in model.graph.node):
        notes.append("the file states no opset of ai.onnx: its operators are read as those of opset 1")
    if model.ir_version > onnx.IR_VERSION:
        notes.append(
            f"the file format is IR {model.ir_version}; the newest known is {onnx.IR_VERSION}; the operators are known"
        )
    return notes


def adapted(ctx: Context) -> list[Value | None]:
    """The inputs of a node as its newest form takes them. Old attributes are read by the rules themselves."""
    node, inputs = ctx.node, ctx.inputs
    if ctx.opset >= 7 or node.domain:
        return inputs
    if isinstance(node.attrs.get("to"), str):  # a Cast before opset 6
        node.attrs["to"] = onnx.TensorProto.DataType.Value(node.attrs["to"])
    if len(inputs) != 2 or not (node.attrs.get("broadcast") or node.type == "PRelu"):
        return inputs
    a, b = ctx.value(0), ctx.value(1)
    axis = node.attrs.get("axis", len(a.dims) - len(b.dims))
    if node.type == "PRelu" and len(b.dims) == 1 and len(a.dims) > 1:
        axis = 1  # a slope for each channel
    axis += len(a.dims) if axis < 0 else 0
    after = len(a.dims) - axis - len(b.dims)
    if after < 0:
        ctx.fail(f"{list(b.dims)} from axis {axis} on does not fit {list(a.dims)}")
    return [a, replace(b, dims=(*b.dims, *(as_expr(1),) * after))]
