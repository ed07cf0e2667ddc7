"""The data of stored weights, row by row: mapped files, not loaded ones. Only ``--quant-report`` reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from bpusim.compiler.graph import ELEMENT_BITS, Graph, Node
from bpusim.compiler.widths import WeightUse
from bpusim.errors import CompileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Layer", "find_layers"]

_TYPES: dict[int, type[Any]] = {
    onnx.TensorProto.FLOAT: np.float32,
    onnx.TensorProto.FLOAT16: np.float16,
    onnx.TensorProto.DOUBLE: np.float64,
    onnx.TensorProto.BFLOAT16: np.uint16,
    onnx.TensorProto.UINT8: np.uint8,
}
_FLOATS = _TYPES.keys() - {onnx.TensorProto.UINT8}
_SAME = {"Identity", "Cast"}
_PRODUCTS = {"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulNBits", "Conv", "FusedConv"}
"""Ops whose stored operand can be read: the second, of a ``MatMul`` also the first."""

Take = Callable[[int, int], "NDArray[np.float64]"]


class _NotReadError(Exception):
    """Why a weight cannot be read as a matrix."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A product with a stored weight. ``take(a, b)``: rows (output channels) ``a`` to ``b`` of ``k`` columns, exact."""

    node: str
    activation: str
    use: WeightUse
    take: Take
    groups: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """What calibration data for it may be called."""
        return (self.use.tensor, self.activation, self.node)


def find_layers(
    model: onnx.ModelProto, graph: Graph, weights: Mapping[str, WeightUse], path: Path
) -> tuple[list[Layer], dict[str, str]]:
    """(layers in program order, why others cannot be read). ``weights``: of linear layers, heads, convolutions."""
    data = _Data(model, path.parent)
    made = {o: n for n in graph.nodes for o in n.outputs}
    found: dict[str, Layer] = {}
    why: dict[str, str] = {}
    for node in graph.nodes:
        if node.type not in _PRODUCTS or len(node.inputs) < 2:
            continue
        for side in (1, 0) if node.type == "MatMul" else (1,):
            name, turned, through = _source(node.inputs[side], made)
            if name not in weights or name in found:
                continue
            use = weights[name]
            try:
                if through:
                    raise _NotReadError(f"behind {through}")
                take = _matrix(node, data, name, use, side, turned)
            except _NotReadError as e:
                why[name] = str(e)
                continue
            groups = int(node.attrs.get("group", 1))
            found[name] = Layer(node.name or node.outputs[0], node.inputs[1 - side], use, take, groups)
    readers = {i: n.type for n in reversed(graph.nodes) for i in n.inputs}
    for name in weights.keys() - found.keys():
        why.setdefault(name, f"its op is {readers.get(name, 'in a graph inside a node')}")
    return list(found.values()), {n: why[n] for n in weights if n in why and n not in found}


def _source(name: str, made: Mapping[str, Node]) -> tuple[str, bool, str]:
    """(the tensor that ``name`` shows, whether it is turned, an op on the way that is neither)."""
    turned, through = False, ""
    while name in made:
        node = made[name]
        if node.type == "Transpose" and list(node.attrs.get("perm", (1, 0))) == [1, 0]:
            turned = not turned
        elif node.type not in _SAME:
            through = through or node.type
        if not node.inputs or not node.inputs[0]:
            break
        name = node.inputs[0]
    return name, turned, through


def _matrix(node: Node, data: _Data, name: str, use: WeightUse, side: int, turned: bool) -> Take:
    if node.type == "MatMulNBits":
        return _packed(node, data, use)
    array, floats = data.floats(name)
    if node.type in ("Conv", "FusedConv"):
        flat = array.reshape(array.shape[0], -1)
        by_row = True
    else:
        if array.ndim != 2:
            raise _NotReadError(f"a stack of {array.ndim} dimensions")
        letter = "AB"[side]
        turned ^= bool(node.attrs.get(f"trans{letter}", 0))
        flat, by_row = array, turned if side == 1 else not turned
    shape = flat.shape if by_row else flat.shape[::-1]
    if shape != (use.rows, use.k):
        raise _NotReadError(f"dims {list(array.shape)} are not {use.rows} rows of {use.k}")

    def take(a: int, b: int) -> NDArray[np.float64]:
        return _finite(floats(flat[a:b] if by_row else flat[:, a:b].T), name)

    return take


def _packed(node: Node, data: _Data, use: WeightUse) -> Take:
    """``MatMulNBits``: what the packed integers stand for, ``(q - zero point) * scale`` by block along K."""
    bits, block = int(node.attrs.get("bits", 4)), int(node.attrs["block_size"])
    if bits not in (4, 8) or any(node.inputs[4:5]):
        raise _NotReadError("packed with group indices" if bits in (4, 8) else f"packed in {bits} bits")
    blocks, rows, k = -(-use.k // block), use.rows, use.k
    packed = data.array(node.inputs[1]).reshape(rows, blocks, -1)
    scale, floats = data.floats(node.inputs[2])
    scales = scale.reshape(rows, blocks, 1)
    middles = _zero_points(data, (*node.inputs, "")[3], rows, blocks, bits)

    def take(a: int, b: int) -> NDArray[np.float64]:
        q = _unpacked(packed[a:b], bits)[..., :block]
        w = (q - middles(a, b)) * floats(scales[a:b])
        return _finite(w.reshape(b - a, -1)[:, :k], use.tensor)

    return take


def _zero_points(data: _Data, name: str, rows: int, blocks: int, bits: int) -> Take:
    """They are of the scales' type, or packed like the weights, each row from a byte on; the middle if not stated."""
    if not name:
        return lambda a, b: np.full((b - a, 1, 1), float(2 ** (bits - 1)))
    if data.type(name) in _FLOATS:
        array, floats = data.floats(name)
        stored = array.reshape(rows, blocks, 1)
        return lambda a, b: floats(stored[a:b])
    packed = data.array(name).reshape(rows, -1)
    return lambda a, b: _unpacked(packed[a:b], bits)[:, :blocks, None]


def _unpacked(q: NDArray[Any], bits: int) -> NDArray[np.float64]:
    """Integers of 4 bits are two to a byte, the low half first."""
    if bits == 8:
        return q.astype(np.float64)
    return np.stack((q & 15, q >> 4), axis=-1).reshape(*q.shape[:-1], -1).astype(np.float64)


def _finite(w: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    if not np.isfinite(w).all():
        raise CompileError(f"--quant-report: tensor '{name}' has infinite elements or NaN", do="export the model again")
    return w


class _Data:
    """Arrays of the tensors of the main graph."""

    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        self.folder = folder
        self.protos: dict[str, onnx.TensorProto] = {t.name: t for t in model.graph.initializer}
        for n in model.graph.node:
            for a in n.attribute if n.op_type == "Constant" and n.output else ():
                if a.name == "value" and a.HasField("t"):
                    self.protos[n.output[0]] = a.t

    def _proto(self, name: str) -> onnx.TensorProto:
        found = self.protos.get(name)
        if found is None:
            raise _NotReadError("its data are not in the main graph of the file")
        return found

    def type(self, name: str) -> int:
        """Its ONNX element type."""
        return int(self._proto(name).data_type)

    def array(self, name: str) -> NDArray[Any]:
        """A tensor's elements; those of a data file are mapped. bfloat16 comes as its 16 bits."""
        t = self._proto(name)
        kind = _TYPES.get(t.data_type)
        if kind is None:
            raise _NotReadError(f"stored as {onnx.TensorProto.DataType.Name(t.data_type)}")
        dims = tuple(t.dims)
        if not prod(dims):
            raise _NotReadError("it has no elements")
        if t.data_location == onnx.TensorProto.EXTERNAL:
            told = {e.key: e.value for e in t.external_data}
            little = np.dtype(kind).newbyteorder("<")
            offset = int(told.get("offset") or 0)
            return np.memmap(self.folder / told["location"], little, "r", offset, dims or (1,))
        if t.raw_data:
            if len(t.raw_data) * 8 != prod(dims) * ELEMENT_BITS[t.data_type]:
                raise _NotReadError("its data are cut off")
            return np.frombuffer(t.raw_data, np.dtype(kind).newbyteorder("<")).reshape(dims)
        if not (t.float_data or t.double_data or t.int32_data):
            raise _NotReadError("the file has no data for it")
        if t.data_type == onnx.TensorProto.BFLOAT16:
            return np.array(t.int32_data, np.uint16).reshape(dims)
        array: NDArray[Any] = onnx.numpy_helper.to_array(t)
        return array

    def floats(self, name: str) -> tuple[NDArray[Any], Callable[[NDArray[Any]], NDArray[np.float64]]]:
        """(a tensor of floats, how a part of it becomes doubles)."""
        if self.type(name) not in _FLOATS:
            raise _NotReadError(f"stored as {onnx.TensorProto.DataType.Name(self.type(name))}")
        array = self.array(name)
        if self.type(name) == onnx.TensorProto.BFLOAT16:
            return array, lambda part: (part.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return array, lambda part: part.astype(np.float64)
