"""The timeline among the files of ``bpusim run``: its options, and what is said of what it leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bpusim.metrics import Keep, Result

__all__ = ["NO_TIMELINE", "TIMELINE_FORMAT", "TIMELINE_WINDOW", "timeline_files", "timeline_keep"]

TIMELINE_WINDOW = click.option(
    "--timeline-window", "window", metavar="FROM..TO", help="Show this part of the run in the timeline: 0s..200ms."
)
TIMELINE_FORMAT = click.option(
    "--timeline-format",
    "timeline_form",
    type=click.Choice(["json", "perfetto"]),
    help="Write it as trace.json.gz (the default) or as trace.pftrace (needs bpusim[perfetto]).",
)
NO_TIMELINE = click.option("--no-timeline", is_flag=True, help="Write no timeline: the run is faster.")


def timeline_keep(folder: Path | None, window: str | None, form: str | None, no_timeline: bool) -> Keep | None:
    """What the run is to keep for its timeline; None if it needs none. Refuses options that would do nothing, before
    any work is done."""
    if folder is None or no_timeline:
        for option, given in (("--timeline-window", window), ("--timeline-format", form)):
            if given is not None:
                why = "and --no-timeline leaves it out" if no_timeline else "which -o DIR writes: add it"
                raise click.UsageError(f"{option} is for the timeline, {why}")
        if no_timeline and folder is None:
            raise click.UsageError("--no-timeline is for the files of -o DIR: add it")
        return None
    from bpusim.report.timeline import check_format, keep_for

    check_format(form or "json")
    return keep_for(window)


def timeline_files(result: Result, form: str | None) -> dict[str, bytes]:
    """The timeline of a run by the name of its file; a line on stderr tells what is not in it."""
    from bpusim.report.timeline import timeline_file, timeline_of

    timeline = timeline_of(result)
    if timeline.notices:
        text = "; ".join(timeline.notices)
        click.echo(f"timeline: {text} (--timeline-window FROM..TO shows another part of the run)", err=True)
    name, data = timeline_file(timeline, form or "json")
    return {name: data}
