"""The exception tree, and how an error that a user can mend is printed.

    BpusimError                 everything bpusim raises on purpose
    +-- UnitError               a quantity that cannot be read (also a ValueError)
    +-- ScenarioError           a scenario file or override
    +-- HardwareError           a machine description
    +-- TraceError              a compiled trace: damaged, too new, or for another target
    +-- CompileError            an ONNX graph or LLM configuration
    +-- SimulationError         a run that cannot go on (deadlock: who waits for whom)
    +-- StudyError              a study over scenarios

An error carries all :class:`Problem`\\ s found, so that a file is mended in one round.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "BpusimError",
    "CompileError",
    "HardwareError",
    "Place",
    "Problem",
    "ScenarioError",
    "SimulationError",
    "StudyError",
    "TraceError",
    "UnitError",
    "did_you_mean",
]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a user's file something stands; ``line`` and ``col`` count from 1, 0 means unknown."""

    file: str
    line: int = 0
    col: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.col}" if self.col else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: what, where, and what to do."""

    what: str
    place: Place | None = None
    do: str = ""
    between: bool = False
    """Whether it lies between this value and another, which could mend it as well."""

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        hint = f"; {self.do}" if self.do else ""
        return f"{where}error: {self.what}{hint}"


class BpusimError(Exception):
    """Base of all errors bpusim raises on purpose; ``problems`` lists every one found."""

    def __init__(self, problems: str | Problem | Iterable[Problem], *, place: Place | None = None, do: str = ""):
        if isinstance(problems, str):
            problems = Problem(problems, place, do)
        if isinstance(problems, Problem):
            problems = (problems,)
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))

    def __reduce__(self) -> tuple[type[BpusimError], tuple[tuple[Problem, ...]]]:
        """Problems with their places, from one process to another."""
        return type(self), (self.problems,)


class UnitError(BpusimError, ValueError):
    """A quantity without a unit, with an unknown one, or of the wrong dimension."""


class ScenarioError(BpusimError):
    """A scenario file or override is wrong."""


class HardwareError(BpusimError):
    """A machine description is wrong or names an unknown preset."""


class TraceError(BpusimError):
    """A trace is damaged, of an unknown version, or compiled for another target."""


class CompileError(BpusimError):
    """A graph or LLM configuration cannot be compiled."""


class SimulationError(BpusimError):
    """A run cannot go on."""


class StudyError(BpusimError):
    """A study over scenarios is wrong."""


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """``did you mean 'x'?`` for the closest known word, else the list of what is known."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return "known: " + ", ".join(sorted(known)) if known else ""
