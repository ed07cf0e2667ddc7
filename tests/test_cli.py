"""The command line: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner, Result

from bpusim.cli import main

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "traces"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SCENARIO = """\
about: A short talk
machine: bpu80
models:
  chat: {trace: small.trace, cores: bpu0}
streams:
  alice: {chat: chat, prompt: 32, output: 4}
"""


class Desk:
    """A folder with a scenario ``s.yaml``, its trace ``small.trace``, and the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("s.yaml", SCENARIO)
        shutil.copy(TRACES / "qwen2.5-0.5b-int4.trace", folder / "small.trace")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def change(self, old: str, new: str) -> None:
        assert old in SCENARIO
        self.write("s.yaml", SCENARIO.replace(old, new))

    def trace(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Rewrite the header of the trace."""
        path = self.folder / "small.trace"
        first, rest = path.read_text(encoding="utf-8").split("\n", 1)
        header = json.loads(first)
        change(header)
        path.write_text(json.dumps(header) + "\n" + rest, encoding="utf-8")

    def bpusim(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)

    def run(self, *arguments: str) -> Result:
        done = self.bpusim("run", "s.yaml", *arguments)
        assert done.exit_code == 0, done.output
        return done

    def json(self, *arguments: str) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.run("--format", "json", *arguments).stdout)
        return data

    def refused(self, *arguments: str) -> str:
        """The message of ``bpusim run s.yaml -o out``: exit 2, on stderr only, no traceback, nothing written."""
        done = self.bpusim("run", "s.yaml", "-o", "out", *arguments)
        assert done.exit_code == 2, done.output
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert not (self.folder / "out").exists()
        assert not [p for p in self.folder.iterdir() if p.name.startswith(".")]
        return done.stderr


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)


# --- bad input: one message with file and line, exit 2, nothing written


def test_an_unknown_key_is_refused_where_it_stands(desk: Desk) -> None:
    desk.change("output: 4", "outptu: 4")
    assert desk.refused() == ("s.yaml:6:35: error: streams.alice: unknown key 'outptu'; did you mean 'output'?\n")


def test_a_wrong_unit_is_refused_where_it_stands(desk: Desk) -> None:
    desk.change("output: 4", "output: 4, start: 3 GB")
    message = desk.refused()
    assert re.match(r"s\.yaml:6:\d+: error: streams\.alice\.start: ", message)
    assert message.count("error:") == 1


def test_a_bare_number_for_a_quantity_is_refused_where_it_stands(desk: Desk) -> None:
    desk.change("output: 4", "output: 4, start: 3")
    message = desk.refused()
    assert re.match(r"s\.yaml:6:\d+: error: streams\.alice\.start: .*no unit", message)


def test_a_duplicate_key_is_refused_where_it_stands(desk: Desk) -> None:
    desk.change("about: A short talk", "about: A short talk\nabout: Another")
    message = desk.refused()
    assert message.startswith("s.yaml:2:1: error: ")
    assert "about" in message


def test_a_missing_scenario_is_refused(desk: Desk) -> None:
    (desk.folder / "s.yaml").unlink()
    message = desk.refused()
    assert message.startswith("s.yaml: error: ")
    assert message.count("error:") == 1


def test_a_missing_trace_is_refused_where_it_is_named(desk: Desk) -> None:
    desk.change("small.trace", "smal.trace")
    message = desk.refused()
    assert message.startswith("s.yaml:4:17: error: models.chat.trace: cannot read trace 'smal.trace': no such file")
    assert "small.trace" in message


def test_a_missing_parent_is_refused_where_it_is_named(desk: Desk) -> None:
    desk.write("s.yaml", "extends: no.yaml\n")
    assert desk.refused().startswith("s.yaml:1:10: error: ")


def test_a_scenario_that_is_a_folder_is_refused(desk: Desk) -> None:
    (desk.folder / "s.yaml").unlink()
    (desk.folder / "s.yaml").mkdir()
    assert "s.yaml" in desk.refused()


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_trace_is_refused_at_the_line_where_it_ends(desk: Desk, keep: float) -> None:
    path = desk.folder / "small.trace"
    text = path.read_text()
    cut = text[: int(len(text) * keep)]
    path.write_text(cut)
    line = cut.count("\n") + 1
    assert desk.refused() == (f"{path}:{line}: error: the trace is cut short in this line; copy or compile it again\n")


def test_a_trace_without_its_last_lines_is_refused(desk: Desk) -> None:
    path = desk.folder / "small.trace"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    message = desk.refused()
    assert message.startswith(f"{path}:{len(lines) - 1}: error: ")
    assert "cut short" in message


def test_an_empty_trace_is_refused(desk: Desk) -> None:
    desk.write("small.trace", "")
    assert desk.refused().startswith(f"{desk.folder / 'small.trace'}:")


def test_a_newer_trace_schema_is_refused(desk: Desk) -> None:
    desk.trace(lambda header: header.update(bpusim_trace=99))
    assert desk.refused() == (
        f"{desk.folder / 'small.trace'}:1: error: trace schema 99 is newer than 1, the newest this bpusim reads; "
        "update bpusim or compile the model again\n"
    )


def test_a_trace_for_another_core_is_refused_where_it_is_named(desk: Desk) -> None:
    message = desk.refused("--set", "machine.cores.mac.rows=64")
    assert message.startswith("s.yaml:4:17: error: the trace of model 'chat' is compiled for another core: ")
    assert "mac.rows 128 where the machine has 64" in message


def test_a_clock_does_not_make_another_core(desk: Desk) -> None:
    """Traces count cycles: they hold at every clock."""
    desk.run("--set", "machine.cores.clock=600 MHz")


@pytest.mark.parametrize(
    "change",
    [
        ("machine.cores.mac.rows=64",),
        ("machine.cores.scratchpad=2 MiB", "machine.cores.vector.lanes=32"),
        ("machine.cores.mac.rate={int8: 1, int16: 1/2}",),
        ("machine.cores.vector.cycles.exp=4", "machine.cores.toolchain='2.0'"),
    ],
)
def test_the_compile_command_in_the_refusal_works(desk: Desk, change: tuple[str, ...]) -> None:
    """Copied to a shell beside the model, it makes the trace that the machine wants."""
    shutil.copy(TRACES / "resnet50-992.trace", desk.folder / "small.trace")
    shutil.copy(LIGHT / "light_resnet50.onnx", desk.folder)
    desk.write(
        "s.yaml",
        "machine: bpu80\nmodels: {eye: {trace: small.trace, cores: bpu0}}\n"
        "streams: {cam: {frames: eye, rate: 10 Hz, count: 2}}\n",
    )
    sets = [word for c in change for word in ("--set", c)]
    message = desk.refused(*sets)
    command = re.search(r"bpusim compile .*", message)
    assert command
    import shlex

    words = shlex.split(command[0])
    done = desk.bpusim(*words[1:])
    assert done.exit_code == 0, done.output
    shutil.move(words[words.index("-o") + 1], "small.trace")
    desk.run(*sets)


def test_a_model_larger_than_memory_is_refused_with_the_table(desk: Desk) -> None:
    desk.write(
        "s.yaml",
        SCENARIO.replace("small.trace", str(TRACES / "qwen2.5-7b-int4.trace")).replace(
            "streams:", f"  more: {{trace: '{TRACES / 'qwen2.5-3b-int8.trace'}', cores: bpu1}}\nstreams:"
        ),
    )
    message = desk.refused()
    assert re.match(r"s\.yaml:4:3: error: the models need [\d.]+ GB and 5\.5 GB are usable; take a smaller", message)
    rows = message.splitlines()[1:]
    assert rows[0].split() == ["model", "weights", "KV", "workspace", "total"]
    assert [row.split()[0] for row in rows[1:]] == ["chat", "more"]


def test_usable_memory_decides_what_fits(desk: Desk) -> None:
    """0.5B: 323 MB of weights and 4096 x 12,288 B of cache need 374 MB and a workspace."""
    assert "are usable" in desk.refused("--set", "machine.dram.usable=373 MB")


def test_an_absent_core_is_refused_where_it_is_named(desk: Desk) -> None:
    desk.change("cores: bpu0", "cores: bpu2")
    assert desk.refused() == (
        "s.yaml:4:37: error: models.chat.cores: the machine has no core 'bpu2'; did you mean 'bpu1'?\n"
    )


def test_a_prompt_beyond_the_context_is_refused_where_it_stands(desk: Desk) -> None:
    desk.change("prompt: 32", "prompt: 4093")
    assert desk.refused() == (
        "s.yaml:6:31: error: prompt 4093 and output 4 exceed the context of 4096 tokens; "
        "shorten them, or compile the model with a longer --context\n"
    )


def test_a_prompt_that_just_fits_the_context_is_taken(desk: Desk) -> None:
    """The model's limit set to 36 = 32 + 4."""
    desk.change("cores: bpu0", "cores: bpu0, context: 36")
    assert desk.run().exit_code == 0


def test_a_context_beyond_the_traces_is_refused(desk: Desk) -> None:
    desk.change("cores: bpu0", "cores: bpu0, context: 4097")
    assert desk.refused().startswith("s.yaml:4:52: error: a context of 4097 exceeds the 4096 the trace is compiled for")


def test_a_chat_with_a_model_of_frames_is_refused(desk: Desk) -> None:
    shutil.copy(TRACES / "resnet50-992.trace", desk.folder / "small.trace")
    assert desk.refused().startswith("s.yaml:6:17: error: model 'chat' cannot serve chat")


def test_a_split_of_too_many_layers_is_refused(desk: Desk) -> None:
    desk.change("cores: bpu0", "cores: [bpu0, bpu1], split: [20, 20]")
    message = desk.refused()
    assert message.startswith("s.yaml:4:")
    assert "24" in message


def test_all_problems_of_a_scenario_are_reported_at_once(desk: Desk) -> None:
    desk.write("s.yaml", SCENARIO.replace("output: 4", "outptu: 4").replace("bpu0", "bpu7").replace("32", "-1"))
    lines = desk.refused().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("s.yaml:") for line in lines)


def test_a_wrong_override_names_itself(desk: Desk) -> None:
    message = desk.refused("--set", "machine.cores.clok=1 GHz")
    assert message.startswith("--set machine.cores.clok: error: ")
    assert "did you mean 'clock'?" in message


def test_an_unknown_dram_preset_is_refused(desk: Desk) -> None:
    assert "LPDDR4X-3200x64" in desk.refused("--set", "machine.dram.preset=LPDDR4X-3200x46")


def test_a_refusal_in_a_process_of_its_own(desk: Desk) -> None:
    """The real thing: exit code 2, the message on stderr, nothing on stdout."""
    desk.change("output: 4", "outptu: 4")
    done = subprocess.run(
        [sys.executable, "-c", "from bpusim.cli import main; main()", "run", "s.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "s.yaml:6:35: error: streams.alice: unknown key 'outptu'; did you mean 'output'?\n"


# --- output


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


# --- the folder


def test_a_folder_holds_three_files(desk: Desk) -> None:
    desk.run("-o", "out")
    assert sorted(p.name for p in (desk.folder / "out").iterdir()) == ["manifest.json", "requests.csv", "summary.json"]


def test_the_folder_may_be_deep(desk: Desk) -> None:
    desk.run("-o", "a/b/out")
    assert (desk.folder / "a" / "b" / "out" / "summary.json").is_file()


def test_the_summary_in_the_folder_is_what_json_prints(desk: Desk) -> None:
    printed = desk.run("-o", "out", "--format", "json").stdout
    assert (desk.folder / "out" / "summary.json").read_text() == printed


def test_an_earlier_result_is_replaced(desk: Desk) -> None:
    desk.run("-o", "out")
    desk.run("-o", "out", "--set", "streams.alice.output=2")
    assert json.loads((desk.folder / "out" / "summary.json").read_text())["streams"]["alice"]["tokens"] == 2


def test_an_empty_folder_is_taken(desk: Desk) -> None:
    (desk.folder / "out").mkdir()
    desk.run("-o", "out")
    assert (desk.folder / "out" / "summary.json").is_file()


def test_a_folder_with_something_else_is_refused_and_kept(desk: Desk) -> None:
    (desk.folder / "mine").mkdir()
    precious = desk.write("mine/thesis.txt", "years of work")
    done = desk.bpusim("run", "s.yaml", "-o", "mine")
    assert (done.exit_code, done.stderr) == (
        2,
        "mine: error: the folder holds something other than a result: thesis.txt; name a new or empty folder\n",
    )
    assert precious.read_text() == "years of work"


def test_a_foreign_manifest_does_not_make_a_folder_ours(desk: Desk) -> None:
    """Web projects and extensions have a manifest.json too: such a folder must never be replaced."""
    (desk.folder / "mine").mkdir()
    desk.write("mine/manifest.json", '{"name": "my browser extension"}')
    precious = desk.write("mine/thesis.txt", "years of work")
    done = desk.bpusim("run", "s.yaml", "-o", "mine")
    assert precious.exists()
    assert done.exit_code == 2


def test_a_file_added_to_a_result_is_not_lost(desk: Desk) -> None:
    """Notes beside an earlier result are the user's."""
    desk.run("-o", "out")
    notes = desk.write("out/notes.txt", "what I saw")
    desk.bpusim("run", "s.yaml", "-o", "out")
    assert notes.exists()


def test_the_working_directory_as_folder_is_no_crash(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "here").mkdir()
    monkeypatch.chdir(desk.folder / "here")
    done = CliRunner().invoke(main, ["run", "../s.yaml", "-o", "."])
    assert not done.exception or isinstance(done.exception, SystemExit)


def test_a_file_in_place_of_the_folder_is_refused(desk: Desk) -> None:
    desk.write("taken", "")
    done = desk.bpusim("run", "s.yaml", "-o", "taken")
    assert (done.exit_code, done.stderr) == (
        2,
        "taken: error: this is a file, not a folder for results; name another folder\n",
    )


def test_a_refused_run_keeps_the_earlier_result(desk: Desk) -> None:
    desk.run("-o", "out")
    before = (desk.folder / "out" / "summary.json").read_bytes()
    desk.change("output: 4", "outptu: 4")
    assert desk.bpusim("run", "s.yaml", "-o", "out").exit_code == 2
    assert (desk.folder / "out" / "summary.json").read_bytes() == before


# --- warnings


def _warnings(desk: Desk, *arguments: str) -> dict[str, str]:
    return {w["code"]: w["text"] for w in desk.json(*arguments)["warnings"]}


def test_an_idle_core_is_a_warning_that_names_the_fix(desk: Desk) -> None:
    text = _warnings(desk)["idle-core"]
    assert "core bpu1 has no model" in text
    assert "cores: bpu1" in text


def test_a_model_that_no_stream_uses_is_a_warning(desk: Desk) -> None:
    desk.change("models:\n", "models:\n  spare: {trace: small.trace, cores: bpu1}\n")
    assert _warnings(desk) == {
        "unused-model": "no stream uses model 'spare'; it takes memory and its cores wait for nothing"
    }


def test_two_busy_cores_are_no_warning(desk: Desk) -> None:
    desk.change("cores: bpu0", "cores: [bpu0, bpu1], split: even")
    assert _warnings(desk) == {}


def _pinned(desk: Desk, cores: str) -> None:
    """SqueezeNet compiled for ``cores``, asked to run on bpu1."""
    done = desk.bpusim("compile", str(LIGHT / "light_squeezenet.onnx"), "--cores", cores, "-o", "small.trace")
    assert done.exit_code == 0
    desk.write(
        "s.yaml",
        "machine: bpu80\nmodels: {eye: {trace: small.trace, cores: bpu1}}\n"
        "streams: {cam: {frames: eye, rate: 10 Hz, count: 2}}\n",
    )


def test_a_trace_pinned_elsewhere_is_a_warning_that_names_the_fix(desk: Desk) -> None:
    _pinned(desk, "0")
    text = _warnings(desk)["pinned-trace"]
    assert "model 'eye' asks for bpu1, but its trace is compiled for cores [0] and stays there" in text
    assert "--cores 1" in text


def test_a_pinned_trace_stays_where_it_is_pinned(desk: Desk) -> None:
    """The field's surprise: both models end up on core 0."""
    _pinned(desk, "0")
    cores = desk.json()["cores"]
    assert (cores["bpu0"]["calls"], cores["bpu1"]["calls"]) == (2, 0)


def test_a_trace_pinned_where_it_is_asked_is_no_warning(desk: Desk) -> None:
    _pinned(desk, "1")
    assert "pinned-trace" not in _warnings(desk)


def test_a_trace_pinned_to_a_core_that_is_not_there_is_refused(desk: Desk) -> None:
    _pinned(desk, "3")
    assert "pinned to a core this machine lacks" in desk.refused()


def test_a_trace_that_may_run_on_either_core_is_no_warning(desk: Desk) -> None:
    """Compiled for 0,1 and asked on bpu1: it can go there, and does."""
    _pinned(desk, "0,1")
    data = desk.json()
    assert [w["code"] for w in data["warnings"]] == ["idle-core"]
    assert data["cores"]["bpu1"]["calls"] == 2


def test_a_dash_in_a_models_name_is_a_warning_that_names_the_fix(desk: Desk) -> None:
    desk.write("s.yaml", SCENARIO.replace("  chat: {", "  my-chat: {").replace("chat: chat", "chat: my-chat"))
    text = _warnings(desk)["model-name"]
    assert "model name 'my-chat' is dropped" in text
    assert "my_chat" in text


def test_warnings_are_printed_with_the_table(desk: Desk) -> None:
    assert "idle-core" in desk.run().output


# --- validate, schema, sweep, help


def test_validate_says_what_is_good(desk: Desk) -> None:
    done = desk.bpusim("validate", "s.yaml")
    assert done.exit_code == 0
    assert done.stdout.startswith("s.yaml: good, 1 model")


def test_validate_warns(desk: Desk) -> None:
    assert "bpu1" in desk.bpusim("validate", "s.yaml").stderr


def test_validate_refuses_as_run_does(desk: Desk) -> None:
    desk.change("prompt: 32", "prompt: 5000")
    done = desk.bpusim("validate", "s.yaml")
    assert done.exit_code == 2
    assert done.stderr == desk.refused()


def test_validate_takes_overrides(desk: Desk) -> None:
    assert desk.bpusim("validate", "s.yaml", "--set", "streams.alice.prompt=5000").exit_code == 2


def test_schema_is_the_json_schema_of_scenarios(desk: Desk) -> None:
    schema = json.loads(desk.bpusim("schema").stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert {"machine", "models", "streams", "extends"} <= set(schema["properties"])


def test_sweep_prints_a_row_a_point(desk: Desk) -> None:
    done = desk.bpusim(
        "sweep",
        "s.yaml",
        "--vary",
        "streams.alice.output=2,3",
        "--vary",
        "machine.cores.clock=600 MHz,1.2207 GHz",
        "--measure",
        "streams.alice.tokens",
    )
    assert done.exit_code == 0, done.output
    rows = list(csv.reader(io.StringIO(done.stdout)))
    assert rows[0] == ["streams.alice.output", "machine.cores.clock", "streams.alice.tokens"]
    assert [(r[0], r[2]) for r in rows[1:]] == [("2", "2"), ("2", "2"), ("3", "3"), ("3", "3")]


def test_sweep_refuses_an_unknown_figure(desk: Desk) -> None:
    done = desk.bpusim("sweep", "s.yaml", "--vary", "streams.alice.output=2", "--measure", "streams.alice.tokns")
    assert done.exit_code == 2
    assert "did you mean 'tokens'?" in done.stderr


def test_sweep_refuses_an_unknown_path(desk: Desk) -> None:
    done = desk.bpusim("sweep", "s.yaml", "--vary", "streams.alice.outptu=2")
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["output", "=2", "streams.alice.output="])
def test_sweep_refuses_what_varies_nothing(desk: Desk, text: str) -> None:
    done = desk.bpusim("sweep", "s.yaml", "--vary", text)
    assert done.exit_code == 2
    assert "varies nothing" in done.stderr


@pytest.mark.parametrize("command", ["run", "validate", "schema", "compile", "sweep"])
def test_every_command_has_help(desk: Desk, command: str) -> None:
    done = desk.bpusim(command, "-h")
    assert done.exit_code == 0
    assert "Usage:" in done.stdout


def test_the_version_is_the_packages(desk: Desk) -> None:
    import bpusim

    assert desk.bpusim("--version").stdout.strip().endswith(bpusim.__version__)


def test_no_command_lists_them(desk: Desk) -> None:
    done = CliRunner().invoke(main, ["-h"])
    assert {"run", "validate", "schema", "compile", "sweep"} <= set(done.stdout.split())
