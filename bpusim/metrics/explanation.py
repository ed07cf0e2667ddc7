"""What an explanation says of a scenario: its streams, and what single changes would make of it. Plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bpusim.metrics.explained import Explained
from bpusim.units import Ps

__all__ = ["SCHEMA", "Change", "Explanation", "Key", "Tried", "Untried"]

SCHEMA = "bpusim-explain/1"

Key = tuple[str, str]
"""(stream, which of its intervals)."""


@dataclass(frozen=True, slots=True)
class Change:
    """A single change of a scenario, as overrides by path. ``whole``: it takes the whole run to show."""

    name: str
    sets: tuple[str, ...]
    note: str = ""
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Untried:
    """A change that does not apply, or that nothing is known of; ``do``: the command that would make it possible."""

    name: str
    why: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a change made of the scenario. ``refused``: why it could not be run; then nothing else is known.

    ``means``: of every interval; ``ratio``: new over old time of a stream, a chat's by a request of as many tokens.
    """

    change: Change
    means: Mapping[Key, Ps] = field(default_factory=dict)
    base: Mapping[Key, Ps] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    ratio: float | None = None
    """Over all streams: the geometric mean."""
    tokens_per_s: float | None = None
    frames_per_s: float | None = None
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "change": self.change.name,
            "set": list(self.change.sets),
            **({"note": self.change.note} if self.change.note else {}),
            **({"whole_run": True} if self.change.whole else {}),
            **({"refused": self.refused} if self.refused else {}),
            "latency_ratio": self.ratio,
            "stream_ratios": dict(self.ratios),
            "mean_ms": _nested(self.means),
            "base_mean_ms": _nested(self.base),
            "decode_tokens_per_s": self.tokens_per_s,
            "frames_per_s": self.frames_per_s,
        }


def _nested(means: Mapping[Key, Ps]) -> dict[str, dict[str, float]]:
    out: dict[str, dict[str, float]] = {}
    for (stream, name), t in means.items():
        out.setdefault(stream, {})[name] = t / 1e9
    return out


@dataclass(frozen=True, slots=True)
class Explanation:
    """Of one scenario: where its time goes, what bounds it, and what would help.

    ``tried``: best first. ``common``: overrides of all of them and of ``base``, which they are compared with.
    """

    scenario: str
    about: str
    command: str
    streams: Sequence[Explained]
    tokens_per_s: float
    frames_per_s: float
    tried: Sequence[Tried] | None = None
    """None: nothing was to be tried."""
    untried: Sequence[Untried] = ()
    common: Sequence[str] = ()
    base: Tried | None = None
    """The scenario as it is, with what is common."""
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": SCHEMA,
            "scenario": self.scenario,
            "about": self.about,
            "command": self.command,
            "streams": {s.name: s.to_dict() for s in self.streams},
            "decode_tokens_per_s": self.tokens_per_s,
            "frames_per_s": self.frames_per_s,
            "what_helps": None
            if self.tried is None
            else {
                "set_for_all": list(self.common),
                "base": self.base.to_dict() if self.base is not None else None,
                "tried": [t.to_dict() for t in self.tried],
                "not_tried": [
                    {"change": u.name, "why": u.why, **({"command": u.do} if u.do else {})} for u in self.untried
                ],
            },
            "notes": list(self.notes),
        }
