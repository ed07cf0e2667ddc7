"""A study file beside a scenario with its trace."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bpusim.study import Study, load_study

TRACES = Path(__file__).resolve().parents[2] / "traces"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """One user of a 0.5B model on one of two cores."""
    shutil.copy(TRACES / "qwen2.5-0.5b-int4.trace", tmp_path / "small.trace")
    path = tmp_path / "s.yaml"
    path.write_text(
        "machine: bpu80\nmodels: {chat: {trace: small.trace, cores: bpu0}}\n"
        "streams: {alice: {chat: chat, prompt: 8, output: 3}}\n"
    )
    return path


@pytest.fixture
def study(scenario: Path) -> Callable[[str], Study]:
    """Writes ``study.yaml`` beside it, and reads that."""

    def write(text: str) -> Study:
        path = scenario.parent / "study.yaml"
        path.write_text(f"scenario: {scenario.name}\n{text}")
        return load_study(path)

    return write
