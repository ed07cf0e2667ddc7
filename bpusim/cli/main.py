"""The main commands: validate, schema, compile, sweep, compare; and all others, which have modules of their own."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from bpusim import __version__
from bpusim.cli.calibrate import calibrate
from bpusim.cli.dram import dram
from bpusim.cli.explain import explain
from bpusim.cli.imports import import_group
from bpusim.cli.options import FORMAT_MARKDOWN as _FORMAT
from bpusim.cli.options import SET as _SET
from bpusim.cli.plot import plot
from bpusim.cli.run import run
from bpusim.cli.search import search
from bpusim.cli.study import study
from bpusim.cli.sweep import sweep
from bpusim.cli.trace import trace
from bpusim.cli.written import flush, forget, hung_up
from bpusim.errors import BpusimError

__all__ = ["main"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Of a file, or what stands for standard output, that takes no more."""


class _Group(click.Group):
    """Errors that a user can mend are printed one a line, without a traceback, and exit with 2."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            done = super().invoke(ctx)
            flush()
            return done
        except BpusimError as e:
            click.echo(str(e), err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            ctx.exit(130)
        except BrokenPipeError:
            forget()
            ctx.exit(0)
        except SystemExit as e:
            if not hung_up(e):
                raise
            ctx.exit(0)
        except OSError as e:
            if e.errno not in _FULL:
                raise
            forget()
            click.echo(f"error: cannot write{f' {e.filename}' if e.filename else ''}: {e.strerror}", err=True)
            ctx.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bpusim")
def main() -> None:
    """Simulate language and vision models on a dual-core edge NPU, and explain their latency."""


@main.command()
@click.argument("scenario", type=click.Path(path_type=Path))
@_SET
def validate(scenario: Path, overrides: Sequence[str]) -> None:
    """Check SCENARIO, its traces and its memory without running it."""
    from bpusim.scenario import load_scenario
    from bpusim.system import System

    loaded = load_scenario(scenario, overrides)
    system = System.build(loaded)
    for w in system.warnings:
        click.echo(f"warning: {w.text}", err=True)
    click.echo(f"{scenario}: good, {len(loaded.models)} models, {len(loaded.streams)} streams")


@main.command()
@click.option("--study", is_flag=True, help="Of study files.")
def schema(study: bool) -> None:
    """Print the JSON Schema of scenario files, for editors."""
    import json

    if study:
        from bpusim.study import study_schema as made
    else:
        from bpusim.scenario import json_schema as made
    click.echo(json.dumps(made(), indent=1, ensure_ascii=False))


@main.command()
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option("--llm-config", type=click.Path(path_type=Path), help="An LLM's config.json instead of MODEL.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), required=True, help="The trace file to write.")
@click.option("--machine", default="bpu80", show_default=True, help="Machine preset to compile for.")
@_SET
@click.option("--name", help="Name of the model; the file's by default.")
@click.option("--quant", default="keep", show_default=True, help="Plan: int4, int8, w4a16, fp16, or keep the types.")
@click.option(
    "--quant-set",
    "quant_set",
    multiple=True,
    metavar="CLASS=WIDTH",
    help="Over the plan: embedding=int8, head=int4/32/fp16 (block, scale), or tensors by name: '*.down_proj.*=int8'.",
)
@click.option("--quant-report", is_flag=True, help="Noise of the plan by layer, and what int8 would bring and cost.")
@click.option(
    "--calibration", type=click.Path(path_type=Path), help="Activations for it: .npz of samples x features by name."
)
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), help="How it is printed; table.")
@click.option(
    "--activations",
    type=click.Choice(["int8", "int16"]),
    default="int16",
    show_default=True,
    help="Type of activations on the array.",
)
@click.option("--chunk", type=int, help="Tokens of a prefill chunk; 256, or the context if shorter.")
@click.option("--context", type=int, help="Cache entries a sequence may have; the model's limit by default.")
@click.option("--last-logit", is_flag=True, help="Compute logits for the last row of a prefill chunk only.")
@click.option("--fallback-op", "fallback_ops", multiple=True, metavar="TYPE", help="Run ops of this type on the CPU.")
@click.option("--strict", is_flag=True, help="Refuse ops without a cost rule instead of running them on the CPU.")
@click.option(
    "--bind",
    "binds",
    multiple=True,
    metavar="NAME=NUMBER",
    help="A size by symbol, a scalar input's value, or an input's shape: data=1x3x224x224.",
)
@click.option(
    "--assume",
    "assumes",
    multiple=True,
    metavar="NODE=WHAT",
    help="What only the data decide: then or else of an If, passes of a Loop, entries of a NonZero.",
)
@click.option("--until", "outputs", multiple=True, metavar="TENSOR", help="Compile only what computes this tensor.")
@click.option(
    "--fold-dequantise", is_flag=True, help="What if whoever reads the outputs took integers: no conversion at the end."
)
@click.option("--cores", help="Pin the trace to cores: 0 or 0,1; any by default.")
@click.option(
    "--verify", is_flag=True, help="Run every rewrite against what it replaces; write nothing if one differs."
)
def compile(
    model: Path | None,
    llm_config: Path | None,
    out: Path,
    machine: str,
    overrides: Sequence[str],
    name: str | None,
    quant: str,
    quant_set: Sequence[str],
    quant_report: bool,
    calibration: Path | None,
    form: str | None,
    activations: str,
    chunk: int | None,
    context: int | None,
    last_logit: bool,
    fallback_ops: Sequence[str],
    strict: bool,
    binds: Sequence[str],
    assumes: Sequence[str],
    outputs: Sequence[str],
    fold_dequantise: bool,
    cores: str | None,
    verify: bool,
) -> None:
    """Compile an ONNX MODEL (or an LLM's config.json) to a trace."""
    if (model is None) == (llm_config is None):
        raise click.UsageError("name an ONNX MODEL, or an LLM by --llm-config, and not both")
    from bpusim.compiler import check_installed

    check_installed()
    from bpusim.compiler.crossings import Board
    from bpusim.compiler.job import CompileJob
    from bpusim.scenario import load_machine
    from bpusim.system.roof import roof_of

    if not quant_report and (calibration is not None or form is not None):
        raise click.UsageError("--calibration and --format are for --quant-report: add it")
    machine_found = load_machine(machine, overrides)
    board = Board(machine_found.host, roof_of(machine_found))
    job = CompileJob(
        model=model,
        llm_config=llm_config,
        out=out,
        machine=machine,
        overrides=tuple(overrides),
        name=name,
        quant=quant,
        quant_set=tuple(quant_set),
        activations=activations,
        chunk=chunk,
        context=context,
        last_logit=last_logit,
        fallback_ops=tuple(fallback_ops),
        strict=strict,
        binds=tuple(binds),
        assumes=tuple(assumes),
        outputs=tuple(outputs),
        fold_dequantise=fold_dequantise,
        cores=cores,
        verify=verify,
    )
    if not quant_report:
        click.echo(job.run(machine_found.cores, board))
        return
    from bpusim.cli.noise import print_noise

    text, noise = job.study(machine_found.cores, board, calibration)
    click.echo(text, err=form in ("json", "csv"))
    print_noise(noise, form or "table", sys.stdout)


@main.command()
@click.argument("scenarios", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME", help="A policy to run each under; several compare."
)
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(1, 1000), help="Runs of each, 0 to N-1.")
@_SET
@click.option("--all", "everything", is_flag=True, help="All figures, not only those that matter first.")
@_FORMAT
def compare(
    scenarios: Sequence[Path],
    policies: Sequence[str],
    seeds: int,
    overrides: Sequence[str],
    everything: bool,
    form: str,
) -> None:
    """Run SCENARIOS side by side: what changes, and whether it is more than chance."""
    from bpusim.report.compare import headline, print_comparison
    from bpusim.study import compare as compared

    comparison = compared(scenarios, policies, seeds=seeds, set=overrides)
    rows = comparison.rows([n for n in comparison.names if everything or headline(n)])
    if form in ("table", "markdown"):
        print_comparison(rows, list(comparison.runs), seeds, sys.stdout, markdown=form == "markdown")
    elif form == "json":
        import json

        click.echo(json.dumps({"seeds": list(comparison.seeds), "figures": rows}, indent=1))
    else:
        import csv

        out = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [], lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


main.add_command(calibrate)
main.add_command(dram)
main.add_command(explain)
main.add_command(import_group)
main.add_command(plot)
main.add_command(run)
main.add_command(study)
main.add_command(search)
main.add_command(sweep)
main.add_command(trace)
