"""A folder in which scenario files are written and loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpusim.errors import ScenarioError
from bpusim.scenario import Scenario, load_scenario

GOOD = """\
about: Two users
machine: bpu80
models:
  left: {trace: t/a.trace, cores: bpu0}
  right: {trace: t/a.trace, cores: [bpu0, bpu1], split: even}
streams:
  alice: {chat: left, prompt: 32, output: 16, requests: 4}
  cam: {frames: right, rate: 12.5 Hz}
"""


class Desk:
    """A folder with a trace, in which scenario files are written and loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("t/a.trace", "")
        self.write("good.yaml", GOOD)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, name: str = "good.yaml", *sets: str) -> Scenario:
        return load_scenario(self.folder / name, set=sets)

    def refusal(self, name: str = "good.yaml", *sets: str) -> str:
        with pytest.raises(ScenarioError) as caught:
            self.load(name, *sets)
        return str(caught.value).replace(f"{self.folder}/", "")

    def refused(self, old: str, new: str) -> str:
        """The message for the good scenario with one text replaced."""
        assert old in GOOD
        self.write("a.yaml", GOOD.replace(old, new))
        return self.refusal("a.yaml")

    def child(self, text: str) -> Scenario:
        self.write("child.yaml", "extends: good.yaml\n" + text)
        return self.load("child.yaml")
