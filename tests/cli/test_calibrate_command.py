"""``bpusim calibrate`` from the command line: what it prints, writes and refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bpusim.cli.main import main

HEAD = (
    "row_id,board,model,layers,hidden,n_heads,n_kv,head_dim,ffn,vocab,tied,w_bits,a_bits,prompt_len,ttft_ms,decode_tps"
)
ROWS = (  # not exactly what bpu80 does, as no board does
    "a,toy,deep,16,256,4,2,64,512,2000,0,8,16,64,30,150",
    "b,toy,wide,2,1024,8,4,128,4096,8000,0,8,16,64,8,200",
    "c,toy,mid,8,512,8,4,64,2048,4000,1,8,16,64,18,170",
)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([HEAD, *ROWS]) + "\n")
    return path


def _run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["calibrate", *map(str, words)])


def test_it_fits_prints_and_writes_a_machine(rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    words = (rows, "--fit", "cores.layer_sync", "--traces", tmp_path / "traces", "-o", out)
    done = _run(*words)
    assert done.exit_code == 0, done.output
    assert "Fitted, with 95 % intervals" in done.stdout
    assert "bytes/BW + layers x o, without the row" in done.stdout
    assert done.stdout.startswith("Machine bpu80, rows of rows.csv\n")
    text = out.read_text()
    assert text.splitlines()[0].endswith("rows.csv --machine bpu80 --fit cores.layer_sync -o mine.yaml")
    assert _run(*words).exit_code == 0
    assert out.read_text() == text
    scenario = tmp_path / "s.yaml"
    (trace,) = [p for p in (tmp_path / "traces").glob("*.trace") if '"deep"' in p.read_text()]
    scenario.write_text(
        f"machine: mine.yaml\nmodels: {{m: {{trace: traces/{trace.name}, cores: bpu0}}}}\n"
        "streams: {u: {chat: m, prompt: 8, output: 2}}\n"
    )
    assert CliRunner().invoke(main, ["validate", str(scenario)]).exit_code == 0


def test_without_fit_it_compares(rows: Path, tmp_path: Path) -> None:
    done = _run(rows, "--format", "json", "--traces", tmp_path)
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["parameters"] == []
    assert [r["row_id"] for r in data["rows"]] == ["a", "b", "c"]
    table = list(csv.DictReader(io.StringIO(_run(rows, "--format", "csv", "--traces", tmp_path).stdout)))
    assert [float(r["decode_error"]) for r in table] == [r["decode_error"] for r in data["rows"]]
    assert _run(rows, "--format", "markdown", "--traces", tmp_path).stdout.startswith(
        "Machine bpu80, rows of rows.csv\n\n**Decode, tok/s**"
    )


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("-o", "x.yaml"), 2, "-o writes what was fitted: name it by --fit"),
        (("--machine", "rk3888"), 2, "unknown machine preset 'rk3888'; did you mean 'rk3588'?"),
        (("--machine", "none.yaml"), 2, "cannot read 'none.yaml': no such file"),
        (("--board", "toi"), 2, "no row of board 'toi'; did you mean 'toy'?"),
        (("--fit", "dram.efficiency"), 2, "--fit dram.efficiency: error: 'dram.efficiency' is no number of a machine"),
        (("--fit", "cores.layer_sync", "-o", "no/x.yaml"), 2, "the folder does not exist; make it: mkdir -p no"),
        (("--fit", "cores.layer_sync", "-o", "mine"), 2, "a machine file ends in .yaml or .yml; write -o mine.yaml"),
        (("--fit", ""), 2, "--fit names nothing"),
        (("--fit", " , "), 2, "--fit names nothing"),
    ],
)
def test_refusals(rows: Path, words: tuple[str, ...], code: int, says: str) -> None:
    done = _run(rows, *words)
    assert done.exit_code == code
    assert says in done.stderr


def test_files_that_the_fit_reads_are_not_written(rows: Path, tmp_path: Path) -> None:
    base, child, link = tmp_path / "base.yaml", tmp_path / "child.yaml", tmp_path / "link.yaml"
    base.write_text("preset: bpu80\nname: base\n")
    child.write_text("preset: base.yaml\nname: child\n")
    link.symlink_to(base)
    (tmp_path / "folder.yaml").mkdir()
    measured = rows.rename(tmp_path / "rows.yaml")
    before = {p: p.read_text() for p in (base, child, measured)}
    for out, says in (
        (base, "the machine that is fitted is this file, or is made from it; name another file"),
        (child, "the machine that is fitted is this file"),
        (link, "the machine that is fitted is this file"),
        (measured, "this is the file of measurements; name another file"),
        (tmp_path / "folder.yaml", "this is a folder"),
    ):
        done = _run(measured, "--machine", child, "--fit", "cores.layer_sync", "-o", out)
        assert done.exit_code == 2
        assert f"{out}: error: {says}" in done.stderr
    assert {p: p.read_text() for p in before} == before
