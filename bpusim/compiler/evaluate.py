"""Run a small model: onnx's reference evaluator, or onnxruntime where that knows an operator which onnx does not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["INSTALL", "NotRunError", "evaluate"]

INSTALL = "pip install 'bpusim[verify]'"
Arrays = Mapping[str, "NDArray[Any]"]


class NotRunError(Exception):
    """Why a model could not be evaluated."""


def evaluate(model: onnx.ModelProto, feeds: Arrays) -> tuple[dict[str, NDArray[Any]], str]:
    """The outputs of ``model``, and which evaluator gave them. Raises :class:`NotRunError`."""
    own = {(f.domain, f.name) for f in model.functions}
    nodes = list(_all_nodes(model))
    foreign = sorted({n.op_type for n in nodes if n.domain not in ("", "ai.onnx") and (n.domain, n.op_type) not in own})
    if foreign:
        why = f"contributed operators ({', '.join(foreign)}) need onnxruntime"
    elif any(n.op_type == "Loop" and len(n.output) > len(n.input) - 2 for n in nodes):
        why = "onnx's reference evaluator does not stack the results of a Loop's passes as the operator set says"
    else:
        try:
            return _reference(model, feeds), "onnx's reference evaluator"
        except Exception as e:
            why = f"onnx's reference evaluator cannot run it ({_short(e)})"
    if find_spec("onnxruntime") is None:
        raise NotRunError(f"{why}; onnxruntime is not installed: {INSTALL}")
    try:
        return _runtime(model, feeds), "onnxruntime"
    except Exception as e:
        raise NotRunError(f"{why}; onnxruntime cannot either ({_short(e)})") from e


def _all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    pending = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    while pending:
        node = pending.pop()
        yield node
        for a in node.attribute:
            pending += [n for g in (a.g, *a.graphs) for n in g.node]


def _short(e: Exception) -> str:
    return " ".join(f"{type(e).__name__}: {e}".split())[:300]


def _reference(model: onnx.ModelProto, feeds: Arrays) -> dict[str, NDArray[Any]]:
    names = [o.name for o in model.graph.output]
    version = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        own = [*(_OLD if version < 7 else []), *([_BatchNormalization] if version < 14 else [])]
        runner = ReferenceEvaluator(model, new_ops=own or None)
        results = runner.run(None, dict(feeds))
    return {n: np.asarray(r) for n, r in zip(names, results, strict=True)}


def _runtime(model: onnx.ModelProto, feeds: Arrays) -> dict[str, NDArray[Any]]:
    import onnxruntime as ort

    names = [o.name for o in model.graph.output]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.enable_mem_reuse = False  # it trusts the shapes that the file states; some state a cache's wrongly
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    taken = {i.name for i in session.get_inputs()}
    return dict(zip(names, session.run(names, {k: v for k, v in feeds.items() if k in taken}), strict=True))


def _norm(
    self: Any, x: Any, scale: Any, shift: Any, mean: Any, variance: Any, epsilon: float | None = None, **_: Any
) -> tuple[NDArray[Any]]:
    del self
    a, b, m, v = (p.reshape(-1, *(1,) * (x.ndim - 2)) for p in (scale, shift, mean, variance))
    return (np.asarray(a * (x - m) / np.sqrt(v + (1e-5 if epsilon is None else epsilon)) + b).astype(x.dtype),)


_BatchNormalization = type("BatchNormalization", (OpRun,), {"op_domain": "", "_run": _norm})
"""As the operator set defines it for one result. onnx's evaluator normalises by the batch before opset 14."""


def _old(kind: str, apply: np.ufunc) -> type[OpRun]:
    """An operator from before opset 7: ``broadcast`` lays input 1 along the axes of input 0 from ``axis`` on."""

    def run(
        self: Any, a: NDArray[Any], b: NDArray[Any], axis: int | None = None, broadcast: int | None = None
    ) -> tuple[NDArray[Any]]:
        del self
        if broadcast and axis is not None:
            spread = [1] * a.ndim
            spread[axis : axis + b.ndim if axis >= 0 else axis % a.ndim + b.ndim] = b.shape
            b = b.reshape(spread)
        return (apply(a, b),)

    return type(kind, (OpRun,), {"op_domain": "", "_run": run})


_OLD = [
    _old(kind, apply)
    for kind, apply in (
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("Div", np.divide),
        ("Pow", np.power),
        ("And", np.logical_and),
        ("Or", np.logical_or),
        ("Xor", np.logical_xor),
        ("Greater", np.greater),
        ("Less", np.less),
        ("Equal", np.equal),
    )
]
"""onnx's evaluator knows these in their newer form only."""
