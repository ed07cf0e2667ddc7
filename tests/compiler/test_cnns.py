"""The convolutional networks that the onnx package carries, at any input size.

MACs at 224 are reference figures of the ONNX exports; shapes and MACs at other sizes are checked against onnx's own
shape inference.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from math import prod
from pathlib import Path

import onnx
import pytest

from bpusim.compiler import Options, compile_model, load_graph, read_model
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec
from bpusim.trace import Trace

Find = Callable[[str], Path]

MACS_AT_224 = {
    "bvlc_alexnet": 654_560_384,
    "densenet121": 2_834_161_664,
    "inception_v1": 1_431_556_352,
    "inception_v2": 2_018_851_840,
    "resnet50": 4_089_184_256,
    "shufflenet": 124_664_528,
    "squeezenet": 349_151_936,
    "vgg19": 19_632_062_464,
    "zfnet512": 1_481_727_008,
}
INPUT = {"resnet50": "gpu_0/data_0", "squeezenet": "data_0"}


def _at(name: str, *dims: int) -> dict[str, tuple[int, ...]]:
    return {INPUT[name]: dims}


@pytest.mark.parametrize("name", MACS_AT_224)
def test_macs_at_224(core: CoreSpec, light: Find, name: str) -> None:
    """ZFNet's first layer by hand: 96 kernels of 7 x 7 x 3 at stride 2, unpadded, give 109 x 109 places."""
    assert compile_model(light(name), core).bind("frame").macs == MACS_AT_224[name]


@pytest.mark.parametrize("name", MACS_AT_224)
def test_nothing_falls_back_to_the_cpu(core: CoreSpec, light: Find, name: str) -> None:
    assert compile_model(light(name), core).header.report["cpu_fallbacks"] == {}


def _resnet_at_992(core: CoreSpec, light: Find) -> Trace:
    options = Options(quant="int8", activation="int8", shapes=_at("resnet50", 1, 3, 992, 992), outputs=["r171"])
    return compile_model(light("resnet50"), core, options)


def test_resnet_without_its_head_at_992(core: CoreSpec, light: Find) -> None:
    """992 and 224 both halve five times without a rest (31 and 7 places at the end), so every layer grows by
    (992/224)^2 = 961/49: (4,089,184,256 - 2,048,000 of the 2048 x 1000 head) x 961 / 49 = 80,157,917,184 MAC."""
    expected, rest = divmod((4_089_184_256 - 2048 * 1000) * 992**2, 224**2)
    assert rest == 0
    assert _resnet_at_992(core, light).bind("frame").macs == expected


def test_resnet_without_its_head_writes_its_feature_map(core: CoreSpec, light: Find) -> None:
    """2048 channels of 31 x 31 int8 places leave the chip."""
    assert _resnet_at_992(core, light).bind("frame").traffic()["io", True] == 2048 * 31 * 31


def test_a_frame_comes_in_once(core: CoreSpec, light: Find) -> None:
    """3 x 992 x 992 int8 values."""
    assert _resnet_at_992(core, light).bind("frame").traffic()["io", False] == 3 * 992 * 992


def _inferred_macs(path: Path, dims: tuple[int, ...]) -> int:
    """MACs of all convolutions from the shapes that onnx infers for an input of ``dims``."""
    model = onnx.load(path)
    weights = {t.name for t in model.graph.initializer}
    (data,) = [v for v in model.graph.input if v.name not in weights]
    for d, size in zip(data.type.tensor_type.shape.dim, dims, strict=True):
        d.dim_value = size
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    known = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*inferred.graph.value_info, *inferred.graph.output)
    }
    return sum(
        prod(known[n.output[0]]) * prod(known[n.input[1]][1:]) for n in inferred.graph.node if n.op_type == "Conv"
    )


@pytest.mark.parametrize(
    "dims", [(1, 3, 224, 224), (1, 3, 227, 227), (1, 3, 96, 160), (1, 3, 333, 65), (2, 3, 128, 128)]
)
def test_squeezenet_at_any_size_agrees_with_shape_inference(core: CoreSpec, light: Find, dims: tuple[int, ...]) -> None:
    """SqueezeNet is all convolutions, so its MACs are theirs."""
    options = Options(shapes=_at("squeezenet", *dims), outputs=["softmaxout_1"])
    trace = compile_model(light("squeezenet"), core, options)
    assert trace.bind("frame").macs == _inferred_macs(light("squeezenet"), dims)


def test_an_input_too_small_for_a_window_is_an_error(core: CoreSpec, light: Find) -> None:
    with pytest.raises(CompileError, match=r"a window of \d+ does not fit") as caught:
        compile_model(light("squeezenet"), core, Options(shapes=_at("squeezenet", 1, 3, 16, 16)))
    assert "bind a larger input" in str(caught.value)


def test_an_input_that_no_longer_fits_the_head_is_an_error(core: CoreSpec, light: Find) -> None:
    """The head pools 7 x 7 of the 31 x 31 places that 992 gives, which leaves 25 x 25 where 2048 columns are wanted."""
    with pytest.raises(CompileError, match="does not reshape to"):
        compile_model(light("resnet50"), core, Options(shapes=_at("resnet50", 1, 3, 992, 992)))


def test_an_unknown_input_lists_those_there_are(core: CoreSpec, light: Find) -> None:
    with pytest.raises(CompileError, match="the model has no input 'data'") as caught:
        compile_model(light("resnet50"), core, Options(shapes={"data": (1, 3, 224, 224)}))
    assert "inputs: gpu_0/data_0" in str(caught.value)


# --- weights without data


def test_weights_are_made_by_constant_of_shape(light: Find) -> None:
    """The files hold shapes; a compiler that waits for initialisers finds no weight at all."""
    model, sha = read_model(light("vgg19"))
    graph = load_graph(model, "vgg19", sha)
    makers = {o: n.type for n in graph.nodes for o in n.outputs}
    kernels = [n.inputs[1] for n in graph.nodes if n.type == "Conv"]
    assert {makers[k] for k in kernels} == {"ConstantOfShape"}


def test_folded_weights_are_resident(core: CoreSpec, light: Find) -> None:
    """VGG-19 has 143,667,240 parameters (fp32 here) in a file of a few kilobytes."""
    trace = compile_model(light("vgg19"), core)
    assert trace.resident_bytes == 4 * 143_667_240
    assert light("vgg19").stat().st_size < 100_000


def test_weights_are_never_read_as_data(core: CoreSpec, light: Find) -> None:
    """Filling VGG-19's weights would take 575 MB; knowing their shapes takes none of that."""
    tracemalloc.start()
    try:
        compile_model(light("vgg19"), core)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


def test_int8_weights_have_an_fp16_scale_a_channel(core: CoreSpec, light: Find) -> None:
    """ResNet-50's first layer: 64 kernels of 7 x 7 x 3 bytes and 2 B each = 9,536."""
    trace = compile_model(light("resnet50"), core, Options(quant="int8"))
    first = next(t for t in trace.tensors if t.role == "conv")
    assert first.bytes == 64 * (7 * 7 * 3 + 2)


def test_folding_layers_loses_no_weight(core: CoreSpec, light: Find) -> None:
    """ResNet-50 without its head has 23,454,912 kernel values in 26,560 channels: each value a byte, each channel an
    fp16 scale and an fp16 shift: 23,561,152 B, resident and read once a frame, however layers are named and folded."""
    trace = _resnet_at_992(core, light)
    assert trace.resident_bytes == 23_454_912 + 26_560 * (2 + 2)
    assert trace.bind("frame").traffic()["weights", False] == 23_561_152


# --- fusion


def _types(trace: Trace) -> set[str]:
    return {op.type for op in trace.phase("frame").ops()}


def test_norm_and_activation_fuse_into_the_convolution(core: CoreSpec, light: Find) -> None:
    assert "Conv+BatchNormalization+Relu" in _types(compile_model(light("resnet50"), core))


def test_the_residual_sum_fuses_into_the_convolution_before_it(core: CoreSpec, light: Find) -> None:
    assert "Conv+BatchNormalization+Sum+Relu" in _types(compile_model(light("resnet50"), core))


def test_no_norm_of_resnet_is_left_alone(core: CoreSpec, light: Find) -> None:
    assert not any(t.startswith("BatchNormalization") for t in _types(compile_model(light("resnet50"), core)))


def test_every_convolution_of_resnet_is_there_with_its_nodes(core: CoreSpec, light: Find) -> None:
    """53 convolutions and 53 norms: fusing hides none (a folded layer names one node with ``{i}`` or all of them)."""
    trace = compile_model(light("resnet50"), core)
    program = trace.bind("frame")
    fused = sum(op.type.split("+").count("BatchNormalization") for call in program.calls for op in call.ops)
    convs = sum(op.type.split("+").count("Conv") for call in program.calls for op in call.ops)
    assert (convs, fused) == (53, 53)


def test_a_norm_before_a_convolution_is_not_fused(core: CoreSpec, light: Find) -> None:
    """DenseNet normalises before it convolves: a norm behind a concatenation cannot fold into weights behind it."""
    assert any(t.startswith("BatchNormalization") for t in _types(compile_model(light("densenet121"), core)))
