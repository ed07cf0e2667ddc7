"""Run one scenario at many points and gather chosen figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bpusim.errors import StudyError, did_you_mean
from bpusim.system import simulate

__all__ = ["pick", "sweep"]


def sweep(
    scenario: str | Path, vary: Mapping[str, Sequence[object]], measure: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """One row a point of the full grid over ``vary`` (paths as in the file): the point and the figures at ``measure``.

    Figures are paths into the summary (``streams.alice.tpot_mean_ms``). Raises :class:`StudyError` for an unknown one.
    """
    for values in itertools.product(*vary.values()):
        point = dict(zip(vary, values, strict=True))
        summary = simulate(scenario, set=[f"{k}={v}" for k, v in point.items()]).to_dict()
        yield {**point, **{m: pick(summary, m) for m in measure}}


def pick(summary: Mapping[str, Any], path: str) -> Any:
    """The figure at a dotted path of a summary."""
    at: Any = summary
    rest = path.split(".")
    while rest:
        known = at if isinstance(at, Mapping) else {}
        # The longest key that fits: names of streams may have dots in them.
        taken = next((n for n in range(len(rest), 0, -1) if ".".join(rest[:n]) in known), 0)
        if not taken:
            raise StudyError(
                f"the summary has no '{path}': nothing called '{rest[0]}'", do=did_you_mean(rest[0], sorted(known))
            )
        at = known[".".join(rest[:taken])]
        rest = rest[taken:]
    return at
