"""The pytest plugin, as people use it who regress their deployments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bpusim
from bpusim.metrics import Result

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "scenarios" / "single_1_5b.yaml"
SHORT = ["streams.alice.output=2", "streams.alice.requests=1"]


def test_simulate_is_a_fixture(simulate: Callable[..., Result]) -> None:
    assert simulate(SCENARIO, set=SHORT).to_dict()["streams"]["alice"]["tokens"] == 2


def test_simulate_is_the_packages(simulate: Callable[..., Result]) -> None:
    assert simulate is bpusim.simulate


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
