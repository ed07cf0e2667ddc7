"""Traces of the same source for the same core beside a trace: without its CPU ops, or with other weights."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bpusim.errors import TraceError
from bpusim.trace import Header, Trace, load_trace

__all__ = ["Siblings"]

_WEIGHTS = ("plan", "linear", "head", "embedding", "conv")
"""What a plan of weights says; activations, norms and the cache are as they are in a sibling."""


@dataclass(frozen=True, slots=True)
class Siblings:
    """Of one trace: a file, and what it holds."""

    file: Path
    trace: Trace

    def without_fallbacks(self) -> Path | None:
        """The sibling with the same weights and no op on the CPU."""
        mine = self.trace.header
        for path, other in self._all():
            if other.header.quant == mine.quant and not _on_cpu(other):
                return path
        return None

    def with_weights(self, plan: str) -> Path | None:
        """The sibling of another plan, with the same ops on the CPU."""
        mine = self.trace.header
        for path, other in self._all():
            same = _others(other.header.quant) == _others(mine.quant)
            if same and other.header.quant.get("plan") == plan and _on_cpu(other) == _on_cpu(self.trace):
                return path
        return None

    def command(self, *, plan: str | None = None) -> str:
        """What would make it: the trace's own command without its fallbacks, or with another ``plan``; empty if the
        trace does not say how it was made."""
        words = shlex.split(self.trace.header.command)
        if not words:
            return ""
        out, at = [], 0
        name = f"{self.file.stem}-{plan or 'no-fallback'}.trace"
        while at < len(words):
            pair = words[at : at + 2]
            if pair[0] == "-o":
                out += ["-o", name]
            elif pair[0] == "--quant" and plan is not None:
                out += ["--quant", plan]
            elif not (pair[0] == "--fallback-op" and plan is None):
                out.append(pair[0])
                at -= 1
            at += 2
        if plan is not None and "--quant" not in out:
            out += ["--quant", plan]
        return shlex.join(out)

    def _all(self) -> Iterator[tuple[Path, Trace]]:
        """Other traces of the folder that are of the same source, for the same core, and cut alike; by name."""
        mine = _same(self.trace.header)
        if not self.trace.header.source.get("sha256"):
            return
        for path in sorted(self.file.parent.glob("*.trace")):
            if path.samefile(self.file) or f'"{mine.source["sha256"]}"' not in _head(path):
                continue  # a folder may hold many, and most are of other models
            try:
                other = load_trace(path)
            except TraceError:
                continue  # damaged, and nobody asked for it
            if _same(other.header) == mine:
                yield path, other


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline()
    except OSError:
        return ""


def _same(header: Header) -> Header:
    """What siblings agree in."""
    return replace(header, model="", command="", quant={}, workspace=0, report={}, source=_source(header.source))


def _source(source: Mapping[str, Any]) -> dict[str, Any]:
    return {"sha256": source.get("sha256")}


def _others(quant: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in quant.items() if k not in _WEIGHTS}


def _on_cpu(trace: Trace) -> list[str]:
    """Ops on the CPU, by phase."""
    return [f"{p.name}/{op.id}" for p in trace.phases.values() for op in p.ops() if op.unit == "cpu"]
