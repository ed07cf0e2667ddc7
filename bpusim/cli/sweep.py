"""``bpusim sweep``: run a study, or a scenario at every point of a few ranges."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bpusim.cli.studies import SPACE, WORKERS, pool_from, study_from

if TYPE_CHECKING:
    from bpusim.study import Outcome, Study

__all__ = ["sweep"]


@click.command()
@SPACE
@click.option("--sample", type=click.Choice(["grid", "random", "lhs", "sobol"]), help="How points are drawn.")
@click.option("--points", type=click.IntRange(1, 10**6), help="How many are drawn.")
@click.option("--skip", type=click.Choice(["infeasible"]), help="Points that no machine can run are no failures.")
@WORKERS
@click.option("--format", "form", type=click.Choice(["csv", "json"]), default="csv", show_default=True)
@click.option("--retry", is_flag=True, help="Run points again whose row says that they failed.")
@click.option("--dry-run", is_flag=True, help="Print the points and run nothing.")
def sweep(
    study: Path,
    varied: Sequence[str],
    overrides: Sequence[str],
    measure: Sequence[str],
    where: Sequence[str],
    seeds: int | None,
    sample: str | None,
    points: int | None,
    skip: str | None,
    jobs: int | None,
    scheduler: str | None,
    out: Path | None,
    form: str,
    retry: bool,
    dry_run: bool,
) -> None:
    """Run STUDY, a study file, or a scenario with --vary; one row a point.

    A sweep that was stopped, however it was, goes on by the same command where it has -o.
    """
    from bpusim.cli.interrupts import Interrupts
    from bpusim.cli.progress import ProgressBar
    from bpusim.study import points_of, run_study
    from bpusim.study.export import rows_csv, rows_json

    changes = {
        "measure": measure, "where": where, "seeds": seeds, "skip": skip,
        "sample": {k: v for k, v in (("method", sample), ("points", points)) if v is not None},
    }  # fmt: skip
    found = study_from(study, varied, overrides, {k: v for k, v in changes.items() if v})
    drawn = points_of(found)
    if dry_run:
        for point in drawn.points:
            click.echo(", ".join(f"{path}={value}" for path, value in point.values.items()))
        click.echo(_counted(len(drawn.points), drawn.left_out), err=True)
        return
    with Interrupts() as interrupts, ProgressBar(sys.stderr) as bar:
        pool = pool_from(jobs, scheduler)
        outcome = run_study(found, out, pool, retry=retry, told=bar.points, stop=interrupts.asked, points=drawn)
        interrupts.ran()
    if out is None or form == "json":
        click.echo(rows_json(outcome.rows) if form == "json" else rows_csv(outcome.rows), nl=False)
    _tell(found, outcome, out)
    if interrupts.signal is not None:
        do = "the same command goes on" if out is not None else "with -o the same command would go on"
        left = outcome.points - len(outcome.rows)
        click.echo(f"stopped by {interrupts.signal.name}: {left} of {outcome.points} points are left; {do}", err=True)
        click.get_current_context().exit(interrupts.code)
    if outcome.counts.get("failed"):
        click.get_current_context().exit(1)


def _counted(points: int, left_out: int) -> str:
    text = f"{points} point{'s' if points > 1 else ''}"
    return f"{text}, and {left_out} that a condition leaves out" if left_out else text


def _tell(study: Study, outcome: Outcome, out: Path | None) -> None:
    counts = ", ".join(f"{n} {status}" for status, n in sorted(outcome.counts.items(), reverse=True))
    text = f"{study.name}: {_counted(len(outcome.rows), outcome.left_out)}: {counts}"
    if outcome.there:
        text += f"; {outcome.there} were there before"
    if outcome.torn:
        text += f"; the last line was cut off and is made anew ({outcome.torn} B)"
    click.echo(f"{text}; rows in {out}" if out is not None else text, err=True)
    for name in outcome.unmatched:
        click.echo(f"no point has a figure {name}", err=True)
    errors = [row["error"] for row in outcome.rows if row["status"] == "failed"]
    for error in list(dict.fromkeys(errors))[:5]:
        click.echo(f"failed: {error}", err=True)
