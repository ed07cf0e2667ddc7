"""From the time that an op took to the cycles that make it take as long here."""

from __future__ import annotations

from bpusim.trace.roofline import Roof
from bpusim.units import PS_PER_S, Ps

__all__ = ["measured_cycles"]


def measured_cycles(ps: Ps, moved: int, macs: int, roof: Roof, hz: int, *, on_cpu: bool) -> tuple[int, Ps]:
    """(cycles, what the machine adds to the op by itself).

    That is ``op_overhead`` on the core; on the CPU the entry into a kernel, cache maintenance of the ``moved`` bytes
    and the ``macs`` that are counted as elements. The cycles take the rest of the time, at ``hz`` on the core.
    """
    if on_cpu:
        work = macs * roof.cpu_cycles["mac"] * PS_PER_S // roof.cpu_hz
        added, clock = roof.cpu_entry + round(moved * roof.cpu_cache_per_byte) + work, roof.cpu_hz
    else:
        added, clock = roof.op_overhead, hz
    return (2 * max(ps - added, 0) * clock + PS_PER_S) // (2 * PS_PER_S), added
