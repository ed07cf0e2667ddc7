"""The pytest plugin, as people use it who regress their deployments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bpusim
from bpusim.metrics import Result
from bpusim.testing import compare_policies
from bpusim.testing.golden import check

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "scenarios" / "single_1_5b.yaml"
SHORT = ["streams.alice.output=2", "streams.alice.requests=1"]


def test_simulate_is_a_fixture(simulate: Callable[..., Result]) -> None:
    assert simulate(SCENARIO, set=SHORT).to_dict()["streams"]["alice"]["tokens"] == 2


def test_simulate_is_the_packages(simulate: Callable[..., Result]) -> None:
    assert simulate(SCENARIO, set=SHORT).to_dict() == bpusim.simulate(SCENARIO, set=SHORT).to_dict()


def test_overrides_may_be_keywords(simulate: Callable[..., Result]) -> None:
    keys = {"streams__alice__output": 2, "streams__alice__requests": 1}
    assert simulate(SCENARIO, **keys).to_dict() == simulate(SCENARIO, set=SHORT).to_dict()
    assert simulate(SCENARIO, set={"streams.alice.output": 3}, **keys).to_dict()["streams"]["alice"]["tokens"] == 2
    with pytest.raises(TypeError, match="not as texts and by keyword"):
        simulate(SCENARIO, set=SHORT, **keys)


def test_the_plugin_is_found_by_its_entry_point(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.get_plugin("bpusim") is not None


def test_the_plugin_works_in_another_project(tmp_path: Path) -> None:
    """A test file elsewhere asks for the fixture and needs no import."""
    (tmp_path / "test_latency.py").write_text(
        "def test_first_token(simulate):\n"
        f"    result = simulate({str(SCENARIO)!r}, set={SHORT!r})\n"
        "    assert result.streams['alice'].ttft_mean_ms < 1000\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_plugin_costs_a_project_nothing_until_it_is_used() -> None:
    """pytest imports it everywhere."""
    code = "import bpusim.testing, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"simpy", "numpy", "onnx", "pydantic", "bpusim.system"}


# Limits


@pytest.fixture(scope="module")
def short() -> Result:
    return bpusim.simulate(SCENARIO, set=SHORT)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"ttft_mean": "10 s", "tpot_mean": "1 s", "rejected": 0, "decode_tokens_per_s": 1, "tokens": 2}, None),
        ({"ttft_mean": "1 ms"}, r"^ttft_mean: \d+\.?\d* ms, at most 1 ms is asked for$"),
        ({"decode_tokens_per_s": 999}, r"^decode_tokens_per_s: 1\d\.\d+, at least 999 is asked for$"),
        ({"tokens": 3, "ttft_mean": "1 us"}, r"^tokens: 2, at least 3 is asked for; ttft_mean: .* at most 0.001 ms"),
        ({"slo_ttft": "1 ms"}, "nothing was measured, where 1 ms is the limit"),
    ],
)
def test_limits_that_are_broken_are_all_told(short: Result, limits: dict[str, Any], message: str | None) -> None:
    if message is None:
        short.streams["alice"].assert_slo(**limits)
    else:
        with pytest.raises(AssertionError, match=message):
            short.streams["alice"].assert_slo(**limits)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"ttft_p98": "1 s"}, "there is no figure 'ttft_p98'; did you mean 'ttft_p99'"),
        ({"ttft_p99": 500}, "ttft_p99=500 has no unit; write ttft_p99='500 ms'"),
        ({"tokens": "2"}, "tokens='2' is not a number"),
        ({"breakdown": "2 ms"}, "there is no figure 'breakdown'"),
        ({"rejected": float("nan")}, "rejected=nan limits nothing"),
        ({}, "no limit is given"),
    ],
)
def test_a_limit_that_means_nothing_is_an_error(short: Result, limits: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        short.streams["alice"].assert_slo(**limits)


# Golden figures


def test_golden_figures_are_written_and_held(short: Result, tmp_path: Path) -> None:
    path = tmp_path / "golden" / "short.json"
    assert check(path, short, 0.01, update=False).startswith(f"no golden figures at {path}; write them by pytest")
    assert check(path, short, 0.01, update=True) == ""
    assert check(path, short, 0.0, update=False) == ""
    held = json.loads(path.read_text())["figures"]
    assert held["streams.alice.tokens"] == 2
    assert not [k for k in held if "breakdown" in k or k == "events"]
    assert [p.name for p in path.parent.iterdir()] == ["short.json"]


def _edited(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text())
    data["figures"].update({k.replace("__", "."): v for k, v in changes.items()})
    path.write_text(json.dumps(data))


def test_what_has_changed_is_a_table_and_names_the_streams(short: Result, tmp_path: Path) -> None:
    path = tmp_path / "short.json"
    check(path, short, 0.01, update=True)
    held = json.loads(path.read_text())["figures"]
    _edited(
        path, streams__alice__tpot_mean_ms=held["streams.alice.tpot_mean_ms"] / 1.1, streams__alice__tokens=1, old=3
    )
    text = check(path, short, {"*": 0.01, "streams.alice.tokens": 0.5}, update=False)
    lines = [line.split() for line in text.splitlines()]
    assert lines[0][:6] == ["single_1_5b:", "3", "of", str(len(held) + 1), "figures", "differ"]
    assert lines[1] == ["figure", "golden", "now", "change", "allowed"]
    assert ["old", "3", "gone", "-", "1.00%"] in lines
    assert ["streams.alice.tokens", "1", "2", "+100.00%", "50.00%"] in lines
    (tpot,) = [line for line in lines if line[0] == "streams.alice.tpot_mean_ms"]
    assert tpot[3:] == ["+10.00%", "1.00%"]
    assert "streams that moved most: alice (tpot_mean_ms +10.0%)" in text
    assert text.splitlines()[-1].startswith("if this is as it should be: pytest --bpusim-update")


def test_a_stream_that_is_new_is_told(short: Result, tmp_path: Path) -> None:
    path = tmp_path / "short.json"
    check(path, short, 0.01, update=True)
    data = json.loads(path.read_text())
    data["figures"] = {k: v for k, v in data["figures"].items() if not k.startswith("streams.")}
    path.write_text(json.dumps(data))
    text = check(path, short, 0.01, update=False)
    assert "streams that the file does not know: alice" in text
    assert "0 of" in text.splitlines()[0]


def test_a_change_within_what_is_allowed_is_none(short: Result, tmp_path: Path) -> None:
    path = tmp_path / "short.json"
    check(path, short, 0.01, update=True)
    held = json.loads(path.read_text())["figures"]
    _edited(path, streams__alice__tpot_mean_ms=held["streams.alice.tpot_mean_ms"] * 1.009)
    assert check(path, short, 0.01, update=False) == ""
    assert check(path, short, 0.005, update=False)
    assert check(path, short, {"streams.alice.tpot_mean_ms": 0.02, "*": 0}, update=False) == ""


@pytest.mark.parametrize("text", ["", "[]", '{"figures": 3}', "{}"])
def test_a_file_that_holds_no_figures_is_told_of(short: Result, tmp_path: Path, text: str) -> None:
    path = tmp_path / "short.json"
    path.write_text(text)
    assert f"{path} holds no golden figures" in check(path, short, 0.01, update=False)


def test_the_example_project_passes_as_it_is_documented(tmp_path: Path) -> None:
    done = _pytest(tmp_path, str(ROOT / "docs" / "example"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_golden_test_fails_with_the_table_alone(tmp_path: Path) -> None:
    """No traceback of the plugin: the table is what helps."""
    (tmp_path / "test_it.py").write_text(
        f"def test_it(simulate, bpusim_golden):\n    bpusim_golden('it', simulate({str(SCENARIO)!r}, set={SHORT!r}))\n"
    )
    assert _pytest(tmp_path, str(tmp_path), "--bpusim-update").returncode == 0
    _edited(tmp_path / "golden" / "it.json", streams__alice__tokens=3)
    done = _pytest(tmp_path, str(tmp_path))
    assert done.returncode == 1
    assert "streams.alice.tokens" in done.stdout
    assert "Traceback" not in done.stdout


def test_golden_figures_are_written_by_workers_as_by_one_process(short: Result, tmp_path: Path) -> None:
    """With pytest-xdist the option reaches the workers, and each writes the files of its tests."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('name', ['one', 'two'])\n"
        "def test_it(simulate, bpusim_golden, name):\n"
        f"    bpusim_golden(name, simulate({str(SCENARIO)!r}, set={SHORT!r}))\n"
    )
    done = _pytest(tmp_path, str(tmp_path), "-n", "2", "--bpusim-update")
    assert done.returncode == 0, done.stdout + done.stderr
    golden = tmp_path / "golden"
    assert sorted(p.name for p in golden.iterdir()) == ["one.json", "two.json"]
    assert [check(p, short, 0, update=False) for p in golden.iterdir()] == ["", ""]


def _pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_two_policies_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="policy 'Mine' is there twice; give a mapping"):
        compare_policies([Mine(), Mine()], SCENARIO)


class Mine:
    def pick(self, ready: Any, core: Any) -> Any:  # noqa: ARG002 (the protocol's signature)
        return ready[0]
