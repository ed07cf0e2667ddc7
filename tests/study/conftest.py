"""A study file beside a scenario with its trace; calibrations of a toy board."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_boards import COLUMNS, MODELS, PLANTED, Fitted

from bpusim.cli.calibrate import compile_wish
from bpusim.study import Study, load_study
from bpusim.study.calibration import Calibration, calibrate, read_measurements

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


# --- calibration


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled once for all tests."""
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="session")
def truth(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[float, float]]:
    """(TTFT in ms, tokens a second) of each model on the planted machine."""
    path = tmp_path_factory.mktemp("truth") / "truth.csv"
    path.write_text("\n".join([f"{COLUMNS},ttft_ms,decode_tps", *(f"{m},1,1" for m in MODELS)]) + "\n")
    done = calibrate(read_measurements(path), "bpu80", [], compile_wish, overrides=PLANTED, traces=traces)
    return [(r.fitted.ttft_ms, r.fitted.decode_tps) for r in done.rows]


@pytest.fixture
def fitted(tmp_path: Path, traces: Path, truth: list[tuple[float, float]]) -> Fitted:
    """``fitted(*paths, noise, times, rows)``: a fit to the truth with noise, some figures of it multiplied."""

    def run(
        *paths: str,
        seed: int | None = None,
        times: dict[tuple[int, int], float] | None = None,
        rows: int = len(MODELS),
        more: tuple[str, ...] = (),
        **options: Any,
    ) -> Calibration:
        draws = np.random.default_rng(seed).normal(size=(len(MODELS), 2)) if seed is not None else np.zeros((9, 2))
        lines = [f"{COLUMNS},ttft_ms,decode_tps"]
        for k, model in enumerate(MODELS[:rows]):
            factors = [math.exp(draws[k][i] * (0.12, 0.03)[i]) * (times or {}).get((k, i), 1.0) for i in (0, 1)]
            lines.append(f"{model},{truth[k][0] * factors[0]},{truth[k][1] * factors[1]}")
        path = tmp_path / "rows.csv"
        path.write_text("\n".join([*lines, *more]) + "\n")
        return calibrate(read_measurements(path), "bpu80", paths, compile_wish, traces=traces, **options)

    return run
