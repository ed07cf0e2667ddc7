"""``bpusim plot``: a chart from a folder that a run wrote."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["plot"]

_KINDS = ("breakdown", "timeline", "bandwidth", "thermal", "roofline", "latency")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(_KINDS), required=True, help="What to draw.")
@click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), required=True, help="The file: .png, .svg or .pdf."
)
def plot(folder: Path, kind: str, out: Path) -> None:
    """Draw a chart from FOLDER, which `bpusim run -o` wrote. The same run gives the same bytes."""
    from bpusim.cli.options import writable
    from bpusim.report.charts import write_chart
    from bpusim.report.view import View

    writable(out)
    write_chart(View.read(folder), kind, out)
