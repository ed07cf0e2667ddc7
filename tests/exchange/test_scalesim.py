"""SCALE-Sim topologies: the counts of its own golden reports, and cycles of our array worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.errors import TraceError
from bpusim.exchange.scalesim import import_scalesim, read_topology
from bpusim.exchange.table import unique
from bpusim.hardware import CoreSpec
from bpusim.hardware.array import systolic_cycles
from bpusim.trace import load_trace, save_trace
from bpusim.trace.check import check_trace

Written = Callable[[str], Path]
CONV = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,\n"
ALEXNET = CONV + "Conv1,  224, 224,    11, 11,    3,      96,     4,"  # topologies/conv_nets/alexnet_part.csv
MNK = "Layer Name, M, N, K,\nTest 1, 256, 128, 256,"  # topologies/GEMM_mnk/test_mnk_input.csv

# scale-sim-v2, golden COMPUTE_REPORT.csv of test/golden_trace (32 x 32 weight stationary, computed bandwidth) and
# test/general/golden_trace_user_{is,os,ws} (32 x 32): total cycles, stall cycles, overall utilisation in percent.
GOLDEN = [
    (ALEXNET, "ws", 112283, 0, 91.68309650614964),
    (MNK, "is", 19984, 5777, 40.99279423538831),
    (MNK, "os", 52447, 42272, 15.619577859553454),
    (MNK, "ws", 52447, 41248, 15.619577859553454),
]


@pytest.mark.parametrize(("text", "dataflow", "total", "stalls", "utilisation"), GOLDEN)
def test_macs_are_those_of_the_golden_reports(
    text: str, dataflow: str, total: int, stalls: int, utilisation: float, written: Written, core: CoreSpec
) -> None:
    trace = import_scalesim(written(text), core)
    assert trace.bind("frame").macs == round(utilisation / 100 * total * 32 * 32)


@pytest.mark.parametrize(("text", "dataflow", "total", "stalls", "utilisation"), GOLDEN)
def test_the_product_of_a_layer_takes_the_cycles_of_the_golden_reports(
    text: str, dataflow: str, total: int, stalls: int, utilisation: float, written: Written
) -> None:
    (layer,) = read_topology(written(text))
    cycles = systolic_cycles(dataflow, layer.m, layer.k, layer.n, 32, 32)  # type: ignore[arg-type]
    assert cycles == total - stalls


def test_a_convolution_takes_the_cycles_of_our_array(written: Written, core: CoreSpec) -> None:
    # M = 55 x 55, K = 363, N = 96 on 128 x 128: 3 tiles of max(128 / 16, 3025) cycles, fill and drain 256 once; the
    # conversion of 290400 results at 64 a cycle, 4538 cycles, is hidden.
    (op,) = import_scalesim(written(ALEXNET), core).phase("frame").ops()
    assert (op.mac_cycles, op.cycles) == ((3 * 3025 + 256,), (3 * 3025 + 256,))
    assert op.issued == (3 * 3025 * 128 * 128,)
    # int8: every filter of 363 weights with a scale of 2 bytes; activations a byte each.
    assert op.read == {"io:ifmap": (224 * 224 * 3,), "w:Conv1": (96 * (363 + 2),)}
    assert op.write == {"io:ofmap": (55 * 55 * 96,)}


def test_a_gemm_adds_its_vector_work(written: Written, core: CoreSpec) -> None:
    # 2 x 1 tiles of 256 rows, at 4 cycles a row of 16-bit activations; 256 x 128 results at 64 a cycle behind it.
    (op,) = import_scalesim(written(MNK), core, activation="int16").phase("frame").ops()
    assert op.mac_cycles == (2 * 256 * 4 + 256,)
    assert op.cycles == (2 * 256 * 4 + 256 + 256 * 128 // 64,)
    assert op.read["io:ifmap"] == (256 * 256 * 2,)


def test_depthwise_filters_share_the_array(written: Written, core: CoreSpec) -> None:
    # SCALE-Sim: 32 layers of one channel, 9 MACs an output of 10 x 10. Here 14 of them (128 rows / 9) share a tile.
    (op,) = import_scalesim(written(CONV + "DP1, 12, 12, 3, 3, 32, 1, 1,"), core).phase("frame").ops()
    assert op.type == "DepthwiseConv"
    assert op.macs == (32 * 9 * 100,)
    assert op.mac_cycles == (math.ceil(32 / 14) * 100 + 256,)


@given(
    size=st.tuples(st.integers(1, 400), st.integers(1, 400)),
    window=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    rest=st.tuples(st.integers(1, 600), st.integers(1, 600), st.integers(1, 5)),
)
def test_macs_are_counted_as_scalesim_counts_them(
    size: tuple[int, int], window: tuple[int, int], rest: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    (h, w), (channels, filters, stride) = size, rest
    fh, fw = min(window[0], h), min(window[1], w)
    path = tmp_path_factory.getbasetemp() / "one.csv"
    path.write_text(f"{CONV}c, {h}, {w}, {fh}, {fw}, {channels}, {filters}, {stride},\n")
    high, wide = math.ceil((h - fh + stride) / stride), math.ceil((w - fw + stride) / stride)
    assert read_topology(path)[0].macs == high * wide * fh * fw * channels * filters


def test_layers_hand_over_through_memory(written: Written, core: CoreSpec) -> None:
    trace = import_scalesim(written(MNK + "\nTest 1, 256, 64, 128,\nlast,256,8,64"), core)
    first, second, third = trace.phase("frame").ops()
    assert [first.id, second.id, third.id] == ["Test 1", "Test 1#2", "last"]
    assert list(first.write) == ["spill:Test 1"]
    assert [b for b in second.read if b[0] != "w"] == ["spill:Test 1"]
    assert list(third.write) == ["io:ofmap"]
    assert [t.name for t in trace.tensors] == ["Test 1", "Test 1#2", "last"]


def test_memory_holds_the_largest_ifmap_with_its_ofmap(written: Written, core: CoreSpec) -> None:
    text = "Layer,M,N,K\na,10,20,30\nb,10,50,20\nc,10,5,50"
    assert import_scalesim(written(text), core).header.workspace == 10 * 20 + 10 * 50
    assert import_scalesim(written(text), core, activation="int16").header.workspace == 2 * (10 * 20 + 10 * 50)


def test_the_trace_is_good_and_survives_its_file(written: Written, core: CoreSpec, tmp_path: Path) -> None:
    trace = import_scalesim(written(ALEXNET + "\nDP2, 55, 55, 3, 3, 96, 1, 1,\nc3, 53, 53, 3, 3, 96, 256, 1,"), core)
    save_trace(trace, tmp_path / "t.trace")
    back = load_trace(tmp_path / "t.trace")
    assert (back.header, back.tensors, back.phases) == (trace.header, trace.tensors, trace.phases)
    assert check_trace(back).problems == []


@pytest.mark.parametrize(
    ("row", "k"),
    [
        ("a,9,9,3,3,1,1,2,#dw", 9),
        ("a,9,9,3,3,1,1,2", 9),
        ("\ta , 9, 9,3,3,1,1,2,,", 9),
        ("\n\na,9,9,3,3,1,1,2,\n\n", 9),
    ],
)
def test_rows_may_end_as_they_do_in_the_wild(row: str, k: int, written: Written) -> None:
    (layer,) = read_topology(written(CONV + row))
    assert (layer.name, layer.k, layer.m) == ("a", k, 16)


def test_further_columns_are_read_by_their_names(written: Written) -> None:
    head = CONV.strip()
    assert read_topology(written(head + "Stride width,\na,9,9,3,3,1,1,2,3,"))[0].m == 4 * 3
    assert read_topology(written(head + "Sparsity\na,9,9,3,3,1,1,2,2:2,"))[0].m == 16
    assert read_topology(written("Layer,M,N,K,Batch,\na,2,3,4,5,"))[0].macs == 2 * 3 * 4 * 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "given.csv: error: the file is empty; give it a header"),
        (CONV, "given.csv: error: the file has a header and no rows"),
        ("a,b\n1,2", "given.csv:1: error: not a SCALE-Sim topology: its header names neither"),
        (CONV + "c,9,9,3,3,1,1", "given.csv:2: error: 7 columns where the topology has 8 or more; give ifmap height"),
        (CONV + "c,9,9,3,3,1,1,0,", "given.csv:2: error: strides is '0'; give a whole number of 1 or more"),
        (CONV + "c,9,9,3,3,1,-4,1,", "given.csv:2: error: num filter is '-4'"),
        (CONV + "c,9,x,3,3,1,1,1,", "given.csv:2: error: ifmap width is 'x'"),
        (CONV + "c,9,9.5,3,3,1,1,1,", "given.csv:2: error: ifmap width is '9.5'"),
        (CONV + ",9,9,3,3,1,1,1,", "given.csv:2: error: a layer without a name"),
        (CONV + "c,2,9,3,3,1,1,1,", "given.csv:2: error: a filter height of 3 on an ifmap of 2"),
        (CONV + "c,9,9,3,3,1,1,1,4,", "given.csv:2: error: '4' is in no column that the header names"),
        (CONV.strip() + ", Target\nc,9,9,3,3,1,1,1, NPU", "given.csv:2: error: 'NPU' is in no column that"),
        (CONV.strip() + "Sparsity\nc,9,9,3,3,1,1,1,2:4,", "given.csv:2: error: sparsity is '2:4': the array"),
        (CONV.strip() + "Batch Size\nc,9,9,3,3,1,1,1,2,", "given.csv:2: error: batch size is '2'; give 1"),
        (MNK + '\n"c,1', "given.csv:3: error: not a row of CSV"),
    ],
)
def test_a_bad_topology_is_told_by_line(text: str, message: str, written: Written) -> None:
    with pytest.raises(TraceError) as caught:
        read_topology(written(text))
    (problem,) = caught.value.problems
    assert message in str(problem)


def test_all_bad_rows_are_told_at_once(written: Written) -> None:
    with pytest.raises(TraceError) as caught:
        read_topology(written(MNK + "\nb,0,1,1,\nc,1,x,1,\nd,1,1,1,"))
    assert [p.place.line for p in caught.value.problems if p.place] == [3, 4]


def test_what_cannot_be_counted_is_refused(written: Written, core: CoreSpec) -> None:
    with pytest.raises(TraceError, match=r"given\.csv:2: error: layer 'a' is larger than can be counted"):
        import_scalesim(written("Layer,M,N,K\na,9000000,9000000,9000000"), core)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "a", "a"], ["a", "a#2", "a#3"]),
        (["a", "a#2", "a"], ["a", "a#2", "a#3"]),
        (["a", "a", "a#2"], ["a", "a#3", "a#2"]),
    ],
)
def test_names_are_made_unique(names: list[str], expected: list[str]) -> None:
    assert unique(names) == expected
