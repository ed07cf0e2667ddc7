"""What the command line prints: tables, JSON, CSV."""

from __future__ import annotations

import csv
import io
import json
import shutil

from desks import TRACES, Desk


def test_json_has_the_keys_that_others_rely_on(desk: Desk) -> None:
    data = desk.json()
    assert {"schema", "scenario", "simulated_s", "events", "streams", "total", "cores", "dram", "memory"} <= set(data)
    assert data["warnings"][0]["code"] == "idle-core"
    assert set(data["total"]) == {"decode_tokens_per_s", "tokens_per_s", "goodput_per_s", "fairness"}
    assert {"resident_bytes", "usable_bytes"} <= set(data["memory"])


def test_json_of_a_chat_has_the_keys_that_others_rely_on(desk: Desk) -> None:
    chat = desk.json()["streams"]["alice"]
    assert chat["kind"] == "chat"
    assert {
        "tokens",
        "ttft_mean_ms",
        "tpot_mean_ms",
        "itl_p99_ms",
        "decode_tokens_per_s",
        "tokens_per_s",
        "breakdown_ms",
    } <= set(chat)
    assert {
        "compute",
        "dram",
        "contention",
        "dispatch",
        "host",
        "fallback",
        "handover",
        "queueing",
        "other",
    } <= set(chat["breakdown_ms"])


def test_json_of_a_camera_has_the_keys_that_others_rely_on(desk: Desk) -> None:
    shutil.copy(TRACES / "resnet50-992.trace", desk.folder / "small.trace")
    desk.change("chat: chat, prompt: 32, output: 4", "frames: chat, rate: 10 Hz, count: 3")
    camera = desk.json()["streams"]["alice"]
    assert (camera["kind"], camera["frames"]) == ("frames", 3)
    assert {"latency_mean_ms", "latency_p99_ms", "fps", "dropped"} <= set(camera)


def test_json_of_cores_and_dram_has_the_keys_that_others_rely_on(desk: Desk) -> None:
    data = desk.json()
    assert {
        "occupied_fraction",
        "mac_busy_fraction",
        "mac_issued_fraction",
        "mac_utilization",
        "calls",
        "load_log",
    } <= set(data["cores"]["bpu0"])
    assert {"read_bytes", "write_bytes", "achieved_bytes_per_s", "peak_fraction", "by_master"} <= set(data["dram"])
    assert set(data["dram"]["by_master"]) >= {"bpu0", "cpu"}


def test_json_is_json_without_nan(desk: Desk) -> None:
    """One token: there is no time between tokens, which is null and not NaN."""
    desk.change("output: 4", "output: 1")
    text = desk.run("--format", "json").stdout

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert json.loads(text, parse_constant=refuse)["streams"]["alice"]["tpot_mean_ms"] is None


def test_the_load_log_says_what_each_core_loaded(desk: Desk) -> None:
    cores = desk.json()["cores"]
    assert cores["bpu0"]["load_log"] == ["load success: chat: qwen2.5-0.5b-int4, 323.4 MB"]
    assert cores["bpu1"]["load_log"] == []


def test_csv_has_a_row_a_stream(desk: Desk) -> None:
    desk.change("output: 4}", "output: 4}\n  bob: {chat: chat, prompt: 8, output: 2}")
    rows = list(csv.DictReader(io.StringIO(desk.run("--format", "csv").stdout)))
    assert [r["stream"] for r in rows] == ["alice", "bob"]
    assert [r["tokens"] for r in rows] == ["4", "2"]


def test_csv_holds_the_breakdown(desk: Desk) -> None:
    (row,) = csv.DictReader(io.StringIO(desk.run("--format", "csv").stdout))
    data = desk.json()["streams"]["alice"]
    assert float(row["dram_ms"]) == data["breakdown_ms"]["dram"]
    assert float(row["ttft_dram_ms"]) == data["ttft_breakdown_ms"]["dram"]


def test_a_table_is_printed_by_default(desk: Desk) -> None:
    text = desk.run().stdout
    assert "A short talk" in text
    assert "alice" in text
    assert "TPOT" in text


def test_an_unknown_format_is_refused(desk: Desk) -> None:
    done = desk.bpusim("run", "s.yaml", "--format", "xml")
    assert done.exit_code == 2
    assert "xml" in done.stderr


def test_overrides_change_the_run(desk: Desk) -> None:
    assert desk.json("--set", "streams.alice.output=7")["streams"]["alice"]["tokens"] == 7


def test_markdown_is_the_table_for_an_issue(desk: Desk) -> None:
    text = desk.run("--format", "markdown").stdout
    assert text.startswith("## s: ")
    assert "\n**Chat streams**\n\n| stream | tokens |" in text
