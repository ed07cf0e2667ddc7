"""report.html as text: whole, self-contained, small, the same bytes each time."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from reports import EMPTY, FRAMES, MIXED, MODELS, written

from bpusim import load_scenario, simulate
from bpusim.report.page import report_html
from bpusim.report.page.memory import memory_part
from bpusim.report.page.numbers import cards, verdicts
from bpusim.report.view import View


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(MIXED, tmp_path_factory.mktemp("page"))[0]


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text(encoding="utf-8")))


def test_it_is_made_from_the_folder_alone(folder: Path, page: str) -> None:
    assert report_html(View.read(folder)) == page


def test_it_refers_to_nothing_outside(page: str) -> None:
    assert not re.search(r'(?:src|href)="(?!#|data:)', re.sub(r' xlink:href="#[^"]*"', "", page))
    assert "url(http" not in page
    assert "@import" not in page


def test_it_is_below_a_megabyte(page: str) -> None:
    assert len(page.encode()) < 1_000_000


def test_what_a_user_wrote_is_text(page: str) -> None:
    assert "<camera>" not in page
    assert "A chat &amp; a &lt;camera&gt;" in page


def test_every_definition_that_is_asked_for_is_there_once(page: str) -> None:
    asked = set(re.findall(r'data-def="([^"]*)"', page))
    assert asked == set(re.findall(r'aria-describedby="def-([^"]*)"', page))
    found = re.findall(r'id="def-([^"]*)"', page)
    assert sorted(found) == sorted(asked)


def test_ids_are_unique_and_links_go_somewhere(page: str) -> None:
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)


def test_charts_have_words(page: str) -> None:
    charts = re.findall(r'<div class="(?:wide|narrow)" role="img" aria-label="([^"]+)">', page)
    assert len(charts) == 12
    assert all(len(text) > 40 for text in charts)


def test_the_command_and_the_hashes_are_the_manifests(folder: Path, page: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert '<code id="command">bpusim run case.yaml -o FOLDER</code>' in page
    for file, digest in manifest["inputs"].items():
        assert html.escape(file) in page
        assert digest in page


def test_overrides_are_in_the_command(tmp_path: Path) -> None:
    folder, _ = written(FRAMES, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["overrides"] = ["streams.camera.rate=5 Hz"]
    view = View.read(folder)
    changed = View(manifest, view.summary, view.series, view.thermal)
    command = "bpusim run case.yaml --set &#39;streams.camera.rate=5 Hz&#39; -o FOLDER"
    assert f'<code id="command">{command}</code>' in report_html(changed)


def test_warnings_are_shown(folder: Path) -> None:
    view = View.read(folder)
    warned = {**view.summary, "warnings": [{"code": "idle-core", "text": "core <x> stays idle"}]}
    text = report_html(View(view.manifest, warned, view.series, view.thermal))
    assert "<code>idle-core</code> core &lt;x&gt; stays idle" in text


# --- runs with less in them


def sections(folder: Path) -> list[str]:
    return re.findall(r'<section id="(\w+)"', (folder / "report.html").read_text())


def test_a_run_of_frames_alone_has_a_report(tmp_path: Path) -> None:
    folder, _ = written(FRAMES, tmp_path)
    parts = ["numbers", "time", "latencies", "bandwidth", "cores", "ops", "memory", "reproduce", "definitions"]
    assert sections(folder) == parts


def test_a_run_in_which_nothing_ended_has_a_report(tmp_path: Path) -> None:
    folder, _ = written(EMPTY, tmp_path)
    assert sections(folder) == ["numbers", "cores", "memory", "reproduce", "definitions"]


def test_a_run_of_heat_alone_has_a_report(tmp_path: Path) -> None:
    """The only frame would come after the end."""
    streams = "streams: {camera: {frames: eye, rate: 1 Hz, start: 9 s, count: 1}}\nrun: {until: 3 s}\n"
    text = f"machine: {{preset: bpu80, cooling: passive_heatsink}}\n{MODELS}{streams}"
    folder, _ = written(text, tmp_path)
    assert "heat" in sections(folder)


# --- parts of it


def test_cards_are_figures_of_the_summary(summary: dict[str, Any]) -> None:
    for card in cards(summary):
        node: Any = summary
        for part in card.path.split("."):
            node = node[part]
        shown = 100 * node if card.unit == "%" else node
        digits = len(card.text.partition(".")[2])
        assert float(card.text) == pytest.approx(shown, abs=0.5 * 10**-digits)


def test_a_verdict_names_the_largest_causes(summary: dict[str, Any]) -> None:
    first = summary["streams"]["alice"]["ttft_breakdown_ms"]
    largest = max(first, key=lambda c: first[c])
    total = sum(first.values())
    start = f"First token (TTFT), alice: {total:.1f} ms, of which {largest} {first[largest] / total:.0%}"
    assert verdicts(summary)[0].startswith(start)


def test_streams_that_have_the_same_are_told_together() -> None:
    same = {"kind": "frames", "breakdown_ms": {"compute": 3.0, "dram": 1.0}, "cold_breakdown_ms": {}}
    assert verdicts({"streams": {"a": same, "b": same}}) == ["A frame, a, b: 4.0 ms, of which compute 75%, dram 25%"]


def test_the_memory_map_is_the_runs(tmp_path: Path) -> None:
    text = f"machine: {{preset: bpu80, dram: {{heaps: {{ion: 2 GB, cma: 1 GB}}}}}}\n{MODELS}"
    path = tmp_path / "a.yaml"
    path.write_text(f"{text}streams: {{camera: {{frames: eye, rate: 10 Hz, count: 1}}}}\n")
    result = simulate(load_scenario(path))
    memory = result.to_dict()["memory"]
    assert sum(b["size_bytes"] for b in memory["blocks"]) == memory["resident_bytes"]
    part = memory_part(result.to_dict())
    assert [m["title"] for m in part["maps"]] == ["Heap ion, 2 GB", "Heap cma, 1 GB"]
    weights = result.heaps["ion"].blocks["chat.weights"]
    assert part["maps"][0]["blocks"][0]["width"] == f"{100 * weights / 2e9:.3f}"


def test_with_very_many_charts_one_is_for_all_screens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a page stays below a megabyte."""
    from bpusim.report import page

    monkeypatch.setattr(page, "_MOST_SVG", 1000)
    text = report_html(View.read(folder))
    assert len(re.findall(r'<div class="any" role="img"', text)) == 6
    assert not re.search(r'<div class="(?:wide|narrow)"', text)
