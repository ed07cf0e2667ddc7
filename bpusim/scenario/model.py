"""A loaded scenario: everything checked, everything with its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bpusim.documents import Document
from bpusim.errors import Place
from bpusim.hardware.spec import MachineSpec
from bpusim.runtime import Policy
from bpusim.scenario.schema import EngineOptions, HostOptions, ModelSpec, RunOptions
from bpusim.scenario.streams import StreamSpec

__all__ = ["Scenario"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What to simulate. ``file`` and ``files`` (the file, then its parents) are absolute paths."""

    name: str
    file: Path
    files: tuple[Path, ...]
    about: str
    machine: MachineSpec
    models: Mapping[str, ModelSpec]
    streams: Mapping[str, StreamSpec]
    host: HostOptions
    policy: str
    engine: EngineOptions
    run: RunOptions
    document: Document = field(repr=False, compare=False)
    """The merged files and overrides, for the places of later errors."""
    make_policy: Callable[[], Policy] = field(repr=False, compare=False)
    """Makes a policy for a core."""
    folders: Mapping[str, Path] = field(repr=False, compare=False)
    """Folder of each file, by the name that places have for it."""
    traces: Mapping[str, Path] = field(repr=False)
    """Absolute path of each model's trace."""

    def beside(self, name: str, *path: str | int) -> Path:
        """The path of the file ``name``, which stands at ``path`` in the scenario: from the folder of who says so."""
        return self.folders.get(self.where(*path).file, Path()).absolute() / name

    def where(self, *path: str | int) -> Place:
        """Where the value at ``path`` stands (``"models", "chat", "trace"``), or the nearest around it."""
        return self.document.where(*path)

    def trace_path(self, model: str) -> Path:
        """The absolute path of the trace of ``model``."""
        return self.traces[model]
