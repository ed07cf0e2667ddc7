"""``bpusim sweep``: run a study, or a scenario at every point of a few ranges."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bpusim.cli.options import SET

if TYPE_CHECKING:
    from bpusim.study import Outcome, Study

__all__ = ["sweep"]


@click.command()
@click.argument("study", type=click.Path(path_type=Path))
@click.option(
    "--vary",
    "varied",
    multiple=True,
    metavar="PATH=V1,V2,...",
    help="Values of a path of the scenario: a list, or a range: 1:4, 1 GHz:2 GHz:0.1 GHz. Several make a grid.",
)
@SET
@click.option("--measure", multiple=True, metavar="FIGURE", help="Figures of the summary; * for any part of a name.")
@click.option("--where", multiple=True, metavar="CONDITION", help="Points to run: machine.cores.count <= 2.")
@click.option("--seeds", type=click.IntRange(1, 1000), help="Runs of each point, with seeds 0 to N-1.")
@click.option("--sample", type=click.Choice(["grid", "random", "lhs", "sobol"]), help="How points are drawn.")
@click.option("--points", type=click.IntRange(1, 10**6), help="How many are drawn.")
@click.option("--skip", type=click.Choice(["infeasible"]), help="Points that no machine can run are no failures.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Processes on this machine; one a CPU core by default.")
@click.option("--scheduler", metavar="ADDRESS", help="Run on a Dask cluster: tcp://HOST:8786 (extra: dask).")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), help="Rows as JSON lines; goes on with a file.")
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
    from bpusim.study import dask_pool, local_pool, points_of, run_study
    from bpusim.study.export import rows_csv, rows_json

    if jobs is not None and scheduler is not None:
        raise click.UsageError("--jobs are processes here, --scheduler is a cluster: give one of them")
    changes = {
        "measure": measure, "where": where, "seeds": seeds, "skip": skip,
        "sample": {k: v for k, v in (("method", sample), ("points", points)) if v is not None},
    }  # fmt: skip
    found = _study(study, varied, overrides, {k: v for k, v in changes.items() if v})
    drawn = points_of(found)
    if dry_run:
        for point in drawn.points:
            click.echo(", ".join(f"{path}={value}" for path, value in point.values.items()))
        click.echo(_counted(len(drawn.points), drawn.left_out), err=True)
        return
    with Interrupts() as interrupts, ProgressBar(sys.stderr) as bar:
        pool = dask_pool(scheduler) if scheduler is not None else local_pool(jobs)
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


def _study(path: Path, varied: Sequence[str], overrides: Sequence[str], changes: dict[str, Any]) -> Study:
    from bpusim.documents import parse_value
    from bpusim.errors import Place, StudyError
    from bpusim.study.spec import StudySpec, is_study, load_study, study_of

    sets = {}
    for text in overrides:
        name, equals, content = text.partition("=")
        if not equals or not name.strip():
            raise StudyError(f"'{text}' sets nothing", place=Place("--set"), do="write --set path=value")
        sets[name.strip()] = parse_value(content.strip(), place=Place(f"--set {name.strip()}"), error=StudyError)
    if is_study(path):
        if varied:
            raise click.UsageError("a study says itself what it varies: add --vary to a scenario")
        return load_study(path, changes=changes, sets=sets)
    if not varied:
        raise click.UsageError("name a study file, or what to --vary of the scenario")
    vary = dict(_varied(text) for text in varied)
    if len(vary) < len(varied):
        raise click.UsageError("a path is varied twice: give all its values in one --vary")
    spec = StudySpec.model_validate(
        {"scenario": str(path.absolute()), "vary": vary, "set": sets, **changes}, strict=False
    )
    return study_of(spec, Path())


def _varied(text: str) -> tuple[str, Any]:
    """``PATH=1,2`` as a list, ``PATH=1:4`` and ``PATH=1 GHz:2 GHz:0.5 GHz`` as a range."""
    from bpusim.documents import parse_value
    from bpusim.errors import Place, StudyError

    path, equals, values = (t.strip() for t in text.partition("="))
    if not equals or not path or not values:
        raise click.UsageError(f"'{text}' varies nothing; write --vary path=value,value")
    place = Place(f"--vary {path}")
    ends = [e.strip() for e in values.split(":")]
    if 2 <= len(ends) <= 3 and all(re.match(r"[+-]?[\d.]", e) for e in ends) and "," not in values:
        names = ("from", "to", "step")
        return path, {n: parse_value(e, place=place, error=StudyError) for n, e in zip(names, ends, strict=False)}
    parts = re.split(r",(?![^\[{]*[\]}])", values)  # not inside [..] or {..}
    return path, [parse_value(v.strip(), place=place, error=StudyError) for v in parts]


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
