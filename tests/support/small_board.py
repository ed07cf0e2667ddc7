"""A detector and a 0.5B on the reference board, with streams of one's own."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from bpusim import simulate
from bpusim.metrics import ChatStats, FrameStats, Result

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
TRACES = SCENARIOS.parent / "traces"
DETECTOR = TRACES / "resnet50-992.trace"
CHAT = TRACES / "qwen2.5-0.5b-int4.trace"


@cache
def alone() -> float:
    """ms of a frame of the detector with nothing beside it."""
    value = frames(cam("rate: 2 Hz, count: 4")).latency_mean_ms
    assert value is not None
    return value


def run(streams: dict[str, str], more: str = "", models: str = "", **keys: Any) -> Result:
    """A detector ``d`` on core 1 and a 0.5B ``m`` on core 0, and these streams."""
    path = Path(folder()) / "case.yaml"
    entries = "\n".join(f"  {name}: {{{text}}}" for name, text in streams.items())
    known = f"  m: {{trace: '{CHAT}', cores: bpu0}}\n  d: {{trace: '{DETECTOR}', cores: bpu1}}\n{models}"
    path.write_text(f"machine: bpu80\nmodels:\n{known}\nstreams:\n{entries}\n{more}\n")
    return simulate(path, **keys)


@cache
def folder() -> str:
    import tempfile

    return tempfile.mkdtemp(prefix="bpusim-behaviour-")


def cam(text: str, more: str = "", **keys: Any) -> Result:
    return run({"cam": f"frames: d, {text}"}, more, **keys)


def frames(result: Result, name: str = "cam") -> FrameStats:
    stats = result.streams[name]
    assert isinstance(stats, FrameStats)
    return stats


def chat(result: Result, name: str = "a") -> ChatStats:
    stats = result.streams[name]
    assert isinstance(stats, ChatStats)
    return stats
