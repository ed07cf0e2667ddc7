"""The table of operators in the documentation."""

from __future__ import annotations

from bpusim.compiler.rules import FAMILIES, FRONT_END, REFUSED

__all__ = ["op_table"]


def op_table() -> str:
    """Markdown: every operator with a rule by family and how it is costed; the front end's; the refused with why."""
    rows = [(title, sorted(rules), how) for title, (rules, how) in FAMILIES.items()]
    rows += [(title, _of(FRONT_END, why), why) for title, why in _reasons("Front end", FRONT_END)]
    rows += [(title, _of(REFUSED, why), why) for title, why in _reasons("Refused", REFUSED)]
    lines = ["| family | operators | cost |", "|---|---|---|"]
    lines += [f"| {title} | {', '.join(f'`{o}`' for o in ops)} | {how} |" for title, ops, how in rows]
    return "\n".join(lines) + "\n"


def _reasons(title: str, table: dict[str, str]) -> list[tuple[str, str]]:
    return [(title, why) for why in dict.fromkeys(table.values())]


def _of(table: dict[str, str], why: str) -> list[str]:
    return sorted(o for o, w in table.items() if w == why)
