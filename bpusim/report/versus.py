"""A scenario against another in words and numbers: which cause makes how much of the difference.

Differences are rounded together, so that what is printed sums.
"""

from __future__ import annotations

from collections.abc import Iterator

from bpusim.metrics import apportion
from bpusim.metrics.explained import MEANINGS
from bpusim.metrics.versus import Difference, Pair, Versus
from bpusim.report.blocks import Block, Grid, Heading, Paragraph
from bpusim.report.rounding import in_ms, rounded, step_of
from bpusim.units import Ps

__all__ = ["versus_blocks"]


def versus_blocks(v: Versus) -> Iterator[Block]:
    """All that is said, in order."""
    yield Heading(f"{v.scenario} against {v.other}", 1)
    for names, p in _alike(v):
        for d in p.differences:
            yield Paragraph(
                _sentence(d, v.other, p.other if p.other not in names.split(", ") else ""), f"{names}: {d.name} "
            )
            grid = _difference(d)
            if len(grid.rows) > 1:
                yield grid
        if p.alone:
            yield Paragraph(f"only one of the two has: {', '.join(p.alone)}.", f"{names}: ")
    matched = ", ".join(f"{p.stream} with {p.other} ({p.how})" for p in v.pairs) or "no stream with any"
    yield Paragraph(f"{matched}.", "Compared: ")
    if v.alone:
        yield Paragraph(f"{', '.join(v.alone)}.", "Without a partner: ")


def _alike(v: Versus) -> list[tuple[str, Pair]]:
    """Pairs with the names of their streams; those whose figures are all the same together."""
    groups: dict[str, list[Pair]] = {}
    for p in v.pairs:
        groups.setdefault(repr((p.differences, p.alone)), []).append(p)
    return [(", ".join(p.stream for p in pairs), pairs[0]) for pairs in groups.values()]


def _fine(d: Difference) -> Ps:
    """A tenth of what single times are rounded to: differences are smaller."""
    return max(step_of(max(d.mean, d.other_mean)) // 10, 10**6)


def _sentence(d: Difference, other: str, whose: str) -> str:
    step = _fine(d)
    total, mean = rounded(d.total, step), rounded(d.mean, step)
    than = f"{other}'s {whose}" if whose else other
    than += f" ({d.other})" if d.other != d.name else ""
    if not total:
        return f"takes as long as in {than}: {in_ms(mean, step)} ms."
    parts = _parts(d)
    most = abs(d.ranked()[0][1])
    shown = {c: n for c, n in apportion(dict(d.ranked()), step).items() if n and 100 * abs(d.causes[c]) >= most}
    causes = [f"{c} {in_ms(n, step, '+')}{parts.get(c, '')}" for c, n in shown.items()]
    text = f"takes {in_ms(abs(total), step)} ms {'longer' if total > 0 else 'less'} than in {than}"
    return f"{text} ({in_ms(mean, step)} against {in_ms(mean - total, step)}): {', '.join(causes)}."


def _parts(d: Difference) -> dict[str, str]:
    """Percent of the difference; none where it is what little is left of larger ones."""
    rows, total = dict(d.ranked()), d.total
    if not rounded(total, _fine(d)) or max(map(abs, rows.values())) > 10 * abs(total):
        return {}
    sign = 1 if total > 0 else -1
    return {c: f" ({n} %)" for c, n in apportion({c: 100 * sign * t for c, t in rows.items()}, abs(total)).items()}


def _difference(d: Difference) -> Grid:
    step, parts = _fine(d), _parts(d)
    shown = apportion(dict(d.ranked()), step)
    rows = [
        [c, in_ms(n, step, "+"), parts.get(c, "").strip(" ()"), MEANINGS[c]]
        for c, n in shown.items()
        if n or parts.get(c, " (0 %)") != " (0 %)"
    ]
    whole = ["sum", in_ms(sum(shown.values()), step, "+"), "100 %" if parts else "", ""]
    return Grid(["cause", "ms", "of it", "waiting for, or doing"], [*rows, whole], words=True)
