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
from bpusim.units import (
    DIMENSIONS,
    Bandwidth,
    Duration,
    Energy,
    EnergyPerByte,
    FrameRate,
    HeatCapacity,
    Power,
    Temperature,
    TemperatureDifference,
    ThermalResistance,
    Voltage,
    format_quantity,
    parse_quantity,
)

DIMENSION_NAMES = sorted(DIMENSIONS)
OF_HEAT = [
    Temperature, TemperatureDifference, Power, Voltage, Energy, EnergyPerByte, ThermalResistance, HeatCapacity,
]  # fmt: skip
KINDS = [Duration, Bandwidth, FrameRate, *OF_HEAT]


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
        ("25 degC", "temperature", 25.0),
        ("-40 degC", "temperature", -40.0),
        ("-273.15 degC", "temperature", -273.15),
        ("2 K", "temperature difference", 2.0),
        ("500 mK", "temperature difference", 0.5),
        ("120 mW", "power", 0.12),
        ("3.0 W", "power", 3.0),
        ("0.80 V", "voltage", 0.8),
        ("740 mV", "voltage", 0.74),
        ("0.2 pJ", "energy", 0.2e-12),
        ("8 nJ", "energy", 8e-9),
        ("1.5 J", "energy", 1.5),
        ("60 pJ/B", "energy per byte", 60e-12),
        ("4.6 K/W", "thermal resistance", 4.6),
        ("120 J/K", "heat capacity", 120.0),
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
        (25, "temperature", "error: 25 has no unit; write a temperature such as '25 degC'"),
        (
            "-273.16 degC",
            "temperature",
            "error: '-273.16 degC' is below absolute zero; write a temperature of -273.15 degC or more",
        ),
        (
            "298 K",
            "temperature",
            "error: '298 K' is a temperature difference, not a temperature; write one such as '25 degC'",
        ),
        (
            "2 degC",
            "temperature difference",
            "error: '2 degC' is a temperature, not a temperature difference; write one such as '2 K'",
        ),
        ("-2 K", "temperature difference", "error: '-2 K' is negative; write a temperature difference of zero or more"),
        ("-1 W", "power", "error: '-1 W' is negative; write a power of zero or more"),
        ("5 V", "power", "error: '5 V' is a voltage, not a power; write one such as '2.5 W'"),
        (
            "5 J/K",
            "thermal resistance",
            "error: '5 J/K' is a heat capacity, not a thermal resistance; write one such as '4.6 K/W'",
        ),
    ],
)
def test_a_refusal_says_what_to_write(text: object, dimension: str, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_quantity(text, dimension)
    assert str(caught.value) == message


@pytest.mark.parametrize("unit", ["KB", "kiB", "GiHz", "mb", "MS", "sec", "C", "degc", "°C", "w", "mv", "j/K", "pJ/b"])
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
    assert value >= DIMENSIONS[dimension].least


@given(st.from_regex(r"[-+]?[0-9.]{0,6}(e[-+]?[0-9]{1,3})? ?[a-zA-Z/]{0,5}", fullmatch=True))
def test_near_quantities_are_only_ever_a_unit_error(text: str) -> None:
    for dimension in DIMENSION_NAMES:
        try:
            value = parse_quantity(text, dimension)
        except UnitError:
            continue
        assert value >= DIMENSIONS[dimension].least


@given(st.floats(-1e20, 1e20), st.sampled_from(DIMENSION_NAMES))
def test_only_temperatures_are_negative_and_none_is_below_absolute_zero(value: float, dimension: str) -> None:
    least = -273.15 if dimension == "temperature" else 0.0
    try:
        got = parse_quantity(f"{value!r} {DIMENSIONS[dimension].base}", dimension)
    except UnitError:
        assert value < least or DIMENSIONS[dimension].whole
    else:
        assert float(got) == value
        assert got >= least


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
        (-40.0, "temperature", "-40 degC"),
        (2.5, "power", "2.5 W"),
        (120.0, "heat capacity", "120 J/K"),
    ],
)
def test_the_largest_unit_of_one_or_more_is_chosen(value: float, dimension: str, text: str) -> None:
    assert format_quantity(value, dimension) == text


def test_a_unit_error_reaches_pydantic_as_one_finding() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Duration).validate_python("5 GB")
    (finding,) = caught.value.errors()
    assert isinstance(finding["ctx"]["error"], UnitError)


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_pattern_accepts_its_own_example(kind: Any) -> None:
    schema = TypeAdapter(kind).json_schema()
    assert re.search(schema["pattern"], schema["examples"][0])


def test_the_schema_pattern_refuses_a_bare_number() -> None:
    assert not re.search(TypeAdapter(Duration).json_schema()["pattern"], "5")


@pytest.mark.parametrize("kind", OF_HEAT)
def test_a_number_from_python_is_in_the_base_unit_and_one_from_a_file_is_refused(kind: Any) -> None:
    assert TypeAdapter(kind).validate_python(2.5) == 2.5
    with pytest.raises(ValidationError, match=r"2\.5 has no unit"):
        TypeAdapter(kind).validate_json("2.5")


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_pattern_accepts_a_minus_for_temperatures_only(kind: Any) -> None:
    schema = TypeAdapter(kind).json_schema()
    assert bool(re.search(schema["pattern"], f"-{schema['examples'][0]}")) == (kind is Temperature)
