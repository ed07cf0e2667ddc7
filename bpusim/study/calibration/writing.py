"""A fitted machine as a file that says where its numbers are from."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bpusim.documents import parse_value
from bpusim.errors import Place, StudyError
from bpusim.study.calibration.calibrate import Calibration
from bpusim.study.calibration.fit import Fit

__all__ = ["machine_text", "write_machine"]


def write_machine(
    done: Calibration, base: str, overrides: Sequence[str], out: Path, version: str, board: str | None = None
) -> None:
    """Write ``out``, whole or not at all. Raises :class:`StudyError`."""
    text = machine_text(done, base, overrides, out, version, board)
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


def machine_text(
    done: Calibration, base: str, overrides: Sequence[str], out: Path, version: str, board: str | None = None
) -> str:
    """The file: what it changes of ``base``, each fitted number with its interval; the same inputs, the same text."""
    found = done.found
    assert found is not None  # nothing else is written
    rows = done.measurements.rows
    words = ["bpusim", "calibrate", done.measurements.file, "--machine", Path(base).name if "/" in base else base]
    words += ["--board", board] if board is not None else []
    words += ["--fit", ",".join(p.path.removeprefix("machine.") for p in done.parameters)]
    words += [w for o in overrides for w in ("--set", o)] + ["-o", out.name]
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
    name = base if not base.endswith((".yaml", ".yml")) else os.path.relpath(base, out.parent)
    lines += [f"preset: {name}", f"name: {out.stem}"]
    return "\n".join([*lines, *_block(_tree(done, found, overrides))]) + "\n"


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
