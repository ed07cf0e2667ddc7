"""``bpusim study``: what the rows of a sweep show, as tables, charts and files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from bpusim.cli.options import FORMAT_MARKDOWN
from bpusim.errors import BpusimError, Place

if TYPE_CHECKING:
    from bpusim.metrics.studied import Studied

__all__ = ["study"]

_PARTS = ("effects", "pairs", "sensitivity", "pareto", "smallest")


@click.group()
def study() -> None:
    """Say what the rows of `bpusim sweep -o ROWS` show."""


def _asked(command: Callable[..., None]) -> Callable[..., None]:
    """Options that say what is wanted; the command is given ``analysed``, which works it out."""

    @wraps(command)
    def bundled(
        rows: Path,
        spec: Path | None,
        figures: Sequence[str],
        pair: str | None,
        slo: Sequence[str],
        cost: str,
        pareto: str,
        **others: Any,
    ) -> None:
        command(analysed=lambda: _analysed(rows, spec, figures, pair, slo, cost, pareto), **others)

    made: Callable[..., None] = bundled
    for option in reversed(
        (
            click.argument("rows", type=click.Path(path_type=Path)),
            click.option(
                "--study", "spec", type=click.Path(path_type=Path), metavar="STUDY",
                help="The study file: its slo and cost, and its rows only.",
            ),
            click.option("--figure", "figures", multiple=True, metavar="NAME", help="Figures; * for any part."),
            click.option("--pair", metavar="A,B", help="Two parameters for the heat map; those that matter most."),
            click.option("--slo", multiple=True, metavar="CONDITION", help="A limit: 'streams.*.ttft_p99_ms <= 200'."),
            click.option("--cost", default="", metavar="EXPR", help="What makes a machine small: an expression."),
            click.option(
                "--pareto", default="", metavar="A,B",
                help="Objectives of a Pareto front: figures or expressions, min: or max: before them, or cost.",
            ),
        )
    ):  # fmt: skip
        made = option(made)
    return made


@study.command()
@_asked
@click.option("--part", "parts", multiple=True, type=click.Choice(_PARTS), help="What to print; all there is.")
@FORMAT_MARKDOWN
def show(
    analysed: Callable[[], Studied], parts: Sequence[str], form: Literal["table", "json", "csv", "markdown"]
) -> None:
    """Print main effects, pairs, sensitivity, the Pareto front and the smallest machine that is enough."""
    from bpusim.report.study import write_studied

    if form == "csv" and len(parts) != 1:
        raise click.UsageError(f"csv is one table: add --part {' or --part '.join(_PARTS)}")
    found = analysed()
    _check(parts, found)
    write_studied(found, parts, form, sys.stdout)


@study.command()
@_asked
@click.option("--kind", type=click.Choice(_PARTS), help="What to draw; by default all there is, into a folder.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), required=True,
              help="A .svg, .png or .pdf file, or a folder for a file each.")  # fmt: skip
def plot(analysed: Callable[[], Studied], kind: str | None, out: Path) -> None:
    """Draw main effects, heat maps, sensitivity, the Pareto front, or points against limits. Same rows, same bytes."""
    from bpusim.cli.options import writable
    from bpusim.report.charts.study import study_kinds, write_study_chart

    one = not out.is_dir() and (bool(out.suffix) or out.exists())
    if one and kind is None:
        raise click.UsageError("one file is one chart: add --kind, or name a folder")
    if one:
        writable(out)
    found = analysed()
    _check([kind] if kind is not None else [], found)
    if one and kind is not None:
        write_study_chart(found, kind, out)
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BpusimError(f"cannot make the folder: {e.strerror}", place=Place(str(out))) from None
    for name in [kind] if kind is not None else study_kinds(found):
        write_study_chart(found, name, out / f"{name}.svg")
        click.echo(str(out / f"{name}.svg"))


@study.command()
@click.argument("rows", type=click.Path(path_type=Path))
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), required=True,
              help="A .csv, .json or .parquet file (extra: parquet).")  # fmt: skip
def export(rows: Path, out: Path) -> None:
    """Write ROWS as a table, one line a point, failed ones with their errors."""
    from bpusim.cli.options import writable
    from bpusim.study.export import write_rows
    from bpusim.study.store import latest

    writable(out)
    count = write_rows(list(latest(rows).values()), out)
    click.echo(f"{out}: {count} row{'s' if count != 1 else ''}")


def _analysed(
    rows: Path, spec: Path | None, figures: Sequence[str], pair: str | None, slo: Sequence[str], cost: str, pareto: str
) -> Studied:
    from bpusim.study.analysis import Asked, analyse

    names = [p.strip() for p in pair.split(",")] if pair is not None else []
    if pair is not None and len(names) != 2:
        raise click.UsageError(f"--pair {pair}: write two parameters, A,B")
    two = (names[0], names[1]) if names else None
    return analyse(rows, spec, Asked(tuple(figures), two, tuple(slo), cost, pareto))


def _check(parts: Sequence[str], found: Studied) -> None:
    """A part that was asked for and needs more to be said."""
    if "pareto" in parts and found.front is None:
        raise click.UsageError("a Pareto front of what? add --pareto FIGURE,FIGURE")
    if "smallest" in parts and found.smallest is None:
        raise click.UsageError("which machine is enough for what? add --slo CONDITION, or slo to the study and --study")
