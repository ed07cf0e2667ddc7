"""A folder with a scenario and its trace, and the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from click.testing import CliRunner, Result

from bpusim.cli import main

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "traces"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SCENARIO = """\
about: A short talk
machine: bpu80
models:
  chat: {trace: small.trace, cores: bpu0}
streams:
  alice: {chat: chat, prompt: 32, output: 4}
"""


class Desk:
    """A folder with a scenario ``s.yaml``, its trace ``small.trace``, and the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("s.yaml", SCENARIO)
        shutil.copy(TRACES / "qwen2.5-0.5b-int4.trace", folder / "small.trace")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def change(self, old: str, new: str) -> None:
        assert old in SCENARIO
        self.write("s.yaml", SCENARIO.replace(old, new))

    def trace(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Rewrite the header of the trace."""
        path = self.folder / "small.trace"
        first, rest = path.read_text(encoding="utf-8").split("\n", 1)
        header = json.loads(first)
        change(header)
        path.write_text(json.dumps(header) + "\n" + rest, encoding="utf-8")

    def bpusim(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)

    def run(self, *arguments: str) -> Result:
        done = self.bpusim("run", "s.yaml", *arguments)
        assert done.exit_code == 0, done.output
        return done

    def json(self, *arguments: str) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.run("--format", "json", *arguments).stdout)
        return data

    def refused(self, *arguments: str) -> str:
        """The message of ``bpusim run s.yaml -o out``: exit 2, on stderr only, no traceback, nothing written."""
        done = self.bpusim("run", "s.yaml", "-o", "out", *arguments)
        assert done.exit_code == 2, done.output
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert not (self.folder / "out").exists()
        assert not [p for p in self.folder.iterdir() if p.name.startswith(".")]
        return done.stderr
