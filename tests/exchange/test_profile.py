"""Measured profiles: an op takes its time, moves its bytes, and what cannot be is told by line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from bpusim.cores import HostCluster
from bpusim.dram import FlowChannel, Ideal
from bpusim.errors import TraceError
from bpusim.exchange.measured import measured_cycles
from bpusim.exchange.profile import import_profile
from bpusim.hardware import CoreSpec
from bpusim.hardware.presets import machine_preset
from bpusim.metrics import Recorder
from bpusim.system.roof import roof_of
from bpusim.trace import CpuWork, Op, load_trace, save_trace
from bpusim.trace.check import check_trace
from bpusim.trace.roofline import Position, Roof, op_rows

Written = Callable[[str], Path]
HEAD = "name,engine,us,bytes\n"
US = 10**6


def ops(path: Path, core: CoreSpec, roof: Roof, **options: int) -> list[Op]:
    trace, _ = import_profile(path, core, roof, **options)
    return list(trace.phase("frame").ops())


def test_cycles_are_the_time_less_what_the_machine_adds(written: Written, core: CoreSpec, roof: Roof) -> None:
    # At 1 GHz 120.5 us are 120500 cycles, of which the machine adds 1000 to every op.
    (op,) = ops(written(HEAD + "conv,mac,120.5,300000"), core, roof, hz=10**9)
    assert (op.unit, op.cycles, op.mac_cycles) == ("mac", (119500,), (119500,))
    assert op.read == {"spill:conv": (300000,)}
    assert op.tiles == (1,)


def test_the_clock_is_that_of_the_core_that_was_measured(written: Written, core: CoreSpec, roof: Roof) -> None:
    path = written(HEAD + "x,vector,11,0")
    assert ops(path, core, roof, hz=5 * 10**8)[0].cycles == (5000,)
    assert ops(path, core, roof)[0].cycles == (round(10e-6 * core.clock),)


def test_a_cpu_op_has_measured_cycles_of_the_cpu(written: Written, core: CoreSpec, roof: Roof) -> None:
    # 100 us less 5 us of entry and 50 ps for each of 20000 bytes, at 1 GHz.
    (op,) = ops(written(HEAD + "nms,cpu,100,20000"), core, roof)
    assert (op.unit, op.cycles, op.mac_cycles) == ("cpu", (94000,), ())


def test_bytes_are_split_where_columns_say_so(written: Written, core: CoreSpec, roof: Roof) -> None:
    text = "name,engine,us,bytes,weights,written,macs,type\nconv,mac,100,1000,600,300,5000,Conv\n"
    trace, warnings = import_profile(written(text), core, roof)
    (op,) = trace.phase("frame").ops()
    assert op.read == {"w:conv": (600,), "spill:conv": (100,)}
    assert op.write == {"spill:conv/out": (300,)}
    assert (op.macs, op.type) == ((5000,), "Conv")
    assert trace.resident_bytes == 600
    assert trace.header.workspace == 400
    assert warnings == []


def test_large_reads_are_cut_into_tiles(written: Written, core: CoreSpec, roof: Roof) -> None:
    assert ops(written(HEAD + "x,mac,9000,2500000"), core, roof)[0].tiles == (3,)  # of 1 MiB at most


@given(
    us=st.decimals("0", "100000", places=3),
    engine=st.sampled_from(["mac", "vector", "dma", "cpu"]),
    moved=st.integers(0, 10**8),
)
def test_alone_an_op_takes_its_time_or_that_of_its_bytes(
    us: object, engine: str, moved: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    machine = machine_preset("bpu80")
    roof = roof_of(machine)
    path = tmp_path_factory.getbasetemp() / "profile.csv"
    path.write_text(f"{HEAD}x,{engine},{us},{moved}\n")
    trace, _ = import_profile(path, machine.cores, roof)
    (row,) = op_rows(trace, Position.of(trace, "frame"), roof)
    ps = round(float(str(us)) * US)
    least = roof.cpu_entry + round(moved * roof.cpu_cache_per_byte) if engine == "cpu" else roof.op_overhead
    assert row.bytes == moved
    assert abs(row.compute_ps - max(ps, least)) <= 1000  # a cycle of the clock
    assert row.time_ps == max(row.compute_ps, row.dram_ps)


def test_the_host_takes_the_measured_time(written: Written) -> None:
    machine = machine_preset("bpu80")
    trace, _ = import_profile(written(HEAD + "nms,cpu,900,4000"), machine.cores, roof_of(machine))
    (work,) = trace.bind("frame").segments
    assert isinstance(work, CpuWork)
    env = simpy.Environment()
    port = FlowChannel(env, Ideal(10**10), Recorder()).port("cpu", 4096, 1000, 10**10)  # type: ignore[arg-type]
    host = HostCluster(env, machine.host, port, Recorder())
    assert abs(host.fallback_ps(work) + host.cache_ps(4000) - 900 * US) <= 10**12 // machine.host.clock


def test_what_cannot_take_its_time_is_a_warning_that_names_it(written: Written, core: CoreSpec, roof: Roof) -> None:
    _, warnings = import_profile(written(HEAD + "good,mac,10,1000\ncopy,dma,9,100000\nnop,vector,0.5,0"), core, roof)
    assert [w.partition("given.csv")[2] for w in warnings] == [
        ":3: op 'copy': 100000 bytes take 10 us at the 10.0 GB/s of this machine, not 9",
        ":4: op 'nop': the start of an op alone take 1 us on this machine, not 0.5",
    ]


def test_rows_that_overlapped_are_told(written: Written, core: CoreSpec, roof: Roof) -> None:
    text = "name,engine,us,bytes,start\na,mac,10,0,0\nb,dma,10,0,7\nc,mac,5,0,17\n"
    _, (warning,) = import_profile(written(text), core, roof)
    assert warning.endswith(
        ":3: 1 rows begin before the one above is over, 3 us in all: ops run one after another here"
    )


def test_macs_on_the_cpu_are_part_of_its_time(roof: Roof) -> None:
    # 1000 MACs at 2 cycles of 1 ns are 2 us; 5 us of entry: 93 us are left.
    assert measured_cycles(100 * US, 0, 1000, roof, 10**9, on_cpu=True) == (93000, 7 * US)
    assert measured_cycles(US, 0, 1000, replace(roof, cpu_hz=2 * 10**9), 10**9, on_cpu=True)[0] == 0


def test_the_trace_is_good_and_survives_its_file(written: Written, core: CoreSpec, roof: Roof, tmp_path: Path) -> None:
    text = "name,engine,us,bytes,weights\na,mac,10,100,50\na,cpu,20,10,0\n"
    trace, _ = import_profile(written(text), core, roof)
    save_trace(trace, tmp_path / "t.trace")
    back = load_trace(tmp_path / "t.trace")
    assert (back.header, back.tensors, back.phases) == (trace.header, trace.tensors, trace.phases)
    assert check_trace(back).problems == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,engine,us\na,mac,1", "given.csv:1: error: the column 'bytes' is missing; give name, engine, us, bytes"),
        ("name,engine,us,bytes,byte\na,mac,1,1,1", "given.csv:1: error: unknown column 'byte'; did you mean 'bytes'?"),
        ("name,engine,us,bytes,us\na,mac,1,1,1", "given.csv:1: error: the column 'us' is there twice"),
        (HEAD + "a,mac,1", "given.csv:2: error: 3 columns under a header of 4"),
        (HEAD + ",mac,1,1", "given.csv:2: error: a row without a name"),
        (HEAD + "a,gpu,1,1", "given.csv:2: error: unknown engine 'gpu'; "),
        (HEAD + "a,vektor,1,1", "given.csv:2: error: unknown engine 'vektor'; did you mean 'vector'?"),
        (HEAD + "a,mac,-1,1", "given.csv:2: error: us is '-1'; give microseconds, 0 or more"),
        (HEAD + "a,mac,fast,1", "given.csv:2: error: us is 'fast'"),
        (HEAD + "a,mac,nan,1", "given.csv:2: error: us is 'nan'"),
        (HEAD + "a,mac,,1", "given.csv:2: error: us is empty"),
        (HEAD + "a,mac,1,-1", "given.csv:2: error: bytes is '-1'; give a whole number of 0 or more"),
        (HEAD + "a,mac,1,1.5", "given.csv:2: error: bytes is '1.5'"),
        (HEAD + "\n\na,mac,1,1e99", "given.csv:4: error: bytes is '1e99'"),
        ("name,engine,us,bytes,weights\na,mac,1,5,6", "given.csv:2: error: 6 bytes of weights and 0 written are more"),
        ("name,engine,us,bytes,macs\na,dma,1,5,6", "given.csv:2: error: 6 MACs on engine 'dma'"),
        ("name,engine,us,bytes,start\na,mac,1,5,6\nb,mac,1,5,5", "given.csv:3: error: row 'b' starts before row 'a'"),
    ],
)
def test_a_bad_profile_is_told_by_line(text: str, message: str, written: Written, core: CoreSpec, roof: Roof) -> None:
    with pytest.raises(TraceError) as caught:
        import_profile(written(text), core, roof)
    (problem,) = caught.value.problems
    assert message in str(problem)


def test_a_file_that_is_no_text_is_told(tmp_path: Path, core: CoreSpec, roof: Roof) -> None:
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="not a CSV file: it is not UTF-8 text"):
        import_profile(tmp_path / "x.csv", core, roof)
    with pytest.raises(TraceError, match="cannot read the file: No such file"):
        import_profile(tmp_path / "y.csv", core, roof)
