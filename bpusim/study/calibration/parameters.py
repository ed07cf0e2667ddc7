"""What is fitted: numbers of the machine by their paths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from bpusim.documents import Document
from bpusim.errors import Place, Problem, StudyError, did_you_mean
from bpusim.hardware import MachineSpec
from bpusim.units import DIMENSIONS, dimension_of, format_quantity, parse_quantity

__all__ = ["Parameter", "parameters_of"]

_RANGE = 1000.0
"""A parameter is looked for within this factor of where it starts."""
_LIMITS = {"machine.dram.speed": (0.25, 4.0)}
"""What the schema allows of numbers without a unit."""
_START = {"time": 10**8}
"""ps: where a time starts that is zero in the machine; a logarithm has to start above it."""
_STEP = 0.01
"""Relative step of a difference quotient. Times are whole picoseconds: what a step changes is far above that."""
_QUANTA = 100
"""A step is so many base units (ps, B, Hz) at least."""
_WHY_NOT = {
    "dram.efficiency": "the channel's efficiency comes from the tables of its preset, see docs/DRAM.md; "
    "fit dram.speed (its clock), or cores.dma.port (what the core takes)",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A positive number of the machine. It is fitted by its logarithm relative to ``start``."""

    path: str
    start: float
    """In the base unit."""
    dimension: str | None

    def value(self, x: float) -> float:
        """The number for coordinate ``x``."""
        return self.start * math.exp(x)

    def told(self, x: float) -> str | float:
        """The number as a machine file has it; digits of what is a whole number of base units are all there."""
        return self.text(self.value(x))

    def text(self, value: float) -> str | float:
        """``value``, given in the base unit, for a file."""
        if self.dimension is None:
            return float(f"{value:.6g}")
        dim = DIMENSIONS[self.dimension]
        return f"{round(value)} {dim.base}" if dim.whole else f"{value:.6g} {dim.base}"

    def short(self, value: float) -> str:
        """``value`` for people."""
        return format_quantity(value, self.dimension) if self.dimension is not None else f"{value:.4g}"

    @property
    def bounds(self) -> tuple[float, float]:
        """Of the coordinate."""
        low, high = _LIMITS.get(self.path, (self.start / _RANGE, self.start * _RANGE))
        return math.log(low / self.start), math.log(high / self.start)

    def step(self, x: float) -> float:
        """Of the coordinate, for a difference quotient at ``x``."""
        return max(_STEP, _QUANTA / self.value(x)) if self._whole else _STEP

    @property
    def _whole(self) -> bool:
        return self.dimension is not None and DIMENSIONS[self.dimension].whole


def parameters_of(paths: Sequence[str], document: Document, machine: MachineSpec) -> tuple[Parameter, ...]:
    """Of ``paths`` as users write them, with or without ``machine.``. Raises :class:`StudyError` with all problems."""
    known = dict(_numbers(machine, "machine"))
    problems: list[Problem] = []
    found: list[Parameter] = []
    for text in paths:
        path = text if text.startswith("machine.") else f"machine.{text}"
        place = Place(f"--fit {text}")
        if any(p.path == path for p in found):
            problems.append(Problem("named twice", place, "name it once"))
            continue
        try:
            found.append(_parameter(path, document.data, machine, known))
        except StudyError as e:
            problems.extend(Problem(p.what, place, p.do) for p in e.problems)
    if problems:
        raise StudyError(problems)
    return tuple(found)


def _parameter(path: str, data: dict[str, Any], machine: MachineSpec, known: dict[str, Any]) -> Parameter:
    short = path.removeprefix("machine.")
    if path not in known:
        if short in _WHY_NOT:
            raise StudyError(f"'{short}' is no number of a machine", do=_WHY_NOT[short])
        where = short.rpartition(".")[0]
        near = [p.removeprefix("machine.") for p in known if p.removeprefix("machine.").rpartition(".")[0] == where]
        names = [p.removeprefix("machine.") for p in known]
        hint = did_you_mean(short, names)
        do = (
            hint
            if hint.startswith("did") or not near
            else f"there {'are' if len(near) > 1 else 'is'} {', '.join(near)}"
        )
        raise StudyError(f"'{short}' is no number of a machine", do=do)
    if short.removeprefix("cores.") in machine.cores.fingerprint():
        what = f"{short} shapes the compiled trace, so it does not change by small steps"
        raise StudyError(what, do="choose it, and fit what acts as it runs: cores.clock, cores.layer_sync, ...")
    written: Any = data
    for key in path.split("."):
        written = written.get(key) if isinstance(written, dict) else None
    dimension = dimension_of(written)
    value = known[path]
    if dimension is None and isinstance(value, int):
        raise StudyError(f"{short} is a count", do="choose it: a fit needs a number that may have any value")
    number = float(parse_quantity(written, dimension)) if dimension is not None else float(value)
    number = number or float(_START.get(dimension or "", 0))
    if number <= 0:
        raise StudyError(f"{short} is zero", do=f"give it a value to start from: --set machine.{short}=...")
    return Parameter(path, number, dimension)


def _numbers(spec: object, path: str) -> Iterator[tuple[str, float]]:
    """Numbers of a machine by path, in their base units."""
    if is_dataclass(spec):
        for f in fields(spec):
            yield from _numbers(getattr(spec, f.name), f"{path}.{f.name}")
    elif isinstance(spec, dict):
        for key, value in spec.items():
            yield from _numbers(value, f"{path}.{key}")
    elif isinstance(spec, int | float) and not isinstance(spec, bool):
        yield path, spec
