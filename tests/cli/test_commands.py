"""The other commands: validate, schema, sweep, help."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from desks import Desk

from bpusim.cli import main


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
