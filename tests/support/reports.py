"""Folders of small runs, for tests of charts and reports."""

from __future__ import annotations

from pathlib import Path

from bpusim import Result, load_scenario, simulate
from bpusim.metrics import Keep
from bpusim.report.folder import write_folder

TRACES = Path(__file__).resolve().parents[2] / "traces"
MODELS = f"""\
models:
  chat: {{trace: '{TRACES}/qwen2.5-0.5b-int4.trace', cores: bpu0}}
  eye:  {{trace: '{TRACES}/resnet50-992.trace', cores: bpu1}}
"""
MIXED = f"""\
about: "A chat & a <camera>"
machine: {{preset: bpu80, cooling: passive_heatsink}}
{MODELS}streams:
  alice:  {{chat: chat, prompt: 8, output: 6, requests: 2}}
  camera: {{frames: eye, rate: 10 Hz, count: 3}}
"""
FRAMES = f"machine: bpu80\n{MODELS}streams: {{camera: {{frames: eye, rate: 10 Hz, count: 2}}}}\n"
EMPTY = f"machine: bpu80\n{MODELS}streams: {{a: {{chat: chat, prompt: 32, output: 6}}}}\nrun: {{until: 1 ms}}\n"


def written(text: str, folder: Path) -> tuple[Path, Result]:
    """The folder ``out`` of a scenario, and its result."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.yaml").write_text(text, encoding="utf-8")
    scenario = load_scenario(folder / "case.yaml")
    result = simulate(scenario, records=True, detail=Keep(slices=0))
    write_folder(folder / "out", result, scenario, [])
    return folder / "out", result
