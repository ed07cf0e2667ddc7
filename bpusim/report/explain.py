"""An explanation in words and numbers: for a terminal, as markdown, as JSON.

What is printed of a whole and its parts sums: parts are rounded together.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import IO, Literal

from bpusim.metrics import apportion
from bpusim.metrics.explained import MEANINGS, Bound, Explained, FirstToken, Interval
from bpusim.metrics.explanation import Explanation, Key, Tried
from bpusim.metrics.versus import Versus
from bpusim.report.blocks import Block, Bullets, Cell, Code, Grid, Heading, Paragraph, markdown, print_blocks
from bpusim.report.rounding import in_ms, ms_text, rounded, step_of
from bpusim.report.versus import versus_blocks
from bpusim.units import Ps, format_quantity

__all__ = ["blocks_of", "write_explanation"]

Form = Literal["table", "json", "markdown"]


def write_explanation(what: Explanation | Versus, form: Form, out: IO[str]) -> None:
    """Write an explanation, or a comparison, to ``out``; the same inputs give the same bytes."""
    if form == "json":
        out.write(json.dumps(what.to_dict(), indent=1, ensure_ascii=False) + "\n")
    elif form == "markdown":
        out.write(markdown(blocks_of(what)))
    else:
        print_blocks(blocks_of(what), out)


def blocks_of(what: Explanation | Versus) -> list[Block]:
    """All that is said, in order."""
    return list(versus_blocks(what) if isinstance(what, Versus) else _explanation(what))


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %" if abs(part) < 0.1 else f"{100 * part:.0f} %"


# --- one scenario


def _explanation(e: Explanation) -> Iterator[Block]:
    yield Heading(f"{e.scenario}: where the time goes{', and what helps' if e.tried is not None else ''}", 1)
    if e.about:
        yield Paragraph(e.about)
    groups = _alike(e.streams)
    for names, s in groups:
        if not s.stage:
            yield Paragraph(_short(s), f"{names}: ")
    if e.tried is not None:
        yield Paragraph(_best(e.tried), "What helps most: ")
    for names, s in groups:
        yield from _stream(names, s)
    if e.tried is not None:
        yield from _what_helps(e)
    if e.notes:
        yield Bullets("Notes:", e.notes)


def _alike(streams: Sequence[Explained]) -> list[tuple[str, Explained]]:
    """Streams with their names; those whose figures are all the same together."""
    out: list[tuple[str, Explained]] = []
    for s in streams:
        same = next((k for k, (_, o) in enumerate(out) if _figures(o) == _figures(s)), None)
        if same is None:
            out.append((s.name, s))
        else:
            out[same] = f"{out[same][0]}, {s.name}", out[same][1]
    return out


def _figures(s: Explained) -> dict[str, object]:
    return s.to_dict()


def _short(s: Explained) -> str:
    """A stream in a sentence: its last interval that is not cold is what is waited for again and again."""
    if not s.intervals:
        return "nothing has come to its end."
    i = next((i for i in reversed(s.intervals) if not i.name.startswith("cold ")), s.intervals[-1])
    most = " and ".join(f"{c} ({_percent(t / i.mean)})" for c, t in i.ranked()[:2])
    text = f"{i.name} takes {ms_text(i.mean)} ms, most of it {most}"
    bound = s.bounds.get(i.name)
    if bound is not None:
        most_of_it = 2 * bound.ideal > bound.measured
        who = "" if most_of_it else "the model's own part is "
        text += f"; {who}{_BOUND[bound.by]}, at best {ms_text(bound.ideal)} ms on this machine"
    return f"{text}."


_BOUND = {"dram": "DRAM-bound", "compute": "compute-bound"}


def _best(tried: Sequence[Tried]) -> str:
    better = [t for t in tried if t.ratio is not None and t.ratio < 0.999]
    if not better:
        return "none of the single changes that were tried gains 0.1 %."
    return "; ".join(f"{t.change.name} ({_change(t.ratio or 1.0)})" for t in better[:3]) + "."


def _stream(names: str, s: Explained) -> Iterator[Block]:
    for i in s.intervals:
        yield Heading(f"{names}: {i.name}, {ms_text(i.mean)} ms")
        yield _causes(i)
        if i.name in s.bounds:
            yield _bound(s.bounds[i.name])
    for stage, bound in s.bounds.items():
        if s.interval(stage) is None:
            yield _bound(bound, f"{names}, stage {stage}: ")
    if s.first is not None:
        yield _first(s.first, names)


def _causes(i: Interval) -> Grid:
    step = step_of(i.mean)
    shown = apportion(dict(i.ranked()), step)
    parts = apportion({c: 1000 * t for c, t in i.ranked()}, i.mean)
    rows = [[c, in_ms(n, step), f"{parts[c] / 10:.1f} %", MEANINGS[c]] for c, n in shown.items() if n or parts[c]]
    whole = [in_ms(sum(shown.values()), step), f"{sum(parts.values()) / 10:.1f} %"]
    return Grid(["cause", "ms", "share", "waiting for, or doing"], [*rows, ["sum", *whole, ""]], words=True)


def _bound(b: Bound, who: str = "") -> Paragraph:
    step = step_of(b.measured)
    rate, share = (format_quantity(r, "bandwidth") for r in (b.bytes_per_s, b.shared_bytes_per_s))
    shared = b.shared_bytes_per_s < 0.999 * b.bytes_per_s
    useful = f" ({_number(b.useful / b.bytes)} without padding)" if b.useful < 0.99 * b.issued and b.bytes else ""
    text = f"{b.position}. {_number(b.intensity)} operations a byte{useful}, and it takes {_number(b.balance)} "
    text += f"to keep the array busy ({b.peak / 1e12:.4g} TOPS at {b.activation} over {rate}"
    text += f"; {_number(b.balance_shared)} over {share}, an equal share when {b.readers} read). " if shared else "). "
    work = f"array {ms_text(b.array)} ms and vector unit {ms_text(b.compute - b.array)} ms at full clock"
    moved = f"{format_quantity(b.bytes, 'size')} at {rate} take {ms_text(b.transfer)} ms"
    text += f"At best {in_ms(rounded(b.ideal, step), step)} ms: "
    text += f"{moved}; compute, {ms_text(b.compute)} ms, hides behind it. " if b.by == "dram" else f"{work}; {moved}. "
    if b.by == "compute" and b.intensity < b.balance:
        text += (
            "The ratio of operations to bytes would call it DRAM-bound; the vector unit and loading the array say no. "
        )
    text += f"Measured {in_ms(rounded(b.measured, step), step)} ms, {b.distance:.2f} times that"
    if b.ideal_shared > b.ideal:
        text += f" (if the others read all the time, {in_ms(rounded(b.ideal_shared, step), step)} ms at best)"
    return Paragraph(
        text + _between(b, step), f"{who}{_BOUND[b.by].capitalize() if b.by == 'compute' else _BOUND[b.by]}: "
    )


def _between(b: Bound, step: Ps) -> str:
    """What lies between, as the table above has it: all of it and the ideal sum to what was measured."""
    if not b.causes:
        return "."
    shown = apportion({c: t for c, t in b.causes.items() if t}, step)
    rows = {c: shown[c] for c in b.between if c in shown}
    left = rounded(b.measured, step) - rounded(b.ideal, step) - sum(rows.values())
    parts = [f"{c} {in_ms(n, step)}" for c, n in rows.items() if n]
    if left > 0:
        parts.append(f"compute and DRAM that do not overlap {in_ms(left, step)}")
    text = f". Between best and measured lie {', '.join(parts)} ms" if parts else ""
    return text + (f", less {in_ms(-left, step)} ms of them that overlap with the best." if left < 0 else ".")


def _number(x: float) -> str:
    return f"{x:.3g}" if x < 100 else f"{x:.0f}"


def _first(f: FirstToken, names: str) -> Paragraph:
    step = step_of(f.ttft)
    ttft, e2e, prefill = (in_ms(rounded(t, step), step) for t in (f.ttft, f.e2e, f.prefill))
    prompt, output = (f"{n:.4g}" for n in (f.prompt, f.output))
    text = f"the first token is {_percent(f.ttft / f.e2e)} of a request, {ttft} of {e2e} ms, with a prompt of {prompt} "
    text += (
        f"and an answer of {output} tokens on average. {_percent(f.prefill / f.ttft)} of it, {prefill} ms, is prefill "
    )
    text += f"({_percent(f.prefill / f.e2e)} of the request); the rest is the host and waiting. "
    if f.tpot is not None:
        one = f"up to {f.chunk} tokens of the prompt" if f.chunk else "the whole prompt"
        text += f"Prefill reads the weights once for {one}; each further token of the answer reads them again, "
        text += (
            f"{ms_text(f.tpot)} ms each. So the longer the answer, the smaller the share of the first token, and the "
        )
        text += "longer the prompt, the larger."
    return Paragraph(text, f"{names}: ")


# --- what helps


def _what_helps(e: Explanation) -> Iterator[Block]:
    assert e.tried is not None
    yield Heading("What helps: each change by itself, run again, the best first")
    ran = [t for t in e.tried if not t.refused]
    shown = _moving_alike([s for s in e.streams if not s.stage and any(_keys(s.name, ran))], ran)
    tokens, frames = any(t.tokens_per_s for t in ran), any(t.frames_per_s for t in ran)
    if ran:
        rows = [*([e.base] if e.base is not None else []), *ran]
        every = _tried_grid(rows, shown, tokens=tokens, frames=frames)
        narrow: list[Block] = []
        for one in shown:
            narrow += [Paragraph("", one[0]), _tried_grid(rows, [one], tokens=tokens, frames=frames, bare=True)]
        yield Grid(every.columns, every.rows, narrow=narrow if len(shown) > 1 else ())
        how = "of a request, frame or run, over all streams (geometric mean); in brackets against the scenario as it is"
        yield Paragraph(how, "time: ")
    notes = [f"{t.change.name}: {t.change.note}" for t in ran if t.change.note]
    if notes:
        yield Bullets("What they leave as it is, or assume:", notes)
    refused = [f"{t.change.name}: {t.refused}" for t in e.tried if t.refused]
    if refused:
        yield Bullets("Tried, and refused:", refused)
    if ran:
        yield Paragraph("To repeat one:")
        common = "".join(f" --set {shlex.quote(s)}" for s in e.common)
        lines = [f"{e.command}{common}"] if not common else [f"{e.command}{common}  # as it is"]
        for k, t in enumerate(ran, 1):
            shared = () if t.change.whole else e.common
            lines.append(f"{e.command} {' '.join(f'--set {shlex.quote(s)}' for s in (*shared, *t.change.sets))}  # {k}")
        yield Code(lines[1:] if not common else lines)
    if e.untried:
        reasons: dict[str, list[str]] = {}
        for u in e.untried:
            reasons.setdefault(u.why, []).append(u.name)
        yield Bullets("Not tried:", [f"{', '.join(names)}: {why}" for why, names in reasons.items()])
    commands = [f"{u.do}  # {u.name}" for u in e.untried if u.do]
    if commands:
        yield Paragraph("To make traces that are missing, where their source is:")
        yield Code(commands)


def _moving_alike(streams: Sequence[Explained], tried: Sequence[Tried]) -> list[tuple[str, str]]:
    """(names, one of them) of streams; those that every change leaves with the same figures together."""
    groups: dict[object, list[str]] = {}
    for s in streams:
        keys = _keys(s.name, tried)
        same = tuple((name, *((t.base.get(k), t.means.get(k)) for t in tried)) for k in keys for name in k[1:])
        groups.setdefault(same, []).append(s.name)
    return [(", ".join(names), names[0]) for names in groups.values()]


def _keys(stream: str, tried: Sequence[Tried]) -> list[Key]:
    """Intervals of a stream that any run has."""
    found = [k for t in tried for k in (*t.base, *t.means) if k[0] == stream]
    return list(dict.fromkeys(found))


def _tried_grid(
    tried: Sequence[Tried], streams: Sequence[tuple[str, str]], *, tokens: bool, frames: bool, bare: bool = False
) -> Grid:
    keys = [(names, key) for names, stream in streams for key in _keys(stream, tried)]
    columns = ["change", "time", *(key[1] if bare else f"{names}: {key[1]}" for names, key in keys)]
    columns += (["tok/s"] if tokens else []) + (["frames/s"] if frames else [])
    rows: list[list[str | Cell]] = []
    for n, t in enumerate(tried):
        row: list[str | Cell] = [f"{n} {t.change.name}", _ratio_cell(t.ratio)]
        row += [_cell(t.base.get(key), t.means.get(key)) for _, key in keys]
        row += [f"{t.tokens_per_s:.2f}"] if tokens else []
        row += [f"{t.frames_per_s:.2f}"] if frames else []
        rows.append(row)
    return Grid(columns, rows)


def _cell(old: Ps | None, new: Ps | None) -> Cell:
    if new is None:
        return Cell("-")
    if old is None or old == new:
        return Cell(ms_text(new))
    return Cell(f"{ms_text(new)} ({_change(new / old)})", _tone(new / old))


def _ratio_cell(ratio: float | None) -> Cell:
    return Cell("?") if ratio is None else Cell(_change(ratio), _tone(ratio))


def _change(ratio: float) -> str:
    percent = 100 * (ratio - 1)
    if abs(percent) < 0.05:
        return "="
    return f"{percent:+.1f} %" if abs(percent) < 10 else f"{percent:+.0f} %"


def _tone(ratio: float) -> str:
    return "good" if ratio < 0.995 else "bad" if ratio > 1.005 else ""
