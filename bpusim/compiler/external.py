"""External data: where a tensor's bytes should lie, judged by path and size only. The data are never read."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx

from bpusim.compiler.files import is_pointer
from bpusim.compiler.graph import ELEMENT_BITS
from bpusim.errors import CompileError, Place, Problem

__all__ = ["check_external"]

_PROBE = 64
"""Bytes read of a data file, to tell a Git LFS pointer from data."""


def check_external(tensors: list[onnx.TensorProto], model: Path) -> list[str]:
    """What a user should know of the data files of ``tensors``: those missing or not named. Sizes follow from the dims.

    Raises :class:`CompileError` with every location outside the model's folder, every offset or length that cannot be,
    and every file that is too short.
    Places are taken beside ``model`` as the user names it. A model that is itself a link (a hub's cache) may have its
    data among the files it links to.
    """
    homes = {model.parent.resolve(), model.resolve().parent if model.is_symlink() else model.parent.resolve()}
    problems: list[Problem] = []
    sizes: dict[str, tuple[int | None, str]] = {}
    missing: dict[str, list[str]] = {}
    for t in tensors:
        told = {e.key: e.value for e in t.external_data}
        place = Place(str(model))
        if not told:
            missing.setdefault("that is not named", []).append(t.name)
            continue
        location = told.get("location", "")
        why = _outside(location, model.parent, homes)
        if why:
            what = f"tensor '{t.name}': its data location '{location}' {why}; nothing is opened there"
            problems.append(Problem(what, place, "keep the data in the model's folder, by a relative name"))
            continue
        try:
            offset, length = (int(told[k]) if told.get(k) else None for k in ("offset", "length"))
        except ValueError:
            problems.append(
                Problem(f"tensor '{t.name}': its data offset or length is no number", place, "export the model again")
            )
            continue
        wanted = _bytes(t)
        if (offset or 0) < 0:
            what = f"tensor '{t.name}': its data begin at byte {offset} of '{location}'"
            problems.append(Problem(what, place, "export the model again"))
            continue
        if length is not None and length != wanted and t.data_type in ELEMENT_BITS:
            what = f"tensor '{t.name}': the file states {length} bytes of data; its dims need {wanted}"
            problems.append(Problem(what, place, "export the model again"))
            continue
        if location not in sizes:
            sizes[location] = _size(model.parent / location)
        there, state = sizes[location]
        if there is None:
            missing.setdefault(f"'{location}' {state}", []).append(t.name)
        elif there < (offset or 0) + wanted:
            at = f" from byte {offset} on" if offset else ""
            what = f"tensor '{t.name}': {wanted} bytes are wanted{at} of '{location}', which has {there}"
            problems.append(Problem(what, place, "the data file is cut off or another model's: fetch it again"))
    if problems:
        raise CompileError(problems)
    return [
        f"data file {which}: {len(names)} tensor{'s' * (len(names) > 1)}, first '{names[0]}'; sizes are from the dims"
        for which, names in missing.items()
    ]


def _outside(location: str, folder: Path, homes: set[Path]) -> str:
    """Why ``location`` may not be used; empty if it may."""
    if not location or "\0" in location:
        return "is empty" if not location else "is no file name"
    windows = PureWindowsPath(location)
    if PurePosixPath(location).is_absolute() or windows.drive or windows.root:
        return "is an absolute path"
    if ".." in (*PurePosixPath(location).parts, *windows.parts):
        return "leads out of the model's folder"
    try:
        target = (folder / location).resolve()
    except (OSError, RuntimeError):
        return "is a link that leads nowhere"
    return "" if any(target.is_relative_to(home) for home in homes) else "is a link out of the model's folder"


def _size(path: Path) -> tuple[int | None, str]:
    """(bytes, "") of a data file; (None, why) where there are none."""
    try:
        if not path.is_file():
            return None, "is not there" if not path.exists() else "is no file"
        size = path.stat().st_size
        if size < 1024:
            with path.open("rb") as f:
                if is_pointer(f.read(_PROBE)):
                    return None, "is a Git LFS pointer (git lfs pull fetches the data)"
    except OSError as e:
        return None, f"cannot be read ({e.strerror})"
    return size, ""


def _bytes(t: onnx.TensorProto) -> int:
    elements = 1
    for d in t.dims:
        elements *= d
    return -(-elements * ELEMENT_BITS.get(t.data_type, 0) // 8)
