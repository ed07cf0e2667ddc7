"""Charts of a folder: the same bytes each time, from its files alone, and clear words if there is nothing to draw."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner
from reports import EMPTY, MIXED, written

from bpusim.cli import main
from bpusim.metrics import CAUSES
from bpusim.report.charts import KINDS, inline_svg, write_chart
from bpusim.report.charts.over_time import OTHERS, largest, merged
from bpusim.report.charts.style import CAUSE_COLOURS
from bpusim.report.ops import OP_CAUSES
from bpusim.report.ops_view import op_points, phase_points
from bpusim.report.rows import breakdown_rows
from bpusim.report.view import View


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(MIXED, tmp_path_factory.mktemp("charts"))[0]


@pytest.fixture(scope="module")
def view(folder: Path) -> View:
    return View.read(folder)


def plot(folder: Path, kind: str, out: Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["plot", str(folder), "--kind", kind, "-o", str(out)])
    return done.exit_code, done.stderr.replace(str(folder), "F").replace(str(out.parent), "OUT")


@pytest.mark.parametrize("kind", KINDS)
def test_a_chart_is_the_same_bytes_twice(view: View, kind: str, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        write_chart(view, kind, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_another_process_draws_the_same_bytes(folder: Path, tmp_path: Path, ending: str) -> None:
    """Without dates, and whatever the user's own settings of matplotlib are."""
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nsvg.fonttype: path\n")
    for name, seed in (("a", "1"), ("b", "77")):
        command = [sys.executable, "-m", "bpusim", "plot", str(folder), "--kind", "breakdown", "-o", f"{name}.{ending}"]
        where = {"MATPLOTLIBRC": str(tmp_path)} if name == "b" else {}
        env = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **where}
        subprocess.run(command, check=True, cwd=tmp_path, env=env)
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


@pytest.mark.parametrize(("ending", "magic"), [(".png", b"\x89PNG"), (".PDF", b"%PDF"), (".svg", b"<?xml")])
def test_the_ending_says_what_a_file_is(view: View, tmp_path: Path, ending: str, magic: bytes) -> None:
    out = tmp_path / f"chart{ending}"
    write_chart(view, "latency", out)
    assert out.read_bytes().startswith(magic)


@pytest.mark.parametrize("kind", KINDS)
def test_an_svg_has_its_text_as_text_and_no_date(view: View, kind: str, tmp_path: Path) -> None:
    write_chart(view, kind, tmp_path / "c.svg")
    text = (tmp_path / "c.svg").read_text()
    assert "<text" in text
    assert not re.search(r"20\d\d-\d\d-\d\d", text.replace("http://www.w3.org/1999/", ""))


@pytest.mark.parametrize("kind", KINDS)
def test_charts_of_a_page_have_ids_of_their_own_and_its_colours(view: View, kind: str) -> None:
    svgs = [inline_svg(view, kind), inline_svg(view, kind, narrow=True)]
    ids = [re.findall(r' id="([^"]*)"', svg) for svg in svgs]
    assert len({i for group in ids for i in group}) == sum(map(len, ids))
    for svg, own in zip(svgs, ids, strict=True):
        ET.fromstring(svg)
        assert {r for r in re.findall(r"url\(#([^)]*)\)|href=\"#([^\"]*)\"", svg) for r in r if r} <= set(own)
        assert "var(--ink)" in svg


def test_every_cause_has_a_colour_of_its_own() -> None:
    assert list(CAUSE_COLOURS) == list(CAUSES)
    assert len(set(CAUSE_COLOURS.values())) == len(CAUSES)


def test_a_run_does_not_change_matplotlibs_settings(view: View) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    inline_svg(view, "breakdown")
    assert dict(matplotlib.rcParams) == before


# --- what is drawn


def test_bars_are_the_summarys_means(view: View) -> None:
    told = {(r.stream, r.what): r.total for r in breakdown_rows(view.summary)}
    streams = view.summary["streams"]
    assert told == {
        ("alice", "First token (TTFT)"): pytest.approx(streams["alice"]["ttft_mean_ms"]),
        ("alice", "Each token after it (ITL)"): pytest.approx(streams["alice"]["tpot_mean_ms"]),
        ("camera", "A frame"): pytest.approx(streams["camera"]["latency_mean_ms"]),
    }


ROW = {"label": "a/decode", "core": "bpu0", "weights_bytes": 1000, "kv_bytes": 0, "spill_bytes": 0, "io_bytes": 0}
US = {f"{cause}_us": 0.0 for cause in OP_CAUSES if cause != "compute"}


def test_an_op_whose_data_came_early_lies_on_the_roof() -> None:
    """2000 operations over 1000 bytes; at 1 GB/s they take 1 us, though it added 0.1 us alone."""
    hidden = ROW | US | {"op": "x", "macs": 1000, "compute_us": 0.1}
    (point,) = op_points([hidden], 1e9)
    assert (point.intensity, point.achieved) == (2.0, pytest.approx(2e9))


def test_an_op_that_took_longer_lies_below_it() -> None:
    slow = ROW | US | {"op": "x", "macs": 1000, "compute_us": 4.0}
    assert op_points([slow], 1e9)[0].achieved == pytest.approx(0.5e9)


def test_a_phase_is_all_of_its_ops() -> None:
    """Also those without MACs: 2000 operations, 2000 bytes, 5 us."""
    rows = [
        ROW | US | {"op": "x", "macs": 1000, "compute_us": 4.0},
        ROW | US | {"op": "y", "macs": 0, "compute_us": 1.0},
    ]
    (point,) = phase_points(rows)
    assert (point.intensity, point.achieved, point.share) == (1.0, pytest.approx(0.4e9), 1.0)


def test_phases_lie_below_the_roof(view: View) -> None:
    machine = view.needed("machine")
    for p in phase_points(view.needed("ops")):
        roof = min(machine["core_peak_ops_per_s"], p.intensity * machine["core_alone_bytes_per_s"])
        assert 0 < p.achieved <= roof


def test_of_many_rows_the_least_are_one() -> None:
    rows = {f"s{k}": [float(k), 1.0] for k in range(12)}
    names = largest(rows)
    assert names == [*(f"s{k}" for k in range(3, 12)), OTHERS]
    assert merged(rows, names)[OTHERS] == [0 + 1 + 2, 3.0]


def test_ten_rows_are_all_drawn() -> None:
    rows = {f"s{k}": [1.0] for k in range(10)}
    assert largest(rows) == list(rows)
    assert merged(rows, largest(rows)) == rows


# --- refusals


COOL = "give the machine cooling: passive_heatsink, and run it again"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("breakdown", "nothing to break down: no token or frame came to its end; let it run longer"),
        ("timeline", "no timeline to draw: no core had a call; let it run longer"),
        ("bandwidth", "no bandwidth to draw: nothing used the memory; let it run longer"),
        ("thermal", f"no heat to draw: this run has no heat path; {COOL}"),
        ("roofline", "no roofline to draw: no op had any MACs; run a scenario with a model that computes"),
        ("latency", "no latencies to draw: no token or frame came to its end; let it run longer"),
    ],
)  # fmt: skip
def test_a_run_with_nothing_to_draw_says_so(tmp_path: Path, kind: str, expected: str) -> None:
    empty, _ = written(EMPTY, tmp_path)
    assert plot(empty, kind, tmp_path / "x.png") == (2, f"error: {expected}\n")
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x.bmp", "OUT/x.bmp: error: a chart cannot be a '.bmp' file; known: .pdf, .png, .svg\n"),
        ("x", "OUT/x: error: the file's name has no ending; known: .pdf, .png, .svg\n"),
    ],
)
def test_another_ending_is_refused(folder: Path, tmp_path: Path, name: str, expected: str) -> None:
    assert plot(folder, "latency", tmp_path / name) == (2, expected)


DO = "name a folder that `bpusim run SCENARIO -o FOLDER` wrote\n"


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "x.png"
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    assert plot(tmp_path / "none", "latency", out) == (2, f"F: error: there is no such folder; {DO}")
    assert plot(tmp_path / "file", "latency", out) == (2, f"F: error: this is a file; {DO}")
    assert plot(tmp_path / "other", "latency", out) == (2, f"F: error: not a result: it has no manifest.json; {DO}")


def _damaged(folder: Path, tmp_path: Path, name: str, text: str) -> str:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_text(text)
    code, said = plot(tmp_path, "thermal", tmp_path / "x.png")
    assert code == 2
    return said


def test_files_of_others_and_of_other_versions_are_refused(folder: Path, tmp_path: Path) -> None:
    said = _damaged(folder, tmp_path, "summary.json", "{}")
    assert said == "F: error: not a result: summary.json is not what bpusim writes\n"
    said = _damaged(folder, tmp_path, "series.json", json.dumps({"schema": "bpusim-series/9"}))
    what = "series.json is of schema bpusim-series/9, and this version reads bpusim-series/1"
    assert said == f"F: error: {what}; run the scenario again\n"
    said = _damaged(folder, tmp_path, "thermal.csv", "time_s,die_degc\n1,x\n")
    assert said == "F: error: thermal.csv is damaged; run the scenario again\n"


def test_a_folder_that_does_not_exist_is_refused_before_drawing(folder: Path, tmp_path: Path) -> None:
    code, said = plot(folder, "latency", tmp_path / "no" / "x.png")
    assert (code, said.split(";")[0]) == (2, "OUT/x.png: error: the folder does not exist")
