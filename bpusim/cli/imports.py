"""The import commands: SCALE-Sim topologies, measured profiles, Chakra execution traces."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bpusim.cli.options import MACHINE, OUTPUT, SET, writable

if TYPE_CHECKING:
    from bpusim.trace import Trace

__all__ = ["import_group"]

_NAME = click.option("--name", help="Name of the model; the file's by default.")


@click.group("import")
def import_group() -> None:
    """Make traces of what others wrote: SCALE-Sim topologies, measured profiles, Chakra execution traces."""


@import_group.command()
@click.argument("topology", type=click.Path(path_type=Path))
@OUTPUT
@MACHINE
@SET
@_NAME
@click.option(
    "--activations",
    type=click.Choice(["int8", "int16"]),
    default="int8",
    show_default=True,
    help="Type of activations on the array.",
)
@click.option(
    "--quant", type=click.Choice(["int4", "int8", "fp16"]), default="int8", show_default=True, help="Plan of weights."
)
def scalesim(
    topology: Path, out: Path, machine: str, overrides: Sequence[str], name: str | None, activations: str, quant: str
) -> None:
    """Lower a SCALE-Sim TOPOLOGY (convolutions or GEMMs, v2 or v3) to the machine's array."""
    from bpusim.exchange.scalesim import import_scalesim
    from bpusim.scenario import load_machine

    writable(out)
    core = load_machine(machine, overrides).cores
    given = {"--machine": machine, "--activations": activations, "--quant": quant, "--name": name}
    trace = import_scalesim(
        topology,
        core,
        activation="int16" if activations == "int16" else "int8",
        quant=quant,
        name=name,
        command=_command("scalesim", topology, given, overrides, out),
    )
    _write(trace, out)


@import_group.command()
@click.argument("profile", type=click.Path(path_type=Path))
@OUTPUT
@MACHINE
@SET
@_NAME
@click.option("--clock", help="Clock of the core that was measured, such as '1 GHz'; the machine's by default.")
def profile(
    profile: Path, out: Path, machine: str, overrides: Sequence[str], name: str | None, clock: str | None
) -> None:
    """Make a trace of a measured PROFILE: CSV with name, engine (mac, vector, dma, cpu), us, bytes.

    More columns are read if they are there: type, macs, weights and written (bytes of those moved), start (us).
    """
    from bpusim.exchange.profile import import_profile
    from bpusim.scenario import load_machine
    from bpusim.system.roof import roof_of
    from bpusim.units import parse_quantity

    writable(out)
    found = load_machine(machine, overrides)
    hz = None if clock is None else int(parse_quantity(clock, "frequency"))
    if hz == 0:
        raise click.BadParameter("a clock of 0 Hz never ticks", param_hint="--clock")
    command = _command("profile", profile, {"--machine": machine, "--clock": clock, "--name": name}, overrides, out)
    trace, warnings = import_profile(profile, found.cores, roof_of(found), hz=hz, name=name, command=command)
    for text in warnings:
        click.echo(f"warning: {text}", err=True)
    _write(trace, out)


@import_group.command()
@click.argument("trace", metavar="ET", type=click.Path(path_type=Path))
@OUTPUT
@MACHINE
@SET
@_NAME
def chakra(trace: Path, out: Path, machine: str, overrides: Sequence[str], name: str | None) -> None:
    """Make a trace of a Chakra execution trace ET (MLCommons, protobuf) of one device."""
    from bpusim.exchange.chakra_read import import_chakra
    from bpusim.scenario import load_machine
    from bpusim.system.roof import roof_of

    writable(out)
    found = load_machine(machine, overrides)
    command = _command("chakra", trace, {"--machine": machine, "--name": name}, overrides, out)
    made, warnings = import_chakra(trace, found.cores, roof_of(found), name=name, command=command)
    for text in warnings:
        click.echo(f"warning: {text}", err=True)
    _write(made, out)


def _command(kind: str, source: Path, options: Mapping[str, str | None], overrides: Sequence[str], out: Path) -> str:
    """The command that makes this trace again, with files by name only."""
    words = ["bpusim", "import", kind, source.name]
    words += [w for flag, value in options.items() if value is not None for w in (flag, value)]
    words += [w for value in overrides for w in ("--set", value)]
    return shlex.join([*words, "-o", out.name])


def _write(trace: Trace, out: Path) -> None:
    from bpusim.errors import Place, TraceError
    from bpusim.trace import CallProgram, save_trace
    from bpusim.units import format_quantity

    try:
        save_trace(trace, out)
    except OSError as e:
        raise TraceError(f"cannot write the trace: {e.strerror}", place=Place(str(out))) from None
    program = trace.bind("frame")
    ops = sum(1 for _ in trace.phase("frame").ops())
    moves = sum(s.bytes if isinstance(s, CallProgram) else sum(s.moved.values()) for s in program.segments)
    moved = format_quantity(moves, "size")
    weights = format_quantity(trace.resident_bytes, "size")
    click.echo(f"{out}: {trace.header.model}, {ops} ops, {program.macs} MACs, {moved} DRAM, {weights} of weights")
