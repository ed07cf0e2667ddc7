"""Machine presets: the YAML files in ``presets/``, in which every number cites its source."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bpusim.documents import Document, read_document
from bpusim.errors import HardwareError, Place, Problem, did_you_mean
from bpusim.hardware.spec import MachineSpec

__all__ = ["machine_preset", "preset_document", "preset_names"]

_FOLDER = Path(__file__).with_name("presets")


def preset_names() -> tuple[str, ...]:
    """Names of all machine presets, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def preset_document(name: str, place: Place | None = None) -> Document:
    """The file of preset ``name``, with the places of its values.

    Raises :class:`HardwareError`, at ``place`` where the user named it, if there is no such preset.
    """
    names = preset_names()
    if name not in names:
        raise HardwareError(f"unknown machine preset '{name}'", place=place, do=did_you_mean(name, names))
    return read_document(_FOLDER / f"{name}.yaml", error=HardwareError)


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
