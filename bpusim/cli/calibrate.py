"""``bpusim calibrate``: numbers of a machine from measured runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bpusim.cli.options import FORMAT_MARKDOWN, SET

if TYPE_CHECKING:
    from bpusim.hardware import CoreSpec
    from bpusim.study.calibration import Wish
    from bpusim.trace import Trace

__all__ = ["calibrate", "compile_wish"]

_PART = click.FloatRange(0.001, 1)


def compile_wish(config: Path, core: CoreSpec, wish: Wish) -> Trace:
    """The compiler that studies are given. Raises :class:`CompileError`."""
    from bpusim.compiler import Options, compile_llm_config

    return compile_llm_config(
        config,
        core,
        Options(
            quant=wish.quant,
            quant_set=wish.quant_set,
            activation=wish.activation,  # type: ignore[arg-type]  # int8 or int16, as the rows are checked
            chunk=wish.chunk,
            context=wish.context,
            last_logit=True,
            name=wish.name,
        ),
    )


@click.command()
@click.argument("measured", type=click.Path(path_type=Path))
@click.option("--machine", default="bpu80", show_default=True, help="Machine preset, or a machine file.")
@click.option("--fit", "paths", metavar="PATH[,PATH...]", help="Numbers of the machine; none: compare only.")
@SET
@click.option("--board", help="Rows of this board; needed where the file has several.")
@click.option("--decode-noise", default=0.03, show_default=True, type=_PART, help="Relative error of decode rates.")
@click.option("--ttft-noise", default=0.12, show_default=True, type=_PART, help="Relative error of first tokens.")
@click.option("--keep-outliers", is_flag=True, help="Fit to rows that contradict the others, too.")
@click.option("--traces", type=click.Path(path_type=Path), help="Folder that keeps the compiled traces for next time.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), help="Machine file to write.")
@FORMAT_MARKDOWN
def calibrate(
    measured: Path,
    machine: str,
    paths: str | None,
    overrides: Sequence[str],
    board: str | None,
    decode_noise: float,
    ttft_noise: float,
    keep_outliers: bool,
    traces: Path | None,
    out: Path | None,
    form: str,
) -> None:
    """Fit numbers of a machine to the runs in MEASURED, a CSV file, by least squares.

    Prints them with their uncertainty, each row beside what is simulated, and how well a fit without it tells it.
    """
    from bpusim import __version__
    from bpusim.cli.calibrated import calibration_csv, calibration_json, print_calibration
    from bpusim.compiler import check_installed
    from bpusim.study.calibration import Noise, read_measurements
    from bpusim.study.calibration import calibrate as calibrated
    from bpusim.study.calibration.writing import Command, check_output, write_machine

    names = [p.strip() for p in (paths or "").split(",") if p.strip()]
    if paths is not None and not names:
        raise click.UsageError("--fit names nothing: name numbers of the machine, or leave it out to compare only")
    if out is not None and not names:
        raise click.UsageError("-o writes what was fitted: name it by --fit")
    if out is not None:
        check_output(out, measured, machine)
    check_installed()

    def told(runs: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{runs} runs ", nl=False, err=True)

    noise = Noise(decode_noise, ttft_noise)
    done = calibrated(
        read_measurements(measured, board), machine, names, compile_wish, overrides=overrides, noise=noise,
        keep_outliers=keep_outliers, traces=traces, told=told,
    )  # fmt: skip
    if sys.stderr.isatty():
        click.echo("\r" + " " * 20 + "\r", nl=False, err=True)
    if form in ("table", "markdown"):
        print_calibration(done, sys.stdout, markdown=form == "markdown")
    else:
        click.echo(calibration_json(done) if form == "json" else calibration_csv(done), nl=False)
    if out is not None:
        command = Command(measured, machine, tuple(overrides), board, noise, keep_outliers)
        write_machine(done, command, out, __version__)
        click.echo(f"{out}: {done.machine.name}, {len(names)} fitted", err=True)
