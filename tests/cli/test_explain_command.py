"""``bpusim explain``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bpusim.cli import main

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
SHORT = ("--set", "streams.alice.requests=1", "--set", "streams.alice.output=3")


def ran(*args: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["explain", *args])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize(
    ("form", "begin"), [("table", "single_1_5b: where"), ("markdown", "# single\\_1\\_5b: "), ("json", "{")]
)
def test_forms(form: str, begin: str) -> None:
    assert ran(str(SCENARIOS / "single_1_5b.yaml"), *SHORT, "--no-what-if", "--format", form).startswith(begin)


def test_nothing_but_json_is_on_stdout() -> None:
    data = json.loads(ran(str(SCENARIOS / "single_1_5b.yaml"), *SHORT, "--format", "json"))
    assert data["what_helps"]["tried"]


def test_against() -> None:
    out = ran(str(SCENARIOS / "single_3b.yaml"), *SHORT, "--against", str(SCENARIOS / "single_1_5b.yaml"))
    assert "alice: each token takes" in out
    assert "longer than in single_1_5b" in out


def test_against_has_no_what_ifs() -> None:
    path = str(SCENARIOS / "single_1_5b.yaml")
    assert "leave --no-what-if out" in ran(path, "--against", path, "--no-what-if", code=2)


def test_a_scenario_that_there_is_not() -> None:
    assert "single_1_5b.yaml" in ran(str(SCENARIOS / "single_15b.yaml"), code=2)
