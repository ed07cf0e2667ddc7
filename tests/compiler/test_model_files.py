"""Data files, names, files that are no models, real files, the command."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from input_cases import FLOAT, INT64, external, floats, model, node, product, stored, value
from onnx import ModelProto, TensorProto, helper
from protos import W8, io, macs, one_if, refusal

from bpusim.cli import main
from bpusim.compiler import Options, compile_model
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec
from bpusim.trace import Trace

BOOL = TensorProto.BOOL


# --- data files


def _beside(folder: Path, tensor: TensorProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(product([1, 64], [64, 64], [1, 64], tensor).SerializeToString())
    return path


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, core: CoreSpec) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "secret").write_bytes(bytes(16_384))
    os.symlink("../secret", tmp_path / "home" / "w.data")
    with pytest.raises(CompileError, match=r"data location 'w\.data' is a link out of the model's folder"):
        compile_model(_beside(tmp_path / "home", external([64, 64], "w.data")), core)


@pytest.mark.parametrize("location", ["C:\\w.data", "\\\\host\\w.data", "a\\..\\..\\w.data", "a/../../w.data"])
def test_paths_of_other_systems_are_refused(tmp_path: Path, core: CoreSpec, location: str) -> None:
    with pytest.raises(CompileError, match="nothing is opened there"):
        compile_model(_beside(tmp_path, external([64, 64], location)), core)


def test_a_data_file_that_is_a_pointer_is_as_good_as_missing(tmp_path: Path, core: CoreSpec) -> None:
    (tmp_path / "w.data").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 16384\n")
    told: list[str] = []
    path = _beside(tmp_path, external([64, 64], "w.data"))
    assert compile_model(path, core, warn=told.append).resident_bytes == 16_384
    assert told == [
        "data file 'w.data' is a Git LFS pointer (git lfs pull fetches the data): 1 tensor, first 'w'; "
        "sizes are from the dims"
    ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"length": 100}, "tensor 'w': the file states 100 bytes of data; its dims need 16384; export the model again"),
        ({"length": 16385}, "tensor 'w': the file states 16385 bytes of data; its dims need 16384"),
        ({"length": -4}, "tensor 'w': the file states -4 bytes of data; its dims need 16384"),
        ({"offset": -4}, r"tensor 'w': its data begin at byte -4 of 'w\.data'; export the model again"),
        ({"offset": "x"}, "tensor 'w': its data offset or length is no number; export the model again"),
    ],
)
def test_an_entry_that_cannot_be(tmp_path: Path, core: CoreSpec, more: dict[str, int], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile_model(_beside(tmp_path, external([64, 64], "w.data", **more)), core)


def test_data_elsewhere_without_a_place(tmp_path: Path, core: CoreSpec) -> None:
    """No entry says where: as good as a file that is missing, and told."""
    tensor = external([64, 64], "w.data")
    del tensor.external_data[:]
    told: list[str] = []
    assert compile_model(_beside(tmp_path, tensor), core, warn=told.append).resident_bytes == 16_384
    assert told == ["data file that is not named: 1 tensor, first 'w'; sizes are from the dims"]


def test_a_length_that_the_data_need_is_right(tmp_path: Path, core: CoreSpec) -> None:
    path = _beside(tmp_path, external([64, 64], "w.data", length=16384, offset=4096))
    assert compile_model(path, core).resident_bytes == 16_384


def test_a_size_below_zero_names_the_file(tmp_path: Path, core: CoreSpec) -> None:
    path = _beside(tmp_path, external([-64, 64], "w.data"))
    with pytest.raises(CompileError, match=r"tensor 'w' has a negative size: \[-64, 64\]; export") as e:
        compile_model(path, core)
    assert str(e.value.problems[0].place) == str(path)


def test_every_bad_location_is_told_at_once(tmp_path: Path, core: CoreSpec) -> None:
    proto = product([1, 64], [64, 64], [1, 64], external([64, 64], "/w"))
    other = external([64, 64], "../v")
    other.name = "v"
    inner = helper.make_graph([node("MatMul", ["x", "v"], ["o"])], "t", [], [value("o", FLOAT, [1, 64])], [other])
    proto.graph.node.append(node("If", ["c"], ["z"], then_branch=inner, else_branch=inner))
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(CompileError) as caught:
        compile_model(tmp_path / "m.onnx", core)
    assert [p.what.partition(":")[0] for p in caught.value.problems] == ["tensor 'w'", "tensor 'v'", "tensor 'v'"]


# --- names used twice


def test_a_tensor_stored_twice(trace: Callable[..., Trace]) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], *io([1, 8], [1, 8]), [W8, W8])
    assert refusal(trace, proto) == ["tensor 'w' is stored twice; export the model again"]


def test_a_tensor_stored_and_made(trace: Callable[..., Trace]) -> None:
    nodes = [node("Relu", ["x"], ["w"], name="r"), node("MatMul", ["x", "w"], ["y"])]
    assert refusal(trace, model(nodes, *io([8, 8], [8, 8]), [W8])) == ["tensor 'w' is stored, and made by Relu 'r'"]


def test_an_inner_graph_may_use_the_names_around_it_again(trace: Callable[..., Trace]) -> None:
    """Its own ``w`` of 8 x 4 hides the 8 x 8 outside."""
    out = [helper.make_empty_tensor_value_info("y")]
    own = helper.make_graph([node("MatMul", ["x", "w"], ["y"])], "t", [], out, [stored("w", floats(8, 4))])
    other = helper.make_graph([node("MatMul", ["x", "w"], ["y"])], "e", [], out)
    nodes = [node("If", ["c"], ["y"], name="sel", then_branch=own, else_branch=other)]
    proto = model(nodes, [value("x", FLOAT, [1, 8]), value("c", BOOL, [])], out, [W8])
    assert [macs(trace(proto, bind={"c": c})) for c in (1, 0)] == [32, 64]


@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_of_none(trace: Callable[..., Trace], batch: int) -> None:
    """Nothing goes in, nothing is done, and nothing fails."""
    nodes = [
        node("Conv", ["x", "k"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("MatMul", ["f", "w"], ["m"]),
        node("Softmax", ["m"], ["y"]),
    ]
    weights = [stored("k", floats(8, 3, 3, 3)), W8]
    made = trace(model(nodes, *io(["n", 3, 6, 6], ["n", 8]), weights), bind={"n": batch})
    assert macs(made) == batch * (27 * 8 * 16 + 64)
    assert made.bind("frame").traffic().get(("io", False), 0) == batch * 3 * 36 * 2


def test_nodes_with_one_mistake_are_counted(trace: Callable[..., Trace]) -> None:
    """Three convolutions with a kernel for other channels, and a product that does not fit: two lines."""
    nodes = [node("Conv", ["x", "k"], [f"c{i}"], name=f"conv{i}") for i in range(3)]
    nodes.append(node("MatMul", ["x", "w"], ["m"], name="mm"))
    outputs = [helper.make_empty_tensor_value_info(o) for o in ("c0", "c1", "c2", "m")]
    proto = model(nodes, io([1, 4, 6, 6], [])[0], outputs, [stored("k", floats(8, 3, 3, 3)), W8])
    assert refusal(trace, proto) == [
        "3 x Conv, first 'conv0': the input [1, 4, 6, 6] has 4 channels, the kernel [8, 3, 3, 3] takes 3 in each of 1 "
        "groups",
        "MatMul 'mm': shapes do not match: [1, 4, 6, 6] by [8, 8]",
    ]


# --- real files


@pytest.mark.parametrize("side", [640, 960])
def test_the_text_detector(export: Callable[[str], Path], core: CoreSpec, side: int) -> None:
    """Its weights are Constant nodes, its sizes have dots in their names.

    All maps divide by 32, so MACs are ``a (side / 32)^2 + c`` with whole a and c: 5,754,560 and 111,744 here.
    """
    path = export("vision/ppocrv4-det.onnx")
    sizes = {f"p2o.DynamicDimension.{i}": n for i, n in enumerate((1, side, side))}
    by_name = compile_model(path, core, Options(bind=sizes))
    assert macs(by_name) == 5_754_560 * (side // 32) ** 2 + 111_744
    assert compile_model(path, core, Options(shapes={"x": (1, 3, side, side)})).phases == by_name.phases


def test_the_voice_activity_model(export: Callable[[str], Path], core: CoreSpec) -> None:
    """Nested Ifs fold once the shapes and the rate are bound; the LSTM of 128 is one step of 2 x 128 x 512 products."""
    path = export("audio/silero-vad.onnx")
    bound = {"shapes": {"input": (1, 512), "state": (2, 1, 128)}, "bind": {"sr": 16000}}
    made = compile_model(path, core, Options(**bound))  # type: ignore[arg-type]
    assert len(made.header.report["taken"]) == 8
    lstm = [op for op in made.phase("frame").ops() if "LSTM" in op.type]
    assert [op.macs for op in lstm] == [(2 * 128 * 512,)]
    with pytest.raises(CompileError) as caught:
        compile_model(path, core)
    assert [p.what for p in caught.value.problems] == [
        "the size 'input[0]' is not bound",
        "the size 'input[1]' is not bound",
        "the size 'state[1]' is not bound",
        "If 'If_0': its condition 'Equal_0_C' is not known before the run",
    ]


# --- the command


def _run(folder: Path, proto: ModelProto, *arguments: str) -> tuple[int, list[str]]:
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    command = ["compile", str(folder / "m.onnx"), "-o", str(folder / "m.trace"), *arguments]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    return done.exit_code, done.output.splitlines()


def test_the_command_assumes_binds_and_tells(tmp_path: Path) -> None:
    condition = [node("Less", ["rate", "zero"], ["c"])]
    proto = one_if(condition, [node("MatMul", ["x", "w"], ["o"])], [node("Relu", ["x"], ["o"])], io([1, 8], [])[0])
    proto.graph.input.append(value("rate", INT64, []))
    proto.graph.initializer.append(stored("zero", np.array(0)))
    code, lines = _run(tmp_path, proto, "--bind", "rate=-1")
    assert (code, lines[3:5]) == (0, ["  If 'sel': then, its condition is known", "  input 'rate': -1, bound"])
    code, lines = _run(tmp_path, proto, "--assume", "sel=else")
    assert (code, lines[2]) == (0, "  If 'sel': else, assumed")
    assert _run(tmp_path, proto)[0] == 2


def test_the_command_warns_of_missing_data(tmp_path: Path) -> None:
    code, lines = _run(tmp_path, product([1, 64], [64, 64], [1, 64], external([64, 64], "w.data")))
    assert code == 0
    assert lines[-1] == "  warning: data file 'w.data' is not there: 1 tensor, first 'w'; sizes are from the dims"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--assume", "sel"], "--assume sel: says nothing of a node; write NODE=then, or NODE=10"),
        (["--assume", "a=1", "--assume", "a=2"], "--assume a=2: 'a' is assumed twice; say it once"),
        (["--bind", "n=1", "--bind", "n=2"], "--bind n=2: 'n' is bound twice; bind it once"),
        (["--bind", "n=-"], "--bind n=-: not a size; write NAME=64, or INPUT=1x3x224x224"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, arguments: list[str], message: str) -> None:
    code, lines = _run(tmp_path, model([node("Relu", ["x"], ["y"])], *io(["n"], [])), *arguments)
    assert (code, lines) == (2, [f"error: {message}"])


def test_a_name_that_is_no_text(tmp_path: Path, core: CoreSpec) -> None:
    data = model([node("Relu", ["x"], ["y"], name="abcd")], *io([2], [2])).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data.replace(b"abcd", b"ab\xff\xfe"))
    with pytest.raises(CompileError, match="the file is damaged: a name in it is not UTF-8 text"):
        compile_model(tmp_path / "m.onnx", core)


# --- files that are no models


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"PK\x03\x04archive/data.pkl", "it looks like a ZIP archive, as PyTorch checkpoints are"),
        (b"GGUF\x03\x00\x00\x00", "it looks like a GGUF file"),
        (b"<!DOCTYPE html>", "it looks like an HTML or XML page, as a failed download leaves it"),
        (b"\x1c\x00\x00\x00TFL3\x00", "it looks like a TensorFlow Lite file"),
        (b'\x80\x00\x00\x00\x00\x00\x00\x00{"__metadata__":{}}', "it looks like a safetensors file"),
        (b"\xff\xff\xff\x00\x01", "its bytes do not read as a protobuf message"),
    ],
)
def test_other_files_are_told_by_their_first_bytes(tmp_path: Path, core: CoreSpec, data: bytes, what: str) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(CompileError) as caught:
        compile_model(tmp_path / "m.onnx", core)
    (problem,) = caught.value.problems
    assert problem.what == f"not an ONNX file, or a damaged one: {what}"


# --- stored tensors


def test_a_table_cast_for_one_of_its_uses_is_one(trace: Callable[..., Trace]) -> None:
    """fp16 for the tokens, fp32 for the head: the file holds it once, 128,000 B."""
    nodes = [
        node("Gather", ["E", "ids"], ["t"]),
        node("Cast", ["t"], ["x"], to=FLOAT),
        node("Cast", ["E"], ["F"], to=FLOAT),
        node("Transpose", ["F"], ["G"], perm=[1, 0]),
        node("MatMul", ["x", "G"], ["y"]),
    ]
    table = stored("E", floats(1000, 64, dtype=np.float16))
    made = trace(model(nodes, [value("ids", INT64, [1, 1])], [value("y", FLOAT, [1, 1, 1000])], [table]))
    assert (made.resident_bytes, made.bind("frame").traffic()["weights", False]) == (128_000, 128_128)


def test_a_tensor_with_too_few_bytes_inside_the_file(trace: Callable[..., Trace]) -> None:
    short = TensorProto(name="w", dims=[64, 64], data_type=FLOAT, raw_data=bytes(1000))
    assert refusal(trace, product([1, 64], [64, 64], [1, 64], short)) == [
        "tensor 'w': its dims [64, 64] need 16384 bytes, the file holds 1000; export the model again"
    ]


def test_a_weight_that_the_file_lists_with_other_dims(trace: Callable[..., Trace]) -> None:
    proto = product([1, 8], [8, 8], [1, 8])
    proto.graph.input.append(value("w", FLOAT, [9, 8]))
    assert trace(proto).header.report["notes"] == ["the file states 'w' as [9, 8]; stored and used is [8, 8]"]


def test_a_size_of_minus_one_is_one_that_is_not_known(trace: Callable[..., Trace]) -> None:
    proto = model([node("Relu", ["x"], ["y"])], *io([-1, 4], [-1, 4]))
    assert refusal(trace, proto) == ["the size 'x[0]' is not bound; add the input's whole shape: --bind x=Nx4"]
    assert trace(proto, shapes={"x": (3, 4)}).bind("frame").traffic()["io", False] == 24
