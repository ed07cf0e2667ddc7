"""Quantities: every one with its unit, nothing guessed, nothing lost."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bpusim.errors import UnitError
from bpusim.units import DIMENSIONS, Bandwidth, Duration, FrameRate, format_quantity, parse_quantity

DIMENSION_NAMES = sorted(DIMENSIONS)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("479 ns", "time", 479_000),
        ("438.4 ns", "time", 438_400),
        ("0 s", "time", 0),
        ("2 min", "time", 120 * 10**12),
        ("1 h", "time", 3600 * 10**12),
        ("1 us", "time", 10**6),
        ("1 µs", "time", 10**6),
        ("4 MiB", "size", 4 * 1024**2),
        ("4 MB", "size", 4 * 10**6),
        ("4 Mb", "size", 500_000),
        ("8 b", "size", 1),
        ("17.1 GB/s", "bandwidth", 17_100_000_000),
        ("136.8 Gb/s", "bandwidth", 17_100_000_000),
        ("1.2207 GHz", "frequency", 1_220_700_000),
        ("3200 MT/s", "transfer rate", 3_200_000_000),
        ("50 ps/B", "time per byte", 50.0),
        ("12.5 Hz", "frame rate", 12.5),
        ("30 Hz", "frame rate", 30.0),
        ("1 kHz", "frame rate", 1000.0),
        ("1e3 ns", "time", 10**6),
        ("5ms", "time", 5 * 10**9),
        ("  5 ms  ", "time", 5 * 10**9),
    ],
)
def test_a_quantity_is_held_in_base_units(text: str, dimension: str, value: float) -> None:
    got = parse_quantity(text, dimension)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        (5, "time", "error: 5 has no unit; write a time such as '479 ns'"),
        (5.0, "size", "error: 5.0 has no unit; write a size such as '4 MiB'"),
        ("5", "time", "error: '5' has no unit; write a time such as '479 ns'"),
        (True, "time", "error: True is not a time; write one such as '479 ns'"),
        (None, "time", "error: None is not a time; write one such as '479 ns'"),
        ("soon", "time", "error: 'soon' is not a time; write one such as '479 ns'"),
        ("5 GB", "time", "error: '5 GB' is a size, not a time; write one such as '479 ns'"),
        (
            "17 GB/s",
            "frequency",
            "error: '17 GB/s' is a bandwidth, not a frequency; write one such as '1.2207 GHz'",
        ),
        ("5 mss", "time", "error: '5 mss' has an unknown unit 'mss'; did you mean 'ms'?"),
        ("5 gb", "size", "error: '5 gb' has an unknown unit 'gb'; did you mean 'b'?"),
        ("-5 ms", "time", "error: '-5 ms' is negative; write a time of zero or more"),
        (
            "1 THz",
            "frame rate",
            "error: '1 THz' is a frequency, not a frame rate; write one such as '12.5 Hz'",
        ),
        ("0.5 ps", "time", "error: '0.5 ps' is not a whole number of ps"),
        ("12.5 Hz", "frequency", "error: '12.5 Hz' is not a whole number of Hz"),
        ("1e30 s", "time", "error: '1e30 s' is out of range; write one such as '479 ns'"),
    ],
)
def test_a_refusal_says_what_to_write(text: object, dimension: str, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity(text, dimension)
    assert str(caught.value) == message


@pytest.mark.parametrize("unit", ["KB", "kiB", "GiHz", "mb", "MS", "sec"])
def test_units_are_spelled_one_way(unit: str) -> None:
    for dimension in DIMENSION_NAMES:
        with pytest.raises(UnitError):
            parse_quantity(f"1 {unit}", dimension)


@pytest.mark.parametrize("text", ["1e999999999999999999 s", "1e9999999999999999999 s"])
def test_an_exponent_of_many_digits_is_a_unit_error(text: str) -> None:
    with pytest.raises(UnitError):
        parse_quantity(text, "time")


@given(st.text(max_size=30), st.sampled_from(DIMENSION_NAMES))
def test_junk_is_only_ever_a_unit_error(text: str, dimension: str) -> None:
    try:
        value = parse_quantity(text, dimension)
    except UnitError:
        return
    assert value >= 0


@given(st.from_regex(r"[-+]?[0-9.]{0,6}(e[-+]?[0-9]{1,3})? ?[a-zA-Z/]{0,5}", fullmatch=True))
def test_near_quantities_are_only_ever_a_unit_error(text: str) -> None:
    for dimension in DIMENSION_NAMES:
        try:
            value = parse_quantity(text, dimension)
        except UnitError:
            continue
        assert value >= 0


@given(st.integers(0, 10**12), st.sampled_from(DIMENSION_NAMES))
def test_whole_base_units_survive_exactly(value: int, dimension: str) -> None:
    assert parse_quantity(f"{value} {DIMENSIONS[dimension].base}", dimension) == value


@given(st.integers(1, 10**20), st.sampled_from([n for n in DIMENSION_NAMES if n not in ("time", "frame rate")]))
def test_formatting_keeps_four_digits(value: int, dimension: str) -> None:
    text = format_quantity(value, dimension)
    scale = DIMENSIONS[dimension].units[text.split()[1]]
    # Half a unit in the fourth digit of a mantissa of 1 or more: 0.0005 of the value.
    assert abs(Fraction(text.split()[0]) * Fraction(scale) - value) <= Fraction(value, 1999)


@given(st.integers(1, 10**20))
def test_formatted_times_can_be_read_back(value: int) -> None:
    assert parse_quantity(format_quantity(value, "time"), "time") == pytest.approx(value, rel=5.01e-4)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (0, "time", "0 ps"),
        (999, "time", "999 ps"),
        (479_000, "time", "479 ns"),
        (90 * 10**12, "time", "90 s"),
        (17_100_000_000, "bandwidth", "17.1 GB/s"),
        (12.5, "frame rate", "12.5 Hz"),
    ],
)
def test_the_largest_unit_of_one_or_more_is_chosen(value: float, dimension: str, text: str) -> None:
    assert format_quantity(value, dimension) == text


def test_a_unit_error_reaches_pydantic_as_one_finding() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Duration).validate_python("5 GB")
    (finding,) = caught.value.errors()
    assert isinstance(finding["ctx"]["error"], UnitError)


@pytest.mark.parametrize("kind", [Duration, Bandwidth, FrameRate])
def test_the_schema_pattern_accepts_its_own_example(kind: Any) -> None:
    schema = TypeAdapter(kind).json_schema()
    assert re.search(schema["pattern"], schema["examples"][0])


def test_the_schema_pattern_refuses_a_bare_number() -> None:
    assert not re.search(TypeAdapter(Duration).json_schema()["pattern"], "5")
