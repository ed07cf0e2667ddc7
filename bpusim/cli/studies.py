"""Studies as the command line gives them: a file, or a scenario with ``--vary``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bpusim.cli.options import SET

if TYPE_CHECKING:
    from bpusim.study import Pool, Study

__all__ = ["SPACE", "WORKERS", "pool_from", "study_from"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def SPACE(command: _Command) -> _Command:  # noqa: N802  # as click's own decorators of options elsewhere
    """Options that say which points there are."""
    for option in reversed(
        (
            click.argument("study", type=click.Path(path_type=Path)),
            click.option(
                "--vary", "varied", multiple=True, metavar="PATH=V1,V2,...",
                help="Values of a path of the scenario: a list, or a range: 1:4, 1 GHz:2 GHz:0.1 GHz.",
            ),
            SET,
            click.option("--measure", multiple=True, metavar="FIGURE", help="Figures; * for any part of a name."),
            click.option("--where", multiple=True, metavar="CONDITION", help="Points: machine.cores.count <= 2."),
            click.option("--seeds", type=click.IntRange(1, 1000), help="Runs of each point, with seeds 0 to N-1."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def WORKERS(command: _Command) -> _Command:  # noqa: N802
    """Options that say where points run, and where their rows go."""
    for option in reversed(
        (
            click.option("--jobs", type=click.IntRange(1, 1024), help="Processes on this machine; one a CPU core."),
            click.option("--scheduler", metavar="ADDRESS", help="A Dask cluster: tcp://HOST:8786 (extra: dask)."),
            click.option(
                "-o", "--output", "out", type=click.Path(path_type=Path),
                help="Rows as JSON lines; goes on with a file.",
            ),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def pool_from(jobs: int | None, scheduler: str | None) -> Pool:
    """Where points run."""
    from bpusim.study import dask_pool, local_pool

    if jobs is not None and scheduler is not None:
        raise click.UsageError("--jobs are processes here, --scheduler is a cluster: give one of them")
    return dask_pool(scheduler) if scheduler is not None else local_pool(jobs)


def study_from(
    path: Path,
    varied: Sequence[str],
    overrides: Sequence[str],
    changes: dict[str, Any],
    search: dict[str, Any] | None = None,
) -> Study:
    """The study in a file, or what ``--vary`` makes of a scenario; ``changes``, ``search``: keys of it and of its
    search that options give."""
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
        return load_study(path, changes=changes, sets=sets, search=search)
    if not varied:
        raise click.UsageError("name a study file, or what to --vary of the scenario")
    vary = dict(_varied(text) for text in varied)
    if len(vary) < len(varied):
        raise click.UsageError("a path is varied twice: give all its values in one --vary")
    spec = StudySpec.model_validate(
        {
            "scenario": str(path.absolute()),
            "vary": vary,
            "set": sets,
            **changes,
            **({"search": search} if search else {}),
        },
        strict=False,
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
