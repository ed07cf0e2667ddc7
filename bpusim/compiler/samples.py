"""Values for ``--verify``: weights as in the file, random ones where the data are missing, random inputs. Seeded."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from bpusim.compiler.analyse import Analysis
from bpusim.compiler.dims import Expr
from bpusim.compiler.evaluate import NotRunError, evaluate
from bpusim.compiler.graph import FLOATS, INTEGER, Graph, Node
from bpusim.compiler.protos import model_of, opset_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MOST_ELEMENTS", "Samples"]

MOST_ELEMENTS = 1 << 24
"""Elements of one tensor at most: larger ones are not made, and what needs them is not verified."""
_MOST_BYTES = 1 << 28
"""Bytes of arrays kept between checks."""
_RANGES: dict[int, tuple[int, int]] = {
    onnx.TensorProto.INT8: (-128, 128),
    onnx.TensorProto.UINT8: (0, 256),
    onnx.TensorProto.INT4: (-8, 8),
}


@dataclass(slots=True)
class Samples:
    """Arrays by tensor name, of one phase. ``sizes``: what ``tokens`` and ``kv`` are taken as."""

    graph: Graph
    analysis: Analysis
    sizes: Mapping[str, int]
    seed: int = 0
    invented: set[str] = field(default_factory=set)
    """Stored tensors without data, which got random values."""
    _made: dict[str, NDArray[Any]] = field(default_factory=dict)
    _makers: dict[str, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._makers = {o: n for n in self.analysis.program.nodes for o in n.outputs if o}

    def number(self, e: Expr) -> int:
        """A size with ``tokens`` and ``kv`` put in."""
        total = 0
        for term, c in e.terms.items():
            factors = ["tokens", "tokens"] if term == "tokens^2" else [] if term == "1" else term.split("*")
            for name in factors:
                if name.startswith("?"):  # no cost depends on it
                    raise NotRunError(f"the size '{name[1:]}' is not bound: add --bind {name[1:]}=NUMBER")
                if name not in self.sizes:
                    raise NotRunError(f"its size {e} is not worked out here")
                c *= self.sizes[name]
            total += c
        return total

    def dims(self, name: str) -> tuple[int, ...]:
        """Dims of a tensor."""
        return tuple(self.number(d) for d in self.analysis.values[name].dims)

    def known(self, name: str) -> NDArray[Any] | None:
        """The values that the compiler knows of a tensor, if it knows them."""
        if name in self.analysis.program.known:
            return self.analysis.program.known[name]
        value = self.analysis.values.get(name)
        if value is None:
            return None
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.dtype)
        if value.const is not None:
            return np.array([self.number(e) for e in value.const], dtype=kind).reshape(self.dims(name))
        if value.numbers is not None:
            return np.array(value.numbers, dtype=kind).reshape(self.dims(name))
        return None

    @staticmethod
    def floating(array: NDArray[Any]) -> bool:
        """Whether its elements are floats, of 16 bits too."""
        return onnx.helper.np_dtype_to_tensor_dtype(array.dtype) in FLOATS

    def stored(self, name: str) -> bool:
        """Whether a tensor belongs to the model or is worked out from such alone."""
        value = self.analysis.values.get(name)
        return name in self.graph.sources or (value is not None and value.weight is not None)

    def forget(self) -> None:
        """Drop the arrays made so far where they are many: they come again the same."""
        if sum(a.nbytes for a in self._made.values()) > _MOST_BYTES:
            self._made.clear()

    def array(self, name: str) -> NDArray[Any]:
        """A tensor: as stored, known, prepared from stored ones, or random."""
        if name not in self._made:
            self._made[name] = self._array(name)
        return self._made[name]

    def _array(self, name: str) -> NDArray[Any]:
        value = self.analysis.values.get(name)
        source = self.graph.sources.get(name)
        dims = tuple(source.dims) if source is not None else self.dims(name) if value is not None else ()
        if prod(dims) > MOST_ELEMENTS:
            raise NotRunError(f"'{name}' has more than {MOST_ELEMENTS} elements")
        if name in self.graph.sources:
            return self._read(name)
        known = self.known(name)
        if known is not None:
            return known
        if value is None:
            raise NotRunError(f"nothing is known of '{name}'")
        if value.weight is not None and name in self._makers:
            return self._prepared(self._makers[name], name)
        return self.random(name, value.dtype, self.dims(name))

    def _prepared(self, node: Node, name: str) -> NDArray[Any]:
        """What an op on stored tensors gives."""
        feeds = {i: self.array(i) for i in node.needs}
        opset = opset_of([node], self.graph.opsets)
        results, _ = evaluate(model_of([node], feeds, [name], self.graph.opsets, opset=opset), feeds)
        return results[name]

    def _read(self, name: str) -> NDArray[Any]:
        source = self.graph.sources[name]
        if isinstance(source, onnx.SparseTensorProto):
            out = np.zeros(tuple(source.dims), onnx.helper.tensor_dtype_to_np_dtype(source.values.data_type))
            at = onnx.numpy_helper.to_array(source.indices)
            flat = at if at.ndim == 1 else np.ravel_multi_index(tuple(at.T), out.shape)
            out.reshape(-1)[flat] = onnx.numpy_helper.to_array(source.values)
            return out
        try:
            return onnx.numpy_helper.to_array(source, base_dir=str(Path(self.graph.file).parent))
        except Exception:  # no data, or a data file that is not there
            self.invented.add(name)
            dims = tuple(source.dims)
            array = self.random(name, source.data_type, dims)
            return _moderate(array)

    def random(self, name: str, dtype: int, dims: tuple[int, ...]) -> NDArray[Any]:
        """Normal floats; small integers, of 8 bits any; an attention mask lets everything through."""
        rng = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        kind = onnx.helper.tensor_dtype_to_np_dtype(dtype)
        if name == "attention_mask":
            return np.ones(dims, dtype=kind)
        if dtype in FLOATS:
            return np.asarray(rng.standard_normal(dims, dtype=np.float32)).astype(kind)
        if dtype in _RANGES or dtype in INTEGER:
            low, high = _RANGES.get(dtype, (0, 2))
            return np.asarray(rng.integers(low, high, dims)).astype(kind)
        raise NotRunError(f"'{name}' has an element type that no random values are made for")


def _moderate(array: NDArray[Any]) -> NDArray[Any]:
    """Random weights as trained ones are: sums of products stay near one; vectors (variances too) are positive."""
    if array.dtype.kind not in "f":
        return array
    wide = array.astype(np.float32)
    fan = max(array.size // max(array.shape[0], 1), 1) if array.ndim > 1 else 1
    scaled = wide / np.float32(fan**0.5) if array.ndim > 1 else np.abs(wide) + np.float32(0.1)
    return np.asarray(scaled).astype(array.dtype)
