"""What the compiler's tests share: the reference core, the real exports where they lie, small hand-made graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from bpusim.compiler import Graph, Options, compile_graph, load_graph
from bpusim.compiler.analyse import Analysis, analyse
from bpusim.compiler.symbols import Bindings
from bpusim.hardware import CoreSpec
from bpusim.hardware.presets import machine_preset
from bpusim.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@pytest.fixture(scope="session")
def core() -> CoreSpec:
    """A core of the reference board."""
    return machine_preset("bpu80").cores


@pytest.fixture(scope="session")
def repository() -> Path:
    """The folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def export() -> Callable[[str], Path]:
    """``export("llm/NAME.onnx")``: a real export beside the repository; the test is skipped where it is not."""

    def find(name: str) -> Path:
        path = ROOT.parent / "shared" / "inputs" / name
        if not path.is_file():
            pytest.skip(f"the real export {name} is not at ../shared/inputs")
        return path

    return find


@pytest.fixture(scope="session")
def light() -> Callable[[str], Path]:
    """``light("resnet50")``: a model that the onnx package carries."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return lambda name: folder / f"light_{name}.onnx"


@dataclass(frozen=True)
class Hand:
    """A hand-made model: its proto, and ways to look at it through the compiler."""

    proto: onnx.ModelProto
    core: CoreSpec

    def graph(self) -> Graph:
        return load_graph(self.proto, "hand.onnx", "")

    def analysis(self) -> Analysis:
        return analyse(self.graph(), Bindings(), {}, frozenset(), False)

    def trace(self, **options: Any) -> Trace:
        return compile_graph(self.graph(), self.core, Options(**options))

    def macs(self, **options: Any) -> int:
        return self.trace(**options).bind("frame").macs

    def weight_bytes(self, **options: Any) -> int:
        """Bytes of weights that one frame reads."""
        return self.trace(**options).bind("frame").traffic().get(("weights", False), 0)

    def dims(self, tensor: str) -> list[int]:
        """The dims the compiler gives ``tensor``."""
        return [int(d) for d in self.analysis().values[tensor].dims]

    def oracle(self, tensor: str) -> list[int]:
        """The dims that onnx's own shape inference gives ``tensor``."""
        inferred = onnx.shape_inference.infer_shapes(self.proto, strict_mode=True, data_prop=True)
        for value in (*inferred.graph.output, *inferred.graph.value_info):
            if value.name == tensor:
                return [d.dim_value for d in value.type.tensor_type.shape.dim]
        raise AssertionError(f"shape inference does not know {tensor}")


@pytest.fixture
def whole(core: CoreSpec) -> Callable[[onnx.ModelProto], Hand]:
    """``whole(proto)``: a model that is there already."""
    return lambda proto: Hand(proto, core)


Dims = Sequence[int | str | None]


@pytest.fixture
def hand(core: CoreSpec) -> Callable[..., Hand]:
    """``hand(nodes, inputs, outputs, weights=..., ints=..., opset=...)``: a model of ``helper.make_node`` nodes.

    ``inputs``: dims by name (fp32, or INT64 when listed in ``integer``); ``weights``: dims by name, without data;
    ``ints``: int64 constants by name; ``outputs``: names.
    """

    def make(
        nodes: Sequence[onnx.NodeProto],
        inputs: dict[str, Dims],
        outputs: Sequence[str],
        *,
        weights: dict[str, Sequence[int]] | None = None,
        ints: dict[str, list[int]] | None = None,
        integer: Sequence[str] = (),
        opset: int = 17,
        dtype: int = FLOAT,
    ) -> Hand:
        declared = [
            helper.make_tensor_value_info(n, INT64 if n in integer else FLOAT, list(d)) for n, d in inputs.items()
        ]
        made = [helper.make_empty_tensor_value_info(n) for n in outputs]
        graph = helper.make_graph(list(nodes), "hand", declared, made)
        for name, dims in (weights or {}).items():
            graph.initializer.append(
                TensorProto(name=name, dims=dims, data_type=dtype, data_location=TensorProto.EXTERNAL)
            )
        for name, values in (ints or {}).items():
            graph.initializer.append(helper.make_tensor(name, INT64, [len(values)], values))
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return Hand(helper.make_model(graph, opset_imports=opsets), core)

    return make


@pytest.fixture
def trace(core: CoreSpec) -> Callable[..., Trace]:
    """``trace(proto, bind=...)``."""
    return lambda proto, **options: compile_graph(load_graph(proto, "m.onnx", ""), core, Options(**options))
