"""Small ONNX files of the kinds that real tools stumble over, by the numbers of the public cases (IN-01 and so on)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, HALF, INT64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL
Dims = Sequence[int | str | None]
node = helper.make_node
value = helper.make_tensor_value_info


def floats(*dims: int, dtype: type = np.float32) -> np.ndarray[Any, Any]:
    """Numbers that differ, so that no two tensors are alike by chance."""
    return (np.arange(np.prod(dims)) % 1009 / 7).astype(dtype).reshape(dims)


def stored(name: str, data: Any) -> TensorProto:
    """An initialiser."""
    return numpy_helper.from_array(np.asarray(data), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[TensorProto] = (),
    *,
    opset: int = 17,
    ir: int = 8,
    domains: Sequence[str] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    **graph: Any,
) -> onnx.ModelProto:
    """A model proto."""
    made = helper.make_graph(list(nodes), "case", list(inputs), list(outputs), list(weights), **graph)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    out = helper.make_model(made, opset_imports=opsets, functions=list(functions))
    out.ir_version = ir
    return out


def product(x: Dims, w: Sequence[int], y: Dims, tensor: TensorProto | None = None) -> onnx.ModelProto:
    """``x`` by a stored ``w``."""
    weight = stored("w", floats(*w)) if tensor is None else tensor
    return model([node("MatMul", ["x", "w"], ["y"])], [value("x", FLOAT, x)], [value("y", FLOAT, y)], [weight])


def external(dims: Sequence[int], location: str, **more: int) -> TensorProto:
    """A tensor ``w`` whose data lie elsewhere."""
    t = TensorProto(name="w", dims=dims, data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    for key, told in {"location": location, **more}.items():
        t.external_data.add(key=key, value=str(told))
    return t


def _shared_table() -> onnx.ModelProto:
    nodes = [
        node("Gather", ["E", "ids"], ["x"]),
        node("Transpose", ["E"], ["Et"], perm=[1, 0]),
        node("MatMul", ["x", "Et"], ["logits"]),
    ]
    table = stored("E", floats(1000, 64, dtype=np.float16))
    return model(nodes, [value("ids", INT64, [1, 1])], [value("logits", HALF, [1, 1, 1000])], [table])


def _copied_table(turned: bool) -> onnx.ModelProto:
    table = floats(1000, 64, dtype=np.float16)
    nodes = [node("Gather", ["E", "ids"], ["x"]), node("MatMul", ["x", "W" if turned else "Wt"], ["logits"])]
    if not turned:
        nodes.insert(1, node("Transpose", ["W"], ["Wt"], perm=[1, 0]))
    weights = [stored("E", table), stored("W", table.T.copy() if turned else table)]
    return model(nodes, [value("ids", INT64, [1, 1])], [value("logits", HALF, [1, 1, 1000])], weights)


def _narrow(dtype: int, dims: list[int], op: str, x: list[int], opset: int, **data: Any) -> onnx.ModelProto:
    weight = TensorProto(name="w", dims=dims, data_type=dtype, **data)
    nodes = [node("DequantizeLinear", ["w", "s"], ["wf"]), node(op, ["x", "wf"], ["y"])]
    y = [*x[:-1], dims[-1]]
    return model(
        nodes,
        [value("x", FLOAT, x)],
        [value("y", FLOAT, y)],
        [weight, stored("s", np.float32(0.1))],
        opset=opset,
        ir=10,
    )


def _brain(**data: Any) -> onnx.ModelProto:
    weight = TensorProto(name="w", dims=[64, 64], data_type=TensorProto.BFLOAT16, **data)
    kind = TensorProto.BFLOAT16
    return model(
        [node("MatMul", ["x", "w"], ["y"])], [value("x", kind, [1, 64])], [value("y", kind, [1, 64])], [weight]
    )


def _order(turned: bool) -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "w"], ["t"], name="first"), node("Relu", ["t"], ["y"], name="second")]
    io = [value("x", FLOAT, [4, 16])], [value("y", FLOAT, [4, 16])]
    return model(nodes[::-1] if turned else nodes, *io, [stored("w", floats(16, 16))])


def _cycle() -> onnx.ModelProto:
    nodes = [node("Add", ["x", "b"], ["a"], name="n1"), node("Relu", ["a"], ["b"], name="n2")]
    return model(nodes, [value("x", FLOAT, [4])], [value("b", FLOAT, [4])])


def _if() -> onnx.ModelProto:
    out = [value("o", FLOAT, [1, 32])]
    then = helper.make_graph([node("MatMul", ["x", "w"], ["o"])], "then", [], out)
    other = helper.make_graph([node("Relu", ["x"], ["o"])], "else", [], out)
    nodes = [node("If", ["c"], ["y"], name="sel", then_branch=then, else_branch=other)]
    inputs = [value("c", BOOL, []), value("x", FLOAT, [1, 32])]
    return model(nodes, inputs, [value("y", FLOAT, [1, 32])], [stored("w", floats(32, 32))])


def _loop(constant: bool) -> onnx.ModelProto:
    body = helper.make_graph(
        [node("MatMul", ["s", "w"], ["t"]), node("Identity", ["go"], ["on"])],
        "body",
        [value("i", INT64, []), value("go", BOOL, []), value("s", FLOAT, [1, 32])],
        [value("on", BOOL, []), value("t", FLOAT, [1, 32])],
    )
    nodes = [node("Loop", ["trip", "true", "x"], ["y"], name="lp", body=body)]
    weights = [stored("w", floats(32, 32)), stored("true", np.array(True))]
    inputs = [value("x", FLOAT, [1, 32])]
    if constant:
        weights.append(stored("trip", np.int64(5)))
    else:
        inputs.append(value("trip", INT64, []))
    return model(nodes, inputs, [value("y", FLOAT, [1, 32])], weights)


def _unsupported() -> onnx.ModelProto:
    nodes = [
        node("SequenceEmpty", [], ["s0"]),
        node("SequenceInsert", ["s0", "x"], ["s1"], name="in1"),
        node("SequenceInsert", ["s1", "x"], ["s2"]),
        node("ConcatFromSequence", ["s2"], ["c"], axis=1),
        node("SequenceErase", ["s2"], ["s3"]),
        node("SequenceLength", ["s3"], ["n"]),
    ]
    return model(nodes, [value("x", FLOAT, [1, 64])], [value("c", FLOAT, [1, 128]), value("n", INT64, [])])


def _nonzero() -> onnx.ModelProto:
    nodes = [
        node("NonZero", ["m"], ["at"], name="nz"),
        node("Squeeze", ["at", "a0"], ["idx"]),
        node("Gather", ["x", "idx"], ["g"]),
        node("MatMul", ["g", "w"], ["y"]),
    ]
    inputs = [value("m", FLOAT, [32]), value("x", FLOAT, [32, 16])]
    weights = [stored("w", floats(16, 8)), stored("a0", np.array([0]))]
    return model(nodes, inputs, [value("y", FLOAT, [None, 8])], weights)


def _conv(x: Dims, y: Dims, *, kernel: bool = True, **graph: Any) -> onnx.ModelProto:
    inputs = [value("x", FLOAT, x)] + ([] if kernel else [value("k", FLOAT, [8, 3, 3, 3])])
    weights = [stored("k", floats(8, 3, 3, 3))] if kernel else []
    return model([node("Conv", ["x", "k"], ["y"])], inputs, [value("y", FLOAT, y)], weights, **graph)


def _past() -> onnx.ModelProto:
    nodes = [
        node("Concat", ["past", "new"], ["k"], axis=2),
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["y"]),
    ]
    shapes: dict[str, Dims] = {"past": [1, 2, "past_len", 8], "new": [1, 2, 4, 8], "q": [1, 2, 4, 8]}
    return model(nodes, [value(n, FLOAT, d) for n, d in shapes.items()], [value("y", FLOAT, [1, 2, 4, "total"])])


def _expression() -> onnx.ModelProto:
    whole = [1, 2, "seq", "past_len + seq"]
    inputs = [value("s", FLOAT, whole), value("mask", FLOAT, [1, 1, *whole[2:]])]
    return model([node("Add", ["s", "mask"], ["y"])], inputs, [value("y", FLOAT, whole)])


def _channels_last() -> onnx.ModelProto:
    nodes = [node("Transpose", ["x"], ["xc"], perm=[0, 3, 1, 2]), node("Conv", ["xc", "k"], ["y"])]
    io = [value("x", FLOAT, [1, 32, 32, 3])], [value("y", FLOAT, [1, 8, 30, 30])]
    return model(nodes, *io, [stored("k", floats(8, 3, 3, 3))])


def _reshape(x: Dims, shape: list[int], y: Dims, **attrs: int) -> onnx.ModelProto:
    nodes = [node("Reshape", ["x", "s"], ["y"], name="rs", **attrs)]
    return model(nodes, [value("x", FLOAT, x)], [value("y", FLOAT, y)], [stored("s", np.array(shape))])


def _split(opset: int, **attrs: Any) -> onnx.ModelProto:
    outputs = [value(n, FLOAT, [1, d]) for n, d in zip("abc", (4, 4, 2), strict=True)]
    return model(
        [node("Split", ["x"], list("abc"), axis=1, **attrs)], [value("x", FLOAT, [1, 10])], outputs, opset=opset
    )


def _relu(**versions: int) -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], [value("x", FLOAT, [4])], [value("y", FLOAT, [4])], **versions)


def _vendor(domain: str) -> onnx.ModelProto:
    io = [value("x", FLOAT, [1, 8])], [value("y", FLOAT, [1, 8])]
    if not domain:
        return model([node("NotAnOp", ["x"], ["y"], name="n0")], *io)
    nodes = [
        node("SparseConvolution", [a], [b], domain=domain, name=n) for a, b, n in (("x", "a", "sc0"), ("a", "y", "sc1"))
    ]
    return model(nodes, *io, domains=[domain])


def _old_weights(ir: int) -> onnx.ModelProto:
    made = product([1, 16], [16, 16], [1, 16])
    if ir == 3:
        made.graph.input.append(value("w", FLOAT, [16, 16]))
        made.opset_import[0].version = 8
    made.ir_version = ir
    return made


def _names() -> onnx.ModelProto:
    nodes = [
        node("MatMul", [a, "w"], [b], name=n)
        for a, b, n in (("x", "a", "MatMul_0"), ("a", "b", "MatMul_0"), ("b", "y", ""))
    ]
    io = [value("x", FLOAT, [1, 16])], [value("y", FLOAT, [1, 16])]
    return model(nodes, *io, [stored("w", floats(16, 16))])


ODD = ["/model/layers.0/act-fn", "=cmd|' /C calc'!A0 \u5c42\n2"]
"""Names of the two nodes of IN-39."""


def _odd_names() -> onnx.ModelProto:
    inner = '/model/layers.0/act,fn"q"/out:0'
    nodes = [node("Relu", ["x"], [inner], name=ODD[0]), node("Relu", [inner], ["../../y"], name=ODD[1])]
    return model(nodes, [value("x", FLOAT, [4])], [value("../../y", FLOAT, [4])])


def _sparse() -> onnx.ModelProto:
    tensor = helper.make_sparse_tensor(
        stored("w", np.ones(3, np.float32)), stored("at", np.array([1, 40, 900])), [32, 32]
    )
    io = [value("x", FLOAT, [1, 32])], [value("y", FLOAT, [1, 32])]
    return model([node("MatMul", ["x", "w"], ["y"])], *io, sparse_initializer=[tensor])


def _text() -> onnx.ModelProto:
    kind = TensorProto.STRING
    return model([node("StringNormalizer", ["s"], ["y"])], [value("s", kind, [1])], [value("y", kind, [None])])


def _wrong_note() -> onnx.ModelProto:
    nodes = [node("Conv", ["x", "k"], ["t"]), node("Relu", ["t"], ["y"])]
    io = [value("x", FLOAT, [1, 3, 32, 32])], [value("y", FLOAT, [1, 8, 30, 30])]
    return model(nodes, *io, [stored("k", floats(8, 3, 3, 3))], value_info=[value("t", FLOAT, [1, 16, 99, 99])])


def _old_add() -> onnx.ModelProto:
    nodes = [node("Add", ["x", "b"], ["y"], broadcast=1, axis=1)]
    io = [value("x", FLOAT, [1, 4, 8, 8])], [value("y", FLOAT, [1, 4, 8, 8])]
    return model(nodes, *io, [stored("b", floats(4))], opset=6)


def _upsample() -> onnx.ModelProto:
    nodes = [node("Unsqueeze", ["x"], ["u"], axes=[0]), node("Upsample", ["u", "sc"], ["y"], mode="nearest")]
    io = [value("x", FLOAT, [4, 8, 8])], [value("y", FLOAT, [1, 4, 16, 16])]
    return model(nodes, *io, [stored("sc", np.array([1, 1, 2, 2], np.float32))], opset=9)


def _dead() -> onnx.ModelProto:
    made = product([1, 16], [16, 16], [1, 16])
    made.graph.node.append(node("MatMul", ["x", "w"], ["dead"]))
    made.graph.initializer.append(stored("unused", floats(512, 512)))
    return made


def _chain(length: int = 5000) -> onnx.ModelProto:
    nodes = [node("Relu", [f"t{i}"], [f"t{i + 1}"], name=f"n{i}") for i in range(length)]
    return model(nodes, [value("t0", FLOAT, [1, 16])], [value(f"t{length}", FLOAT, [1, 16])])


def _constant_output() -> onnx.ModelProto:
    outputs = [value("y", FLOAT, [4]), value("c", FLOAT, [2])]
    return model([node("Relu", ["x"], ["y"])], [value("x", FLOAT, [4])], outputs, [stored("c", floats(2))])


def _twice() -> onnx.ModelProto:
    nodes = [node("Relu", ["x"], ["t"], name="a"), node("Neg", ["x"], ["t"], name="b"), node("Abs", ["t"], ["y"])]
    return model(nodes, [value("x", FLOAT, [4])], [value("y", FLOAT, [4])])


def _ghost() -> onnx.ModelProto:
    io = [value("x", FLOAT, [1, 4])], [value("y", FLOAT, [1, 4])]
    return model([node("MatMul", ["x", "ghost"], ["y"], name="mm")], *io)


_W = [64, 64]
CASES: dict[str, Callable[[], onnx.ModelProto | bytes]] = {
    "IN-01": _shared_table,
    "IN-02_same": lambda: _copied_table(False),
    "IN-02_transposed": lambda: _copied_table(True),
    "IN-05": lambda: _narrow(TensorProto.INT4, [3, 5], "MatMul", [2, 3], 21, raw_data=bytes(8)),
    "IN-06": lambda: _narrow(TensorProto.INT4, [4096], "Add", [1, 4096], 21, int32_data=[-52] * 2048),
    "IN-07_UINT2": lambda: _narrow(25, [10], "Add", [10], 25, raw_data=bytes(3)),
    "IN-07_FLOAT4E2M1": lambda: _narrow(23, [10], "Add", [10], 23, raw_data=bytes(5)),
    "IN-08_raw": lambda: _brain(raw_data=bytes(8192)),
    "IN-08_int32": lambda: _brain(int32_data=[16256] * 4096),
    "IN-10": lambda: product([1, 64], _W, [1, 64], external(_W, "not_there.data")),
    "IN-12_dotdot": lambda: product([1, 64], _W, [1, 64], external(_W, "../../etc/hostname")),
    "IN-12_abs": lambda: product([1, 64], _W, [1, 64], external(_W, "/etc/hostname")),
    "IN-13_short": lambda: product([1, 64], _W, [1, 64], external(_W, "IN-13.data")),
    "IN-13_offset": lambda: product([1, 64], _W, [1, 64], external(_W, "IN-13.data", offset=4096, length=16384)),
    "IN-14_sorted": lambda: _order(False),
    "IN-14_unsorted": lambda: _order(True),
    "IN-15": _cycle,
    "IN-16": _if,
    "IN-18_const": lambda: _loop(True),
    "IN-18_dynamic": lambda: _loop(False),
    "IN-19": _unsupported,
    "IN-20": _nonzero,
    "IN-21": lambda: _conv(["N", 3, "H", "W"], ["N", 8, "OH", "OW"]),
    "IN-22": _past,
    "IN-23": _expression,
    "IN-24": lambda: model(
        [node("Clip", ["x", "", "hi"], ["y"])],
        [value("x", FLOAT, [3, 4])],
        [value("y", FLOAT, [3, 4])],
        [stored("hi", np.float32(6))],
    ),
    "IN-26": _channels_last,
    "IN-27_copy": lambda: _reshape([2, 3, 4], [0, -1], [2, 12]),
    "IN-27_lit": lambda: _reshape([0, 3], [0, 5], [0, 5], allowzero=1),
    "IN-27_bad": lambda: _reshape([0, 3], [0, -1], [0, 0], allowzero=1),
    "IN-28_o11": lambda: _split(11, split=[4, 4, 2]),
    "IN-28_o18": lambda: _split(18, num_outputs=3),
    "IN-29_opset": lambda: _relu(opset=99),
    "IN-29_ir": lambda: _relu(ir=99),
    "IN-33_dom": lambda: _vendor("acme"),
    "IN-33_nodom": lambda: _vendor(""),
    "IN-35_ir3": lambda: _old_weights(3),
    "IN-35_ir8": lambda: _old_weights(8),
    "IN-37": lambda: _conv([1, 3, 32, 32], [1, 8, 30, 30], kernel=False),
    "IN-38": _names,
    "IN-39": _odd_names,
    "IN-40_empty": lambda: model([], [value("x", FLOAT, [4])], [value("x", FLOAT, [4])]),
    "IN-40_constout": _constant_output,
    "IN-41": _twice,
    "IN-42": _ghost,
    "IN-48": _sparse,
    "IN-49": _text,
    "IN-51": _wrong_note,
    "IN-52_o6": _old_add,
    "IN-52_o9": _upsample,
    "IN-53_lfs": lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 102400\n",
    "IN-53_cut": lambda: product([1, 64], _W, [1, 64]).SerializeToString()[:8000],
    "IN-53_zero": lambda: b"",
    "IN-53_text": lambda: b"hello\n",
    "IN-54": _dead,
    "IN-55": _chain,
}
"""Files by name; a file that is no model as its bytes."""


def write_case(name: str, folder: Path) -> Path:
    """The file of a case, and the data beside it that it needs."""
    made = CASES[name]()
    path = folder / f"{name}.onnx"
    path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    if name.startswith("IN-13"):
        (folder / "IN-13.data").write_bytes(bytes(1000))
    return path
