"""The command ``explain``: where the time of a scenario goes, and what would help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from bpusim.cli.options import SET

__all__ = ["explain"]


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@SET
@click.option(
    "--against",
    "other",
    type=click.Path(path_type=Path),
    metavar="OTHER",
    help="Say which causes make the difference to this scenario instead; --set changes SCENARIO only.",
)
@click.option("--no-what-if", "bare", is_flag=True, help="Run it once, and try no changes.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "markdown"]),
    default="table",
    show_default=True,
    help="What to print.",
)
def explain(
    scenario: Path,
    overrides: Sequence[str],
    other: Path | None,
    bare: bool,
    form: Literal["table", "json", "markdown"],
) -> None:
    """Say where the time of SCENARIO goes, what bounds it, and what each single change would make of it."""
    from bpusim.report.explain import write_explanation
    from bpusim.study.against import against
    from bpusim.study.explain import explain as explained

    if other is not None and bare:
        raise click.UsageError("--against tries no changes: leave --no-what-if out")
    if other is not None:
        write_explanation(against(scenario, other, overrides), form, sys.stdout)
        return
    tell = _progress if sys.stderr.isatty() else None
    write_explanation(explained(scenario, overrides, what_if=not bare, tell=tell), form, sys.stdout)


def _progress(done: int, of: int, what: str) -> None:
    """One line that is written over."""
    text = f"{done} of {of} runs: {what}"[:78] if what else ""
    click.echo(f"\r{text:<78}" if what else f"\r{'':<78}\r", nl=False, err=True)
