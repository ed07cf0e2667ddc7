"""Presets of machines and of heat paths: YAML files in which every number cites its source or says why."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bpusim.documents import Document, read_document
from bpusim.errors import HardwareError, Place, Problem, did_you_mean
from bpusim.hardware.spec import MachineSpec

__all__ = ["cooling_document", "cooling_names", "machine_preset", "preset_document", "preset_names"]

_MACHINES = Path(__file__).with_name("presets")
_COOLING = Path(__file__).with_name("cooling")


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def _document(folder: Path, kind: str, name: str, place: Place | None) -> Document:
    names = _names(folder)
    if name not in names:
        raise HardwareError(f"unknown {kind} preset '{name}'", place=place, do=did_you_mean(name, names))
    return _shipped(folder / f"{name}.yaml")


@cache  # every scenario asks for one, and merges changes into copies
def _shipped(path: Path) -> Document:
    return read_document(path, error=HardwareError)


def preset_names() -> tuple[str, ...]:
    """Names of all machine presets, sorted."""
    return _names(_MACHINES)


def cooling_names() -> tuple[str, ...]:
    """Names of all presets of heat paths, sorted."""
    return _names(_COOLING)


def preset_document(name: str, place: Place | None = None) -> Document:
    """The file of preset ``name``, with the places of its values.

    Raises :class:`HardwareError`, at ``place`` where the user named it, if there is no such preset.
    """
    return _document(_MACHINES, "machine", name, place)


def cooling_document(name: str, place: Place | None = None) -> Document:
    """The same of a heat path."""
    return _document(_COOLING, "cooling", name, place)


@cache
def machine_preset(name: str) -> MachineSpec:
    """The machine that preset ``name`` describes. Raises :class:`HardwareError` for an unknown name."""
    document = preset_document(name)
    try:
        # As JSON, because a strict pydantic dataclass takes mappings from JSON only.
        return TypeAdapter(MachineSpec).validate_json(json.dumps(document.data))
    except ValidationError as failure:
        raise HardwareError(
            Problem(f"{'.'.join(map(str, e['loc']))}: {e['msg']}", document.where(*e["loc"])) for e in failure.errors()
        ) from None
