"""Real-world input files, one test a case: exact values, or the exact message.

Each runs on a file built here and, where ``../shared/inputs/cases`` lies beside the repository, on the collected file.

Activations are 16 bit, whatever the file's type: 16 floats of 64 B in the file are 32 B of traffic.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from input_cases import ODD, write_case

from bpusim.compiler import Options, compile_model
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec
from bpusim.trace import Trace, load_trace, save_trace
from bpusim.trace.model import Repeat

Compile = Callable[..., Trace]
Refusal = Callable[..., str]


@pytest.fixture(params=["built", "shared"])
def find(request: pytest.FixtureRequest, tmp_path: Path, repository: Path) -> Callable[[str], Path]:
    """``find("IN-01")``: the file of a case."""
    if request.param == "built":
        return lambda name: write_case(name, tmp_path)

    def shared(name: str) -> Path:
        path = repository.parent / "shared" / "inputs" / "cases" / f"{name}.onnx"
        if not path.is_file():
            pytest.skip(f"{name}.onnx is not at ../shared/inputs/cases")
        return path

    return shared


@pytest.fixture
def compiled(find: Callable[[str], Path], core: CoreSpec) -> Compile:
    """``compiled("IN-01", bind=...)``: the trace of a case."""
    return lambda name, **options: compile_model(find(name), core, Options(**options))


@pytest.fixture
def refused(find: Callable[[str], Path], core: CoreSpec) -> Refusal:
    """``refused("IN-15")``: the error of a case, a line a problem, without the file's name."""

    def refuse(name: str, **options: Any) -> str:
        path = find(name)
        with pytest.raises(CompileError) as caught:
            compile_model(path, core, Options(**options))
        return str(caught.value).replace(f"{path}: error: ", "")

    return refuse


def macs(trace: Trace) -> int:
    return trace.bind("frame").macs


def moved(trace: Trace, kind: str, write: bool = False) -> int:
    return trace.bind("frame").traffic().get((kind, write), 0)


def notes(trace: Trace) -> list[str]:
    return list(trace.header.report.get("notes", []))


# --- stored tensors


def test_in_01_a_table_for_tokens_and_head_counts_once(compiled: Compile) -> None:
    """1000 x 64 fp16 are 128,000 B; a step reads the whole for the head and one row of 128 B for the token."""
    trace = compiled("IN-01")
    assert (trace.resident_bytes, macs(trace), moved(trace, "weights")) == (128_000, 64_000, 128_128)
    assert trace.header.report["views"] == {"Transpose": 1}


@pytest.mark.parametrize(
    ("name", "how"), [("IN-02_same", "the same data as"), ("IN-02_transposed", "the transposed data of")]
)
def test_in_02_a_copied_table_is_two_and_noted(compiled: Compile, name: str, how: str) -> None:
    trace = compiled(name)
    assert trace.resident_bytes == 256_000
    assert notes(trace) == [f"'W' holds {how} 'E': one for both would save 128000 B"]


def test_in_05_fifteen_int4_are_eight_bytes(compiled: Compile) -> None:
    trace = compiled("IN-05")
    assert (trace.resident_bytes, macs(trace)) == (8, 2 * 3 * 5)


def test_in_06_stored_bytes_follow_from_the_dims_not_the_file(compiled: Compile, find: Callable[[str], Path]) -> None:
    """The file holds each negative pair in ten bytes of protobuf."""
    assert find("IN-06").stat().st_size > 20_000
    assert compiled("IN-06").resident_bytes == 2048


@pytest.mark.parametrize(("name", "size"), [("IN-07_UINT2", 3), ("IN-07_FLOAT4E2M1", 5)])
def test_in_07_ten_elements_of_new_types(compiled: Compile, name: str, size: int) -> None:
    assert compiled(name).resident_bytes == size


@pytest.mark.parametrize("name", ["IN-08_raw", "IN-08_int32"])
def test_in_08_bfloat16_in_either_field(compiled: Compile, name: str) -> None:
    trace = compiled(name)
    assert (trace.resident_bytes, macs(trace)) == (8192, 4096)


def test_in_48_a_sparse_tensor_is_dense(compiled: Compile) -> None:
    trace = compiled("IN-48")
    assert (trace.resident_bytes, macs(trace)) == (4096, 1024)
    assert notes(trace) == ["sparse tensor 'w' is taken as dense: the array skips no zeros"]


def test_in_35_weights_among_the_inputs_are_weights(compiled: Compile) -> None:
    """Only the 16 elements of x come in."""
    old, new = compiled("IN-35_ir3"), compiled("IN-35_ir8")
    assert moved(old, "io") == 16 * 2
    assert old.header.report["input_bytes"] == {"x": 64}
    assert old.phases == new.phases
    assert old.tensors == new.tensors


def test_in_37_a_kernel_that_comes_in_is_no_weight(compiled: Compile) -> None:
    """27 products for each of 8 x 30 x 30 results; 3 x 32 x 32 and 8 x 27 elements come in."""
    trace = compiled("IN-37")
    assert (trace.resident_bytes, macs(trace)) == (0, 194_400)
    assert moved(trace, "io") == (3072 + 216) * 2
    assert sorted(trace.header.report["input_bytes"].values()) == [864, 12_288]


def test_in_54_dead_parts_cost_nothing_and_are_noted(compiled: Compile) -> None:
    trace = compiled("IN-54")
    assert (macs(trace), trace.resident_bytes) == (256, 1024)
    assert notes(trace) == [
        "leads to no output and costs nothing: 1 node (MatMul 'dead'), 1 tensor of 1048576 B (unused)"
    ]


# --- external data


def test_in_10_missing_data_are_a_warning(find: Callable[[str], Path], core: CoreSpec) -> None:
    told: list[str] = []
    trace = compile_model(find("IN-10"), core, warn=told.append)
    assert told == ["data file 'not_there.data' is not there: 1 tensor, first 'w'; sizes are from the dims"]
    assert (trace.resident_bytes, notes(trace)) == (16_384, [])


def test_in_11_data_lie_beside_the_link_that_was_named(tmp_path: Path, core: CoreSpec) -> None:
    """A hub's cache: model and data are links into one folder of blobs."""
    from input_cases import external, product

    for folder in ("blobs", "snap"):
        (tmp_path / folder).mkdir()
    proto = product([1, 64], [64, 64], [1, 64], external([64, 64], "model.onnx_data"))
    (tmp_path / "blobs" / "aaa").write_bytes(proto.SerializeToString())
    (tmp_path / "blobs" / "bbb").write_bytes(bytes(16_384))
    for link, blob in (("model.onnx", "aaa"), ("model.onnx_data", "bbb")):
        os.symlink(f"../blobs/{blob}", tmp_path / "snap" / link)
    told: list[str] = []
    assert compile_model(tmp_path / "snap" / "model.onnx", core, warn=told.append).resident_bytes == 16_384
    assert told == []


@pytest.mark.parametrize(
    ("name", "location", "why"),
    [
        ("IN-12_dotdot", "../../etc/hostname", "leads out of the model's folder"),
        ("IN-12_abs", "/etc/hostname", "is an absolute path"),
    ],
)
def test_in_12_a_location_outside_the_folder_is_refused(refused: Refusal, name: str, location: str, why: str) -> None:
    assert refused(name) == (
        f"tensor 'w': its data location '{location}' {why}; nothing is opened there; "
        "keep the data in the model's folder, by a relative name"
    )


@pytest.mark.parametrize(("name", "at"), [("IN-13_short", ""), ("IN-13_offset", " from byte 4096 on")])
def test_in_13_a_short_data_file_is_refused(refused: Refusal, name: str, at: str) -> None:
    assert refused(name) == (
        f"tensor 'w': 16384 bytes are wanted{at} of 'IN-13.data', which has 1000; "
        "the data file is cut off or another model's: fetch it again"
    )


# --- order, names, wiring


def test_in_14_nodes_out_of_order_make_the_same_trace(compiled: Compile) -> None:
    turned, sorted_ = compiled("IN-14_unsorted"), compiled("IN-14_sorted")
    assert turned.phases == sorted_.phases
    assert turned.tensors == sorted_.tensors


def test_in_15_a_cycle_is_named(refused: Refusal) -> None:
    assert refused("IN-15") == "the graph has a cycle: Add 'n1' -> Relu 'n2' -> Add 'n1'; export the model again"


def test_in_24_an_empty_name_is_an_input_left_out(compiled: Compile) -> None:
    """Two comparisons for each of 12 elements."""
    (op,) = compiled("IN-24").phase("frame").ops()
    assert op.vec == {"add": (24,)}


def test_in_38_nodes_of_one_name_or_none_are_three(compiled: Compile) -> None:
    trace = compiled("IN-38")
    assert macs(trace) == 3 * 256
    assert [op.macs for op in trace.phase("frame").ops()] == [(256,)] * 3


def test_in_39_odd_names_come_back_from_the_file(compiled: Compile, tmp_path: Path) -> None:
    trace = compiled("IN-39")
    out = tmp_path / "out"
    out.mkdir()
    save_trace(trace, out / "x.trace")
    assert [n for op in load_trace(out / "x.trace").phase("frame").ops() for n in op.nodes] == ODD
    assert [p.name for p in out.iterdir()] == ["x.trace"]
    assert load_trace(out / "x.trace").phases == trace.phases


@pytest.mark.parametrize(("name", "ops"), [("IN-40_empty", 0), ("IN-40_constout", 1)])
def test_in_40_hardly_a_graph(compiled: Compile, name: str, ops: int) -> None:
    trace = compiled(name)
    assert (sum(1 for _ in trace.phase("frame").ops()), macs(trace)) == (ops, 0)


def test_in_41_two_nodes_make_one_tensor(refused: Refusal) -> None:
    assert refused("IN-41") == "tensor 't' is made twice: by Relu 'a' and Neg 'b'"


def test_in_42_an_input_that_nothing_makes(refused: Refusal) -> None:
    assert refused("IN-42") == "input 'ghost' of MatMul 'mm' is made by nothing; export the model again"


def test_in_55_a_chain_of_five_thousand(compiled: Compile) -> None:
    trace = compiled("IN-55")
    phase = trace.phase("frame")
    assert {op.vec["add"] for op in phase.ops()} == {(16,)}
    assert sum(item.count if isinstance(item, Repeat) else 1 for item in phase.items) == 5000


# --- control flow


def test_in_16_a_branch_reads_tensors_from_outside(compiled: Compile, refused: Refusal) -> None:
    then, other = (compiled("IN-16", assume={"sel": way}) for way in ("then", "else"))
    assert (macs(then), macs(other)) == (1024, 0)
    assert [t.header.report["taken"] for t in (then, other)] == [
        {"If 'sel'": "then, assumed"},
        {"If 'sel'": "else, assumed"},
    ]
    assert macs(compiled("IN-16", bind={"c": 1})) == 1024
    assert refused("IN-16") == (
        "If 'sel': its condition 'c' is not known before the run; add --bind c=NUMBER, or --assume sel=then (or else)"
    )


def test_in_18_a_loop_is_as_often_as_it_says(compiled: Compile, refused: Refusal) -> None:
    """Five products of 32 x 32; the weights are resident once, and every pass streams them, as every op does."""
    for trace in (
        compiled("IN-18_const"),
        compiled("IN-18_dynamic", bind={"trip": 5}),
        compiled("IN-18_dynamic", assume={"lp": "5"}),
    ):
        assert (macs(trace), trace.resident_bytes, moved(trace, "weights")) == (5 * 1024, 4096, 5 * 4096)
    assert refused("IN-18_dynamic") == (
        "Loop 'lp': its trip count 'trip' is not known before the run; add --bind trip=NUMBER, or --assume lp=NUMBER"
    )


# --- ops


def test_in_19_all_that_is_not_supported_is_listed_at_once(refused: Refusal) -> None:
    lines = refused("IN-19").splitlines()
    kinds = [line.partition(": no cost rule")[0].partition(", first")[0].partition(" '")[0] for line in lines]
    assert kinds[0] == "SequenceEmpty"
    assert all("no cost rule for Sequence" in x or "no cost rule for ConcatFromSequence" in x for x in lines)
    assert any("ConcatFromSequence 'c'" in line for line in lines)


def test_in_19_with_counts_and_names(tmp_path: Path, core: CoreSpec) -> None:
    with pytest.raises(CompileError) as caught:
        compile_model(write_case("IN-19", tmp_path), core)
    assert [p.what for p in caught.value.problems] == [
        "SequenceEmpty 's0': no cost rule for SequenceEmpty, whose results are lists of tensors",
        "2 x SequenceInsert, first 'in1': no cost rule for SequenceInsert, whose results are lists of tensors",
        "ConcatFromSequence 'c': no cost rule for ConcatFromSequence, whose results are lists of tensors",
        "SequenceErase 's3': no cost rule for SequenceErase, whose results are lists of tensors",
        "SequenceLength 'n': no cost rule for SequenceLength, whose results are lists of tensors",
    ]


def test_in_20_a_length_that_the_data_decide_is_asked_for(compiled: Compile, refused: Refusal) -> None:
    message = refused("IN-20")
    assert message.startswith("NonZero 'nz': only the data decide the size of '")
    assert message.endswith("', and so of 'idx', 'g', 'y'; add --assume nz=NUMBER")
    trace = compiled("IN-20", assume={"nz": "10"})
    assert macs(trace) == 10 * 16 * 8
    assert trace.header.report["taken"] == {"NonZero 'nz'": "10, assumed"}


def test_in_33_a_vendors_op_is_named_with_its_count(refused: Refusal) -> None:
    assert refused("IN-33_dom") == (
        "2 x acme::SparseConvolution, first 'sc0': no cost rule for acme::SparseConvolution, and the file does not "
        "state the shape of 'a'; state it there to have the op priced on the CPU by its elements, or replace it, or "
        "cut it off with --until"
    )
    assert refused("IN-33_nodom") == (
        "NotAnOp 'n0': no cost rule for NotAnOp: the standard operators do not have it; replace it by ops that have "
        "one, or cut it off with --until"
    )


def test_in_49_text_has_no_size(refused: Refusal) -> None:
    assert refused("IN-49") == (
        "StringNormalizer 'y': no cost rule for StringNormalizer, which reads strings: their size is not known before "
        "the run; cut it off with --until, or leave text to the host and feed numbers"
    )


# --- sizes


def test_in_21_every_unbound_size_is_listed(compiled: Compile, refused: Refusal) -> None:
    lines = refused("IN-21").splitlines()
    assert lines == [
        f"the size '{s}' is not bound; add --bind {s}=NUMBER, or the input's whole shape: --bind x=Nx3xNxN"
        for s in ("H", "N", "W")
    ]
    assert macs(compiled("IN-21", bind={"N": 1, "H": 32, "W": 32})) == 194_400
    assert macs(compiled("IN-21", shapes={"x": (1, 3, 32, 32)})) == 194_400


@pytest.mark.parametrize(("past", "count"), [(0, 256), (12, 1024)])
def test_in_22_a_size_may_be_zero(compiled: Compile, past: int, count: int) -> None:
    """2 heads x 4 x 8 x (past + 4) products; past and 4 new rows of 2 x 8 elements come in, and the query's 64."""
    trace = compiled("IN-22", bind={"past_len": past})
    assert macs(trace) == count == 2 * 4 * 8 * (past + 4)
    assert moved(trace, "io") == ((past + 4) * 16 + 64) * 2


def test_in_22_a_size_of_the_output_is_checked(refused: Refusal) -> None:
    message = refused("IN-22", bind={"past_len": 12, "total": 17})
    assert message == "the size 'total' is 17 by --bind total=17, but 'y' is [1, 2, 4, 16]"


def test_in_23_a_size_that_is_an_expression(compiled: Compile, refused: Refusal) -> None:
    """One addition for each of 2 x 1 x 9 elements."""
    (op,) = compiled("IN-23", bind={"past_len": 8, "seq": 1}).phase("frame").ops()
    assert op.vec == {"add": (18,)}
    assert refused("IN-23", bind={"past_len": 8, "seq": 1, "past_len + seq": 12}) == (
        "the size 'past_len + seq' is 12 by --bind past_len + seq=12, but 9 by --bind past_len=8, --bind seq=1"
    )
    assert "the size 'past_len + seq' is 12 by --bind s=1x2x1x12, but 9 by --bind past_len=8" in refused(
        "IN-23", bind={"past_len": 8, "seq": 1}, shapes={"s": (1, 2, 1, 12)}
    )
    assert refused("IN-23").splitlines() == [
        f"the size '{s}' is not bound; add --bind {s}=NUMBER, or the input's whole shape: --bind s=1x2xNxN"
        for s in ("past_len", "seq")
    ]


def test_in_26_a_layout_mixed_up_is_refused(compiled: Compile, refused: Refusal) -> None:
    assert macs(compiled("IN-26")) == 194_400
    assert refused("IN-26", shapes={"x": (1, 3, 32, 32)}) == (
        "--bind x=1x3x32x32: the input is [1, 32, 32, 3], which are the same sizes in another order (NCHW for NHWC?)"
    )
    other = refused("IN-26", shapes={"x": (1, 3, 64, 64)}).splitlines()
    assert "has 64 channels" in other[0]
    assert other[1] == "--bind x=1x3x64x64: the file says [1, 32, 32, 3]; the above may come from that"


def test_in_27_reshape(compiled: Compile, refused: Refusal) -> None:
    for name in ("IN-27_copy", "IN-27_lit"):
        trace = compiled(name)
        assert trace.header.report["views"] == {"Reshape": 1}
        assert (trace.bind("frame").traffic(), notes(trace)) == ({}, [])  # no note: the stated [2, 12], [0, 5] are ours
    assert refused("IN-27_bad") == "Reshape 'rs': the shape [0, -1] leaves more than one dimension open"


def test_in_51_our_own_shape_wins(compiled: Compile) -> None:
    trace = compiled("IN-51")
    assert notes(trace) == ["the file states 't' as [1, 16, 99, 99]; worked out and used is [1, 8, 30, 30]"]
    assert macs(trace) == 194_400


# --- versions


def test_in_28_both_forms_of_split(compiled: Compile) -> None:
    old, new = compiled("IN-28_o11"), compiled("IN-28_o18")
    assert old.phases == new.phases
    (op,) = new.phase("frame").ops()
    assert sorted(op.write.values()) == [(4,), (8,), (8,)]  # 2, 4 and 4 elements


def test_in_29_a_file_newer_than_we(compiled: Compile, refused: Refusal) -> None:
    from onnx import IR_VERSION
    from onnx.defs import onnx_opset_version

    assert refused("IN-29_opset") == (
        f"the model is written for opset 99 of ai.onnx; the newest known is {onnx_opset_version()}; "
        "update the onnx package, or export for an older opset"
    )
    assert notes(compiled("IN-29_ir")) == [
        f"the file format is IR 99; the newest known is {IR_VERSION}; the operators are known"
    ]


def test_in_52_old_forms(compiled: Compile) -> None:
    """256 sums, a bias of 4; 4 x 16 x 16 results of 4 x 8 x 8."""
    (add,) = compiled("IN-52_o6").phase("frame").ops()
    assert add.vec == {"add": (256,)}
    resized = compiled("IN-52_o9")
    assert (moved(resized, "io"), moved(resized, "io", True)) == (256 * 2, 1024 * 2)


# --- files


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("IN-53_lfs", "this is a Git LFS pointer, not the model; run: git lfs pull"),
        ("IN-53_zero", "the file is empty: it holds no graph; export or download it again"),
        ("IN-53_text", "not an ONNX file, or a damaged one: it is text; export or download it again"),
        ("IN-53_cut", "not an ONNX file, or a damaged one: it is cut off: the part at byte "),
    ],
)
def test_in_53_what_is_no_model(refused: Refusal, name: str, message: str) -> None:
    assert refused(name).startswith(message)
