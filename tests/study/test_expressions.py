"""Expressions of parameters and figures: tables, functions, several figures, quoted names."""

from __future__ import annotations

import pytest

from bpusim.errors import StudyError
from bpusim.study.rules import Each, Rule, quantity_of

KNOWN = {
    "m.n": 3, "m.rate": "17 GB/s", "m.kind": "fast", "a-b": 7, "s.*.t": Each((2, 5)), "cores": ["x", "y"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("m.n * 2 + 1", 7),
        ("{'slow': 1, 'fast': 4}[m.kind]", 4),
        ("{'17 GB/s': 1, '34 GB/s': 4}[m.rate]", 1),
        ("10 if m.n > 2 else 20", 10),
        ("min(m.n, 2)", 2),
        ("max(s.*.t)", 5),
        ("sum(s.*.t, m.n)", 10),
        ("max(s.*.t) * 2", 10),
        ("value['a-b'] + 1", 8),
        ("m.rate / 1e9", 17),
        ("s.*.t <= 5", True),
        ("s.*.t < 5", False),
        ("cores == ['x', 'y']", True),
        ("'s.*.t' == 's.*.t'", True),
    ],
)
def test_it_comes_to(text: str, value: object) -> None:
    assert Rule.of(text).value(KNOWN) == value


def test_paths_with_and_without_stars_and_quotes_and_no_functions() -> None:
    rule = Rule.of("max(s.*.t) + min(m.n, value['a-b']) + {'x': k.z}[m.kind]")
    assert rule.paths() == {"s.*.t", "m.n", "a-b", "k.z", "m.kind"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'slow': 1}[m.kind]", "the table has no entry for 'fast'; add it"),
        ("s.*.t + 1", "'s.\\*.t \\+ 1' counts with several figures; write max\\(...\\) or sum"),
        ("open('x')", "'open\\('x'\\)' is not allowed"),
        ("m.n[0]", "'m.n\\[0\\]' is not allowed"),
        ("m.kind + 1", "cannot be worked out"),
        ("1 / (m.n - 3)", "cannot be worked out"),
        ("max()", "'max\\(\\)' is not allowed"),
    ],
)
def test_what_it_cannot_be(text: str, message: str) -> None:
    with pytest.raises(StudyError, match=f"cost: '.*{message}"):
        Rule.of(text, "cost").value(KNOWN)


def test_what_cannot_be_read_says_of_what() -> None:
    with pytest.raises(StudyError, match="slo: 'a <=' cannot be read"):
        Rule.of("a <=", "slo")


def test_the_parts_of_an_and() -> None:
    rule = Rule.of("s.*.t <= 5 and (m.n < 4 and m.n > 1) and (m.n > 9 or m.n < 4)")
    assert [p.text for p in rule.conditions()] == ["s.*.t <= 5", "m.n < 4", "m.n > 1", "m.n > 9 or m.n < 4"]


@pytest.mark.parametrize(
    ("text", "room"),
    [
        ("m.n <= 4", 0.25), ("m.n >= 4", -0.25), ("m.n < 2", -0.5), ("s.*.t <= 10", 0.5), ("s.*.t >= 1", 1),
        ("4 >= m.n", 1 / 3), ("m.n <= 0", None), ("m.n == 3", None), ("m.kind < 'x'", None), ("1 < m.n < 5", None),
        ("m.rate <= '34 GB/s'", 0.5),
    ],
)  # fmt: skip
def test_room_to_a_limit(text: str, room: float | None) -> None:
    found = Rule.of(text).room(KNOWN)
    assert found is None if room is None else found == pytest.approx(room)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("17 GB/s", (17e9, "B/s")), ("12.5 Hz", (12.5, "Hz")), ("-10 degC", (-10, "degC")), (" 1 ms ", (1e9, "ps")),
        ("LPDDR4X-3200x64", None), ("bpu0", None), ("12", None), ("", None), (12, None), (None, None), ("1e99 B", None),
    ],
)  # fmt: skip
def test_quantities(text: object, value: object) -> None:
    assert quantity_of(text) == value
