"""The compile command: options as text in, a trace file and a report out."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bpusim.compiler.build import Options, compile_file, compile_llm_config, compile_model
from bpusim.compiler.crossings import Board, estimate_lines, estimates, noteworthy
from bpusim.compiler.quant import Plan
from bpusim.compiler.quant_report import QuantReport, quant_report
from bpusim.errors import CompileError, Place
from bpusim.hardware import CoreSpec
from bpusim.trace import Trace, save_trace
from bpusim.units import format_quantity

__all__ = ["CompileJob", "report_text"]

_NAMED = 8
"""Inputs or outputs that a report names: a cache of many layers is not worth it."""


@dataclass(frozen=True, slots=True)
class CompileJob:
    """One run of ``bpusim compile``; fields are its options."""

    model: Path | None
    llm_config: Path | None
    out: Path
    machine: str
    overrides: tuple[str, ...]
    name: str | None
    quant: str
    quant_set: tuple[str, ...]
    activations: str
    chunk: int | None
    context: int | None
    last_logit: bool
    fallback_ops: tuple[str, ...]
    strict: bool
    binds: tuple[str, ...]
    assumes: tuple[str, ...]
    outputs: tuple[str, ...]
    fold_dequantise: bool
    cores: str | None
    verify: bool = False

    def run(self, core: CoreSpec, board: Board | None = None) -> str:
        """Compile for ``core``, write the trace, and say what came of it; ``board``: with times on it.

        Raises :class:`CompileError`.
        """
        options = self._options()
        warnings: list[str] = []
        verified: list[str] = []
        tell = (lambda v: verified.append(v.text())) if self.verify else None
        if self.llm_config is not None:
            trace = compile_llm_config(self.llm_config, core, options, tell)
        else:
            assert self.model is not None
            trace = compile_model(self.model, core, options, warnings.append, tell)
        return "\n".join([*verified, self._written(trace, warnings, board)])

    def study(self, core: CoreSpec, board: Board, calibration: Path | None) -> tuple[str, QuantReport]:
        """As :meth:`run`, and the noise that the plan puts on each layer; see :func:`quant_report`."""
        options = self._options()
        plan = Plan.parse(self.quant, self.quant_set, options.activation)
        if self.model is None:
            raise CompileError("--quant-report: a config.json has no weights", do="compile an ONNX file with its data")
        missing: list[str] = []
        verified: list[str] = []
        tell = (lambda v: verified.append(v.text())) if self.verify else None
        compiled = compile_file(self.model, core, options, missing.append, tell)
        if missing:
            what, do = f"--quant-report needs the weights: {missing[0]}", "put the data file beside the model"
            raise CompileError(what, place=Place(str(self.model)), do=do)
        found = quant_report(compiled, plan, self.model, board.roof.bytes_per_s, calibration)
        return "\n".join([*verified, self._written(compiled.trace, [], board)]), found

    def _written(self, trace: Trace, warnings: list[str], board: Board | None) -> str:
        found = estimates(trace, board) if board is not None else {}
        if noteworthy(found):
            report = {**trace.header.report, "estimates": found}
            trace = replace(trace, header=replace(trace.header, report=report))
        try:
            save_trace(trace, self.out)
        except OSError as e:
            raise CompileError(f"cannot write the trace: {e.strerror}", place=Place(str(self.out))) from None
        told = [report_text(trace, self.out), *estimate_lines(found)]
        return "\n".join([*told, *(f"  warning: {w}" for w in warnings)])

    def _options(self) -> Options:
        if not self.out.parent.is_dir():
            raise CompileError(
                "the folder does not exist", place=Place(str(self.out)), do=f"make it: mkdir -p {self.out.parent}"
            )
        if self.out.is_dir():
            raise CompileError("this is a folder", place=Place(str(self.out)), do="name the trace file")
        bind, shapes = self._bindings()
        return Options(
            quant=self.quant,
            quant_set=self.quant_set,
            activation=self.activations,  # type: ignore[arg-type]  # compile_graph checks it against the target
            chunk=self.chunk,
            context=self.context,
            last_logit=self.last_logit,
            fallback_ops=frozenset(self.fallback_ops),
            strict=self.strict,
            bind=bind,
            shapes=shapes,
            assume=self._assumptions(),
            outputs=self.outputs,
            fold_dequantise=self.fold_dequantise,
            name=self.name or self.out.stem,
            cores=self._cores(),
            command=self.command(),
        )

    def _bindings(self) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
        """``NAME=NUMBER`` binds a symbol or a scalar input's value, ``INPUT=1x3x224x224`` a whole input's shape."""
        sizes: dict[str, int] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for text in self.binds:
            name, equals, value = text.rpartition("=")
            parts = value.split("x")
            digits = [value.removeprefix("-")] if len(parts) == 1 else parts
            if not equals or not name or not all(p.isascii() and p.isdigit() for p in digits):
                raise CompileError(f"--bind {text}: not a size", do="write NAME=64, or INPUT=1x3x224x224")
            if name in sizes or name in shapes:
                raise CompileError(f"--bind {text}: '{name}' is bound twice", do="bind it once")
            if len(parts) == 1:
                sizes[name] = int(value)
            else:
                shapes[name] = tuple(int(p) for p in parts)
        return sizes, shapes

    def _assumptions(self) -> dict[str, str]:
        """``NODE=then``, ``NODE=10``."""
        out: dict[str, str] = {}
        for text in self.assumes:
            name, _, value = text.rpartition("=")
            if not name or not value:
                raise CompileError(f"--assume {text}: says nothing of a node", do="write NODE=then, or NODE=10")
            if name in out:
                raise CompileError(f"--assume {text}: '{name}' is assumed twice", do="say it once")
            out[name] = value
        return out

    def _cores(self) -> tuple[int, ...] | None:
        if self.cores in (None, "any"):
            return None
        parts = str(self.cores).split(",")
        if not all(p.isascii() and p.isdigit() for p in parts):
            raise CompileError(f"--cores {self.cores}: not core numbers", do="write 0, or 0,1, or any")
        if len(set(parts)) != len(parts):
            raise CompileError(f"--cores {self.cores}: a core is named twice", do="name each once")
        return tuple(int(p) for p in parts)

    def command(self) -> str:
        """The command that makes this trace again, with files by name only."""
        words = ["bpusim", "compile"]
        words += (
            ["--llm-config", self.llm_config.name]
            if self.llm_config is not None
            else [self.model.name if self.model else ""]
        )
        plain = Options()
        flags: list[tuple[str, Any, Any]] = [
            ("--machine", self.machine, None),
            ("--quant", self.quant, plain.quant),
            ("--activations", self.activations, plain.activation),
            ("--chunk", self.chunk, plain.chunk),
            ("--context", self.context, None),
            ("--name", self.name, None),
            ("--cores", self.cores, None),
        ]
        for flag, value, default in flags:
            if value is not None and value != default:
                words += [flag, str(value)]
        for flag, values in (
            ("--set", self.overrides),
            ("--quant-set", self.quant_set),
            ("--bind", self.binds),
            ("--assume", self.assumes),
            ("--fallback-op", self.fallback_ops),
            ("--until", self.outputs),
        ):
            for value in values:
                words += [flag, value]
        words += ["--fold-dequantise"] * self.fold_dequantise
        words += ["--last-logit"] * self.last_logit + ["--strict"] * self.strict
        return shlex.join([*words, "-o", self.out.name])


def _macs(n: int) -> str:
    return f"{n / 1e9:.3f} GMAC" if n >= 10**7 else f"{n} MAC"


def report_text(trace: Trace, out: Path) -> str:
    """What was compiled, what it takes, and what was left to the CPU or costs nothing, and why."""
    h, report = trace.header, trace.header.report
    lines = [
        f"{out}: {h.model}, {format_quantity(trace.resident_bytes, 'size')} of weights, plan {h.quant.get('plan')}"
    ]
    classes: dict[str, int] = {}
    for t in trace.tensors:
        classes[t.role or "other"] = classes.get(t.role or "other", 0) + t.bytes * t.count
    if classes:
        said = [f"{role} {n} B" + (f" ({h.quant[role]})" if role in h.quant else "") for role, n in classes.items()]
        lines.append("  weights by class: " + ", ".join(said))
    if "set" in h.quant:
        lines.append(f"  set over the plan, the last that matches counts: {h.quant['set']}")
    for name, phase in trace.phases.items():
        tokens = max(phase.tokens, 1)
        program = trace.bind(name, kv=0, tokens=tokens)
        moved = sum(program.traffic().values())
        calls = len(program.calls)
        what = f"{tokens} token{'s' * (tokens > 1)}, " if phase.tokens else ""
        what += f"{_macs(program.macs)}, {format_quantity(moved, 'size')} DRAM, {calls} call{'s' * (calls > 1)}"
        lines.append(f"  {name}: {what}")
    if h.kv_bytes_per_token:
        lines.append(f"  KV cache: {h.kv_bytes_per_token} B a token, context {h.context} tokens")
    for node, what in report.get("taken", {}).items():
        lines.append(f"  {node}: {what}")
    for kind, row in report.get("cpu_fallbacks", {}).items():
        lines.append(f"  on the CPU: {row['count']} x {kind} ({row['why']}), first '{row['first']}'")
    for kind, row in report.get("decomposed", {}).items():
        lines.append(f"  rewritten: {row['count']} x {kind} as {', '.join(row['into'])} ({row['why']})")
    for title, key in (
        ("host bookkeeping inside dispatch", "host_bookkeeping"),
        ("views, no work", "views"),
        ("folded into the ops around them", "folded"),
        ("products of 8-bit integers", "of_bytes"),
    ):
        if report.get(key):
            lines.append(f"  {title}: " + ", ".join(f"{n} x {t}" for t, n in report[key].items()))
    for key, title in (("input_bytes", "in"), ("output_bytes", "out")):
        if key in report and len(report[key]) <= _NAMED:
            sizes = ", ".join(f"{n} {format_quantity(size, 'size')}" for n, size in report[key].items())
            lines.append(f"  {title}, in the file's types: {sizes}")
    for name, n in report.get("spilled_tensors", {}).items():
        lines.append(f"  {name}: {n} activation tensors do not stay on chip and cross DRAM")
    lines += [f"  note: {text}" for text in report.get("notes", [])]
    return "\n".join(lines)
