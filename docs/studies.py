"""The pictures of STUDIES.md: each example study is run, in a minute or so, and drawn.

python docs/studies.py            all of them
python docs/studies.py placement  one
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner

from bpusim.cli import main as bpusim

DOCS = Path(__file__).resolve().parent
PICTURES = {
    "dram_choice": ["pairs", "--figure", "total.decode_tokens_per_s", "--figure", "heat.energy_per_token_j"],
    "core_count": ["pairs", "--figure", "total.decode_tokens_per_s", "--figure", "heat.energy_per_token_j"],
    "slo_frontier": ["smallest"],
    "placement": ["pareto", "--pareto", "streams.*.itl_p99_ms,heat.energy_per_token_j"],
}


def draw(name: str) -> str:
    """The picture of a study as SVG."""
    study = DOCS.parent / "studies" / f"{name}.yaml"
    kind, *options = PICTURES[name]
    with tempfile.TemporaryDirectory() as folder:
        rows, svg = f"{folder}/rows.jsonl", Path(folder) / "chart.svg"
        plot = ["study", "plot", rows, "--study", str(study), "--kind", kind, *options, "-o", str(svg)]
        for command in (["sweep", str(study), "-o", rows], plot):
            done = CliRunner().invoke(bpusim, command, catch_exceptions=False)
            if done.exit_code:
                raise SystemExit(done.output)
        return svg.read_text(encoding="utf-8")


def main() -> None:
    for name in sys.argv[1:] or PICTURES:
        (DOCS / "img" / f"{name}.svg").write_text(draw(name), encoding="utf-8")


if __name__ == "__main__":
    main()
