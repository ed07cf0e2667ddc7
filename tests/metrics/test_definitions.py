"""Every figure of a summary has a definition, with its unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bpusim import simulate
from bpusim.metrics import CAUSES, figures
from bpusim.metrics.definitions import CAUSE_MEANINGS, DEFINITIONS, definition

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
RATES = ("1/s", "B/s", "tok/s", "op/s")
UNITS = {
    "_ms": ("ms",), "_per_s": RATES, "_bytes": ("B",), "_s": ("s", *RATES), "_j": ("J",), "_w": ("W",),
    "_degc": ("degC",),
}  # fmt: skip


@pytest.mark.parametrize("name", ["dual_replica", "hetero", "batch"])
def test_every_figure_has_a_definition(name: str) -> None:
    """By the last part of its path, or by that of the table it is in."""
    result = simulate(SCENARIOS / f"{name}.yaml")
    paths = [path.split(".") for path in figures(result)]
    missing = [p for p in paths if definition(p[-1]) is None and definition(p[-2]) is None]
    assert missing == []


def test_heat_has_definitions_too() -> None:
    result = simulate(SCENARIOS / "thermal_fast.yaml", set={"run.until": "2 s"})
    heat: dict[str, Any] = result.to_dict()["heat"]
    left = {"trips", "events", "pace_ms", "shutdown"}
    assert [k for k in heat if k not in left and definition(k) is None] == []
    trip = set(heat["trips"][0]) - {"zone", "type"}
    assert [k for k in trip if definition(k) is None] == []


def test_every_cause_has_a_meaning() -> None:
    assert tuple(CAUSE_MEANINGS) == CAUSES
    assert all(definition(f"cause.{c}") for c in CAUSES)


def test_units_are_those_in_the_keys() -> None:
    for key, d in DEFINITIONS.items():
        for ending, units in UNITS.items():
            if key.endswith(ending):
                assert d.unit in units, key


def test_a_percentile_is_told_by_what_it_is_of() -> None:
    found = definition("ttft_p99_ms")
    assert found is not None
    assert (found.name, found.unit) == ("TTFT p99", "ms")
    assert found.text.startswith("Time to first token")
    assert "99 of 100" in found.text


@pytest.mark.parametrize("key", ["", "alice", "cause.", "cause.nobody", "foo_p99_ms"])
def test_what_is_no_figure_has_none(key: str) -> None:
    assert definition(key) is None
