"""A call's pieces: where it may be interrupted.

There is no preemption in hardware. A compiler that is told how long a call may take cuts it between tiles, and between
two pieces another call may go first. What the DMA has fetched ahead for the next piece is lost then and fetched again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from bpusim.trace import CallPart, CallProgram, part_of
from bpusim.units import Ps

if TYPE_CHECKING:
    from bpusim.arrays import Bools, Floats

__all__ = ["PartBook", "pieces"]

_KEPT = 128
"""Parts of calls that are kept."""


class PartBook:
    """Parts of calls. The same part is the same object, so that what is known of it holds when it comes again."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[int, int, int], CallPart] = OrderedDict()

    def part(self, call: CallProgram, start: int, stop: int) -> CallPart:
        """Items ``start`` to ``stop`` of a call or of a part of one."""
        whole, base = (call.whole, call.start) if isinstance(call, CallPart) else (call, 0)
        key = id(whole), base + start, base + stop
        found = self._parts.get(key)
        if found is None:  # a part keeps its whole alive: no other has its id meanwhile
            found = self._parts[key] = part_of(call, start, stop)
            if len(self._parts) > _KEPT:
                self._parts.popitem(last=False)
        else:
            self._parts.move_to_end(key)
        return found


def pieces(computed: Floats, is_write: Bools, bound: Ps) -> list[int]:
    """The last item of each piece but the last: each as long as it may be, and at least a tile.

    ``computed``: when each item of the call is, alone on the machine it was compiled for; it never falls.
    """
    reads = np.flatnonzero(~is_write)
    ends = computed[reads]
    out: list[int] = []
    k, begin = 0, 0.0
    while True:
        last = max(int(np.searchsorted(ends, begin + bound, side="right")) - 1, k)
        if last >= len(reads) - 1:
            return out
        out.append(int(reads[last]))
        k, begin = last + 1, float(ends[last])
