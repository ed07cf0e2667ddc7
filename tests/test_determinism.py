"""The same scenario gives the same bytes, in any process; and a run imports only what it needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCENARIO = """\
machine: bpu80
models:
  chat: {{trace: {traces}/qwen2.5-0.5b-int4.trace, cores: bpu0}}
  eye:  {{trace: {traces}/resnet50-992.trace, cores: bpu1}}
streams:
  alice:  {{chat: chat, prompt: 32, output: 6, requests: 2}}
  bob:    {{chat: chat, prompt: 40, output: 5, start: 7 ms}}
  camera: {{frames: eye, rate: 16 Hz}}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.yaml"
    path.write_text(SCENARIO.format(traces=ROOT / "traces"))
    return path


def _python(code: str, *arguments: str, hash_seed: str = "0") -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_RUN = "from bpusim.cli import main; main()"


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of one scenario run in two processes with different hash seeds."""
    folder = tmp_path_factory.mktemp("twice")
    path = folder / "mixed.yaml"
    path.write_text(SCENARIO.format(traces=ROOT / "traces"))
    for seed in ("1", "4242"):
        _python(_RUN, "run", str(path), "-o", str(folder / seed), hash_seed=seed)
    return folder / "1", folder / "4242"


def test_summary_is_the_same_bytes_under_another_hash_seed(twice: tuple[Path, Path]) -> None:
    one, other = ((folder / "summary.json").read_bytes() for folder in twice)
    assert one == other
    assert json.loads(one)["events"] > 0


FILES = ["manifest.json", "ops.csv", "report.html", "requests.csv", "series.json", "trace.json.gz"]


@pytest.mark.parametrize("name", FILES)
def test_the_other_files_are_the_same_bytes_under_another_hash_seed(twice: tuple[Path, Path], name: str) -> None:
    one, other = ((folder / name).read_bytes() for folder in twice)
    assert one == other


def test_a_second_run_in_one_process_is_the_same(scenario: Path) -> None:
    from bpusim import simulate
    from bpusim.report.files import summary_json

    assert summary_json(simulate(scenario)) == summary_json(simulate(scenario))


_POINTS: list[dict[str, object]] = [
    {"machine.cores.clock": "800 MHz"},
    {"streams.alice.prompt": 300, "engine.merge": "exact"},
    {"machine.cores.dma.port": "9 GB/s", "machine.cores.op_overhead": "3 us"},
    {},
]
_SUMMARY = """
import json, sys
from bpusim import simulate
from bpusim.report.files import summary_json
print(summary_json(simulate(sys.argv[1], set=json.loads(sys.argv[2]))), end="")
"""


def test_points_in_one_process_are_the_same_as_each_in_its_own(scenario: Path) -> None:
    """What is kept of a trace, a call or a plan for those behind it is keyed by all that it depends on."""
    from bpusim import simulate
    from bpusim.report.files import summary_json

    points = [*_POINTS, *reversed(_POINTS)]
    here = [summary_json(simulate(scenario, set=point)) for point in points]
    assert here[: len(_POINTS)] == here[: len(_POINTS) - 1 : -1]
    assert here[: len(_POINTS)] == [_python(_SUMMARY, str(scenario), json.dumps(point)) for point in _POINTS]
    assert len(set(here)) == len(_POINTS)


def _rewritten(path: Path, old: str, new: str) -> None:
    """The file says something else, at the same size and time."""
    text, at = path.read_text(), path.stat()
    assert old in text
    assert len(old) == len(new)
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))


def test_a_trace_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    from bpusim import simulate
    from bpusim.report.files import summary_json

    trace, path = tmp_path / "chat.trace", tmp_path / "chat.yaml"
    trace.write_bytes((ROOT / "traces" / "qwen2.5-0.5b-int4.trace").read_bytes())
    path.write_text(
        "machine: bpu80\nmodels:\n  chat: {trace: chat.trace, cores: bpu0}\n"
        "streams:\n  alice: {chat: chat, prompt: 32, output: 3}\n"
    )
    first = summary_json(simulate(path))
    cost = re.search(r'"cycles":\[\d+', trace.read_text())
    assert cost is not None
    other = cost[0][:-1] + ("8" if cost[0][-1] != "8" else "9")
    _rewritten(trace, cost[0], other)
    assert summary_json(simulate(path)) != first
    _rewritten(trace, other, cost[0])
    assert summary_json(simulate(path)) == first


def test_a_scenario_that_is_written_anew_is_read_anew(scenario: Path) -> None:
    from bpusim import simulate

    assert simulate(scenario).streams["alice"].tokens == 12
    _rewritten(scenario, "output: 6", "output: 7")
    assert simulate(scenario).streams["alice"].tokens == 14


def test_a_compiled_trace_is_the_same_bytes_under_another_hash_seed(tmp_path: Path) -> None:
    fields = json.loads((ROOT / "traces" / "models" / "qwen2.5-7b.config.json").read_text())
    config = tmp_path / "config.json"
    config.write_text(json.dumps(fields | {"num_hidden_layers": 3}))
    for seed in ("1", "4242"):
        (tmp_path / seed).mkdir()
        out = tmp_path / seed / "x.trace"
        arguments = ["compile", "--llm-config", str(config), "--quant", "int4", "--context", "4096", "-o", str(out)]
        _python(_RUN, *arguments, hash_seed=seed)
    assert (tmp_path / "1" / "x.trace").read_bytes() == (tmp_path / "4242" / "x.trace").read_bytes()


def test_the_summary_does_not_depend_on_where_the_scenario_lies(scenario: Path, tmp_path: Path) -> None:
    from bpusim import simulate
    from bpusim.report.files import summary_json

    moved = tmp_path / "elsewhere" / "mixed.yaml"
    moved.parent.mkdir()
    moved.write_text(scenario.read_text())
    assert summary_json(simulate(moved)) == summary_json(simulate(scenario))


# --- imports


_LOADED = """
import sys
from click.testing import CliRunner
from bpusim.cli import main
done = CliRunner().invoke(main, sys.argv[1:], catch_exceptions=False)
assert done.exit_code == 0, done.output
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_run_imports_no_onnx_networkx_or_matplotlib(scenario: Path, form: str) -> None:
    loaded = set(_python(_LOADED, "run", str(scenario), "--format", form).split())
    assert {"bpusim", "simpy"} <= loaded
    assert not loaded & {"onnx", "networkx", "matplotlib", "jinja2", "scipy", "pandas", "pytest"}


def test_a_folder_without_a_report_needs_no_matplotlib(scenario: Path, tmp_path: Path) -> None:
    loaded = set(_python(_LOADED, "run", str(scenario), "-o", str(tmp_path / "out"), "--no-report").split())
    assert not loaded & {"matplotlib", "jinja2"}


def test_a_report_draws_without_a_window_system(scenario: Path, tmp_path: Path) -> None:
    code = _LOADED.replace('.partition(".")[0]', "")
    loaded = set(_python(code, "run", str(scenario), "-o", str(tmp_path / "out")).split())
    assert "matplotlib.figure" in loaded
    assert "matplotlib.pyplot" not in loaded


def test_a_run_for_a_program_imports_no_rich(scenario: Path) -> None:
    """Tables are for people."""
    assert "rich" not in _python(_LOADED, "run", str(scenario), "--format", "json").split()


def test_the_facade_imports_nothing_until_it_is_used() -> None:
    loaded = set(_python("import bpusim, sys; print(*sys.modules)").split())
    assert not loaded & {"simpy", "numpy", "pydantic", "onnx", "rich"}


def test_help_imports_no_simulator() -> None:
    loaded = set(_python(_LOADED, "-h").split())
    assert not loaded & {"simpy", "numpy", "pydantic", "onnx"}
