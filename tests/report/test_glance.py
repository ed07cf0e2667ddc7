"""What matters first of a result, on runs of known outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.style import Style
from rich.text import Text

from bpusim import Result, simulate
from bpusim.metrics.causes import CAUSES
from bpusim.report.glance import glance_table
from bpusim.report.styles import BAD, CAUSE_STYLES, GOOD, WARN

TRACES = Path(__file__).resolve().parents[2] / "traces"
SCENARIO = f"""\
machine: bpu80
models:
  chat: {{trace: '{TRACES}/qwen2.5-0.5b-int4.trace', cores: bpu0}}
  eye:  {{trace: '{TRACES}/resnet50-992.trace', cores: bpu1}}
streams:
"""

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def simulated(streams: str, **changes: Any) -> Result:
        path = tmp_path / "s.yaml"
        path.write_text(SCENARIO + streams)
        return simulate(path, set={k.replace("__", "."): v for k, v in changes.items()})

    return simulated


def _lines(result: Result) -> dict[str, list[str]]:
    """Lines by what stands before them."""
    out: dict[str, list[str]] = {}
    heads, texts = (list(c.cells) for c in glance_table(result).columns)
    key = ""
    for head, text in zip(heads, texts, strict=True):
        key = str(head) or key
        out.setdefault(key, []).append(str(text))
    return out


ALICE = "  alice: {chat: chat, prompt: 8, output: 3, requests: 2}\n"


def test_a_chat_says_its_latencies_and_rate(run: Run) -> None:
    result = run(ALICE)
    (s,) = result.chats.values()
    assert s.ttft_mean_ms is not None
    assert s.tpot_mean_ms is not None
    wanted = f"TTFT {s.ttft_mean_ms:.1f} ms, TPOT {s.tpot_mean_ms:.1f} ms, {1000 / s.tpot_mean_ms:.2f} tok/s"
    assert _lines(result)["alice"] == [wanted]
    assert "all chats" not in _lines(result)


def test_a_chat_of_first_tokens_has_no_rate(run: Run) -> None:
    (line,) = _lines(run(ALICE.replace("output: 3", "output: 1")))["alice"]
    assert line.startswith("TTFT ")
    assert "tok/s" not in line


def test_two_chats_have_a_sum(run: Run) -> None:
    result = run(ALICE + ALICE.replace("alice", "bob"))
    assert _lines(result)["all chats"] == [f"{result.decode_tokens_per_s:.2f} tok/s"]


@pytest.mark.parametrize(
    ("slo", "words"),
    [("{ttft: 1 us}", "2 of 2 missed the SLO"), ("{ttft: 9 s}", "SLO met"), ("{tpot: 1 us}", "2 of 2 missed the SLO")],
)
def test_a_chat_says_whether_it_kept_what_was_asked(run: Run, slo: str, words: str) -> None:
    (line,) = _lines(run(ALICE.replace("requests: 2", f"requests: 2, slo: {slo}")))["alice"]
    assert line.endswith(f", {words}")


def test_a_chat_says_what_it_rejected(run: Run) -> None:
    """Three at once, one place in the cache and none in line."""
    line = "  alice: {chat: chat, prompt: 8, output: 9, requests: 3, arrivals: {every: 1 us}, waiting: 0}\n"
    (text,) = _lines(run(line))["alice"]
    assert text.endswith(", 2 requests rejected")


def test_a_camera_says_its_rate_latency_and_drops(run: Run) -> None:
    result = run("  camera: {frames: eye, rate: 10 Hz, count: 3, deadline: 1 ms}\n")
    s: Any = result.streams["camera"]
    wanted = f"{s.fps:.2f} frames/s, p99 {s.latency_p99_ms:.1f} ms, none dropped, 3 of 3 late"
    assert _lines(result)["camera"] == [wanted]


def test_a_camera_that_is_too_fast_says_how_many_it_dropped(run: Run) -> None:
    result = run("  camera: {frames: eye, rate: 400 Hz, count: 30, queue: 1, drop: newest, deadline: 9 s}\n")
    s: Any = result.streams["camera"]
    assert s.dropped
    assert _lines(result)["camera"][0].endswith(f", {s.dropped} of 30 dropped, none late")


def test_a_pipeline_has_a_line_for_each_end(run: Run) -> None:
    text = (
        "  loop: {pipeline: {see: {frames: eye}, talk: {chat: chat, prompt: 8, output: 4, after: [see]}},"
        " trigger: {every: 1 s}, count: 2, deadline: {see: 1 us, talk: 9 s}}\n"
    )
    result = run(text)
    ends: Any = result.streams["loop"]
    see, talk = ends.ends["see"], ends.ends["talk"]
    assert _lines(result)["loop"] == [
        f"{see.mean_ms:.1f} ms to the end of see, p99 {see.p99_ms:.1f} ms, 2 of 2 late",
        f"{talk.mean_ms:.1f} ms to the end of talk, p99 {talk.p99_ms:.1f} ms, none late",
    ]
    assert [line.split(":")[0] for line in _lines(result)["causes"]] == ["time to see of loop", "time to talk of loop"]


def test_the_two_largest_causes_are_named_with_their_part(run: Run) -> None:
    result = run(ALICE)
    (s,) = result.chats.values()
    assert s.tpot_mean_ms is not None
    (first, a), (second, b), *_ = sorted(s.breakdown_ms.items(), key=lambda kv: -kv[1])
    parts = [f"{c} {ms:.1f} ms ({100 * ms / s.tpot_mean_ms:.0f} %)" for c, ms in ((first, a), (second, b))]
    assert first == "dram"
    assert _lines(result)["causes"] == [f"TPOT of alice: {', '.join(parts)}"]


def test_streams_with_the_same_causes_share_a_line(run: Run) -> None:
    result = run(ALICE + "  camera: {frames: eye, rate: 10 Hz, count: 1, start: 50 s}\n")
    twins = replace(result, streams={"camera": result.streams["camera"], **dict.fromkeys("abc", result.chats["alice"])})
    assert [line.split(":")[0] for line in _lines(twins)["causes"]] == ["a frame of camera", "TPOT of a, b, c"]


def test_a_crowd_is_cut_short_and_says_so(run: Run) -> None:
    result = run(ALICE)
    lines = _lines(replace(result, streams={f"user{k}": result.chats["alice"] for k in range(11)}))
    assert [n for n in lines if n.startswith("user")][-1] == "user7"
    assert lines["user7"][1] == "and 3 streams more, below"


def test_channel_and_memory_are_parts_of_what_there_is(run: Run) -> None:
    result = run(ALICE)
    lines, told = _lines(result), result.to_dict()
    assert lines["DRAM"][0].endswith(f" of 25.6 GB/s, {100 * told['dram']['peak_fraction']:.1f} % of the peak")
    assert lines["memory"][0].endswith(f" usable, {100 * result.resident_bytes / result.usable_bytes:.1f} %")
    assert "heat" not in lines


def test_heat_says_power_temperature_and_slow_clocks(run: Run) -> None:
    result = run(ALICE, machine__cooling="passive_heatsink")
    heat = result.heat
    assert heat is not None
    (line,) = _lines(result)["heat"]
    assert line.startswith(f"{heat.mean_w:.2f} W, ")
    assert f"up to {max(heat.peak_degc.values()):.1f} degC" in line
    assert line.endswith("never slowed down")
    slow = replace(result, heat=replace(heat, throttled={"bpu0": 0, "bpu1": heat.elapsed // 2}, shutdown="too hot"))
    seconds = heat.elapsed / 1e12
    assert _lines(slow)["heat"][0].endswith(f"slowed down {seconds / 2:.1f} of {seconds:.1f} s, SHUT DOWN")


def test_warnings_are_counted(run: Run) -> None:
    result = run(ALICE)
    assert _lines(result)["warnings"] == [f"{len(result.warnings)}, at the end"]
    assert "warnings" not in _lines(replace(result, warnings=()))


def test_nothing_yet_is_said(run: Run) -> None:
    lines = _lines(run(ALICE + "  camera: {frames: eye, rate: 10 Hz}\n", run__until="1 us"))
    assert lines["alice"] == ["no token yet"]
    assert lines["camera"] == ["no frame yet, none dropped"]
    assert "causes" not in lines


def test_every_cause_has_a_colour_of_its_own() -> None:
    assert tuple(CAUSE_STYLES) == CAUSES
    colours = [Style.parse(s) for s in CAUSE_STYLES.values()]
    assert len(set(colours)) == len(CAUSES)
    assert not {GOOD, BAD, WARN} & set(CAUSE_STYLES.values())


def test_colour_is_never_alone(run: Run) -> None:
    """What is coloured is a word or a number."""
    result = run(ALICE)
    for column in glance_table(result).columns:
        for cell in column.cells:
            for span in cell.spans if isinstance(cell, Text) else ():
                assert cell.plain[span.start : span.end].strip()
