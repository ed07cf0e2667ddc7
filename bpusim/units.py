"""Quantities in users' files: ``17.1 GB/s``, ``479 ns``, ``4 MiB``.

Every quantity in a file carries a unit. SI prefixes are decimal, ``Ki Mi Gi`` are binary, ``B`` is a byte and
``b`` a bit. A bare number, an unknown unit, or a unit of another dimension is a :class:`UnitError`: nothing is
guessed. Inside the program, time is integer picoseconds and sizes are integer bytes.

No general units library does this safely: the common one reads ``GB/s`` as Hz, and ``MT/s`` as megatesla.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema

from bpusim.errors import UnitError, did_you_mean

__all__ = [
    "DIMENSIONS",
    "PS_PER_S",
    "Bandwidth",
    "Dimension",
    "Duration",
    "Energy",
    "EnergyPerByte",
    "FrameRate",
    "Frequency",
    "HeatCapacity",
    "PerByte",
    "Power",
    "Ps",
    "Size",
    "Temperature",
    "TemperatureDifference",
    "ThermalResistance",
    "TransferRate",
    "Voltage",
    "dimension_of",
    "format_quantity",
    "parse_quantity",
]

Ps = int
"""Time or duration in integer picoseconds."""

PS_PER_S = 10**12

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*)?")


@dataclass(frozen=True, slots=True)
class Dimension:
    """A kind of quantity: its name, the base unit that numbers are held in, and what each unit is worth."""

    name: str
    base: str
    units: dict[str, Decimal]
    example: str
    whole: bool = True
    """Whether a value must be a whole number of base units (time in ps, sizes in B)."""
    least: float = 0
    """The least value there is."""


def _si(base: str, scale: str = "1", prefixes: str = "k M G T") -> dict[str, Decimal]:
    powers = {"p": -12, "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12}
    return {p + base: Decimal(scale) * Decimal(10) ** powers[p] for p in ["", *prefixes.split()]}


def _binary(base: str, scale: str = "1") -> dict[str, Decimal]:
    return {p + base: Decimal(scale) * 1024**n for n, p in enumerate(("Ki", "Mi", "Gi"), start=1)}


_SIZE = _si("B") | _binary("B") | _si("b", "0.125") | _binary("b", "0.125")
_TIME = {
    "ps": Decimal(1),
    "ns": Decimal(10**3),
    "us": Decimal(10**6),
    "µs": Decimal(10**6),
    "ms": Decimal(10**9),
    "s": Decimal(10**12),
    "min": Decimal(60 * 10**12),
    "h": Decimal(3600 * 10**12),
}
_ENERGY = _si("J", prefixes="p n u m")

DIMENSIONS: dict[str, Dimension] = {
    d.name: d
    for d in (
        Dimension("time", "ps", _TIME, "479 ns"),
        Dimension("size", "B", _SIZE, "4 MiB"),
        Dimension("bandwidth", "B/s", {u + "/s": v for u, v in _SIZE.items()}, "17.1 GB/s"),
        Dimension("frequency", "Hz", _si("Hz"), "1.2207 GHz"),
        Dimension("transfer rate", "T/s", _si("T/s"), "3200 MT/s"),
        Dimension("frame rate", "Hz", _si("Hz", prefixes="k"), "12.5 Hz", whole=False),
        Dimension("time per byte", "ps/B", {u + "/B": v for u, v in _TIME.items()}, "50 ps/B", whole=False),
        Dimension("temperature", "degC", {"degC": Decimal(1)}, "25 degC", whole=False, least=-273.15),
        Dimension("temperature difference", "K", _si("K", prefixes="m"), "2 K", whole=False),
        Dimension("power", "W", _si("W", prefixes="m"), "2.5 W", whole=False),
        Dimension("voltage", "V", _si("V", prefixes="m"), "0.8 V", whole=False),
        Dimension("energy", "J", _ENERGY, "0.2 pJ", whole=False),
        Dimension("energy per byte", "J/B", {u + "/B": v for u, v in _ENERGY.items()}, "60 pJ/B", whole=False),
        Dimension("thermal resistance", "K/W", {"K/W": Decimal(1)}, "4.6 K/W", whole=False),
        Dimension("heat capacity", "J/K", {"J/K": Decimal(1)}, "120 J/K", whole=False),
    )
}


def _a(dimension: Dimension) -> str:
    return f"{'an' if dimension.name[0] in 'aeio' else 'a'} {dimension.name}"


def parse_quantity(text: object, dimension: str) -> int | float:
    """The value of ``text`` in the base unit of ``dimension``.

    Raises :class:`UnitError` for a bare number, an unknown unit, another dimension's unit, a negative value,
    or a value finer than the base unit.
    """
    dim = DIMENSIONS[dimension]
    if isinstance(text, bool) or not isinstance(text, str):
        if isinstance(text, int | float) and not isinstance(text, bool):
            raise UnitError(f"{text} has no unit", do=f"write {_a(dim)} such as '{dim.example}'")
        raise UnitError(f"{text!r} is not {_a(dim)}", do=f"write one such as '{dim.example}'")
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        raise UnitError(f"'{text}' is not {_a(dim)}", do=f"write one such as '{dim.example}'")
    number, unit = match[1], match[2]
    if unit is None:
        raise UnitError(f"'{text}' has no unit", do=f"write {_a(dim)} such as '{dim.example}'")
    if unit not in dim.units:
        for other in DIMENSIONS.values():
            if unit in other.units:
                raise UnitError(f"'{text}' is {_a(other)}, not {_a(dim)}", do=f"write one such as '{dim.example}'")
        raise UnitError(f"'{text}' has an unknown unit '{unit}'", do=did_you_mean(unit, sorted(dim.units)))
    out_of_range = UnitError(f"'{text}' is out of range", do=f"write one such as '{dim.example}'")
    try:
        value = Decimal(number) * dim.units[unit]
    except ArithmeticError:
        raise out_of_range from None
    if value < Decimal(str(dim.least)):
        what, least = ("below absolute zero", f"{dim.least} {dim.base}") if dim.least else ("negative", "zero")
        raise UnitError(f"'{text}' is {what}", do=f"write {_a(dim)} of {least} or more")
    if value > 10**24:
        raise out_of_range
    if not dim.whole:
        return float(value)
    if value != value.to_integral_value():
        raise UnitError(f"'{text}' is not a whole number of {dim.base}")
    return int(value)


def format_quantity(value: float, dimension: str) -> str:
    """``value`` (in the base unit) in the largest decimal unit that keeps it at 1 or more, the base unit at least."""
    dim = DIMENSIONS[dimension]
    decimal = {
        u: float(v) for u, v in dim.units.items() if "i" not in u and "b" not in u and u not in ("µs", "min", "h")
    }
    unit, scale = dim.base, 1.0
    for name, worth in decimal.items():
        if scale < worth <= abs(value):
            unit, scale = name, worth
    return f"{value / scale:.4g} {unit}"


def dimension_of(text: object) -> str | None:
    """The dimension whose unit ends ``text``, such as time for ``479 ns``; None if it is no quantity."""
    match = _NUMBER.fullmatch(text.strip()) if isinstance(text, str) else None
    return next((d.name for d in DIMENSIONS.values() if match and match[2] in d.units), None)


def _quantity(dimension: str) -> tuple[BeforeValidator, WithJsonSchema]:
    dim = DIMENSIONS[dimension]

    def validate(value: Any, info: ValidationInfo) -> int | float:
        # Files come in as JSON; a number can only come from Python, and there it is in the base unit.
        if info.mode == "python" and isinstance(value, int | float) and not isinstance(value, bool):
            if value < dim.least:
                raise UnitError(f"{value} {dim.base} is less than there is")
            return value
        return parse_quantity(value, dimension)

    units = "|".join(re.escape(u) for u in dim.units)
    sign = "-?" if dim.least < 0 else ""
    schema = {
        "type": "string",
        "pattern": rf"^\s*{sign}(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*({units})$",
        "examples": [dim.example],
        "description": f"{dim.name}, with its unit",
    }
    return BeforeValidator(validate), WithJsonSchema(schema)


Duration = Annotated[int, *_quantity("time")]
"""A time in a user's file; picoseconds inside."""
Size = Annotated[int, *_quantity("size")]
"""A size in a user's file; bytes inside."""
Bandwidth = Annotated[int, *_quantity("bandwidth")]
"""A data rate in a user's file; bytes per second inside."""
Frequency = Annotated[int, *_quantity("frequency")]
"""A clock in a user's file; Hz inside."""
FrameRate = Annotated[float, *_quantity("frame rate")]
"""How often something comes, in a user's file; Hz inside, fractions allowed."""
TransferRate = Annotated[int, *_quantity("transfer rate")]
"""A DRAM data rate in a user's file; transfers per second and pin inside."""
PerByte = Annotated[float, *_quantity("time per byte")]
"""A cost per byte in a user's file; picoseconds per byte inside."""
Temperature = Annotated[float, *_quantity("temperature")]
"""A temperature in a user's file; degC inside."""
TemperatureDifference = Annotated[float, *_quantity("temperature difference")]
"""A hysteresis in a user's file; kelvin inside."""
Power = Annotated[float, *_quantity("power")]
"""A power in a user's file; watts inside."""
Voltage = Annotated[float, *_quantity("voltage")]
"""A supply voltage in a user's file; volts inside."""
Energy = Annotated[float, *_quantity("energy")]
"""An energy in a user's file; joules inside."""
EnergyPerByte = Annotated[float, *_quantity("energy per byte")]
"""An energy per byte in a user's file; joules per byte inside."""
ThermalResistance = Annotated[float, *_quantity("thermal resistance")]
"""Between two nodes of a heat path, in a user's file; kelvin per watt inside."""
HeatCapacity = Annotated[float, *_quantity("heat capacity")]
"""Of a node of a heat path, in a user's file; joules per kelvin inside."""
