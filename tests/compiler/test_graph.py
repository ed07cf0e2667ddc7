"""Reading ONNX files: what is no model, wiring that cannot be, order, dead parts, cutting at a tensor."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from bpusim.compiler import load_graph, read_model
from bpusim.errors import CompileError

Make = Callable[..., Any]
node = helper.make_node


def _refusal(path: Path) -> str:
    with pytest.raises(CompileError) as caught:
        read_model(path)
    return str(caught.value)


# --- files


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "no.onnx"
    assert _refusal(path) == f"{path}: error: cannot read the model: No such file or directory"


def test_a_directory(tmp_path: Path) -> None:
    assert _refusal(tmp_path) == f"{tmp_path}: error: cannot read the model: Is a directory"


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    assert "it holds no graph" in _refusal(path)


def test_a_truncated_file(tmp_path: Path, light: Callable[[str], Path]) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(light("squeezenet").read_bytes()[:1000])
    assert "not an ONNX file, or a damaged one" in _refusal(path)


def test_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("hello, this is not a model\n")
    assert "not an ONNX file" in _refusal(path)


def test_a_git_lfs_pointer_says_how_to_get_the_model(tmp_path: Path) -> None:
    path = tmp_path / "pointer.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n")
    assert _refusal(path) == f"{path}: error: this is a Git LFS pointer, not the model; run: git lfs pull"


def test_the_hash_is_the_files(tmp_path: Path, light: Callable[[str], Path]) -> None:
    """sha256 of the bytes, so that a trace names exactly what it was made of."""
    import hashlib

    path = light("squeezenet")
    assert read_model(path)[1] == hashlib.sha256(path.read_bytes()).hexdigest()


# --- wiring


def test_a_cycle_is_an_error_that_names_its_nodes(hand: Make) -> None:
    nodes = [node("Add", ["x", "b"], ["a"], name="n1"), node("Relu", ["a"], ["b"], name="n2")]
    with pytest.raises(CompileError, match=r"the graph has a cycle: .*Add 'n1' -> Relu 'n2'|Relu 'n2' -> Add 'n1'"):
        hand(nodes, {"x": [2]}, ["b"]).graph()


def test_an_input_made_by_nothing_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="input 'ghost' of Add 'y' is made by nothing"):
        hand([node("Add", ["x", "ghost"], ["y"])], {"x": [2]}, ["y"]).graph()


def test_a_tensor_made_twice_is_an_error_that_names_both(hand: Make) -> None:
    nodes = [node("Relu", ["x"], ["t"], name="a"), node("Neg", ["x"], ["t"], name="b")]
    with pytest.raises(CompileError, match="tensor 't' is made twice: by Relu 'a' and Neg 'b'"):
        hand(nodes, {"x": [2]}, ["t"]).graph()


def test_all_that_is_wrong_with_the_wiring_is_reported_at_once(hand: Make) -> None:
    nodes = [
        node("Relu", ["x"], ["t"], name="a"),
        node("Neg", ["x"], ["t"], name="b"),
        node("Add", ["ghost", "phantom"], ["y"]),
    ]
    with pytest.raises(CompileError) as caught:
        hand(nodes, {"x": [2]}, ["y"]).graph()
    assert len(caught.value.problems) == 3


def test_an_output_made_by_nothing_is_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="y"):
        hand([node("Relu", ["x"], ["r"])], {"x": [2]}, ["y"]).graph()


def test_nodes_out_of_order_are_sorted(hand: Make) -> None:
    nodes = [node("Exp", ["r"], ["y"], name="second"), node("Relu", ["x"], ["r"], name="first")]
    assert [n.name for n in hand(nodes, {"x": [2]}, ["y"]).graph().nodes] == ["first", "second"]


def test_a_missing_optional_input_is_no_dangling_one(hand: Make) -> None:
    """Clip with a maximum but no minimum."""
    model = hand([node("Clip", ["x", "", "m"], ["y"])], {"x": [2]}, ["y"], weights={"m": []})
    assert model.dims("y") == [2]


def test_dead_nodes_are_left_out(hand: Make) -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("MatMul", ["x", "w"], ["dead"])]
    graph = hand(nodes, {"x": [2, 2]}, ["y"], weights={"w": [2, 2]}).graph()
    assert [n.type for n in graph.nodes] == ["Relu"]


def test_unused_weights_are_not_resident(hand: Make) -> None:
    model = hand([node("MatMul", ["x", "w"], ["y"])], {"x": [2, 2]}, ["y"], weights={"w": [2, 2], "dead": [1000]})
    assert model.trace().resident_bytes == 4 * 4


def test_weights_listed_as_inputs_are_weights(hand: Make) -> None:
    """Up to IR 3 every initialiser is a graph input too."""
    model = hand([node("MatMul", ["x", "w"], ["y"])], {"x": [2, 2], "w": [2, 2]}, ["y"], weights={"w": [2, 2]})
    assert list(model.graph().inputs) == ["x"]


def test_constant_nodes_are_weights(hand: Make) -> None:
    """Some exporters write no initialiser at all."""
    value = helper.make_tensor("v", TensorProto.FLOAT, [8, 3], [0.0] * 24)
    nodes = [node("Constant", [], ["w"], value=value), node("MatMul", ["x", "w"], ["y"])]
    assert hand(nodes, {"x": [5, 8]}, ["y"]).weight_bytes() == 24 * 4


def test_external_data_is_not_needed(hand: Make) -> None:
    """The weights of every hand-made model here lie in files that do not exist."""
    model = hand([node("MatMul", ["x", "w"], ["y"])], {"x": [2, 2]}, ["y"], weights={"w": [2, 2]})
    assert model.graph().stored["w"].values is None


def test_large_integer_tables_are_not_read(hand: Make) -> None:
    """Packed 4-bit weights are UINT8: only what may steer a shape is worth reading."""
    model = hand([node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"], ints={"small": [1, 2], "big": [0] * 5000})
    stored = model.graph().stored
    assert stored["small"].values is not None
    assert stored["big"].values is None


def test_long_chains_are_no_problem(hand: Make) -> None:
    """2000 nodes deep: nothing recurses along the graph."""
    names = ["x", *(f"t{i}" for i in range(2000))]
    nodes = [node("Relu", [a], [b]) for a, b in pairwise(names)]
    assert len(hand(nodes, {"x": [2]}, [names[-1]]).graph().nodes) == 2000


# --- until


def _three(hand: Make) -> Any:
    nodes = [node("Relu", ["x"], ["first"]), node("Exp", ["first"], ["second"]), node("Neg", ["second"], ["third"])]
    return hand(nodes, {"x": [2]}, ["third"]).graph()


def test_until_keeps_what_computes_the_tensor(hand: Make) -> None:
    cut = _three(hand).until(["second"])
    assert ([n.type for n in cut.nodes], cut.outputs) == (["Relu", "Exp"], ["second"])


def test_until_an_unknown_tensor_suggests_the_nearest(hand: Make) -> None:
    with pytest.raises(CompileError, match=r"no node makes 'secnd'; did you mean 'second'\?"):
        _three(hand).until(["secnd"])


def test_until_lists_every_unknown_tensor(hand: Make) -> None:
    with pytest.raises(CompileError) as caught:
        _three(hand).until(["a", "b"])
    assert len(caught.value.problems) == 2


def test_a_constant_without_a_value_is_an_error() -> None:
    graph = helper.make_graph(
        [node("Constant", [], ["s"]), node("Identity", ["s"], ["y"])],
        "nothing",
        [],
        [helper.make_empty_tensor_value_info("y")],
    )
    with pytest.raises(CompileError, match="a Constant node holds no value"):
        load_graph(helper.make_model(graph), "nothing.onnx", "")


def test_opsets_are_known_by_domain(light: Callable[[str], Path]) -> None:
    model = onnx.load(light("squeezenet"))
    assert load_graph(model, "squeezenet", "").opsets == {"ai.onnx": 9}
