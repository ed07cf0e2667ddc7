"""Chakra execution traces: the bytes of the published schema, a round trip that loses nothing, foreign traces."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from bpusim.errors import TraceError
from bpusim.exchange.chakra_read import import_chakra
from bpusim.exchange.chakra_schema import NODE_TYPES, attribute, messages, read_messages, value_of, write_messages
from bpusim.exchange.chakra_write import export_chakra
from bpusim.hardware import CoreSpec
from bpusim.trace import CallProgram, Header, Op, Phase, Repeat, Tensor, Trace, load_trace, save_trace
from bpusim.trace.check import check_trace
from bpusim.trace.roofline import Position, Roof, op_rows, totals

TRACES = Path(__file__).parents[2] / "traces"
POSITIONS = [
    ("qwen2.5-3b-int4-fallback.trace", "decode", 512),
    ("qwen2.5-7b-int4.trace", "prefill", 100),
    ("resnet50-992.trace", "frame", 0),
    ("wake_word.trace", "frame", 0),
]


def node(id_: int, kind: str, micros: int = 0, after: tuple[int, ...] = (), **attrs: Any) -> Any:
    """A node as another tool would write it."""
    return messages().node(
        id=id_,
        name=f"n{id_}",
        type=NODE_TYPES.index(kind),
        duration_micros=micros,
        data_deps=after,
        attr=[attribute(k, v, "int64" if k == "num_ops" else "uint64") for k, v in attrs.items()],
    )


def foreign(path: Path, *nodes: Any) -> Path:
    write_messages(path, [messages().metadata(version="0.0.4"), *nodes])
    return path


@pytest.fixture
def et(tmp_path: Path) -> Path:
    return tmp_path / "x.et"


# The schema


def test_a_node_has_the_bytes_of_the_schema() -> None:
    # Field numbers of et_def.proto: id 1, name 2, type 3, ctrl_deps 4, data_deps 5, duration_micros 7, attr 10; tag =
    # number * 8 + wire type. Attributes: name 1, int64_val 9, uint64_val 13, bool_val 27, string_val 29.
    made = messages().node(id=1, name="ab", type=4, ctrl_deps=[2], data_deps=[3, 4], duration_micros=300)
    made.attr.append(attribute("n", 5, "int64"))
    made.attr.append(attribute("t", 6))
    made.attr.append(attribute("c", True))
    made.attr.append(attribute("s", "x"))
    expected = (
        b"\x08\x01" b"\x12\x02ab" b"\x18\x04" b"\x22\x01\x02" b"\x2a\x02\x03\x04" b"\x38\xac\x02"
        b"\x52\x05\x0a\x01n\x48\x05" b"\x52\x05\x0a\x01t\x68\x06" b"\x52\x06\x0a\x01c\xd8\x01\x01"
        b"\x52\x07\x0a\x01s\xea\x01\x01x"
    )  # fmt: skip
    assert made.SerializeToString() == expected


def test_each_message_stands_behind_its_length(et: Path) -> None:
    long = node(1, "COMP_NODE", text="x" * 300)
    write_messages(et, [messages().metadata(version="1"), long])
    size = len(long.SerializeToString())
    assert et.read_bytes()[:6] == b"\x03\x0a\x011" + bytes([size & 0x7F | 0x80, size >> 7])
    metadata, (back,) = read_messages(et)
    assert (metadata.version, back) == ("1", long)


def test_a_gzipped_file_is_read(et: Path) -> None:
    foreign(et, node(1, "COMP_NODE"))
    plain = read_messages(et)
    et.write_bytes(gzip.compress(et.read_bytes()))
    assert read_messages(et) == plain


def test_fields_of_later_schemas_are_left_alone(et: Path) -> None:
    extra = node(1, "COMP_NODE").SerializeToString() + b"\x5a\x02\x08\x01"  # 11: storage of schema 0.0.5
    et.write_bytes(b"\x00" + bytes([len(extra)]) + extra)
    assert read_messages(et)[1][0].id == 1


# There and back


@pytest.mark.parametrize(("name", "phase", "kv"), POSITIONS)
def test_a_round_trip_loses_nothing(
    name: str, phase: str, kv: int, et: Path, core: CoreSpec, roof: Roof, tmp_path: Path
) -> None:
    trace = load_trace(TRACES / name)
    at = Position.of(trace, phase, kv)
    export_chakra(trace, at, roof, et)
    back, warnings = import_chakra(et, core, roof)
    assert warnings == []
    there = trace.bind(phase, kv=kv, tokens=at.tokens).segments
    here = back.bind("frame").segments
    assert len(there) == len(here)
    for a, b in zip(there, here, strict=True):
        if isinstance(a, CallProgram) and isinstance(b, CallProgram):
            assert a.fields[:4].tolist() == b.fields[:4].tolist()  # cycles, MAC cycles, MACs, issued MACs of every op
            assert a.fields[5:].tolist() == b.fields[5:].tolist()  # bytes of every op by kind
            assert a.items.bytes.tolist() == b.items.bytes.tolist()  # tiles, and the order of the DMA
            assert [o.type for o in a.ops] == [o.type for o in b.ops]
        else:
            assert not isinstance(a, CallProgram)
            assert not isinstance(b, CallProgram)
            assert (a.elements, a.moved, a.tensors, a.cycles) == (b.elements, b.moved, b.tensors, b.cycles)
    rows = op_rows(back, Position.of(back, "frame"), roof)
    assert totals(rows) == totals(op_rows(trace, at, roof))
    assert back.header.target == trace.header.target
    assert back.header.workspace == trace.header.workspace
    save_trace(back, tmp_path / "back.trace")
    assert check_trace(load_trace(tmp_path / "back.trace")).problems == []


@pytest.mark.parametrize(("name", "phase", "kv"), POSITIONS)
def test_what_came_back_exports_to_the_same_nodes(
    name: str, phase: str, kv: int, et: Path, core: CoreSpec, roof: Roof, tmp_path: Path
) -> None:
    trace = load_trace(TRACES / name)
    export_chakra(trace, Position.of(trace, phase, kv), roof, et)
    back, _ = import_chakra(et, core, roof)
    export_chakra(back, Position.of(back, "frame"), roof, tmp_path / "y.et")
    assert read_messages(tmp_path / "y.et")[1] == read_messages(et)[1]


def test_weights_in_memory_are_those_that_the_phase_reads(et: Path, core: CoreSpec, roof: Roof) -> None:
    trace = load_trace(TRACES / "resnet50-992.trace")
    export_chakra(trace, Position.of(trace, "frame"), roof, et)
    assert import_chakra(et, core, roof)[0].resident_bytes == trace.resident_bytes


def test_nodes_are_loads_the_op_and_stores_with_their_dependencies(et: Path, roof: Roof) -> None:
    body = (
        Op("a", "MatMul", "mac", macs=(50,), cycles=(3000,), read={"w:t.{i}": (40000,)}, write={"spill:x": (8,)}),
        Op("c", "Sigmoid", "cpu", vec={"exp": (10,)}, read={"spill:x": (8,)}, write={"spill:y": (8,)}, tensors=2),
        Op("b", "Add", "vector", cycles=(5,), read={"spill:y": (8,)}),
    )  # fmt: skip
    trace = Trace(
        Header("m", {}),
        (Tensor("t.{i}", 40000, 2),),
        {"frame": Phase("frame", 0, ("1",), (Repeat(2, "layers", body),))},
    )
    assert export_chakra(trace, Position.of(trace, "frame"), roof, et) == 2 * 8
    nodes = read_messages(et)[1]
    kinds = {"MEM_LOAD_NODE": "load", "COMP_NODE": "op", "MEM_STORE_NODE": "store"}
    shown = [(n.id, kinds[NODE_TYPES[n.type]], n.name, list(n.data_deps), list(n.ctrl_deps)) for n in nodes]
    assert shown[:9] == [
        (1, "load", "a[0] reads w:t.0", [], []),
        (2, "op", "a[0]", [1], []),
        (3, "store", "a[0] writes spill:x", [2], []),
        (4, "load", "c[0] reads spill:x", [3], [2]),  # the CPU waits for the call
        (5, "op", "c[0]", [4], [2]),
        (6, "store", "c[0] writes spill:y", [5], []),
        (7, "load", "b[0] reads spill:y", [6], [6]),
        (8, "op", "b[0]", [7], [5]),
        (9, "load", "a[1] reads w:t.1", [], [6]),  # its call begins behind the CPU's result
    ]
    attrs = {a.name: value_of(a) for a in nodes[1].attr}
    assert (attrs["num_ops"], attrs["is_cpu_op"], attrs["bpusim_cycles"]) == (100, False, 3000)
    assert nodes[1].duration_micros == 4  # 1 us to start and 3 us of cycles
    assert nodes[0].duration_micros == 4  # 40000 bytes at 10 a ns
    assert {a.name: value_of(a) for a in nodes[0].attr}["tensor_size"] == 40000
    assert nodes[4].duration_micros == 6  # 5 us of entry and 10 x 50 cycles, rounded up


def test_costs_that_grow_are_exported_at_their_position(et: Path, roof: Roof) -> None:
    trace = load_trace(TRACES / "qwen2.5-0.5b-int4.trace")
    sizes = []
    for kv in (0, 1000):
        export_chakra(trace, Position.of(trace, "decode", kv), roof, et)
        attrs = [{a.name: value_of(a) for a in n.attr} for n in read_messages(et)[1]]
        sizes.append(sum(a["tensor_size"] for a in attrs))
    whole = [sum(trace.bind("decode", kv=kv).traffic().values()) for kv in (0, 1000)]
    assert sizes == whole


# Traces of others


def test_a_foreign_trace_becomes_ops_in_order(et: Path, core: CoreSpec, roof: Roof) -> None:
    foreign(
        et,
        node(7, "METADATA_NODE"),
        node(3, "COMP_NODE", 21, (1,), is_cpu_op=False, num_ops=1000),
        node(1, "MEM_LOAD_NODE", 5, tensor_size=4000),
        node(2, "MEM_STORE_NODE", 5, (3,), tensor_size=300),
        node(4, "MEM_LOAD_NODE", 5, (2,), tensor_size=200),
        node(5, "COMP_NODE", 11, (4,), is_cpu_op=False),
        node(6, "COMP_NODE", 105, (5,)),
        node(8, "MEM_LOAD_NODE", 5, tensor_size=77),
    )
    trace, warnings = import_chakra(et, core, roof)
    array, vector, cpu, copy = trace.phase("frame").ops()
    assert warnings == []
    assert (array.unit, array.macs, array.cycles) == ("mac", (500,), (20000,))  # 21 us less 1 us, at 1 GHz
    assert (array.read, array.write) == ({"spill:n1": (4000,)}, {"spill:n2": (300,)})
    assert (vector.unit, vector.cycles, vector.read) == ("vector", (10000,), {"spill:n2": (200,)})
    assert (cpu.unit, cpu.cycles) == ("cpu", (100000,))  # on the CPU where nothing is said, as Chakra's reader has it
    assert (copy.unit, copy.read, copy.cycles) == ("dma", {"spill:n8": (77,)}, ())
    assert check_trace(trace).problems == []


def test_an_op_without_a_duration_runs_at_the_peak_and_is_told(et: Path, core: CoreSpec, roof: Roof) -> None:
    foreign(et, node(1, "COMP_NODE", is_cpu_op=False, num_ops=2 * 128 * 128 * 7 + 2, tensor_size=50))
    trace, (warning,) = import_chakra(et, core, roof)
    (op,) = trace.phase("frame").ops()
    assert (op.cycles, op.read) == ((8,), {"spill:n1": (50,)})
    assert warning.endswith("node 1 'n1' has no duration: its 114689 MACs are done at the peak of this machine")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node(1, "COMM_COLL_NODE")], "node 1 'n1' is a COMM_COLL_NODE: this is a machine of one device"),
        ([node(1, "INVALID_NODE")], "node 1 'n1' is a INVALID_NODE"),
        ([node(1, "COMP_NODE"), node(1, "COMP_NODE")], "two nodes have the same id"),
        ([node(1, "COMP_NODE", 0, (9,))], "node 1 'n1' depends on node 9, which is not there"),
        ([node(1, "COMP_NODE", 0, (2,)), node(2, "COMP_NODE", 0, (1,))], "go in a circle"),
        ([node(1, "MEM_LOAD_NODE", tensor_size="much")], "node 1 'n1': tensor_size is 'much'; give a whole number"),
        ([node(1, "MEM_LOAD_NODE", tensor_size=2**60)], "node 1 'n1': tensor_size is 1152921504606846976"),
        ([], "the execution trace has no node"),
    ],
)
def test_what_is_not_of_one_device_is_refused(
    nodes: list[Any], message: str, et: Path, core: CoreSpec, roof: Roof
) -> None:
    with pytest.raises(TraceError) as caught:
        import_chakra(foreign(et, *nodes), core, roof)
    assert message in str(caught.value)
    assert "x.et: error: " in str(caught.value)


def test_a_phase_without_ops_is_not_exported(et: Path, roof: Roof) -> None:
    """What it would be written as could not be read."""
    empty = Trace(Header(model="m", target={}), (), {"frame": Phase("frame", 0, ("1",), ())})
    with pytest.raises(TraceError, match="phase 'frame' of 'm' has no op to export; export another"):
        export_chakra(empty, Position.of(empty, "frame", 0, None, 1), roof, et)
    assert not et.exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x05\x0a", "message 1 at byte 0 has 5 bytes, and the file 1 more"),
        (b"\x00\xff\xff\xff\xff\xff\xff", "message 2 at byte 1 has no length"),
        (b"\x00\x02\x0a\x7f", "message 2 is no node of a Chakra execution trace"),
        (b"\x1f\x8b\x00", "cannot read the execution trace"),
        (b"", "the execution trace has no node"),
    ],
)
def test_a_damaged_file_is_told(data: bytes, message: str, et: Path) -> None:
    et.write_bytes(data)
    with pytest.raises(TraceError, match=message):
        read_messages(et)
