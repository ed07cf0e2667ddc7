"""A scenario against another: which streams are alike, and which causes make the difference between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bpusim.metrics.explained import Explained
from bpusim.metrics.versus import Difference, Pair, Versus
from bpusim.scenario import load_scenario
from bpusim.study.explain import COLD, streams_of
from bpusim.system import simulate

__all__ = ["against", "versus"]


def against(path: str | Path, other: str | Path, overrides: Sequence[str] = ()) -> Versus:
    """Run both, ``path`` with ``overrides``, and say by cause what makes the difference."""
    one, two = load_scenario(path, overrides), load_scenario(other)
    names = (one.name, two.name) if one.name != two.name else (f"{one.name} (changed)", two.name)
    return versus(names, streams_of(simulate(one)), streams_of(simulate(two)))


def versus(names: tuple[str, str], ours: Sequence[Explained], theirs: Sequence[Explained]) -> Versus:
    """Streams of one less those of the other. They are matched by name; those left over by kind, in their order; and
    what then is still left over with the first of its kind, if there is one."""
    partners: dict[str, tuple[Explained, str]] = {}
    known = {s.name: s for s in theirs}
    for s in ours:
        if s.name in known and known[s.name].kind == s.kind:
            partners[s.name] = known[s.name], "by name"
    free = [s for s in theirs if all(s is not p for p, _ in partners.values())]
    for s in ours:
        if s.name in partners:
            continue
        match = next((p for p in free if p.kind == s.kind), None)
        if match is not None:
            free.remove(match)
            partners[s.name] = match, f"by kind and order, {s.kind}"
    for s in ours:
        first = next((p for p in theirs if p.kind == s.kind), None)
        if s.name not in partners and first is not None:
            partners[s.name] = first, f"with the first of its kind, {s.kind}"
    pairs = [_pair(s, *partners[s.name]) for s in ours if s.name in partners]
    alone = [f"{names[0]}: {s.name}" for s in ours if s.name not in partners]
    return Versus(*names, pairs, [*alone, *(f"{names[1]}: {s.name}" for s in free)])


def _pair(one: Explained, other: Explained, how: str) -> Pair:
    """Intervals by name; a cold one with one that is not, if there is no other."""
    rows, used = [], set()
    for i in one.intervals:
        match = other.interval(i.name) or other.interval(_uncold(i.name))
        if match is None and one.interval(f"{COLD}{i.name}") is None:
            match = other.interval(f"{COLD}{i.name}")
        if match is not None:
            used.add(match.name)
            rows.append(Difference.of(i, match))
    matched = {d.name for d in rows}
    alone = [i.name for i in one.intervals if i.name not in matched]
    return Pair(one.name, other.name, how, rows, [*alone, *(i.name for i in other.intervals if i.name not in used)])


def _uncold(name: str) -> str:
    plain = name.removeprefix(COLD)
    return "a frame" if plain == "frame" and name != plain else plain
