"""Makes what the docs take from the program: schema, scenario reference, validation tables, and the README's picture.

python docs/make.py            write everything
python docs/studies.py         the pictures of STUDIES.md, which take studies to run
python docs/make.py --check    fail if a text would change (the picture is not compared: it depends on the library)
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import validation

from bpusim.compiler.rules.table import op_table
from bpusim.metrics.definitions import CAUSE_MEANINGS, DEFINITIONS
from bpusim.scenario import json_schema
from bpusim.study import study_schema

DOCS = Path(__file__).resolve().parent


def schema_text() -> str:
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def study_schema_text() -> str:
    return json.dumps(study_schema(), indent=1, ensure_ascii=False) + "\n"


def kind(node: dict[str, Any]) -> str:
    """A schema node in a few words."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join(f"`{v}`" for v in node["enum"])
    for key in ("anyOf", "oneOf"):
        if key in node:
            return " or ".join(dict.fromkeys(kind(n) for n in node[key] if n.get("type") != "null"))
    if node.get("examples"):
        return f"such as `{node['examples'][0]}`"
    if node.get("type") == "object":
        inner = node.get("additionalProperties")
        return f"mapping of names to {kind(inner)}" if isinstance(inner, dict) else "mapping"
    if node.get("type") == "array" and node.get("prefixItems"):
        return f"list of {len(node['prefixItems'])}: {kind(node['prefixItems'][0])}"
    if node.get("type") == "array":
        return f"list of {kind(node.get('items', {}))}"
    return {"integer": "whole number", "string": "text", "number": "number"}.get(node.get("type", ""), "value")


def keys(node: dict[str, Any]) -> Iterator[str]:
    """A line a key, from its schema."""
    yield "| key | value | default | meaning |\n|---|---|---|---|"
    for key, prop in node.get("properties", {}).items():
        default = prop.get("default")
        shown = "" if default in (None, {}, [], "") or isinstance(default, dict) else f"`{default}`"
        yield f"| `{key}` | {kind(prop)} | {shown} | {prop.get('description', '')} |"
    yield ""


def reference() -> str:
    """Every key a scenario may have, from the schema."""
    schema = json_schema()

    def section(title: str, node: dict[str, Any]) -> Iterator[str]:
        yield f"## {title}\n"
        about = node.get("description", "")
        if about:
            yield about.split("\n\n")[0] + "\n"
        yield from keys(node)

    parts = [
        "# Scenario reference\n",
        "Made from the schema by `python docs/make.py`. Every quantity carries its unit (`17 GB/s`, `43 ms`, `4 MiB`); counts are bare.",
        "Any value can be overridden from the command line by its path: `--set streams.bob.start=43ms`. Files, parents and overrides are",
        "merged key by key; a list is replaced as a whole.\n",
        *section("A scenario file", schema),
    ]
    for name, node in sorted(schema["$defs"].items()):
        if "properties" in node:
            parts.extend(section(name, node))
    return "\n".join(parts)


def studies_text() -> str:
    """STUDIES.md with its tables of keys made anew."""
    schema = study_schema()
    parts = ["", *keys(schema)]
    for name, key in (("SampleSpec", "sample"), ("SearchSpec", "search")):
        parts += [f"Under `{key}`:\n", *keys(schema["$defs"][name])]
    text = (
        "\n".join(parts)
        .replace("[SampleSpec](#samplespec)", "see below")
        .replace("[SearchSpec](#searchspec)", "see below")
    )
    return _between("STUDIES.md", "keys", text)


def validation_text() -> str:
    """VALIDATION.md with its tables made anew."""
    text = (DOCS / "VALIDATION.md").read_text(encoding="utf-8")
    for name, table in validation.TABLES.items():
        pattern = rf"(<!-- begin:{name} -->\n).*?(<!-- end:{name} -->)"
        text, n = re.subn(pattern, lambda m, t=table: m[1] + t() + m[2], text, flags=re.DOTALL)
        if n != 1:
            raise SystemExit(f"VALIDATION.md has {n} places for the table '{name}'")
    return text


def traces_text() -> str:
    """TRACES.md with its table of operators made anew."""
    return _between("TRACES.md", "ops", op_table())


def report_text() -> str:
    """REPORT.md with its table of figures made anew."""
    rows = [f"| {d.name} | {d.unit} | {d.text} | `{key}` |" for key, d in DEFINITIONS.items()]
    table = "\n".join(["| figure | unit | what it is | key |", "|---|---|---|---|", *rows, ""])
    return _between("REPORT.md", "figures", table)


def concepts_text() -> str:
    """CONCEPTS.md with its table of causes made anew."""
    rows = [f"| `{cause}` | {text} |" for cause, text in CAUSE_MEANINGS.items()]
    return _between("CONCEPTS.md", "causes", "\n".join(["| cause | time in which |", "|---|---|", *rows, ""]))


def _between(name: str, mark: str, text: str) -> str:
    whole = (DOCS / name).read_text(encoding="utf-8")
    pattern = rf"(<!-- begin:{mark} -->\n).*?(<!-- end:{mark} -->)"
    return re.sub(pattern, lambda m: m[1] + text + m[2], whole, flags=re.DOTALL)


def picture() -> str:
    """Where the time of ``scenarios/dual_replica.yaml`` goes, as SVG."""
    from click.testing import CliRunner

    from bpusim.cli import main as bpusim

    with tempfile.TemporaryDirectory() as folder:
        out, svg = f"{folder}/out", Path(folder) / "chart.svg"
        scenario = DOCS.parent / "scenarios" / "dual_replica.yaml"
        for command in (["run", str(scenario), "-o", out], ["plot", out, "--kind", "breakdown", "-o", str(svg)]):
            done = CliRunner().invoke(bpusim, command, catch_exceptions=False)
            if done.exit_code:
                raise SystemExit(done.output)
        return svg.read_text(encoding="utf-8")


def main() -> None:
    texts = {
        "scenario.schema.json": schema_text,
        "study.schema.json": study_schema_text,
        "SCENARIO.md": reference,
        "CONCEPTS.md": concepts_text,
        "REPORT.md": report_text,
        "STUDIES.md": studies_text,
        "TRACES.md": traces_text,
        "VALIDATION.md": validation_text,
    }
    if "--check" in sys.argv:
        stale = [n for n, make in texts.items() if (DOCS / n).read_text(encoding="utf-8") != make()]
        if stale:
            raise SystemExit(f"out of date: {', '.join(stale)}; run: python docs/make.py")
        return
    for name, make in texts.items():
        (DOCS / name).write_text(make(), encoding="utf-8")
    (DOCS / "img" / "dual_replica.svg").write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
