"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from bpusim.errors import Place, TraceError

__all__ = ["FORMAT", "FORMAT_MARKDOWN", "MACHINE", "OUTPUT", "SET", "writable"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

SET = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a value of the file, such as machine.dram.arbitration=equal.",
)


def _format(*names: str) -> Callable[[_Command], _Command]:
    kinds = click.Choice(["table", *names])
    return click.option("--format", "form", type=kinds, default="table", show_default=True, help="What to print.")


FORMAT = _format("json", "csv")
FORMAT_MARKDOWN = _format("json", "csv", "markdown")
"""Of commands whose tables go into issues and reports."""

MACHINE = click.option("--machine", default="bpu80", show_default=True, help="Machine preset.")

OUTPUT = click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), required=True, help="The file to write."
)


def writable(out: Path) -> None:
    """Refuse a file that cannot be made, before any work is done."""
    if not out.parent.is_dir():
        place, do = Place(str(out)), f"make it: mkdir -p {out.parent}"
        raise TraceError("the folder does not exist", place=place, do=do)
    if out.is_dir():
        raise TraceError("this is a folder", place=Place(str(out)), do="name the file")
