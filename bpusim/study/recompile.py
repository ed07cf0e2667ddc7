"""Traces for a core that a study changes: compiled once for each, and kept by content."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpusim.errors import StudyError
from bpusim.scenario import Scenario
from bpusim.trace import Trace, load_trace

__all__ = ["Recompiler"]


@dataclass(frozen=True, slots=True)
class Recompiler:
    """Makes traces anew by the command in their header. ``kept``: the folder for them; ``sources``: where models are
    looked for, besides the trace's own folder and ``models`` in it."""

    kept: str
    sources: tuple[str, ...] = ()

    def traces(self, loaded: Scenario) -> dict[str, str]:
        """Overrides for the models whose traces are for another core than that of the scenario."""
        fingerprint = loaded.machine.cores.fingerprint()
        out = {}
        for name, path in loaded.traces.items():
            trace = load_trace(path)
            if any(trace.header.target.get(k) != v for k, v in fingerprint.items()):
                out[f"models.{name}.trace"] = str(self._compiled(path, trace, fingerprint))
        return out

    def _compiled(self, path: Path, trace: Trace, fingerprint: Mapping[str, Any]) -> Path:
        words = shlex.split(trace.header.command)
        if words[:2] != ["bpusim", "compile"]:
            what = f"{path.name} is for another core, and does not say how it was compiled"
            raise StudyError(what, do="compile it for each core, and vary models.NAME.trace with it by zip")
        source = self._source(path, words)
        core = {f"machine.cores.{k}": v for k, v in fingerprint.items()}
        text = json.dumps([trace.header.command, hashlib.sha256(source.read_bytes()).hexdigest(), core], sort_keys=True)
        out = Path(self.kept) / f"{path.stem}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.trace"
        if not out.is_file():
            self._compile(source, words, core, out)
        return out

    def _source(self, path: Path, words: list[str]) -> Path:
        name = words[words.index("--llm-config") + 1] if "--llm-config" in words else words[2]
        folders = [Path(s) for s in self.sources] + [path.parent, path.parent / "models"]
        for folder in folders:
            if (folder / name).is_file():
                return folder / name
        places = ", ".join(map(str, folders))
        what = f"{path.name} is for another core and has to be compiled anew, but {name} is in none of {places}"
        raise StudyError(what, do="name its folder: sources: [FOLDER]")

    def _compile(self, source: Path, words: list[str], core: Mapping[str, Any], out: Path) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(dir=out.parent, prefix=f".{out.stem}.", suffix=".trace")
        os.close(handle)
        words = [str(source.absolute()) if w == source.name else w for w in words[1:]]
        words[words.index("-o") + 1] = fresh
        sets = [w for path, value in core.items() for w in ("--set", f"{path}={json.dumps(value)}")]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "bpusim", *words, *sets], capture_output=True, text=True, check=False
            )
            if done.returncode:
                lines = done.stderr.strip().splitlines() or ["it failed"]
                raise StudyError(
                    f"{source.name} does not compile for this core: {lines[-1]}", do="look at it by itself"
                )
            os.replace(fresh, out)
        finally:
            Path(fresh).unlink(missing_ok=True)
