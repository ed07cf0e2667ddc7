"""From a measured row to a scenario: which trace, which part of the machine, which stream."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bpusim.errors import BpusimError, Place, StudyError
from bpusim.hardware import CoreSpec, MachineSpec
from bpusim.study.calibration.rows import Measured
from bpusim.trace import Trace, load_trace, save_trace
from bpusim.units import format_quantity

__all__ = ["Compile", "Recipe", "Wish", "recipe_of"]

_CONTEXT = 512
"""A context that nothing says holds prompt and answer, in steps of so many."""
_OUTPUT = 2
"""Tokens of a simulated answer: the first, and one decode step behind it; every step is like it but for the cache."""
_NOTICEABLE = 0.002
"""Part of a step's bytes by which the cache grows to the middle of the answer: decoding is simulated there above it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a compiler is asked for; fields as options of ``bpusim compile``."""

    quant: str
    quant_set: tuple[str, ...]
    activation: str
    chunk: int
    context: int
    name: str


Compile = Callable[[Path, CoreSpec, Wish], Trace]
"""Compiles a config.json: the compiler is a package that studies do not import."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A row as something that can be run. ``prompts``: of the run for the first token, and of that for decode steps
    (the same one where they agree). ``assumed``: what the row does not say."""

    row: Measured
    trace: Path
    prompts: tuple[int, int]
    overrides: Mapping[str, Any]
    model: Mapping[str, Any]
    weight_bytes: int
    """Weights that a decode step reads."""
    step_bytes: int
    layers: int
    assumed: tuple[str, ...]

    @property
    def moved(self) -> float:
        """Bytes of a step as a formula has them: the row's own estimate of the weights where there is one, and what
        else the trace reads and writes (the cache)."""
        return float((self.row.bytes_estimate or self.weight_bytes) + self.step_bytes - self.weight_bytes)

    @property
    def key(self) -> tuple[object, ...]:
        """Rows with the same one come out alike."""
        return self.trace, self.prompts, json.dumps([self.overrides, self.model], sort_keys=True)

    def scenario(self, machine: str, prompt: int) -> dict[str, Any]:
        """The scenario file: one user, one request, with as few tokens as show the rates."""
        return {
            "machine": machine,
            "models": {"chat": {"trace": str(self.trace), **self.model}},
            "streams": {"user": {"chat": "chat", "prompt": prompt, "output": _OUTPUT}},
        }


def recipe_of(row: Measured, machine: MachineSpec, folder: Path, compiled: Compile, file: str) -> Recipe:
    """Compile the row's model (once: traces are kept in ``folder`` by content).

    Raises :class:`StudyError` for a row that cannot be simulated.
    """
    if row.unusable is not None:
        raise StudyError(row.unusable, place=Place(file, row.line))
    overrides, model, core = _placed(row, machine, file)
    assumed = [] if row.prompt is not None else [f"a prompt of {row.chunk} tokens, one chunk"]
    if row.trace is None and row.context is None:
        assumed.append(f"a context of {_context(row)}")
    assumed += row.assumed
    prompt = row.prompt or row.chunk
    try:
        path = row.trace if row.trace is not None else _compiled(row, core, folder, compiled)
        trace = load_trace(path)
    except BpusimError as e:
        raise StudyError(e.problems[0].what, place=Place(file, row.line)) from None
    capacity = trace.header.context
    if prompt + _OUTPUT - 1 > capacity:
        what = f"a prompt of {prompt} tokens leaves no room to answer in a context of {capacity}"
        raise StudyError(what, place=Place(file, row.line))
    middle = min(prompt + row.generated // 2, max(capacity - _OUTPUT, 1))
    step = trace.bind("decode", kv=prompt).traffic()
    total = sum(step.values())
    grown = sum(trace.bind("decode", kv=middle).traffic().values()) - total
    late = middle if grown > _NOTICEABLE * total else prompt
    return Recipe(
        row, path.absolute(), (prompt, late), overrides, model,
        step["weights", False], total,
        trace.header.layers, tuple(assumed),
    )  # fmt: skip


def _placed(row: Measured, machine: MachineSpec, file: str) -> tuple[dict[str, Any], dict[str, Any], CoreSpec]:
    """(changes of the machine, keys of the model, the core to compile for).

    A machine of several cores takes a row of several as a tensor split without a cost of its own a barrier: what a
    layer costs is ``layer_sync``. A machine of one core, wide enough for all the board's, takes a row of fewer as so
    narrow a core: array, vector unit, scratchpads and bytes in flight shrink, port and channel stay.
    """
    core = machine.cores
    used, total = row.cores or (1, 1)
    if core.count > 1:
        if used > core.count:
            what = f"measured on {used} cores, and {machine.name} has {core.count}"
            raise StudyError(what, place=Place(file, row.line), do="name a machine of as many")
        names = [f"bpu{k}" for k in range(used)]
        return {}, {"cores": names, "split": "tensor", "sync": "0 us"} if used > 1 else {"cores": "bpu0"}, core
    if used == total:
        return {}, {"cores": "bpu0"}, core

    def part(n: int) -> int:
        return max(n * used // total, 1)

    window = max(part(core.dma.window) // 64 * 64, 64)
    narrow = replace(
        core,
        mac=replace(core.mac, cols=part(core.mac.cols)),
        vector=replace(core.vector, lanes=part(core.vector.lanes)),
        scratchpad=part(core.scratchpad),
        activations=part(core.activations),
        dma=replace(core.dma, window=window),
    )
    changes = {
        "machine.cores.mac.cols": narrow.mac.cols,
        "machine.cores.vector.lanes": narrow.vector.lanes,
        "machine.cores.scratchpad": f"{narrow.scratchpad} B",
        "machine.cores.activations": f"{narrow.activations} B",
        "machine.cores.dma.window": f"{window} B",
    }
    return changes, {"cores": "bpu0"}, narrow


def _compiled(row: Measured, core: CoreSpec, folder: Path, compiled: Compile) -> Path:
    text = row.config.read_text(encoding="utf-8") if row.config is not None else _config(row)
    bits, group = row.weight_bits, row.group or "channel"
    # The head stays int8 where linear layers are int4, as vendors' w4 formats have it.
    linear, table = ("fp16", "fp16") if bits == 16 else (f"int{bits}/{group}", "int8/channel")
    wish = Wish(
        "fp16" if bits == 16 else f"int{bits}",
        () if bits == 16 else (f"linear={linear}", f"head={table}", f"embedding={table}"),
        row.activation, row.chunk, row.context or _context(row), row.model,
    )  # fmt: skip
    made_of = json.dumps([text, repr(wish), row.kv, core.fingerprint()], sort_keys=True)
    out = folder / f"{hashlib.sha256(made_of.encode()).hexdigest()[:20]}.trace"
    if not out.is_file():
        config = out.with_suffix(".json")
        config.write_text(text, encoding="utf-8")
        trace = compiled(config, core, wish)
        save_trace(replace(trace, header=replace(trace.header, kv=row.kv)), out)
    return out


def _context(row: Measured) -> int:
    """Of a row that does not say it."""
    return -(-((row.prompt or row.chunk) + row.generated + _OUTPUT) // _CONTEXT) * _CONTEXT


def _config(row: Measured) -> str:
    a = row.architecture
    assert a is not None  # of rows without a trace or a configuration
    fields = {
        "model_type": a.kind,
        "hidden_size": a.hidden,
        "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "intermediate_size": a.ffn,
        "vocab_size": a.vocab,
        "max_position_embeddings": max(row.context or 0, 32768),
        "tie_word_embeddings": a.tied,
    }
    return json.dumps(fields, indent=1) + "\n"


def told_bytes(recipe: Recipe) -> str | None:
    """What to say where the trace's weights are not those that the row estimates."""
    estimate = recipe.row.bytes_estimate
    if estimate is None or abs(recipe.weight_bytes / estimate - 1) <= 0.03:
        return None
    has, said = (format_quantity(n, "size") for n in (recipe.weight_bytes, estimate))
    return f"a decode step reads {has} of weights, the row estimates {said}"
