"""Rows of measurements as files have them: what is missing, what is assumed, what cannot be simulated."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_boards import COLUMNS, MODELS, PLANTED, Fitted

from bpusim.cli.calibrate import compile_wish
from bpusim.errors import StudyError
from bpusim.study.calibration import calibrate, read_measurements
from bpusim.study.calibration.cells import chunk_of


def _read(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(StudyError) as caught:
        read_measurements(path)
    return str(caught.value).replace(f"{path}", "rows.csv")


def test_missing_columns_are_named(tmp_path: Path) -> None:
    text = _read(tmp_path, "row_id,layers,hiden,n_heads,n_kv,ffn,vocab,tied,decode_tps", "1,2,3,4,5,6,7,1,9")
    assert text == "rows.csv:1: error: column 'hidden' is missing; did you mean 'hiden'?"


def test_all_missing_columns_are_one_error(tmp_path: Path) -> None:
    text = _read(tmp_path, "row_id,layers,hidden,n_heads,ffn,vocab", "1,2,3,4,5,6")
    assert text.count("error:") == 1
    assert "columns 'n_kv', 'tied', 'ttft_ms' or 'decode_tps' are missing; add them, or a column trace or" in text


def test_files_that_are_no_table(tmp_path: Path) -> None:
    assert "the file is empty; give it a head" in _read(tmp_path, "")
    assert "rows.csv:1: error: columns are separated by ';'; separate them by commas" in _read(
        tmp_path, "row_id;layers"
    )


# --- what a row does not say


def _row(tmp_path: Path, **cells: str) -> str:
    """A file of one row, MODELS[0] with other cells; its text."""
    known = dict(zip(COLUMNS.split(","), MODELS[0].split(","), strict=True)) | {"decode_tps": "1"} | cells
    path = tmp_path / "rows.csv"
    path.write_text(",".join(known) + "\n" + ",".join(known.values()) + "\n")
    return f"{path}"


def _wrong(tmp_path: Path, **cells: str) -> str:
    with pytest.raises(StudyError) as caught:
        read_measurements(Path(_row(tmp_path, **cells)))
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("quant", "bits"),
    [("w4", 4), ("w4a16", 4), ("W8", 8), ("w8a8", 8), ("int4", 4), ("int8", 8), ("fp16", 16), ("f16", 16), ("q4_0", 4)],
)
def test_bits_of_weights_by_quant(tmp_path: Path, quant: str, bits: int) -> None:
    (row,) = read_measurements(Path(_row(tmp_path, w_bits="", quant=quant))).rows
    assert row.weight_bits == bits
    assert f"weights of {bits} bits by quant '{quant}'" in row.assumed
    (row,) = read_measurements(Path(_row(tmp_path, quant="odd"))).rows
    assert not any("bits by quant" in a for a in row.assumed)


def test_bits_of_weights_that_nothing_says(tmp_path: Path) -> None:
    assert _wrong(tmp_path, w_bits="") == (
        "rows.csv:2: error: nothing says how wide the weights are; "
        "write 4, 8 or 16 into w_bits, or w4, w8, fp16 into quant"
    )
    assert "rows.csv:2: error: nothing says" in _wrong(tmp_path, w_bits="", quant="best")
    assert "quant 'w4' and w_bits 8 contradict each other; correct one" in _wrong(tmp_path, quant="w4")
    assert _wrong(tmp_path, w_bits="eight").count("error:") == 1


def test_groups_that_do_not_divide(tmp_path: Path) -> None:
    assert "rows.csv:2: error: w_group: 100 does not divide hidden 256" in _wrong(tmp_path, w_group="100")


def test_cores_of_which_one_number_is_known(tmp_path: Path) -> None:
    for cells in ({"npu_cores_total": "2"}, {"npu_cores_used": "2"}):
        (row,) = read_measurements(Path(_row(tmp_path, **cells))).rows
        assert row.cores == (2, 2)
        assert "all cores used, 2" in row.assumed


def test_what_is_assumed_is_in_the_notes(fitted: Fitted) -> None:
    (note,) = fitted(rows=1).rows[0].notes
    assert note == "assumed: a context of 512, chunks of 128 tokens, a scale a channel"


def test_configurations_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    do = "name a file, by its path from the folder of rows.csv"
    assert _wrong(tmp_path, config="no.json") == f"rows.csv:2: error: config: 'no.json' does not exist; {do}"
    assert _wrong(tmp_path, config="folder") == f"rows.csv:2: error: config: 'folder' is a folder; {do}"
    assert (
        _wrong(tmp_path, config="latin.json")
        == "rows.csv:2: error: config: 'latin.json' is not UTF-8; save it as UTF-8"
    )
    assert _wrong(tmp_path, trace="no.trace") == f"rows.csv:2: error: trace: 'no.trace' does not exist; {do}"


def test_text_in_a_number_is_told_with_its_line(tmp_path: Path) -> None:
    head = f"{COLUMNS},ttft_ms,decode_tps"
    text = _read(tmp_path, head, f"{MODELS[0]},1 ms,2", f"{MODELS[1]},1,-2", MODELS[2])
    assert text.splitlines() == [
        "rows.csv:2: error: ttft_ms: '1 ms' is not a number; write digits without a unit, or leave it empty",
        "rows.csv:3: error: decode_tps: -2 is not above 0; leave it empty if it was not measured",
        "rows.csv:4: error: 16 columns in the head, and fewer in this line; give the line as many; "
        "quote texts with commas",
    ]


def test_rows_of_two_boards_are_of_two_machines(tmp_path: Path) -> None:
    text = _read(tmp_path, f"{COLUMNS},decode_tps", f"{MODELS[0]},1", f"{MODELS[1].replace('toy', 'other')},1")
    assert text == "rows.csv: error: rows of 2 boards: toy, other; a machine is one of them: --board 'toy'"


def test_a_row_that_cannot_be_compiled_is_listed(fitted: Fitted) -> None:
    odd = MODELS[0].replace("a,toy", "odd,toy").replace("0,8,16,64", "0,6,16,64")
    done = fitted(more=(f"{odd},1,1", MODELS[1].replace("b,toy", "bare,toy").replace(",2,1024", ",,1024") + ",1,1"))
    assert [(row.id, why) for row, why in done.unusable] == [
        ("odd", "weights of 6 bits: 4, 8 and 16 can be compiled"),
        ("bare", "layers not given: the model cannot be compiled"),
    ]


@pytest.mark.parametrize(
    ("prompt", "context", "chunk"),
    [(64, None, 128), (256, 1024, 256), (300, None, 512), (2000, 4096, 512), (None, 4096, 256), (64, 96, 96)],
)
def test_chunks(prompt: int | None, context: int | None, chunk: int) -> None:
    assert chunk_of(prompt, context) == chunk


def test_fewer_cores_are_a_narrower_core(fitted: Fitted, tmp_path: Path, traces: Path) -> None:
    path = tmp_path / "cores.csv"
    head = f"{COLUMNS},npu_cores_used,npu_cores_total,decode_tps,ttft_ms"
    path.write_text("\n".join([head, f"{MODELS[1]},1,2,1,1", f"{MODELS[1].replace('b,', 'b2,')},2,2,1,1"]) + "\n")
    one = (*PLANTED, "machine.cores.count=1")
    half, whole = calibrate(read_measurements(path), "bpu80", [], compile_wish, overrides=one, traces=traces).rows
    assert half.recipe.overrides["machine.cores.mac.cols"] == 64
    assert half.fitted.ttft_ms > 1.2 * whole.fitted.ttft_ms
    assert half.fitted.decode_tps < whole.fitted.decode_tps
    split = calibrate(read_measurements(path), "bpu80", [], compile_wish, traces=traces).rows[1]
    assert split.recipe.model["split"] == "tensor"
