"""Conditions on parameters: what holds, what is asked for, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from bpusim.errors import StudyError
from bpusim.study.rules import Rule

KNOWN = {
    "machine.cores.count": 2,
    "machine.cores.dma.port": "17 GB/s",
    "machine.dram.preset": "LPDDR5-6400x64",
    "models.a.cores": ["bpu0", "bpu1"],
}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("machine.cores.count <= 2", True),
        ("1 < machine.cores.count < 2", False),
        ("machine.cores.dma.port >= '16.5 GB/s'", True),
        ("machine.cores.dma.port > '17000 MB/s'", False),
        ("machine.cores.dma.port * machine.cores.count == '34 GB/s'", True),
        ("machine.dram.preset in ['LPDDR5-6400x64', 'x']", True),
        ("machine.dram.preset != 'x' and not machine.cores.count == 3", True),
        ("machine.cores.count == 3 or machine.cores.count % 2 == 0", True),
        ("'bpu1' in models.a.cores", True),
        ("-machine.cores.count < -1", True),
    ],
)
def test_a_condition_holds_or_not(text: str, wanted: bool) -> None:
    assert Rule.of(text).holds(KNOWN) is wanted


def test_a_condition_knows_what_it_asks_for() -> None:
    assert Rule.of("a.b.c <= 2 and not d == 'x.y'").paths() == {"a.b.c", "d"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("machine.cores.count <=", "cannot be read"),
        ("a = 3", "cannot be read"),
        ("machine.cores.count + 1", "is 3, not true or false"),
        ("machine.cores.count and 1 < 2", "'machine.cores.count' is 2, not true or false"),
        ("__import__('os').system('x') == 0", "is not allowed"),
        ("machine.cores.count ** 9 > 1", "is not allowed"),
        ("[x for x in machine.cores.count] == 1", "is not allowed"),
        ("machine.cores.count < 'two'", "cannot be worked out"),
        ("machine.cores.count / 0 > 1", "cannot be worked out"),
        ("machine.cores.dma.port < '1 GHz' * 'x'", "cannot be worked out"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, said: str) -> None:
    with pytest.raises(StudyError) as caught:
        Rule.of(text).holds(KNOWN)
    assert said in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize("value", ["17 GB/s", "17000 MB/s"])
def test_a_quantity_counts_as_its_value(value: Any) -> None:
    assert Rule.of("p == '17 GB/s' and p / 1e9 == 17").holds({"p": value})


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("clock <= '1 GB/s'", "Hz with B/s"),
        ("clock >= 5", "Hz with a number without a unit"),
        ("2 * clock >= '3 W'", "Hz with W"),
        ("clock / 1e9 <= 2", None),
        ("clock / port <= 2", None),
        ("clock / clock <= '2 Hz'", "a number without a unit with Hz"),
        ("itl_ms <= '80 ms'", "a number without a unit with ps"),
        ("clock > 0 and port + port <= '40 GB/s'", None),
        ("itl_ms <= 80", None),
    ],
)
def test_quantities_are_compared_with_their_kind_only(text: str, kinds: str | None) -> None:
    """A figure is a number in the unit of its name, and 80 ms in picoseconds would be above any of them."""
    known = {"clock": "1 GHz", "port": "17 GB/s", "itl_ms": 66.5}
    if kinds is None:
        Rule.of(text).holds(known)
        return
    with pytest.raises(StudyError) as caught:
        Rule.of(text).holds(known)
    assert f"compares {kinds}; compare quantities with quantities of their kind" in str(caught.value)
