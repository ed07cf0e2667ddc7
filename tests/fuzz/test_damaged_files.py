"""Damaged inputs: whatever is in a file, the answer is a result or one of our errors, never another exception."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from input_cases import CASES, write_case

from bpusim.compiler import Options, compile_llm_config, compile_model
from bpusim.errors import BpusimError
from bpusim.exchange import export_chakra, import_chakra, import_profile, import_scalesim
from bpusim.hardware import machine_preset
from bpusim.scenario import load_scenario
from bpusim.system.roof import roof_of
from bpusim.trace import load_trace, save_trace
from bpusim.trace.roofline import Position

pytestmark = pytest.mark.fuzz

ROOT = Path(__file__).resolve().parents[2]
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
EXAMPLES = int(os.environ.get("BPUSIM_FUZZ", "300"))
many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
edits = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3), st.binary(min_size=1, max_size=6)),
    min_size=1,
    max_size=4,
)


def outcome(call: Callable[[], object]) -> object:
    """What ``call`` gives, or the error of ours that it raises."""
    try:
        return call()
    except BpusimError as e:
        return e


def damaged(data: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    """``data`` with bytes overwritten, inserted, deleted, or the end cut off."""
    for where, how, patch in changes:
        at = int(where * len(data))
        if how == 0:
            data = data[:at] + patch + data[at + len(patch) :]
        elif how == 1:
            data = data[:at] + patch + data[at:]
        elif how == 2:
            data = data[:at] + data[at + len(patch) :]
        else:
            data = data[: at + 1]
    return data


@many
@given(edits)
def test_a_damaged_trace_is_refused_or_read(tmp_path: Path, changes: list[tuple[float, int, bytes]]) -> None:
    file = tmp_path / "x.trace"
    file.write_bytes(damaged((ROOT / "traces" / "qwen2.5-0.5b-int4.trace").read_bytes(), changes))
    got = outcome(lambda: load_trace(file))
    assert str(file) in str(got) if isinstance(got, BpusimError) else got.phases


@many
@given(edits)
def test_a_damaged_scenario_is_refused_or_read(tmp_path: Path, changes: list[tuple[float, int, bytes]]) -> None:
    (tmp_path / "scenarios").mkdir(exist_ok=True)
    (tmp_path / "traces").mkdir(exist_ok=True)
    for name in ("qwen2.5-1.5b-int4.trace", "resnet50-992.trace"):
        (tmp_path / "traces" / name).touch()
    file = tmp_path / "scenarios" / "x.yaml"
    file.write_bytes(damaged((ROOT / "scenarios" / "hetero.yaml").read_bytes(), changes))
    got = outcome(lambda: load_scenario(file))
    assert got.problems if isinstance(got, BpusimError) else got.streams


@many
@given(edits)
def test_a_damaged_model_is_refused_or_compiled(tmp_path: Path, changes: list[tuple[float, int, bytes]]) -> None:
    file = tmp_path / "x.onnx"
    file.write_bytes(damaged((LIGHT / "light_squeezenet.onnx").read_bytes(), changes))
    got = outcome(lambda: compile_model(file, machine_preset("bpu80").cores, Options(quant="int8")))
    assert got.problems if isinstance(got, BpusimError) else got.phases


@many
@given(st.sampled_from(sorted(CASES.keys() - {"IN-55"})), edits)
def test_a_damaged_case_is_refused_or_compiled(
    tmp_path: Path, name: str, changes: list[tuple[float, int, bytes]]
) -> None:
    """Inner graphs, external data, sparse and string tensors, and all else that the input cases hold."""
    file = write_case(name, tmp_path)
    file.write_bytes(damaged(file.read_bytes(), changes))
    assume = {"sel": "then", "lp": "3", "nz": "4"}
    for options in (Options(), Options(assume={k: v for k, v in assume.items() if k.encode() in file.read_bytes()})):
        got = outcome(lambda options=options: compile_model(file, machine_preset("bpu80").cores, options))  # type: ignore[misc]
        assert got.problems if isinstance(got, BpusimError) else got.phases


@many
@given(edits)
def test_a_damaged_configuration_is_refused_or_compiled(
    tmp_path: Path, changes: list[tuple[float, int, bytes]]
) -> None:
    file = tmp_path / "config.json"
    text = (ROOT / "traces" / "models" / "qwen2.5-7b.config.json").read_bytes().replace(b'_layers": 28', b'_layers": 2')
    file.write_bytes(damaged(text, changes))
    got = outcome(lambda: compile_llm_config(file, machine_preset("bpu80").cores, Options(quant="int4", context=64)))
    assert got.problems if isinstance(got, BpusimError) else got.phases


_TOPOLOGY = b"Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,\n"
_IMPORTS: dict[str, bytes] = {
    "scalesim": _TOPOLOGY + b"Conv1, 224, 224, 11, 11, 3, 96, 4,\nDP2, 55, 55, 3, 3, 96, 1, 1,\n",
    "profile": b"name,engine,us,bytes,weights,start\na,mac,12.5,1000,30,0\nb,cpu,100,20,0,13\nc,dma,1,9,0,113\n",
    "chakra": b"",
}


@pytest.mark.parametrize("kind", list(_IMPORTS))
@many
@given(edits)
def test_a_damaged_import_is_refused_or_read(
    kind: str, tmp_path: Path, changes: list[tuple[float, int, bytes]]
) -> None:
    machine = machine_preset("bpu80")
    core, roof = machine.cores, roof_of(machine)
    file, out = tmp_path / "given", tmp_path / "x.trace"
    data = _IMPORTS[kind]
    if kind == "chakra":
        trace = load_trace(ROOT / "traces" / "wake_word.trace")
        export_chakra(trace, Position.of(trace, "frame"), roof, file)
        data = file.read_bytes()
    file.write_bytes(damaged(data, changes))

    def read() -> object:
        if kind == "scalesim":
            trace = import_scalesim(file, core)
        else:
            trace, _ = (import_profile if kind == "profile" else import_chakra)(file, core, roof)
        save_trace(trace, out)
        return load_trace(out)  # what was made can be read

    got = outcome(read)
    assert str(file) in str(got) if isinstance(got, BpusimError) else got.phases  # type: ignore[attr-defined]
