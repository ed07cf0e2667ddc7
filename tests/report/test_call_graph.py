"""The picture of the graph of calls: well-formed, whole, and nothing on top of something else."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

from bpusim.report.call_graph import call_graph_svg
from bpusim.trace import load_trace
from bpusim.trace.calls import Group, Stop, stops

SVG = "{http://www.w3.org/2000/svg}"
CALL = Stop("a <first> .. z & last", False, 3, 5_000_000, 10, {("weights", False): 4000, ("spill", True): 300}, 1)
CPU = Stop("nms", True, 1, 0, 0, {("spill", False): 290, ("spill", True): 20}, 2)


def boxes(picture: ET.Element) -> list[tuple[int, int, int, int]]:
    found = [g.find(f"{SVG}rect") for g in picture.iter(f"{SVG}g")]
    return [tuple(int(r.attrib[k]) for k in ("x", "y", "width", "height")) for r in found if r is not None]  # type: ignore[misc]


def texts(picture: ET.Element) -> list[str]:
    return [t.text or "" for t in picture.iter(f"{SVG}text")]


def test_boxes_arrows_and_bytes_that_cross() -> None:
    picture = ET.fromstring(call_graph_svg([Group(1, (CALL, CPU, CALL))], "t <1>"))
    assert len(boxes(picture)) == 3
    assert "290 B, 2 tensors" in texts(picture)  # to the CPU: what it reads
    assert "20 B" in texts(picture)  # and back: what it wrote
    assert texts(picture).count("3 ops, 5 MMAC") == 2
    assert "reads 4 kB, writes 300 B" in texts(picture)
    assert "a <first> .. z & last" in texts(picture)
    assert len([p for p in picture.iter(f"{SVG}path") if "marker-end" in p.attrib]) == 2


def test_what_comes_again_is_framed_with_its_count() -> None:
    picture = ET.fromstring(call_graph_svg([Group(1, (CALL,)), Group(34, (CPU, CALL)), Group(1, (CPU,))], "t"))
    assert len(boxes(picture)) == 4
    assert texts(picture).count("x 34") == 1
    assert len([r for r in picture.iter(f"{SVG}rect") if "stroke-dasharray" in r.attrib]) == 1


def test_boxes_do_not_overlap_and_lie_in_the_picture() -> None:
    trace = load_trace(Path(__file__).parents[2] / "traces" / "qwen2.5-3b-int4-fallback.trace")
    picture = ET.fromstring(call_graph_svg(stops(trace.bind("decode", kv=9)), "t"))
    width, height = int(picture.attrib["width"]), int(picture.attrib["height"])
    found = boxes(picture)
    assert len(found) == 7
    assert all(x + w <= width and y + h <= height for x, y, w, h in found)
    assert all(a[1] + a[3] < b[1] or b[1] + b[3] < a[1] for a, b in combinations(found, 2))


def test_long_names_keep_their_ends_and_the_whole_as_a_title() -> None:
    name = "a/very/long/path/of/an/op/in/a/model .. another/very/long/path/MatMul"
    picture = ET.fromstring(call_graph_svg([Group(1, (Stop(name, False, 2, 0, 0, {}, 0),))], "t"))
    (shown,) = [t for t in texts(picture) if re.fullmatch(r"a/very.*\.\.\..*MatMul", t)]
    assert len(shown) <= 42
    assert [t.text for t in picture.iter(f"{SVG}title")] == [name]
