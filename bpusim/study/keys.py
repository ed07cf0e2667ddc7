"""Keys of points: hashes of all that their results depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bpusim.scenario import Scenario
from bpusim.study.run_point import versions
from bpusim.study.spec import Study

__all__ = ["Keys"]


class Keys:
    """Of the points of a study: configuration as it is resolved, files by their content, versions, figures, seeds."""

    def __init__(self, study: Study, base: Scenario) -> None:
        self._study = study
        self._stem = _stem(study, base)

    def of(self, values: Mapping[str, Any]) -> str:
        """That of a point."""
        files = [_hash(file) for file in _paths(self._study.resolved(values)) if file.is_file()]
        text = json.dumps([self._stem, values, files], sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _stem(study: Study, base: Scenario) -> list[Any]:
    """All that the results of every point depend on: configuration, files, versions, what is measured."""
    return [versions(), base.document.data, _files(base), sorted({*study.measures, *study.also}), study.seeds]


def _files(base: Scenario) -> dict[str, str]:
    """Hashes of the files that the scenario names."""
    found = {f"models.{name}.trace": _hash(path) for name, path in base.traces.items() if path.is_file()}
    for path, text in _texts(base.document.data, ()):
        if path[-1] != "trace" and ("." in text or "/" in text) and len(text) < 500:
            file = base.beside(text.partition(":")[0], *path)
            if file.is_file():
                found[".".join(map(str, path))] = _hash(file)
    return found


def _texts(node: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(node, str) and path:
        yield path, node
    elif isinstance(node, dict | list):
        for key, item in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _texts(item, (*path, key))


def _hash(path: Path) -> str:
    stat = path.stat()
    return _hash_of(path, stat.st_mtime_ns, stat.st_size)


@cache
def _hash_of(path: Path, _changed: int, _size: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _paths(value: Any) -> Iterator[Path]:
    if isinstance(value, Path):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _paths(item)
