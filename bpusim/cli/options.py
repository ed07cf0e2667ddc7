"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path

import click

from bpusim.errors import Place, TraceError

__all__ = ["FORMAT", "MACHINE", "OUTPUT", "SET", "writable"]

SET = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a value of the file, such as machine.dram.arbitration=equal.",
)

FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="What to print.",
)

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
