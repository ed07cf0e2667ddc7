"""The commands of the DRAM channel by itself: show, explain, bench."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

__all__ = ["dram"]


@click.group()
def dram() -> None:
    """The DRAM channel by itself: its timing, its address mapping, and what it gives to streams."""


_MAPPING = click.option(
    "--mapping", help="RoBaCo, RoCoBa, RoCoBaCo2X, RoBaCoX, or pieces such as 'co2 ba3 co4 ro16 ba^=ro0'."
)


@dram.command()
@click.argument("channel")
@_MAPPING
def show(channel: str, mapping: str | None) -> None:
    """Print the timing and every derived spacing of CHANNEL, such as LPDDR4X-3200x64."""
    from bpusim.dram.bench import spacings
    from bpusim.dram.timing import channel as find

    found = find(channel)
    clock = found.timing.clock / 1000
    bits = found.mapping(mapping).text
    size = f"{found.capacity / 2**30:g} GiB, {found.line} B a burst"
    click.echo(f"{found.name}: {found.peak / 1e9:.3f} GB/s peak, {size}, clock {clock:g} ns")
    click.echo(f"mapping, low bits first: {bits}")
    for name, clocks in spacings(found).items():
        click.echo(f"  {name:<22} {clocks:>6} clocks {clocks * clock:>10.3f} ns")


@dram.command()
@click.argument("channel")
@click.argument("address")
@_MAPPING
def explain(channel: str, address: str, mapping: str | None) -> None:
    """Say where ADDRESS (bytes, 0x.. or decimal) lies in CHANNEL: rank, bank, row, column."""
    from bpusim.dram.timing import channel as find

    found = find(channel)
    try:
        line = int(address, 0) // found.line
    except ValueError:
        raise click.BadParameter(f"'{address}' is no address; write 0x1f40 or 8000") from None
    if not 0 <= line < found.capacity // found.line:
        raise click.BadParameter(f"'{address}' is not in the {found.capacity} B of {found.name}")
    at = found.mapping(mapping).decode(line)
    where = f"rank {at['ra']}, group {at['bg']}, bank {at['ba']}, row {at['ro']}, column {at['co']}"
    click.echo(f"{address}: line {line}: {where}")


@dram.command()
@click.argument("sets", nargs=-1, metavar="[SET]...")
@click.option("--check", is_flag=True, help="Compare with the shipped tables instead of writing.")
def calibrate(sets: Sequence[str], check: bool) -> None:
    """Fit the flow model's tables to the bank model, for timing SETs such as LPDDR4X-3200 (all by default)."""
    import json

    from bpusim.dram.calibrate import calibrate as fit
    from bpusim.dram.calibrate import write_table
    from bpusim.dram.table import table_path
    from bpusim.dram.timing import timing_names
    from bpusim.errors import HardwareError

    stale = []
    for stem in sets or timing_names():
        data = fit(stem, lambda text: click.echo(text, err=True))
        if not check:
            click.echo(f"{stem}: wrote {write_table(stem, data)}")
        elif not table_path(stem).exists() or json.loads(table_path(stem).read_text(encoding="utf-8")) != data:
            stale.append(stem)
    if stale:
        raise HardwareError(
            f"tables that the bank model does not give any more: {', '.join(stale)}",
            do=f"run: bpusim dram calibrate {' '.join(stale)}",
        )


@dram.command()
@click.argument("channel")
@click.option(
    "--streams",
    multiple=True,
    metavar="'MASTER MASTER ...'",
    help="Masters such as 'seq,out=64 rand,out=8,region=1G'; a standard set by default.",
)
@_MAPPING
@click.option("--refresh", type=click.Choice(["all_bank", "per_bank", "off"]), default="all_bank", show_default=True)
@click.option("--page", type=click.Choice(["open", "closed"]), default="open", show_default=True)
@click.option(
    "--cap", default=0, show_default=True, help="Row hits served in a row while an older request waits; 0: no cap."
)
@click.option(
    "--age", default=0, show_default=True, help="Clocks after which the oldest request alone is served; 0: never."
)
@click.option("--fifo", is_flag=True, help="First come, first served.")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
def bench(
    channel: str,
    streams: Sequence[str],
    mapping: str | None,
    refresh: str,
    page: str,
    cap: int,
    age: int,
    fifo: bool,
    form: str,
) -> None:
    """Run request streams on the bank model of CHANNEL: GB/s, row hits, latency, and the model's own speed."""
    import csv
    import json

    from bpusim.dram.bank.model import Controller
    from bpusim.dram.bench import STANDARD
    from bpusim.dram.bench import bench as run_cases
    from bpusim.dram.timing import channel as find

    controller = Controller(refresh=refresh, page=page, cap=cap, age=age, fifo=fifo)  # type: ignore[arg-type]
    rows = run_cases(find(channel), {s: s for s in streams} or STANDARD, controller, mapping)
    if form == "json":
        click.echo(json.dumps([r.to_dict() for r in rows], indent=1))
    elif form == "csv":
        tables = [r.to_dict() for r in rows]
        out = csv.DictWriter(sys.stdout, list(dict.fromkeys(k for t in tables for k in t)), lineterminator="\n")
        out.writeheader()
        out.writerows(tables)
    else:
        click.echo(
            f"{'case':<28} {'GB/s':>7} {'of peak':>8} {'row hits':>8}  latency of each master: mean / p50 / p99 ns"
        )
        for r in rows:
            clock = r.result.channel.timing.clock / 1000
            waits = "  ".join(
                f"{m.latency_mean * clock:.0f} / {m.latency_p50 * clock:.0f} / {m.latency_p99 * clock:.0f}"
                for m in r.result.masters
            )
            rate = f"{r.result.bytes_per_s / 1e9:>7.3f} {r.result.peak_fraction:>7.1%} {r.result.hit_rate:>8.1%}"
            click.echo(f"{r.name[:28]:<28} {rate}  {waits}")
        speed = sum(r.result.served for r in rows) / sum(r.wall_s for r in rows)
        click.echo(f"{speed / 1e6:.1f} million requests a second of wall time")
