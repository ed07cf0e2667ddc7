"""The committed traces: each is made again, byte for byte, from its source by the command in its header."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bpusim.cli import main

TRACES = Path(__file__).resolve().parents[2] / "traces"
FROM_EXPORTS = [
    "qwen2.5-0.5b-int4",
    "qwen2.5-1.5b-int4",
    "qwen2.5-3b-int4",
    "qwen2.5-3b-int8",
    "qwen2.5-3b-int4-fallback",
]
ALWAYS = ["qwen2.5-7b-int4", "resnet50-992", "wake_word"]

Find = Callable[[str], Path]


def _header(trace: str) -> dict[str, Any]:
    with open(TRACES / f"{trace}.trace", encoding="utf-8") as file:
        header: dict[str, Any] = json.loads(file.readline())
    return header


def _again(trace: str, source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bytes that the command in the header of ``trace`` makes in ``folder``, beside its source."""
    import shlex

    shutil.copy(source, folder)
    monkeypatch.chdir(folder)
    program, *arguments = shlex.split(_header(trace)["command"])
    assert program == "bpusim"
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return (folder / f"{trace}.trace").read_bytes()


@pytest.mark.parametrize("trace", FROM_EXPORTS)
def test_the_command_in_the_header_makes_a_language_model_again(
    export: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trace: str
) -> None:
    source = export(f"llm/{_header(trace)['source']['file']}")
    assert _again(trace, source, tmp_path, monkeypatch) == (TRACES / f"{trace}.trace").read_bytes()


def test_the_command_in_the_header_makes_the_7b_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = TRACES / "models" / "qwen2.5-7b.config.json"
    made = _again("qwen2.5-7b-int4", source, tmp_path, monkeypatch)
    assert made == (TRACES / "qwen2.5-7b-int4.trace").read_bytes()


def test_the_command_in_the_header_makes_the_detector_again(
    light: Find, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _again("resnet50-992", light("resnet50"), tmp_path, monkeypatch)
    assert made == (TRACES / "resnet50-992.trace").read_bytes()


@pytest.mark.parametrize("trace", FROM_EXPORTS + ALWAYS)
def test_the_source_is_known_by_its_hash(trace: str) -> None:
    source = _header(trace)["source"]
    assert len(source["sha256"]) == 64
    assert "/" not in source["file"]


@pytest.mark.parametrize("trace", FROM_EXPORTS + ALWAYS)
def test_a_committed_trace_names_no_folder_of_the_machine_that_made_it(trace: str) -> None:
    text = (TRACES / f"{trace}.trace").read_text(encoding="utf-8")
    assert str(Path.home()) not in text
    assert not any(word.startswith("/") for word in _header(trace)["command"].split())


def test_make_sh_makes_every_committed_trace() -> None:
    script = (TRACES / "make.sh").read_text()
    script = script.replace("$size", "0.5b") + script.replace("$size", "1.5b") + script.replace("$size", "3b")
    assert {p.stem for p in TRACES.glob("*.trace")} == set(FROM_EXPORTS + ALWAYS)
    assert all(f"{t}.trace" in script for t in FROM_EXPORTS + ALWAYS)


def test_make_sh_is_a_script_a_shell_accepts() -> None:
    assert subprocess.run(["sh", "-n", TRACES / "make.sh"], check=False).returncode == 0


# --- the command and its options


@pytest.fixture
def tool(tmp_path: Path, light: Find, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``tool(*options)``: ``bpusim compile`` of SqueezeNet to s.trace in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(light("squeezenet"), "s.onnx")

    def run(*options: str, model: str = "s.onnx", out: str = "s.trace") -> Any:
        return CliRunner().invoke(main, ["compile", model, "-o", out, *options], catch_exceptions=False)

    return run


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--quant", "int8", "--activations", "int8"],
        ["--bind", "data_0=1x3x96x96", "--fallback-op", "Softmax"],
        ["--set", "machine.cores.vector.lanes=32", "--cores", "0,1"],
        ["--name", "a name with spaces", "--strict"],
    ],
)
def test_the_command_in_the_header_repeats_its_options(
    tool: Callable[..., Any], tmp_path: Path, options: list[str]
) -> None:
    """Run again from the header, every option gives the same file."""
    import shlex

    assert tool(*options).exit_code == 0
    first = (tmp_path / "s.trace").read_bytes()
    (tmp_path / "s.trace").unlink()
    command = json.loads(first.splitlines()[0])["command"]
    done = CliRunner().invoke(main, shlex.split(command)[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "s.trace").read_bytes() == first


def test_the_report_says_what_was_compiled(tool: Callable[..., Any]) -> None:
    """0.349 GMAC, 1,235,496 parameters in fp32 and one call."""
    text = tool().output
    assert "s.trace: s, 4.942 MB of weights, plan keep" in text
    assert "frame: 0.349 GMAC" in text
    assert "1 call" in text


def test_the_report_lists_what_falls_back(tool: Callable[..., Any]) -> None:
    assert "on the CPU: 1 x Softmax (forced by --fallback-op)" in tool("--fallback-op", "Softmax").output


def test_the_report_lists_views(tool: Callable[..., Any]) -> None:
    assert "views, no work: 1 x Dropout" in tool().output


def test_the_report_lists_what_spills(tool: Callable[..., Any]) -> None:
    assert "activation tensors do not stay on chip" in tool("--set", "machine.cores.activations=64 KiB").output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bind", "data_0"], "--bind data_0: not a size; write NAME=64, or INPUT=1x3x224x224"),
        (["--bind", "data_0=1x3xAx4"], "not a size"),
        (["--bind", "=4"], "not a size"),
        (["--bind", "data_9=1x3x64x64"], "the model has no input 'data_9'"),
        (["--cores", "bpu0"], "--cores bpu0: not core numbers; write 0, or 0,1, or any"),
        (["--quant", "int5"], "unknown plan 'int5'"),
        (["--fallback-op", "Softmx"], "no op of type 'Softmx'; did you mean 'Softmax'?"),
        (["--until", "nothing"], "no node makes 'nothing'"),
        (["--machine", "bpu81"], "unknown machine preset 'bpu81'; did you mean 'bpu80'?"),
        (["--chunk", "0"], "a chunk of 0 tokens"),
    ],
)
def test_a_wrong_option_is_one_message_and_no_file(
    tool: Callable[..., Any], tmp_path: Path, options: list[str], message: str
) -> None:
    done = tool(*options)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("error:") == 1
    assert not (tmp_path / "s.trace").exists()


def test_a_folder_that_is_not_there_is_an_error_before_compiling(tool: Callable[..., Any]) -> None:
    done = tool(out="no/s.trace")
    assert (done.exit_code, done.stderr) == (
        2,
        "no/s.trace: error: the folder does not exist; make it: mkdir -p no\n",
    )


def test_an_output_that_is_a_folder_is_an_error(tool: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    done = tool(out="taken")
    assert done.exit_code == 2
    assert "taken" in done.stderr


def test_a_model_that_is_not_there_is_an_error(tool: Callable[..., Any]) -> None:
    done = tool(model="no.onnx")
    assert (done.exit_code, done.stderr) == (
        2,
        "no.onnx: error: cannot read the model: No such file or directory\n",
    )


def test_a_failed_compilation_keeps_the_earlier_trace(tool: Callable[..., Any], tmp_path: Path) -> None:
    tool()
    before = (tmp_path / "s.trace").read_bytes()
    tool("--quant", "int5")
    assert (tmp_path / "s.trace").read_bytes() == before


def test_pinned_cores_stand_in_the_header(tool: Callable[..., Any], tmp_path: Path) -> None:
    tool("--cores", "0")
    assert json.loads((tmp_path / "s.trace").read_text().splitlines()[0])["cores"] == [0]


@pytest.mark.parametrize("arguments", [[], ["s.onnx", "--llm-config", "c.json"]])
def test_a_model_or_a_configuration_and_not_both(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["compile", *arguments, "-o", "x.trace"])
    assert done.exit_code == 2
    assert "name an ONNX MODEL, or an LLM by --llm-config, and not both" in done.stderr
