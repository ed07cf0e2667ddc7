"""The commands that look at traces: show, diff, check, export-chakra."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bpusim.cli.options import FORMAT, MACHINE, OUTPUT, SET, writable
from bpusim.errors import Place, TraceError

if TYPE_CHECKING:
    from bpusim.hardware import MachineSpec
    from bpusim.trace import Trace

__all__ = ["trace"]

_FILE = click.Path(path_type=Path)
_PHASE = click.option("--phase", help="Phase of the trace; decode by default, or the only one.")
_KV = click.option("--kv", default=0, show_default=True, type=click.IntRange(0), help="Cache entries before the step.")
_TOKENS = click.option("--tokens", type=click.IntRange(1), help="Tokens of the step; the phase's chunk by default.")
_BATCH = click.option(
    "--batch", default=1, show_default=True, type=click.IntRange(1), help="Sequences in the step, each with its kv."
)


@click.group()
def trace() -> None:
    """Look at traces: what ops take and what holds them up, what differs, whether they make sense."""


@trace.command()
@click.argument("file", type=_FILE)
@_PHASE
@_KV
@_TOKENS
@_BATCH
@MACHINE
@SET
@FORMAT
@click.option("--graph", type=_FILE, metavar="OUT.svg", help="Draw the graph of calls into this file instead.")
def show(
    file: Path,
    phase: str | None,
    kv: int,
    tokens: int | None,
    batch: int,
    machine: str,
    overrides: Sequence[str],
    form: str,
    graph: Path | None,
) -> None:
    """Print the ops of FILE: MACs, bytes, and their place under the machine's roof; then its calls and CPU ops."""
    from bpusim.system.roof import roof_of
    from bpusim.trace.calls import stops
    from bpusim.trace.roofline import Position, op_rows, totals

    if graph is not None and form != "table":
        raise click.UsageError("--graph draws, --format prints: leave one out")
    loaded, found = _loaded(file, machine, overrides)
    at = Position.of(loaded, phase or _phase(loaded), kv, tokens, batch)
    groups = stops(loaded.bind(at.phase, kv=at.kvs, tokens=at.tokens))
    if graph is not None:
        from bpusim.report.call_graph import call_graph_svg

        if graph.suffix != ".svg":
            raise TraceError(f"'{graph}' is no name of a picture", do="the picture is SVG: name it such as calls.svg")
        writable(graph)
        try:
            graph.write_text(call_graph_svg(groups, f"{loaded.header.model}: {at.phase}"), encoding="utf-8")
        except OSError as e:
            raise TraceError(f"cannot write the picture: {e.strerror}", place=Place(str(graph))) from None
        click.echo(f"{graph}: {sum(g.count * len(g.stops) for g in groups)} calls and CPU ops")
        return
    roof = roof_of(found)
    rows = op_rows(loaded, at, roof)
    if form == "table":
        from bpusim.report.trace import print_ops

        print_ops(rows, groups, at, roof, sys.stdout)
    elif form == "csv":
        import csv

        out = csv.DictWriter(sys.stdout, list(rows[0].to_dict()) if rows else [], lineterminator="\n")
        out.writeheader()
        out.writerows(r.to_dict() for r in rows)
    else:
        import json

        data = {
            "model": loaded.header.model,
            "phase": at.phase,
            "kv": list(at.kvs),
            "tokens": at.tokens,
            "machine": found.name,
            "bytes_per_s": roof.bytes_per_s,
            "balance_operations_per_byte": roof.balance,
            "ops": [r.to_dict() for r in rows],
            "calls": [{"count": g.count, "calls": [s.to_dict() for s in g.stops]} for g in groups],
            "total": totals(rows),
        }
        click.echo(json.dumps(data, indent=1, ensure_ascii=False))


@trace.command()
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
@click.option("--phase", help="Phase to compare; all by default.")
@_KV
@_BATCH
@MACHINE
@SET
@FORMAT
@click.pass_context
def diff(
    ctx: click.Context,
    before: Path,
    after: Path,
    phase: str | None,
    kv: int,
    batch: int,
    machine: str,
    overrides: Sequence[str],
    form: str,
) -> None:
    """Print what changed from BEFORE to AFTER, by op and in total. Exit code 1 if anything did."""
    from bpusim.system.roof import roof_of
    from bpusim.trace import load_trace
    from bpusim.trace.diff import difference

    a, (b, found) = load_trace(before), _loaded(after, machine, overrides)
    rows = difference(a, b, roof_of(found), phase=phase, kv=kv, batch=batch)
    if form == "table":
        from bpusim.report.trace import print_difference

        print_difference(rows, (before.name, after.name), sys.stdout)
    elif form == "csv":
        import csv

        out = csv.DictWriter(sys.stdout, ["what", "figure", "before", "after"], lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
    else:
        import json

        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    ctx.exit(1 if rows else 0)


@trace.command()
@click.argument("file", type=_FILE)
@click.pass_context
def check(ctx: click.Context, file: Path) -> None:
    """Check FILE: structure, sums, bounds, tensors. Exit code 1 if it makes no sense, 2 if it cannot be read."""
    from bpusim.trace import load_trace
    from bpusim.trace.check import check_trace

    report = check_trace(load_trace(file))
    for problem in report.problems:
        click.echo(f"{file}: error: {problem}", err=True)
    click.echo(f"{file}: read whole: every line, key, term of a basis and named tensor is known")
    for law, n in report.checked.items():
        click.echo(f"  {law}: {n} checked")
    click.echo(f"{len(report.problems)} problems" if report.problems else "good")
    ctx.exit(1 if report.problems else 0)


@trace.command("export-chakra")
@click.argument("file", type=_FILE)
@OUTPUT
@_PHASE
@_KV
@_TOKENS
@_BATCH
@MACHINE
@SET
def export_chakra(
    file: Path,
    out: Path,
    phase: str | None,
    kv: int,
    tokens: int | None,
    batch: int,
    machine: str,
    overrides: Sequence[str],
) -> None:
    """Write a phase of FILE at one position as a Chakra execution trace (MLCommons, protobuf)."""
    from bpusim.exchange.chakra_write import export_chakra as write
    from bpusim.system.roof import roof_of
    from bpusim.trace.roofline import Position

    writable(out)
    loaded, found = _loaded(file, machine, overrides)
    at = Position.of(loaded, phase or _phase(loaded), kv, tokens, batch)
    nodes = write(loaded, at, roof_of(found), out)
    click.echo(f"{out}: {nodes} nodes of phase {at}")


def _phase(trace: Trace) -> str:
    return "decode" if "decode" in trace.phases else next(iter(trace.phases))


def _loaded(file: Path, machine: str, overrides: Sequence[str]) -> tuple[Trace, MachineSpec]:
    """A trace and a machine; a warning if the trace is for another core."""
    from bpusim.scenario import load_machine
    from bpusim.trace import load_trace

    loaded, found = load_trace(file), load_machine(machine, overrides)
    target = loaded.header.target
    differs = [k for k, v in found.cores.fingerprint().items() if target.get(k) != v]
    if differs:
        what = f"the trace is for another core than {machine}'s: {', '.join(differs)} differ"
        click.echo(f"warning: {file}: {what}; cycles are the trace's, times this machine's", err=True)
    return loaded, found
