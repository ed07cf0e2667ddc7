"""A run as a timeline: what is on it is what was simulated, to the picosecond, and readers can open the file."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter as Tally
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import File, crossings, expected, read_json, read_perfetto

from bpusim import Result, simulate
from bpusim.errors import BpusimError
from bpusim.metrics import CAUSES, Keep, Step
from bpusim.ports import CALL_CAUSES
from bpusim.report.timeline import Timeline, check_format, keep_for, timeline_file, timeline_of

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
TRACES = SCENARIOS.parent / "traces"
MS = 10**9
SMALL = """\
machine: bpu80
models:
  chat: {{trace: '{traces}/qwen2.5-0.5b-int4.trace', cores: bpu0}}
  eye:  {{trace: '{traces}/resnet50-992.trace', cores: bpu1}}
streams:
  alice:  {{chat: chat, prompt: 8, output: 3, requests: 1}}
  camera: {{frames: eye, rate: 10 Hz, count: 1}}
"""
SHIPPED: dict[str, tuple[dict[str, object], Keep]] = {
    "dual_replica": ({"streams.alice.requests": 1, "streams.bob.requests": 1}, Keep(slices=3000)),
    "hetero": ({"streams.talk.requests": 1}, Keep(end=300 * MS)),
    "pipeline_split": ({"streams.alice.requests": 1}, Keep(slices=5000)),
    "tensor_split": ({"streams.alice.requests": 1, "streams.alice.output": 3}, Keep(90 * MS, 160 * MS)),
    "thermal_fast": ({"run.until": "1 s"}, Keep(slices=3000)),
    "hetero_one_core": ({"run.until": "1 s"}, Keep(end=400 * MS)),
    "multimodal_loop": ({"run.until": "7 s"}, Keep(4900 * MS, 5600 * MS)),
    "batch": ({"streams.alice.requests": 1, "streams.bob.requests": 1}, Keep(slices=2000)),
    "cpu_fallback": ({"streams.alice.requests": 1, "streams.alice.output": 3}, Keep(end=400 * MS)),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Result:
    path = tmp_path_factory.mktemp("timeline") / "small.yaml"
    path.write_text(SMALL.format(traces=TRACES))
    return simulate(path, detail=Keep(), journal=True)


@cache
def shipped(name: str) -> Result:
    changes, keep = SHIPPED[name]
    return simulate(SCENARIOS / f"{name}.yaml", set=changes, detail=keep, journal=True)


def json_of(timeline: Timeline) -> File:
    return read_json(timeline_file(timeline, "json")[1])


def on(file: File, process: str, thread: str) -> list[tuple[str, int, int]]:
    return sorted((s.name, s.start, s.end) for s in file.slices if (s.process, s.thread) == (process, thread))


# --- what was simulated is on it


def test_calls_are_slices_of_their_core(small: Result) -> None:
    file = json_of(timeline_of(small))
    assert small.detail is not None
    for core in ("bpu0", "bpu1"):
        assert on(file, core, "calls") == sorted(
            (c.label, c.start, c.end) for c in small.detail.calls if c.core == core
        )


def test_ops_are_slices_of_their_units_and_of_the_dma(small: Result) -> None:
    file = json_of(timeline_of(small))
    assert small.detail is not None
    rows: dict[str, list[tuple[str, int, int]]] = {"MAC": [], "vector": [], "DMA read": [], "DMA write": []}
    for d in small.detail.details:
        if d.core != "bpu0":
            continue
        for n, compute, read, write in zip(d.ops, d.compute.tolist(), d.read.tolist(), d.write.tolist(), strict=True):
            op = d.work.ops[n]  # type: ignore[attr-defined]
            thread = "MAC" if op.unit == "mac" else "vector"
            for name, (start, end) in ((thread, compute), ("DMA read", read), ("DMA write", write)):
                if end > start:
                    rows[name].append((op.id, start, end))
    assert all(rows.values())
    for thread, expected_rows in rows.items():
        assert on(file, "bpu0", thread) == sorted(expected_rows)


def test_an_op_says_what_it_is_and_where_its_time_went(small: Result) -> None:
    file = json_of(timeline_of(small))
    assert small.detail is not None
    detail = next(d for d in small.detail.details if d.label == "alice/decode")
    call = detail.work
    row = next(k for k, op in enumerate(call.ops) if op.unit == "mac")  # type: ignore[attr-defined]
    op, (start, end) = call.ops[row], detail.compute[row].tolist()  # type: ignore[attr-defined]
    args = next(a for s, a in file.args.items() if s[1:] == ("MAC", op.id, start, end))
    fields = call.fields[:, row].tolist()  # type: ignore[attr-defined]
    assert (args["op"], args["type"], args["unit"]) == (row, op.type, "mac")
    assert (args["macs"], args["read_bytes"], args["write_bytes"]) == (fields[2], sum(fields[5:9]), sum(fields[9:]))
    causes = {k: round(v * 10**6) for k, v in args.items() if k.endswith("_us")}
    assert causes == {f"{c}_us": n for c, n in zip(CALL_CAUSES, detail.causes[row].tolist(), strict=True) if n}


def test_a_token_is_a_slice_with_its_way_inside(small: Result) -> None:
    file = json_of(timeline_of(small))
    assert small.detail is not None
    token = next(s for s in small.detail.steps if s.kind == "token")
    whole = next(s for s in file.slices if s[:3] == ("streams", "alice", "token") and s.start == token.start)
    assert whole.end == token.end
    causes = {c: n for c, n in zip(CAUSES, token.spent, strict=True) if n}
    assert {k: round(v * 10**6) for k, v in file.args[whole].items() if k.endswith("_us")} == {
        f"{c}_us": n for c, n in causes.items()
    }
    inside = sorted(
        (s.start, s.end, s.name)
        for s in file.slices
        if s[:2] == ("streams", "alice") and s != whole and s.start >= whole.start and s.end <= whole.end
    )
    assert [(name, end - start) for start, end, name in inside] == list(token.path)
    assert inside[0][0] == token.start
    assert inside[-1][1] == token.end
    assert all(a[1] == b[0] for a, b in pairwise(inside))


def test_host_work_by_hand(small: Result) -> None:
    """Of the first frame: 600 us of the host, a call of the detector between a dispatch and an interrupt."""
    file = json_of(timeline_of(small))
    host = on(file, "CPU", "camera")
    ((_, start, end),) = on(file, "bpu1", "calls")
    assert ("host", 0, 600_000_000) in host
    assert ("dispatch", 600_000_000, start) in host
    assert [s[1] for s in host if s[0] == "dispatch"] == [600_000_000, end]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("single_3b", {}),
        ("cpu_fallback", {"streams.alice.requests": 1, "streams.alice.output": 5}),
        ("pipeline_split", {"streams.alice.requests": 1}),
        (
            "dual_replica",
            {"machine.host.cores": 1, "streams.alice.requests": 1, "streams.bob.requests": 1},
        ),  # one waits for the CPU core that the other has
        ("tensor_split", {"streams.alice.requests": 1, "streams.alice.output": 3}),
    ],
)
def test_with_synchronous_submit_cpu_slices_are_all_that_cpu_cores_do(name: str, changes: dict[str, object]) -> None:
    """Two accounts of the host that know nothing of each other: causes of steps, and cores taken and given back."""
    sets = {"host.submit": "sync", **changes}
    result = simulate(SCENARIOS / f"{name}.yaml", set=sets, detail=Keep(slices=1), journal=True)
    timeline = timeline_of(result)
    change: Tally[int] = Tally()
    for s in timeline.slices:
        if timeline.tracks[s.track].process == "CPU":
            change[s.start] += 1
            change[s.end] -= 1
    at_work, points = 0, []
    for at in sorted(change):
        at_work += change[at]
        if change[at]:
            points.append((at, at_work))
    busy = next(c for c in timeline.counters if c.name == "busy CPU cores")
    assert points == list(busy.points)


# --- every slice nests, every arrow resolves, time rises


@pytest.mark.parametrize("name", SHIPPED)
def test_slices_nest(name: str) -> None:
    timeline = timeline_of(shipped(name))
    by_track: dict[int, list[object]] = {}
    for s in timeline.slices:
        assert s.end > s.start
        by_track.setdefault(s.track, []).append(s)
    assert {timeline.tracks[n].process for n in by_track} >= {"streams", "CPU", "bpu0"}
    for track, slices in by_track.items():
        assert not crossings(slices), timeline.tracks[track]


@pytest.mark.parametrize("name", SHIPPED)
def test_no_unit_of_a_core_is_busy_twice_at_once(name: str) -> None:
    timeline = timeline_of(shipped(name))
    units = {n for n, t in enumerate(timeline.tracks) if t.process.startswith("bpu")}
    assert units
    for track in units:
        mine = sorted((s.start, s.end) for s in timeline.slices if s.track == track)
        assert all(a[1] <= b[0] for a, b in pairwise(mine)), timeline.tracks[track]


@pytest.mark.parametrize("name", SHIPPED)
def test_json_reads_back_as_it_was(name: str) -> None:
    """``read_json`` asserts that ends pair up with begins, arrows resolve and time does not run back."""
    timeline = timeline_of(shipped(name))
    file = json_of(timeline)
    assert file.slices == expected(timeline)
    assert len(file.arrows) == len(timeline.flows)
    for kind, source, _, target in timeline.flows:
        assert kind in ("DMA", "handover", "barrier")
        assert timeline.slices[source].start <= timeline.slices[target].start
    for key, points in file.counters.items():
        assert all(a[0] < b[0] for a, b in pairwise(points)), key


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30), st.integers(0, 3)), min_size=1, max_size=30),
)
@settings(max_examples=60, deadline=None)
def test_steps_that_overlap_go_on_tracks_of_their_own(rows: list[tuple[int, int, int]]) -> None:
    result = shipped("dual_replica")
    assert result.detail is not None
    none = (0,) * len(CAUSES)
    steps = [Step("alice", "token", n, a, a + d, none, (("host", d),)) for a, d, n in rows]
    detail = replace(result.detail, keep=Keep(), steps=steps, calls=[], details=[])
    timeline = timeline_of(replace(result, detail=detail))
    tracks = {n for n, t in enumerate(timeline.tracks) if t.process == "streams"}
    tokens = [s for s in timeline.slices if s.name == "token"]
    assert len(tokens) == len(rows)
    most = max(sum(s.start <= at < s.end for s in steps) for at, _, _ in rows)
    assert len(tracks) == most
    for track in range(len(timeline.tracks)):
        assert not crossings([s for s in timeline.slices if s.track == track])


# --- arrows


def test_each_op_that_reads_has_an_arrow_from_its_transfer(small: Result) -> None:
    file = json_of(timeline_of(small))
    arrows = [(a, b) for a, b in file.arrows if a.thread == "DMA read"]
    computed = {(s.process, file.args[s]["op"], s.start) for s in file.slices if s.thread in ("MAC", "vector")}
    fetched = [s for s in file.slices if s.thread == "DMA read"]
    assert len(arrows) == len(fetched) > 300
    for source, target in arrows:
        assert (source.process, source.name) == (target.process, target.name)
        assert file.args[source]["op"] == file.args[target]["op"]
        assert (target.process, file.args[target]["op"], target.start) in computed
        assert source.start <= target.start


def test_a_handover_has_an_arrow_from_core_to_core() -> None:
    file = json_of(timeline_of(shipped("pipeline_split")))
    arrows = [(a, b) for a, b in file.arrows if a.thread == "calls"]
    steps = [s for s in file.slices if s.process == "streams" and s.name in ("token", "first token")]
    assert len(arrows) == len(steps) == 32
    for source, target in arrows:
        assert (source.process, target.process) == ("bpu0", "bpu1")
        between = [s for s in file.slices if s.process == "streams" and s.name == "handover" and s.start == source.end]
        assert [s.end for s in between] == [target.start]


def test_a_barrier_has_an_arrow_from_the_last_core_to_the_other() -> None:
    result = shipped("tensor_split")
    (plan,) = result.splits.values()
    file = json_of(timeline_of(result))
    arrows = [(a, b) for a, b in file.arrows if a.thread == "calls"]
    assert len(arrows) > 50
    for source, target in arrows:
        assert source.process != target.process
        assert target.start - source.end == plan.sync
        rival = [
            s for s in file.slices if s.thread == "calls" and s.process == target.process and s.end <= target.start
        ]
        assert all(s.end <= source.end for s in rival)


# --- counters


def bandwidth_areas(result: Result) -> dict[str, float]:
    """Bytes under the bandwidth counters of a whole run."""
    out = {}
    for c in timeline_of(result).counters:
        if c.name.startswith("bandwidth of "):
            points = [*c.points, (result.elapsed, 0)]
            area = sum(rate * (until - at) for (at, rate), (until, _) in pairwise(points)) / 10**12
            out[c.name.removeprefix("bandwidth of ")] = area
    return out


def test_bandwidth_over_time_is_what_the_channel_gave(small: Result) -> None:
    assert all(small.dram.channel_bytes.values())
    assert bandwidth_areas(small) == pytest.approx(dict(small.dram.channel_bytes), rel=1e-6)


@pytest.mark.parametrize("slices", [100_000, 100])
def test_bandwidth_is_known_without_transfers_too(slices: int) -> None:
    """Of masters of the machine file, and from where on transfers are left out: means over a while, here 4 ms. What is
    wrong is less than one such while at 17.1 GB/s: 68 MB of 29 GB."""
    masters = {"display": {"rate": "500 MB/s", "written": 0}, "camera": {"rate": "900 MB/s", "written": 1}}
    machine = {"preset": "bpu80", "masters": masters}
    changes: dict[str, object] = {"machine": machine, "streams.alice.requests": 1}
    result = simulate(SCENARIOS / "single_1_5b.yaml", set=changes, detail=Keep(slices=slices), journal=True)
    assert result.detail is not None
    assert ("transfers" in result.detail.left_out) == (slices == 100)
    assert bandwidth_areas(result) == pytest.approx(dict(result.dram.channel_bytes), rel=2.4e-3)


def test_the_queue_is_the_calls_submitted_and_not_over() -> None:
    result = shipped("hetero_one_core")
    timeline = timeline_of(result)
    queue = next(c for c in timeline.counters if c.name == "queue of bpu0")
    assert result.journal is not None
    for at, depth in queue.points:
        done = [e.what for e in result.journal if e.at <= at]
        assert depth == done.count("submit") - done.count("end")
    assert max(depth for _, depth in queue.points) >= 2
    interrupted = [s for s in timeline.slices if s.args.get("interrupted")]
    assert interrupted, "the detector interrupts the chat there"


def test_heat_clocks_and_the_fan_are_counters() -> None:
    result = shipped("thermal_fast")
    assert result.heat is not None
    file = json_of(timeline_of(result))
    assert float(file.counters["heat", "temperature of bpu0 degC"][-1][1]) == pytest.approx(
        result.heat.samples[-1].temperatures["bpu0"], abs=0.001
    )
    assert file.counters["heat", "clock of bpu0 MHz"][0][1] * 10**6 == result.heat.samples[0].clocks["bpu0"]
    assert ("heat", "fan level") in file.counters


# --- Perfetto


@pytest.mark.parametrize("name", ["pipeline_split", "tensor_split", "thermal_fast"])
def test_protobuf_reads_back_by_perfettos_own_messages(name: str) -> None:
    timeline = timeline_of(shipped(name))
    as_json = json_of(timeline)
    file = read_perfetto(timeline_file(timeline, "perfetto")[1])
    assert file.slices == expected(timeline, 1000)
    assert not any(crossings([s for s in file.slices if s[:2] == track]) for track in timeline.tracks)
    assert len(file.arrows) == len(as_json.arrows)
    assert file.counters.keys() == as_json.counters.keys()
    for key, points in as_json.counters.items():
        assert file.counters[key] == [(at // 1000, float(v)) for at, v in points]
    assert [(a, b, at) for a, b, at in file.marks] == [(a, b, at // 1000) for a, b, at in as_json.marks]
    by_name = sorted((s.process, s.thread, s.name, s.start // 1000, sorted(a)) for s, a in as_json.args.items())
    assert by_name == sorted((*s[:4], sorted(a)) for s, a in file.args.items())


def test_without_the_package_a_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    check_format("json")
    with pytest.raises(BpusimError, match=r"pip install 'bpusim\[perfetto\]'"):
        check_format("perfetto")


# --- how much there is, and what is said of it


def test_what_is_left_out_is_said_where_it_begins() -> None:
    result = simulate(
        SCENARIOS / "single_1_5b.yaml", set={"streams.alice.requests": 1}, detail=Keep(slices=400), journal=True
    )
    assert result.detail is not None
    timeline = timeline_of(result)
    file = json_of(timeline)
    ops = [s for s in file.slices if s.thread in ("MAC", "vector")]
    assert 400 <= len(ops) < 400 + 340, "whole calls, until there are so many"
    left = result.detail.left_out["ops"]
    note = next(text for text in timeline.notices if " ops from " in text)
    assert note.startswith(f"{left} ops from ")
    assert note in file.about["left_out"]
    ((thread, _, at),) = [m for m in file.marks if m[1] == note]
    assert thread == "notes"
    assert at == min(c.start for c in result.detail.calls if c.start >= max(s.end for s in ops))


def test_a_timeline_has_at_most_so_many_steps_and_calls(monkeypatch: pytest.MonkeyPatch, small: Result) -> None:
    monkeypatch.setattr("bpusim.report.timeline.steps._MOST", 2)
    monkeypatch.setattr("bpusim.report.timeline.cores._MOST", 3)
    timeline = timeline_of(small)
    assert small.detail is not None
    steps, calls = len(small.detail.steps), len(small.detail.calls)
    file = json_of(timeline)
    assert sum(s.name in ("token", "first token", "frame") for s in file.slices if s.process == "streams") == 2
    assert sum(s.thread == "calls" for s in file.slices) == 3
    assert [n.split(" from ")[0] for n in timeline.notices] == [f"{steps - 2} steps of streams", f"{calls - 3} calls"]


def test_a_long_run_stays_below_the_cap() -> None:
    """20,000 ops, as many as are kept if nothing else is said, and all else come to a megabyte."""
    result = simulate(
        SCENARIOS / "dual_replica.yaml",
        set={"streams.alice.requests": 1, "streams.bob.requests": 1},
        detail=keep_for(None),
        journal=True,
    )
    assert result.detail is not None
    assert result.detail.left_out["ops"] > 0
    data = timeline_file(timeline_of(result), "json")[1]
    assert len(data) < 2_000_000
    assert len(gzip.decompress(data)) < 20_000_000


def test_a_window_shows_what_is_in_it_and_no_more() -> None:
    result = shipped("tensor_split")
    timeline = timeline_of(result)
    begin, end = 90 * MS, 160 * MS
    calls = [s for s in timeline.slices if timeline.tracks[s.track].thread == "calls"]
    assert len(calls) > 100
    assert all(s.end >= begin and s.start < end for s in calls)
    assert all(begin <= at <= end for c in timeline.counters for at, _ in c.points)
    assert not timeline.notices


def test_a_counter_of_a_window_begins_with_what_was_before(small: Result) -> None:
    assert small.detail is not None
    call = next(c for c in small.detail.calls if c.core == "bpu0")
    middle = (call.start + call.end) // 2
    detail = replace(small.detail, keep=Keep(middle, call.end))
    queue = next(c for c in timeline_of(replace(small, detail=detail)).counters if c.name == "queue of bpu0")
    assert queue.points[0] == (middle, 1)


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("0s..200ms", 0, 200 * MS),
        ("1.5 s .. 2 s", 1500 * MS, 2000 * MS),
        ("2s..", 2000 * MS, None),
        ("..7us", 0, 7 * 10**6),
    ],
)
def test_windows(text: str, begin: int, end: int | None) -> None:
    keep = keep_for(text)
    assert (keep.begin, keep.end) == (begin, end)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("200ms", "'200ms' is no window of time"),
        ("..", "'..' is no window of time"),
        ("0..200ms", "'0' has no unit"),
        ("1 kg..2s", "unit 'kg'"),
        ("2s..1s", "ends before it begins"),
        ("1s..1s", "ends before it begins"),
    ],
)
def test_what_is_no_window_is_refused(text: str, what: str) -> None:
    with pytest.raises(BpusimError) as caught:
        keep_for(text)
    assert what in str(caught.value)
    assert str(caught.value).startswith("error: ")


def test_a_window_behind_the_end_is_said(small: Result) -> None:
    assert small.detail is not None
    late = replace(small, detail=replace(small.detail, keep=Keep(small.elapsed + 1)))
    assert timeline_of(late).notices[0].startswith("the window begins after the end of the run")


def test_a_run_without_detail_is_refused(small: Result) -> None:
    with pytest.raises(BpusimError, match="kept no detail"):
        timeline_of(replace(small, detail=None))


@pytest.mark.parametrize("form", ["json", "perfetto"])
def test_the_same_run_gives_the_same_bytes(form: str) -> None:
    changes, keep = SHIPPED["pipeline_split"]
    again = simulate(SCENARIOS / "pipeline_split.yaml", set=changes, detail=keep, journal=True)
    first = timeline_file(timeline_of(shipped("pipeline_split")), form)
    assert timeline_file(timeline_of(again), form) == first
    assert b"trace" not in first[1][:20] or form == "perfetto"


def test_the_file_says_of_which_run_it_is(small: Result) -> None:
    data = timeline_file(timeline_of(small), "json")[1]
    content = json.loads(gzip.decompress(data))
    assert content["otherData"]["scenario"] == "small"
    assert content["otherData"]["simulated_s"] == small.elapsed / 10**12
    assert data[4:8] == b"\0\0\0\0", "no time of writing"
    assert not data[3] & 8, "no name of a file"
