"""Golden figures: a result's figures in a small file, and what has changed since."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bpusim.metrics import Result

__all__ = ["check"]

_MOVED = 3
"""So many streams that moved most are named."""


def check(path: Path, result: Result, rel: float | Mapping[str, float], *, update: bool) -> str:
    """What differs from the golden figures in ``path``, as a text for the user; empty if nothing does. ``update``:
    write them instead."""
    from bpusim.metrics import figures

    now = figures(result)
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"scenario": result.scenario, "figures": now}, indent=1) + "\n"
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
        return ""
    if not path.is_file():
        return f"no golden figures at {path}; write them by pytest --bpusim-update, and commit the file"
    try:
        golden = json.loads(path.read_text(encoding="utf-8"))["figures"].items()
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{path} holds no golden figures; write them anew by pytest --bpusim-update"
    golden = dict(golden)
    allowed = _tolerances(rel, golden)
    wrong = [k for k in golden if k not in now or not _close(golden[k], now[k], allowed[k])]
    added = sorted(_streams(now) - _streams(golden))
    if not wrong and not added:
        return ""
    rows = [("figure", "golden", "now", "change", "allowed")]
    for k in sorted(wrong, key=lambda k: -abs(_change(golden[k], now.get(k)))):
        change = _change(golden[k], now.get(k))
        shown = f"{change:+.2%}" if math.isfinite(change) else "-"
        value = _shown(now[k]) if k in now else "gone"
        rows.append((k, _shown(golden[k]), value, shown, f"{allowed[k]:.2%}"))
    widths = [max(len(r[c]) for r in rows) for c in range(5)]
    lines = [
        "  ".join(v.ljust(w) if not c else v.rjust(w) for c, (v, w) in enumerate(zip(r, widths, strict=True)))
        for r in rows
    ]
    head = f"{result.scenario}: {len(wrong)} of {len(golden)} figures differ from {path}"
    moved = _moved(golden, now)
    more = [f"streams that moved most: {moved}"] if moved else []
    more += [f"streams that the file does not know: {', '.join(added)}"] if added else []
    return "\n".join(
        [
            head,
            *(lines if wrong else ()),
            *more,
            "if this is as it should be: pytest --bpusim-update, and look at the file's diff",
        ]
    )


def _streams(figures: Mapping[str, Any]) -> set[str]:
    return {key.split(".")[1] for key in figures if key.startswith("streams.")}


def _tolerances(rel: float | Mapping[str, float], golden: Mapping[str, Any]) -> dict[str, float]:
    if min([rel] if not isinstance(rel, Mapping) else rel.values(), default=0) < 0:
        raise ValueError("a tolerance is 0 or more")
    if not isinstance(rel, Mapping):
        return dict.fromkeys(golden, rel)
    unknown = [k for k in rel if k != "*" and k not in golden]
    if unknown:
        raise KeyError(f"no golden figure is called '{unknown[0]}'; the file has them")
    return {k: rel.get(k, rel.get("*", 0.01)) for k in golden}


def _close(golden: float | None, now: float | None, rel: float) -> bool:
    if golden is None or now is None:
        return golden is now
    return abs(now - golden) <= rel * abs(golden) + 1e-12


def _change(golden: float | None, now: float | None) -> float:
    if golden is None or now is None or (not golden and now):
        return math.inf
    return now / golden - 1 if golden else 0.0


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def _moved(golden: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Streams by their largest change of a time."""
    most: dict[str, tuple[float, str]] = {}
    for key, value in golden.items():
        if key.startswith("streams.") and key.endswith("_ms") and key in now:
            _, rest = key.split(".", 1)
            stream, figure = rest.rsplit(".", 1)
            change = _change(value, now[key])
            if math.isfinite(change) and abs(change) > abs(most.get(stream, (0.0, ""))[0]):
                most[stream] = change, figure
    ranked = sorted(most.items(), key=lambda item: -abs(item[1][0]))[:_MOVED]
    return ", ".join(f"{stream} ({figure} {change:+.1%})" for stream, (change, figure) in ranked)
