"""A fitted machine as a file that says where its numbers are from."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpusim.documents import parse_value, read_document
from bpusim.errors import HardwareError, Place, StudyError
from bpusim.study.calibration.calibrate import Calibration, Noise
from bpusim.study.calibration.fit import Fit

__all__ = ["Command", "check_output", "machine_text", "write_machine"]

_ENDS = (".yaml", ".yml")
_USUAL = Noise()


@dataclass(frozen=True, slots=True)
class Command:
    """What was asked for, as far as the result hangs on it."""

    measured: Path
    machine: str
    """A preset, or a machine file."""
    overrides: tuple[str, ...] = ()
    board: str | None = None
    noise: Noise = _USUAL
    keep_outliers: bool = False

    def words(self, paths: Sequence[str], out: Path) -> list[str]:
        """To give the same file again, from its folder."""
        words = ["bpusim", "calibrate", _from(self.measured, out), "--machine", self.base(out)]
        words += ["--board", self.board] if self.board is not None else []
        words += ["--fit", ",".join(paths), *(w for o in self.overrides for w in ("--set", o))]
        if self.noise.decode != _USUAL.decode:
            words += ["--decode-noise", f"{self.noise.decode}"]
        if self.noise.ttft != _USUAL.ttft:
            words += ["--ttft-noise", f"{self.noise.ttft}"]
        return [*words, *(["--keep-outliers"] if self.keep_outliers else []), "-o", out.name]

    def base(self, out: Path) -> str:
        """The machine by its name, or its path from the folder of ``out``."""
        return _from(Path(self.machine), out) if self.machine.endswith(_ENDS) else self.machine


def _from(path: Path, out: Path) -> str:
    # Resolved, as "up one" from a linked folder leads elsewhere.
    return Path(os.path.relpath(path.resolve(), out.parent.resolve())).as_posix()


def check_output(out: Path, measured: Path, machine: str) -> None:
    """Refuse a file that cannot be written, or that the fit reads. Raises :class:`StudyError`."""
    place = Place(str(out))
    if out.suffix not in _ENDS:
        raise StudyError("a machine file ends in .yaml or .yml", place=place, do=f"write -o {out.name}.yaml")
    if not out.parent.is_dir():
        raise StudyError("the folder does not exist", place=place, do=f"make it: mkdir -p {out.parent}")
    if out.is_dir():
        raise StudyError("this is a folder", place=place, do="name the file")
    if not os.access(out.parent, os.W_OK):
        raise StudyError(f"no right to write in {out.parent}", place=place, do="name another folder")
    if _same(out, measured):
        raise StudyError("this is the file of measurements", place=place, do="name another file to write")
    for base in _chain(machine):
        if _same(out, base):
            what = "the machine that is fitted is this file, or is made from it"
            raise StudyError(what, place=place, do="name another file to write")


def _same(one: Path, other: Path) -> bool:
    return one.samefile(other) if one.exists() and other.exists() else one.resolve() == other.resolve()


def _chain(machine: str) -> list[Path]:
    """The machine's files: itself, and those that it names in ``preset``."""
    files: list[Path] = []
    name: object = machine
    folder = Path()
    while isinstance(name, str) and name.endswith(_ENDS):
        path = folder / name
        if any(_same(path, f) for f in files):
            break
        files.append(path)
        name, folder = read_document(path, error=HardwareError).data.get("preset"), path.parent
    return files


def write_machine(done: Calibration, command: Command, out: Path, version: str) -> None:
    """Write ``out``, whole or not at all. Raises :class:`StudyError`."""
    text = machine_text(done, command, out, version)
    try:
        handle, fresh = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(fresh, 0o644)
            os.replace(fresh, out)
        finally:
            Path(fresh).unlink(missing_ok=True)
    except OSError as e:
        raise StudyError(f"cannot write the machine: {e.strerror}", place=Place(str(out))) from None


def machine_text(done: Calibration, command: Command, out: Path, version: str) -> str:
    """The file: what it changes of ``base``, each fitted number with its interval; the same inputs, the same text."""
    found = done.found
    assert found is not None  # nothing else is written
    rows = done.measurements.rows
    words = command.words([p.path.removeprefix("machine.") for p in done.parameters], out)
    lines = [
        f"# Fitted by bpusim {version}: {shlex.join(words)}",
        f"# To {done.observations} figures of rows {', '.join(r.id for r in rows)} of {done.measurements.file},",
        f"# SHA-256 {done.measurements.digest}.",
    ]
    lines += [f"# Left out: {o}." for o in done.outliers]
    lines += [f"# Not simulated: row {r.id}: {why}." for r, why in done.unusable]
    for kind, name in (("decode", "decode rates"), ("ttft", "first tokens")):
        error = done.mean(kind, lambda r: r.unseen)
        if error is not None:
            lines.append(f"# Mean error of {name} by fits without the row: {error:.1%}.")
    for k in range(len(done.parameters)):
        for j in range(k):
            one, other = (done.parameters[i].path.removeprefix("machine.") for i in (j, k))
            lines.append(f"# Correlation of {one} and {other}: {found.correlation[j, k]:+.2f}.")
    lines += [f"preset: {command.base(out)}", f"name: {out.stem}"]
    return "\n".join([*lines, *_block(_tree(done, found, command.overrides))]) + "\n"


class _Fitted(str):
    """A value with a comment."""

    __slots__ = ("about",)
    about: str


def _tree(done: Calibration, found: Fit, overrides: Sequence[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}

    def put(path: str, value: Any) -> None:
        at = tree
        *way, last = path.split(".")
        for key in way:
            at = at.setdefault(key, {})
        at[last] = value

    for text in overrides:
        path, _, value = text.partition("=")
        path = path.strip().removeprefix("machine.")
        put(path, _commented(value.strip(), "set by hand"))
        parse_value(value.strip(), place=Place(f"--set {path}"), error=StudyError)
    for k, p in enumerate(done.parameters):
        low, high = (p.short(v) for v in found.interval(k))
        put(p.path.removeprefix("machine."), _commented(str(p.told(found.at[k])), f"fitted; 95 %: {low} to {high}"))
    return tree


def _commented(text: str, about: str) -> _Fitted:
    value = _Fitted(text)
    value.about = about
    return value


def _block(tree: dict[str, Any], depth: int = 0) -> list[str]:
    lines = []
    for key, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{'  ' * depth}{key}:", *_block(value, depth + 1)]
        else:
            lines.append(f"{'  ' * depth}{key}: {value}  # {value.about}")
    return lines
