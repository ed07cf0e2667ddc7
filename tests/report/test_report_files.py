"""Results as files: whole or not at all, and what is in them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from importlib.metadata import version
from pathlib import Path

import pytest

from bpusim import Result, Scenario, load_scenario, simulate
from bpusim.errors import BpusimError
from bpusim.report import folder as folder_module
from bpusim.report.files import streams_csv, summary_json
from bpusim.report.folder import check_folder, write_folder

TRACES = Path(__file__).resolve().parents[2] / "traces"
SCENARIO = """\
machine: bpu80
models:
  chat: {{trace: '{traces}/qwen2.5-0.5b-int4.trace', cores: bpu0}}
  eye:  {{trace: '{traces}/resnet50-992.trace', cores: bpu1}}
streams:
  alice:  {{chat: chat, prompt: 8, output: 3, requests: 2}}
  once:   {{chat: chat, prompt: 8, output: 1, start: 1 ms}}
  camera: {{frames: eye, rate: 10 Hz, count: 2}}
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("scenario")
    (folder / "parent.yaml").write_text(SCENARIO.format(traces=TRACES))
    (folder / "mixed.yaml").write_text("extends: parent.yaml\nabout: Mixed\n")
    return load_scenario(folder / "mixed.yaml", ["engine.seed=5"])


@pytest.fixture(scope="module")
def result(scenario: Scenario) -> Result:
    return simulate(scenario, records=True)


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# --- the summary and the table of streams


def test_the_summary_is_the_results_dictionary(result: Result) -> None:
    assert json.loads(summary_json(result)) == result.to_dict()


def test_the_summary_says_its_schema(result: Result) -> None:
    assert json.loads(summary_json(result))["schema"] == "bpusim-summary/1"


def test_the_summary_ends_with_a_line_break(result: Result) -> None:
    assert summary_json(result).endswith("}\n")


def test_streams_of_both_kinds_share_a_table(result: Result) -> None:
    rows = _rows(streams_csv(result))
    assert [(r["stream"], r["kind"]) for r in rows] == [("alice", "chat"), ("once", "chat"), ("camera", "frames")]


def test_what_a_stream_does_not_have_is_empty(result: Result) -> None:
    _, once, camera = _rows(streams_csv(result))
    assert camera["tokens"] == once["tpot_mean_ms"] == ""


def test_causes_are_columns(result: Result) -> None:
    alice, _, camera = _rows(streams_csv(result))
    told = result.to_dict()["streams"]
    assert float(alice["dispatch_ms"]) == told["alice"]["breakdown_ms"]["dispatch"]
    assert float(camera["compute_ms"]) == told["camera"]["breakdown_ms"]["compute"]


# --- the folder


@pytest.fixture
def folder(tmp_path: Path, result: Result, scenario: Scenario) -> Path:
    path = tmp_path / "out"
    write_folder(path, result, scenario, ["engine.seed=5"])
    return path


def test_requests_are_rows_by_arrival(folder: Path) -> None:
    rows = _rows((folder / "requests.csv").read_text())
    assert [(r["stream"], r["request"]) for r in rows] == [("alice", "0"), ("once", "0"), ("alice", "1")]


def test_a_request_has_its_times(folder: Path) -> None:
    """End to end is the first token and two more."""
    first = _rows((folder / "requests.csv").read_text())[0]
    assert (first["prompt_tokens"], first["output_tokens"], first["arrival_s"]) == ("8", "3", "0.0")
    total = float(first["ttft_ms"]) + 2 * float(first["tpot_ms"])
    assert float(first["e2e_ms"]) == pytest.approx(total, abs=1e-6)


def test_a_request_of_one_token_has_no_time_between_tokens(folder: Path) -> None:
    assert _rows((folder / "requests.csv").read_text())[1]["tpot_ms"] == ""


def test_the_manifest_names_versions_seed_and_overrides(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["versions"]["bpusim"] == version("bpusim")
    assert (manifest["seed"], manifest["overrides"]) == (5, ["engine.seed=5"])


def test_the_manifest_names_every_input_by_hash(folder: Path, scenario: Scenario) -> None:
    """The scenario, its parent, and both traces."""
    inputs = json.loads((folder / "manifest.json").read_text())["inputs"]
    assert {Path(name).name for name in inputs} == {
        "mixed.yaml",
        "parent.yaml",
        "qwen2.5-0.5b-int4.trace",
        "resnet50-992.trace",
    }
    assert inputs["mixed.yaml"] == hashlib.sha256(scenario.file.read_bytes()).hexdigest()


def test_the_manifest_has_as_many_events_as_the_run(folder: Path, result: Result) -> None:
    assert json.loads((folder / "manifest.json").read_text())["events"] == result.events > 0


def test_files_are_readable_by_others(folder: Path) -> None:
    """A temporary folder is private; the result is not."""
    assert folder.stat().st_mode & 0o777 == 0o755


def test_nothing_else_is_left_beside_the_folder(folder: Path) -> None:
    assert [p.name for p in folder.parent.iterdir()] == ["out"]


def test_a_failure_while_writing_leaves_nothing(
    tmp_path: Path, result: Result, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, say, at the third file."""

    def fails(self: Path, *_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fails)
    with pytest.raises((OSError, BpusimError)):
        write_folder(tmp_path / "out", result, scenario, [])
    assert list(tmp_path.iterdir()) == []


def test_a_failure_while_writing_is_an_error_a_user_can_read(
    tmp_path: Path, result: Result, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Path, *_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fails)
    with pytest.raises(BpusimError, match="No space left on device"):
        write_folder(tmp_path / "out", result, scenario, [])


def test_a_failure_while_writing_keeps_the_earlier_result(
    folder: Path, result: Result, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder / "summary.json").read_bytes()

    def fails(_: Result) -> str:
        raise RuntimeError

    monkeypatch.setattr(folder_module, "summary_json", fails)
    with pytest.raises(RuntimeError):
        write_folder(folder, result, scenario, [])
    assert (folder / "summary.json").read_bytes() == before


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path, result: Result, scenario: Scenario) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BpusimError, match="cannot write results"):
        write_folder(tmp_path / "file" / "out", result, scenario, [])


# --- what may be replaced


def test_a_folder_that_is_not_there_passes(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")


def test_an_earlier_result_passes(folder: Path) -> None:
    check_folder(folder)


def test_a_folder_with_something_else_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("")
    with pytest.raises(BpusimError, match="the folder holds something other than a result"):
        check_folder(tmp_path)


def test_a_folder_with_a_foreign_manifest_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"manifest_version": 3}')
    with pytest.raises(BpusimError):
        check_folder(tmp_path)


def test_a_file_does_not_pass(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(BpusimError, match="this is a file, not a folder for results"):
        check_folder(path)


def test_a_run_without_chats_has_a_folder_too(tmp_path: Path) -> None:
    """Its requests.csv has no row."""
    text = SCENARIO.format(traces=TRACES).split("streams:")[0]
    (tmp_path / "a.yaml").write_text(text + "streams: {camera: {frames: eye, rate: 10 Hz, count: 2}}\n")
    scenario = load_scenario(tmp_path / "a.yaml")
    write_folder(tmp_path / "out", simulate(scenario, records=True), scenario, [])
    assert _rows((tmp_path / "out" / "requests.csv").read_text()) == []
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["streams"]["camera"]["frames"] == 2
