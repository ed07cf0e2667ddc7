"""Charts of studies: the same bytes each time, with labels and units."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from study_rows import grid, rows_of, written

from bpusim.report.charts.study import study_kinds, unit_of, write_study_chart
from bpusim.report.charts.style import numbered
from bpusim.study.analysis import Asked, analyse

KINDS = ("effects", "pairs", "sensitivity", "pareto", "smallest")


def figures(p: dict[str, Any]) -> dict[str, Any]:
    n, m = p["machine.cores.count"], {"x": 1, "y": 3}[p["_kind"]]
    return {
        "streams.al.tpot_mean_ms": [9 / n * m, 9.5 / n * m],
        "dram.achieved_bytes_per_s": n * 1e10,
        "odd": 3 - n * m,
    }


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    points = grid({"machine.cores.count": [1, 2, 4], "_kind": ["x", "y"]})
    return written(rows_of(points, figures), tmp_path_factory.mktemp("study") / "rows.jsonl")


def asked(cost: str = "machine.cores.count") -> Asked:
    return Asked(slo=("streams.*.tpot_mean_ms <= 5",), cost=cost, pareto="streams.*.tpot_mean_ms,cost" if cost else "")


def texts(svg: Path) -> str:
    return " ".join(t for e in ET.parse(svg).iter() if (t := (e.text or "").strip()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_chart_is_the_same_bytes_twice(rows: Path, kind: str, ending: str, tmp_path: Path) -> None:
    found = analyse(rows, asked=asked())
    for name in ("a", "b"):
        write_study_chart(found, kind, tmp_path / f"{name}.{ending}")
    data = (tmp_path / f"a.{ending}").read_bytes()
    assert data == (tmp_path / f"b.{ending}").read_bytes()
    assert not re.search(rb"20\d\d-\d\d-\d\d", data)


def test_kinds_are_those_there_is_something_of(rows: Path) -> None:
    assert study_kinds(analyse(rows, asked=asked())) == list(KINDS)
    assert study_kinds(analyse(rows)) == ["effects", "pairs", "sensitivity"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "effects",
            [
                "machine.cores.count",
                "_kind",
                "streams al tpot mean (ms)",
                "dram achieved (GB/s)",
                "does not begin at zero",
            ],
        ),
        ("pairs", ["streams.al.tpot_mean_ms, ms", "dram.achieved_bytes_per_s, GB/s", "machine.cores.count"]),
        (
            "sensitivity",
            ["elasticity, first value to last", "least to most of a single step", "Sobol' index", "not defined"],
        ),
        ("pareto", ["streams.*.tpot_mean_ms, ms (less is better)", "cost (less is better)", "cores.count 4, _kind x"]),
        ("smallest", ["limit: streams.*.tpot_mean_ms <= 5 (met by 2 of 6)", "smallest: cores.count 2, _kind x"]),
    ],
)
def test_a_chart_says_what_it_shows(rows: Path, kind: str, words: list[str], tmp_path: Path) -> None:
    write_study_chart(analyse(rows, asked=asked()), kind, tmp_path / "a.svg")
    said = texts(tmp_path / "a.svg").replace("\u200a", "")
    assert [w for w in words if w not in said] == []


def test_points_are_bars_if_there_is_no_cost(rows: Path, tmp_path: Path) -> None:
    write_study_chart(analyse(rows, asked=asked("")), "smallest", tmp_path / "a.svg")
    assert "room to the nearest limit, %" in texts(tmp_path / "a.svg")


def test_more_figures_than_fit_are_said(tmp_path: Path) -> None:
    points = grid({f"p{k}": [1, 2] for k in range(6)})
    rows = written(rows_of(points, lambda p: {f"y{k}": p["p0"] * k for k in range(1, 7)}), tmp_path / "r.jsonl")
    found = analyse(rows)
    for kind in ("effects", "pairs", "sensitivity"):
        write_study_chart(found, kind, tmp_path / "a.svg")
        assert "4 of 6 figures; --figure names others" in texts(tmp_path / "a.svg")
    write_study_chart(found, "effects", tmp_path / "a.svg")
    assert "4 of 6 parameters" in texts(tmp_path / "a.svg")


def test_a_large_heat_map_with_a_hole_has_a_scale(tmp_path: Path) -> None:
    points = [p for p in grid({"a": list(range(12)), "b": list(range(12))}) if p != {"a": 3, "b": 3}]
    rows = written(rows_of(points, lambda p: {"y": p["a"] * p["b"]}), tmp_path / "r.jsonl")
    write_study_chart(analyse(rows), "pairs", tmp_path / "a.svg")
    assert "120" in texts(tmp_path / "a.svg")


def test_of_many_values_some_are_labelled(tmp_path: Path) -> None:
    """Each 7 points high, they would overlap."""
    ports = [f"{n / 4:g} GB/s" for n in range(32, 81)]
    points = grid({"port": ports, "kind": [f"name-{n:02}" for n in range(60)]})
    rows = written(rows_of(points, lambda p: {"y": float(p["port"][:-5]) * int(p["kind"][-2:])}), tmp_path / "r.jsonl")
    for kind in ("effects", "pairs"):
        write_study_chart(analyse(rows), kind, tmp_path / "a.svg")
        said = texts(tmp_path / "a.svg")
        assert "8 GB/s" in said
        assert 5 <= said.count("GB/s") <= 30
        assert "name-00" in said
        assert 5 <= said.count("name-") <= 30


def test_both_ends_of_a_front_are_named(tmp_path: Path) -> None:
    rows = written(rows_of(grid({"n": list(range(1, 31))}), lambda p: {"t_ms": 60 / p["n"]}), tmp_path / "r.jsonl")
    write_study_chart(analyse(rows, asked=Asked(pareto="t_ms,n")), "pareto", tmp_path / "a.svg")
    said = texts(tmp_path / "a.svg")
    assert "1  n 30" in said
    assert "12  n 1" in said
    assert "12 of 30 places on the front" in said


@pytest.mark.parametrize(
    ("figure", "unit"),
    [
        ("dram.achieved_bytes_per_s", ("GB/s", 1e9)), ("memory.resident_bytes", ("GB", 1e9)),
        ("heat.mean_power_w", ("W", 1)), ("streams.a.ends.b.p99_ms", ("ms", 1)), ("streams.a.dropped", ("", 1)),
        ("what", ("", 1)),
    ],
)  # fmt: skip
def test_units_of_axes(figure: str, unit: tuple[str, float]) -> None:
    assert unit_of(figure) == unit


def test_clip_paths_are_numbered_in_order() -> None:
    """Their own names are hashes of places, whose last bits differ from one layout to the next."""
    svg = b'<a clip-path="url(#pd1d74bebbe)"/><b clip-path="url(#p0123456789)"/><clipPath id="pd1d74bebbe"><p "panel">'
    assert numbered(svg) == (
        b'<a clip-path="url(#p0000000000)"/><b clip-path="url(#p0000000001)"/><clipPath id="p0000000000"><p "panel">'
    )
