"""Transfers and an observer for tests of the DRAM channel and of what moves data through it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bpusim.metrics import Recorder
from bpusim.ports import Transfer


@dataclass(frozen=True)
class Parts:
    """So many bytes, some of them written."""

    bytes: int
    written: int = 0

    @property
    def mix(self) -> float:
        """Part of them that is written."""
        return self.written / self.bytes if self.bytes else 0.0

    def __iter__(self) -> Iterator[Transfer]:
        yield Transfer("io:x", 0, self.bytes, "io", False)


class Watcher(Recorder):
    """An observer that wants the rates."""

    __slots__ = ("log",)

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[int, dict[str, float]]] = []

    @property
    def wants_rates(self) -> bool:
        return True

    def rates_changed(self, at: int, rates: Mapping[str, float]) -> None:
        self.log.append((at, dict(rates)))
