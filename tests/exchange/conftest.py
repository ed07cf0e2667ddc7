"""What the tests of imports share: the reference board, a round roof, a file from text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bpusim.hardware import CoreSpec
from bpusim.hardware.presets import machine_preset
from bpusim.trace.roofline import Roof

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture(scope="session")
def core() -> CoreSpec:
    """A core of the reference board: 128 x 128 MACs, 16 weight rows a cycle, 64 lanes."""
    return machine_preset("bpu80").cores


@pytest.fixture(scope="session")
def roof() -> Roof:
    """1 GHz (a cycle is 1 ns), 10 B a ns, 1 us an op; the CPU 1 GHz, 4 B a ns, 5 us an op, 50 ps a byte."""
    classes = {"add": 4, "mul": 4, "exp": 50, "div": 20, "reduce": 4, "convert": 12, "mac": 2}
    return Roof(10**9, 128 * 128, 1e10, 10**6, 10**9, 4e9, classes, 5 * 10**6, 50.0)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """``written(text)``: a CSV file with it."""

    def write(text: str) -> Path:
        path = tmp_path / "given.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write
