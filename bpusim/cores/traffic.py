"""What host work moves through the DRAM channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bpusim.cores.pools import cut
from bpusim.ports import BufferKind, Transfer

__all__ = ["HostTraffic"]


class HostTraffic:
    """Bytes that host work moves, by (buffer kind, is a write): a :class:`bpusim.ports.TransferList`."""

    __slots__ = ("buffer", "bytes", "mix", "moved")

    def __init__(self, buffer: str, moved: Mapping[tuple[BufferKind, bool], int]) -> None:
        self.buffer = buffer
        self.moved = moved
        self.bytes = sum(moved.values())
        """All together."""
        written = sum(n for (_, write), n in moved.items() if write)
        self.mix = round(written / self.bytes, 2) if written else 0.0
        """Part of them that is written."""

    def __iter__(self) -> Iterator[Transfer]:
        for (kind, write), n in self.moved.items():
            yield Transfer(self.buffer, 0, n, kind, write)

    def cut(self, parts: int) -> list[HostTraffic]:
        """The same in ``parts``."""
        pieces = [cut(n, parts) for n in self.moved.values()]
        return [HostTraffic(self.buffer, dict(zip(self.moved, row, strict=True))) for row in zip(*pieces, strict=True)]
