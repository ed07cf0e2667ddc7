"""What is measured: scenarios for the engine, whole commands, and streams of requests for the bank model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["CASES", "CONFIG", "Bank", "Case", "Engine", "Process", "resnet"]

ROOT = Path(__file__).resolve().parent.parent
CONFIG = "3b.json"
"""File of the 3B's configuration, in the folder that commands run in: its graph is that of the export."""
CONFIG_3B = {
    "model_type": "qwen2",
    "hidden_size": 2048,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "intermediate_size": 11008,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}
_COMPILE_3B = ("compile", "--llm-config", CONFIG, "--quant", "int4")

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Engine:
    """A scenario with ``short`` and with ``long`` answers: the difference is decode alone, set-up and prefill cancel.

    One without end is ``short`` or ``long`` in seconds: the difference is what it is like once all has come before.
    ``together``: tokens in a step of all cores. ``compiled``: name and context of a 3B trace that it needs beside it.
    """

    name: str
    document: Callable[[int], Document]
    """The scenario by output tokens, or by seconds."""
    short: int
    long: int
    together: int = 1
    compiled: tuple[str, int] | None = None

    def write(self, folder: Path, output: int) -> Path:
        """The scenario as a file: JSON is YAML."""
        file = folder / f"{output}.yaml"
        file.write_text(json.dumps(self.document(output)))
        return file

    def prepare(self) -> tuple[str, ...] | None:
        """The command that makes its trace."""
        if self.compiled is None:
            return None
        name, context = self.compiled
        return (*_COMPILE_3B, "--context", str(context), "-o", name)


@dataclass(frozen=True, slots=True)
class Process:
    """A whole ``bpusim`` command, start-up included; its arguments are asked for when it is run."""

    name: str
    command: Callable[[], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Bank:
    """A stream of requests on the bank model, one of those in ``bank.py``."""

    name: str
    stream: str


Case = Engine | Process | Bank


def trace(size: str) -> str:
    return str(ROOT / "traces" / f"qwen2.5-{size}-int4.trace")


def scenario(name: str) -> str:
    return str(ROOT / "scenarios" / f"{name}.yaml")


def resnet() -> str:
    """The ResNet-50 that comes with the onnx package."""
    found = find_spec("onnx")
    if found is None or found.origin is None:
        raise SystemExit("error: ResNet-50 comes with the onnx package: pip install -e '.[dev]'")
    return str(Path(found.origin).parent / "backend/test/data/light/light_resnet50.onnx")


def shipped(name: str, stream: str = "alice") -> Callable[[int], Document]:
    """A shipped scenario whose one chat user asks once."""
    return lambda n: {"extends": scenario(name), "streams": {stream: {"output": n, "requests": 1}}}


def dual(size: str, merge: str = "on") -> Callable[[int], Document]:
    """Two replicas, a user each."""
    return lambda n: {
        "extends": scenario("dual_replica"),
        "models": {m: {"trace": trace(size)} for m in ("left", "right")},
        "streams": {s: {"output": n, "requests": 1} for s in ("alice", "bob")},
        "engine": {"merge": merge},
    }


def many(cores: int, prompts: Sequence[int] = (32,) * 4) -> Callable[[int], Document]:
    """A 0.5B replica on each of so many cores, a user for each prompt."""
    return lambda n: {
        "machine": {"preset": "bpu80", "cores": {"count": cores}, "dram": {"capacity": "64 GB", "usable": "60 GB"}},
        "models": {f"m{c}": {"trace": trace("0.5b"), "cores": f"bpu{c}"} for c in range(cores)},
        "streams": {
            f"u{c}_{k}": {"chat": f"m{c}", "prompt": prompt, "output": n}
            for c in range(cores)
            for k, prompt in enumerate(prompts)
        },
    }


def filled(file: str, prompt: int) -> Callable[[int], Document]:
    """One user whose prompt fills part of the context, and whose answer may fill the rest."""
    return lambda n: {
        "machine": "bpu80",
        "models": {"chat": {"trace": file, "cores": "bpu0"}},
        "streams": {"alice": {"chat": "chat", "prompt": prompt, "output": n}},
    }


def lasting(name: str) -> Callable[[int], Document]:
    """A shipped scenario without end, for so many seconds."""
    return lambda n: {"extends": scenario(name), "run": {"until": f"{n} s"}}


def camera(seconds: int) -> Document:
    """A detector alone on the machine."""
    return {
        "machine": "bpu80",
        "models": {"detector": {"trace": str(ROOT / "traces" / "resnet50-992.trace"), "cores": "bpu0"}},
        "streams": {"camera": {"frames": "detector", "rate": "16 Hz"}},
        "run": {"until": f"{seconds} s"},
    }


def _engine() -> Iterator[Engine]:
    yield Engine("engine single 3B", shipped("single_3b"), 32, 512)
    yield Engine("engine dual 3B", dual("3b"), 32, 512, together=2)
    yield Engine("engine dual 1.5B", dual("1.5b"), 32, 512, together=2)
    yield Engine("engine dual 3B, merge exact", dual("3b", "exact"), 32, 512, together=2)
    yield Engine("engine dual 3B, merge off", dual("3b", "off"), 8, 24, together=2)
    yield Engine("engine hetero", shipped("hetero", "talk"), 32, 256)
    yield Engine("engine multimodal loop", lasting("multimodal_loop"), 20, 120)
    yield Engine("engine camera alone", camera, 10, 60)
    yield Engine("engine pipeline split", shipped("pipeline_split"), 32, 512)
    yield Engine("engine cpu fallback", shipped("cpu_fallback"), 16, 64)
    for n in (1, 2, 4, 8, 16):
        yield Engine(f"engine {n} core{'s' * (n > 1)}, 4 users each", many(n), 16, 16 + 512 // n, together=n)
    yield Engine("engine 1 core, 4 users far apart", many(1, (100, 1000, 2000, 3000)), 16, 80)
    for n in (512, 4096, 32768):
        file = f"3b-{n}.trace"
        yield Engine(f"engine context {n}", filled(file, n // 2), 16, n // 2, compiled=(file, n))
    yield Engine("engine ten times longer", dual("3b"), 200, 2000, together=2)


def _processes() -> Iterator[Process]:
    yield Process("bpusim --version", lambda: ("--version",))
    yield Process("bpusim validate dual_replica", lambda: ("validate", scenario("dual_replica")))
    yield Process("bpusim run dual_replica", lambda: ("run", scenario("dual_replica")))
    yield Process("bpusim run thermal_passive", lambda: ("run", scenario("thermal_passive")))
    yield Process("compile 3B", lambda: (*_COMPILE_3B, "--context", "4096", "-o", "out.trace"))
    yield Process("compile ResNet-50", lambda: ("compile", resnet(), "--quant", "int8", "-o", "out.trace"))


CASES: tuple[Case, ...] = (
    *_engine(),
    *_processes(),
    *(Bank(f"bank {s}", s) for s in ("sequential", "random", "writes")),
)
