"""``bpusim search``: the best points of a space by as few runs as it takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

from bpusim.cli.options import FORMAT_MARKDOWN
from bpusim.cli.studies import SPACE, WORKERS, pool_from, study_from

__all__ = ["search"]


@click.command()
@SPACE
@click.option("--minimize", multiple=True, metavar="EXPR", help="A figure, an expression, or cost; several: a front.")
@click.option("--maximize", multiple=True, metavar="EXPR", help="The same, for what is to be large.")
@click.option("--subject-to", multiple=True, metavar="CONDITION", help="A limit: 'streams.*.ttft_p99_ms <= 200'.")
@click.option("--cost", default="", metavar="EXPR", help="What 'cost' stands for.")
@click.option("--trials", type=click.IntRange(1, 10**6), help="Points to try; 100.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Of the search; 0.")
@click.option("--batch", type=click.IntRange(1, 10**4), help="Points that are chosen at a time; 8.")
@WORKERS
@FORMAT_MARKDOWN
def search(
    study: Path,
    varied: Sequence[str],
    overrides: Sequence[str],
    measure: Sequence[str],
    where: Sequence[str],
    seeds: int | None,
    minimize: Sequence[str],
    maximize: Sequence[str],
    subject_to: Sequence[str],
    cost: str,
    trials: int | None,
    seed: int | None,
    batch: int | None,
    jobs: int | None,
    scheduler: str | None,
    out: Path | None,
    form: Literal["table", "json", "csv", "markdown"],
) -> None:
    """Look for the best points of STUDY, a study file with search, or of a scenario with --vary.

    It chooses points by what it has seen (extra: search). With -o it goes on where it was stopped, and ends the same.
    """
    from bpusim.cli.interrupts import Interrupts
    from bpusim.cli.progress import ProgressBar
    from bpusim.report.searched import write_searched
    from bpusim.study.search import search as run

    wanted = {
        "minimize": list(minimize), "maximize": list(maximize), "subject_to": list(subject_to), "trials": trials,
        "seed": seed, "batch": batch,
    }  # fmt: skip
    changes: dict[str, Any] = {"measure": measure, "where": where, "seeds": seeds, "cost": cost}
    changes = {k: v for k, v in changes.items() if v}
    found = study_from(study, varied, overrides, changes, {k: v for k, v in wanted.items() if v not in (None, [])})
    with Interrupts() as interrupts, ProgressBar(sys.stderr) as bar:
        outcome = run(found, out, pool_from(jobs, scheduler), told=bar.points, stop=interrupts.asked)
        interrupts.ran()
    write_searched(outcome, form, sys.stdout)
    if interrupts.signal is not None:
        do = "the same command goes on" if out is not None else "with -o the same command would go on"
        click.echo(f"stopped by {interrupts.signal.name}: {do}", err=True)
        click.get_current_context().exit(interrupts.code)
    if not outcome.best:
        click.get_current_context().exit(1)
