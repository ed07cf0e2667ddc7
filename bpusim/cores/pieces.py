"""A call's pieces: where it may be interrupted.

There is no preemption in hardware. A compiler that is told how long a call may take cuts it between tiles, and between
two pieces another call may go first. What the DMA has fetched ahead for the next piece is lost then and fetched again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bpusim.units import Ps

if TYPE_CHECKING:
    from bpusim.arrays import Bools, Floats

__all__ = ["pieces"]


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
