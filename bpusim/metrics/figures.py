"""The numbers of a result by their paths in the summary: what is compared, and held against earlier runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bpusim.metrics.result import Result

__all__ = ["Figures", "figures", "numbers"]

Figures = dict[str, float | int | None]
_LEFT_OUT = ("events", "seed", "seconds_s")
"""How a result was got, not what it is: no figures."""


def numbers(result: Result) -> Figures:
    """Every number of the summary, rounded to nine digits."""
    return dict(_numbers(result.to_dict(), "", ()))


def figures(result: Result) -> Figures:
    """Of streams (without the causes of their latencies and their phases), totals, cores, memory and heat, rounded to
    nine digits."""
    data = result.to_dict()
    wanted = {k: data[k] for k in ("simulated_s", "streams", "total", "cores", "dram", "heat", "memory") if k in data}
    for stream in wanted["streams"].values():
        for key in ("breakdown_ms", "ttft_breakdown_ms", "cold_breakdown_ms", "phases"):
            stream.pop(key, None)
        for end in stream.get("ends", {}).values():
            end.pop("cold_breakdown_ms")
    for key in ("by_master", "known_error_percent"):
        wanted["dram"].pop(key)
    for key in ("events", "trips", "mean_power_by_component_w", "pace_ms"):
        wanted.get("heat", {}).pop(key, None)
    return dict(_numbers(wanted, "", _LEFT_OUT))


def _numbers(node: Any, path: str, left_out: tuple[str, ...]) -> Iterator[tuple[str, float | int | None]]:
    for key, value in node.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            yield from _numbers(value, here, left_out)
        elif key in left_out or isinstance(value, bool):
            continue
        elif value is None or isinstance(value, int | float):
            yield here, float(f"{value:.9g}") if isinstance(value, float) else value
