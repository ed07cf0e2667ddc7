"""Trace files: what is written is read again, and what is damaged is refused with its place."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bpusim.errors import TraceError
from bpusim.trace import Header, Op, Phase, Tensor, Trace, dump_trace, load_trace, save_trace

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.trace"))
AGAIN = "compile the model again"

# Lines of the file below, from 1: header, two tensors, a phase with an op and a repeat of one op, the ends.
LINES: list[dict[str, Any]] = [
    {"bpusim_trace": 1, "model": "m", "target": {}, "cores": "any", "kv": "valid"},
    {"tensor": "table", "bytes": 100},
    {"tensor": "proj.{i}", "bytes": 300, "count": 2},
    {"phase": "decode", "tokens": 1, "basis": ["1", "kv"]},
    {"op": "embed", "type": "Gather", "unit": "dma", "read": {"w:table": [4]}},
    {"repeat": 2, "name": "layers", "carry": [8], "carry_tensors": 1},
    {"op": "project", "type": "MatMul", "unit": "mac", "cycles": [5, 1], "read": {"w:proj.{i}": [300]}},
    {"end": "repeat"},
    {"end": "phase"},
    {"end": "trace", "lines": 10},
]
HEADER, TENSOR, PHASE, OP, REPEAT, BODY = 1, 2, 4, 5, 6, 7
Edit = Callable[[list[dict[str, Any]]], None]


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def message(path: Path) -> str:
    """The one line that the reader says of a damaged file, without the folder."""
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    return text.removeprefix(f"{path.parent}/")


def with_keys(tmp_path: Path, line: int, /, **keys: Any) -> Path:
    """The file with some keys of a line (from 1) set; None removes a key."""
    lines = [dict(row) for row in LINES]
    for key, value in keys.items():
        if value is None:
            del lines[line - 1][key]
        else:
            lines[line - 1][key] = value
    return write(tmp_path / "m.trace", lines)


def with_row(tmp_path: Path, line: int, row: dict[str, Any]) -> Path:
    lines = [dict(r) for r in LINES]
    lines[line - 1] = row
    return write(tmp_path / "m.trace", lines)


def with_text(tmp_path: Path, line: int, text: str) -> Path:
    rows = [json.dumps(row) for row in LINES]
    rows[line - 1] = text
    path = tmp_path / "m.trace"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_the_undamaged_file_loads(tmp_path: Path) -> None:
    trace = load_trace(write(tmp_path / "m.trace", LINES))
    assert trace.header == Header("m", {})
    assert trace.tensors == (Tensor("table", 100), Tensor("proj.{i}", 300, 2))
    embed, layers = trace.phases["decode"].items
    assert embed == Op("embed", "Gather", "dma", read={"w:table": (4,)})
    assert (layers.count, layers.name, layers.carry, layers.carry_tensors) == (2, "layers", (8,), 1)
    assert layers.body == (Op("project", "MatMul", "mac", cycles=(5, 1), read={"w:proj.{i}": (300,)}),)


def test_the_file_is_kept_for_messages(tmp_path: Path) -> None:
    path = write(tmp_path / "m.trace", LINES)
    assert load_trace(path).file == str(path)


def test_a_last_line_without_its_newline_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "m.trace", LINES)
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert load_trace(path).header.model == "m"


# Round trips


def test_what_is_saved_is_loaded_equal(small: Trace, tmp_path: Path) -> None:
    save_trace(small, tmp_path / "s.trace")
    loaded = load_trace(tmp_path / "s.trace")
    assert (loaded.header, loaded.tensors, loaded.phases) == (small.header, small.tensors, small.phases)


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name)
def test_a_committed_trace_is_dumped_as_it_was_read(path: Path) -> None:
    assert "".join(line + "\n" for line in dump_trace(load_trace(path))) == path.read_text(encoding="utf-8")


def test_a_header_that_is_not_the_plain_one_survives(tmp_path: Path) -> None:
    header = Header(
        "m",
        {"mac.rows": 8, "toolchain": "1.0"},
        source={"file": "m.onnx"},
        command="bpusim compile m.onnx",
        cores=(0, 1),
        quant={"weights": "int4"},
        context=8,
        chunk=4,
        kv="capacity",
        kv_bytes_per_token=2,
        layers=1,
        vocab=3,
        workspace=5,
        report={"note": ["é", 1.5]},
    )
    op = Op("a", "A", "vector", vec={"add": (1,)}, scratch=(2,), tensors=4, tiles=(2,), write={"spill:x": (3,)})
    trace = Trace(header, (), {"frame": Phase("frame", 0, ("1",), (op,))})
    save_trace(trace, tmp_path / "m.trace")
    loaded = load_trace(tmp_path / "m.trace")
    assert (loaded.header, loaded.phases) == (header, trace.phases)


def test_the_last_line_counts_all_lines(small: Trace) -> None:
    lines = list(dump_trace(small))
    assert json.loads(lines[-1]) == {"end": "trace", "lines": len(lines)}


def test_saving_replaces_a_file_and_leaves_nothing_else(small: Trace, tmp_path: Path) -> None:
    path = tmp_path / "s.trace"
    path.write_text("old")
    save_trace(small, path)
    assert [p.name for p in tmp_path.iterdir()] == ["s.trace"]
    assert load_trace(path).header == small.header
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_failed_save_keeps_the_old_file_and_leaves_nothing_else(small: Trace, tmp_path: Path) -> None:
    path = tmp_path / "s.trace"
    path.write_text("old")
    bad = Trace(Header("m", {"mac.rows": object()}), (), small.phases)  # JSON has no such value
    with pytest.raises(TypeError):
        save_trace(bad, path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["s.trace"]


# Files that are not a whole trace


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert message(tmp_path / "m.trace") == "m.trace: error: cannot read the trace: No such file or directory"


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "m.trace").write_bytes(b"\xff\xfe\x00")
    assert message(tmp_path / "m.trace") == "m.trace: error: not a trace: the file is not UTF-8 text"


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "m.trace").write_bytes(b"")
    assert message(tmp_path / "m.trace") == (
        "m.trace: error: the trace ends here without its last line: it was cut short; copy or compile it again"
    )


def test_a_file_cut_within_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "m.trace", LINES[:OP])
    path.write_bytes(path.read_bytes()[:-5])
    assert message(path) == "m.trace:5: error: the trace is cut short in this line; copy or compile it again"


@pytest.mark.parametrize("kept", range(1, len(LINES)))
def test_a_file_cut_between_two_lines(tmp_path: Path, kept: int) -> None:
    assert message(write(tmp_path / "m.trace", LINES[:kept])) == (
        f"m.trace:{kept}: error: the trace ends here without its last line: it was cut short; copy or compile it again"
    )


def test_an_op_that_was_lost(tmp_path: Path) -> None:
    assert message(write(tmp_path / "m.trace", LINES[: OP - 1] + LINES[OP:])) == (
        f"m.trace:9: error: this is line 9, but the trace had 10: lines are missing or added; {AGAIN}"
    )


def test_an_op_that_was_added(tmp_path: Path) -> None:
    assert message(write(tmp_path / "m.trace", LINES[:OP] + LINES[OP - 1 :])) == (
        f"m.trace:11: error: this is line 11, but the trace had 10: lines are missing or added; {AGAIN}"
    )


def test_text_after_the_last_line(tmp_path: Path) -> None:
    assert message(write(tmp_path / "m.trace", [*LINES, {}])) == (
        f"m.trace:11: error: there is text after the last line; {AGAIN}"
    )


def test_an_unknown_key_of_the_last_line(tmp_path: Path) -> None:
    assert message(with_keys(tmp_path, len(LINES), line=10)) == (
        "m.trace:10: error: unknown key 'line'; did you mean 'lines'?"
    )


def test_a_trace_without_a_phase(tmp_path: Path) -> None:
    path = write(tmp_path / "m.trace", [LINES[0], {"end": "trace", "lines": 2}])
    assert message(path) == f"m.trace:2: error: the trace has no phase; {AGAIN}"


# Lines that are not what they should be


@pytest.mark.parametrize(
    ("line", "text", "what"),
    [
        (HEADER, "hello", "not a trace: the first line is not JSON"),
        (OP, '{"op": ', "not a line of JSON"),
        (OP, "", "not a line of JSON"),
        (OP, "[" * 100_000, "not a line of JSON"),
        (OP, "[1]", "not a JSON object"),
        (OP, '{"op":"a","type":"A","unit":"mac","cycles":[NaN]}', "'NaN' is not a number here"),
        (OP, '{"op":"a","type":"A","unit":"mac","cycles":[-Infinity]}', "'-Infinity' is not a number here"),
    ],
    ids=["header", "cut", "empty", "deep", "list", "nan", "infinity"],
)
def test_a_line_that_is_no_object(tmp_path: Path, line: int, text: str, what: str) -> None:
    assert message(with_text(tmp_path, line, text)) == f"m.trace:{line}: error: {what}; {AGAIN}"


@pytest.mark.parametrize(
    ("line", "row", "what"),
    [
        (
            TENSOR,
            {"op": "a"},
            "a line that begins with 'op' where a tensor, a phase, or the end of the trace should be",
        ),
        (TENSOR, {}, "a line that begins with '' where a tensor, a phase, or the end of the trace should be"),
        (
            OP,
            {"phase": "b"},
            "a line that begins with 'phase' where an op, a repeat, or the end of the phase should be",
        ),
        (
            OP,
            {"end": "repeat"},
            "a line that begins with 'end' where an op, a repeat, or the end of the phase should be",
        ),
        (BODY, {"repeat": 2}, "a line that begins with 'repeat' where an op or the end of the repeat should be"),
        (BODY, {"end": "phase"}, "a line that begins with 'end' where an op or the end of the repeat should be"),
    ],
    ids=["op-at-top", "empty-at-top", "phase-in-phase", "end-of-no-repeat", "nested-repeat", "open-repeat"],
)
def test_a_line_out_of_place(tmp_path: Path, line: int, row: dict[str, Any], what: str) -> None:
    assert message(with_row(tmp_path, line, row)) == f"m.trace:{line}: error: {what}; {AGAIN}"


@pytest.mark.parametrize(
    ("line", "key", "hint"),
    [
        (HEADER, "contxt", "did you mean 'context'?"),
        (TENSOR, "byte", "did you mean 'bytes'?"),
        (PHASE, "token", "did you mean 'tokens'?"),
        (OP, "cycle", "did you mean 'cycles'?"),
        (REPEAT, "carries", "did you mean 'carry'?"),
    ],
    ids=["header", "tensor", "phase", "op", "repeat"],
)
def test_an_unknown_key_names_the_nearest_known_one(tmp_path: Path, line: int, key: str, hint: str) -> None:
    assert message(with_keys(tmp_path, line, **{key: 1})) == f"m.trace:{line}: error: unknown key '{key}'; {hint}"


# The header


def test_a_first_line_that_is_no_header(tmp_path: Path) -> None:
    assert message(with_row(tmp_path, HEADER, {"version": 1})) == (
        "m.trace:1: error: not a trace: the first line has no 'bpusim_trace'; name a file that 'bpusim compile' wrote"
    )


def test_a_newer_schema(tmp_path: Path) -> None:
    assert message(with_keys(tmp_path, HEADER, bpusim_trace=2, new_in_2=[])) == (
        "m.trace:1: error: trace schema 2 is newer than 1, the newest this bpusim reads; "
        "update bpusim or compile the model again"
    )


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"target": None}, "the header has no target"),
        ({"target": "x"}, "the header has no target"),
        ({"model": ""}, "'model' must be a name"),
        ({"model": 3}, "'model' must be a name"),
        ({"cores": []}, 'cores is []; it is "any" or a list of core numbers'),
        ({"cores": [-1]}, 'cores is [-1]; it is "any" or a list of core numbers'),
        ({"cores": [True]}, 'cores is [True]; it is "any" or a list of core numbers'),
        ({"cores": "all"}, "cores is 'all'; it is \"any\" or a list of core numbers"),
        ({"kv": "full"}, 'kv is \'full\'; it is "valid" or "capacity"'),
        ({"source": []}, "'source' must be an object"),
        ({"quant": 1}, "'quant' must be an object"),
        ({"report": 1}, "'report' must be an object"),
        ({"context": -1}, "'context' must be a whole number of zero or more"),
        ({"chunk": 1.5}, "'chunk' must be a whole number of zero or more"),
        ({"vocab": True}, "'vocab' must be a whole number of zero or more"),
        ({"layers": "3"}, "'layers' must be a whole number of zero or more"),
        ({"workspace": []}, "'workspace' must be a whole number of zero or more"),
        ({"kv_bytes_per_token": -2}, "'kv_bytes_per_token' must be a whole number of zero or more"),
    ],
    ids=str,
)
def test_a_header_value_that_is_wrong(tmp_path: Path, keys: dict[str, Any], what: str) -> None:
    assert message(with_keys(tmp_path, HEADER, **keys)) == f"m.trace:1: error: {what}; {AGAIN}"


def test_a_phase_over_an_empty_cache_is_saved_as_one(small: Trace, tmp_path: Path) -> None:
    first = replace(small.phases["prefill"], empty_cache=True)
    save_trace(replace(small, phases={**small.phases, "prefill": first}), tmp_path / "s.trace")
    loaded = load_trace(tmp_path / "s.trace")
    assert {name: phase.empty_cache for name, phase in loaded.phases.items()} == {"prefill": True, "decode": False}


def test_an_empty_cache_that_is_no_truth(tmp_path: Path) -> None:
    what = "m.trace:4: error: empty_cache is 1; it is true or false; " + AGAIN
    assert message(with_keys(tmp_path, PHASE, empty_cache=1)) == what


def test_cores_are_read_as_a_tuple(tmp_path: Path) -> None:
    assert load_trace(with_keys(tmp_path, HEADER, cores=[1, 0])).header.cores == (1, 0)


# Tensors, phases, repeats, ops


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"tensor": ""}, "'tensor' must be a name"),
        ({"bytes": None}, "'bytes' must be a whole number of zero or more"),
        ({"bytes": -1}, "'bytes' must be a whole number of zero or more"),
        ({"count": 2.0}, "'count' must be a whole number of zero or more"),
        ({"shared_by": "a"}, "shared_by is not a list of names"),
        ({"shared_by": [1]}, "shared_by is not a list of names"),
    ],
    ids=str,
)
def test_a_tensor_value_that_is_wrong(tmp_path: Path, keys: dict[str, Any], what: str) -> None:
    assert message(with_keys(tmp_path, TENSOR, **keys)) == f"m.trace:2: error: {what}; {AGAIN}"


def test_a_tensor_listed_twice(tmp_path: Path) -> None:
    assert message(with_keys(tmp_path, TENSOR + 1, tensor="table")) == (
        f"m.trace:3: error: tensor 'table' is listed twice; {AGAIN}"
    )


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"phase": 1}, "'phase' must be a name"),
        ({"tokens": -1}, "'tokens' must be a whole number of zero or more"),
        ({"basis": None}, "the phase has no basis"),
        ({"basis": []}, "the phase has no basis"),
        ({"basis": "kv"}, "the phase has no basis"),
    ],
    ids=str,
)
def test_a_phase_value_that_is_wrong(tmp_path: Path, keys: dict[str, Any], what: str) -> None:
    assert message(with_keys(tmp_path, PHASE, **keys)) == f"m.trace:4: error: {what}; {AGAIN}"


@pytest.mark.parametrize("term", ["kv^2", 1, ["kv"]], ids=str)
def test_a_basis_term_outside_the_closed_list(tmp_path: Path, term: Any) -> None:
    assert message(with_keys(tmp_path, PHASE, basis=["1", term])) == (
        f"m.trace:4: error: {term!r} is not in the closed list of basis terms; update bpusim or compile the model again"
    )


def test_a_phase_that_is_there_twice(tmp_path: Path) -> None:
    phase = LINES[PHASE - 1 : -1]
    path = write(tmp_path / "m.trace", [*LINES[: PHASE - 1], *phase, *phase, {"end": "trace", "lines": 16}])
    assert message(path) == f"m.trace:15: error: phase 'decode' is there twice; {AGAIN}"


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"repeat": "2"}, "'repeat' must be a whole number of zero or more"),
        ({"repeat": -2}, "'repeat' must be a whole number of zero or more"),
    ],
    ids=str,
)
def test_a_repeat_count_that_is_wrong(tmp_path: Path, keys: dict[str, Any], what: str) -> None:
    assert message(with_keys(tmp_path, REPEAT, **keys)) == f"m.trace:6: error: {what}; {AGAIN}"


def test_a_repeat_of_no_passes(tmp_path: Path) -> None:
    assert message(with_keys(tmp_path, REPEAT, repeat=0)) == f"m.trace:6: error: the repeat is empty; {AGAIN}"


def test_a_repeat_of_no_ops(tmp_path: Path) -> None:
    assert message(write(tmp_path / "m.trace", LINES[: BODY - 1] + LINES[BODY:])) == (
        f"m.trace:6: error: the repeat is empty; {AGAIN}"
    )


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"op": ""}, "'op' must be a name"),
        ({"type": None}, "'type' must be a name"),
        ({"unit": None}, "unit None is not one of mac, vector, dma, cpu"),
        ({"unit": "gpu"}, "unit 'gpu' is not one of mac, vector, dma, cpu"),
        ({"nodes": "a"}, "nodes is not a list of names"),
        ({"nodes": [1]}, "nodes is not a list of names"),
        ({"vec": []}, "'vec' must be an object"),
        ({"vec": {"exp": 1}}, "'vec.exp' must be a list of whole numbers of zero or more"),
        ({"read": []}, "'read' must be an object"),
        ({"write": {"kv": [-1]}}, "'write.kv' must be a list of whole numbers of zero or more"),
        ({"cycles": 5}, "'cycles' must be a list of whole numbers of zero or more"),
        ({"cycles": [5.0]}, "'cycles' must be a list of whole numbers of zero or more"),
        ({"macs": [True]}, "'macs' must be a list of whole numbers of zero or more"),
        ({"issued": [2**53]}, "'issued' must be a list of whole numbers of zero or more"),
        ({"tensors": -1}, "'tensors' must be a whole number of zero or more"),
        ({"cycles": [1, 2, 3]}, "'cycles' has 3 coefficients for a basis of 2"),
        ({"vec": {"add": [1, 2, 3]}}, "'vec.add' has 3 coefficients for a basis of 2"),
        ({"read": {"kv": [1, 2, 3]}}, "'read.kv' has 3 coefficients for a basis of 2"),
    ],
    ids=str,
)
def test_an_op_value_that_is_wrong(tmp_path: Path, keys: dict[str, Any], what: str) -> None:
    assert message(with_keys(tmp_path, OP, **keys)) == f"m.trace:5: error: {what}; {AGAIN}"


def test_carry_has_no_more_coefficients_than_the_basis(tmp_path: Path) -> None:
    assert message(with_keys(tmp_path, REPEAT, carry=[1, 2, 3])) == (
        f"m.trace:6: error: 'carry' has 3 coefficients for a basis of 2; {AGAIN}"
    )


def test_a_number_longer_than_python_reads_is_refused(tmp_path: Path) -> None:
    text = '{"op":"a","type":"A","unit":"mac","cycles":[' + "9" * 5000 + "]}"
    assert message(with_text(tmp_path, OP, text)).startswith("m.trace:5: error: ")


@pytest.mark.parametrize("name", ["w", "w:", "kv:0", "spill", "spill:", "io:", "weights:a", ""])
def test_a_buffer_of_no_kind(tmp_path: Path, name: str) -> None:
    assert message(with_keys(tmp_path, OP, write={name: [1]})) == (
        f"m.trace:5: error: write of buffer '{name}': buffers are w:TENSOR, kv, spill:NAME and io:NAME; {AGAIN}"
    )


def test_an_unknown_tensor_names_the_nearest_known_one(tmp_path: Path) -> None:
    assert message(with_keys(tmp_path, OP, read={"w:tabel": [1]})) == (
        "m.trace:5: error: read of tensor 'tabel', which is not listed; did you mean 'table'?"
    )


# What the header and the tensors say against what the ops say


def with_phase(tmp_path: Path, header: dict[str, Any], phase: dict[str, Any], **body: Any) -> Path:
    """The file with keys of its header, of its phase, and of the op of its repeat set."""
    lines = [dict(row) for row in LINES]
    for line, keys in ((HEADER, header), (PHASE, phase), (BODY, body)):
        lines[line - 1] |= keys
    return write(tmp_path / "m.trace", lines)


@pytest.mark.parametrize("count", [1, 3])
def test_a_layers_tensor_is_there_as_often_as_the_layer(tmp_path: Path, count: int) -> None:
    assert message(with_keys(tmp_path, 3, count=count)) == (
        "m.trace:10: error: phase 'decode' repeats 2 times what reads tensor 'proj.{i}', "
        f"of which there are {count}; {AGAIN}"
    )


def test_a_tensor_that_all_layers_share_is_there_once(tmp_path: Path) -> None:
    assert load_trace(with_phase(tmp_path, {}, {}, read={"w:table": [4], "w:proj.{i}": [300]}))


def test_the_chunk_of_the_header_is_the_tokens_of_prefill(tmp_path: Path) -> None:
    assert message(with_phase(tmp_path, {"chunk": 8}, {"phase": "prefill", "tokens": 4})) == (
        f"m.trace:10: error: the header has a chunk of 8, phase 'prefill' one of 4; {AGAIN}"
    )
    assert load_trace(with_phase(tmp_path, {"chunk": 4}, {"phase": "prefill", "tokens": 4})).header.chunk == 4


def test_the_chunk_of_the_header_is_no_matter_of_decode(tmp_path: Path) -> None:
    assert load_trace(with_phase(tmp_path, {"chunk": 8}, {}))


@pytest.mark.parametrize(
    ("layers", "cache", "written"),
    [(2, 33, 16), (3, 32, 16), (0, 32, 16), (2, 16, 16), (2, 32, 0)],
)
def test_the_cache_of_the_header_is_what_decode_writes(tmp_path: Path, layers: int, cache: int, written: int) -> None:
    path = with_phase(tmp_path, {"layers": layers, "kv_bytes_per_token": cache}, {}, write={"kv": [written]})
    assert message(path) == (
        f"m.trace:10: error: the header has {layers} layers and {cache} B of cache a token, "
        f"phase 'decode' writes {2 * written} B in 2 layers; {AGAIN}"
    )


def test_a_cache_that_agrees_loads(tmp_path: Path) -> None:
    path = with_phase(tmp_path, {"layers": 2, "kv_bytes_per_token": 32}, {}, write={"kv": [16]})
    assert load_trace(path).header.layers == 2


def test_a_cache_that_decode_does_not_write_is_refused(tmp_path: Path) -> None:
    assert message(with_phase(tmp_path, {"layers": 2, "kv_bytes_per_token": 32}, {})) == (
        "m.trace:10: error: the header has 2 layers and 32 B of cache a token, "
        f"phase 'decode' writes 0 B in 0 layers; {AGAIN}"
    )


# Damage of any kind


def loads_or_says_why(path: Path) -> None:
    try:
        trace = load_trace(path)
    except TraceError as e:
        places = {p.place.file for p in e.problems if p.place}
    else:
        again = path.with_suffix(".again")
        save_trace(trace, again)
        other = load_trace(again)
        assert (other.header, other.tensors, other.phases) == (trace.header, trace.tensors, trace.phases)
        return
    assert places == {str(path)}


ANY_TEST = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@ANY_TEST
@given(data=st.data())
def test_a_changed_byte_is_refused_or_gives_a_valid_trace(tmp_path: Path, data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(TRACES)).read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    (tmp_path / "m.trace").write_bytes(raw)
    loads_or_says_why(tmp_path / "m.trace")


@ANY_TEST
@given(data=st.data())
def test_a_deleted_line_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from(TRACES)).read_text(encoding="utf-8").splitlines(keepends=True)
    del lines[data.draw(st.integers(0, len(lines) - 1))]
    (tmp_path / "m.trace").write_text("".join(lines), encoding="utf-8")
    with pytest.raises(TraceError):
        load_trace(tmp_path / "m.trace")


@ANY_TEST
@given(data=st.data())
def test_a_shortened_file_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    raw = data.draw(st.sampled_from(TRACES)).read_bytes()
    (tmp_path / "m.trace").write_bytes(raw[: data.draw(st.integers(0, len(raw) - 2))])  # without a newline it is whole
    with pytest.raises(TraceError):
        load_trace(tmp_path / "m.trace")
