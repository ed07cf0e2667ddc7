"""``bpusim run``: one scenario, what came out of it, and the files it leaves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bpusim.cli.options import FORMAT_MARKDOWN, SET
from bpusim.cli.timeline import NO_TIMELINE, TIMELINE_FORMAT, TIMELINE_WINDOW, timeline_files, timeline_keep

if TYPE_CHECKING:
    from bpusim.cli.interrupts import Interrupts
    from bpusim.metrics import Keep, Result
    from bpusim.scenario import Scenario

__all__ = ["run"]


@click.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@SET
@FORMAT_MARKDOWN
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    help="Write report.html, what it is made from (tables, JSON) and a timeline into this folder.",
)
@click.option("--no-report", is_flag=True, help="Write no report.html and no series.json: they cost seconds.")
@TIMELINE_WINDOW
@TIMELINE_FORMAT
@NO_TIMELINE
def run(
    scenario: Path,
    overrides: Sequence[str],
    form: str,
    folder: Path | None,
    no_report: bool,
    window: str | None,
    timeline_form: str | None,
    no_timeline: bool,
) -> None:
    """Run SCENARIO and print what came out; Ctrl-C ends it with the results so far, marked partial."""
    from bpusim.cli.interrupts import Interrupts
    from bpusim.scenario import load_scenario

    if no_report and folder is None:
        raise click.UsageError("--no-report is for the files of -o DIR: add it")
    keep = timeline_keep(folder, window, timeline_form, no_timeline)
    if folder is not None:
        from bpusim.report.folder import check_folder

        check_folder(folder)
    loaded = load_scenario(scenario, overrides)
    if loaded.engine.dram == "bank":
        from bpusim.system.estimate import bank_cost

        bursts, seconds = bank_cost(scenario, overrides)
        click.echo(f"bank model: {bursts / 1e6:.1f} million bursts, about {seconds:.0f} s of CPU", err=True)
    with Interrupts() as interrupts:
        result = _simulated(loaded, folder, keep, interrupts)
        try:
            if folder is not None:
                _write(folder, result, loaded, overrides, keep, timeline_form, report=not no_report)
        finally:  # files may not fit the disk, or a second Ctrl-C be faster: what came out is told all the same
            _print(result, form)
    if result.partial:
        sys.exit(interrupts.code)


def _simulated(loaded: Scenario, folder: Path | None, keep: Keep | None, interrupts: Interrupts) -> Result:
    """The run, on its way to where it ends or is stopped. ``keep``: for a timeline; for the files there is more."""
    from bpusim.cli.progress import ProgressBar
    from bpusim.metrics.detail import Keep
    from bpusim.system import Progress, simulate

    detail = None if folder is None else keep or Keep(slices=0)
    with ProgressBar(sys.stderr) as bar:

        def watch(progress: Progress) -> bool:
            bar.show(progress)
            return interrupts.asked()

        result = simulate(loaded, records=folder is not None, journal=keep is not None, detail=detail, watch=watch)
    interrupts.ran()
    if result.partial and interrupts.signal is not None:
        at = f"{result.elapsed / 1e12:.3f} s simulated"
        click.echo(f"stopped by {interrupts.signal.name} at {at}: the results are partial", err=True)
    return result


def _write(
    folder: Path,
    result: Result,
    loaded: Scenario,
    overrides: Sequence[str],
    keep: Keep | None,
    timeline_form: str | None,
    *,
    report: bool,
) -> None:
    """The files, before anything is printed: nobody may read that to its end."""
    from bpusim.report.folder import write_folder

    if result.partial:
        click.echo(f"writing {folder}; another Ctrl-C leaves it as it was", err=True)
    timeline = timeline_files(result, timeline_form) if keep is not None else {}
    write_folder(folder, result, loaded, overrides, timeline, report=report)
    _tell_coverage(folder, result)


def _tell_coverage(folder: Path, result: Result) -> None:
    from bpusim.units import PS_PER_S

    if result.detail is not None and result.detail.ops_until is not None:
        part, whole = (f"{t / PS_PER_S:.3g} s" for t in (result.detail.ops_until, result.elapsed))
        click.echo(f"{folder / 'ops.csv'}: of the first {part} of {whole}; more would take too long", err=True)


def _print(result: Result, form: str) -> None:
    if form in ("table", "markdown"):
        from bpusim.report.table import print_markdown, print_result

        (print_result if form == "table" else print_markdown)(result, sys.stdout)
    else:
        from bpusim.report.files import streams_csv, summary_json

        click.echo(summary_json(result) if form == "json" else streams_csv(result), nl=False)
